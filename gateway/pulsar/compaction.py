"""Compaction of topics, one after another. A run reads its topic once, and tells the worker which messages are
superseded.

Nothing is kept between two runs: the topic's compacted view tells a run all that it has to know. A run that is cut
short has done a part of its work, and nothing wrong.

Owns: which topics are being compacted, and how each last run went (until the process ends, as in a real broker).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import COMPACTION, TopicName
from mq_shards.gateway.pulsar.core import Core, NoSubscriptionError, NoTopicError
from mq_shards.gateway.pulsar.refusals import RefusedError, conflict, unavailable
from mq_shards.gateway.pulsar.superseding import Superseding, TooManyKeysError

MAX_WAITING: Final = 10_000  # topics to be compacted; the results of twice as many are remembered
MAX_KEY_BYTES: Final = 256 << 20  # of memory, for the keys of one topic
MAX_BATCH_BYTES: Final = 128 << 20

NOT_RUN: Final = "NOT_RUN"
RUNNING: Final = "RUNNING"
SUCCESS: Final = "SUCCESS"
ERROR: Final = "ERROR"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Run:
    """How the last run of a topic went, or goes. Times are wall clock."""

    status: str = NOT_RUN
    error: str = ""
    removed: int = 0
    succeeded_ms: int = 0
    failed_ms: int = 0
    took_ms: int = 0


class Compaction:
    def __init__(self, core: Core, now_s: Callable[[], float] = time.time, max_key_bytes: int = MAX_KEY_BYTES) -> None:
        self._core = core
        self._now_s = now_s
        self._max_key_bytes = max_key_bytes
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._waiting: list[TopicName] = []
        self._task: asyncio.Task[None] | None = None

    def of(self, name: TopicName) -> Run:
        return self._runs.get(str(name)) or Run()

    def start(self, name: TopicName) -> None:
        """Queues a run. Raises RefusedError if the topic has one queued or under way, or too many are queued."""
        before = self._runs.pop(str(name), Run())
        if before.status == RUNNING:
            self._runs[str(name)] = before
            raise conflict("Compaction already in progress")
        if len(self._waiting) >= MAX_WAITING:
            raise unavailable("too many topics wait for their compaction")
        before.status, before.error = RUNNING, ""
        self._runs[str(name)] = before
        self._waiting.append(name)
        if len(self._runs) > 2 * MAX_WAITING:
            self._forget_one()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def _forget_one(self) -> None:
        oldest = next((text for text, run in self._runs.items() if run.status != RUNNING), None)
        if oldest is not None:
            del self._runs[oldest]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def backlog(self, name: TopicName) -> int:
        """How many messages compaction has not seen."""
        try:
            where = await self._core.position(name.core, COMPACTION)
        except NoSubscriptionError:
            where = await self._core.position(name.core)
            return where.messages
        return max(where.depth - where.compacted_messages, 0)

    # --- runs -------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while self._waiting:
            name = self._waiting.pop(0)
            run = self._runs[str(name)]
            began_s = self._now_s()
            try:
                run.removed = await self._compact(name)
                run.status, run.succeeded_ms = SUCCESS, int(self._now_s() * 1000)
            except (NoTopicError, NoSubscriptionError):
                self._failed(name, run, "Topic not found")
            except TooManyKeysError:
                self._failed(name, run, "There are more keys than can be kept in memory")
            except RefusedError as error:
                self._failed(name, run, error.reason)
            except Exception as error:  # concerns one topic: the others go on
                log.exception("cannot compact %s", name)
                self._failed(name, run, str(error))
            run.took_ms = int((self._now_s() - began_s) * 1000)
        self._task = None

    def _failed(self, name: TopicName, run: Run, why: str) -> None:
        log.warning("compaction of %s: %s", name, why)
        run.status, run.error, run.failed_ms = ERROR, why, int(self._now_s() * 1000)

    async def _compact(self, name: TopicName) -> int:
        """Compacts all that the topic has now. Returns how many messages that removed."""
        where = await self._core.position(name.core)
        superseding = Superseding(self._max_key_bytes, MAX_BATCH_BYTES)
        seq = where.first_seq
        while True:
            scanned, after = await self._core.scan(name.core, seq)
            *earlier, last = await asyncio.to_thread(superseding.judge, scanned, seq)
            for part in earlier:
                await self._core.compact(name.core, part, 0)
            await self._core.compact(name.core, last, min(after, where.next_seq))
            if after >= where.next_seq or after <= seq:
                return superseding.removed
            seq = after
