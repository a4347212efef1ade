"""The queries of perf/spark/scenarios.py, in one Spark session: `python -m perf.spark.queries WHAT BROKER ...`.

Prints a line of JSON for each query that has run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mq_shards.pipeline.session import open_session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from perf.spark.empty_source import Empty

TOPIC = "topic"
WARMING = 4
MQ_SHARDS, EMPTY = "mq-shards", "empty"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["read", "write", "read-on"])
    parser.add_argument("broker", metavar="HOST:PORT")
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--body", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args()
    spark = open_session("local[2]", "perf")
    spark.dataSource.register(Empty)
    directory = Path(tempfile.mkdtemp(prefix="mq-perf-spark-", dir=options.dir))
    try:
        for line in {"read": read, "write": write, "read-on": read_on}[options.what](spark, options, directory):
            print(json.dumps(line), flush=True)
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


def read(spark: SparkSession, options: argparse.Namespace, directory: Path) -> Iterator[dict[str, object]]:
    """Reads the sources in turn. The counts before the first round, and that round, only warm up Spark's compiler."""
    frames = {MQ_SHARDS: messages_of(spark, options.broker), EMPTY: nothing(spark, options)}
    queries: dict[str, Callable[[DataFrame], object]] = {
        "count": lambda frame: _counted(frame.count(), options.messages),
        "parquet": lambda frame: frame.write.mode("overwrite").parquet(str(directory / "messages")),
    }
    for _ in range(WARMING):
        for frame in frames.values():
            frame.count()
    for round_ in range(options.rounds + 1):
        for query, run in queries.items():
            for source, frame in frames.items():
                began = time.monotonic()
                run(frame)
                seconds = time.monotonic() - began
                if round_ > 0:
                    yield {"query": query, "source": source, "rate": options.messages / seconds}


def write(spark: SparkSession, options: argparse.Namespace, directory: Path) -> Iterator[dict[str, object]]:
    """Writes bodies that Spark has at hand: the JVM makes them, without another source in Python."""
    body = sf.rpad(sf.col("id").cast("string"), options.body, "x").cast("binary").alias("body")
    for round_ in range(options.rounds + 1):
        rows = spark.range(options.messages, numPartitions=2).select(body)
        began = time.monotonic()
        rows.write.format("mqshards").option("brokers", options.broker).option("topic", "written").mode("append").save()
        seconds = time.monotonic() - began
        if round_ > 0:
            yield {"query": "write", "source": MQ_SHARDS, "rate": options.messages / seconds}
    kept = spark.read.format("mqshards").options(brokers=options.broker, topic="written").load().count()
    _counted(kept, options.messages * (options.rounds + 1))


def read_on(spark: SparkSession, options: argparse.Namespace, directory: Path) -> Iterator[dict[str, object]]:
    """Counts again and again until this is ended."""
    frame = messages_of(spark, options.broker)
    while True:
        began = time.monotonic()
        _counted(frame.count(), options.messages)
        yield {"query": "count", "source": MQ_SHARDS, "rate": options.messages / (time.monotonic() - began)}


def messages_of(spark: SparkSession, broker: str) -> DataFrame:
    return spark.read.format("mqshards").options(brokers=broker, topic=TOPIC, minPartitions="2").load()


def nothing(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """Returns the empty source, with as many partitions as the messages have."""
    partitions = messages_of(spark, options.broker).rdd.getNumPartitions()
    given = {"rows": options.messages, "bodyBytes": options.body, "partitions": partitions}
    return spark.read.format("empty").options(**{name: str(value) for name, value in given.items()}).load()


def _counted(count: int, expected: int) -> None:
    if count < expected:
        raise SystemExit(f"{count} messages were read, {expected} were expected")


if __name__ == "__main__":
    main()
