"""What consumers finish and give back by seq, how many permits they have, and which of them is active."""

from __future__ import annotations

import os
import struct

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, SECOND, WATCH
from tests.shards.positions import (
    EARLIEST,
    SEQ,
    begin,
    finish,
    position,
    publish,
    seek,
    seqs,
)
from tests.shards.subscriptions import Channels, roll
from tests.shards.test_naming import records
from tests.shards.test_packed import publish as publish_batch
from tests.shards.test_shard_protocol import HEAD, ask, got, join, told


def test_a_message_is_finished_by_its_seq_whoever_has_it(bench: Channels) -> None:
    begin(bench, 1, EARLIEST, credit=2)
    begin(bench, 2, EARLIEST, credit=2)
    publish(bench, count=5)
    first = seqs(bench.turn(), 1)
    assert finish(bench, 2, 77, 4, 4) == [], (
        "nothing is said of what is not there, and what was not delivered is not finished"
    )
    assert len(seqs(finish(bench, 2, first[0]))) == 1
    bench.raw(GONE, 1)
    bench.turn()
    finish(bench, 2, *range(5))
    assert position(bench, "c").unfinished == 5


def test_a_message_is_requeued_by_its_seq_if_the_consumer_has_it(bench: Channels) -> None:
    begin(bench, 1, EARLIEST)
    publish(bench, count=2)
    bench.turn()
    for seq in (1, 9):
        bench.raw(lib.MSG_REQUEUE, 1, flags=lib.MSG_BY_SEQ, ttr=seq)
    assert [(a.seq, a.pri) for a in bench.turn()] == [(1, 2)]


def test_what_a_consumer_has_when_it_goes_need_not_count(bench: Channels) -> None:
    for conn in (1, 2):
        begin(bench, conn, EARLIEST, flags=lib.SUBSCRIBE_UNCOUNTED)
        if conn == 1:
            publish(bench)
        assert [(a.seq, a.pri) for a in bench.turn()] == [(0, 1)]
        bench.raw(GONE, conn)
        bench.turn()
    begin(bench, 3, EARLIEST)
    bench.turn()
    bench.raw(GONE, 3)
    begin(bench, 4, EARLIEST)
    assert [(a.seq, a.pri) for a in bench.turn()] == [(0, 2)]


def permit(bench: Channels, conn: int, more: int) -> list[int]:
    bench.raw(lib.MSG_CREDIT, conn, flags=lib.MSG_PERMITS, id=more)
    return seqs(bench.turn(), conn)


def test_permits_are_counted_in_parts_and_may_become_less_than_nothing(bench: Channels) -> None:
    begin(bench, 1, EARLIEST, credit=0, flags=lib.SUBSCRIBE_HEADERS)
    batch = HEAD.pack(0, lib.HEADERS_PULSAR, 3, 0, 0) + b"abc"
    publish(bench, body=batch, count=6, flags=lib.MSG_HEADERS)
    assert permit(bench, 1, 4) == [0, 1]
    assert permit(bench, 1, 2) == []
    assert finish(bench, 1, 0) == [], "to finish gives none back"
    assert permit(bench, 1, 1) == [2]
    finish(bench, 1, 1, flags=lib.MSG_PARTS, body=(0b100).to_bytes(8, "little"))
    bench.raw(lib.MSG_REQUEUE, 1, flags=lib.MSG_BY_SEQ, ttr=1)
    assert seqs(bench.turn()) == []
    # -2: what comes again has one part left, so 4 are enough for it and one more.
    assert permit(bench, 1, 4) == [1, 3]
    bench.credit(1, 7)
    assert permit(bench, 1, 2**64 - 1) == [], "and no more parts in flight than that: 3, 3, and 1"
    assert seqs(bench.credit(1, 8)) == [4]
    assert permit(bench, 1, 2**64 - 1) == []


