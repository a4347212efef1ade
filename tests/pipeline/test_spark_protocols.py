"""What clients of Pulsar and NATS publish, in Spark: a batch is rows, headers are attributes, each row comes once."""

from __future__ import annotations

import argparse
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest
from mq_shards.pipeline.command import JOBS
from mq_shards.pipeline.running import job_of
from pyspark.sql import DataFrame, SparkSession

from tests.nats.wire import Wire as NatsWire
from tests.nsq.servers import HOST
from tests.nsq.wire import Wire as NsqWire
from tests.pipeline.broker import Broker, broker_in
from tests.pulsar.test_batches import COMPRESSIONS, send_batch
from tests.pulsar.wire import Wire, batch_with, entry_of, metadata, metadata_of, send_frame
from tests.servers import free_port


@dataclass
class Ports:
    pulsar: int
    nats: int


@pytest.fixture(scope="module")
def ports() -> Ports:
    return Ports(free_port(), free_port())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, ports: Ports) -> Iterator[Broker]:
    listen = f"--listen=pulsar://{HOST}:{ports.pulsar}", f"--listen=nats://{HOST}:{ports.nats}"
    with broker_in(tmp_path_factory.mktemp("broker") / "data", *listen, "--set=nats.topics=bound.>") as broker:
        yield broker


