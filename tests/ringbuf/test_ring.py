"""The ring against a model, against damage, and between two processes. The contract is in csrc/ringbuf/ring.h."""

from __future__ import annotations

import mmap
import os
import random
import select
import signal
import struct
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf import Consumer, Producer, Record, RingError, create

from perf.ring import build

DATA_BYTES = 4096
# Where csrc/ringbuf/ring.h draws them.
TAIL, HEAD, CONSUMER_ASLEEP, PRODUCER_WAITING, DATA = 128, 256, 384, 512, 4096


def record_bytes(payload_bytes: int) -> int:
    return 8 + (payload_bytes + 7) // 8 * 8


@pytest.fixture
def ring() -> Iterator[int]:
    fd = create(DATA_BYTES, epoch=7)
    yield fd
    os.close(fd)


@pytest.fixture
def eventfd() -> Iterator[int]:
    fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    yield fd
    os.close(fd)


def wake_ups(eventfd: int) -> int:
    try:
        return os.eventfd_read(eventfd)
    except BlockingIOError:
        return 0


def overwrite(fd: int, offset: int, data: bytes) -> None:
    with mmap.mmap(fd, os.fstat(fd).st_size) as memory:
        memory[offset : offset + len(data)] = data


def read_u64(fd: int, offset: int) -> int:
    return int(struct.unpack("<Q", os.pread(fd, 8, offset))[0])


# --- Against a model -----------------------------------------------------------------------------------------------


class RingModel(RuleBasedStateMachine):
    """The ring is a deque of records of which some are not visible yet, and a count of bytes not given back."""

    def __init__(self) -> None:
        super().__init__()
        fd = create(DATA_BYTES, epoch=1)
        self.producer, self.consumer = Producer(fd), Consumer(fd)
        os.close(fd)
        self.hidden: deque[tuple[int, Record]] = deque()  # with the tail behind each
        self.visible: deque[Record] = deque()
        self.tail = self.consumed = self.released = 0
        self.count = 0

    @rule(payload_bytes=st.one_of(st.integers(0, 64), st.integers(0, 1016)), flags=st.integers(0, 2**32 - 1))
    def produce(self, payload_bytes: int, flags: int) -> None:
        self.count += 1
        payload = random.Random(self.count).randbytes(payload_bytes)
        fits = self.tail + record_bytes(payload_bytes) - self.released <= DATA_BYTES
        assert self.producer.produce(payload, flags) is fits
        if fits:
            self.tail += record_bytes(payload_bytes)
            self.hidden.append((self.tail, Record(payload, flags)))

    @rule()
    def publish(self) -> None:
        assert self.producer.publish() is bool(self.hidden)
        self.visible.extend(record for _, record in self.hidden)
        self.hidden.clear()

    @precondition(lambda self: self.hidden)
    @rule(data=st.data())
    def publish_some(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.hidden)))
        published = [self.hidden.popleft() for _ in range(count)]
        assert self.producer.publish(published[-1][0])
        self.visible.extend(record for _, record in published)

    @rule(most=st.integers(1, 20))
    def consume(self, most: int) -> None:
        for _ in range(most):
            expected = self.visible.popleft() if self.visible else None
            assert self.consumer.consume() == expected
            if expected is None:
                break
            self.consumed += record_bytes(len(expected.payload))

    @rule()
    def release(self) -> None:
        assert self.consumer.release() is (self.consumed != self.released)
        self.released = self.consumed

    @rule()
    def sleep_consumer(self) -> None:
        assert self.consumer.may_sleep() is not bool(self.visible)
        self.consumer.awake()

    @invariant()
    def nothing_broke(self) -> None:
        assert self.producer.tail == self.tail
        assert not self.producer.broken
        assert not self.consumer.broken

    def teardown(self) -> None:
        self.producer.close()
        self.consumer.close()


