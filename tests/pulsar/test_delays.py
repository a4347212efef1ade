"""Delayed messages. Those with one time of delivery come in the order in which they were sent: of chunks a consumer can
make a message only then."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.pulsar.test_transactions import begin, end, ids, join
from tests.pulsar.wire import Wire, entry_of, metadata, send_frame

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
EARLIEST = 1
COUNT = 30


@pytest.mark.parametrize("chunked", [False, True])
def test_what_is_to_be_delivered_at_one_time_comes_in_the_order_in_which_it_was_sent(
    wire: Wire, topic: str, chunked: bool
) -> None:
    wire.producer(topic)
    wire.subscribe(topic, kind=SHARED)
    wire.flow(COUNT)
    at_ms = int(time.time() * 1000) + 1000
    for number in range(COUNT):
        of_chunk = {"uuid": "u", "chunk_id": number, "num_chunks_from_msg": COUNT, "total_chunk_msg_size": COUNT}
        head = metadata(sequence_id=number, deliver_at_time=at_ms, **(of_chunk if chunked else {}))
        wire.raw(send_frame(1, number, entry_of(head, b"x"), is_chunk=chunked))
        wire.expect("send_receipt")
        time.sleep(0.0007 * (number % 5))  # so that their times of arrival do not differ by whole ms
    places = [frame.body.message_id.entryId for frame in wire.messages(COUNT)]
    assert time.time() * 1000 >= at_ms
    assert all(before < after for before, after in itertools.pairwise(places)), places


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
def test_one_that_is_there_before_its_subscription_waits_where_consumers_share(
    wire: Wire, topic: str, kind: int
) -> None:
    """To one consumer of all it comes in its order."""
    wire.producer(topic)
    at_ms = int(time.time() * 1000) + 600
    for number, fields in enumerate([{}, {"deliver_at_time": at_ms}, {}]):
        wire.raw(send_frame(1, number, entry_of(metadata(sequence_id=number, **fields), b"x")))
        wire.expect("send_receipt")
    wire.subscribe(topic, kind=kind, initialPosition=EARLIEST)
    wire.flow(COUNT)
    places = [frame.body.message_id.entryId for frame in wire.messages(3)]
    waits = kind in (SHARED, KEY_SHARED)
    assert places == ([0, 2, 1] if waits else [0, 1, 2])
    assert (time.time() * 1000 >= at_ms) >= waits


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
def test_one_that_comes_to_a_consumer_waits_where_consumers_share(
    wire: Wire, topic: str, kind: int, in_transaction: bool
) -> None:
    wire.producer(topic)
    wire.subscribe(topic, kind=kind)
    wire.flow(COUNT)
    txn = begin(wire) if in_transaction else 0
    of_txn = ids(txn) if in_transaction else {}
    if in_transaction:
        join(wire, txn, topic)
    at_ms = int(time.time() * 1000) + 600
    for number, fields in enumerate([{}, {"deliver_at_time": at_ms}, {}]):
        head = metadata(sequence_id=number, **fields, **of_txn)
        wire.raw(send_frame(1, number, entry_of(head, b"x"), **of_txn))
        wire.expect("send_receipt")
    if in_transaction:
        assert end(wire, txn) == 0
    places = [frame.body.message_id.entryId for frame in wire.messages(3)]
    waits = kind in (SHARED, KEY_SHARED)
    assert places == ([0, 2, 1] if waits else [0, 1, 2])
    assert (time.time() * 1000 >= at_ms) >= waits
