"""Channels against a model, against damaged messages, and between two processes (csrc/ringbuf/channel.h)."""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf import Producer, create

DATA_BYTES = 4096
MOST = 1 << 20
HEADER_BYTES = 48
RECORD_BYTES = 8  # before a message in the ring
FIRST, LAST = 1, 2
# The largest body that travels in one record of such a ring.
WHOLE_BODY = DATA_BYTES // 4 - 8 - HEADER_BYTES


def header(number: int, body_bytes: int) -> Any:  # noqa: ANN401
    return ffi.new("struct message *", {"kind": 32, "id": number, "pri": 7, "body_bytes": body_bytes})


def raw_message(number: int, body: bytes, body_bytes: int | None = None) -> bytes:
    return bytes(ffi.buffer(header(number, len(body) if body_bytes is None else body_bytes))) + body


@dataclass
class End:
    """One side of a channel, with the eventfd that it sleeps on."""

    channel: Any
    wake_fd: int

    def send(self, number: int, body: bytes = b"") -> None:
        lib.channel_send(self.channel, header(number, len(body)), body, len(body))

    def send_in_place(self, number: int, body: bytes = b"") -> bool:
        message = lib.channel_reserve(self.channel, len(body))
        if message == ffi.NULL:
            return False
        assert int(ffi.cast("uintptr_t", message)) % 8 == 0
        message[0] = header(number, len(body))[0]
        ffi.memmove(message + 1, body, len(body))
        lib.channel_sent(self.channel)
        return True

    def receive(self) -> tuple[int, bytes] | None:
        message = lib.channel_receive(self.channel)
        if message == ffi.NULL:
            return None
        assert int(ffi.cast("uintptr_t", message)) % 8 == 0
        return int(message.id), bytes(ffi.buffer(message + 1, message.body_bytes))

    def receive_all(self) -> list[tuple[int, bytes]]:
        received = []
        while (message := self.receive()) is not None:
            received.append(message)
        lib.channel_release(self.channel)
        return received

    def publish(self, tail: int | None = None) -> bool:
        return bool(lib.channel_publish(self.channel) if tail is None else lib.channel_publish_to(self.channel, tail))

    def backlogged(self) -> bool:
        return bool(lib.channel_backlogged(self.channel))

    def tail(self) -> int:
        return int(lib.channel_tail(self.channel))

    def may_sleep(self) -> bool:
        return bool(lib.channel_may_sleep(self.channel))

    def may_sleep_until_room(self) -> bool:
        return bool(lib.channel_may_sleep_until_room(self.channel))

    def awake(self) -> None:
        lib.channel_awake(self.channel)

    def broken(self) -> bool:
        return bool(lib.channel_broken(self.channel))

    def wake_ups(self) -> int:
        try:
            return os.eventfd_read(self.wake_fd)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        lib.channel_close(self.channel)
        os.close(self.wake_fd)


def connect(data_bytes: int = DATA_BYTES, most: int = MOST) -> tuple[End, End]:
    rings = [create(data_bytes, epoch=5) for _ in range(2)]
    wakes = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2)]
    ends = [
        End(lib.channel_open(rings[side], rings[1 - side], wakes[1 - side], most), wakes[side]) for side in range(2)
    ]
    for fd in rings:
        os.close(fd)
    assert all(end.channel != ffi.NULL for end in ends)
    return ends[0], ends[1]


@pytest.fixture
def pair() -> Iterator[tuple[End, End]]:
    ends = connect()
    yield ends
    for end in ends:
        end.close()


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


# --- Against a model -----------------------------------------------------------------------------------------------


