"""Channels against a model, and what is sent and held back (csrc/ringbuf/channel.h)."""

from __future__ import annotations

import os
import random
from collections import deque
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf import create

from tests.ringbuf.channel_ends import (
    DATA_BYTES,
    HEADER_BYTES,
    MOST,
    RECORD_BYTES,
    WHOLE_BODY,
    End,
    connect,
)

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
    max_examples=int(os.environ.get("EXAMPLES", "25")), stateful_step_count=60, deadline=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


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


def test_of_what_was_not_given_back_it_is_told_how_much_was_begun() -> None:
    sender, receiver = connect()
    place = ffi.new("struct channel_place *")

    def left() -> list[tuple[int, int]]:
        place[0], heads = ffi.new("struct channel_place *")[0], []
        while (message := lib.channel_unreleased(sender.channel, place)) != ffi.NULL:
            heads.append((int(message.id), int(place.begun)))
        return heads

    for number in range(1, 5):
        sender.send(number, b"xy"[: number % 3])
    sender.publish()
    stays = [lib.channel_receive(receiver.channel) for _ in range(3)][-1]
    for begun in (0, 2, 7):
        lib.channel_note(receiver.channel, True, begun)
        assert left() == [(3, begun), (4, 0)], "who dies before it gives room back has noted it all the same"
        lib.channel_release_noted(receiver.channel)
        assert left() == [(3, begun), (4, 0)]
        assert stays.id == 3
    lib.channel_note(receiver.channel, False, 0)
    assert left() == [(4, 0)]
    lib.channel_release_noted(receiver.channel)
    assert left() == [(4, 0)]
    lib.channel_note(receiver.channel, True, 9)
    lib.channel_release_noted(receiver.channel)
    assert left() == [(4, 0)], "the last one has been given back"
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


def test_who_outlives_its_peer_finds_what_was_noted_and_not_published(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    sender.send(1)
    sender.publish()
    sender.send(2)
    sender.send(3, b"three")
    lib.channel_note(sender.channel, False, 0)
    sender.send(4)
    assert receiver.receive_all() == [(1, b"")]
    assert lib.channel_take_unpublished(receiver.channel)
    assert receiver.receive_all() == [(2, b""), (3, b"three")]
    assert not lib.channel_take_unpublished(receiver.channel)
    assert receiver.receive_all() == []


def test_what_has_been_growing_since_it_was_noted_is_left_out(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    sender.send(1)
    place = sender.tail()
    message = lib.channel_reserve(sender.channel, 8)
    message.kind, message.slot, message.body_bytes = 1, 2, 8
    lib.channel_sent(sender.channel)
    lib.channel_note(sender.channel, False, 0)
    growing = ffi.new("struct growing *", {"message": message, "place": place, "tail": sender.tail()})
    assert lib.channel_grow(sender.channel, growing, 8) != ffi.NULL
    assert lib.channel_take_unpublished(receiver.channel)
    assert receiver.receive_all() == [(1, b"")]
    assert not lib.channel_broken(receiver.channel)


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


# --- What is lent ----------------------------------------------------------------------------------------------------

LENT = bytes(range(256)) * 32  # twice the ring
OPEN, CLOSE = 1, 2  # csrc/ringbuf/message.h


def test_what_is_lent_is_overtaken_but_by_its_own_connection_and_by_what_follows_a_close(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    sender.lend(1, LENT, conn=1)
    sender.send(2, conn=2)
    sender.send(3, conn=1)
    sender.send(4, conn=3, kind=CLOSE)
    sender.send(5, conn=2)
    came = []
    for _ in range(20):
        sender.publish()
        came += receiver.receive_all()
    assert [number for number, _ in came] == [2, 1, 3, 4, 5]
    assert dict(came)[1] == LENT
    assert sender.given_back == [1]
    sender.send(6, conn=1)
    sender.publish()
    assert receiver.receive_all() == [(6, b"")]


def test_who_has_nothing_there_any_more_overtakes_what_is_lent_though_there_always_is_something(
    pair: tuple[End, End],
) -> None:
    """Two are lent at any time; in the long run the connections of those before, and a CLOSE, keep nobody waiting."""
    sender, receiver = pair
    came: list[int] = []
    sender.lend(0, LENT, conn=100)
    sender.send(999, conn=3, kind=CLOSE)
    for number in range(1, 8):
        sender.lend(number, LENT, conn=100 + number)
        while number - 1 not in came:
            sender.publish()
            came += [what for what, _ in receiver.receive_all()]
        sender.send(1000 + number, conn=100 + number)  # that must wait, ...
        sender.send(2000 + number, conn=100 + number - 3)  # ... and this not for ever
    while 1007 not in came:
        sender.publish()
        came += [what for what, _ in receiver.receive_all()]
    assert sorted(came) == sorted([*range(8), 999, *range(1001, 1008), *range(2001, 2008)])
    for number in range(1, 8):
        assert came.index(number) < came.index(1000 + number)
    for number in (6, 7):
        assert came.index(2000 + number) < came.index(number)


def test_nobody_overtakes_what_binds_a_number_anew_though_its_close_is_through(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    came: list[int] = []
    sender.lend(1, LENT, conn=1)
    sender.send(2, conn=3, kind=CLOSE)
    sender.lend(3, LENT, conn=4)
    sender.send(4, conn=3, kind=OPEN)
    while 2 not in came:
        sender.publish()
        came += [what for what, _ in receiver.receive_all()]
    sender.send(5, conn=2)
    for _ in range(40):
        sender.publish()
        came += [what for what, _ in receiver.receive_all()]
    assert came == [1, 2, 3, 4, 5]


def test_what_is_lent_goes_back_with_its_channel() -> None:
    sender, receiver = connect()
    sender.lend(1, LENT)
    sender.publish()
    sender.close()
    assert sender.given_back == [1]
    receiver.close()


def test_what_is_kept_for_a_full_ring_goes_back_when_nothing_needed_it_for_a_second(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    chunk, second = 64 << 10, 1_000_000_000

    def overflow(messages: int) -> None:
        for number in range(messages):
            sender.send(number, bytes(WHOLE_BODY))
        sender.publish()
        while sender.backlogged():
            receiver.receive_all()
            sender.publish()
        receiver.receive_all()

    now = second
    assert lib.channel_trim(sender.channel, now) == 0
    overflow(500)  # of some 1,000 bytes
    assert lib.channel_trim(sender.channel, now + second - 1) == 0
    assert lib.channel_trim(sender.channel, now + second) == 0, "a second has not passed since they were needed"
    overflow(200)
    freed = lib.channel_trim(sender.channel, now + 2 * second)
    assert 0 < freed <= 6 * chunk
    overflow(200)
    assert lib.channel_trim(sender.channel, now + 3 * second) == 0, "what is needed stays"
    rest = lib.channel_trim(sender.channel, now + 4 * second)
    assert rest % chunk == 0 and 7 * chunk <= freed + rest <= 9 * chunk
    assert lib.channel_trim(sender.channel, now + 5 * second) == 0


def test_who_may_not_let_out_anything_yet_moves_what_was_lent_and_sleeps(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    sender.lend(1, LENT)
    moves = 0
    while not sender.may_sleep():
        assert moves < len(LENT) // 512
        sender.move()
        moves += 1
    assert moves > 0
    sender.awake()
    assert receiver.receive() is None, "it is not to be seen before it is published"
    came = []
    for _ in range(20):
        sender.publish()
        came += receiver.receive_all()
    assert came == [(1, LENT)]