def test_the_active_one_is_picked_among_those_of_the_first_priority(bench: Channels) -> None:
    def stand(conn: int, name: str, priority: int, order: int, pick: int) -> list[tuple[int, int]]:
        head = struct.pack("<QQIIHHI", 60 * SECOND, 900 * SECOND, 0, 0, 1, lib.SUBSCRIBE_POLICY, 0)
        rank = struct.pack("<HHIIII", lib.POLICY_FAILOVER, len(name), priority, pick, order, 0) + name.encode()
        bench.raw(lib.MSG_SUBSCRIBE, conn, topic=bench.topic("t"), body=head + b"c" + rank)
        return sorted(told(bench.turn()))

    assert stand(1, "a", 1, 0, 5) == [(1, 1)]
    assert stand(2, "b", 1, 0, 5) == [(1, 0), (2, 1)]
    assert stand(3, "c", 1, 0, 5) == [(2, 0), (3, 1)]
    bench.raw(GONE, 3)
    assert told(bench.turn()) == [(2, 1)]
    assert stand(4, "z", 0, 0, 5) == [(2, 0), (4, 1)]
    assert stand(5, "y", 0, 7, 5) == [(4, 0), (5, 1)], "by order, then by name"
    bench.raw(GONE, 5)
    assert told(bench.turn()) == [(4, 1)]


def test_a_start_comes_before_a_policy(bench: Channels) -> None:
    publish(bench, count=2)
    head = struct.pack("<QQIIHHI", 60 * SECOND, 900 * SECOND, 0, 0, 1, lib.SUBSCRIBE_POLICY | lib.SUBSCRIBE_START, 4)
    start, rank = struct.pack("<IIQ", SEQ, 0, 1), struct.pack("<HHIIII", lib.POLICY_EXCLUSIVE, 1, 0, 0, 0, 0) + b"n"
    assert ask(bench, lib.MSG_SUBSCRIBE, topic=bench.topic("t"), body=head + b"c{ab}" + start + rank).status == OK
    bench.raw(lib.MSG_CREDIT, 1, id=9)
    assert seqs(bench.turn()) == [1]
    assert join(bench, 2, lib.POLICY_TURNS) == lib.STATUS_FULL
    assert got([], 1) == []


def test_what_is_before_is_finished_and_nothing_else_changes(bench: Channels) -> None:
    """A SEEK with MSG_UPTO: what somebody has, or has finished, behind that place does not come again."""
    publish(bench, count=5)
    begin(bench, 1, EARLIEST, credit=100)
    assert seqs(bench.turn()) == [0, 1, 2, 3, 4]
    finish(bench, 1, 1, 3)
    assert seek(bench, SEQ, 2, flags=lib.MSG_UPTO).status == OK
    where = position(bench)
    assert (position(bench, "c").unfinished, position(bench, "c").in_flight, where.next) == (2, 2, 5)
    assert seqs(bench.turn()) == [], "nothing comes again"
    bench.restart()
    begin(bench, 1, EARLIEST)
    assert seqs(bench.turn()) == [2, 4]
    publish(bench, count=3)
    bench.turn()
    assert seek(bench, SEQ, 99, flags=lib.MSG_UPTO).status == OK
    assert position(bench, "c").unfinished == 8 and position(bench, "c").in_flight == 0
    bench.restart()
    begin(bench, 1, EARLIEST)
    assert seqs(bench.turn()) == []


@pytest.mark.parametrize("names", ["as they were", "written anew"])
def test_what_is_passed_by_age_is_not_there_after_a_restart_either(bench: Channels, names: str) -> None:
    of = publish(bench, count=6)
    begin(bench, 1, EARLIEST, channel="__retention", credit=0)
    bench.raw(GONE, 1)
    bench.turn()
    assert position(bench).first == of[0]
    assert seek(bench, SEQ, of[3], channel="__retention").status == OK
    assert position(bench).first == of[3]
    if names == "written anew":
        for _ in range(2):
            roll(bench)
            publish(bench)
    for _ in range(2):
        bench.restart()
        assert position(bench).first == of[3]
        begin(bench, 1, EARLIEST, channel="c")
        assert seqs(bench.turn(), 1)[0] == of[3]
        assert seek(bench, SEQ, of[0]).seq == of[3]
    assert seek(bench, SEQ, of[0], channel="__retention").status == OK
    assert position(bench).first == of[0], "it may go back"


