"""What was written last may be lost without a trace, as after a power failure: seqs and ids go on behind all that may
have been given out, once, and only then."""

from __future__ import annotations

import os
import random

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import OK, SHARDS
from tests.shards.subscriptions import Channels, roll
from tests.shards.test_packed import publish as publish_batch
from tests.shards.test_seqs_after_damage import content_of, delivered_seqs, end_of, give, records_of

TOPICS = [f"t{n}" for n in range(5)]
GONE = 2**32 - 1


def lose(bench: Channels, records: int) -> None:
    """Zeros in the place of the last records and of what stands of them in the copies, and a start that knows."""
    bench.stop()
    segment, fd = bench.segments[0][-1]
    begin = records_of(fd)[-records].offset
    os.pwrite(fd, bytes(end_of(fd) - begin), begin)
    os.truncate(bench.names[0, segment], 0)
    bench.lost_end = True
    bench.start()
    assert bench.noted


@pytest.mark.parametrize("seed", range(20))
def test_no_seq_is_given_out_twice_whatever_is_lost_of_the_end(bench: Channels, seed: int) -> None:
    draw = random.Random(seed)
    given: dict[str, set[int]] = {name: set() for name in TOPICS}
    for name in TOPICS:
        assert bench.change(lib.CHANGE_MAKE, name) == OK
    for _ in range(4):
        for _ in range(20):
            name = draw.choice(TOPICS)
            seq = give(bench, name, draw.randbytes(draw.choice([1, 40, 700])), flags=lib.MSG_RETAIN)
            assert seq not in given[name], f"{name}: {seq} again, seed {seed}"
            given[name].add(seq)
        if draw.random() < 0.3:
            roll(bench)
        count = len(records_of(bench.segments[0][-1][1]))
        lose(bench, draw.randrange(1, min(15, count)))
        for _ in range(draw.choice([0, 2])):
            bench.restart()


def test_a_topic_goes_on_once_and_each_later_start_comes_to_the_same(bench: Channels) -> None:
    for name in ("idle", "busy"):
        assert [give(bench, name, flags=lib.MSG_RETAIN) for _ in range(3)] == [0, 1, 2]
    lose(bench, 1)
    first = give(bench, "busy", flags=lib.MSG_RETAIN)
    assert first == 2 + GONE
    for _ in range(3):
        bench.restart()
        assert lib.worker_next_seq(bench.worker, b"idle", 4) == 3 + GONE
        assert lib.worker_next_seq(bench.worker, b"busy", 4) == 3 + GONE
    assert give(bench, "busy") == first + 1


def test_a_topic_that_is_made_later_begins_behind_what_one_of_its_name_may_have_had(bench: Channels) -> None:
    give(bench, "other")
    lose(bench, 1)
    assert give(bench, "new") == GONE
    bench.restart()
    assert give(bench, "newer") == GONE


def test_a_shard_that_lost_all_it_had_knows_it_too(bench: Channels) -> None:
    give(bench, "t")
    bench.stop()
    _, fd = bench.segments[0][-1]
    os.pwrite(fd, bytes(end_of(fd)), 0)
    for name in bench.names.values():
        os.truncate(name, 0)
    bench.lost_end = True
    bench.start()
    assert bench.noted
    for _ in range(2):  # it stays so before anything is published
        bench.restart()
    assert give(bench, "t") == GONE


def test_ids_go_on_once(bench: Channels) -> None:
    give(bench, "t")
    lose(bench, 1)
    _, fd = bench.segments[0][-1]
    floors = [r for r in records_of(fd) if r.kind == 2]
    assert [bool(r.flags & 2) for r in floors[-2:]] == [True, False]  # FLOOR_LOST, and what clears it
    assert floors[-1].id > 2**32
    top = floors[-1].id
    bench.restart()
    give(bench, "t")
    assert max(r.id for r in records_of(fd) if r.kind == 2) == top


def test_what_is_there_is_delivered_over_the_jump(bench: Channels) -> None:
    assert bench.change(lib.CHANGE_MAKE, "t") == bench.change(lib.CHANGE_MAKE, "t", "c") == OK
    for _ in range(3):
        give(bench, "t", flags=lib.MSG_RETAIN)
    lose(bench, 1)
    later = give(bench, "t", flags=lib.MSG_RETAIN)
    bench.sub(1, "t", "c", credit=10)
    assert delivered_seqs(bench) == [0, 1, later]


def test_nothing_is_written_to_a_log_that_lost_nothing(bench: Channels) -> None:
    give(bench, "t")
    bench.restart()
    contents = [content_of(fd) for _, fd in bench.segments[0]]
    bench.restart()
    assert [content_of(fd) for _, fd in bench.segments[0]] == contents
    assert give(bench, "t") == 1


def test_ids_of_a_batchs_parts_are_known_in_the_next_segment(bench: Channels) -> None:
    """A restart after the batch's own segment has gone must not give them to others."""
    last_part = publish_batch(bench, "t", 70) + 70 * SHARDS
    roll(bench)
    floor = next(r for r in records_of(bench.segments[0][-1][1]) if r.kind == 2)
    assert floor.id == last_part
