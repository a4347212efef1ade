"""Real Spark on a real broker: what its clients publish comes out as it went in, chosen and split as asked."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import greenstalk
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

from tests.nsq.servers import HOST
from tests.nsq.wire import Wire, unique_topic
from tests.pipeline.broker import Broker, broker_in, now_ms
from tests.pipeline.query import start_query
from tests.servers import wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Use topics of your own."""
    with broker_in(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return unique_topic("spark")


def load(spark: SparkSession, broker: Broker, **options: object) -> DataFrame:
    given = {"brokers": broker.address, **{name: str(value) for name, value in options.items()}}
    return spark.read.format("mqshards").options(**given).load()


def seqs(frame: DataFrame) -> list[int]:
    return sorted(row.seq for row in frame.select("seq").collect())


def ms_since_1970(row: Row) -> float:
    at: datetime = row.timestamp
    return at.astimezone(UTC).timestamp() * 1000


class TestColumns:
    def test_of_what_a_beanstalkd_client_puts(self, spark: SparkSession, broker: Broker, topic: str) -> None:
        before = now_ms()
        with greenstalk.Client((HOST, broker.running.port), encoding=None, use=topic) as client:
            jobs = [client.put(b"first\x00\xff", priority=7, ttr=30), client.put(b"", priority=2**32 - 1, delay=900)]
        rows = load(spark, broker, topic=topic).orderBy("seq").collect()
        assert [(row.topic, row.seq, bytes(row.body)) for row in rows] == [
            (topic, 0, b"first\x00\xff"),
            (topic, 1, b""),
        ]
        assert [int(row.id[-16:], 16) for row in rows] == jobs
        assert {row.id[:-16] for row in rows} == {f"{row.broker[:16]}-" for row in rows}
        assert [row.attributes for row in rows] == [
            {"pri": "7", "ttr_ms": "30000"},
            {"pri": "4294967295", "ttr_ms": "60000", "delay_ms": "900000"},
        ]
        assert {row.shard for row in rows} == {broker.topic(topic)["shard"]}
        assert all(before <= ms_since_1970(row) <= now_ms() + 1 for row in rows)

    def test_of_what_an_nsq_client_publishes(self, spark: SparkSession, broker: Broker, topic: str) -> None:
        with Wire(broker.nsq_port) as producer, Wire(broker.nsq_port) as consumer:
            consumer.subscribe(topic, "channel", 10)
            producer.publish(topic, b"alone")
            producer.publish_many(topic, [b"one of two", b"\x00two\xff"])
            producer.publish_deferred(topic, 1500, b"later")
            consumed = {message.body: message for message in consumer.messages(3)}
        rows = load(spark, broker, topic=topic).orderBy("seq").collect()
        assert [bytes(row.body) for row in rows] == [b"alone", b"one of two", b"\x00two\xff", b"later"]
        for row in rows[:3]:
            message = consumed[bytes(row.body)]
            assert row.id[-16:].encode() == message.id
            assert abs(ms_since_1970(row) - message.timestamp / 10**6) < 1
        assert [row.attributes.get("delay_ms") for row in rows] == [None, None, None, "1500"]

    def test_a_message_is_there_before_and_after_it_was_consumed(
        self, spark: SparkSession, broker: Broker, topic: str
    ) -> None:
        with greenstalk.Client((HOST, broker.running.port), encoding=None, use=topic, watch=topic) as client:
            client.put(b"job")
            frame = load(spark, broker, topic=topic)
            assert seqs(frame) == [0]
            client.delete(client.reserve(5))
            assert seqs(frame) == [0]

    def test_bodies_of_any_size(self, spark: SparkSession, broker: Broker, topic: str) -> None:
        sizes = [1, 7, 8, 9, 1000, 65_535, 1 << 20, 3]
        broker.publish(topic, [b"x" * size for size in sizes])
        frame = load(spark, broker, topic=topic).select("seq", sf.length("body").alias("bytes"))
        assert [row.bytes for row in frame.orderBy("seq").collect()] == sizes


class TestChosen:
    def test_by_seq_and_time(self, spark: SparkSession, broker: Broker, topic: str) -> None:
        broker.publish(topic, [b"%d" % n for n in range(50)])
        wait_until(lambda: now_ms() > last_ms(broker, topic) + 1, "the clock goes on")
        between = now_ms()
        broker.publish(topic, [b"%d" % n for n in range(50, 100)])
        assert seqs(load(spark, broker, topic=topic, startingTimestamp=between)) == [*range(50, 100)]
        assert seqs(load(spark, broker, topic=topic, endingTimestamp=between)) == [*range(50)]
        by_topic = {"startingOffsets": f'{{"{topic}": 40}}', "endingOffsets": f'{{"{topic}": 60}}'}
        assert seqs(load(spark, broker, topic=topic, **by_topic)) == [*range(40, 60)]
        everything = load(spark, broker, topic=topic)
        late = sf.timestamp_millis(sf.lit(between))
        for condition, wanted in (
            (sf.col("seq") >= 90, range(90, 100)),
            (sf.col("seq").between(10, 19), range(10, 20)),
            (sf.col("timestamp") >= late, range(50, 100)),
            (sf.col("timestamp") < late, range(50)),
            ((sf.col("timestamp") >= late) & (sf.col("seq") < 60), range(50, 60)),
        ):
            chosen = everything.where(condition)
            assert seqs(chosen) == [*wanted]
            assert read_from_broker(chosen) == len(wanted), "no more than wanted was read"

    def test_by_topic(self, spark: SparkSession, broker: Broker, topic: str) -> None:
        for suffix in "abc":
            broker.publish(f"{topic}.{suffix}", [b"x"] * 10)
        frame = load(spark, broker, topicPattern=re.escape(topic) + r"\.[ab]")
        assert {(row.topic, row["count"]) for row in frame.groupBy("topic").count().collect()} == {
            (f"{topic}.a", 10), (f"{topic}.b", 10)
        }  # fmt: skip
        chosen = frame.where(sf.col("topic") == f"{topic}.b")
        assert seqs(chosen) == [*range(10)]
        assert read_from_broker(chosen) == 10

    def test_split_as_asked(self, spark: SparkSession, broker: Broker, topic: str) -> None:
        broker.publish(topic, [b"%d" % n for n in range(1000)])
        for options, partitions in (({}, 1), ({"minPartitions": 6}, 6), ({"maxRecordsPerPartition": 150}, 7)):
            frame = load(spark, broker, topic=topic, **options)
            assert frame.rdd.getNumPartitions() == partitions
            assert seqs(frame) == [*range(1000)]


@pytest.mark.long
class TestStreams:
    """Of what test_spark_stream.py tries without a broker, with one; test_spark_crashes.py always has one."""

    def options(self, broker: Broker, topic: str, **more: object) -> dict[str, str]:
        given = {"brokers": broker.address, "topicPattern": re.escape(topic) + ".*", "startingOffsets": "earliest"}
        return given | {name: str(value) for name, value in more.items()}

    def test_available_now_reads_what_is_there_once_and_ends(
        self, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
    ) -> None:
        for round in range(2):
            broker.publish(topic, [b"%d" % n for n in range(100)])
            run(spark, tmp_path, self.options(broker, topic, maxOffsetsPerTrigger=80))
            assert written(spark, tmp_path) == [(topic, seq) for seq in range(100 * (round + 1))]

    def test_micro_batches_have_a_limit_of_messages_and_of_bytes(
        self, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
    ) -> None:
        broker.publish(f"{topic}.a", [b"x" * 1000] * 300)
        broker.publish(f"{topic}.b", [b"x" * 1000] * 100)
        by_count = run(spark, tmp_path / "count", self.options(broker, topic, maxOffsetsPerTrigger=250))
        by_bytes = run(spark, tmp_path / "bytes", self.options(broker, topic, maxBytesPerTrigger=250_000))
        for query, most in ((by_count, 250), (by_bytes, 250)):
            sizes = [p.numInputRows for p in query.recentProgress if p.numInputRows]
            assert sum(sizes) == 400 and max(sizes) <= most
        assert len(written(spark, tmp_path / "count")) == len(written(spark, tmp_path / "bytes")) == 400

    def test_a_topic_that_appears_while_the_query_runs_is_read(
        self, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
    ) -> None:
        broker.publish(f"{topic}.first", [b"x"] * 5)
        query = start_query(spark, tmp_path, self.options(broker, topic))
        try:
            expected = [(f"{topic}.first", seq) for seq in range(5)]
            wait_until(lambda: written(spark, tmp_path) == expected, "the first topic has been read", 30)
            with socket.create_connection((HOST, broker.running.port)) as connection:
                connection.sendall(f"use {topic}.second\r\nput 0 0 10 1\r\ny\r\n".encode())
                expected.append((f"{topic}.second", 0))
                wait_until(lambda: written(spark, tmp_path) == expected, "the second topic has been read", 30)
        finally:
            query.stop()

    def test_offsets_survive_a_restart_with_another_number_of_workers(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        topics = [f"orders-{n}" for n in range(6)]
        with broker_in(tmp_path / "data", "--shards=4", workers=1) as broker:
            options = self.options(broker, "orders-", maxOffsetsPerTrigger=200)
            for round, workers in enumerate((1, 2, 1)):
                if round:
                    broker.start(workers)
                for topic in topics:
                    broker.publish(topic, [b"%d/%d" % (round, n) for n in range(50)])
                run(spark, tmp_path, options)
                assert written(spark, tmp_path) == [(topic, n) for topic in topics for n in range(50 * (round + 1))]
                broker.stop()


def last_ms(broker: Broker, topic: str) -> float:
    return broker.topic(topic)["last_timestamp_ns"] / 10**6


def read_from_broker(collected: DataFrame) -> int:
    """So many messages came out of the source when the frame was collected."""
    frame = collected.select("seq")
    frame.collect()
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    return int(leaves.head().metrics().apply("numOutputRows").value())


def run(spark: SparkSession, directory: Path, options: dict[str, str]) -> StreamingQuery:
    query = start_query(spark, directory, options, available_now=True)
    assert query.awaitTermination(60)
    return query


def written(spark: SparkSession, directory: Path) -> list[tuple[str, int]]:
    if not (directory / "out" / "_spark_metadata").exists():
        return []
    frame = spark.read.schema("topic string, seq long").parquet(str(directory / "out"))
    return sorted((row.topic, row.seq) for row in frame.collect())