class ChannelModel(RuleBasedStateMachine):
    """One direction is a queue of messages, of which those sent before some place may be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.sender, self.receiver = connect()
        self.sent: deque[tuple[int, int, bytes]] = deque()  # the tail behind it, number, body
        self.publishable = 0
        self.tails = [0]
        self.count = 0

    def sent_one(self, number: int, body: bytes) -> None:
        self.tails.append(self.sender.tail())
        self.sent.append((self.tails[-1], number, body))

    @rule(
        body_bytes=st.one_of(st.integers(0, 100), st.integers(0, WHOLE_BODY + 20), st.integers(0, 3 * DATA_BYTES)),
        in_place=st.booleans(),
    )
    def send(self, body_bytes: int, in_place: bool) -> None:
        self.count += 1
        body = random.Random(self.count).randbytes(body_bytes)
        if not (in_place and self.sender.send_in_place(self.count, body)):
            self.sender.send(self.count, body)
        self.sent_one(self.count, body)

    @rule()
    def publish(self) -> None:
        self.sender.publish()
        self.publishable = self.tails[-1]

    @rule(data=st.data())
    def publish_to(self, data: st.DataObject) -> None:
        tail = data.draw(st.sampled_from(self.tails[-12:]))
        self.sender.publish(tail)
        self.publishable = max(self.publishable, tail)

    @rule()
    def backlogged(self) -> None:
        self.sender.backlogged()

    @rule(most=st.integers(1, 8))
    def receive(self, most: int) -> None:
        for _ in range(most):
            if (message := self.receiver.receive()) is None:
                break
            tail, number, body = self.sent.popleft()
            assert message == (number, body)
            assert tail <= self.publishable, "seen before it was published"

    @rule()
    def release(self) -> None:
        lib.channel_release(self.receiver.channel)

    @precondition(lambda self: self.sent)
    @rule()
    def what_is_publishable_arrives_and_no_more(self) -> None:
        # Fragments leave gaps: a full ring holds more than half its size, but not always all of it.
        for _ in range(3 + 2 * self.tails[-1] // DATA_BYTES):
            for message in self.receiver.receive_all():
                _, number, body = self.sent.popleft()
                assert message == (number, body)
            self.sender.backlogged()
        assert not self.sent or self.sent[0][0] > self.publishable

    @invariant()
    def nothing_broke(self) -> None:
        assert self.sender.tail() == self.tails[-1]
        assert not self.sender.broken()
        assert not self.receiver.broken()

    def teardown(self) -> None:
        self.publish()
        self.what_is_publishable_arrives_and_no_more()
        assert not self.sent
        assert not self.sender.backlogged()
        self.sender.close()
        self.receiver.close()


TestChannelModel = ChannelModel.TestCase
TestChannelModel.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)


# --- Sending and holding back --------------------------------------------------------------------------------------


def test_every_field_of_a_message_comes_through(pair: tuple[End, End]) -> None:
    sent = ffi.new(
        "struct message *",
        {
            "kind": 1, "status": 2, "flags": 3, "conn": 4, "slot": 5, "topic": 6, "id": 7, "pri": 8, "body_bytes": 3,
            "delay_ns": 9, "ttr_ns": 10,
        },
    )  # fmt: skip
    lib.channel_send(pair[0].channel, sent, b"abc", 3)
    pair[0].publish()
    received = lib.channel_receive(pair[1].channel)
    assert bytes(ffi.buffer(received, HEADER_BYTES + 3)) == bytes(ffi.buffer(sent)) + b"abc"


HEAD_FIELDS = {"kind": 1, "status": 1, "flags": 2, "conn": 4, "slot": 4, "topic": 4, "id": 8, "pri": 4, "delay_ns": 8,
               "ttr_ns": 8}  # fmt: skip


def bare_heads(receiver: End) -> list[bytes]:
    """Of the messages without a body that are there."""
    found = []
    while (message := lib.channel_receive(receiver.channel)) != ffi.NULL:
        assert int(ffi.cast("uintptr_t", message)) % 8 == 0
        if message.body_bytes == 0:
            found.append(bytes(ffi.buffer(message)))
    lib.channel_release(receiver.channel)
    return found


@pytest.mark.parametrize("in_ring", [True, False])
def test_zeros_at_the_end_of_a_head_do_not_travel_and_are_there_again(pair: tuple[End, End], in_ring: bool) -> None:
    sender, receiver = pair
    rng = random.Random(in_ring)
    while not in_ring and not lib.channel_counters(sender.channel).overflow_bytes:
        sender.send(0, bytes(900))
    sent, received = [], []
    for _ in range(500):
        some = {name: rng.choice((0, 1, rng.getrandbits(8 * size))) for name, size in HEAD_FIELDS.items()}
        message, before = ffi.new("struct message *", some), lib.channel_tail(sender.channel)
        lib.channel_send(sender.channel, message, ffi.NULL, 0)
        needed = 48 if some["ttr_ns"] else 40 if some["delay_ns"] else 32 if some["pri"] else 24
        assert lib.channel_tail(sender.channel) - before == RECORD_BYTES + needed, some
        sent.append(bytes(ffi.buffer(message)))
        sender.publish()
        if in_ring:
            received += bare_heads(receiver)
    while len(received) < len(sent):
        received += bare_heads(receiver)
        sender.backlogged()
    assert received == sent


def test_what_was_not_given_back_is_told_with_all_of_its_head() -> None:
    sender, receiver = connect()
    sent = [{"kind": 32 + n % 8, "id": n} | ({"ttr_ns": 7} if n % 2 else {}) for n in range(300)]
    for head in sent:
        lib.channel_send(sender.channel, ffi.new("struct message *", head), ffi.NULL, 0)
    assert lib.channel_counters(sender.channel).overflow_bytes > 0
    place = ffi.new("struct channel_place *")
    for head in sent:
        message = lib.channel_unreleased(sender.channel, place)
        assert bytes(ffi.buffer(message)) == bytes(ffi.buffer(ffi.new("struct message *", head)))
    assert lib.channel_unreleased(sender.channel, place) == ffi.NULL
    sender.close()
    receiver.close()


@pytest.mark.parametrize("more", range(-9, 10))
def test_sizes_around_one_record_and_around_the_ring(pair: tuple[End, End], more: int) -> None:
    for body_bytes in (WHOLE_BODY + more, 2 * WHOLE_BODY + HEADER_BYTES + more, DATA_BYTES + more):
        body = random.Random(body_bytes).randbytes(body_bytes)
        pair[0].send(1, body)
        pair[0].publish()
        received = []
        for _ in range(3):
            received += pair[1].receive_all()
            pair[0].backlogged()
        assert received == [(1, body)]


def test_what_overflows_stays_in_order_and_ahead_of_what_is_sent_later(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    for number in range(200):
        sender.send(number, bytes(number))
    sender.publish()
    assert sender.backlogged()
    assert lib.channel_counters(sender.channel).overflow_bytes > 0
    received: list[tuple[int, bytes]] = []
    received += receiver.receive_all()
    assert not sender.send_in_place(200), "the ring has room, but the overflow goes first"
    sender.send(200, bytes(200))
    sender.publish()
    while sender.backlogged():
        received += receiver.receive_all()
    received += receiver.receive_all()
    assert received == [(number, bytes(number)) for number in range(201)]
    assert lib.channel_counters(sender.channel).overflow_bytes == 0
    assert sender.send_in_place(201)


def test_what_is_held_back_stays_so_when_it_moves_from_overflow_to_ring(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    for number in range(10):
        sender.send(number, bytes(900))
    held_from = sender.tail()
    for number in range(10, 20):
        sender.send(number, bytes(900))
    sender.publish(held_from)
    received: list[tuple[int, bytes]] = []
    for _ in range(10):
        received += receiver.receive_all()
        sender.backlogged()
        sender.publish(held_from)
    assert [number for number, _ in received] == list(range(10))
    assert sender.backlogged()
    assert sender.may_sleep(), "the room comes with the publishing of what is held back, and nothing else"
    for _ in range(10):
        sender.publish()
        received += receiver.receive_all()
    assert [number for number, _ in received] == list(range(20))
    assert not sender.backlogged()


def test_publishing_to_an_older_place_takes_nothing_back(pair: tuple[End, End]) -> None:
    older = pair[0].tail()
    pair[0].send(1)
    pair[0].publish()
    assert not pair[0].publish(older)
    assert pair[1].receive() == (1, b"")


def test_publish_says_whether_anything_became_visible(pair: tuple[End, End]) -> None:
    assert not pair[0].publish()
    pair[0].send(1)
    assert pair[0].publish()
    assert not pair[0].publish()


def test_a_message_received_stays_readable_until_the_next(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    sender.send(1, b"x" * 900)
    sender.publish()
    message = lib.channel_receive(receiver.channel)
    for number in range(2, 20):
        sender.send(number, b"y" * 900)
    sender.publish()
    assert bytes(ffi.buffer(message + 1, 900)) == b"x" * 900


def test_epoch_is_that_of_the_rings(pair: tuple[End, End]) -> None:
    assert lib.channel_epoch(pair[0].channel) == 5


def test_a_channel_over_something_else_is_not_opened() -> None:
    ring = create(DATA_BYTES, epoch=1)
    other = os.memfd_create("other")
    for out_fd, in_fd, wake_fd in ((ring, other, -1), (other, ring, -1), (ring, ring, 10_000)):
        assert lib.channel_open(out_fd, in_fd, wake_fd, MOST) == ffi.NULL
    os.close(ring)
    os.close(other)


def test_the_eventfd_may_be_closed_after_opening() -> None:
    rings = [create(DATA_BYTES, epoch=1) for _ in range(2)]
    wake = os.eventfd(0, os.EFD_NONBLOCK)
    passed = os.dup(wake)
    one = End(lib.channel_open(rings[0], rings[1], passed, MOST), os.eventfd(0))
    two = End(lib.channel_open(rings[1], rings[0], -1, MOST), wake)
    os.close(passed)
    assert two.may_sleep()
    one.send(1)
    one.publish()
    assert two.wake_ups() == 1
    for fd in rings:
        os.close(fd)
    one.close()
    two.close()


def test_opening_and_closing_leaves_no_descriptor_and_no_mapping() -> None:
    def count() -> tuple[int, int]:
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        return descriptors, Path("/proc/self/maps").read_text().count("memfd:ring")

    before = count()
    for _ in range(20):
        for end in connect():
            end.send(1, bytes(100_000))
            end.close()
    assert count() == before


# --- Messages not to be believed -----------------------------------------------------------------------------------

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
        ("a whole one in between", [(fragments(bytes(2500))[0], FIRST), (raw_message(2, b""), FIRST | LAST)]),
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


# --- Sleeping, waking, and two full rings --------------------------------------------------------------------------


def test_only_a_sleeper_is_woken_and_only_once(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    sender.send(1)
    sender.publish()
    assert receiver.wake_ups() == 0
    assert not receiver.may_sleep()
    assert len(receiver.receive_all()) == 1
    assert receiver.may_sleep()
    for number in range(3):
        sender.send(number)
        sender.publish()
    assert receiver.wake_ups() == 1
    assert lib.channel_counters(sender.channel).wakes == 1


def test_a_full_eventfd_is_a_wake_up_that_is_there_already(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    os.eventfd_write(receiver.wake_fd, 2**64 - 2)
    assert receiver.may_sleep()
    sender.send(1)
    assert sender.publish()
    assert receiver.wake_ups() == 2**64 - 2


def test_a_backlogged_side_sleeps_until_there_is_room(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    for number in range(10):
        sender.send(number, bytes(900))
    sender.publish()
    assert sender.backlogged()
    assert sender.may_sleep()
    assert receiver.receive() is not None
    assert sender.wake_ups() == 0
    lib.channel_release(receiver.channel)
    assert sender.wake_ups() == 1
    sender.awake()
    assert not sender.may_sleep(), "room has appeared"
    assert sender.backlogged()
    assert sender.may_sleep()


def test_a_side_that_does_not_receive_while_backlogged_is_kept_awake_by_room_only(pair: tuple[End, End]) -> None:
    worker, acceptor = pair
    acceptor.send(1)
    acceptor.publish()
    assert not worker.may_sleep_until_room(), "not backlogged: as any other"
    for number in range(10):
        worker.send(number, bytes(900))
    worker.publish()
    assert worker.backlogged()
    assert not worker.may_sleep()
    assert worker.may_sleep_until_room()
    acceptor.receive_all()
    assert worker.wake_ups() == 1
    assert not worker.may_sleep_until_room()


def test_a_message_larger_than_the_ring_crosses_while_both_sides_sleep_in_between(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    body = random.Random(5).randbytes(50 * DATA_BYTES)
    sender.send(1, body)
    sender.publish()
    assert sender.may_sleep()
    rings = 0
    while not (received := receiver.receive_all()):
        rings += 1
        assert receiver.may_sleep()
        assert sender.wake_ups() == 1, "the receiver has given room back"
        sender.awake()
        if sender.backlogged():
            assert sender.may_sleep()
        assert receiver.wake_ups() == 1, "the sender has filled it again"
        receiver.awake()
    assert received == [(1, body)]
    assert rings == 50


def test_two_full_rings_that_face_each_other_do_not_stand_still(pair: tuple[End, End]) -> None:
    rng = random.Random(6)
    sent: list[list[tuple[int, bytes]]] = [[], []]
    for side, end in enumerate(pair):
        for number in range(60):
            body = rng.randbytes(rng.choice((10, 900, 6000)))
            end.send(number, body)
            sent[side].append((number, body))
        end.publish()
        assert end.backlogged()
    received: list[list[tuple[int, bytes]]] = [[], []]
    for _ in range(200):
        for side, end in enumerate(pair):
            received[1 - side] += end.receive_all()
            end.backlogged()
    assert received == sent


LOST, WRONG = 3, 4  # exit statuses
SLEEP_LIMIT_MS = 5_000
STOP = 2**64 - 1


def sleep_or_exit(end: End) -> None:
    poll = select.poll()
    poll.register(end.wake_fd, select.POLLIN)
    if not poll.poll(SLEEP_LIMIT_MS):
        os._exit(LOST)
    end.wake_ups()


def body_of(number: int) -> bytes:
    return (number % 251).to_bytes(1, "little") * random.Random(number).choice((0, 8, 100, 100, 900, 3000, 9000))


def ask(end: End, seconds: float) -> int:
    """The acceptor's part: many requests at a time, every reply checked. Returns how many."""
    rng = random.Random(1)
    stop_at = time.monotonic() + seconds
    asked = answered = 0
    stopping = False
    while True:
        if not end.backlogged() and not stopping:
            for _ in range(rng.randrange(6)):
                end.send(asked, body_of(asked))
                asked += 1
            if time.monotonic() > stop_at:
                end.send(STOP)
                stopping = True
        for number, body in end.receive_all():
            if number == STOP:
                return answered if answered == asked else os._exit(WRONG)
            if (number, body) != (answered, body_of(answered)):
                os._exit(WRONG)
            answered += 1
        end.publish()
        if (stopping or asked - answered > 20 or rng.random() < 0.1) and asked > answered and end.may_sleep():
            sleep_or_exit(end)
        end.awake()


