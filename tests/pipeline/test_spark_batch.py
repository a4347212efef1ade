"""Batch reads through real Spark."""

from __future__ import annotations

import contextlib
import io
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mq_shards import pipeline
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from tests.pipeline.serving import Gateway

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
T0_NS = int(T0.timestamp()) * 10**9
MS_NS = 10**6


def load(spark: SparkSession, gateway: Gateway, **options: object) -> DataFrame:
    given = {"brokers": gateway.address, "pollTimeoutMs": "2000", **{k: str(v) for k, v in options.items()}}
    return spark.read.format("mqshards").options(**given).load()


def fill(gateway: Gateway, topic: str, count: int, shard: int = 0) -> None:
    """One message a second from T0 on; the body is topic and seq."""
    kept = gateway.topic(topic, shard)
    for _ in range(count):
        seq = kept.next_seq
        kept.add(f"{topic}-{seq}".encode(), time_ns=T0_NS + seq * 10**9, identity=0xABC0 + seq,
                 attributes=struct.pack("<II", 1024, 60000))  # fmt: skip


def seqs(frame: DataFrame) -> list[tuple[str, int]]:
    return sorted((row.topic, row.seq) for row in frame.select("topic", "seq").collect())


def asked(gateway: Gateway) -> list[str]:
    return [call for call in gateway.calls if "/v1/records" in call]


def test_every_column_has_what_the_record_has(spark: SparkSession, gateway: Gateway) -> None:
    kept = gateway.topic("orders", 7)
    kept.add(b"plain", time_ns=T0_NS + 1500, identity=10, attributes=struct.pack("<II", 1024, 60000))
    kept.add(b"", time_ns=T0_NS, identity=255, attributes=struct.pack("<III", 5, 1000, 2500))
    kept.add(b"\x00\xff", attributes=struct.pack("<IIQQ", 6, 0, 0, 1_500_000))
    rows = load(spark, gateway, topic="orders").orderBy("seq").collect()
    assert [bytes(row.body) for row in rows] == [b"plain", b"", b"\x00\xff"]
    assert [(row.topic, row.shard, row.seq) for row in rows] == [("orders", 7, 0), ("orders", 7, 1), ("orders", 7, 2)]
    assert [row.id for row in rows] == [
        f"{gateway.broker[:16]}-{id}" for id in ("000000000000000a", "00000000000000ff", "0" * 16)
    ]
    assert {row.broker for row in rows} == {gateway.broker}
    assert rows[0].timestamp == (T0 + timedelta(microseconds=1)).astimezone().replace(tzinfo=None)
    assert [row.attributes for row in rows] == [
        {"pri": "1024", "ttr_ms": "60000"},
        {"pri": "5", "ttr_ms": "1000", "delay_ms": "2500"},
        {"pri": "6", "ttr_ms": "1.5"},
    ]


def test_topics_are_chosen_by_name_list_and_pattern(spark: SparkSession, gateway: Gateway) -> None:
    for topic in ("a1", "a2", "b1"):
        fill(gateway, topic, 2)
    for options, wanted in (
        ({"topic": "a1"}, {"a1"}),
        ({"topics": "a1, b1"}, {"a1", "b1"}),
        ({"topics": '["a2"]'}, {"a2"}),
        ({"subscribe": "a1,a2"}, {"a1", "a2"}),
        ({"topicPattern": "a."}, {"a1", "a2"}),
        ({"subscribePattern": "."}, set()),
    ):
        assert {topic for topic, _ in seqs(load(spark, gateway, **options))} == wanted, options


def test_a_schema_of_some_columns_reads_only_those(spark: SparkSession, gateway: Gateway) -> None:
    fill(gateway, "orders", 3)
    reader = spark.read.format("mqshards").options(brokers=gateway.address, topic="orders")
    rows = reader.schema("body binary, seq long").load().orderBy("seq").collect()
    assert [(bytes(row.body), row.seq) for row in rows] == [(b"orders-0", 0), (b"orders-1", 1), (b"orders-2", 2)]
    assert reader.schema(StructType()).load().count() == 3
    with pytest.raises(Exception, match="no column seq of type string"):
        reader.schema("seq string").load().collect()


def test_offsets_bound_what_is_read(spark: SparkSession, gateway: Gateway) -> None:
    fill(gateway, "a", 10)
    fill(gateway, "b", 4)
    frame = load(spark, gateway, topics="a,b", startingOffsets='{"a": 7, "b": -2}', endingOffsets='{"a": -1, "b": 2}')
    assert seqs(frame) == [("a", 7), ("a", 8), ("a", 9), ("b", 0), ("b", 1)]
    with pytest.raises(Exception, match="startingOffsets: must speak of all topics; nothing is said of b"):
        load(spark, gateway, topics="a,b", startingOffsets='{"a": 7}').collect()


