"""A connection that ends, or whose acceptor dies, may have had thousands of producers and consumers: they go in pieces,
and who wants what they had waits for that, but is not refused."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, OPEN, WATCH, Answer
from tests.shards.subscriptions import CHANNEL_FIGURES, TOPIC_FIGURES, Channels
from tests.shards.test_long_lists import subscribe
from tests.shards.test_peers import DIES, LIVES, one_turn

MANY = 100
PIECE = 40
FIRST = 16  # LETS_GO_AT_ONCE
AT_ONCE = PIECE // 4  # WORKER_LETTING_GO, csrc/shards/worker_state.h
TURNS = 2 * MANY // AT_ONCE
EXCLUSIVE = struct.pack("<HHIIII", lib.POLICY_EXCLUSIVE, 0, 0, 0, 0, 0)
ATTACH = struct.Struct("<IIQ")
SHARED, ALONE = range(2)  # enum access


@pytest.fixture()
def bench() -> Iterator[Channels]:
    b = Channels(acceptors=2, piece=PIECE)
    b.send(OPEN, acceptor=LIVES, topic=1, body=b"t")
    assert b.topic("t") == 1
    yield b
    b.dispose()


def subscribe_many(bench: Channels) -> None:
    for n in range(MANY):
        subscribe(bench, 1, "c", number=n)
        bench.raw(lib.MSG_CREDIT, 1, consumer=n, id=1)
    bench.turn()


def attach(bench: Channels, conn: int, number: int, access: int) -> int:
    body = ATTACH.pack(access, 0, lib.NO_PLACE) + b"p%d" % number
    return bench.raw(lib.MSG_ATTACH, conn, topic=1, pri=number, body=body)


def end(bench: Channels, *, dies: bool) -> None:
    if dies:
        lib.worker_peer_gone(bench.worker, DIES)
    else:
        bench.raw(GONE, 1)


def consumers(bench: Channels) -> int:
    """As many as there are a turn later, or two."""
    slot = bench.send(lib.MSG_CATALOG, 90, acceptor=LIVES)
    (body,) = [a.body for a in one_turn(bench) or one_turn(bench) if a.slot == slot]
    return int(CHANNEL_FIGURES.unpack_from(body, TOPIC_FIGURES.size + len("t"))[2])


def answer(bench: Channels, slot: int) -> tuple[Answer, int]:
    """To this request, and after how many turns."""
    for turn in range(TURNS):
        for a in bench.step():
            if a.slot == slot:
                return a, turn
    raise AssertionError("nothing came")


@pytest.mark.parametrize("dies", [False, True], ids=["it ends", "its acceptor dies"])
def test_the_consumers_of_a_connection_leave_in_pieces_and_get_nothing_more(bench: Channels, dies: bool) -> None:
    subscribe_many(bench)
    in_flight = bench.mpub("t", [b""] * MANY)
    end(bench, dies=dies)
    left = [MANY - FIRST, *(consumers(bench) for _ in range(TURNS))]
    assert left[-1] == 0
    assert all(0 <= before - after <= 3 * AT_ONCE for before, after in itertools.pairwise(left))
    if dies:
        return
    more = bench.mpub("t", [b""])
    bench.sub(2, "t", "c", credit=2 * MANY)
    assert sorted(a.id for a in bench.turn() if a.kind == lib.MSG_DELIVER) == in_flight + more


def test_who_wants_a_subscription_that_is_being_left_waits_and_is_not_refused(bench: Channels) -> None:
    subscribe_many(bench)
    bench.raw(GONE, 1)
    came, turn = answer(bench, subscribe(bench, 2, "c", EXCLUSIVE))
    assert came.status == OK and turn >= MANY // (2 * AT_ONCE)
    came, _ = answer(bench, subscribe(bench, 3, "c", EXCLUSIVE))
    assert (came.status, came.id) == (lib.STATUS_FULL, 2)


def test_who_wants_a_name_or_a_topic_that_is_being_left_waits_and_is_not_refused(bench: Channels) -> None:
    for n in range(MANY):
        attach(bench, 1, n, SHARED)
    bench.turn()
    bench.raw(GONE, 1)
    came, turn = answer(bench, attach(bench, 2, 0, SHARED))  # the first one's, that leaves as the last
    assert came.status == OK and turn >= MANY // (2 * AT_ONCE)
    bench.raw(GONE, 2)
    came, _ = answer(bench, attach(bench, 3, 1, ALONE))
    assert came.status == OK
    came, _ = answer(bench, attach(bench, 4, 2, SHARED))
    assert came.status == lib.STATUS_FULL


def test_tubes_that_a_connection_watched_are_let_go_of_in_pieces(bench: Channels) -> None:
    for n in range(MANY):
        bench.raw(WATCH, 1, topic=bench.topic(f"w{n}"))
    bench.turn()
    lib.worker_longest_turn(bench.worker)
    bench.raw(GONE, 1)
    bench.turn()
    assert PIECE <= lib.worker_longest_turn(bench.worker) <= 3 * PIECE
    for n in range(MANY):
        assert bench.ask(lib.MSG_STATS_TOPIC, body=b"w%d" % n).status == lib.STATUS_NOT_FOUND
