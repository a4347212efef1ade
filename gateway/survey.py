"""The topics of all workers, for figures that people and Prometheus look at. A worker that does not answer holds up
nobody: the topics of the others are given without its own, and it is named.

What a silent worker was asked stays under way, and the next survey waits for that same answer. So a worker that hangs
has one question to answer when it goes on, and one that is only slow is heard a survey later. How long it takes to read
what it has answered is no matter: with very many topics that is longer than one waits for a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from mq_shards.gateway.catalog import Topic, decode_in_pieces
from mq_shards.gateway.turns import sorted_by_name
from mq_shards.gateway.workers import WorkersError

WITHIN_S: Final = 1.0
AGAIN_S: Final = 0.1  # for a worker that was silent the last time
KEPT_S: Final = 5.0  # how old an answer may be that came too late for its own survey


@dataclass(frozen=True, slots=True)
class Survey:
    topics: list[Topic]  # of the workers that have answered, sorted by name
    silent: frozenset[int]  # the other workers
    took_s: float  # until the last of the answers came, and to read them


@dataclass(frozen=True, slots=True)
class _Answer:
    catalog: bytes | None  # None: the worker has died, or hangs
    at: float

    def is_useless(self, now: float) -> bool:
        return self.catalog is None or self.at < now - KEPT_S


class Surveys:
    def __init__(
        self,
        ask: Callable[[int], Awaitable[bytes]],
        read: Callable[[bytes], Awaitable[list[Topic]]] = decode_in_pieces,
    ) -> None:
        """`ask` returns a worker's catalog, or raises WorkersError; `read` returns the topics in one."""
        self._ask = ask
        self._read = read
        self._late: dict[int, asyncio.Task[_Answer]] = {}  # what was not answered in time, by worker

    @property
    def silent(self) -> frozenset[int]:
        return frozenset(worker for worker, late in self._late.items() if not late.done())

    async def take(self, workers: Iterable[int], within_s: float = WITHIN_S) -> Survey:
        """Asks these workers."""
        begun = _now()
        asked: dict[int, asyncio.Task[_Answer]] = {}
        for worker in workers:
            late = self._late.get(worker)
            if late is None or (late.done() and late.result().is_useless(begun)):
                late = asyncio.create_task(self._of(worker))
            asked[worker] = late
        new = [one for worker, one in asked.items() if self._late.get(worker) is not one]
        if new:
            await asyncio.wait(new, timeout=within_s)
        if asked:
            await asyncio.wait(asked.values(), timeout=max(0.0, begun + AGAIN_S - _now()))
        answers = {worker: one.result() for worker, one in asked.items() if one.done()}
        for worker, one in asked.items():
            self._keep(worker, one)
        heard = [answer for answer in answers.values() if answer.catalog is not None]
        last_at, read_at = max((answer.at for answer in heard), default=begun), _now()
        read = [topic for answer in heard for topic in await self._read(answer.catalog or b"")]
        topics = await sorted_by_name(read, lambda topic: topic.name)
        silent = frozenset(worker for worker in asked if worker not in answers or answers[worker].catalog is None)
        return Survey(topics, silent, last_at - begun + _now() - read_at)

    def _keep(self, worker: int, one: asyncio.Task[_Answer]) -> None:
        """Keeps what is not answered, once for each worker, and forgets what was late and is used now."""
        if not one.done() and self._late.setdefault(worker, one) is not one:
            one.cancel()
        elif one.done() and self._late.get(worker) is one:
            del self._late[worker]

    async def _of(self, worker: int) -> _Answer:
        try:
            catalog = await self._ask(worker)
        except WorkersError:
            return _Answer(None, _now())
        return _Answer(catalog, _now())


def _now() -> float:
    return asyncio.get_running_loop().time()
