"""A message that nobody has seen yet is made longer where it lies (channel_grow of csrc/ringbuf/channel.h)."""

from __future__ import annotations

import random
from typing import Any

from mq_shards.csrc._core import ffi, lib

from tests.ringbuf.channel_ends import DATA_BYTES, HEADER_BYTES, RECORD_BYTES, End


def extend(end: End, growing: Any, more: bytes) -> bool:  # noqa: ANN401
    if not lib.channel_grows(end.channel, growing):
        return False
    room = lib.channel_grow(end.channel, growing, len(more))
    if room == ffi.NULL:
        return False
    ffi.memmove(room, more, len(more))
    return True


def test_it_is_received_as_one(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    place = sender.send_in_place(1, b"12345678")
    assert extend(sender, place, b"abcdefgh") and extend(sender, place, b"ABCDEFGHijklmnop")
    sender.send(2, b"next")
    sender.publish()
    assert receiver.receive_all() == [(1, b"12345678abcdefghABCDEFGHijklmnop"), (2, b"next")]


def test_only_what_was_sent_last_is(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    assert not extend(sender, ffi.new("struct growing *"), b"abcdefgh"), "there is nothing yet"
    place = sender.send_in_place(1, b"12345678")
    sender.send(2)
    assert not extend(sender, place, b"abcdefgh")
    sender.publish()
    assert receiver.receive_all() == [(1, b"12345678"), (2, b"")]


def test_what_may_have_been_seen_stays_as_it_is(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    place = sender.send_in_place(1, b"12345678")
    sender.publish()
    assert not extend(sender, place, b"abcdefgh")
    assert receiver.receive_all() == [(1, b"12345678")]


def test_what_waits_for_room_is_not_extended(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    while not lib.channel_counters(sender.channel).overflow_bytes:
        sender.send(1, bytes(800))
    place = sender.tail()
    sender.send(2, b"12345678")
    waits = ffi.new("struct growing *", [ffi.NULL, place, sender.tail()])
    assert not extend(sender, waits, b"abcdefgh")
    sender.publish()
    came = receiver.receive_all()
    while sender.backlogged() or came[-1][0] != 2:
        sender.publish()
        came += receiver.receive_all()
    assert came[-1] == (2, b"12345678")


def test_it_becomes_no_larger_than_a_record_may_be(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    place = sender.send_in_place(1, b"12345678")
    most, bytes_there = DATA_BYTES // 4 - RECORD_BYTES - HEADER_BYTES, 8
    while extend(sender, place, b"abcdefgh"):
        bytes_there += 8
    assert bytes_there == most // 8 * 8
    sender.publish()
    assert receiver.receive_all() == [(1, b"12345678" + b"abcdefgh" * (bytes_there // 8 - 1))]


def test_it_takes_no_room_that_there_is_not(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    record = RECORD_BYTES + HEADER_BYTES + 704
    for number in range(DATA_BYTES // record):
        assert sender.send_in_place(number, bytes(704))
    place = sender.send_in_place(9, bytes(DATA_BYTES % record - RECORD_BYTES - HEADER_BYTES - 8))
    assert not extend(sender, place, bytes(16))
    assert extend(sender, place, b"the last")
    assert not extend(sender, place, bytes(8))
    sender.publish()
    assert receiver.receive_all()[-1][1].endswith(b"the last")


def test_over_the_end_of_the_ring_and_at_random(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    rng = random.Random(7)
    sent: list[tuple[int, bytes]] = []
    came: list[tuple[int, bytes]] = []
    place: Any = None
    for number in range(20_000):
        what = rng.randrange(8)
        if what < 4 and place is not None:
            more = rng.randbytes(8 * rng.randrange(1, 9))
            if extend(sender, place, more):
                sent[-1] = (sent[-1][0], sent[-1][1] + more)
        elif what < 6:
            body = rng.randbytes(8 * rng.randrange(40))
            place = sender.send_in_place(number, body)
            if place is None:
                sender.send(number, body)
            sent.append((number, body))
        elif what == 6:
            sender.publish()
            sender.backlogged()
        else:
            came += receiver.receive_all()
    while sender.backlogged() or sender.publish() or len(came) < len(sent):
        came += receiver.receive_all()
    assert came == sent
