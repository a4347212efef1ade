"""How long readers wait for the broker's other clients. Time passes when nobody has anything to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable

import pytest
from mq_shards.gateway.pipeline import giving_way
from mq_shards.gateway.pipeline.giving_way import FAIR, MOST_CLOSED, GiveWay, share

PIECE_S = 0.001


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """All times an eighth of what they are."""
    for name in ("CYCLE_S", "PROBE_S", "SETTLE_S", "PROBE_EVERY_S"):
        monkeypatch.setattr(giving_way, name, getattr(giving_way, name) / 8)


class Leaping(selectors.DefaultSelector):
    """Instead of waiting it moves the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout is not None:
            self.now += max(timeout, 0.0)
        return found


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = Leaping()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def now() -> float:
    return asyncio.get_running_loop().time()


class Machine:
    """Other clients write `alone` records a second, `beside` of them while a piece is being read."""

    def __init__(self, alone: float, beside: float) -> None:
        self._alone = alone
        self._beside = beside
        self._written = 0.0
        self._since = 0.0
        self._reading = 0
        self.pieces = 0

    def written(self) -> int:
        self._advance()
        return int(self._written)

    def _advance(self) -> None:
        passed, self._since = now() - self._since, now()
        self._written += passed * (self._beside if self._reading else self._alone)

    async def read(self, way: GiveWay, until: float) -> None:
        with way:
            while now() < until:
                await way.turn()
                self._advance()
                self._reading += 1
                await asyncio.sleep(PIECE_S)
                self._advance()
                self._reading -= 1
                self.pieces += 1


Then = Callable[[GiveWay, Machine], Awaitable[None]]


def beside(machine: Machine, seconds: float, then: Then | None = None) -> tuple[float, float]:
    """Two readers who take all they get; how much of the time they read, and how many records others wrote a second."""

    async def run() -> tuple[float, float]:
        way = GiveWay(machine.written)
        running = asyncio.create_task(way.run())
        await asyncio.gather(*(machine.read(way, seconds) for _ in range(2)))
        written = machine.written()
        if then is not None:
            await then(way, machine)
        running.cancel()
        return machine.pieces * PIECE_S / 2 / seconds, written / seconds

    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(run())


def test_the_share_is_what_others_need_and_no_more() -> None:
    assert share(1000, 1000) == share(1500, 1000) == share(FAIR * 1000, 1000) == 0
    needed = share(800, 1000)
    assert needed * 1000 + (1 - needed) * 800 == pytest.approx(FAIR * 1000)
    assert share(0, 1000) == min(FAIR, MOST_CLOSED)


def test_others_keep_their_part() -> None:
    read, written = beside(Machine(alone=100_000, beside=30_000), 2.0)
    kept = written / 100_000
    assert kept > 0.6, kept  # FAIR once it is known what they need, which takes a second
    assert 0.15 < read < 0.7, read


@pytest.mark.parametrize(("alone", "with_readers"), [(100_000, 100_000), (100_000, 95_000), (100, 0), (0, 0)])
def test_who_is_in_nobodys_way_is_hardly_held_up(alone: float, with_readers: float) -> None:
    read, _ = beside(Machine(alone, with_readers), 1.6)
    busy = alone >= giving_way.QUIET
    assert read > (0.55 if busy else 0.7), read


def test_readers_are_never_kept_out() -> None:
    """Even if all that others do is what readers hold up."""
    read, _ = beside(Machine(alone=100_000, beside=0), 1.6)
    assert read > (1 - MOST_CLOSED) / 3


@pytest.mark.parametrize("pause_s", [1.0, 1000.0])
def test_what_is_known_of_others_holds_for_who_comes_soon(pause_s: float) -> None:
    """A query is over before it is known what it costs, and the next one begins."""

    async def again(way: GiveWay, machine: Machine) -> None:
        known = way.closed_share
        assert known > giving_way.AT_FIRST + giving_way.RELEASE
        await asyncio.sleep(pause_s)
        with way:
            await asyncio.sleep(0.01)  # `run` has seen it
            if pause_s < giving_way.REMEMBERED_S:  # one cycle may have come to its end without readers
                assert way.closed_share > known - giving_way.RELEASE - 0.01 > giving_way.AT_FIRST
            else:
                assert way.closed_share == giving_way.AT_FIRST

    beside(Machine(alone=100_000, beside=10_000), 2.0, again)


def test_a_gate_that_is_no_longer_kept_is_open() -> None:
    async def stopped(way: GiveWay, machine: Machine) -> None:
        assert way.closed_share > 0.3
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait_for(way.turn(), 5.0)

    beside(Machine(alone=100_000, beside=10_000), 1.0, stopped)
