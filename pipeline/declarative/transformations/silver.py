"""Decodes messages and keeps each event once; messages that are not of their topic's format are set aside.

Two messages of a topic are one event if they have the same id, or, where a body has no id, the same body. A duplicate
is recognised until `duplicates.window` after the first has been read, and longer if nothing is read meanwhile. The
watermark is on the time of reading: one on the time of publication would drop, as too late, messages of another topic,
of another broker or of a long backlog.
"""

from __future__ import annotations

from mq_shards.pipeline.declarative.early import IS_EARLY, behind
from mq_shards.pipeline.declarative.settings import duplicates_window, fields, formats, identity
from mq_shards.pipeline.events import decoded
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


RAW = ("topic", "shard", "seq", "timestamp", "read_at", "id", "attributes", "broker", "batch_index")
DECODED = ("bytes", "kind", "event_id", "event_time", "source", "payload", "text")


def decoded_raw() -> DataFrame:
    raw = spark.readStream.table("raw_messages")
    return decoded(raw, fields(spark), formats(spark), keep=(*RAW, "body"))


def each_once(events: DataFrame) -> DataFrame:
    return (
        events.where("reason is null")
        .select(*RAW, *DECODED, identity(spark).alias("key"))
        .dropDuplicatesWithinWatermark(["topic", "key"])
        .select(*RAW, *DECODED)
    )


@dp.temporary_view
def decoded_messages() -> DataFrame:
    return decoded_raw()


# Spark would run a second micro-batch, without messages, each time: only to forget keys of before the window, which the
# next one with messages does, too.
@dp.table(
    comment="decoded messages, each event once", spark_conf={"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
)
def messages() -> DataFrame:
    if IS_EARLY:
        found = each_once(decoded_raw().withWatermark("read_at", duplicates_window(spark)))
        return behind(found, spark.readStream.table("decoded_messages"), (*RAW, *DECODED))
    return each_once(spark.readStream.table("watermarked_messages"))


@dp.table(comment="messages that cannot be decoded as their topic's format says, and why")
def bad_messages() -> DataFrame:
    return spark.readStream.table("decoded_messages").where("reason is not null").select(*RAW, "reason", "body")
