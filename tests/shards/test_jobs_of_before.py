"""Jobs that were put before a client first asked for a position are in their topic's sequence as well: those that are
left, whatever their state."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import BURY, OK, RESERVE, SECOND, SHARDS, TIMED_OUT, WATCH
from tests.shards.positions import EARLIEST, LATEST, begin, finish, live, position, publish, read, seqs
from tests.shards.subscriptions import DELETE, Channels, drop_oldest, roll
from tests.shards.test_shard_protocol import ask

PIECE = 5
FEW, MANY = 4, 40
BENCH = {"piece": PIECE}


def put(bench: Channels, count: int, name: str = "t", delay: float = 0) -> list[int]:
    return [bench.pub(name, durable=False, delay=delay)[0] for _ in range(count)]


def delete(bench: Channels, *ids: int) -> None:
    for id in ids:
        assert bench.ask(DELETE, 5, id=id).status == OK


def asks(bench: Channels) -> int:
    """To begin at the earliest, and one turn only."""
    head = struct.pack("<QQIIHHI", 60 * SECOND, 900 * SECOND, 0, 0, 1, lib.SUBSCRIBE_START, 4)
    body = head + b"c{ab}" + struct.pack("<IIQ", EARLIEST, 0, 0)
    slot = bench.raw(lib.MSG_SUBSCRIBE, 3, topic=bench.topic("t"), body=body)
    bench.pass_turn()
    return slot


def subscribes(bench: Channels, channel: str) -> None:
    head = struct.pack("<QQIIHHI", 60 * SECOND, 900 * SECOND, 0, 0, len(channel), 0, 4)
    bench.raw(lib.MSG_SUBSCRIBE, 6, topic=bench.topic("t"), body=head + channel.encode() + b"{ab}")


def all_of(bench: Channels, conn: int = 3) -> list[int]:
    came: list[int] = []
    while some := seqs(bench.turn(), conn):
        came += some
        finish(bench, conn, *some)
    return came


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_reader_from_the_earliest_has_the_jobs_that_are_left_in_order(bench: Channels, count: int) -> None:
    ids = put(bench, count)
    delete(bench, ids[0], ids[2])
    left = [1, *range(3, count)]
    assert read(bench, 1, EARLIEST).seq == 1
    assert all_of(bench, 1) == left
    assert (position(bench).began, position(bench).first) == (1, 1)
    delete(bench, ids[1])  # from now on the topic retains
    bench.restart()
    assert (position(bench).began, position(bench).first) == (1, 1)
    assert read(bench, 1, EARLIEST).seq == 1
    assert all_of(bench, 1) == left
    assert bench.catalog()["t"].jobs == count - 3


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_channel_that_has_passed_them_has_them_again_after_a_restart(bench: Channels, count: int) -> None:
    put(bench, count)
    begin(bench, 3, EARLIEST)
    came = []
    while some := seqs(bench.turn(), 3):
        came += some
    assert came == list(range(count))
    finish(bench, 3, 1, 2)
    for _ in range(2):
        bench.restart()
        begin(bench, 3, EARLIEST)
        again: list[int] = []
        while some := seqs(bench.turn(), 3):
            again += some
        assert again == [0, *range(3, count)]
    assert bench.catalog()["t"].jobs == count


def test_the_latest_is_behind_them(bench: Channels) -> None:
    put(bench, FEW)
    assert begin(bench, 3, LATEST).seq == FEW
    assert publish(bench) == [FEW]
    assert all_of(bench) == [FEW]


def test_a_producer_that_came_first_changes_nothing(bench: Channels) -> None:
    put(bench, MANY)
    publish(bench)  # with MSG_RETAIN
    read(bench, 1, EARLIEST)
    assert all_of(bench, 1) == list(range(MANY + 1))


def test_whatever_state_they_are_in(bench: Channels) -> None:
    put(bench, 4)
    put(bench, 1, delay=50)
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    reserved = [bench.ask(RESERVE, 5) for _ in range(2)]
    assert bench.ask(BURY, 5, id=reserved[0].id, pri=1).status == OK
    read(bench, 1, EARLIEST)
    assert all_of(bench, 1) == [0, 1, 2, 3], "the last one is not due"
    delete(bench, reserved[1].id)
    bench.restart()
    bench.turn(50)
    read(bench, 1, EARLIEST)
    assert all_of(bench, 1) == [0, 1, 2, 3, 4]
    assert bench.catalog()["t"].jobs == 4


def test_what_was_put_while_no_channel_was_there_was_a_tubes_and_is_found(bench: Channels) -> None:
    waiting = [bench.pub("t")[0] for _ in range(3)]  # it waits for the first channel, ...
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    assert bench.ask(RESERVE, 5).id == waiting[0]  # ... or for who wants the tube
    delete(bench, waiting[0])
    read(bench, 1, EARLIEST)
    assert all_of(bench, 1) == [1, 2]


def produce(bench: Channels) -> None:
    bench.raw(lib.MSG_PUBLISH, 999, flags=lib.MSG_DURABLE | lib.MSG_RETAIN, topic=bench.topic("t"), id=bench.next_id)
    bench.next_id += SHARDS


def attach(bench: Channels) -> None:
    body = struct.pack("<IIQQ", 0, 0, 0, lib.NO_PLACE) + b"p"
    bench.raw(lib.MSG_ATTACH, 999, topic=bench.topic("t"), pri=1, body=body)


@pytest.mark.parametrize("retain", [produce, attach])
def test_who_retains_while_what_waited_becomes_jobs_has_all_of_it_after_a_restart(
    bench: Channels, retain: Callable[[Channels], None]
) -> None:
    for _ in range(MANY):
        bench.pub("t")  # it waits for the first channel, ...
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.pass_turn()  # ... and a piece of it is a tube's by now
    retain(bench)
    bench.turn()
    first = begin(bench, 3, EARLIEST).seq
    came = all_of(bench)
    bench.restart()
    assert begin(bench, 4, EARLIEST, channel="d").seq == first
    assert all_of(bench, 4) == came


@pytest.mark.parametrize("turns", range(4))
def test_those_that_are_deleted_while_a_channel_is_to_have_them_are_there_after_a_restart_or_not_before(
    bench: Channels, turns: int
) -> None:
    ids = put(bench, MANY)
    produce(bench)
    bench.pass_turn()  # a piece of them is in
    subscribes(bench, "d")
    for _ in range(turns):
        bench.pass_turn()
    for id in ids[:MANY:2]:
        bench.raw(DELETE, 5, id=id)
    bench.turn()
    read(bench, 1, EARLIEST)
    came = all_of(bench, 1)
    bench.restart()
    read(bench, 1, EARLIEST)
    assert all_of(bench, 1) == came


@pytest.mark.parametrize("retain", [produce, attach])
@pytest.mark.parametrize("what", [lib.CHANGE_EMPTY, lib.CHANGE_DELETE])
@pytest.mark.parametrize("holds", ["in flight", "delayed", "ahead, beside another", "waiting"])
def test_who_retains_while_a_channel_lets_go_has_as_much_of_it_after_a_restart(
    bench: Channels, holds: str, what: int, retain: Callable[[Channels], None]
) -> None:
    """As much as is left of what waits for a first channel, which is written piece by piece; nothing of a channel's."""
    if holds != "waiting":
        bench.sub(1, "t", "c", credit=MANY if holds == "in flight" else 0)
    if "another" in holds:
        bench.sub(2, "t", "d", credit=MANY)
    ids = [bench.pub("t", delay=1000 if holds == "delayed" else 0)[0] for _ in range(MANY)]
    bench.turn()
    if "another" in holds:
        bench.fin(2, *ids)
    bench.raw(lib.MSG_CHANGE, 998, id=0, pri=what, body=b"t" if holds == "waiting" else b"t\nc")
    bench.pass_turn()  # a piece of them has gone
    retain(bench)
    bench.turn()
    first = begin(bench, 3, EARLIEST, channel="e").seq
    came = all_of(bench)
    assert len(came) <= 1 or holds == "waiting"
    bench.restart()
    assert begin(bench, 4, EARLIEST, channel="f").seq == first
    assert all_of(bench, 4) == came