def test_times_bound_what_is_read(spark: SparkSession, gateway: Gateway) -> None:
    fill(gateway, "a", 10)
    t0_ms = T0_NS // MS_NS
    frame = load(spark, gateway, topic="a", startingTimestamp=t0_ms + 2500, endingTimestamp=t0_ms + 5000)
    assert seqs(frame) == [("a", 3), ("a", 4)]
    late = {"topic": "a", "startingTimestamp": t0_ms + 60_000}
    with pytest.raises(Exception, match="no message at or after"):
        load(spark, gateway, **late).collect()
    assert seqs(load(spark, gateway, **late, startingOffsetsByTimestampStrategy="latest")) == []


def test_a_topic_is_split_as_asked(spark: SparkSession, gateway: Gateway) -> None:
    fill(gateway, "a", 90)
    fill(gateway, "b", 10)
    whole = [("a", seq) for seq in range(90)] + [("b", seq) for seq in range(10)]
    for options, partitions in (({}, 1), ({"minPartitions": 10}, 10), ({"maxRecordsPerPartition": 25}, 5)):
        frame = load(spark, gateway, topics="a,b", **options)
        assert frame.rdd.getNumPartitions() == partitions
        assert seqs(frame) == whole


def test_filters_narrow_what_the_broker_is_asked_for(spark: SparkSession, gateway: Gateway) -> None:
    fill(gateway, "a", 100)
    fill(gateway, "b", 100)
    everything = load(spark, gateway, topics="a,b")
    at = sf.lit(T0 + timedelta(seconds=40)).cast("timestamp")
    for condition, wanted, ranges in (
        (sf.col("topic") == "a", [("a", s) for s in range(100)], ["topic=a&from=0&to=100"]),
        ((sf.col("topic") == "b") & (sf.col("seq") >= 95), [("b", s) for s in range(95, 100)], ["from=95&to=100"]),
        (sf.col("topic").isin("b", "c") & (sf.col("seq") < 3), [("b", s) for s in range(3)], ["topic=b&from=0&to=3"]),
        ((sf.col("topic") == "a") & sf.col("seq").isin(5, 8), [("a", 5), ("a", 8)], ["from=5&to=9"]),
        ((sf.col("topic") == "a") & (sf.col("timestamp") > at), [("a", s) for s in range(41, 100)], ["from=41&to=100"]),
        ((sf.col("topic") == "a") & (sf.col("timestamp") <= at), [("a", s) for s in range(41)], ["from=0&to=41"]),
        ((sf.col("topic") == "a") & (sf.col("seq") != 5), [("a", s) for s in range(100) if s != 5], ["from=0&to=100"]),
        (sf.col("topic") == "none", [], []),
    ):
        gateway.calls.clear()
        assert seqs(everything.where(condition)) == wanted
        calls = asked(gateway)
        assert len(calls) == len(ranges) and all(r in c for r, c in zip(ranges, calls, strict=True)), calls


def test_times_out_of_order_lose_nothing_to_a_pushed_filter(spark: SparkSession, gateway: Gateway) -> None:
    kept = gateway.topic("a")
    for second in (0, 5, 3, 9, 4):
        kept.add(b"", time_ns=T0_NS + second * 10**9)
    at = sf.lit(T0 + timedelta(seconds=4)).cast("timestamp")
    frame = load(spark, gateway, topic="a")
    assert seqs(frame.where(sf.col("timestamp") >= at)) == [("a", 1), ("a", 3), ("a", 4)]
    assert seqs(frame.where(sf.col("timestamp") <= at)) == [("a", 0), ("a", 2), ("a", 4)]


def test_two_brokers_are_read_as_one(spark: SparkSession, gateway: Gateway) -> None:
    with Gateway() as other:
        fill(gateway, "a", 3)
        fill(other, "a", 2)
        fill(other, "b", 1)
        frame = load(spark, gateway, topicPattern=".*", brokers=f"{gateway.address},{other.address}")
        assert seqs(frame) == [("a", 0), ("a", 0), ("a", 1), ("a", 1), ("a", 2), ("b", 0)]


def test_explicit_offsets_that_retention_has_taken_are_an_error_or_left_out(
    spark: SparkSession, gateway: Gateway
) -> None:
    fill(gateway, "a", 10)
    gateway.topic("a").drop(0, 4)
    assert seqs(load(spark, gateway, topic="a")) == [("a", seq) for seq in range(4, 10)]
    explicit = {"topic": "a", "startingOffsets": '{"a": 2}'}
    with pytest.raises(Exception, match=r"messages 4 to 9, not all of 2 to 9"):
        load(spark, gateway, **explicit).collect()
    frame = load(spark, gateway, **explicit, failOnDataLoss="false")
    assert seqs(frame) == [("a", seq) for seq in range(4, 10)]


