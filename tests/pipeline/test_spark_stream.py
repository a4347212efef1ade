"""Streams through real Spark: each micro-batch once, whatever happens in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mq_shards.pipeline.stream import GONE
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


def ended_at(query: StreamingQuery) -> object:
    progress = query.lastProgress
    return topics_of(progress.sources[0].endOffset) if progress and progress.sources[0].endOffset else None


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


def test_a_subscription_holds_what_is_not_committed(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    fill(gateway, "a", 6)
    query = Query(spark, tmp_path, gateway, subscription="archive/1", maxOffsetsPerTrigger=3)
    held: list[int] = []
    gateway.spoil = lambda topic, start, reply: held.append(gateway.readers["archive/1"]["a"] - start) or reply
    query.run()
    assert query.rows() == all_of("a", 6)
    assert held and all(distance <= 0 for distance in held)
    assert gateway.readers["archive/1"]["a"] >= 3


def test_what_retention_took_is_an_error_or_left_out(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, gateway)
    fill(gateway, "a", 5)
    query.run()
    fill(gateway, "a", 10)
    gateway.topic("a").drop(0, 8)
    with pytest.raises(Exception, match="messages 5 to 7 are gone"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert query.rows() == all_of("a", 5) + [("a", seq) for seq in range(8, 15)]


def test_a_topic_that_was_forgotten_when_all_of_it_had_been_read_comes_back(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    """Without a word of messages that never were. The query goes on meanwhile, and is started again."""
    query = Query(spark, tmp_path, gateway)
    fill(gateway, "a", 5)
    fill(gateway, "b", 1)
    running = query.start(processingTime="50 milliseconds")
    try:
        wait_until(lambda: query.rows() == [*all_of("a", 5), ("b", 0)], "all is read")
        kept = gateway.topics.pop("a")
        wait_until(lambda: ended_at(running) == {"a": [5, GONE], "b": 1}, "it is seen that the topic has gone")
    finally:
        running.stop()
    kept.drop(0, 5)
    kept.next_seq = 90
    gateway.topics["a"] = kept
    fill(gateway, "a", 3)
    query.run()
    assert query.rows() == [*all_of("a", 5), *(("a", seq) for seq in range(90, 93)), ("b", 0)]
    kept.drop(90, 93)
    fill(gateway, "a", 3)
    kept.drop(93, 95)
    with pytest.raises(Exception, match="messages 93 to 94 are gone"):
        query.run()


def test_a_gap_behind_a_message_nobody_finished_is_an_error(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, gateway)
    fill(gateway, "a", 5)
    gateway.topic("a").drop(2, 4)
    query.run()
    assert query.rows() == [("a", 0), ("a", 1), ("a", 4)]
    fill(gateway, "a", 5)
    gateway.topic("a").drop(6, 8)
    with pytest.raises(Exception, match="messages 6 to 7 are gone"):
        query.run()


def test_a_query_that_is_started_again_knows_which_gaps_it_began_with(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    """Else it could never get over them."""
    query = Query(spark, tmp_path, gateway, maxOffsetsPerTrigger=4)
    fill(gateway, "a", 2)
    query.run()
    for topic in ("a", "b"):
        fill(gateway, topic, 10)
    gateway.topic("b").drop(2, 5)
    gateway.spoil = lambda topic, start, reply: reply[:56] + b"?" + reply[57:] if topic == "b" else reply
    with pytest.raises(Exception, match=r"topic b .*corrupt"):
        query.run()
    gateway.spoil = lambda topic, start, reply: reply
    query.run()
    assert query.rows() == all_of("a", 12) + [("b", seq) for seq in (0, 1, 5, 6, 7, 8, 9)]
    gateway.topic("a").drop(0, 12)
    fill(gateway, "b", 10)
    gateway.topic("b").drop(12, 15)
    with pytest.raises(Exception, match=r"messages 12 to 1[34] are gone"):
        query.run()


def test_messages_that_a_broker_has_lost_are_an_error(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, gateway)
    fill(gateway, "a", 5)
    query.run()
    gateway.topics["a"].drop(3, 5)
    gateway.topics["a"].next_seq = 3
    with pytest.raises(Exception, match="has lost messages 3 to 4"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    fill(gateway, "a", 4)
    query.run()
    assert query.rows() == sorted(all_of("a", 5) + [("a", seq) for seq in (3, 4, 5, 6)])


def test_several_brokers_have_offsets_of_their_own(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    with Gateway() as other:
        query = Query(spark, tmp_path, gateway, subscription="s")
        query.options["brokers"] += f",{other.address}"
        fill(gateway, "a", 2)
        fill(other, "a", 3)
        query.run()
        fill(other, "a", 1)
        query.run()
        assert query.rows() == sorted(all_of("a", 2) + all_of("a", 4))
        assert gateway.readers["s"] == {"a": 2}
        assert other.readers["s"]["a"] >= 3


def test_an_end_is_refused(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="a stream has no end"):
        Query(spark, tmp_path, gateway, endingOffsets="latest").run()