@pytest.mark.parametrize("turns", range(1, 12))
def test_nobody_is_told_where_he_stands_before_they_are_in(bench: Channels, turns: int) -> None:
    ids = put(bench, MANY)
    slot = asks(bench)
    for _ in range(turns - 1):
        bench.pass_turn()
    told = [a for a in bench.receive() if a.slot == slot and a.kind == lib.MSG_SUBSCRIBE]
    bench.restart()  # in the middle: the rest go in by themselves
    assert [a.seq for a in told] in ([], [0])
    assert begin(bench, 3, EARLIEST).seq == 0
    assert all_of(bench) == list(range(MANY))
    bench.restart()
    assert read(bench, 1, EARLIEST, credit=0).seq == 0
    delete(bench, *ids)
    assert live(bench) == 0


def test_what_is_deleted_meanwhile_may_be_there_or_not(bench: Channels) -> None:
    ids = put(bench, MANY)
    asks(bench)
    for id in ids[10:30]:
        bench.raw(DELETE, 5, id=id)
    bench.turn()
    begin(bench, 4, EARLIEST)
    came = all_of(bench, 4)
    assert came == sorted(came)
    assert {*range(10), *range(30, MANY)} <= set(came)
    bench.restart()
    delete(bench, *ids[:10], *ids[30:])
    assert live(bench) == 0


