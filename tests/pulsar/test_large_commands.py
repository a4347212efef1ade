"""A command may have 5 MB. What it has too much of is refused before anything is done with each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
from tests.pulsar.wire import Wire

MANY = 400_000
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
