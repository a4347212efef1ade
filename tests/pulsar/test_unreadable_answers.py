"""A client is answered with an error when an acceptor cannot handle what the gateway says, and so are those who wait
behind it: a real acceptor in this process, at the other end of whose calls the test sits."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import Final

import pytest
from mq_shards.acceptor.engine import COMMAND, Engine, protocol_number
from mq_shards.acceptor.protocol import Broker
from mq_shards.acceptor.protocols.pulsar.messages import Message, decode, encode
from mq_shards.acceptor.protocols.pulsar.serving import PulsarServing
from mq_shards.acceptor.watched import Watched
from mq_shards.csrc._core import lib
from mq_shards.ringbuf.calls import Calls
from mq_shards.supervisor.options.options import default_settings

PULSAR: Final = protocol_number("pulsar")
UNKNOWN_ERROR: Final = 0
TURNS: Final = 1000
PRODUCER: Final = {"topic": "t", "producer_id": 1}
SCHEMA: Final = {"name": "s", "type": 1, "schema_data": b""}
TXN: Final = {"txnid_least_bits": 1, "txnid_most_bits": 0}
# What is asked, its fields, what the gateway is asked, the answer, and how that has the error.
REQUESTS: Final = [
    ("producer", PRODUCER, "open", "error", "error"),
    ("subscribe", {"topic": "t", "subscription": "s", "subType": 0, "consumer_id": 1}, "open", "error", "error"),
    ("lookupTopic", {"topic": "t"}, "lookup", "lookupTopicResponse", "error"),
    ("partitionMetadata", {"topic": "t"}, "partitions", "partitionMetadataResponse", "error"),
    ("getTopicsOfNamespace", {"namespace": "public/default"}, "topics", "error", "error"),
    ("watchTopicList", {"namespace": "public/default", "watcher_id": 1, "topics_pattern": ".*"}, "watch", "error",
     "error"),
    ("getSchema", {"topic": "t"}, "get-schema", "getSchemaResponse", "error_code"),
    ("getOrCreateSchema", {"topic": "t", "schema": SCHEMA}, "put-schema", "getOrCreateSchemaResponse", "error_code"),
    ("newTxn", {"tc_id": 0}, "txn-begin", "newTxnResponse", "error"),
    ("addPartitionToTxn", {"partitions": ["t"], **TXN}, "txn-add", "addPartitionToTxnResponse", "error"),
    ("endTxn", {"txn_action": 0, **TXN}, "txn-end", "endTxnResponse", "error"),
]  # fmt: skip
# To these an answer without fields is one that says yes.
WITHOUT_FIELDS: Final = ("lookup", "txn-add", "txn-end")
UNREADABLE: Final = [(b"{", one) for one in REQUESTS]
UNREADABLE += [(b"{}", one) for one in REQUESTS if one[2] not in WITHOUT_FIELDS]


class Acceptor:
    """With one client."""

    def __init__(self, engine: Engine) -> None:
        self.watched = Watched(), Watched()
        calls, self.gateway = (Calls(watched, time.monotonic_ns) for watched in self.watched)
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        calls.attach(here)
        self.gateway.attach(there)
        self.calls = calls, self.gateway
        self.engine = engine
        self.pulsar = PulsarServing(engine, default_settings()["pulsar"], Broker("0123456789abcdef", 0, calls=calls))
        self.client, theirs = socket.socketpair()
        self.client.setblocking(False)
        self.heard = b""
        engine.adopt(theirs.detach(), PULSAR)
        self.say("connect", client_version="test", protocol_version=21)
        assert self.hear()[0] == "connected"

    def say(self, name: str, **fields: object) -> None:
        self.client.sendall(encode(name, **fields))

    def hear(self) -> tuple[str, Message]:
        """The next command that the client gets."""
        for _ in range(TURNS):
            self.engine.turn(1_000_000)
            for upcall in self.engine.upcalls():
                if upcall.kind == COMMAND:
                    self.pulsar.command(upcall.conn, upcall.line)
            for watched in self.watched:
                watched.run()
            with contextlib.suppress(BlockingIOError):
                self.heard += self.client.recv(1 << 16)
            end = 4 + int.from_bytes(self.heard[:4], "big")
            if 4 < end <= len(self.heard):
                command, self.heard = decode(self.heard[8:end]), self.heard[end:]
                assert command is not None
                return command
        raise AssertionError("the client is not answered")

    def close(self) -> None:
        self.client.close()
        for end, watched in zip(self.calls, self.watched, strict=True):
            end.close()
            watched.close()


@pytest.fixture
def acceptor() -> Iterator[Acceptor]:
    board, wake = os.memfd_create("board"), os.eventfd(0, os.EFD_NONBLOCK)
    assert lib.board_format(board)
    engine = Engine(0, 1, 8, board, wake)
    acceptor = Acceptor(engine)
    yield acceptor
    acceptor.close()
    engine.close()
    os.close(board)
    os.close(wake)


@pytest.mark.parametrize(("said", "request_"), UNREADABLE)
def test_what_an_acceptor_cannot_read_is_an_error_to_the_client(
    acceptor: Acceptor, said: bytes, request_: tuple[str, dict[str, object], str, str, str]
) -> None:
    name, fields, asked, answer, field = request_
    acceptor.gateway.serve(f"pulsar.{asked}", lambda question: question.answer(said))
    for number in (1, 2):  # also when it is asked again
        acceptor.say(name, request_id=number, **fields)
        heard, body = acceptor.hear()
        assert (heard, body.request_id) == (answer, number)
        assert body.HasField(field) and getattr(body, field) == UNKNOWN_ERROR


def test_who_waits_behind_it_is_answered_too(acceptor: Acceptor) -> None:
    acceptor.gateway.serve("pulsar.open", lambda question: question.answer(b"{}"))
    for number in range(3):
        acceptor.say("producer", request_id=number, topic="t", producer_id=number)
    answers = [acceptor.hear() for _ in range(3)]
    assert [(name, body.request_id, body.error) for name, body in answers] == [("error", n, 0) for n in range(3)]
    assert all("open" in body.message for _, body in answers)