@pytest.mark.parametrize("parts", [0, 3])
def test_a_channel_made_beside_an_ephemeral_one_has_a_paused_tubes_jobs_once_after_a_restart(
    bench: Channels, parts: int
) -> None:
    """It is the first channel to the log, and what the tube has is in the stream too."""
    publish(bench)  # the topic retains
    bench.sub(1, "t", "e", flags=lib.SUBSCRIBE_EPHEMERAL)
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    bench.raw(WATCH, 7, topic=bench.topic("t"))
    if parts:
        publish_batch(bench, "t", parts)
    else:
        publish(bench)
    bench.sub(2, "t", "c")
    bench.restart()
    bench.sub(2, "t", "c", credit=100, flags=lib.SUBSCRIBE_HEADERS)
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    ((kept, _),) = [(a.id, a.pri) for a in bench.pushed if a.kind == lib.MSG_DELIVER]
    bench.fin(2, kept)
    channel = bench.catalog()["t"].channels["c"]
    assert (channel.depth, channel.in_flight) == (0, 0)
    assert bench.catalog()["t"].jobs == max(parts, 1)
    bench.change(lib.CHANGE_DELETE, "t", "c")
    assert bench.catalog()["t"].jobs == max(parts, 1)
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    bench.turn()
    roll(bench)
    assert lib.worker_dead_segments(bench.worker, 0)


@pytest.mark.parametrize("leaves", [False, True])
def test_what_another_takes_back_is_not_the_first_channels_that_has_it_ahead(bench: Channels, leaves: bool) -> None:
    """It waited for nobody, though what came before and behind it did."""
    waits, _ = bench.pub("t")
    retained = publish(bench, count=3)
    last, _ = bench.pub("t")
    bench.sub(2, "t", "d")
    begin(bench, 1, EARLIEST)
    assert seqs(bench.turn(), 1) == [retained[0] - 1, *retained, retained[-1] + 1]
    assert bench.catalog()["t"].channels["d"].depth == 2
    if leaves:
        assert bench.change(lib.CHANGE_DELETE, "t", "d") == OK
    else:
        bench.raw(lib.MSG_CREDIT, 2, id=100)
        had = [a.id for a in bench.turn() if a.kind == lib.MSG_DELIVER]
        assert had == [waits, last]
        bench.fin(2, *had)
        assert bench.catalog()["t"].channels["d"].depth == 0
    finish(bench, 1, *retained)
    assert position(bench, "c").unfinished == retained[0] - 1
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    bench.turn()


@pytest.mark.parametrize("channel", ["c", "__compaction"])
def test_behind_damage_a_channel_set_back_still_has_what_nobody_else_has(bench: Channels, channel: str) -> None:
    """And a compacted view, which is such a channel. The damage lies before all of its topic."""
    bench.pub("elsewhere", durable=False)
    ((_, fd),) = bench.segments[0]
    (hit,) = [r for r in records(bench) if r.kind == 3]
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    ids = [bench.pub("t")[0] for _ in range(3)]
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    assert bench.turn() == []
    assert bench.ask(lib.MSG_DELETE, 5, id=ids[1]).status == OK, "they are jobs now"
    if channel == "c":
        begin(bench, 1, EARLIEST, credit=0)
    else:
        assert ask(bench, lib.MSG_COMPACT, 6, topic=bench.topic("t"), ttr=3).status == OK
    os.pwrite(fd, bytes(40), hit.offset)
    bench.restart()
    assert bench.found.damages == 1
    assert (bench.catalog()["t"].jobs, bench.catalog()["t"].channels[channel].depth) == (2, 3)
    if channel == "c":
        begin(bench, 1, EARLIEST)
        assert seqs(bench.turn(), 1) == [0, 1, 2]
