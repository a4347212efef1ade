"""Rates, sizes, delays and top talkers of decoded messages (`pipeline.events`)."""

from __future__ import annotations

from typing import Final

from mq_shards.pipeline.events import delay_ms
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

# Accuracy of quantiles: they are exact for groups with up to so many different delays.
ACCURACY: Final = 10_000
CLASSES: Final = 50  # classes of delays for each factor of e: a class is wrong by half of 2 % at most
FIGURES: Final = ("messages", "bytes", "mean_bytes", "max_bytes", "mean_delay_ms", "p50_delay_ms", "p99_delay_ms")


def by_minute(messages: DataFrame) -> DataFrame:
    """topic, minute (of publication), messages, bytes, mean_bytes, max_bytes, mean_delay_ms, p50_delay_ms,
    p99_delay_ms; the delays are null where no event says its time. For projects from before there were parts."""
    found = _measured(messages).groupBy("topic", "minute").agg(*_figures())
    return found.select("topic", "minute", *FIGURES)


def by_minute_and_topic(messages: DataFrame) -> DataFrame:
    """As by_minute, and for each topic as a whole, with a null minute. Also `first` and `last`: publication times."""
    found = _measured(messages).groupingSets([["topic", "minute"], ["topic"]], "topic", "minute")
    measured = found.agg(*_figures(), sf.min("timestamp").alias("first"), sf.max("timestamp").alias("last"))
    return measured.select("topic", "minute", *FIGURES, "first", "last")


def _measured(messages: DataFrame) -> DataFrame:
    minute = sf.date_trunc("minute", "timestamp").alias("minute")
    return messages.select("topic", minute, "timestamp", "bytes", delay_ms().alias("_delay"))


def _figures() -> list[Column]:
    def delay(quantile: float) -> Column:
        return sf.percentile_approx("_delay", quantile, ACCURACY)

    return [
        sf.count("*").alias("messages"),
        sf.sum("bytes").cast("long").alias("bytes"),
        sf.avg("bytes").alias("mean_bytes"),
        sf.max("bytes").alias("max_bytes"),
        sf.avg("_delay").alias("mean_delay_ms"),
        delay(0.5).alias("p50_delay_ms"),
        delay(0.99).alias("p99_delay_ms"),
    ]


def top_talkers(messages: DataFrame, most: int) -> DataFrame:
    """topic, rank, source, messages, bytes: for each topic the `most` sources that published most messages."""
    totals = (
        messages.where("source is not null")
        .groupBy("topic", "source")
        .agg(sf.count("*").alias("messages"), sf.sum("bytes").cast("long").alias("bytes"))
    )
    return _ranked(totals, most)


def _ranked(totals: DataFrame, most: int) -> DataFrame:
    order = Window.partitionBy("topic").orderBy(sf.desc("messages"), sf.desc("bytes"), "source")
    ranked = totals.select("*", sf.row_number().over(order).alias("rank")).where(sf.col("rank") <= most)
    return ranked.select("topic", "rank", "source", "messages", "bytes")


def to_sum(messages: DataFrame) -> DataFrame:
    """Returns a row of `parts` for each message. The class of a delay is a delay too, within 1 % of it, so that few
    classes tell the quantiles of many messages."""
    delay = delay_ms()
    size = sf.abs(delay)
    of_class = sf.signum(delay) * sf.exp(sf.round(sf.log(size) * CLASSES) / CLASSES)
    of_class = sf.when(size < 1, sf.lit(0.0)).when(delay.isNotNull(), of_class)
    size = sf.col("bytes").cast("long")
    return messages.select(
        "topic", sf.date_trunc("minute", "timestamp").alias("minute"), of_class.alias("delay_class"), "source",
        sf.lit(1).cast("long").alias("messages"), size.alias("bytes"), size.alias("max_bytes"),
        delay.alias("delay_ms"),
    )  # fmt: skip


def by_minute_of_parts(summed: DataFrame) -> DataFrame:
    """As by_minute, from parts."""
    messages, size = sf.sum("messages"), sf.sum("bytes")
    timed = sf.sum(sf.when(sf.col("delay_class").isNotNull(), sf.col("messages")))

    def delay(quantile: float) -> Column:
        return sf.percentile("delay_class", quantile, sf.col("messages"))

    found = summed.where("minute is not null").groupBy("topic", "minute").agg(
        messages.alias("messages"), size.alias("bytes"), (size / messages).alias("mean_bytes"),
        sf.max("max_bytes").alias("max_bytes"), (sf.sum("delay_ms") / timed).alias("mean_delay_ms"),
        delay(0.5).alias("p50_delay_ms"), delay(0.99).alias("p99_delay_ms"),
    )  # fmt: skip
    return found.select("topic", "minute", *FIGURES)


def top_talkers_of_parts(summed: DataFrame, most: int) -> DataFrame:
    """As top_talkers, from parts."""
    of_sources = summed.where("source is not null").groupBy("topic", "source")
    return _ranked(of_sources.agg(sf.sum("messages").alias("messages"), sf.sum("bytes").alias("bytes")), most)
