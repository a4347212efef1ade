"""Partitioned topics, terminated topics and who is connected: the binary protocol beside the REST API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import MAX, Wire

pulsar = pytest.importorskip("pulsar")

TERMINATED = 15


@pytest.fixture(scope="module")
def both() -> Iterator[PulsarServer]:
    with running(workers=2, acceptors=2) as server:
        yield server


def rest(server: PulsarServer, method: str, path: str, body: object = None) -> object:
    url = f"http://{server.http}/admin/v2/persistent/public/default/{path}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = answer.read()
    return json.loads(found) if found else None


def test_a_partitioned_topic_is_produced_to_and_consumed_as_one(both: PulsarServer, topic: str) -> None:
    rest(both, "PUT", f"{topic}/partitions", 4)
    client = pulsar.Client(both.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "s")
        for i in range(100):
            producer.send(str(i).encode(), partition_key=f"k{i % 10}")
        by_key: dict[int, list[int]] = {}
        partitions = set()
        for _ in range(100):
            message = consumer.receive(8000)
            by_key.setdefault(int(message.data()) % 10, []).append(int(message.data()))
            partitions.add(message.message_id().partition())
            consumer.acknowledge(message)
        assert all(found == sorted(found) and len(found) == 10 for found in by_key.values())
        assert len(partitions) > 1
        with Wire(both.port) as wire:
            wire.connect()
            refused = wire.ask("producer", "error", topic=f"{topic}-partition-4", producer_id=1)
            assert refused.error == 11
    finally:
        client.close()


def test_a_reader_of_a_partitioned_topic_reads_the_partitions_that_come(both: PulsarServer, topic: str) -> None:
    """Each partition that comes has the durable subscriptions of the others; a reader's it has from the reader."""
    rest(both, "PUT", f"{topic}/partitions", 1)
    with Wire(both.port) as wire:
        wire.connect().subscribe(f"{topic}-partition-0", "reader", durable=False)
        wire.subscribe(f"{topic}-partition-0", "kept", consumer=2)
        rest(both, "POST", f"{topic}/partitions", 2)
        assert rest(both, "GET", f"{topic}-partition-1/subscriptions") == ["kept"]
        wire.subscribe(f"{topic}-partition-1", "reader", consumer=3, durable=False)


def test_a_subscription_that_some_partitions_have_is_made_in_the_others(both: PulsarServer, topic: str) -> None:
    """So a request that was cut short may be made again. It is a conflict where all have it, as at a real broker."""
    rest(both, "PUT", f"{topic}/partitions", 3)
    rest(both, "PUT", f"{topic}-partition-1/subscription/s")
    rest(both, "PUT", f"{topic}/subscription/s")
    assert [rest(both, "GET", f"{topic}-partition-{i}/subscriptions") for i in range(3)] == [["s"]] * 3
    with pytest.raises(urllib.error.HTTPError, match="409"):
        rest(both, "PUT", f"{topic}/subscription/s")


def test_who_is_connected_is_in_the_statistics(both: PulsarServer, topic: str) -> None:
    with Wire(both.port) as wire:
        wire.connect().producer(topic, producer_name="mine")
        wire.subscribe(topic, kind=1, consumer_name="c")
        wire.send(b"m")
        wire.expect("send_receipt")
        found = rest(both, "GET", f"{topic}/stats")
        assert [publisher["producerName"] for publisher in found["publishers"]] == ["mine"]
        assert [each["consumerName"] for each in found["subscriptions"]["s"]["consumers"]] == ["c"]


def test_a_terminated_topic_takes_nothing_and_ends_for_its_consumers(both: PulsarServer, topic: str) -> None:
    with Wire(both.port) as wire:
        wire.connect().producer(topic)
        wire.subscribe(topic)
        wire.flow(10)
        wire.send(b"last")
        message = wire.message().body.message_id
        rest(both, "POST", f"{topic}/terminate")
        closed = wire.expect("close_producer")
        assert (closed.producer_id, closed.request_id) == (1, MAX)
        assert wire.ask("producer", "error", topic=topic, producer_id=2).error == TERMINATED
        wire.ack({"ledgerId": message.ledgerId, "entryId": message.entryId})
        assert wire.expect("reachedEndOfTopic").consumer_id == 1


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_who_comes_back_to_a_subscription_that_has_ended_is_not_told_again(
    both: PulsarServer, topic: str, kind: int
) -> None:
    """Clients in C++ close their connection when they are told, and come back at once."""
    with Wire(both.port) as wire:
        wire.connect().producer(topic)
        wire.subscribe(topic, "s", kind, consumer=2)
        wire.flow(10, 2)
        wire.send(b"last")
        last = wire.message(2).body.message_id
        rest(both, "POST", f"{topic}/terminate")
        wire.ack({"ledgerId": last.ledgerId, "entryId": last.entryId}, consumer=2)
        assert wire.expect("reachedEndOfTopic").consumer_id == 2
        wire.ask("close_consumer", consumer_id=2)
        wire.subscribe(topic, "s", kind, consumer=3)
        wire.flow(10, 3)
        wire.subscribe(topic, "another", kind, consumer=4)
        assert wire.expect("reachedEndOfTopic").consumer_id == 4
        wire.quiet()
        assert not wire.pending("reachedEndOfTopic")
