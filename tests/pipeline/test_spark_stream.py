"""Streams through real Spark: each micro-batch once, whatever happens in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mq_shards.pipeline.command import main
from mq_shards.pipeline.lag import behind
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.pipeline.serving import Gateway
from tests.servers import wait_until

Rows = list[tuple[str, int]]


class Query:
    """A stream into Parquet, which may be stopped and started again on the same checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path, gateway: Gateway, **options: object) -> None:
        self._spark = spark
        self._directory = directory
        self.options = {
            "brokers": gateway.address, "startingOffsets": "earliest", "pollTimeoutMs": "2000", "topicPattern": ".*",
        } | {name: str(value) for name, value in options.items()}  # fmt: skip

    def start(self, **trigger: Any) -> StreamingQuery:  # noqa: ANN401
        frame = self._spark.readStream.format("mqshards").options(**self.options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self._directory / "checkpoint"))
        return writer.trigger(**trigger).start(str(self._directory / "out"))

    def run(self) -> StreamingQuery:
        """Reads what is there now."""
        query = self.start(availableNow=True)
        query.awaitTermination(60)
        assert not query.isActive
        return query

    def rows(self) -> Rows:
        if not (self._directory / "out" / "_spark_metadata").exists():
            return []
        written = self._spark.read.schema("topic string, seq long").parquet(str(self._directory / "out"))
        return sorted((row.topic, row.seq) for row in written.collect())


def fill(gateway: Gateway, topic: str, count: int) -> None:
    for _ in range(count):
        gateway.topic(topic).add(topic.encode())


def all_of(topic: str, count: int) -> Rows:
    return [(topic, seq) for seq in range(count)]


def sizes(query: StreamingQuery) -> list[int]:
    return [p.numInputRows for p in query.recentProgress if p.numInputRows]


def topics_of(offset: str) -> dict[str, object]:
    """Of the one broker that there is."""
    (broker,) = json.loads(offset)["brokers"].values()
    found: dict[str, object] = broker["topics"]
    return found


def test_runs_of_available_now_read_each_message_once(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, gateway)
    fill(gateway, "a", 5)
    query.run()
    assert query.rows() == all_of("a", 5)
    fill(gateway, "a", 3)
    query.run()
    query.run()
    assert query.rows() == all_of("a", 8)


def test_a_topic_that_appears_later_is_read_from_its_first_message(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, gateway)
    fill(gateway, "a", 2)
    running = query.start(processingTime="50 milliseconds")
    try:
        wait_until(lambda: query.rows() == all_of("a", 2), "the first topic has been read", 30)
        fill(gateway, "b", 3)
        wait_until(lambda: query.rows() == all_of("a", 2) + all_of("b", 3), "the second topic has been read", 30)
    finally:
        running.stop()
    fill(gateway, "c", 1)
    query.run()
    assert query.rows() == all_of("a", 2) + all_of("b", 3) + all_of("c", 1)


def test_without_starting_offsets_a_stream_begins_with_what_comes(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, gateway)
    del query.options["startingOffsets"]
    fill(gateway, "a", 4)
    query.run()
    assert query.rows() == []
    fill(gateway, "a", 2)
    query.run()
    assert query.rows() == [("a", 4), ("a", 5)]


def test_a_micro_batch_is_no_larger_than_allowed(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    fill(gateway, "a", 30)
    fill(gateway, "b", 10)
    by_count = Query(spark, tmp_path / "count", gateway, maxOffsetsPerTrigger=8)
    assert all(size <= 8 for size in sizes(by_count.run()))
    assert by_count.rows() == all_of("a", 30) + all_of("b", 10)
    by_bytes = Query(spark, tmp_path / "bytes", gateway, maxBytesPerTrigger=48 * 10)
    assert all(size <= 10 for size in sizes(by_bytes.run()))
    assert by_bytes.rows() == all_of("a", 30) + all_of("b", 10)


def test_progress_tells_how_far_the_broker_is(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    fill(gateway, "a", 9)
    progress = Query(spark, tmp_path, gateway, maxOffsetsPerTrigger=4).run().recentProgress[0]
    assert topics_of(progress.sources[0].endOffset) == {"a": 4}
    assert topics_of(progress.sources[0].latestOffset) == {"a": 9}


def test_a_checkpoint_of_sparks_is_read_and_moved(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    fill(gateway, "a", 5)
    query = Query(spark, tmp_path, gateway)
    assert behind(json.loads(query.run().recentProgress[0].json)).total == 0
    command = ["offsets", "--brokers", gateway.address, "--checkpoint", str(tmp_path / "checkpoint")]
    assert main([*command, "--move-to", "3"]) == 0
    fill(gateway, "a", 1)
    query.run()
    assert query.rows() == sorted([*all_of("a", 6), ("a", 3), ("a", 4)])


def test_a_subscription_holds_what_is_not_committed(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    fill(gateway, "a", 6)
    query = Query(spark, tmp_path, gateway, subscription="archive-1", maxOffsetsPerTrigger=3)
    held: list[int] = []
    gateway.spoil = lambda topic, start, reply: held.append(gateway.readers["archive-1"]["a"] - start) or reply
    query.run()
    assert query.rows() == all_of("a", 6)
    assert held and all(distance <= 0 for distance in held)
    assert gateway.readers["archive-1"]["a"] >= 3


def test_an_end_is_refused(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="a stream has no end"):
        Query(spark, tmp_path, gateway, endingOffsets="latest").run()


def test_spark_refuses_it_in_real_time_mode(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    fill(gateway, "a", 1)
    rows = spark.readStream.format("mqshards").options(brokers=gateway.address, topic="a").load()
    sink = rows.writeStream.format("console").outputMode("update").option("checkpointLocation", str(tmp_path))
    query = sink.trigger(realTime="5 seconds").start()
    with pytest.raises(StreamingQueryException, match=r"REAL_TIME_MODE\.INPUT_STREAM_NOT_SUPPORTED"):
        query.awaitTermination(60)
