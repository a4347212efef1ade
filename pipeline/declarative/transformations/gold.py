"""Statistics of the topics: minutes, talkers and quality.

The views add up `message_parts` and `read_parts`. These hold a few columns of each new message, which `mq-pipeline run`
replaces by sums after some runs. So the cost of a view grows with minutes and sources, not with messages; a late
message changes its minute; and raw messages may be deleted.
"""

from __future__ import annotations

from mq_shards.pipeline import rates
from mq_shards.pipeline.declarative.settings import top
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()


@dp.table(comment="sums of messages by minute, by source (minute is null), and single ones that have both")
def message_parts() -> DataFrame:
    return rates.to_sum(spark.readStream.table("messages"))


@dp.table(comment="how many messages were read")
def read_parts() -> DataFrame:
    return spark.readStream.table("raw_messages").select("topic", sf.lit(1).cast("long").alias("messages"))


@dp.materialized_view(comment="messages, sizes and delays of each topic and minute of publication")
def topic_minutes() -> DataFrame:
    return rates.by_minute_of_parts(spark.read.table("message_parts"))


@dp.materialized_view(comment="who published most, in each topic")
def top_talkers() -> DataFrame:
    return rates.top_talkers_of_parts(spark.read.table("message_parts"), top(spark))


@dp.materialized_view(comment="what became of the messages that were read: kept, duplicates, bad")
def topic_quality() -> DataFrame:
    read = spark.read.table("read_parts").groupBy("topic").agg(sf.sum("messages").alias("read"))
    kept = spark.read.table("message_parts").where("minute is not null")
    kept = kept.groupBy("topic").agg(sf.sum("messages").alias("kept"))
    bad = spark.read.table("bad_messages").groupBy("topic").agg(sf.count("*").alias("bad"))
    joined = read.join(kept, "topic", "left").join(bad, "topic", "left")
    found = {name: sf.coalesce(name, sf.lit(0)) for name in ("kept", "bad")}
    duplicates = sf.col("read") - found["kept"] - found["bad"]
    return joined.select("topic", "read", found["kept"].alias("kept"), duplicates.alias("duplicates"),
                         found["bad"].alias("bad"))  # fmt: skip
