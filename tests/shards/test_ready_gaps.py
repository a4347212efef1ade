"""Ready jobs that are deleted by id, from the middle of their tube: the others keep their order, and nothing stays of
those that are gone."""

from __future__ import annotations

import random

import pytest

from tests.shards.bench import DELETE, OK, PUBLISH, RESERVE, SHARDS, WATCH
from tests.shards.subscriptions import Channels
from tests.shards.test_stream_memory import own_memory

AT_ONCE = 500


def put(bench: Channels, count: int, pri: int = 1024) -> list[int]:
    topic, first = bench.topic("t"), bench.next_id
    bench.next_id += SHARDS * count
    jobs = list(range(first, bench.next_id, SHARDS))
    for job in jobs:
        bench.raw(PUBLISH, 999, topic=topic, id=job, pri=pri)
    assert {answer.status for answer in bench.turn()} == {OK}
    return jobs


def delete(bench: Channels, jobs: list[int]) -> None:
    for job in jobs:
        bench.raw(DELETE, 998, id=job)
    assert all(answer.status == OK for answer in bench.turn())


def test_jobs_that_were_deleted_behind_one_that_nobody_takes_leave_nothing(bench: Channels) -> None:
    put(bench, 40)

    def come_and_go(times: int) -> None:
        for _ in range(times):
            delete(bench, put(bench, AT_ONCE))

    come_and_go(20)
    before = own_memory()
    come_and_go(120)
    assert own_memory() - before < 100_000, "240,000 bytes where each leaves a place in the queue"


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_what_is_left_is_that_of_urgency(bench: Channels, seed: int) -> None:
    chosen = random.Random(seed)
    left: dict[int, int] = {}
    for _ in range(30):
        pri = chosen.choice((1024, 1024, 1024, 1025, 1023))
        left |= dict.fromkeys(put(bench, chosen.randrange(1, AT_ONCE), pri), pri)
        gone = chosen.sample(sorted(left), len(left) * chosen.randrange(100) // 100)
        delete(bench, gone)
        for job in gone:
            del left[job]
    bench.raw(WATCH, topic=bench.topic("t"))
    bench.turn()
    assert [bench.ask(RESERVE).id for _ in left] == sorted(left, key=lambda job: (left[job], job))
