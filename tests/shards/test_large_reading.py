"""Whether a message of many MiB can be read is found a piece a turn, while others are served; and all of it counts."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import (
    GONE,
    NOT_FOUND,
    OK,
    PEEK_ID,
    PROBE,
    PUBLISH,
    RESERVE,
    RESERVE_ID,
    SECOND,
    TAKE,
    TIMED_OUT,
    WATCH,
    Answer,
)
from tests.shards.subscriptions import Channels, roll
from tests.shards.test_large import BODY, LOOKS, MIB, PIECES, answer_to, begin, send
from tests.shards.test_shard_protocol import join

OTHER = BODY[MIB:]
PAGE = 4096
BENCH = {"ring_bytes": 1 << 26}


def put(bench: Channels, body: bytes = BODY, name: str = "t", flags: int = 0) -> int:
    slot, id = begin(bench, body=body, name=name, flags=flags)
    assert answer_to(bench, slot).status == OK
    return id


def reserve(bench: Channels, id: int) -> None:
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.raw(RESERVE, 5)


def reserve_id(bench: Channels, id: int) -> None:
    bench.raw(RESERVE_ID, 5, id=id)


def peek(bench: Channels, id: int) -> None:
    bench.raw(PEEK_ID, 5, id=id)


def probe_and_take(bench: Channels, id: int) -> None:
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.raw(PROBE, 5)
    bench.raw(TAKE, 5, id=id, pri=1024)


def subscribe(bench: Channels, id: int) -> None:
    assert bench.sub(5, "t", "c", credit=5) == OK


def by_key(bench: Channels, id: int) -> None:
    assert join(bench, 5, lib.POLICY_KEY, credit=5) == OK


def peek_seq(bench: Channels, id: int) -> None:
    bench.raw(lib.MSG_PEEK_SEQ, 5, topic=bench.topic("t"), ttr=0)


OF_TOPICS = (subscribe, by_key, peek_seq)


@pytest.mark.parametrize("ask", [reserve, reserve_id, peek, probe_and_take, *OF_TOPICS])
def test_others_are_served_in_each_turn_in_which_it_is_looked_at(
    bench: Channels, ask: Callable[[Channels, int], None]
) -> None:
    id = put(bench, flags=lib.MSG_DURABLE if ask in OF_TOPICS else 0)
    ask(bench, id)
    served, bodies = 0, list[bytes]()
    for _ in range(4 * PIECES):
        slot, _ = send(bench, 2, b"small", "other")
        answers = bench.step()
        assert slot in [a.slot for a in answers if a.kind == PUBLISH]
        served += 1
        bodies = [a.body for a in answers if len(a.body) > MIB]
        if bodies:
            break
    assert bodies == [BODY]
    # It is looked at, and then moved into the ring; twice as long at most, where two ask for it.
    assert LOOKS + PIECES - 1 <= served <= 2 * LOOKS + PIECES + 8


def test_its_beginning_is_sent_with_how_long_it_is(bench: Channels) -> None:
    put(bench, flags=lib.MSG_DURABLE)
    for most, got in ((100, 100), (MIB, MIB), (len(BODY) - 1, lib.PEEK_MOST_BYTES)):
        answer = answer_to(bench, bench.raw(lib.MSG_PEEK_SEQ, 5, topic=bench.topic("t"), ttr=0, id=most))
        assert (answer.body, answer.pri) == (BODY[:got], len(BODY))


def test_a_scan_tells_what_is_before_it_and_is_looked_on_at_by_the_next(bench: Channels) -> None:
    flags = lib.MSG_DURABLE
    send(bench, 1, b"small", flags=flags)
    bench.step()
    put(bench, flags=flags)
    first = answer_to(bench, bench.raw(lib.MSG_SCAN, 5, topic=bench.topic("t"), ttr=0), 1)
    assert first.status == OK and first.seq == 1, "where the next begins"
    slot = bench.raw(lib.MSG_SCAN, 5, topic=bench.topic("t"), ttr=1)
    served = 0
    while not (came := [a for a in bench.step() if a.slot == slot and a.kind == lib.MSG_SCAN]):
        served += 1
        assert served <= 2 * LOOKS
    assert served >= LOOKS - 2 and came[0].status == OK and came[0].seq == 2


def test_two_that_are_asked_for_at_once_both_come(bench: Channels) -> None:
    wanted = {1: put(bench), 2: put(bench, OTHER, "other")}
    for conn, name in ((1, "t"), (2, "other")):
        bench.raw(WATCH, conn, topic=bench.topic(name))
        bench.raw(RESERVE, conn)
    came = {a.conn: a for _ in range(6 * PIECES) for a in bench.step() if a.kind == RESERVE}
    assert {conn: a.id for conn, a in came.items()} == wanted
    assert came[1].body == BODY and came[2].body == OTHER


def test_who_asks_no_more_holds_up_no_other(bench: Channels) -> None:
    id, other = put(bench), put(bench, OTHER, "other")
    bench.raw(RESERVE_ID, 1, id=id)
    bench.step()
    bench.raw(GONE, 1)
    assert answer_to(bench, bench.raw(RESERVE_ID, 2, id=other), LOOKS + PIECES + 8).body == OTHER
    assert answer_to(bench, bench.raw(RESERVE_ID, 3, id=id)).body == BODY


def test_waiting_clients_get_what_was_given_back(bench: Channels) -> None:
    id = put(bench)
    assert answer_to(bench, bench.raw(RESERVE_ID, 1, id=id)).id == id
    bench.raw(WATCH, 2, topic=bench.topic("t"))
    slot = bench.raw(RESERVE, 2, delay=60 * SECOND)
    bench.step()
    bench.raw(GONE, 1)
    assert answer_to(bench, slot).body == BODY


def unreadable(bench: Channels) -> int:
    place, topic = ffi.new("struct damage *"), ffi.new("const char **")
    return int(lib.worker_unreadable(bench.worker, place, topic))


@pytest.mark.parametrize("channel", [False, True])
def test_one_of_which_the_end_cannot_be_read_is_lost_and_what_is_behind_comes(bench: Channels, channel: bool) -> None:
    flags = lib.MSG_DURABLE if channel else 0
    id = put(bench, flags=flags)
    roll(bench)
    (fd,) = [fd for _, fd in bench.segments[0] if os.fstat(fd).st_size > len(BODY)]
    os.ftruncate(fd, os.fstat(fd).st_size // PAGE * PAGE - 2 * MIB)
    _, small = send(bench, 1, b"small", flags=flags)
    bench.step()

    def came(kind: int, turns: int = 3 * LOOKS) -> list[Answer]:
        return [a for _ in range(turns) for a in bench.step() if a.kind == kind]

    if channel:
        subscribe(bench, id)
        assert [(a.id, a.body) for a in came(lib.MSG_DELIVER)] == [(small, b"small")]
    else:
        reserve(bench, id)
        bench.raw(RESERVE, 5)
        assert [(a.id, a.body, a.status) for a in came(RESERVE)] == [(small, b"small", OK), (0, b"", TIMED_OUT)]
        assert answer_to(bench, bench.raw(PEEK_ID, 6, id=id)).status == NOT_FOUND
    assert unreadable(bench) == 1