def answer(end: End) -> None:
    """The worker's part: echoes, holds some replies back for a turn, takes nothing in while it is backlogged."""
    rng = random.Random(2)
    stopping = False
    while not (stopping and not end.backlogged()):
        held_from = end.tail()
        if not end.backlogged():
            while (message := end.receive()) is not None:
                end.send(*message)
                stopping = stopping or message[0] == STOP
            lib.channel_release(end.channel)
        if rng.random() < 0.2:
            end.publish(held_from)
        end.publish()
        if not stopping or end.backlogged():
            if end.may_sleep_until_room():
                sleep_or_exit(end)
            end.awake()
    end.publish()


def test_two_processes_ask_and_answer_through_small_rings_without_loss() -> None:
    one, two = connect()
    report, write_report = os.pipe()
    children = []
    for role in ("ask", "answer"):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(30)
                if role == "ask":
                    os.write(write_report, struct.pack("<QQ", ask(one, 2.0), lib.channel_counters(one.channel).wakes))
                else:
                    answer(two)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert statuses == [0, 0], f"{LOST}: a wake-up was lost, {WRONG}: a reply was wrong"
    answered, wakes = struct.unpack("<QQ", os.read(report, 16))
    assert answered > 1000
    assert wakes > 50, "nobody slept: this was no test of waking"
    for end in (one, two):
        end.close()
    os.close(report)
    os.close(write_report)


def test_what_is_large_is_moved_in_pieces_on_both_sides_and_neither_sleeps_meanwhile() -> None:
    ring, body, most = 16 << 20, bytes(range(256)) * (40 << 12), 64 << 20
    piece = 2 * (ring // 4)  # two fragments, the first of which is a little less than TURN_BYTES
    sender, receiver = connect(ring, most)
    sender.send(1, body)
    sender.send(2, b"behind it")
    sender.publish()
    received, turns = [], 0
    while len(received) < 2:
        before = lib.channel_counters(sender.channel).overflow_bytes
        if sender.backlogged():
            assert before - lib.channel_counters(sender.channel).overflow_bytes <= piece
        if (message := receiver.receive()) is not None:
            received.append(message)
        elif lib.channel_counters(receiver.channel).in_bytes:
            assert not receiver.may_sleep()
            receiver.awake()
        turns += 1
        assert turns < 1000
    assert received == [(1, body), (2, b"behind it")]
    assert turns >= len(body) // piece
    sender.close()
    receiver.close()
