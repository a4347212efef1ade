"""Names that come and go: what a topic costs that is empty and that nobody uses, and what is refused at the limit."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib
from mq_shards.shards.dump import Record, decode_segment

from tests.shards.bench import (
    CLOSE,
    DELETE,
    NOT_FOUND,
    OK,
    OPEN,
    PUBLISH,
    SHARDS,
    STATS_TOPIC,
    USE,
    Bench,
    go_on_in_a_new_segment,
    lose_segments,
)

# 3,000,000 takes five minutes.
TUBES = int(os.environ.get("MQ_TEST_TUBES", "30000"))
ASLEEP = 320 * SHARDS  # SLEEPING_MOST + FORGOTTEN_AT_ONCE, csrc/shards/sleeping.c
TOO_MANY = lib.STATUS_TOO_MANY
AT_ONCE = 500
REMEMBERED = 1024  # FORGOTTEN_MOST, csrc/shards/forgotten.h


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.dispose()


def use_once(bench: Bench, names: list[bytes], first_id: int) -> None:
    """Each gets a message that is deleted, and then nobody knows the name any more."""
    for n, name in enumerate(names):
        number = n % AT_ONCE + 1
        id = (first_id + n) * SHARDS + n % SHARDS
        bench.send(OPEN, topic=number, id=n % SHARDS, body=name)
        bench.send(PUBLISH, topic=number, id=id, body=b"once")
        bench.send(DELETE, id=id)
        bench.send(CLOSE, topic=number)
        if number == AT_ONCE:
            assert {a.status for a in bench.turn()} == {OK}
    bench.turn()


def published(bench: Bench, shard: int) -> list[Record]:
    entries = [e for _, fd in bench.segments[shard] for e in decode_segment(Path(f"/proc/self/fd/{fd}").read_bytes())]
    return [e for e in entries if isinstance(e, Record) and e.kind == 3]


def test_a_tube_that_was_used_once_costs_nothing_afterwards(bench: Bench) -> None:
    for start in range(0, TUBES, 10 * AT_ONCE):
        use_once(bench, [b"reply-%d" % n for n in range(start, start + 10 * AT_ONCE)], start + 1)
        assert lib.worker_topics(bench.worker) <= ASLEEP + AT_ONCE
    for _ in range(2):
        bench.restart()
        bench.turn()
        assert bench.found.damages == 0
        assert lib.worker_topics(bench.worker) <= ASLEEP + AT_ONCE


def names_in(bench: Bench, segment: int) -> list[bytes]:
    content = Path(f"/proc/self/fd/{dict(bench.segments[0])[segment]}").read_bytes()
    return [bytes(r.body) for r in decode_segment(content) if isinstance(r, Record) and r.kind == 1]


def drop_oldest(bench: Bench) -> None:
    while not lib.worker_compact(bench.worker, 0, 1 << 20):
        bench.turn()
    assert lib.worker_dead_segments(bench.worker, 0)
    assert lib.worker_drop_first(bench.worker, 0)
    os.close(bench.segments[0].pop(0)[1])
    bench.turn()


def test_a_segment_names_what_has_something_in_it(bench: Bench) -> None:
    """What is in an earlier one is named there, and here when that goes."""
    use_once(bench, [b"reply-%d" % n for n in range(20 * AT_ONCE)], 1)
    bench.open("full", 1)
    bench.open("used", 2)
    bench.send(USE, topic=2)
    for number in (1, 2):
        assert bench.ask(PUBLISH, topic=number, id=(1 << 30) + number * SHARDS).status == OK
    assert bench.ask(DELETE, id=(1 << 30) + 2 * SHARDS).status == OK
    go_on_in_a_new_segment(bench)
    assert names_in(bench, 2) == []
    drop_oldest(bench)
    assert names_in(bench, 2) == [b"full"]
    # It begins anew with what comes next, and counts on.
    assert bench.ask(PUBLISH, topic=2, id=(1 << 30) + 3 * SHARDS).status == OK
    bench.restart()
    assert bench.ask(STATS_TOPIC, body=b"full").status == OK
    assert bench.ask(STATS_TOPIC, body=b"used").body[8:16] == struct.pack("<Q", 1)
    seqs = [(r.topic, r.seq) for r in published(bench, 0)]
    assert len(set(seqs)) == len(seqs)


def test_a_seq_is_given_once_whatever_is_forgotten_in_between(bench: Bench) -> None:
    given: list[int] = []
    for n in range(4):
        for id in (2 * n, 2 * n + 1):
            bench.open("again", 1)
            assert bench.ask(PUBLISH, topic=1, id=((1 << 30) + id) * SHARDS).status == OK
            given.append(published(bench, 0)[-1].seq)
            assert bench.ask(DELETE, id=((1 << 30) + id) * SHARDS).status == OK
            bench.send(CLOSE, topic=1)
        use_once(bench, [b"other-%d-%d" % (n, i) for i in range(4 * AT_ONCE)], 1 + n * 4 * AT_ONCE)
        if n % 2:
            bench.restart()
    assert given == sorted(set(given))


def give(bench: Bench, name: str, id: int) -> int:
    """Publishes and deletes a message, after which nobody knows the name; returns its seq."""
    bench.open(name, 1)
    assert bench.ask(PUBLISH, topic=1, id=id * SHARDS).status == OK
    seq = published(bench, 0)[-1].seq
    assert bench.ask(DELETE, id=id * SHARDS).status == OK
    bench.send(CLOSE, topic=1)
    bench.turn()
    return seq


def forget_all(bench: Bench) -> None:
    """By dropping all segments that name a topic."""
    go_on_in_a_new_segment(bench)
    while bench.segments[0][0][0] < lib.worker_active_segment(bench.worker, 0):
        drop_oldest(bench)


@pytest.mark.parametrize("seed", range(2))
def test_a_topic_that_comes_back_counts_on_from_where_it_was(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    given: dict[str, list[int]] = {}
    for id in range(1, 200):
        name = chance.choice(["often", "often", "often", "seldom", "rarely"]) + chance.choice("ab")
        given.setdefault(name, []).append(give(bench, name, id))
        if chance.random() < 0.2:
            forget_all(bench)
        if chance.random() < 0.1:
            bench.restart()
    firsts = {name: seqs[0] for name, seqs in given.items()}
    assert given == {name: [firsts[name] + n for n in range(len(seqs))] for name, seqs in given.items()}
    forget_all(bench)
    assert give(bench, "new", 200) == max(seqs[-1] for seqs in given.values()) + 1  # nothing is known of it


def test_a_topic_that_is_only_looked_at_meanwhile_counts_on_from_where_it_was(bench: Bench) -> None:
    assert give(bench, "high", 1) == 0
    assert [give(bench, "a", id) for id in (2, 3)] == [0, 1]
    assert [give(bench, "high", id) for id in range(4, 10)] == [1, 2, 3, 4, 5, 6]
    for _ in range(2):
        forget_all(bench)
        bench.open("a", 1)
        bench.send(CLOSE, topic=1)
        bench.turn()
    assert give(bench, "a", 10) == 2


def test_of_more_topics_than_are_remembered_the_others_count_from_higher_up(bench: Bench) -> None:
    assert [give(bench, "first", id) for id in (1, 2, 3)] == [0, 1, 2]
    forget_all(bench)
    assert [give(bench, "second", id) for id in (4, 5, 6, 7)] == [3, 4, 5, 6]
    forget_all(bench)
    names = [b"other-%d" % n for n in range(REMEMBERED - 1)]
    for n, name in enumerate(names):
        bench.send(OPEN, topic=1, id=0, body=name)
        bench.send(PUBLISH, topic=1, id=(100 + n) * SHARDS, body=b"once")
        bench.send(DELETE, id=(100 + n) * SHARDS)
        bench.send(CLOSE, topic=1)
        if n % AT_ONCE == 0:
            bench.turn()
    bench.turn()
    forget_all(bench)
    bench.restart()
    assert give(bench, "second", 10_000) == 7
    assert give(bench, "first", 10_001) >= 8


def test_where_records_were_lost_no_seq_is_given_out_twice(bench: Bench) -> None:
    """What is known of forgotten topics from before the damage may be too little."""
    assert [give(bench, "a", id) for id in (1, 2)] == [0, 1]
    assert [give(bench, "high", id) for id in range(3, 13)] == list(range(10))
    forget_all(bench)
    assert [give(bench, "a", id) for id in (20, 21)] == [2, 3]
    segment, fd = bench.segments[0][0]
    content = Path(f"/proc/self/fd/{fd}").read_bytes()
    lost = [r for r in decode_segment(content) if isinstance(r, Record) and (r.kind == 1 or r.topic)]
    go_on_in_a_new_segment(bench)
    for record in lost:
        os.pwrite(fd, bytes(40), record.offset)
    os.truncate(bench.names[0, segment], 0)
    bench.restart()
    assert bench.found.damages
    assert give(bench, "a", 30) >= 10


def test_after_a_segment_was_lost_no_seq_is_given_out_twice(bench: Bench) -> None:
    assert [give(bench, "a", id) for id in (1, 2)] == [0, 1]
    assert [give(bench, "high", id) for id in range(3, 13)] == list(range(10))
    forget_all(bench)
    for _ in range(2):
        lose_segments(bench, 1)
        assert give(bench, "a", 30) > 1_000_000
        forget_all(bench)
        bench.restart()


def test_at_the_limit_of_topics_the_next_is_refused_until_another_has_gone(bench: Bench) -> None:
    """Also when the worker has begun anew meanwhile."""
    lib.worker_limit_topics(bench.worker, 1000)
    for number in range(1, 1001):
        bench.send(OPEN, topic=number, id=number % SHARDS, body=b"t%d" % number)
        bench.send(PUBLISH, topic=number, id=number * SHARDS + number % SHARDS)
    assert {a.status for a in bench.turn()} == {OK}
    bench.open("more", 2000)
    assert bench.ask(PUBLISH, topic=2000, id=5000 * SHARDS).status == TOO_MANY
    bench.restart()
    lib.worker_limit_topics(bench.worker, 1000)
    bench.open("more", 2000)
    assert bench.ask(PUBLISH, topic=2000, id=5000 * SHARDS).status == TOO_MANY
    for number in range(1, 901):
        bench.send(DELETE, id=number * SHARDS + number % SHARDS)
    assert {a.status for a in bench.turn()} == {OK}
    bench.open("more", 2000)
    assert bench.ask(PUBLISH, topic=2000, id=5000 * SHARDS).status == OK
    assert bench.ask(STATS_TOPIC, body=b"t1").status == NOT_FOUND


def test_names_are_so_long_together_that_the_next_long_one_is_refused_until_others_have_gone(bench: Bench) -> None:
    """What stands in the log is served in any case."""
    lib.worker_limit_topics(bench.worker, 400)  # whose names may have 256 bytes each
    long = {number: b"%04d" % number + b"x" * 996 for number in range(1, 200)}
    for number, name in long.items():
        bench.send(OPEN, topic=number, id=number % SHARDS, body=name)
        bench.send(PUBLISH, topic=number, id=number * SHARDS + number % SHARDS)
    answers = [a.status for a in bench.turn()]
    assert answers == [OK] * 102 + [TOO_MANY] * 97
    bench.restart()
    lib.worker_limit_topics(bench.worker, 300)
    assert bench.ask(STATS_TOPIC, body=long[102]).status == OK
    bench.open("y" * 1000, 2000)
    assert bench.ask(PUBLISH, topic=2000, id=5000 * SHARDS).status == TOO_MANY
    for number in range(1, 60):
        bench.send(DELETE, id=number * SHARDS + number % SHARDS)
    assert {a.status for a in bench.turn()} == {OK}
    bench.open("y" * 1000, 2000)
    assert bench.ask(PUBLISH, topic=2000, id=5000 * SHARDS).status == OK
