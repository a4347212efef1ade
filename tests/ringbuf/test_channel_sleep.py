"""The ends of a channel sleep and wake each other, though both rings are full."""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import time

from mq_shards.csrc._core import lib

from tests.ringbuf.channel_ends import (
    DATA_BYTES,
    End,
    connect,
)


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


def test_what_is_only_shown_wakes_nobody_until_it_is_asked_to(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    assert receiver.may_sleep()
    sender.send(1)
    assert lib.channel_show(sender.channel)
    assert receiver.wake_ups() == 0
    lib.channel_wake(sender.channel)
    lib.channel_wake(sender.channel)
    assert receiver.wake_ups() == 1
    assert [number for number, _ in receiver.receive_all()] == [1]
    assert receiver.may_sleep()
    lib.channel_wake(sender.channel)
    assert receiver.wake_ups() == 0, "it has had all"


def test_who_is_about_to_sleep_sees_what_is_only_shown(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    sender.send(1)
    assert lib.channel_show(sender.channel)
    assert not receiver.may_sleep()
    assert [number for number, _ in receiver.receive_all()] == [1]


def test_what_finds_no_room_is_published_instead_of_shown(pair: tuple[End, End]) -> None:
    sender, receiver = pair
    assert receiver.may_sleep()
    for number in range(10):
        sender.send(number, bytes(900))
    assert not lib.channel_show(sender.channel)
    assert receiver.wake_ups() == 1


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


def test_a_side_that_does_not_receive_is_kept_awake_by_room_only(pair: tuple[End, End]) -> None:
    worker, acceptor = pair
    acceptor.send(1)
    acceptor.publish()
    assert worker.may_sleep_deaf() and not worker.may_sleep()
    for number in range(10):
        worker.send(number, bytes(900))
    worker.publish()
    assert worker.backlogged()
    assert not worker.may_sleep()
    assert worker.may_sleep_deaf()
    acceptor.receive_all()
    assert worker.wake_ups() == 1
    assert not worker.may_sleep_deaf()


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
        backlogged = end.backlogged()
        if not stopping or backlogged:
            if end.may_sleep_deaf() if backlogged else end.may_sleep():
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
                    os.write(write_report, struct.pack("<QQ", ask(one, 1.0), lib.channel_counters(one.channel).wakes))
                else:
                    answer(two)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert statuses == [0, 0], f"{LOST}: a wake-up was lost, {WRONG}: a reply was wrong"
    answered, wakes = struct.unpack("<QQ", os.read(report, 16))
    assert answered > 500
    assert wakes > 25, "nobody slept: this was no test of waking"
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
