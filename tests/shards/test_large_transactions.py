"""A large message of a transaction is written a piece a turn, when it is staged and when it is committed."""

from __future__ import annotations

import os

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import DELETE, GONE, NO_SPACE, OK, RESERVE, SECOND, SHARDS, WATCH
from tests.shards.positions import EARLIEST, begin
from tests.shards.subscriptions import Channels
from tests.shards.test_due_times import MS
from tests.shards.test_large import BODY, MIB, PIECES, answer_to, send
from tests.shards.test_open_transactions import ABORT, COMMIT, MSG_TXN, TXN, of_transaction, open_ones

TURNS = 2 * PIECES
BENCH = {"ring_bytes": 1 << 26}


def stage(bench: Channels, conn: int = 1, body: bytes = BODY, txn: int = TXN, due_ns: int = 0) -> int:
    flags = lib.MSG_DURABLE | lib.MSG_RETAIN | MSG_TXN | (lib.MSG_DUE if due_ns else 0)
    topic, id, body = bench.topic("t"), bench.next_id, of_transaction(txn, body)
    bench.next_id += SHARDS
    return bench.raw(lib.MSG_PUBLISH, conn, flags=flags, topic=topic, id=id, pri=1024, delay=due_ns, body=body)


def end(bench: Channels, how: int = COMMIT, conn: int = 2) -> int:
    return bench.raw(lib.MSG_TXN_END, conn, topic=bench.topic("t"), id=TXN, pri=how)


ARRIVAL = len(BODY) // (4 * MIB) + 2  # turns in which a body comes out of the ring


def part_of(bench: Channels, turns: int = ARRIVAL + 6) -> None:
    """So many turns, in which nothing is answered."""
    for _ in range(turns):
        assert bench.step() == []


def delivered(bench: Channels, conn: int = 7) -> list[bytes]:
    begin(bench, conn, EARLIEST, channel="c")
    came: list[bytes] = []
    for _ in range(TURNS):
        came += [a.body for a in bench.turn() if a.kind == lib.MSG_DELIVER]
        bench.raw(lib.MSG_SENT, conn, id=1 << 30)
    bench.raw(GONE, conn)
    bench.turn()
    return came


def left_in_waiting(bench: Channels) -> list[int]:
    sizes = [os.fstat(fd).st_size for _, fd in bench.segments[0]]
    active = lib.worker_active_segment(bench.worker, 0)
    return [size for (number, _), size in zip(bench.segments[0], sizes, strict=True) if number > active and size]


def turns_with_others_served(bench: Channels, slot: int, after: int = 0) -> int:
    part_of(bench, after)
    turns = after
    while True:
        other, id = send(bench, 5, b"small", "elsewhere")
        answers = bench.step()
        assert other in [a.slot for a in answers]
        bench.raw(DELETE, 5, id=id)
        turns += 1
        if slot in [a.slot for a in answers]:
            assert [a.status for a in answers if a.slot == slot] == [OK]
            return turns


@pytest.mark.parametrize("restarts", [False, True])
def test_others_are_served_in_each_turn_in_which_it_is_staged_and_committed(bench: Channels, restarts: bool) -> None:
    begin(bench, 9, EARLIEST, channel="c", credit=0)
    assert turns_with_others_served(bench, stage(bench), ARRIVAL) >= PIECES
    if restarts:
        bench.restart()
        assert bench.found.damages == 0
    assert delivered(bench) == []
    assert turns_with_others_served(bench, end(bench)) >= PIECES
    assert delivered(bench) == [BODY]
    assert not open_ones(bench)
    bench.restart()
    assert bench.found.damages == 0
    assert delivered(bench) == [BODY]


def test_after_a_crash_half_way_it_is_committed_when_that_is_said_again(bench: Channels) -> None:
    begin(bench, 9, EARLIEST, channel="c", credit=0)
    stage(bench)
    part_of(bench)
    bench.restart()
    assert not open_ones(bench), "it was not staged"
    assert answer_to(bench, stage(bench)).status == OK
    end(bench)
    part_of(bench)
    bench.restart()
    assert open_ones(bench)
    assert delivered(bench) == []
    assert answer_to(bench, end(bench)).status == OK
    assert delivered(bench) == [BODY]


