"""From which segment on a start has to read a log: what it passes over is needed by nobody."""

from __future__ import annotations

import os

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import DELETE, NOT_FOUND, OK, PEEK_ID, RESERVE, TIMED_OUT, WATCH
from tests.shards.positions import EARLIEST, begin, finish, publish, seek, seqs
from tests.shards.subscriptions import Channels
from tests.shards.test_naming import move_names
from tests.shards.test_open_transactions import stage
from tests.shards.test_shard_protocol import ask

PAGE = 4096
BENCH = {"ring_bytes": 1 << 22}


def roll(bench: Channels) -> None:
    """Goes on in a new segment, with nothing that is left there."""
    before = lib.worker_active_segment(bench.worker, 0)
    for _ in range(2):
        lib.worker_roll(bench.worker, 0)
        bench.supply()
    id, _ = bench.pub("rolled", durable=False)
    assert ask(bench, DELETE, 7, id=id).status == OK
    assert lib.worker_active_segment(bench.worker, 0) == before + 1


def needed(bench: Channels) -> int:
    """Asked until all that is retained has been looked through; 0: no more than before."""
    for _ in range(1000):
        found = int(lib.worker_needed_from(bench.worker, 0, bench.read_from.get(0, 0)))
        if found:
            return found
    return 0


def pass_over(bench: Channels) -> int:
    found = needed(bench)
    if found:
        move_names(bench, found - 1)
        bench.read_from[0] = found
    return found


def test_what_is_done_with_is_not_read_and_all_else_is_there(bench: Channels) -> None:
    assert bench.sub(1, "t", "c", credit=9) == OK
    bench.change(lib.CHANGE_MAKE, "empty")
    bench.change(lib.CHANGE_MAKE, "empty", "d")
    bench.change(lib.CHANGE_PAUSE, "empty", "d")
    for _ in range(3):
        id, _ = bench.pub("t")
        bench.turn()
        bench.raw(lib.MSG_FINISH, 1, id=id)
        bench.turn()
        roll(bench)
    job, _ = bench.pub("jobs", durable=False)
    assert pass_over(bench) == 4
    before, next_seq = bench.catalog(), lib.worker_next_seq(bench.worker, b"t", 1)
    bench.restart()
    assert bench.found.records < 12
    after = bench.catalog()
    assert after.keys() == before.keys() == {"t", "empty", "jobs"}
    assert after["empty"].channels["d"].paused
    assert after["t"].channels["c"].depth == 0 and after["jobs"].jobs == 1
    assert lib.worker_next_seq(bench.worker, b"t", 1) == next_seq == 3
    assert ask(bench, DELETE, 5, id=job).status == OK
    # What was passed over can still be dropped.
    assert lib.worker_first_segment(bench.worker, 0) == 1
    roll(bench)
    for _ in range(lib.worker_dead_segments(bench.worker, 0)):
        assert lib.worker_drop_first(bench.worker, 0)
        bench.segments[0].pop(0)
    bench.restart()
    assert bench.catalog()["empty"].channels["d"].paused


@pytest.mark.parametrize("holder", ["job", "channel", "delayed", "transaction"])
def test_what_somebody_has_left_in_a_segment_keeps_it(bench: Channels, holder: str) -> None:
    assert bench.sub(1, "t", "c", credit=9) == OK
    id, _ = bench.pub("t")
    bench.turn()
    bench.raw(lib.MSG_FINISH, 1, id=id)
    roll(bench)
    if holder == "job":
        bench.pub("jobs", durable=False)
    elif holder == "transaction":
        stage(bench)
    else:
        bench.pub("t", delay=100 if holder == "delayed" else 0)
    bench.turn()
    roll(bench)
    assert needed(bench) == 2


def finish_in_three_segments(bench: Channels) -> None:
    """All that a subscription has had is finished, and retained."""
    begin(bench, 1, EARLIEST)
    for _ in range(3):
        publish(bench)
        bench.turn()
        roll(bench)
    finish(bench, 1, 0, 1, 2)


def test_what_is_retained_is_read(bench: Channels) -> None:
    finish_in_three_segments(bench)
    assert lib.worker_dead_segments(bench.worker, 0) == 3
    assert needed(bench) == 0
    bench.restart()
    assert seek(bench, EARLIEST).status == OK
    begin(bench, 1, EARLIEST)
    assert seqs(bench.turn()) == [0, 1, 2]
    finish(bench, 1, 0, 1, 2)
    # Of a topic that is gone nothing is retained, ...
    bench.change(lib.CHANGE_DELETE, "t")
    bench.turn()
    assert needed(bench) == 4
    # ... and what another begins to retain lies behind.
    publish(bench)
    roll(bench)
    publish(bench)
    assert needed(bench) == 4


