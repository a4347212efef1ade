"""A hundred thousand messages, or five million, of twenty topics: none is lost, none is there twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tests.pipeline.broker import broker_in

TOPICS = 20


# A session that is cut off fails all tests behind this one, so a machine that does twenty other things has the time.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("each", [5_000, pytest.param(250_000, marks=pytest.mark.long)])
def test_all_are_counted_and_summed(spark: SparkSession, tmp_path: Path, each: int) -> None:
    with broker_in(tmp_path / "data", "--sync=never") as broker:
        begin = time.monotonic()
        for n in range(TOPICS):
            broker.publish_numbers(f"volume-{n}", each)
        published = time.monotonic()
        messages = spark.read.format("mqshards").options(brokers=broker.address, topicPattern="volume-.*").load()
        number = sf.col("body").cast("string").cast("long")
        # Distinct seqs by bitmaps: exact, and without a shuffle of all of them.
        seqs = sf.bitmap_count(sf.bitmap_construct_agg(sf.bitmap_bit_position("seq")))
        parts = messages.groupBy("topic", sf.bitmap_bucket_number("seq").alias("bucket")).agg(
            sf.count("*").alias("messages"), sf.sum(number).alias("sum"), seqs.alias("seqs"),
            sf.min("seq").alias("first"), sf.max("seq").alias("last"),
            sf.sum((number != sf.col("seq")).cast("long")).alias("misplaced"),
        )  # fmt: skip
        sums = [sf.sum(name).alias(name) for name in ("messages", "sum", "seqs", "misplaced")]
        rows = parts.groupBy("topic").agg(*sums, sf.min("first").alias("first"), sf.max("last").alias("last")).collect()
        read = time.monotonic()
    print(f"published in {published - begin:.1f} s, read in {read - published:.1f} s")
    total = each * (each - 1) // 2
    assert sorted(row.topic for row in rows) == sorted(f"volume-{n}" for n in range(TOPICS))
    for row in rows:
        assert (row.messages, row.seqs, row["sum"], row.misplaced) == (each, each, total, 0)
        assert (row["first"], row["last"]) == (0, each - 1)