TestRingModel = RingModel.TestCase
TestRingModel.settings = settings(
    max_examples=int(os.environ.get("EXAMPLES", "25")), stateful_step_count=80, deadline=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def test_records_of_every_size_at_every_offset_come_through(ring: int) -> None:
    rng = random.Random(3)
    with Producer(ring) as producer, Consumer(ring) as consumer:
        for _ in range(20_000):
            payload = rng.randbytes(rng.randrange(producer.max_payload + 1))
            assert producer.produce(payload)
            producer.publish()
            assert consumer.consume() == Record(payload, 0)
            consumer.release()
        assert producer.tail > 1000 * DATA_BYTES


def test_a_payload_larger_than_a_quarter_is_refused(ring: int) -> None:
    with Producer(ring) as producer:
        assert producer.max_payload == DATA_BYTES // 4 - 8
        with pytest.raises(ValueError, match="at most 1016"):
            producer.produce(bytes(producer.max_payload + 1))


def test_four_largest_records_fill_the_ring_exactly(ring: int) -> None:
    with Producer(ring) as producer, Consumer(ring) as consumer:
        assert [producer.produce(bytes(producer.max_payload)) for _ in range(5)] == [True] * 4 + [False]
        assert not producer.produce(b"")
        producer.publish()
        assert consumer.consume() is not None
        assert not producer.produce(b""), "room comes with the release, not before"
        consumer.release()
        assert producer.produce(b"")


# --- Formatting and mapping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_bytes", [0, 2048, 4095, 4097, 12288, (1 << 30) + 4096, 1 << 31, 1 << 63])
def test_a_size_that_is_no_power_of_two_within_the_limits_is_refused(data_bytes: int) -> None:
    with pytest.raises(RingError):
        create(data_bytes, epoch=1)


def test_epoch_reaches_both_halves() -> None:
    fd = create(DATA_BYTES, epoch=2**64 - 1)
    with Producer(fd) as producer, Consumer(fd) as consumer:
        assert producer.epoch == consumer.epoch == 2**64 - 1
    os.close(fd)


@pytest.mark.parametrize("half", [Producer, Consumer])
@pytest.mark.parametrize("offset", range(40))
def test_a_header_with_one_wrong_byte_is_not_mapped(ring: int, half: Callable[[int], object], offset: int) -> None:
    overwrite(ring, offset, bytes([os.pread(ring, 1, offset)[0] ^ 0x10]))
    with pytest.raises(RingError):
        half(ring)


@pytest.mark.parametrize("half", [Producer, Consumer])
@pytest.mark.parametrize(("head", "tail"), [(8, 0), (0, DATA_BYTES + 8), (0, 4), (4, 8), (2**64 - 8, DATA_BYTES)])
def test_impossible_indexes_are_not_mapped(ring: int, half: Callable[[int], object], head: int, tail: int) -> None:
    overwrite(ring, HEAD, struct.pack("<Q", head))
    overwrite(ring, TAIL, struct.pack("<Q", tail))
    with pytest.raises(RingError):
        half(ring)


@pytest.mark.parametrize("bytes_there", [0, 100, 4096, DATA + DATA_BYTES - 1, DATA + DATA_BYTES + 4096])
def test_a_file_of_another_size_is_not_mapped(ring: int, bytes_there: int) -> None:
    fd = os.memfd_create("copy")
    os.write(fd, os.pread(ring, DATA + DATA_BYTES, 0))
    with Producer(fd):
        pass
    os.truncate(fd, bytes_there)
    with pytest.raises(RingError):
        Producer(fd)
    os.close(fd)


def test_a_ring_cannot_be_truncated_under_those_who_map_it(ring: int) -> None:
    with pytest.raises(PermissionError):
        os.truncate(ring, 4096)


# --- A side that has gone wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize("claimed", [9, 16, 1016, DATA_BYTES, 2**31, 2**32 - 1])
def test_a_record_longer_than_what_was_published_breaks_the_consumer(ring: int, claimed: int) -> None:
    with Producer(ring) as producer, Consumer(ring) as consumer:
        producer.produce(b"good")
        producer.produce(b"8 bytes.")
        producer.publish()
        overwrite(ring, DATA + 16, struct.pack("<I", claimed))
        assert consumer.consume() == Record(b"good", 0)
        assert consumer.consume() is None
        assert consumer.broken
        producer.produce(b"later")
        producer.publish()
        assert consumer.consume() is None
        assert consumer.may_sleep(), "a broken ring keeps nobody awake"


@pytest.mark.parametrize("tail", [0, 8, 20, 16 + DATA_BYTES + 8, 2**64 - 8])
def test_a_tail_that_is_not_possible_breaks_the_consumer(ring: int, tail: int) -> None:
    with Producer(ring) as producer, Consumer(ring) as consumer:
        producer.produce(b"8 bytes.")
        producer.publish()
        assert consumer.consume() is not None
        consumer.release()
        overwrite(ring, TAIL, struct.pack("<Q", tail))
        assert consumer.consume() is None
        assert consumer.broken


def test_a_tail_that_goes_back_behind_what_was_consumed_breaks_the_consumer(ring: int) -> None:
    with Producer(ring) as producer, Consumer(ring) as consumer:
        for _ in range(2):
            producer.produce(b"8 bytes.")
        producer.publish()
        assert consumer.consume() == consumer.consume() == Record(b"8 bytes.", 0)
        overwrite(ring, TAIL, struct.pack("<Q", 16))
        assert consumer.consume() is None
        assert consumer.broken


@pytest.mark.parametrize("head", [0, 1016, 1028, 2056, 4096 + 8, 2**64 - 1024])
def test_a_head_that_is_not_possible_breaks_the_producer(ring: int, head: int) -> None:
    with Producer(ring) as producer, Consumer(ring) as consumer:
        for _ in range(4):
            assert producer.produce(bytes(1016))
        producer.publish(2048)
        assert consumer.consume() is not None
        consumer.release()
        assert producer.produce(b"")
        assert not producer.produce(bytes(1016))
        overwrite(ring, HEAD, struct.pack("<Q", head))
        with pytest.raises(RingError):
            producer.produce(bytes(1016))
        assert producer.broken


def test_a_producer_killed_while_it_writes_has_published_nothing_of_it(ring: int) -> None:
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        producer = Producer(ring)
        producer.produce(b"whole")
        producer.publish()
        producer.produce(b"committed, not published")
        ffi.memmove(lib.ring_reserve(producer._half, 500), b"half", 4)
        os.write(tell, b"!")
        signal.pause()
        os._exit(1)
    assert os.read(ready, 1) == b"!"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ready)
    os.close(tell)
    with Consumer(ring) as consumer:
        assert consumer.consume() == Record(b"whole", 0)
        assert consumer.consume() is None
        assert not consumer.broken
        with Producer(ring) as successor:
            successor.produce(b"from its successor")
            successor.publish()
            assert consumer.consume() == Record(b"from its successor", 0)


