"""Exactly once into Parquet what clients of Pulsar and NATS publish, batches and headers, whatever is killed -9."""

from __future__ import annotations

import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.nsq.servers import HOST
from tests.pipeline.broker import Broker, Publisher, broker_in
from tests.pipeline.query import QueryProcess, start_query
from tests.pipeline.test_spark_crashes import a_moment
from tests.pulsar.wire import Wire, batch_with, entry_of, metadata, send_frame
from tests.servers import free_port

TOPICS = [f"events.{n}" for n in range(4)]
BATCH = 7
RECEIPT_S = 20.0

pytestmark = pytest.mark.timeout(600)


@dataclass
class PulsarPublisher(Publisher):
    """A batch is one entry: it is there whole, or not at all."""

    port: int = 0
    batch: int = BATCH

    def _session(self) -> None:
        with Wire(self.port) as wire:
            wire.socket.settimeout(RECEIPT_S)
            try:
                wire.connect()
                for number, topic in enumerate(self.topics):
                    wire.producer(topic, number)
            except AssertionError:  # the broker is killed meanwhile, or has just been
                return
            for topic, bodies in self._batches():
                sequence = min(map(int, bodies))
                batch = batch_with(*((body, {"partition_key": f"key {body.decode()}"}) for body in bodies))
                head = metadata(sequence_id=sequence, num_messages_in_batch=len(bodies))
                wire.raw(send_frame(self.topics.index(topic), sequence, entry_of(head, batch)))
                while (frame := wire.receive()) is not None and frame.name == "ping":
                    wire.say("pong")
                if frame is None or frame.name == "close_producer":
                    return
                if frame.name == "send_error":  # the worker was killed before it answered
                    continue
                assert frame.name == "send_receipt", frame
                self._acknowledge(bodies)


@dataclass
class NatsPublisher(Publisher):
    """Nothing is acknowledged: a PONG says only that the connection lives."""

    port: int = 0
    batch: int = BATCH

    def _session(self) -> None:
        with socket.create_connection((HOST, self.port), timeout=RECEIPT_S) as nats:
            stream = nats.makefile("rb")
            nats.sendall(b'CONNECT {"headers":true,"verbose":false}\r\n')
            for topic, bodies in self._batches():
                heads = [b"NATS/1.0\r\nnumber: %s\r\n\r\n" % body for body in bodies]
                commands = [
                    b"HPUB %s %d %d\r\n%s%s\r\n" % (topic.encode(), len(head), len(head) + len(body), head, body)
                    for head, body in zip(heads, bodies, strict=True)
                ]
                nats.sendall(b"".join(commands) + b"PING\r\n")
                while (line := stream.readline()) != b"PONG\r\n":
                    if not line:
                        return
                self._over.wait(self.pause_s)


@pytest.fixture
def ports() -> dict[str, int]:
    return {"pulsar": free_port(), "nats": free_port()}


@pytest.fixture
def broker(tmp_path: Path, ports: dict[str, int]) -> Iterator[Broker]:
    listen = [f"--listen={protocol}://{HOST}:{port}" for protocol, port in ports.items()]
    with broker_in(tmp_path / "data", "--shards=8", *listen, "--set=nats.topics=events.>") as broker:
        yield broker


def options(broker: Broker, most: int) -> dict[str, str]:
    return {"brokers": broker.address, "topicPattern": "events[.].*", "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(most), "subscription": "parquet"}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["pulsar", "nats"])
def test_the_query_and_the_broker_are_killed_at_random(
    spark: SparkSession, broker: Broker, ports: dict[str, int], tmp_path: Path, protocol: str
) -> None:
    chance = random.Random(protocol)
    kind = {"pulsar": PulsarPublisher, "nats": NatsPublisher}[protocol]
    with kind(broker, TOPICS, port=ports[protocol]) as publisher:
        for _ in range(2):
            query = QueryProcess("local[2]", tmp_path, options(broker, 100))
            try:
                query.wait_for(a_moment(tmp_path, chance))
                time.sleep(chance.random() * 0.1)
                broker.kill()
                broker.start(2)
                query.wait_for(a_moment(tmp_path, chance))
            finally:
                query.kill()
    start_query(spark, tmp_path, options(broker, 20_000), available_now=True).awaitTermination(120)
    written = spark.read.parquet(str(tmp_path / "out")).collect()
    places = Counter((row.topic, row.seq, row.batch_index) for row in written)
    within = range(BATCH) if protocol == "pulsar" else [-1]
    latest = {topic["topic"]: topic["latest"] for topic in broker.get("/v1/topics")["topics"]}
    assert places == Counter((topic, seq, n) for topic, end in latest.items() for seq in range(end) for n in within)
    bodies = Counter(bytes(row.body) for row in written)
    assert set(bodies.values()) == {1}
    assert publisher.acknowledged <= bodies.keys() <= publisher.acknowledged | publisher.uncertain
    assert len(bodies) > 1000
    name, before = {"pulsar": ("key", "key "), "nats": ("number", "")}[protocol]
    assert all(row.attributes[name] == before + bytes(row.body).decode() for row in written)