def test_a_gap_among_explicit_offsets_is_an_error_and_among_all_there_is_is_not(
    spark: SparkSession, gateway: Gateway
) -> None:
    fill(gateway, "a", 10)
    gateway.topic("a").drop(3, 6)
    left = [("a", seq) for seq in (0, 1, 2, 6, 7, 8, 9)]
    assert seqs(load(spark, gateway, topic="a")) == left
    explicit = {"topic": "a", "startingOffsets": '{"a": 0}'}
    with pytest.raises(Exception, match="messages 3 to 5 are gone") as failed:
        load(spark, gateway, **explicit).collect()
    assert "Traceback" not in str(failed.value)
    assert seqs(load(spark, gateway, **explicit, failOnDataLoss="false")) == left


def test_a_corrupt_record_is_named_and_not_passed_on(spark: SparkSession, gateway: Gateway) -> None:
    fill(gateway, "a", 10)
    message = gateway.topic("a").messages[6]
    message.record = message.record[:-1] + b"\x00" if message.record[-1:] != b"\x00" else flip(message.record, 45)
    with pytest.raises(Exception, match=r"topic a of .*segment 1, behind seq 5: the record is corrupt"):
        load(spark, gateway, topic="a").collect()
    frame = load(spark, gateway, topic="a", failOnDataLoss="false")
    assert seqs(frame) == [("a", seq) for seq in range(10) if seq != 6]


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_topic_that_no_broker_has_is_an_error(spark: SparkSession, gateway: Gateway) -> None:
    with pytest.raises(Exception, match="the brokers have no nothing") as failed:
        load(spark, gateway, topic="nothing").collect()
    assert "Traceback" not in str(failed.value)


def test_a_broker_that_is_away_for_a_moment_is_waited_for_and_no_longer(spark: SparkSession, gateway: Gateway) -> None:
    fill(gateway, "a", 3)
    gateway.refuse = 3
    assert len(seqs(load(spark, gateway, topic="a"))) == 3
    gateway.refuse = 10**6
    with pytest.raises(Exception, match="503 starting"):
        load(spark, gateway, topic="a", pollTimeoutMs=300).collect()


def test_a_frame_that_is_used_again_reads_what_each_query_asks_for(spark: SparkSession, gateway: Gateway) -> None:
    """As `register` leaves it: Spark would keep with the load what was pushed down last."""
    fill(gateway, "orders", 20)
    spark.conf.unset(pipeline.PUSHDOWN)
    try:
        pipeline.register(spark)
        rows = load(spark, gateway, topic="orders")
        assert pushed(rows.where("seq > 3")) == ""
        assert (rows.where("seq > 3").count(), rows.count(), rows.where("seq < 10").count()) == (16, 20, 10)
        both = rows.where("seq < 5").union(rows.where("seq >= 18"))
        assert sorted(row.seq for row in both.collect()) == [0, 1, 2, 3, 4, 18, 19]
    finally:
        pipeline.register(spark, push_filters=True)


def test_a_further_session_knows_it_too(spark: SparkSession, gateway: Gateway) -> None:
    fill(gateway, "orders", 3)
    try:
        for further in (spark.newSession(), spark.newSession()):
            pipeline.register(further)
            assert load(further, gateway, topic="orders").count() == 3
    finally:
        pipeline.register(spark, push_filters=True)


def test_filters_are_pushed_down_where_that_is_asked_for(spark: SparkSession, gateway: Gateway) -> None:
    fill(gateway, "orders", 20)
    for filter, count in (("seq > 3", 16), ("seq < 10", 10)):
        rows = load(spark, gateway, topic="orders").where(filter)
        assert rows.count() == count
        assert "seq," in pushed(rows)


def pushed(frame: DataFrame) -> str:
    """As Spark's plan shows it."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        frame.explain("formatted")
    return "".join(line for line in said.getvalue().splitlines() if line.startswith("PushedFilters: "))


def test_workers_on_this_machine_have_pyspark_from_where_it_has_bytecode(spark: SparkSession) -> None:
    def file_of_pyspark(_: int) -> str:
        import pyspark

        return str(pyspark.__file__)

    (found,) = spark.sparkContext.parallelize([0], 1).map(file_of_pyspark).collect()
    assert Path(found).is_file(), "it is in a zip: each worker compiles it"
