"""A worker that sleeps is not woken at once for an acknowledgement that nobody asked an answer for: an acceptor in this
process, at the other end of whose rings the test sits."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from mq_shards.acceptor.engine import Engine, protocol_number
from mq_shards.acceptor.protocols.pulsar.messages import encode
from mq_shards.csrc._core import ffi, lib
from mq_shards.csrc.structs import packed
from mq_shards.ringbuf.ring import create

SECOND = 1_000_000_000
LEDGER = 7


class Subscribed:
    """An acceptor with a client that has a consumer, and the worker's side of their channel."""

    def __init__(self) -> None:
        self.board, self.wake, self.worker_wake = (
            os.memfd_create("board"), os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0, os.EFD_NONBLOCK),
        )  # fmt: skip
        assert lib.board_format(self.board)
        self.engine = Engine(0, 1, 1, self.board, self.wake)
        requests, replies = create(1 << 20, 1), create(1 << 20, 1)
        self.channel = lib.channel_open(replies, requests, self.wake, 1 << 30)
        self.engine.peer(0, requests, replies, self.worker_wake)
        os.close(requests)
        os.close(replies)
        self.client, theirs = socket.socketpair()
        self.conn = self.engine.adopt(theirs.detach(), protocol_number("pulsar"))
        self.engine.call(self.conn, "connected")
        self.now = SECOND

    def subscribe(self, most_unacked: int = 0) -> None:
        wish = packed("consumer_wish", shared=1, most_unacked=most_unacked)
        assert self.engine.call(self.conn, "add-consumer", 1, wish + b"t")
        self.engine.call(self.conn, "open-consumer", 1, LEDGER.to_bytes(8, "little"))
        self.turn()
        self.take()
        assert lib.channel_may_sleep(self.channel)

    def turn(self, after_ns: int = 0) -> None:
        self.now += after_ns
        self.engine.turn(self.now)

    def take(self) -> list[int]:
        kinds = []
        while (message := lib.channel_receive(self.channel)) != ffi.NULL:
            kinds.append(int(message.kind))
        lib.channel_release(self.channel)
        return kinds

    def ack(self, entry: int, **fields: object) -> None:
        ids = [{"ledgerId": LEDGER, "entryId": entry}]
        self.client.sendall(encode("ack", consumer_id=1, ack_type=0, message_id=ids, **fields))
        self.turn()

    def is_woken(self) -> bool:
        try:
            return os.eventfd_read(self.worker_wake) > 0
        except BlockingIOError:
            return False

    def close(self) -> None:
        self.client.close()
        self.engine.close()
        lib.channel_close(self.channel)
        for fd in (self.board, self.wake, self.worker_wake):
            os.close(fd)


@pytest.fixture
def subscribed() -> Iterator[Subscribed]:
    one = Subscribed()
    yield one
    one.close()


def test_a_worker_that_sleeps_hears_of_an_acknowledgement_a_little_later(subscribed: Subscribed) -> None:
    subscribed.subscribe()
    subscribed.is_woken()
    subscribed.ack(1)
    subscribed.turn()
    assert not subscribed.is_woken()
    subscribed.turn(SECOND)
    assert subscribed.is_woken()
    assert subscribed.take() == [lib.MSG_FINISH]


def test_a_worker_that_is_awake_finds_an_acknowledgement_at_once_and_is_not_woken_for_it(
    subscribed: Subscribed,
) -> None:
    subscribed.subscribe()
    subscribed.is_woken()
    subscribed.ack(1)
    assert subscribed.take() == [lib.MSG_FINISH]
    assert lib.channel_may_sleep(subscribed.channel)
    subscribed.turn(SECOND)
    assert not subscribed.is_woken()


def test_what_else_is_sent_wakes_for_an_acknowledgement_too(subscribed: Subscribed) -> None:
    subscribed.subscribe()
    subscribed.is_woken()
    subscribed.ack(1)
    subscribed.client.sendall(encode("flow", consumer_id=1, messagePermits=1))
    subscribed.turn()
    assert subscribed.is_woken()
    assert subscribed.take() == [lib.MSG_FINISH, lib.MSG_CREDIT]


def test_who_may_have_few_messages_unacknowledged_does_not_wait(subscribed: Subscribed) -> None:
    subscribed.subscribe(most_unacked=10)
    subscribed.is_woken()
    subscribed.ack(1)
    assert subscribed.is_woken()


def test_an_acknowledgement_that_is_to_be_answered_wakes_at_once(subscribed: Subscribed) -> None:
    subscribed.subscribe()
    subscribed.is_woken()
    subscribed.ack(1, request_id=5)
    assert subscribed.is_woken()
