"""The acceptor's main loop: what Python has to do does not keep the engine waiting."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

from mq_shards.acceptor import process
from mq_shards.acceptor.access.access import Access
from mq_shards.acceptor.engine import COMMAND, Upcall
from mq_shards.acceptor.process import AcceptorProcess
from mq_shards.acceptor.watched import Watched
from mq_shards.ringbuf.calls import Calls


class SlowEngine:
    """Has a queue of upcalls, as when a hundred clients ask for stats at once."""

    def __init__(self, upcalls: int) -> None:
        self.upcalls_left = deque(Upcall(COMMAND, n, 0, b"stats\r\n", None) for n in range(upcalls))
        self.runs: list[tuple[int, int]] = []  # how long each might wait, and how many upcalls were left

    def run(self, max_wait_ns: int) -> None:
        self.runs.append((max_wait_ns, len(self.upcalls_left)))

    def upcalls(self) -> Iterator[Upcall]:
        while self.upcalls_left:
            yield self.upcalls_left.popleft()


def test_the_engine_runs_between_commands_that_take_long_and_none_is_lost() -> None:
    engine, handled = SlowEngine(100), list[int]()
    loop = AcceptorProcess.__new__(AcceptorProcess)
    loop._engine = cast(Any, engine)
    loop._protocols = {}
    loop._secure = {}
    loop._more, loop._timed, loop._touched = False, False, True
    loop._calls = Calls(Watched(), time.monotonic_ns)
    loop._access = Access(lambda: None, lambda conn: 0, cast(Any, None))

    def handle(upcall: Upcall) -> None:
        time.sleep(0.0004)
        handled.append(upcall.conn)

    loop._handle = handle  # type: ignore[method-assign]
    while engine.upcalls_left:
        loop._turns(10_000_000)
    loop._turns(10_000_000)
    assert handled == list(range(100))
    most = process.TURN_NS // 400_000 + 1
    lefts = [left for _, left in engine.runs]
    assert all(before - after <= most for before, after in pairwise(lefts)), lefts
    assert all(wait == 0 for wait, left in engine.runs if 0 < left < 100), "it does not wait while something is left"