@pytest.mark.parametrize("due_s", [1, 100])
def test_a_delayed_one_that_is_due_while_it_is_committed_or_later(bench: Channels, due_s: int) -> None:
    begin(bench, 9, EARLIEST, channel="c", credit=0)
    assert answer_to(bench, stage(bench, due_ns=bench.wall // MS * MS + due_s * SECOND)).status == OK
    ended = end(bench)
    part_of(bench)
    bench.now += 2 * SECOND
    bench.wall += 2 * SECOND
    assert answer_to(bench, ended).status == OK
    bench.turn(0.01)
    assert delivered(bench) == ([BODY] if due_s == 1 else [])
    bench.turn(due_s)
    assert delivered(bench) == [BODY]


def test_a_client_that_goes_meanwhile_has_staged_and_committed_it(bench: Channels) -> None:
    begin(bench, 9, EARLIEST, channel="c", credit=0)
    stage(bench)
    part_of(bench)
    bench.raw(GONE, 1)
    for _ in range(TURNS):
        bench.step()
    end(bench)
    part_of(bench)
    bench.raw(GONE, 2)
    for _ in range(TURNS):
        bench.step()
    assert not open_ones(bench)
    assert delivered(bench) == [BODY]


def test_what_is_published_meanwhile_comes_behind_it(bench: Channels) -> None:
    begin(bench, 9, EARLIEST, channel="c", credit=0)
    assert answer_to(bench, stage(bench)).status == OK
    ending = end(bench)
    part_of(bench)
    large, _ = send(bench, 3, bytes(9 * MIB), flags=lib.MSG_DURABLE)
    small, _ = send(bench, 4, b"small", flags=lib.MSG_DURABLE)
    answers = [a.slot for _ in range(TURNS) for a in bench.step()]
    assert answers == [small, ending, large]
    assert delivered(bench) == [BODY, b"small", bytes(9 * MIB)]


@pytest.mark.parametrize("how", [COMMIT, ABORT])
def test_one_that_ends_while_it_is_staged_is_not_begun_again(bench: Channels, how: int) -> None:
    begin(bench, 9, EARLIEST, channel="c", credit=0)
    staged = stage(bench)
    part_of(bench)
    ended = end(bench, how)
    answers = {a.slot: a.status for _ in range(TURNS) for a in bench.step()}
    assert answers == {staged: NO_SPACE, ended: OK}
    assert not open_ones(bench)
    assert not left_in_waiting(bench)
    assert delivered(bench) == []
    assert answer_to(bench, send(bench, 3, BODY, flags=lib.MSG_DURABLE)[0]).status == OK
    assert delivered(bench) == [BODY]


def test_a_topic_that_is_deleted_while_it_is_committed_leaves_nothing_of_it(bench: Channels) -> None:
    begin(bench, 9, EARLIEST, channel="c", credit=0)
    assert answer_to(bench, stage(bench)).status == OK
    ended = end(bench)
    part_of(bench)
    deleted = bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_DELETE, body=b"t")
    answers = {a.slot: a.status for _ in range(TURNS) for a in bench.step()}
    assert answers[ended] == answers[deleted] == OK
    assert not left_in_waiting(bench)
    assert not open_ones(bench)
    assert answer_to(bench, send(bench, 3, BODY, flags=lib.MSG_DURABLE)[0]).status == OK
    assert delivered(bench) == [BODY]


def test_it_is_committed_after_messages_have_become_jobs_meanwhile(bench: Channels) -> None:
    for _ in range(3):
        bench.mpub("t", [b"x"] * 4000)
    assert answer_to(bench, stage(bench)).status == OK
    ended = end(bench)
    part_of(bench)
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    reserve = bench.raw(RESERVE, 5, delay=10 * SECOND)
    answers = {a.slot: a.status for _ in range(2 * TURNS) for a in bench.step()}
    assert answers == {ended: OK, reserve: OK}
    assert not left_in_waiting(bench)
    assert bench.catalog()["t"].jobs == 12_001
    bench.restart()
    assert bench.catalog()["t"].jobs == 12_001
