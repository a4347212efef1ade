"""What the tables tell of the topics, computed anew from them in every run."""

from __future__ import annotations

from mq_shards.pipeline import rates
from mq_shards.pipeline.declarative.settings import top
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()


@dp.materialized_view(comment="messages, sizes and delays of each topic and minute of publication")
def topic_minutes() -> DataFrame:
    return rates.by_minute(spark.read.table("messages"))


@dp.materialized_view(comment="who published most, in each topic")
def top_talkers() -> DataFrame:
    return rates.top_talkers(spark.read.table("messages"), top(spark))


@dp.materialized_view(comment="what became of the messages that were read: kept, duplicates, bad")
def topic_quality() -> DataFrame:
    def count(table: str, name: str) -> DataFrame:
        return spark.read.table(table).groupBy("topic").agg(sf.count("*").alias(name))

    tables = count("raw_messages", "read"), count("messages", "kept"), count("bad_messages", "bad")
    joined = tables[0].join(tables[1], "topic", "left").join(tables[2], "topic", "left")
    kept, bad = (sf.coalesce(name, sf.lit(0)) for name in ("kept", "bad"))
    return joined.select("topic", "read", kept.alias("kept"), (sf.col("read") - kept - bad).alias("duplicates"),
                         bad.alias("bad"))  # fmt: skip
