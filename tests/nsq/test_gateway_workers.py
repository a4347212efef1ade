"""The gateway asks workers: whose answer is whose, how many may be under way, and what was given up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

import pytest
from mq_shards.acceptor import engine as engine_module
from mq_shards.acceptor.engine import Answer, Engine, Upcall, WorkerRequest
from mq_shards.gateway.workers import CONNECTION_REQUESTS, WORKER_CONNECTIONS, Workers, WorkersError


class FakeEngine:
    """One worker; what is asked is answered when a test says so."""

    workers = 1

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, bytes]] = []  # connection, slot, body
        self.answers: list[Upcall] = []
        self._next_slot: dict[int, int] = {}
        self._poll_fd = os.eventfd(0)

    def fileno(self) -> int:
        return self._poll_fd

    def local(self) -> int:
        conn = len(self._next_slot) + 1
        self._next_slot[conn] = 0
        return conn

    def request(self, worker: int, conn: int, request: WorkerRequest) -> int:
        slot = self._next_slot[conn]
        self._next_slot[conn] += 1
        self.asked.append((conn, slot, request.body))
        return slot

    def poll(self) -> int:
        return len(self.answers)

    def upcalls(self) -> Iterator[Upcall]:
        while self.answers:
            yield self.answers.pop(0)

    def close_connection(self, conn: int) -> None:
        pass

    def answer(self, conn: int, slot: int, status: int = engine_module.OK, body: bytes = b"") -> None:
        self.answers.append(Upcall(engine_module.ANSWER, conn, 0, b"", Answer(0, status, slot, 0, body)))

    def close(self) -> None:
        os.close(self._poll_fd)


def with_workers(play: Callable[[FakeEngine, Workers], Awaitable[None]], **limits: float) -> None:
    async def run() -> None:
        engine = FakeEngine()
        workers = Workers(cast(Engine, engine), **limits)  # type: ignore[arg-type]
        try:
            await play(engine, workers)
        finally:
            workers.close()
            engine.close()

    asyncio.run(run())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class TestWorkers:
    def test_each_has_its_own_answer(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            asked = (WorkerRequest(1, body=b"%d" % i) for i in range(CONNECTION_REQUESTS + 10))
            tasks = [asyncio.create_task(workers.ask(0, request)) for request in asked]
            await settle()
            assert len({conn for conn, _, _ in engine.asked}) == 2
            for conn, slot, body in reversed(engine.asked):
                engine.answer(conn, slot, body=b"to " + body)
            workers.turn()
            assert [(await task).body for task in tasks] == [b"to %d" % i for i in range(len(tasks))]

        with_workers(play)

    def test_there_is_a_limit(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            limit = CONNECTION_REQUESTS * WORKER_CONNECTIONS
            tasks = [asyncio.create_task(workers.ask(0, WorkerRequest(1))) for _ in range(limit)]
            await settle()
            with pytest.raises(WorkersError):
                await workers.ask(0, WorkerRequest(1))
            engine.answer(*engine.asked[0][:2])
            workers.turn()
            tasks.append(asyncio.create_task(workers.ask(0, WorkerRequest(1))))
            await settle()
            assert len(engine.asked) == limit + 1

        with_workers(play)

    def test_who_only_looks_does_not_wait_for_a_worker_that_hangs(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            looks = asyncio.create_task(workers.ask(0, WorkerRequest(1), looks=True))
            changes = asyncio.create_task(workers.ask(0, WorkerRequest(1)))
            await settle()
            workers.hang([0])
            with pytest.raises(WorkersError, match="worker 0 does not answer"):
                await looks
            with pytest.raises(WorkersError, match="worker 0 does not answer"):
                await workers.ask(0, WorkerRequest(1), looks=True)
            assert len(engine.asked) == 2, "it has no more to do when it goes on"
            workers.hang([])
            again = asyncio.create_task(workers.ask(0, WorkerRequest(1), looks=True))
            await settle()
            for conn, slot, _ in engine.asked:
                engine.answer(conn, slot)
            workers.turn()
            assert (await changes).status == (await again).status == engine_module.OK

        with_workers(play)

    def test_bytes_have_one_too(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            first = asyncio.create_task(workers.ask(0, WorkerRequest(1, body=b"x" * 150)))  # alone it may be larger
            await settle()
            with pytest.raises(WorkersError):
                await workers.ask(0, WorkerRequest(1, body=b"x"))
            engine.answer(*engine.asked[0][:2])
            workers.turn()
            await first
            asyncio.create_task(workers.ask(0, WorkerRequest(1, body=b"x" * 100)))  # noqa: RUF006
            await settle()
            assert len(engine.asked) == 2

        with_workers(play, bytes_under_way=100)

    def test_a_task_that_is_cancelled_ends_though_it_is_answered_at_the_same_moment(self) -> None:
        """Otherwise a stop waits for a task that goes on for ever."""

        async def play(engine: FakeEngine, workers: Workers) -> None:
            task = asyncio.create_task(workers.ask(0, WorkerRequest(1)))
            await settle()
            engine.answer(*engine.asked[0][:2])
            workers.turn()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        with_workers(play)

    def test_whoever_gives_up_is_not_missed(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            with pytest.raises(WorkersError, match="has not answered"):
                await workers.ask(0, WorkerRequest(1, body=b"x" * 100))
            with pytest.raises(WorkersError, match="bytes"):  # a worker may yet come back and take it
                await workers.ask(0, WorkerRequest(1, body=b"x"))
            engine.answer(*engine.asked[0][:2])
            workers.turn()
            task = asyncio.create_task(workers.ask(0, WorkerRequest(1, body=b"x")))
            await settle()
            engine.answer(*engine.asked[1][:2], body=b"late is not for me")
            workers.turn()
            assert (await task).body == b"late is not for me"

        with_workers(play, request_s=0.02, bytes_under_way=100)

    def test_requests_in_order_share_a_connection_whatever_else_is_under_way(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            for n in range(100):
                for order in (None, 7, 8):
                    request = WorkerRequest(1, body=f"{order} {n}".encode())
                    asyncio.create_task(workers.ask(0, request, order=order))  # noqa: RUF006
            await settle()
            for order in (b"7", b"8"):
                asked = [(conn, slot) for conn, slot, body in engine.asked if body.split()[0] == order]
                assert asked == [(asked[0][0], slot) for slot in range(100)]
            assert len({conn for conn, _, _ in engine.asked}) == 3

        with_workers(play)

    def test_behind_what_was_given_up_nothing_is_asked_for_in_order(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            with pytest.raises(WorkersError, match="has not answered"):
                await workers.ask(0, WorkerRequest(1), order=7)
            for order in (7, 8):
                with pytest.raises(WorkersError, match="does not answer"):
                    await workers.ask(0, WorkerRequest(1), order=order)
            assert len(engine.asked) == 1
            engine.answer(*engine.asked[0][:2])
            workers.turn()
            task = asyncio.create_task(workers.ask(0, WorkerRequest(1), order=7))
            await settle()
            engine.answer(*engine.asked[1][:2])
            workers.turn()
            assert (await task).status == engine_module.OK

        with_workers(play, request_s=0.02)

    def test_a_broken_ring_ends_the_process(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            engine.answers.append(Upcall(engine_module.BROKEN, 0, 0, b"", None))
            workers.turn()
            with pytest.raises(RuntimeError, match="broken"):
                await workers.broken

        with_workers(play)