def test_a_consumer_that_takes_over_finds_what_was_not_released(ring: int) -> None:
    with Producer(ring) as producer:
        for payload in (b"released", b"consumed", b"unread"):
            producer.produce(payload)
        producer.publish()
        with Consumer(ring) as first:
            first.consume()
            first.release()
            first.consume()
        with Consumer(ring) as second:
            assert second.consume() == Record(b"consumed", 0)
            assert second.consume() == Record(b"unread", 0)


# --- Sleeping and waking -------------------------------------------------------------------------------------------


def test_a_consumer_that_is_awake_is_not_woken(ring: int, eventfd: int) -> None:
    with Producer(ring, eventfd) as producer, Consumer(ring) as consumer:
        for _ in range(10):
            producer.produce(b"x")
            producer.publish()
        assert consumer.consume() is not None
        assert wake_ups(eventfd) == producer.wakes == 0


def test_a_sleeping_consumer_is_woken_once(ring: int, eventfd: int) -> None:
    with Producer(ring, eventfd) as producer, Consumer(ring) as consumer:
        assert consumer.may_sleep()
        producer.produce(b"x")
        assert wake_ups(eventfd) == 0, "nothing is visible yet"
        producer.publish()
        assert wake_ups(eventfd) == 1
        producer.produce(b"y")
        producer.publish()
        assert wake_ups(eventfd) == 0, "the wake-up is on its way already"
        consumer.awake()
        assert not consumer.may_sleep()
        producer.produce(b"z")
        producer.publish()
        assert wake_ups(eventfd) == 0, "a refused sleep leaves nothing said"
        assert producer.wakes == 1


def test_a_publish_of_nothing_new_wakes_nobody(ring: int, eventfd: int) -> None:
    with Producer(ring, eventfd) as producer, Consumer(ring) as consumer:
        assert consumer.may_sleep()
        assert not producer.publish()
        producer.produce(b"held back")
        assert not producer.publish(0)
        assert wake_ups(eventfd) == 0


def test_a_waiting_producer_is_woken_once_when_room_is_given_back(ring: int, eventfd: int) -> None:
    with Producer(ring) as producer, Consumer(ring, eventfd) as consumer:
        while producer.produce(bytes(1016)):
            pass
        producer.publish()
        assert producer.may_sleep()
        consumer.consume()
        assert wake_ups(eventfd) == 0
        consumer.release()
        assert wake_ups(eventfd) == 1
        consumer.consume()
        consumer.release()
        assert wake_ups(eventfd) == 0
        producer.awake()
        assert not producer.may_sleep(), "there is room that it has not seen"
        consumer.consume()
        consumer.release()
        assert wake_ups(eventfd) == 0, "a refused sleep leaves nothing said"


