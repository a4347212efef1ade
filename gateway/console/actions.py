"""The changes that the console and the commands for a terminal can make. Actions.do() checks the rights of each."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mq_shards.acceptor.access.rights import MANAGE, PUBLISH
from mq_shards.acceptor.engine import Engine, WorkerRequest
from mq_shards.csrc._core import lib
from mq_shards.gateway import broker as broker_module
from mq_shards.gateway.access import check
from mq_shards.gateway.broker import (
    BadTopicError,
    Broker,
    BrokerError,
    ChannelNotFoundError,
    DiskError,
    DrainingError,
    TopicNotFoundError,
    check_answer,
)
from mq_shards.gateway.http_answers import HttpError
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.nsq.names import is_ephemeral, is_valid_name
from mq_shards.gateway.workers import Workers, WorkersError
from mq_shards.ringbuf.time_units import SECOND_NS

MAX_DELAY_S: Final = 1 << 32
MAX_KICK: Final = 1 << 32

Said = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    right: str
    do: Callable[[Said], Awaitable[dict[str, Any]]]


class Actions:
    def __init__(
        self,
        engine: Engine,
        workers: Workers,
        broker: Broker,
        prepare_topic: Callable[[str], Awaitable[None]],
        max_message_bytes: int,
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._broker = broker
        self._prepare_topic = prepare_topic
        self._max_message_bytes = max_message_bytes
        self._actions: Final[Mapping[str, Action]] = {
            "publish": Action(PUBLISH, self._publish),
            "make": Action(MANAGE, self._change(broker_module.MAKE)),
            "delete": Action(MANAGE, self._change(broker_module.DELETE)),
            "empty": Action(MANAGE, self._change(broker_module.EMPTY)),
            "pause": Action(MANAGE, self._change(broker_module.PAUSE)),
            "unpause": Action(MANAGE, self._change(broker_module.UNPAUSE)),
            "pause-tube": Action(MANAGE, self._pause_tube),
            "kick": Action(MANAGE, self._kick),
            "rewind": Action(MANAGE, self._rewind),
        }

    async def do(self, request: Request, said: object) -> dict[str, Any]:
        """Makes the change that `said`, a decoded body, describes. Raises HttpError."""
        if not isinstance(said, dict) or not isinstance(said.get("do"), str):
            raise HttpError(400, f'say {{"do": ..., "topic": ...}}; do is one of {", ".join(self._actions)}')
        action = self._actions.get(said["do"])
        if action is None:
            raise HttpError(400, f"there is no {said['do']!r:.40}; do is one of {', '.join(self._actions)}")
        topic = _text(said, "topic")
        check(request, action.right, topic)
        try:
            return await action.do(said)
        except TopicNotFoundError:
            raise HttpError(404, f"there is no topic {topic}") from None
        except ChannelNotFoundError:
            raise HttpError(404, f"topic {topic} has no channel {said.get('channel')}") from None
        except DrainingError:
            raise HttpError(503, "the broker takes no new messages until it is started again") from None
        except BadTopicError as error:
            raise HttpError(400, str(error)) from None
        except DiskError as error:
            raise HttpError(507, str(error)) from None
        except (BrokerError, WorkersError) as error:
            raise HttpError(503, str(error) or "the broker could not do it") from None

    # --- single actions ---------------------------------------------------------------------------------------------

    async def _publish(self, said: Said) -> dict[str, Any]:
        topic, delay_s = _text(said, "topic"), _number(said, "delay_s", 0, MAX_DELAY_S)
        body = _body(said)
        if len(body) > self._max_message_bytes:
            raise HttpError(413, f"a message has {self._max_message_bytes} bytes at most")
        await self._prepare_topic(topic)
        await self._broker.publish(topic, body, int(delay_s * SECOND_NS))
        return {"published": 1}

    def _change(self, what: int) -> Callable[[Said], Awaitable[dict[str, Any]]]:
        async def change(said: Said) -> dict[str, Any]:
            topic = _text(said, "topic")
            channel = _text(said, "channel") if said.get("channel") is not None else None
            if what == broker_module.MAKE and not (is_valid_name(topic) and is_valid_name(channel or "x")):
                raise HttpError(400, "a name has 1 to 64 letters, digits, '.', '_' and '-', and may end in #ephemeral")
            if "\n" in topic or "\n" in (channel or ""):
                raise HttpError(404, "there is no such topic")
            if what == broker_module.MAKE:
                await self._prepare_topic(topic)
                await self._broker.change(what, topic)
            if what != broker_module.MAKE or channel is not None:
                await self._broker.change(what, topic, channel, ephemeral=is_ephemeral(channel or ""))
            return {}

        return change

    async def _pause_tube(self, said: Said) -> dict[str, Any]:
        name = _text(said, "topic").encode()
        seconds = _number(said, "seconds", 0, MAX_DELAY_S)
        worker = self._engine.worker_of_name(name)
        request = WorkerRequest(lib.MSG_PAUSE, body=name, delay_ns=int(seconds * SECOND_NS))
        answer = await self._workers.ask(worker, request)
        check_answer(worker, answer)
        return {}

    async def _kick(self, said: Said) -> dict[str, Any]:
        """Kicks jobs like beanstalkd: the buried ones or, if there are none, the delayed ones."""
        topic = _text(said, "topic")
        most = int(_number(said, "most", 1 << 20, MAX_KICK))
        worker, number = await self._number_of(topic)
        answer = await self._workers.ask(worker, WorkerRequest(lib.MSG_KICK, topic=number, id=most))
        check_answer(worker, answer)
        return {"kicked": answer.id}

    async def _rewind(self, said: Said) -> dict[str, Any]:
        """Moves a channel: it gets all messages from a seq or time on again, and none before."""
        topic, channel = _text(said, "topic"), _text(said, "channel")
        start, at = lib.START_EARLIEST, 0
        if "seq" in said:
            start, at = lib.START_SEQ, int(_number(said, "seq", 0, (1 << 63) - 1))
        elif "time_ns" in said:
            start, at = lib.START_TIME, int(_number(said, "time_ns", 0, (1 << 63) - 1))
        elif said.get("to") == "latest":
            start = lib.START_LATEST
        worker, number = await self._number_of(topic)
        request = WorkerRequest(lib.MSG_SEEK, topic=number, pri=start, ttr_ns=at, body=channel.encode())
        answer = await self._workers.ask(worker, request)
        check_answer(worker, answer)
        return {"seq": answer.seq}

    async def _number_of(self, topic: str) -> tuple[int, int]:
        """The worker and the number of a topic, which must exist: others are not bound to a number."""
        if not await self._broker.topic(topic):
            raise TopicNotFoundError
        number = self._engine.bind(topic.encode())
        if number == 0:
            raise WorkersError("there are as many topics as there may be")
        return self._engine.worker_of_topic(number), number


def _text(said: Said, name: str) -> str:
    found = said.get(name)
    if not isinstance(found, str) or not found:
        raise HttpError(400, f"{name} is missing")
    return found


def _number(said: Said, name: str, default: float, most: float) -> float:
    found = said.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= most:
        raise HttpError(400, f"{name} is a number from 0 to {most:g}")
    return found


def _body(said: Said) -> bytes:
    if isinstance(said.get("base64"), str):
        try:
            return base64.b64decode(said["base64"], validate=True)
        except binascii.Error:
            raise HttpError(400, "base64 is none") from None
    if not isinstance(said.get("body"), str):
        raise HttpError(400, "body, a text, or base64 is missing")
    return str(said["body"]).encode(errors="replace")