def load(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    frame = spark.read.format("mqshards").option("brokers", broker.address).option("topic", topic).load()
    return frame.orderBy("seq", "batch_index")


def publish(broker: Broker, ports: Ports, topic: str, batches: int = 6) -> list[bytes]:
    """Batches of 7, compressed in every way, with messages of others between them: all bodies, in order."""
    sent: list[bytes] = []
    with Wire(ports.pulsar) as wire, NsqWire(broker.nsq_port) as nsq:
        wire.connect().producer(topic)
        for n in range(batches):
            bodies = [b"%s %d %d" % (topic.encode(), n, i) for i in range(7)]
            send_batch(wire, *bodies, how=list(COMPRESSIONS)[n % len(COMPRESSIONS)], sequence=2 * n)
            wire.send(b"alone %d" % n, sequence=2 * n + 1)
            wire.expect("send_receipt")
            nsq.publish(topic, b"nsq %d" % n)
            sent += [*bodies, b"alone %d" % n, b"nsq %d" % n]
    return sent


def test_rows_have_what_is_their_messages_own(spark: SparkSession, broker: Broker, ports: Ports) -> None:
    with Wire(ports.pulsar) as wire:
        wire.connect().producer("own")
        pair = {"key": "colour", "value": "rot"}
        batch = batch_with((b"a", {"partition_key": "k", "event_time": 1234, "properties": [pair]}), (b"b", {}))
        wire.raw(send_frame(1, 0, entry_of(metadata(num_messages_in_batch=2), batch)))
        wire.expect("send_receipt")
    rows = load(spark, broker, "own").collect()
    usual = {"pri": "1024", "ttr_ms": "60000"}
    assert [(row.seq, row.batch_index, bytes(row.body)) for row in rows] == [(0, 0, b"a"), (0, 1, b"b")]
    assert rows[0].attributes == {"key": "k", "event_time_ms": "1234", "colour": "rot", **usual}
    assert rows[1].attributes == usual


def test_headers_of_nats_are_attributes(spark: SparkSession, broker: Broker, ports: Ports) -> None:
    with socket.create_connection((HOST, ports.nats), timeout=10) as nats:
        head = b"NATS/1.0\r\nA: 1\r\n\r\n"
        nats.sendall(b'CONNECT {"headers":true,"verbose":false}\r\n')
        nats.sendall(b"HPUB bound.t %d %d\r\n%sbody\r\nPING\r\n" % (len(head), len(head) + 4, head))
        said = b""
        while b"PONG" not in said:
            said += nats.recv(4096)
    (row,) = load(spark, broker, "bound.t").collect()
    assert bytes(row.body) == b"body" and row.attributes["A"] == "1" and row.batch_index == -1


def run_job(name: str, broker: Broker, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    parser.set_defaults(nice=0)
    JOBS[name][0](parser)
    return job_of(name).run(parser.parse_args(arguments), "local", {"brokers": broker.address})


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_what_is_archived_and_replayed_is_each_message_of_each_batch_once(
    spark: SparkSession, jobs_share: None, broker: Broker, ports: Ports, tmp_path: Path
) -> None:
    """In micro-batches of a few entries, over two runs; and counted, in parts and with filters."""
    first = publish(broker, ports, "feed")
    to = str(tmp_path / "archive")
    assert run_job("archive", broker, "--to", to, "--topics", "feed", "--max-messages", "4") == 0
    sent = [*first, *publish(broker, ports, "feed")]
    assert run_job("archive", broker, "--to", to, "--topics", "feed", "--max-messages", "4") == 0
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    archived = spark.read.parquet(to).orderBy("seq", "batch_index").collect()
    assert [bytes(row.body) for row in archived] == sent
    assert len({row.id for row in archived}) == len(sent)
    read = spark.read.format("mqshards").option("brokers", broker.address).option("topic", "feed")
    assert read.load().count() == len(sent)
    parts = read.option("minPartitions", 5).load()
    assert parts.rdd.getNumPartitions() >= 5 and parts.count() == len(sent)
    assert parts.where("seq >= 3 and seq < 6").count() == 7 + 1 + 1
    # Into another topic, in the same order.
    assert run_job("replay", broker, "--from", to, "--to-topic", "again") == 0
    again = load(spark, broker, "again").collect()
    assert [bytes(row.body) for row in again] == sent
    kept = [{name: value for name, value in row.attributes.items() if name != "ttr_ms"} for row in archived]
    assert [{name: row.attributes.get(name) for name in of} for row, of in zip(again, kept, strict=True)] == kept
    # And what was a key or a property of Pulsar's is one again.
    with Wire(ports.pulsar) as wire:
        wire.connect().subscribe("again", initialPosition=1)
        wire.flow(len(sent))
        for frame, of in zip(wire.messages(len(sent)), kept, strict=True):
            found = metadata_of(frame)
            assert found.partition_key == of.get("key", "")
            ours = ("key", "key_encoding", "ordering_key", "event_time_ms", "null_value", "pri", "delay_ms")
            said = {one.key: one.value for one in found.properties}
            assert {name: said.get(name) for name in of if name not in ours and "." not in name} == {
                name: value for name, value in of.items() if name not in ours and "." not in name
            }


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_whatever_topics_are_called_they_are_archived_and_replayed(
    spark: SparkSession, jobs_share: None, broker: Broker, ports: Ports, tmp_path: Path
) -> None:
    subjects = ["żółw", "a,b", "日本", "%41", '"<&>', "a=b:c", "'", "café", "\\", "1", "null", "*x*", "=" * 180, "\0"]
    names = [f"bound.names.{name}" for name in subjects]
    with contextlib.closing(NatsWire(ports.nats)) as wire:
        wire.send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.1 1\r\n')
        for name in names:
            wire.send(f"PUB {name} _INBOX.1 {len(name.encode())}\r\n{name}\r\n".encode())
        while wire.heard.data.count(b'"seq":0') < len(names):
            assert not wire.heard.closed
            wire.receive()
    with NsqWire(broker.nsq_port) as nsq:
        nsq.publish("__HIVE_DEFAULT_PARTITION__", b"__HIVE_DEFAULT_PARTITION__")
    names.append("__HIVE_DEFAULT_PARTITION__")
    to = str(tmp_path / "archive")
    assert run_job("archive", broker, "--to", to, "--topics", orjson.dumps(names).decode()) == 0
    assert spark.read.parquet(to).count() == len(names)
    names.remove("bound.names.\0")  # which cannot be written
    assert run_job("replay", broker, "--from", to, "--prefix", "again.", "--topic-pattern", "[^\0]*") == 0
    read = spark.read.format("mqshards").option("brokers", broker.address)
    found = read.option("topicPattern", "again[.].*").load().select("topic", "body", "attributes").collect()
    assert sorted((row.topic, bytes(row.body).decode()) for row in found) == sorted((f"again.{n}", n) for n in names)
    assert not any("archived_topic" in (row.attributes or {}) for row in found)
