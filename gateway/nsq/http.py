"""nsqd's HTTP API: its paths, status codes, bodies and headers (docs/gateway.md says what differs).

Routing is done here and not by the library: nsqd's router redirects, matches and refuses in its own way, and decodes a
query more strictly. Whatever a client sends ends in a response; a defect that a request brings to light is logged and
answered INTERNAL_ERROR.
"""

from __future__ import annotations

import html
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, unquote_plus

import orjson
from mq_shards.acceptor.access.rights import MANAGE, PUBLISH
from mq_shards.acceptor.protocols.nsq.options import NSQD_VERSION
from mq_shards.gateway import broker as broker_module
from mq_shards.gateway.access import check, check_all
from mq_shards.gateway.broker import (
    Broker,
    BrokerError,
    ChannelNotFoundError,
    TooManyTopicsError,
    TopicNotFoundError,
)
from mq_shards.gateway.catalog import Topic
from mq_shards.gateway.http_answers import TEXT, Answer, HttpError
from mq_shards.gateway.http_bodies import Bodies, BodyError
from mq_shards.gateway.http_server import HttpServer, Request
from mq_shards.gateway.nsq import mpub
from mq_shards.gateway.nsq import stats as nsq_stats
from mq_shards.gateway.nsq.memory import memory_figures
from mq_shards.gateway.nsq.mpub import MpubError
from mq_shards.gateway.nsq.names import is_ephemeral, is_valid_channel, is_valid_name
from mq_shards.gateway.nsq.options import GatewayOptions
from mq_shards.gateway.nsq.topics import is_visible, visible_topics
from mq_shards.gateway.turns import in_pieces
from mq_shards.gateway.unread import Unread
from mq_shards.gateway.workers import WorkersError
from mq_shards.ringbuf.time_units import MS_NS, SECOND_NS
from mq_shards.shards.erased import ErasedError
from mq_shards.shards.reader_names import ReadersError

MAX_CONNECTIONS: Final = 2048
MAX_QUERY_FIELDS: Final = 1000
SENT_AT_ONCE_BYTES: Final = 64 << 10  # of an answer to /stats
MAX_CAUSES: Final = 64  # the most reasons that are logged why named readers are not shown

LOG_LEVELS: Final = {  # nsqd's names, its numbers, and ours
    "debug": (1, logging.DEBUG),
    "info": (2, logging.INFO),
    "warn": (3, logging.WARNING),
    "error": (4, logging.ERROR),
    "fatal": (5, logging.CRITICAL),
}
MAX_LOOKUPD_ADDRESSES: Final = 32
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_CONFIG: Final = "/config/"
_JSON: Final = "application/json; charset=utf-8"
_VERSIONED: Final = {"X-Nsq-Content-Type": "nsq; version=1.0"}
# nsqd's answers when a body does not come, finds no memory, or comes in part.
_BODY_ERRORS: Final = {408: (408, "TIMEOUT"), 503: (503, "BUSY"), 400: (500, "INTERNAL_ERROR")}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """A request, parsed as Go's library does."""

    request: Request
    path: str
    query: str

    def fields(self) -> dict[str, str]:
        """The first value of each parameter. Raises HttpError."""
        found: dict[str, str] = {}
        if self.query.count("&") >= MAX_QUERY_FIELDS:
            raise HttpError(400, "INVALID_REQUEST")
        for pair in self.query.split("&"):
            if ";" in pair or _BAD_ESCAPE.search(pair):
                raise HttpError(400, "INVALID_REQUEST")
            if pair:
                name, _, value = pair.partition("=")
                found.setdefault(unquote_plus(name, errors="replace"), unquote_plus(value, errors="replace"))
        return found


Data = str | bytes | dict[str, Any] | list[Any] | int | float | bool | None
Handler = Callable[[Call], Awaitable[Answer | None]]  # None: it has sent the answer
Action = Callable[[Call], Awaitable[Data]]


class Surroundings(NamedTuple):
    """What the API tells of and changes besides topics."""

    lookupd_addresses: Callable[[], Sequence[str] | None]
    set_lookupd_addresses: Callable[[Sequence[str] | None], None]
    prepare_topic: Callable[[str], Awaitable[None]]  # called before anything that may make a topic
    unread: Callable[[], Awaitable[Mapping[str, Sequence[Unread]]]]  # what named readers have not read
    producers: Callable[[], Awaitable[list[dict[str, Any]]]]  # the clients that publish
    supervisor: int  # its process id
    version: str  # of mq-shards