def test_a_flag_left_by_one_that_died_asleep_is_cleared_by_its_successor(ring: int) -> None:
    with Consumer(ring) as consumer:
        assert consumer.may_sleep()
        assert os.pread(ring, 4, CONSUMER_ASLEEP) == b"\1\0\0\0"
    with Consumer(ring), Producer(ring) as producer:
        assert os.pread(ring, 4, CONSUMER_ASLEEP) == bytes(4)
        assert producer.may_sleep()
        assert os.pread(ring, 4, PRODUCER_WAITING) == b"\1\0\0\0"
    with Producer(ring):
        assert os.pread(ring, 4, PRODUCER_WAITING) == bytes(4)


LOST = 3  # exit status: slept for longer than anything here takes
WRONG = 4  # exit status: read what was not written
SLEEP_LIMIT_MS = 5_000
LAST = 1


def sleep_or_exit(eventfd: int) -> None:
    poll = select.poll()
    poll.register(eventfd, select.POLLIN)
    if not poll.poll(SLEEP_LIMIT_MS):
        os._exit(LOST)
    wake_ups(eventfd)


def stress_payload(rng: random.Random, number: int) -> bytes:
    return number.to_bytes(8, "little") + (number % 251).to_bytes(1, "little") * rng.choice((0, 1, 7, 100, 700))


def pause_at_times(rng: random.Random) -> None:
    dice = rng.random()
    if dice < 0.001:
        time.sleep(rng.random() * 0.0005)
    elif dice < 0.3:
        for _ in range(int(dice * 300)):
            pass


def stress_producer(ring: int, own_wake: int, peer_wake: int, seconds: float) -> None:
    producer = Producer(ring, peer_wake)
    payloads, pauses = random.Random(1), random.Random(2)
    end = time.monotonic() + seconds
    number = 0
    while True:
        last = number % 64 == 0 and time.monotonic() > end
        payload = stress_payload(payloads, number)
        while not producer.produce(payload, LAST if last else 0):
            producer.publish()
            if producer.may_sleep():
                sleep_or_exit(own_wake)
            producer.awake()
        number += 1
        if last or pauses.random() < 0.4:
            producer.publish()
            pause_at_times(pauses)
        if last:
            break


def stress_consumer(ring: int, own_wake: int, peer_wake: int) -> tuple[int, int]:
    """How many records came and how often it slept."""
    consumer = Consumer(ring, peer_wake)
    payloads, pauses = random.Random(1), random.Random(4)
    number = sleeps = 0
    while True:
        record = consumer.consume()
        if record is None:
            if consumer.broken:
                os._exit(WRONG)
            consumer.release()
            if consumer.may_sleep():
                sleeps += 1
                sleep_or_exit(own_wake)
            consumer.awake()
            continue
        if record.payload != stress_payload(payloads, number):
            os._exit(WRONG)
        number += 1
        if record.flags == LAST:
            consumer.release()
            return number, sleeps
        if pauses.random() < 0.4:
            consumer.release()
            pause_at_times(pauses)


def test_no_wake_up_is_lost_and_no_record_changed_between_two_processes() -> None:
    ring = create(DATA_BYTES, epoch=1)
    producer_wake, consumer_wake = os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0, os.EFD_NONBLOCK)
    report, write_report = os.pipe()
    children = []
    for role in ("producer", "consumer"):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(30)
                if role == "producer":
                    stress_producer(ring, producer_wake, consumer_wake, seconds=0.7)
                else:
                    os.write(write_report, struct.pack("<QQ", *stress_consumer(ring, consumer_wake, producer_wake)))
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert statuses == [0, 0], f"{LOST}: a wake-up was lost, {WRONG}: a record was wrong"
    records, sleeps = struct.unpack("<QQ", os.read(report, 16))
    assert records > 5000
    assert sleeps > 50, "it hardly slept: this was no test of waking"
    assert read_u64(ring, HEAD) == read_u64(ring, TAIL)
    for fd in (ring, producer_wake, consumer_wake, report, write_report):
        os.close(fd)


def test_no_wake_up_is_lost_at_full_speed(tmp_path: Path) -> None:
    """In C, where the two sides meet within nanoseconds: without either of the two fences in ring.c it fails."""
    command = [str(build(tmp_path)), "504", str(DATA_BYTES), "2000000", "sleep", "8"]
    hammer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert hammer.returncode == 0, f"{LOST}: a wake-up was lost, {WRONG}: a record was wrong"
    assert int(hammer.stdout.split()[3]) > 500, "it hardly slept: this was no test of waking"
