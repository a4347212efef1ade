"""A command may have 5 MB. What it has too much of is refused before anything is done with each."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from mq_shards.acceptor.protocols.pulsar.clients import (
    MAX_CONSUMER_METADATA,
    Message,
    PulsarError,
    metadata_of,
    properties_of,
)
from mq_shards.acceptor.protocols.pulsar.messages import decode, encode
from mq_shards.acceptor.protocols.pulsar.names import MAX_PARTICIPANTS, PulsarNameError, topic_name
from mq_shards.acceptor.protocols.pulsar.topics import schema_fields

from tests.pulsar.servers import running
from tests.pulsar.wire import TIMEOUT_S, Wire
from tests.servers import children, comm_of

MANY = 400_000
SENDERS = 18
ASKERS = 40
ASKED = 250  # of each
PAIRS = [{"key": f"k{n}", "value": ""} for n in range(MANY)]
SCHEMA = {"name": "s", "schema_data": b"", "type": 4}
SUBSCRIBE = {"topic": "t", "subscription": "s", "subType": 1, "consumer_id": 1, "request_id": 1}


@contextmanager
def soon() -> Iterator[None]:
    """It takes less than the processor time of looking at each of so many."""
    began = time.process_time()
    yield
    assert time.process_time() - began < 0.06


def subscribe(**fields: object) -> Message:
    return decode(encode("subscribe", **SUBSCRIBE, **fields)[8:])[1]


@pytest.mark.parametrize("slashes", ["/", "a/", "/a", "//a"])
def test_a_name(slashes: str) -> None:
    text = slashes * 2_000_000
    with soon(), pytest.raises(PulsarNameError) as refused:
        topic_name(text)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("field", "read"),
    [
        ("metadata", lambda body: metadata_of(body, MAX_CONSUMER_METADATA)),
        ("subscription_properties", properties_of),
        ("schema", lambda body: schema_fields(topic_name("t"), body.schema)),
    ],
)
def test_pairs(field: str, read: Callable[[Message], object]) -> None:
    body = subscribe(**{field: SCHEMA | {"properties": PAIRS} if field == "schema" else PAIRS})
    with soon(), pytest.raises(PulsarError):
        read(body)


def test_who_sends_them_is_told() -> None:
    ranges = {"keySharedMode": 1, "hashRanges": [{"start": n % 65536, "end": n % 65536} for n in range(MANY)]}
    names = [f"p{n}" for n in range(MAX_PARTICIPANTS + 1)]
    txn = {"txnid_least_bits": 1, "txnid_most_bits": 0}
    with running() as server, Wire(server.port).connect() as wire:
        refused = wire.ask(
            "subscribe", "error", topic="t", subscription="s", subType=3, consumer_id=1, keySharedMeta=ranges
        )
        assert refused.message == "More than 64 hash ranges"
        answer = wire.ask("addPartitionToTxn", "addPartitionToTxnResponse", partitions=names, **txn)
        assert answer.message == "There is as much in this transaction as there may be"
        both = [{"topic": "t", "subscription": name} for name in names]
        answer = wire.ask("addSubscriptionToTxn", "addSubscriptionToTxnResponse", subscription=both, **txn)
        assert answer.message == "There is as much in this transaction as there may be"


def test_others_are_served_between_two() -> None:
    frame = encode("getOrCreateSchema", request_id=1, topic="t", schema=SCHEMA | {"properties": PAIRS})
    with running() as server, ExitStack() as stack:
        acceptor = next(pid for pid in children(server.process.pid) if comm_of(pid).startswith("mq-acceptor"))
        senders = [stack.enter_context(Wire(server.port).connect()) for _ in range(SENDERS)]
        client = stack.enter_context(Wire(server.port).connect())

        def send(wire: Wire, begin: int = 0) -> None:
            wire.raw(frame[begin:])
            wire.expect("getOrCreateSchemaResponse")

        began = processor_s(acceptor)
        send(senders[0])
        once_s = processor_s(acceptor) - began
        os.kill(acceptor, signal.SIGSTOP)  # so that they all come at once
        sent = [as_much_as_goes(wire, frame) for wire in senders]
        threads = [threading.Thread(target=send, args=both) for both in zip(senders, sent, strict=True)]
        os.kill(acceptor, signal.SIGCONT)
        for thread in threads:
            thread.start()
        longest_s = 0.0
        while any(thread.is_alive() for thread in threads):
            began = processor_s(acceptor)
            client.say("ping")
            client.expect("pong")
            longest_s = max(longest_s, processor_s(acceptor) - began)
        assert longest_s < SENDERS / 3 * once_s


def test_who_asks_for_little_does_not_wait_for_all_that_others_have_asked_for() -> None:
    """Of each Python takes some at a time."""
    with running() as server, ExitStack() as stack:
        acceptor = next(pid for pid in children(server.process.pid) if comm_of(pid).startswith("mq-acceptor"))
        others = [stack.enter_context(Wire(server.port).connect()) for _ in range(ASKERS)]
        client = stack.enter_context(Wire(server.port).connect())
        os.kill(acceptor, signal.SIGSTOP)  # so that they all come at once
        for wire in others:
            wire.raw(b"".join(encode("getLastMessageId", request_id=n, consumer_id=1) for n in range(ASKED)))
        client.say("getLastMessageId", request_id=1, consumer_id=1)
        began = processor_s(acceptor)
        os.kill(acceptor, signal.SIGCONT)
        client.expect("error")
        waited_s = processor_s(acceptor) - began
        for wire in others:
            for _ in range(ASKED):
                wire.expect("error")
        assert waited_s < (processor_s(acceptor) - began) / 3


def as_much_as_goes(wire: Wire, data: bytes) -> int:
    """Sends without waiting for the other side. Returns how many bytes have gone."""
    sent = 0
    wire.socket.setblocking(False)
    with suppress(BlockingIOError):
        while sent < len(data):
            sent += wire.socket.send(data[sent : sent + (64 << 10)])
    wire.socket.settimeout(TIMEOUT_S)
    return sent


def processor_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


@pytest.mark.parametrize(("count", "error"), [(1000, 0), (1001, 22)])
def test_ids_of_an_acknowledgement_of_what_was_not_delivered(count: int, error: int) -> None:
    with running() as server, Wire(server.port).connect() as wire:
        wire.subscribe("t")
        wire.producer("t", 2)
        wire.send(b"x", 2)
        sent = wire.expect("send_receipt").message_id
        ids = [{"ledgerId": sent.ledgerId, "entryId": sent.entryId}] * count
        assert wire.ack(*ids, cumulative=True).error == error
