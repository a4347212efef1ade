"""The official client of C++, by its Python binding, in scenes that every client has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.pulsar.servers import PulsarServer, running

pulsar = pytest.importorskip("pulsar")

TYPES = ["Exclusive", "Shared", "Failover", "KeyShared"]
LONG_MS, SHORT_MS = 8000, 150


@contextlib.contextmanager
def client_of(server: PulsarServer) -> Iterator[object]:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.url, operation_timeout_seconds=10, logger=logger)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture(scope="module", params=[1, 2], ids=["1 acceptor", "2 acceptors"])
def shaped(request: pytest.FixtureRequest) -> Iterator[PulsarServer]:
    with running(workers=2, acceptors=request.param) as server:
        yield server


def is_empty(consumer: object) -> bool:
    try:
        consumer.receive(SHORT_MS)  # type: ignore[attr-defined]
    except pulsar.Timeout:
        return True
    return False


@pytest.mark.parametrize("kind", TYPES)
def test_what_is_sent_is_received_and_acknowledged(shaped: PulsarServer, topic: str, kind: str) -> None:
    with client_of(shaped) as client:
        producer = client.create_producer(topic)
        wanted = getattr(pulsar.ConsumerType, kind)
        consumer = client.subscribe(topic, "sub", consumer_type=wanted)
        ids = [producer.send(f"m{i}".encode(), properties={"n": str(i)}, partition_key="k") for i in range(10)]
        for i in range(10):
            message = consumer.receive(LONG_MS)
            assert (message.data(), message.properties()) == (f"m{i}".encode(), {"n": str(i)})
            assert str(message.message_id()) == str(ids[i])
            consumer.acknowledge(message)
        consumer.close()
        producer.close()
        consumer = client.subscribe(topic, "sub", consumer_type=wanted)
        assert is_empty(consumer)
        consumer.unsubscribe()


def test_a_batch_is_one_entry_whose_messages_are_acknowledged_one_by_one(server: PulsarServer, topic: str) -> None:
    shared = {"batch_index_ack_enabled": True, "consumer_type": pulsar.ConsumerType.Shared}
    with client_of(server) as client:
        producer = client.create_producer(
            topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=1000
        )
        consumer = client.subscribe(topic, "sub", **shared)
        for i in range(10):
            producer.send_async(f"m{i}".encode(), lambda _result, _id: None)
        producer.flush()
        messages = [consumer.receive(LONG_MS) for _ in range(10)]
        assert [message.data() for message in messages] == [f"m{i}".encode() for i in range(10)]
        for message in messages[::2]:
            consumer.acknowledge(message)
        consumer.close()
        consumer = client.subscribe(topic, "sub", **shared)
        again = [consumer.receive(LONG_MS).data() for _ in range(5)]
        assert again == [f"m{i}".encode() for i in range(1, 10, 2)]


@pytest.mark.parametrize("compression", ["LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_compressed_batches_come_back_as_they_were(server: PulsarServer, topic: str, compression: str) -> None:
    with client_of(server) as client:
        producer = client.create_producer(
            topic, compression_type=getattr(pulsar.CompressionType, compression), batching_enabled=True
        )
        consumer = client.subscribe(topic, "sub")
        for i in range(100):
            producer.send_async(b"x" * i, lambda _result, _id: None)
        producer.flush()
        assert [consumer.receive(LONG_MS).data() for _ in range(100)] == [b"x" * i for i in range(100)]


def test_a_large_message_goes_in_chunks(server: PulsarServer, topic: str) -> None:
    large = bytes(range(256)) * (12 << 12)
    with client_of(server) as client:
        producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
        consumer = client.subscribe(topic, "sub")
        producer.send(large)
        assert consumer.receive(LONG_MS).data() == large


def test_a_reader_begins_where_it_wants(server: PulsarServer, topic: str) -> None:
    with client_of(server) as client:
        producer = client.create_producer(topic)
        ids = [producer.send(f"m{i}".encode()) for i in range(10)]
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        read = []
        while reader.has_message_available():
            read.append(reader.read_next(LONG_MS).data())
        assert read == [f"m{i}".encode() for i in range(10)]
        reader = client.create_reader(topic, ids[4])
        assert reader.read_next(LONG_MS).data() == b"m5"
        reader = client.create_reader(topic, pulsar.MessageId.latest)
        assert not reader.has_message_available()
        producer.send(b"last")
        assert reader.read_next(LONG_MS).data() == b"last"


def test_a_subscription_is_moved_by_id_and_by_time(server: PulsarServer, topic: str) -> None:
    with client_of(server) as client:
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "sub")
        ids = [producer.send(f"m{i}".encode()) for i in range(10)]
        for _ in range(10):
            consumer.acknowledge(consumer.receive(LONG_MS))
        consumer.seek(ids[3])
        assert consumer.receive(LONG_MS).data() == b"m4"
        consumer.seek(pulsar.MessageId.earliest)
        assert consumer.receive(LONG_MS).data() == b"m0"
        consumer.seek(0)
        assert consumer.receive(LONG_MS).data() == b"m0"
        consumer.seek(pulsar.MessageId.latest)
        producer.send(b"new")
        assert consumer.receive(LONG_MS).data() == b"new"


def test_negative_acknowledgement_brings_a_message_again(server: PulsarServer, topic: str) -> None:
    with client_of(server) as client:
        producer = client.create_producer(topic)
        consumer = client.subscribe(
            topic, "sub", consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100
        )
        producer.send(b"m")
        message = consumer.receive(LONG_MS)
        assert message.redelivery_count() == 0
        consumer.negative_acknowledge(message)
        again = consumer.receive(LONG_MS)
        assert (again.data(), again.redelivery_count()) == (b"m", 1)
        consumer.acknowledge(again)


def test_many_producers_and_consumers_share_one_connection(server: PulsarServer, topic: str) -> None:
    with client_of(server) as client:
        producers = [client.create_producer(f"{topic}-{i}") for i in range(30)]
        consumers = [client.subscribe(f"{topic}-{i}", "sub") for i in range(30)]
        for _ in range(50):
            for i, producer in enumerate(producers):
                producer.send_async(str(i).encode(), lambda _result, _id: None)
        for producer in producers:
            producer.flush()
        for i, consumer in enumerate(consumers):
            for _ in range(50):
                message = consumer.receive(LONG_MS)
                assert message.data() == str(i).encode()
                consumer.acknowledge(message)
