"""Several requests of a connection in one message, by ring messages alone (csrc/ringbuf/request_each.h)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import (
    CANCEL,
    CANCELLED,
    DELETE,
    FOREVER,
    GONE,
    NOT_FOUND,
    OK,
    REQUEST,
    RESERVE,
    RETURN,
    SHARDS,
    TIMED_OUT,
    TOUCH,
    WATCH,
)
from tests.shards.subscriptions import Channels, delivered

ONE = struct.Struct("<BBHIQ")
MOST = int(lib.REQUESTS_MOST)
AT_ONCE = int(lib.REQUESTS_AT_ONCE)
FINISH, CREDIT = int(lib.MSG_FINISH), int(lib.MSG_CREDIT)


def padded(entries: Sequence[bytes]) -> bytes:
    """Behind them stands what nobody is to look at."""
    return b"".join(entries) + b"\xff" * (-len(entries) % AT_ONCE * ONE.size)


def raw(bench: Channels, several: int, body: bytes, conn: int = 5, slot: int = 0) -> None:
    message = ffi.new("struct message *")
    head = REQUEST.pack(lib.MSG_REQUEST_EACH, several, 0, conn, slot, 0, 0, 0, len(body), 0, 0)
    ffi.memmove(message, head, len(head))
    lib.channel_send(bench.channels[0], message, body, len(body))


def send(bench: Channels, requests: Sequence[tuple[int, int]], conn: int = 5) -> list[int]:
    """Of kinds and values. The slots; a consumer's number is 0."""
    slots, entries = [], []
    for kind, value in requests:
        slots.append(0 if kind < 32 else bench.next_slot)
        bench.next_slot += 1
        entries.append(ONE.pack(kind, 0, 0, slots[-1], value))
    raw(bench, len(entries), padded(entries), conn)
    return slots


def answers(bench: Channels, conn: int = 5) -> list[tuple[int, int, int, int]]:
    """Kind, slot, status, id."""
    return [(a.kind, a.slot, a.status, a.id) for a in bench.turn() if a.conn == conn]


def jobs(bench: Channels, count: int, name: str = "t") -> list[int]:
    bench.raw(WATCH, 5, topic=bench.topic(name))
    return [bench.pub(name, b"job", durable=False)[0] for _ in range(count)]


def test_each_is_done_in_turn_and_answered(bench: Channels) -> None:
    first, second = jobs(bench, 2)
    asked = [(RESERVE, 0), (TOUCH, first), (DELETE, first), (RESERVE, FOREVER), (DELETE, second), (RESERVE, 0)]
    slots = send(bench, asked)
    assert answers(bench) == [
        (RESERVE, slots[0], OK, first), (TOUCH, slots[1], OK, first), (DELETE, slots[2], OK, first),
        (RESERVE, slots[3], OK, second), (DELETE, slots[4], OK, second), (RESERVE, slots[5], TIMED_OUT, 0),
    ]  # fmt: skip


def test_what_one_is_refused_is_its_own(bench: Channels) -> None:
    here, nowhere = jobs(bench, 1)[0], 99 * SHARDS
    slots = send(bench, [(DELETE, nowhere), (DELETE, here), (DELETE, here), (TOUCH, nowhere), (RESERVE, 0)])
    assert [(slot, status) for _, slot, status, _ in answers(bench)] == list(
        zip(slots, [NOT_FOUND, OK, NOT_FOUND, NOT_FOUND, TIMED_OUT], strict=True)
    )


def test_as_many_as_may_be_are_done(bench: Channels) -> None:
    ids = jobs(bench, MOST)
    slots = send(bench, [(DELETE, id) for id in ids])
    assert answers(bench) == [(DELETE, slot, OK, id) for slot, id in zip(slots, ids, strict=True)]


def test_behind_a_reserve_that_waits_the_others_wait(bench: Channels) -> None:
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    gone = 99 * SHARDS
    slots = send(bench, [(DELETE, gone), (RESERVE, FOREVER), (DELETE, gone), (RESERVE, FOREVER), (DELETE, gone)])
    slots += send(bench, [(RESERVE, FOREVER), (DELETE, gone)])
    assert answers(bench) == [(DELETE, slots[0], NOT_FOUND, gone)]
    for first in (1, 3, 5):
        bench.raw(lib.MSG_PUBLISH, 6, topic=bench.topic("t"), id=(id := bench.next_id), pri=9, body=b"x")
        bench.next_id += SHARDS
        assert answers(bench) == [(RESERVE, slots[first], OK, id), (DELETE, slots[first + 1], NOT_FOUND, gone)]


