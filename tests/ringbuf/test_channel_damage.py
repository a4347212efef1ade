"""What comes through a channel and is not to be believed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from mq_shards.csrc._core import lib
from mq_shards.ringbuf import Producer, create

from tests.ringbuf.channel_ends import (
    DATA_BYTES,
    FIRST,
    LAST,
    End,
    connect,
    raw_message,
)


@pytest.fixture
def raw() -> Iterator[tuple[Producer, End]]:
    """A channel's end, and in place of the other one a bare ring producer that may send anything."""
    towards, back = create(DATA_BYTES, epoch=5), create(DATA_BYTES, epoch=5)
    producer = Producer(towards)
    end = End(lib.channel_open(back, towards, -1, 3000), os.eventfd(0, os.EFD_NONBLOCK))
    yield producer, end
    end.close()
    producer.close()
    os.close(towards)
    os.close(back)


FRAGMENT = 1000


def fragments(body: bytes, claimed: int | None = None) -> list[bytes]:
    whole = raw_message(1, body, claimed)
    return [whole[i : i + FRAGMENT] for i in range(0, len(whole), FRAGMENT)]


def test_fragments_of_any_size_are_put_together(raw: tuple[Producer, End]) -> None:
    producer, end = raw
    body = random.Random(1).randbytes(1500)
    whole = raw_message(9, body)
    cuts = [0, 48, 49, 100, 1000, len(whole)]
    for begin, stop in pairwise(cuts):
        flags = FIRST if begin == 0 else LAST if stop == len(whole) else 0
        assert producer.produce(whole[begin:stop], flags)
        producer.publish()
        assert end.receive() == ((9, body) if flags == LAST else None)
    assert not end.broken()


def test_the_room_of_a_fragment_is_given_back_before_the_turn_ends(raw: tuple[Producer, End]) -> None:
    producer, end = raw
    for i, piece in enumerate(fragments(bytes(3000))[:3]):
        assert producer.produce(piece, FIRST if i == 0 else 0)
    producer.publish()
    assert end.receive() is None
    assert [producer.produce(bytes(1016)) for _ in range(4)] == [True] * 4


@pytest.mark.parametrize(
    ("what", "records"),
    [
        ("shorter than a header", [(bytes(47), FIRST | LAST)]),
        ("empty", [(b"", FIRST | LAST)]),
        ("shorter than the shortest header", [(bytes(16), FIRST | LAST)]),
        ("cut within a field", [(raw_message(1, b"")[:36], FIRST | LAST)]),
        ("without its end, and with a body", [(raw_message(1, b"", 8)[:32], FIRST | LAST)]),
        ("without its end, and with a body behind it", [(raw_message(1, b"", 8)[:32] + bytes(8), FIRST | LAST)]),
        ("without its end, and a fragment", [(bytes(24), FIRST)]),
        ("body shorter than it says", [(raw_message(1, b"ab", 3), FIRST | LAST)]),
        ("body longer than it says", [(raw_message(1, b"abcd", 3), FIRST | LAST)]),
        ("body longer than 32 bits hold", [(raw_message(1, b"", 2**32 - 1), FIRST | LAST)]),
        ("unknown flags", [(raw_message(1, b""), 4 | FIRST | LAST)]),
        ("unknown flags of a fragment", [(fragments(bytes(2500))[0], 4 | FIRST)]),
        ("a middle without a first", [(bytes(100), 0)]),
        ("a last without a first", [(bytes(100), LAST)]),
        ("a first shorter than a header", [(bytes(47), FIRST)]),
        ("larger than allowed", [(raw_message(1, bytes(900), 3001), FIRST)]),
        ("as large as can be said", [(raw_message(1, bytes(900), 2**32 - 1), FIRST)]),
        ("a first that is the whole", [(raw_message(1, b"abc"), FIRST)]),
        ("a second first", [(fragments(bytes(2500))[0], FIRST)] * 2),
        ("an empty fragment", [(fragments(bytes(2500))[0], FIRST), (b"", 0)]),
        ("a last that comes too early", [(fragments(bytes(2500))[0], FIRST), (bytes(1000), LAST)]),
        ("a last that is too long", [(fragments(bytes(1500))[0], FIRST), (bytes(549), LAST)]),
        ("a middle that completes it", [(fragments(bytes(1500))[0], FIRST), (bytes(548), 0)]),
        ("a middle that is too long", [(fragments(bytes(1500))[0], FIRST), (bytes(1000), 0)]),
    ],
)
def test_a_message_not_to_be_believed_breaks_the_channel(
    raw: tuple[Producer, End], what: str, records: list[tuple[bytes, int]]
) -> None:
    producer, end = raw
    assert producer.produce(raw_message(77, b"before"), FIRST | LAST)
    for payload, flags in records:
        assert producer.produce(payload, flags)
    producer.publish()
    assert end.receive() == (77, b"before")
    assert end.receive() is None
    assert end.broken(), what
    producer.produce(raw_message(78, b"after"), FIRST | LAST)
    producer.publish()
    assert end.receive() is None, "dead from then on"


def test_others_may_come_between_the_fragments_of_a_message(raw: tuple[Producer, End]) -> None:
    producer, end = raw
    body = bytes(range(250)) * 10
    pieces = fragments(body)
    received = []
    for i, piece in enumerate(pieces):
        assert producer.produce(piece, (FIRST if i == 0 else 0) | (LAST if i == len(pieces) - 1 else 0))
        assert producer.produce(raw_message(50 + i, b"between"), FIRST | LAST)
        producer.publish()
        received += [end.receive(), end.receive()]
    between = [(50 + i, b"between") for i in range(len(pieces))]
    assert [one for one in received if one is not None] == [*between[:-1], (1, body), between[-1]]
    assert not end.broken()


def test_the_largest_body_allowed_is_received(raw: tuple[Producer, End]) -> None:
    producer, end = raw
    pieces = fragments(bytes(3000))
    for i, piece in enumerate(pieces):
        assert producer.produce(piece, (FIRST if i == 0 else 0) | (LAST if i == len(pieces) - 1 else 0))
    producer.publish()
    assert end.receive() == (1, bytes(3000))


def test_a_body_larger_than_allowed_is_not_received_in_one_record_either() -> None:
    sender, receiver = connect(most=100)
    sender.send(1, bytes(100))
    sender.send(2, bytes(101))
    sender.publish()
    assert receiver.receive() == (1, bytes(100))
    assert receiver.receive() is None
    assert receiver.broken()
    sender.close()
    receiver.close()


def test_a_broken_channel_drops_what_is_sent_and_keeps_nobody_awake(raw: tuple[Producer, End]) -> None:
    producer, end = raw
    producer.produce(b"nonsense", FIRST | LAST)
    producer.publish()
    assert end.receive() is None
    for _ in range(100):
        end.send(1, bytes(1000))
    assert not end.send_in_place(1)
    assert not end.publish()
    assert not end.backlogged()
    assert lib.channel_counters(end.channel).overflow_bytes == 0
    assert end.may_sleep()