class NsqHttp:
    def __init__(self, options: GatewayOptions, broker: Broker, bodies: Bodies, around: Surroundings) -> None:
        self._options = options
        self._broker = broker
        self._around = around
        self._logged: set[str] = set()
        self._max_message_bytes: int = options.nsq["max-msg-size"]
        self._max_body_bytes: int = options.nsq["max-body-size"]
        self._bodies = bodies
        root_level = logging.getLogger().level
        self._log_level = next((name for name, (_, level) in LOG_LEVELS.items() if level == root_level), "info")
        self._routes = self._make_routes()
        self.server: Final = HttpServer(self._serve, bodies, MAX_CONNECTIONS)

    # --- a request --------------------------------------------------------------------------------------------------

    async def _serve(self, request: Request) -> Answer | None:
        try:
            return await self._respond(request)
        except HttpError as error:
            return _versioned(error.status, {"message": error.message})
        except Exception:
            log.exception("cannot serve %s %.200r", request.method, request.target)
            return _versioned(500, {"message": "INTERNAL_ERROR"})

    async def _respond(self, request: Request) -> Answer | None:
        if self._options.http_forbidden and not request.is_encrypted:
            body = b'{"message": "TLS_REQUIRED", "https_port": %d}' % self._options.https_port
            return _response(403, body, _JSON, _VERSIONED)
        raw_path, _, query = _origin_form(request.target).partition("?")
        if _BAD_ESCAPE.search(raw_path):
            return _response(400, b"400 Bad Request", TEXT, {"Connection": "close"})
        path = unquote(raw_path, errors="replace")
        handler = self._handlers(path).get(request.method)
        if handler is not None:
            return await handler(Call(request, path, query))
        return self._not_routed(request.method, path, query)

    def _handlers(self, path: str) -> dict[str, Handler]:
        if path.startswith(_CONFIG) and len(path) > len(_CONFIG) and "/" not in path[len(_CONFIG) :]:
            path = _CONFIG
        elif path == _CONFIG:
            return {}
        return self._routes.get(path, {})

    def _not_routed(self, method: str, path: str, query: str) -> Answer:
        """Answers like nsqd's router: a redirect to the path that was meant, the allowed methods, or 404."""
        meant = "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
        head, separator, option = meant.partition(_CONFIG)
        meant = meant.lower() if not separator else head + separator + option
        if method in self._handlers(meant) and meant != path:
            location = meant + ("?" + query if query else "")
            get = method == "GET"
            body = f'<a href="{html.escape(location)}">Moved Permanently</a>.\n\n'.encode() if get else b""
            content_type = "text/html; charset=utf-8" if get else None
            return _response(301 if get else 307, body, content_type, {"Location": _header_safe(location)})
        allowed = sorted({*self._handlers(path), "OPTIONS"})
        if len(allowed) == 1:
            return _versioned(404, {"message": "NOT_FOUND"})
        if method == "OPTIONS":
            return _response(200, b"", None, {"Allow": ", ".join(allowed)})
        return _versioned(405, {"message": "METHOD_NOT_ALLOWED"}, {"Allow": ", ".join(allowed)})

    @asynccontextmanager
    async def _read(self, call: Call, limit: int) -> AsyncIterator[bytes]:
        """Reads at most `limit` bytes of the body. Raises HttpError."""
        try:
            async with self._bodies.read(call.request, limit) as body:
                yield body
        except BodyError as error:
            raise HttpError(*_BODY_ERRORS[error.status]) from None

    # --- routes -----------------------------------------------------------------------------------------------------

    def _make_routes(self) -> dict[str, dict[str, Handler]]:
        change = self._change_of
        return {
            "/ping": {"GET": self._ping},
            "/info": {"GET": _action(self._info)},
            "/pub": {"POST": _action(self._pub)},
            "/mpub": {"POST": _action(self._mpub)},
            "/stats": {"GET": self._stats},
            "/topic/create": {"POST": _action(self._create_topic)},
            "/topic/delete": {"POST": _action(change(broker_module.DELETE, self._topic))},
            "/topic/empty": {"POST": _action(change(broker_module.EMPTY, self._valid_topic))},
            "/topic/pause": {"POST": _action(change(broker_module.PAUSE, self._topic))},
            "/topic/unpause": {"POST": _action(change(broker_module.UNPAUSE, self._topic))},
            "/channel/create": {"POST": _action(change(broker_module.MAKE, self._topic_and_channel))},
            "/channel/delete": {"POST": _action(change(broker_module.DELETE, self._topic_and_channel))},
            "/channel/empty": {"POST": _action(change(broker_module.EMPTY, self._topic_and_channel))},
            "/channel/pause": {"POST": _action(change(broker_module.PAUSE, self._topic_and_channel))},
            "/channel/unpause": {"POST": _action(change(broker_module.UNPAUSE, self._topic_and_channel))},
            _CONFIG: {"GET": _action(self._config), "PUT": _action(self._put_config)},
        }

    async def _ping(self, call: Call) -> Answer:
        health = self._broker.health
        return _response(200 if health == "OK" else 500, health.encode(), TEXT)

    async def _info(self, call: Call) -> Data:
        options = self._options
        return {
            "version": NSQD_VERSION,
            "broadcast_address": options.broadcast_address,
            "hostname": options.hostname,
            "http_port": options.http_port,
            "tcp_port": options.tcp_port,
            "start_time": options.started_wall_ns // SECOND_NS,
            "max_heartbeat_interval": options.nsq["max-heartbeat-interval"],
            "max_output_buffer_size": options.nsq["max-output-buffer-size"],
            "max_output_buffer_timeout": options.nsq["max-output-buffer-timeout"],
            "max_deflate_level": options.nsq["max-deflate-level"],
            "mq_shards_version": self._around.version,
        }

    async def _pub(self, call: Call) -> Data:
        if (call.request.content_length or 0) > self._max_message_bytes:
            raise HttpError(413, "MSG_TOO_BIG")
        async with self._read(call, self._max_message_bytes + 1) as body:
            if len(body) > self._max_message_bytes:
                raise HttpError(413, "MSG_TOO_BIG")
            if not body:
                raise HttpError(400, "MSG_EMPTY")
            fields = call.fields()
            topic = _publish_topic(fields)
            delay_ns = 0
            if "defer" in fields:
                delay_ns = _whole_number(fields["defer"]) * MS_NS
                if not 0 <= delay_ns <= self._options.nsq["max-req-timeout"]:
                    raise HttpError(400, "INVALID_DEFER")
            check(call.request, PUBLISH, topic)
            await self._around.prepare_topic(topic)
            await _publishing(self._broker.publish(topic, body, delay_ns))
        return "OK"

    async def _mpub(self, call: Call) -> Data:
        if (call.request.content_length or 0) > self._max_body_bytes:
            raise HttpError(413, "BODY_TOO_BIG")
        fields = call.fields()
        topic = _publish_topic(fields)
        check(call.request, PUBLISH, topic)
        binary = "binary" in fields and _BOOLEANS.get(fields["binary"], True)
        async with self._read(call, self._max_body_bytes + 1) as body:
            try:
                take = mpub.from_binary if binary else mpub.from_lines
                count, bodies = await take(body, self._max_message_bytes, self._max_body_bytes)
            except MpubError as error:
                raise HttpError(413, str(error)) from None
            await self._around.prepare_topic(topic)
            if count:
                await _publishing(self._broker.publish_many(topic, count, bodies))
            else:
                await self._change(broker_module.MAKE, topic, None)
        return "OK"

    async def _stats(self, call: Call) -> Answer | None:
        fields = call.fields()
        clients = _BOOLEANS.get(fields.get("include_clients", ""), True)
        memory = None
        if _BOOLEANS.get(fields.get("include_mem", ""), True):
            memory = memory_figures(self._around.supervisor)
        wanted = fields.get("topic", "")
        topics: list[Topic] = []
        silent: list[str] = []
        if not wanted:
            topics, silent = await visible_topics(self._broker, consumers=clients)
        elif is_valid_name(wanted):
            try:
                topics = list(filter(is_visible, await self._broker.topic(wanted, consumers=clients)))
            except WorkersError as error:
                raise HttpError(503, "BUSY") from error
        exists = bool(topics) or not wanted
        producers = nsq_stats.producers_json(await self._around.producers(), wanted) if clients and exists else None
        health = self._broker.health_beside(sorted({*self._broker.hanging, *silent}))
        started_ns, now_ns = self._options.started_wall_ns, time.time_ns()
        listed = self._listed(topics, fields.get("channel", ""), clients=clients)
        if fields.get("format") != "json":
            begin = nsq_stats.broker_text(
                memory,
                health,
                built_with=f"mq-shards {self._around.version}",
                started_wall_ns=started_ns,
                now_wall_ns=now_ns,
            )
            of_topics = ["".join(nsq_stats.topics_text(piece, now_ns)).encode() async for piece in listed]
            of_topics.insert(0, b"\nTopics:" if any(of_topics) else b"\nTopics: None\n")
            end = nsq_stats.producers_text(producers or [], now_ns)
            return await _large(call.request, ["".join(begin).encode(), *of_topics, "".join(end).encode()], TEXT)
        before = {"version": NSQD_VERSION, "health": health, "start_time": started_ns // SECOND_NS}
        behind: dict[str, object] = ({} if memory is None else {"memory": memory}) | {"producers": producers}
        if silent:
            behind["mq_shards_silent"] = silent
        # nsqd shows null, unlike [], if there is no such topic.
        of_topics = [b",".join(map(orjson.dumps, piece)) async for piece in listed] if exists else []
        shown = [b"[", *_separated([piece for piece in of_topics if piece]), b"]"] if exists else [b"null"]
        begin_json, end_json = orjson.dumps(before)[:-1], orjson.dumps(behind)[1:]
        return await _large(call.request, [begin_json, b',"topics":', *shown, b",", end_json], _JSON)

    async def _listed(
        self, topics: Sequence[Topic], channel: str, *, clients: bool
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """The topics that a request shows, in pieces with pauses for the event loop."""
        readers = await self._readers() if topics and not channel else {}
        async for piece in in_pieces(topics, 128):
            shown = nsq_stats.select(piece, channel)
            listed = nsq_stats.topics_json(shown, on_disk=self._options.data_dir, clients=clients)
            if readers:
                nsq_stats.add_readers(listed, readers)
            yield listed

    async def _readers(self) -> Mapping[str, Sequence[Unread]]:
        try:
            return await self._around.unread()
        except (ReadersError, ErasedError, OSError) as error:
            self._log_once(str(error))
            return {}

    def _log_once(self, cause: str) -> None:
        """Logs each reason once, since /stats is asked for every few seconds."""
        if cause not in self._logged and len(self._logged) < MAX_CAUSES:
            self._logged.add(cause)
            log.warning("/stats is without named readers: %s", cause)

    async def _create_topic(self, call: Call) -> Data:
        topic = _publish_topic(call.fields())
        check(call.request, MANAGE, topic)
        await self._around.prepare_topic(topic)
        await self._change(broker_module.MAKE, topic, None)
        return None

    def _change_of(self, what: int, names: Callable[[Call], tuple[str, str | None]]) -> Action:
        async def action(call: Call) -> Data:
            async with self._read(call, self._max_message_bytes):  # like nsqd, read and ignore a body
                topic, channel = names(call)
                check(call.request, MANAGE, topic)
                await self._change(what, topic, channel)
            return None

        return action

    async def _change(self, what: int, topic: str, channel: str | None) -> None:
        try:
            await self._broker.change(what, topic, channel, ephemeral=is_ephemeral(channel or ""))
        except TopicNotFoundError:
            raise HttpError(404, "TOPIC_NOT_FOUND") from None
        except ChannelNotFoundError:
            raise HttpError(404, "CHANNEL_NOT_FOUND") from None
        except TooManyTopicsError:
            raise HttpError(503, "TOO_MANY_TOPICS") from None
        except (BrokerError, WorkersError) as error:
            log.warning("a change of topic %s failed: %s", topic, error)
            raise HttpError(500, "INTERNAL_ERROR") from None

    def _topic(self, call: Call) -> tuple[str, None]:
        topic = call.fields().get("topic")
        if topic is None:
            raise HttpError(400, "MISSING_ARG_TOPIC")
        if not is_valid_name(topic):
            raise HttpError(404, "TOPIC_NOT_FOUND")
        return topic, None

    def _valid_topic(self, call: Call) -> tuple[str, None]:
        return _publish_topic(call.fields()), None

    def _topic_and_channel(self, call: Call) -> tuple[str, str]:
        fields = call.fields()
        for name, is_valid in (("topic", is_valid_name), ("channel", is_valid_channel)):
            if name not in fields:
                raise HttpError(400, f"MISSING_ARG_{name.upper()}")
            if not is_valid(fields[name]):
                raise HttpError(400, f"INVALID_ARG_{name.upper()}")
        return fields["topic"], fields["channel"]

    # --- /config ----------------------------------------------------------------------------------------------------

    async def _config(self, call: Call) -> Data:
        return self._option(call.path[len(_CONFIG) :])

    async def _put_config(self, call: Call) -> Data:
        check_all(call.request, MANAGE)
        name = call.path[len(_CONFIG) :]
        async with self._read(call, self._max_message_bytes + 1) as body:
            if not body or len(body) > self._max_message_bytes:
                raise HttpError(413, "INVALID_VALUE")
        match name:
            case "nsqlookupd_tcp_addresses":
                self._around.set_lookupd_addresses(_addresses(body))
            case "log_level":
                level = body.decode("latin-1").lower()
                if level not in LOG_LEVELS:
                    raise HttpError(400, "INVALID_VALUE")
                self._log_level = level
                logging.getLogger().setLevel(LOG_LEVELS[level][1])
            case _:
                raise HttpError(400, "INVALID_OPTION")
        return self._option(name)

    def _option(self, name: str) -> Data:
        if name == "nsqlookupd_tcp_addresses":
            addresses = self._around.lookupd_addresses()
            # Like nsqd, which keeps a null list as null.
            return b"null" if addresses is None else list(addresses)
        if name == "log_level":
            return LOG_LEVELS[self._log_level][0]
        options = self._options.config()
        if name not in options:
            raise HttpError(400, "INVALID_OPTION")
        value: Data = options[name]
        return value


def _action(action: Action) -> Handler:
    """Answers with what an action returns, as nsqd does: text as it is, None as an empty body, all else as JSON."""

    async def handler(call: Call) -> Answer:
        return _versioned(200, await action(call))

    return handler


def _versioned(status: int, data: Data, headers: dict[str, str] | None = None) -> Answer:
    headers = {**_VERSIONED, **(headers or {})}
    if data is None:
        return _response(status, b"", None, headers)
    if isinstance(data, str):
        return _response(status, data.encode(), TEXT if data else None, headers)
    if isinstance(data, bytes):
        return _response(status, data, _JSON, headers)
    return _response(status, orjson.dumps(data), _JSON, headers)


def _response(status: int, body: bytes, content_type: str | None, headers: dict[str, str] | None = None) -> Answer:
    all_headers = dict(headers or {})
    if content_type is not None:
        all_headers["Content-Type"] = content_type
    return Answer(status, body, all_headers)


async def _large(request: Request, parts: Sequence[bytes], content_type: str) -> Answer | None:
    """An answer that may be large: then it is sent here, in parts."""
    if sum(map(len, parts)) <= SENT_AT_ONCE_BYTES:
        return _response(200, b"".join(parts), content_type, _VERSIONED)
    await request.send(200, {**_VERSIONED, "Content-Type": content_type}, parts)
    return None


def _separated(pieces: Sequence[bytes]) -> Iterator[bytes]:
    for n, piece in enumerate(pieces):
        yield b"," + piece if n else piece


def _publish_topic(fields: dict[str, str]) -> str:
    if "topic" not in fields:
        raise HttpError(400, "MISSING_ARG_TOPIC")
    if not is_valid_name(fields["topic"]):
        raise HttpError(400, "INVALID_TOPIC")
    return fields["topic"]


async def _publishing(done: Awaitable[None]) -> None:
    try:
        await done
    except TooManyTopicsError:
        raise HttpError(503, "TOO_MANY_TOPICS") from None
    except (BrokerError, WorkersError) as error:
        log.debug("a message was refused: %r", error)
        raise HttpError(503, "EXITING") from None


def _whole_number(text: str) -> int:
    """A whole number of up to 18 digits; -1 for anything else."""
    return int(text) if re.fullmatch("[+-]?[0-9]{1,18}", text, re.ASCII) else -1


def _addresses(body: bytes) -> list[str] | None:
    try:
        addresses = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise HttpError(400, "INVALID_VALUE") from None
    if addresses is None:
        return None
    if not isinstance(addresses, list) or len(addresses) > MAX_LOOKUPD_ADDRESSES:
        raise HttpError(400, "INVALID_VALUE")
    if not all(isinstance(address, str) for address in addresses):
        raise HttpError(400, "INVALID_VALUE")
    return addresses


def _origin_form(target: str) -> str:
    """The path and query of a request target, which is a whole URL if the client uses a proxy."""
    match = re.match(r"https?://[^/?]*", target, re.IGNORECASE)
    return target if match is None else target[match.end() :] or "/"


def _header_safe(text: str) -> str:
    """Escapes a decoded path, which may contain line ends, for use in a header."""
    return re.sub(r"[^\x21-\x7e]", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)
