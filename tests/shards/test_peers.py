"""Acceptors that die and come back, as a worker sees them: what their connections had is let go of piece by piece."""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator

import pytest
from mq_shards.csrc._core import lib
from mq_shards.ringbuf import ring

from tests.shards.bench import OK, OPEN, PUBLISH, RESERVE, SECOND, SHARDS, STATS_TOPIC, WATCH, Answer
from tests.shards.subscriptions import SUBSCRIBE, TIMEOUT, Channels

PIECE = 50
MANY = 20 * PIECE
DIES, LIVES = 0, 1
WATCHING = struct.Struct("<Q")
WATCHING_AT = 56  # struct topic_stats, csrc/ringbuf/message.h
FOREVER = 1 << 62


@pytest.fixture()
def bench() -> Iterator[Channels]:
    b = Channels(acceptors=2, ring_bytes=1 << 22, piece=PIECE)
    b.send(OPEN, acceptor=LIVES, topic=1, body=b"t")
    b.send(WATCH, conn=9, acceptor=LIVES, topic=1)  # there is a tube as long as somebody watches it
    assert b.topic("t") == 1
    b.turn()
    yield b
    b.dispose()


def come(bench: Channels) -> None:
    """Another in the place of the one that dies."""
    there, back = ring.create(bench.ring_bytes, 1), ring.create(bench.ring_bytes, 1)
    lib.channel_close(bench.channels[DIES])
    bench.channels[DIES] = lib.channel_open(there, back, -1, 1 << 30)
    assert lib.worker_peer(bench.worker, DIES, back, there, -1)
    os.close(there)
    os.close(back)


def die(bench: Channels) -> None:
    lib.worker_peer_gone(bench.worker, DIES)


def one_turn(bench: Channels, acceptor: int = LIVES) -> list[Answer]:
    bench.pass_turn()
    return bench.receive(acceptor)


def watching(bench: Channels) -> int:
    """Beside that one; asked and answered within one turn."""
    slot = bench.send(STATS_TOPIC, acceptor=LIVES, body=b"t")
    (body,) = [a.body for a in one_turn(bench) if a.slot == slot]
    return int(WATCHING.unpack_from(body, WATCHING_AT)[0]) - 1


def watch(bench: Channels, count: int = MANY, *, waits: bool = False) -> None:
    for conn in range(1, count + 1):
        bench.raw(WATCH, conn, topic=1)
        if waits:
            bench.raw(RESERVE, conn, delay=FOREVER)
    bench.turn()
    assert watching(bench) == count


def until_none(bench: Channels) -> list[int]:
    seen = []
    while not seen or seen[-1]:
        assert len(seen) < MANY
        seen.append(watching(bench))
    return seen


def until_heard(bench: Channels, slot: int) -> list[int]:
    """Until the one that came in its place is answered; how many there were in each of the turns before that."""
    seen: list[int] = []
    while not (answers := bench.receive(DIES)):
        assert len(seen) < MANY
        seen.append(watching(bench))
    assert [(a.slot, a.status) for a in answers] == [(slot, OK)]
    return seen[:-1]


def test_what_the_connections_of_one_that_died_had_goes_in_pieces_and_others_are_served(bench: Channels) -> None:
    watch(bench)
    die(bench)
    seen = [MANY, *until_none(bench)]
    assert len(seen) > MANY // PIECE
    assert all(0 <= before - after <= 2 * PIECE for before, after in itertools.pairwise(seen))


def test_one_that_comes_in_its_place_is_heard_when_all_of_that_is_over(bench: Channels) -> None:
    """Its connections bear the same numbers."""
    watch(bench)
    die(bench)
    come(bench)
    bench.open("t", 1)
    bench.raw(WATCH, 1, topic=1)
    seen = until_heard(bench, bench.raw(lib.MSG_BARRIER, 1))
    assert seen[-1] == 0 and watching(bench) == 1, "its own"


def test_one_that_dies_before_the_one_before_it_is_over_was_never_heard(bench: Channels) -> None:
    watch(bench)
    for _ in range(3):
        die(bench)
        come(bench)
        bench.open("t", 1)
        bench.raw(WATCH, 7, topic=1)
        assert watching(bench) > 0
    assert until_heard(bench, bench.raw(lib.MSG_BARRIER, 7))[-1] == 0
    assert watching(bench) == 1
    die(bench)
    assert until_none(bench)[-1] == 0
    die(bench)
    come(bench)
    bench.open("t", 1)
    watch(bench, PIECE)


def put(bench: Channels, count: int) -> list[int]:
    ids = []
    for _ in range(count):
        bench.send(PUBLISH, conn=2, acceptor=LIVES, topic=1, id=bench.next_id, pri=1024, body=b"x")
        ids.append(bench.next_id)
        bench.next_id += SHARDS
    return ids


def test_jobs_that_come_meanwhile_are_nobodys_who_has_gone(bench: Channels) -> None:
    watch(bench, waits=True)
    die(bench)
    ids = put(bench, 10)
    until_none(bench)
    bench.send(WATCH, conn=3, acceptor=LIVES, topic=1)
    slots = [bench.send(RESERVE, conn=3, acceptor=LIVES, delay=FOREVER) for _ in ids]
    answers = one_turn(bench) + one_turn(bench)
    assert sorted(a.id for a in answers if a.slot in slots) == ids


def test_messages_that_come_meanwhile_are_delivered_to_nobody_who_has_gone(bench: Channels) -> None:
    """Nor do they count as tried."""
    watch(bench)
    assert bench.sub(MANY + 1, "t", "c", credit=100) == OK
    bench.turn()
    die(bench)
    bench.raw(PUBLISH, 2, topic=1, id=bench.next_id, pri=1024, body=b"first", flags=lib.MSG_DURABLE, acceptor=LIVES)
    until_none(bench)
    body = SUBSCRIBE.pack(TIMEOUT, 900 * SECOND, 0, 0, 1, 0, 4) + b"c{ab}"
    bench.raw(lib.MSG_SUBSCRIBE, 3, topic=1, body=body, acceptor=LIVES)
    bench.raw(lib.MSG_CREDIT, 3, id=100, acceptor=LIVES)
    came = [a for a in one_turn(bench) + one_turn(bench) if a.kind == lib.MSG_DELIVER]
    assert [(a.conn, a.body, a.pri) for a in came] == [(3, b"first", 1)]