def test_a_reserve_among_them_is_cancelled_before_its_turn_and_when_it_waits(bench: Channels) -> None:
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    slots = send(bench, [(RESERVE, FOREVER), (TOUCH, 4), (RESERVE, FOREVER), (RESERVE, FOREVER)])
    assert answers(bench) == []

    def cancel(slot: int) -> None:
        head = REQUEST.pack(CANCEL, 0, 0, 5, slot, 0, 0, 0, 0, 0, 0)
        message = ffi.new("struct message *")
        ffi.memmove(message, head, len(head))
        lib.channel_send(bench.channels[0], message, ffi.NULL, 0)

    cancel(slots[2])
    assert answers(bench) == []
    cancel(slots[0])
    assert [(slot, status) for _, slot, status, _ in answers(bench)] == [
        (slots[0], CANCELLED), (slots[1], NOT_FOUND), (slots[2], TIMED_OUT)]  # fmt: skip
    cancel(slots[3])
    assert [(slot, status) for _, slot, status, _ in answers(bench)] == [(slots[3], CANCELLED)]


def test_of_a_connection_that_goes_nothing_more_is_done(bench: Channels) -> None:
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    kept = jobs(bench, 1, "other")[0]
    send(bench, [(RESERVE, 0), (RESERVE, FOREVER), (DELETE, kept)])
    assert [kind for kind, *_ in answers(bench)] == [RESERVE]
    bench.raw(GONE, 5)
    assert answers(bench) == []
    bench.raw(WATCH, 6, topic=bench.topic("other"))
    bench.raw(RESERVE, 6)
    assert [a.id for a in bench.turn() if a.conn == 6] == [kept]


def test_what_was_delivered_in_vain_comes_back_in_spite_of_one_that_waits(bench: Channels) -> None:
    (job,) = jobs(bench, 1)
    slots = send(bench, [(RESERVE, 0), (RESERVE, FOREVER)])
    assert answers(bench) == [(RESERVE, slots[0], OK, job)]
    bench.raw(RETURN, 5, id=job)
    assert answers(bench) == [(RESERVE, slots[1], OK, job)]


def test_a_consumer_finishes_many_and_is_refused_what_is_not_in_flight(bench: Channels) -> None:
    assert bench.sub(5, "t", "c", credit=1) == OK
    ids = [bench.pub("t")[0] for _ in range(3)]
    bench.turn()
    send(bench, [(CREDIT, 3), (FINISH, ids[0]), (FINISH, ids[0])])
    came = bench.turn()
    assert [id for id, _ in delivered(came, 5)] == ids[1:]
    assert [(a.id, a.status, a.pri) for a in came if a.kind == lib.MSG_REFUSED] == [(ids[0], NOT_FOUND, FINISH)]
    send(bench, [(FINISH, ids[1]), (FINISH, ids[2])])
    assert bench.turn() == []
    assert bench.catalog()["t"].channels["c"].in_flight == 0


def test_by_seq_it_is_the_seq_that_is_said(bench: Channels) -> None:
    assert bench.sub(5, "t", "c", credit=9) == OK
    bench.mpub("t", [b"x"] * 5)
    bench.turn()
    flags = (lib.MSG_BY_SEQ, lib.MSG_UPTO)
    raw(bench, 2, padded([ONE.pack(FINISH, 0, flag, 0, seq) for flag, seq in zip(flags, (4, 1), strict=True)]))
    assert bench.turn() == []
    assert bench.catalog()["t"].channels["c"].in_flight == 2


def one(kind: int = DELETE, unused: int = 0) -> bytes:
    return ONE.pack(kind, unused, 0, 77, 4)


DAMAGED = {
    "none": (0, b""),
    "none, it says": (0, padded([one()])),
    "more than are there": (9, padded([one()])),
    "fewer than are there": (1, padded([one()] * 9)),
    "no room behind": (1, one()),
    "half of one": (1, one()[:8]),
    "too many": (MOST + 1, padded([one()] * (MOST + 1))),
    "one that has a body": (2, padded([one(), one(lib.MSG_PUBLISH)])),
    "one of its own kind": (1, padded([one(lib.MSG_REQUEST_EACH)])),
    "one that ends a connection": (1, padded([one(GONE)])),
    "one of no kind": (2, padded([one(), one(255)])),
    "one that says more": (1, padded([one(unused=1)])),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_damaged_is_refused_as_a_whole(bench: Channels, what: str) -> None:
    several, body = DAMAGED[what]
    (job,) = jobs(bench, 1)
    raw(bench, several, body, slot=12)
    assert answers(bench) == [(lib.MSG_REQUEST_EACH, 12, lib.STATUS_INVALID, 0)]
    slots = send(bench, [(RESERVE, 0)])
    assert answers(bench) == [(RESERVE, slots[0], OK, job)], "nothing was done, and the next is"