def test_what_cannot_be_read_is_read_by_the_next_start_if_its_medium_has_come_back(bench: Channels) -> None:
    bench.pub("first", durable=False)
    roll(bench)
    bench.raw(WATCH, 5, topic=bench.topic("jobs"))
    bench.pub("jobs", durable=False, body=b"j" * 3 * PAGE)
    roll(bench)
    fd = bench.segments[0][1][1]
    content = os.pread(fd, 64 << 20, 0)
    os.ftruncate(fd, PAGE)  # who reads behind that gets SIGBUS, as of a medium that fails
    assert ask(bench, RESERVE, 5, delay=0).status == TIMED_OUT
    bench.raw(WATCH, 6, topic=bench.topic("first"))
    assert ask(bench, DELETE, 6, id=ask(bench, RESERVE, 6, delay=0).id).status == OK
    assert lib.worker_dead_segments(bench.worker, 0) == 2
    assert pass_over(bench) == 2
    os.pwrite(fd, content, 0)
    bench.restart()
    bench.raw(WATCH, 5, topic=bench.topic("jobs"))
    assert ask(bench, RESERVE, 5, delay=0).status == OK


def test_what_was_found_damaged_is_looked_at_again_by_the_next_start(bench: Channels) -> None:
    bench.pub("first", durable=False)
    roll(bench)
    bench.pub("jobs", durable=False, body=b"damaged")
    roll(bench)
    fd = bench.segments[0][1][1]
    os.pwrite(fd, b"x", os.pread(fd, 64 << 20, 0).index(b"damaged"))
    for _ in range(2):
        bench.restart()
        assert bench.found.damages == 1
        for name in ("first", "rolled"):
            bench.raw(WATCH, 5, topic=bench.topic(name))
        while (one := ask(bench, RESERVE, 5, delay=0)).status == OK:
            assert ask(bench, DELETE, 5, id=one.id).status == OK
        assert lib.worker_dead_segments(bench.worker, 0) >= 2
        assert pass_over(bench) in (0, 2)
    assert bench.read_from[0] == 2


def test_many_topics_that_retain_are_looked_at_a_few_at_a_time(bench: Channels) -> None:
    names = [f"topic-{n}" for n in range(600)]
    for name in names:
        bench.change(lib.CHANGE_RETAIN, name)
    roll(bench)
    publish(bench, names[0])
    roll(bench)
    found = [int(lib.worker_needed_from(bench.worker, 0, 0)) for _ in range(3)]
    assert found == [0, 0, 2], "256 at once"
    assert needed(bench) == 2
    bench.change(lib.CHANGE_DELETE, names[300])  # at which the next look might go on
    bench.read_from[0] = 2
    publish(bench, names[1])
    assert needed(bench) == 0
    bench.change(lib.CHANGE_DELETE, names[0])
    assert needed(bench) == 3


def test_a_segment_is_emptied_for_the_few_that_keep_it_though_older_ones_stay(bench: Channels) -> None:
    assert bench.sub(1, "t", "c", credit=9) == OK
    id, _ = bench.pub("t")
    bench.turn()
    bench.raw(lib.MSG_FINISH, 1, id=id)
    roll(bench)
    job, _ = bench.pub("jobs", durable=False)
    roll(bench)
    assert pass_over(bench) == 2
    while not lib.worker_compact_needed(bench.worker, 0, 1 << 20):
        bench.turn()
    bench.turn()
    assert lib.worker_first_segment(bench.worker, 0) == 1
    assert pass_over(bench) == 3
    bench.restart()
    assert ask(bench, DELETE, 5, id=job).status == OK


def test_what_was_moved_is_had_back_from_where_it_was_if_its_copy_is_damaged(bench: Channels) -> None:
    id, _ = bench.pub("first", durable=False)
    assert ask(bench, DELETE, 5, id=id).status == OK
    roll(bench)
    job, _ = bench.pub("jobs", durable=False, body=b"moved")
    roll(bench)
    pass_over(bench)
    while not lib.worker_compact_needed(bench.worker, 0, 1 << 20):
        bench.turn()
    roll(bench)
    assert pass_over(bench) == 3
    (fd,) = (fd for number, fd in bench.segments[0] if number == 3)
    os.pwrite(fd, b"x", os.pread(fd, 64 << 20, 0).index(b"moved"))
    for restarts in (1, 2):
        bench.restart()
        assert (bench.found.damages, bench.began_anew) == (1, restarts)
        assert ask(bench, PEEK_ID, 5, id=job).body == b"moved"
    assert needed(bench) == 0, "its copy is read by the next start, too"
    assert ask(bench, DELETE, 5, id=job).status == OK
    bench.restart()
    assert ask(bench, DELETE, 5, id=job).status == NOT_FOUND
