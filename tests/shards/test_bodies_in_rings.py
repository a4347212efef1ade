"""Bodies that go to the log straight from the ring: each is what was published, whoever gets it and when."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.shards.bench import FOREVER, OK, OPEN, PUBLISH, RESERVE, WATCH, Bench

SIZES = [100, 8191, 8192, 20_000, 64_000, 65_000, 300_000]  # the last is in fragments


@pytest.fixture()
def bench() -> Iterator[Bench]:
    b = Bench(ring_bytes=1 << 20)
    b.send(OPEN, topic=1, id=0, body=b"a")
    b.send(WATCH, 1, topic=1)
    b.turn()
    yield b
    b.dispose()


@pytest.mark.parametrize("waits", [True, False], ids=["reserved-in-the-same-turn", "reserved-later"])
def test_bodies_of_all_sizes_come_back_whole_at_once_later_and_after_a_restart(bench: Bench, waits: bool) -> None:
    rng = random.Random(waits)
    bodies: dict[int, bytes] = {}
    got: dict[int, bytes] = {}
    for round_ in range(30):
        slots = [bench.send(RESERVE, delay=FOREVER) for _ in range(3 if waits else 0)]
        for i in range(5):  # the ring goes round and round, so that what lay there is soon something else
            number = (round_ * 5 + i + 1) * 4 * 16
            bodies[number] = rng.randbytes(rng.choice(SIZES[:-1] if i else SIZES))
            bench.send(PUBLISH, 2, topic=1, id=number, body=bodies[number])
        answers = bench.turn()
        assert all(a.status == OK for a in answers)
        served = {a.id: a.body for a in answers if a.slot in slots}
        assert len(served) == len(slots)
        got |= served
    while len(got) < len(bodies):
        answer = bench.ask(RESERVE)
        got[answer.id] = answer.body
    assert got == bodies
    bench.restart()
    bench.send(OPEN, topic=1, id=0, body=b"a")
    bench.send(WATCH, 1, topic=1)
    bench.turn()
    again = [bench.ask(RESERVE) for _ in bodies]
    assert {a.id: a.body for a in again} == bodies
