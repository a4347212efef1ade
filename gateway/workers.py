"""Requests to workers: each is sent on a local connection of the engine, and the caller waits for the reply.

Owns: the local connections, and the count of requests and bytes under way. Each worker has connections of its own:
requests for a worker that is gone wait until it is back, and must not take room from those for others. Requests that
must be done in order share a connection.

Must never: wait without a time limit. A request that was given up may still be done, without the caller learning of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from mq_shards.acceptor import engine as engine_module
from mq_shards.acceptor.engine import Answer, Engine, WorkerRequest

CONNECTION_REQUESTS: Final = 256  # MAX_OUTSTANDING, csrc/acceptor/bounds.h
WORKER_CONNECTIONS: Final = 4
BYTES_UNDER_WAY: Final = 64 << 20
REQUEST_S: Final = 20.0
LOOK_S: Final = 2.0  # for somebody who only looks, and can look again


class WorkersError(Exception):
    """The request was not answered: too much was under way already, or it took too long."""


class BrokenRingError(RuntimeError):
    """A ring is damaged: a worker of ours cannot have written what it holds. A new process gets new rings."""


@dataclass(slots=True)
class _Local:
    """A connection of the engine without a socket."""

    conn: int
    waiting: dict[int, tuple[asyncio.Future[Answer], int]] = field(default_factory=dict)  # by slot; bytes of the body

    @property
    def has_given_up(self) -> bool:
        """Whether the caller of the oldest unanswered request has stopped waiting."""
        return any(future.done() for future, _ in islice(self.waiting.values(), 1))


class Workers:
    def __init__(self, engine: Engine, bytes_under_way: int = BYTES_UNDER_WAY, request_s: float = REQUEST_S) -> None:
        """To be made while the event loop runs."""
        self.broken: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._bytes_limit = bytes_under_way
        self._request_s = request_s
        self._bytes = 0
        self._locals: list[list[_Local]] = [[] for _ in range(engine.workers)]
        self._in_order: list[dict[int, _Local]] = [{} for _ in range(engine.workers)]
        self._by_conn: dict[int, _Local] = {}
        self._attached: set[int] = set()
        self._hanging: Collection[int] = ()
        self._looking: list[set[asyncio.Future[Answer]]] = [set() for _ in range(engine.workers)]
        self.attachments = 0  # how often a worker was attached so far
        self._turn_due = False
        self._loop.add_reader(engine.fileno(), self.turn)

    def close(self) -> None:
        self._loop.remove_reader(self._engine.fileno())
        for local in self._by_conn.values():
            for future, _ in local.waiting.values():
                future.cancel()
            self._engine.close_connection(local.conn)
        self._by_conn.clear()

    # --- the workers ------------------------------------------------------------------------------------------------

    @property
    def missing(self) -> list[int]:
        """Workers that are gone and not back yet."""
        return [worker for worker in range(self._engine.workers) if worker not in self._attached]

    def attach(self, worker: int, out_fd: int, in_fd: int, wake_fd: int) -> None:
        self._engine.peer(worker, out_fd, in_fd, wake_fd)
        self._attached.add(worker)
        self.attachments += 1
        self._turn_soon()

    def detach(self, worker: int) -> None:
        self._engine.peer_gone(worker)
        self._attached.discard(worker)
        self._turn_soon()

    def hang(self, hanging: Collection[int]) -> None:
        """The workers that do not answer the supervisor, now: whoever only looks waits for them no longer."""
        self._hanging = hanging
        for worker in hanging:
            for future in self._looking[worker]:
                if not future.done():
                    future.set_exception(_silent(worker))

    # --- requests ---------------------------------------------------------------------------------------------------

    async def ask(
        self,
        worker: int,
        request: WorkerRequest,
        *,
        order: int | None = None,
        within_s: float | None = None,
        looks: bool = False,
    ) -> Answer:
        """Sends a request. Returns the worker's reply, with STATUS_FAILED if it died before. Raises WorkersError.

        Requests with the same `order`, the number of a shard, are done in the order in which they are made. `looks`:
        nothing is changed, so there is no waiting for a worker that is known to hang.
        """
        if looks and worker in self._hanging:
            raise _silent(worker)
        size = len(request.body)
        if self._bytes + size > self._bytes_limit and self._bytes > 0:
            raise WorkersError(f"{self._bytes} bytes are under way already")
        local = self._local(worker) if order is None else self._local_in_order(worker, order)
        slot = self._engine.request(worker, local.conn, request)
        if slot < 0:
            raise WorkersError("the engine takes no more requests")
        future: asyncio.Future[Answer] = self._loop.create_future()
        local.waiting[slot] = future, size
        self._bytes += size
        self._turn_soon()
        if looks:
            self._looking[worker].add(future)
        try:
            # wait_for() would keep a reply that comes together with a cancellation, and the task would go on.
            async with asyncio.timeout(within_s := within_s or self._request_s):
                return await future
        except TimeoutError:
            raise WorkersError(f"worker {worker} has not answered for {within_s:g} s") from None
        finally:
            self._looking[worker].discard(future)

    def _local(self, worker: int) -> _Local:
        """The connection with the fewest requests under way; a new one when all are full."""
        there_are = self._locals[worker]
        local = min(there_are, key=lambda one: len(one.waiting), default=None)
        if local is None or len(local.waiting) >= CONNECTION_REQUESTS:
            if len(there_are) == WORKER_CONNECTIONS:
                raise WorkersError(f"too many requests wait for worker {worker}")
            local = self._new_local()
            there_are.append(local)
        return local

    def _local_in_order(self, worker: int, order: int) -> _Local:
        """The connection for that order. Refuses while a request that was given up is unanswered, as callers retry."""
        there_are = self._in_order[worker]
        if any(local.has_given_up for local in there_are.values()):
            raise WorkersError(f"worker {worker} does not answer")
        local = there_are.get(order)
        if local is None:
            local = there_are[order] = self._new_local()
        if len(local.waiting) >= CONNECTION_REQUESTS:
            raise WorkersError(f"too many requests wait for worker {worker}")
        return local

    def _new_local(self) -> _Local:
        conn = self._engine.local()
        local = self._by_conn[conn] = _Local(conn)
        return local

    # --- the engine -------------------------------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        """Schedules one turn for all requests that are made in this turn of the event loop."""
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self.turn)

    def turn(self) -> None:
        self._turn_due = False
        try:
            self._engine.poll()
            for upcall in self._engine.upcalls():
                if upcall.kind == engine_module.ANSWER:
                    assert upcall.answer is not None
                    self._answered(upcall.conn, upcall.answer)
                elif upcall.kind == engine_module.BROKEN:
                    raise BrokenRingError(f"the ring from worker {upcall.conn} is broken")
        except Exception as error:  # it concerns all requests: the process cannot go on
            if not self.broken.done():
                self.broken.set_exception(error)

    def _answered(self, conn: int, answer: Answer) -> None:
        future, body_bytes = self._by_conn[conn].waiting.pop(answer.slot)
        self._bytes -= body_bytes
        if not future.done():  # else the caller has given up
            future.set_result(answer)


def _silent(worker: int) -> WorkersError:
    return WorkersError(f"worker {worker} does not answer")
