"""Erasing a topic over HTTP: deletes it, and hides what the log still holds of it from all readers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from mq_shards.acceptor.access.rights import MANAGE, READ
from mq_shards.gateway import broker as broker_module
from mq_shards.gateway.access import check, may, may_all, owner_of
from mq_shards.gateway.broker import Broker, BrokerError, TopicNotFoundError
from mq_shards.gateway.http_answers import Answer, HttpError, json_answer
from mq_shards.gateway.http_handling import Handler
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.names import exact, raw, shown
from mq_shards.gateway.workers import WorkersError

if TYPE_CHECKING:  # imports numpy, so it is not loaded before the first read
    from mq_shards.shards.reader.view import DataView

log = logging.getLogger(__name__)


class HttpErase:
    def __init__(self, broker: Broker, view: Callable[[], DataView], threads: Executor) -> None:
        self._broker = broker
        self._view = view
        self._threads = threads
        self._erasing = asyncio.Lock()
        self.routes: Final[dict[str, dict[str, Handler]]] = {
            "/v1/topics/": {"DELETE": self._erase},
            "/v1/erased": {"GET": self._list},
        }

    async def _erase(self, request: Request, fields: dict[str, str]) -> Answer:
        name = raw(fields["name"])
        called = shown(name)
        check(request, MANAGE, called)
        if not name or "\n" in name:
            raise HttpError(404, f"there is no topic {called!r}")
        by = owner_of(request)
        # log.erased-hours lets other topics' messages go as well, which only who manages those too may bring about.
        soon = may_all(request, MANAGE)
        async with self._erasing:
            is_there = await self._delete(called)
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._threads, lambda: self._view().erase(name, by, soon=soon))
        if found is None and not is_there:
            raise HttpError(404, f"there is no topic {called}")
        records, until = (0, 0) if found is None else (found.records, found.latest)
        log.warning(
            "topic %.200r is erased: %d messages up to seq %d, by %s at %s",
            called, records, until, by or "nobody in particular", request.peer,
        )  # fmt: skip
        return json_answer({"topic": called, "erased": records, "until": until})

    async def _delete(self, topic: str) -> bool:
        """Deletes the topic. False: no worker has it; the log may still hold some of its messages."""
        try:
            await self._broker.change(broker_module.DELETE, exact(topic))
        except TopicNotFoundError:
            return False
        except (BrokerError, WorkersError) as error:
            raise HttpError(503, f"the topic is not deleted: {error}") from None
        return True

    async def _list(self, request: Request, fields: dict[str, str]) -> Answer:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, lambda: self._view().erasures())
        erased = [
            {"topic": shown(topic), "until": erasure.until, "erased_ns": erasure.erased_ns, "by": erasure.by}
            for topic, erasure in sorted(found.items())
            if may(request, READ, shown(topic))
        ]
        return json_answer({"erased": erased})