def test_the_topic_may_go_before_they_are_in(bench: Channels) -> None:
    put(bench, MANY)
    asks(bench)
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    bench.turn()
    begin(bench, 4, EARLIEST, channel="d")
    assert seqs(bench.turn(), 4) == []
    bench.restart()
    assert position(bench).next == MANY


def test_they_are_there_where_their_segment_went_and_they_were_moved(bench: Channels) -> None:
    ids = put(bench, MANY)
    begin(bench, 3, EARLIEST)
    assert all_of(bench) == list(range(MANY))
    delete(bench, *ids[2:])
    roll(bench)
    drop_oldest(bench)
    bench.restart()
    read(bench, 1, EARLIEST)
    assert [seq for seq in all_of(bench, 1) if seq < MANY] == [0, 1]
    assert bench.catalog()["t"].jobs >= 2


def test_the_first_channel_of_nsqs_still_takes_them_over(bench: Channels) -> None:
    ids = put(bench, FEW)
    read(bench, 1, EARLIEST)
    bench.sub(2, "t", "c", credit=MANY)
    assert [a.id for a in bench.turn() if a.kind == lib.MSG_DELIVER and a.conn == 2] == ids
    assert ask(bench, lib.MSG_DELETE, 5, id=ids[0]).status == OK
    bench.fin(2, *ids)
    assert live(bench) == FEW - 1
    bench.restart()
    assert bench.catalog()["t"].channels["c"].depth == 0


@pytest.mark.parametrize("channel_before", [True, False])
def test_those_that_were_emptied_away_during_a_pause_are_no_channels(bench: Channels, channel_before: bool) -> None:
    """Channels still come to where they stand; who goes back to them has them."""
    (first,) = put(bench, 1)
    bench.change(lib.CHANGE_PAUSE, "t")
    (second,) = put(bench, 1)
    bench.change(lib.CHANGE_EMPTY, "t")
    if channel_before:
        bench.change(lib.CHANGE_MAKE, "t", "c")
    read(bench, 1, EARLIEST)
    came = all_of(bench, 1)
    bench.change(lib.CHANGE_MAKE, "t", "c")
    bench.change(lib.CHANGE_MAKE, "t", "d")
    bench.change(lib.CHANGE_UNPAUSE, "t")
    assert came + all_of(bench, 1) == [0]
    for _ in range(2):
        for conn, name in ((2, "c"), (3, "d")):
            bench.sub(conn, "t", name, credit=MANY)
        assert [(a.conn, a.id) for a in bench.turn() if a.kind == lib.MSG_DELIVER] == [(2, first)]
        bench.restart()
    read(bench, 1, EARLIEST)
    assert all_of(bench, 1) == [0, 1]
    delete(bench, first, second)
    begin(bench, 3, EARLIEST)
    assert all_of(bench) == [0]
    assert live(bench) == 0


def test_time_that_passes_while_a_channel_takes_them_over_passes_once(bench: Channels) -> None:
    """Its record says when that began. It is the last of the log here, so recovery must not count from then on."""
    put(bench, MANY)
    put(bench, 1, "late", delay=30)
    began = bench.now
    subscribes(bench, "c")
    while bench.pass_turn():
        bench.now += SECOND
        bench.wall += SECOND
    passed = (bench.now - began) // SECOND
    assert 3 <= passed <= 20
    bench.restart()
    bench.raw(WATCH, 5, topic=bench.topic("late"))
    bench.turn(29 - passed)
    assert ask(bench, RESERVE, 5).status == TIMED_OUT
    bench.turn(1.1)
    assert ask(bench, RESERVE, 5).status == OK
