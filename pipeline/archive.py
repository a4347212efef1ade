"""`mq-pipeline archive`: topics to Parquet, partitioned by topic and date, each message once.

Spark's checkpoint says what has been read, the log of its file sink (`_spark_metadata`) which files count: a run that
is killed leaves files that no reader of the archive sees, and the next run goes on. A subscription holds the broker's
retention back until then.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from mq_shards.pipeline import telemetry
from mq_shards.pipeline.lag import behind
from mq_shards.pipeline.session import open_session
from mq_shards.pipeline.telemetry import Telemetry
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 1


def add_arguments(command: argparse.ArgumentParser) -> None:
    topics = command.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topics", metavar="T,...", help="these topics")
    topics.add_argument("--topic-pattern", metavar="REGEX", help="topics whose whole name matches, those to come too")
    command.add_argument("--to", required=True, metavar="DIR", help="where the archive is")
    command.add_argument("--checkpoint", metavar="DIR", help="how far it is (default: _checkpoint in the archive)")
    first = "where the first run begins (default: earliest)"
    command.add_argument("--from", dest="start", default="earliest", choices=["earliest", "latest"], help=first)
    every = "go on for ever, with a micro-batch so often (default: end with what is there)"
    command.add_argument("--every", metavar="SECONDS", type=float, help=every)
    command.add_argument("--max-messages", metavar="N", type=int, help="in a micro-batch at most")
    holds = "under which the broker keeps what is not archived (default: made from DIR)"
    command.add_argument("--subscription", metavar="NAME", help=holds)
    command.add_argument("--allow-data-loss", action="store_true", help="go on where messages are gone or corrupt")


def subscription_of(archive: str) -> str:
    path = archive if "://" in archive else str(Path(archive).resolve())
    return f"archive-{hashlib.sha256(path.encode()).hexdigest()[:12]}"


@dataclass
class Tally:
    """What the micro-batches of a run have done."""

    telemetry: Telemetry
    messages: int = 0
    micro_batches: int = 0
    last_batch: int = -1
    began: float = field(default_factory=time.monotonic)

    def add(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            if progress.batchId > self.last_batch:
                self.last_batch = progress.batchId
                self.telemetry.progress(progress.numInputRows, 1 if progress.numInputRows else 0, behind(progress))
                if progress.numInputRows:
                    self.messages += progress.numInputRows
                    self.micro_batches += 1
                    rate = progress.processedRowsPerSecond
                    print(f"batch {progress.batchId}: {progress.numInputRows} messages, {rate:.0f}/s", flush=True)

    def __str__(self) -> str:
        seconds = time.monotonic() - self.began
        return f"{self.messages} messages in {self.micro_batches} micro-batches, {seconds:.1f} s"


def run(options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
    spark = open_session(master, "mq-pipeline archive", nice=options.nice)
    subscription = options.subscription or subscription_of(options.to)
    source = {
        **connection,
        "startingOffsets": options.start,
        "subscription": subscription,
        "failOnDataLoss": str(not options.allow_data_loss).lower(),
    }
    if options.topics:
        source["topics"] = options.topics
    else:
        source["topicPattern"] = options.topic_pattern
    if options.max_messages:
        source["maxOffsetsPerTrigger"] = str(options.max_messages)
    messages = spark.readStream.format("mqshards").options(**source).load()
    writer = (
        messages.withColumn("date", sf.to_date("timestamp"))
        .writeStream.format("parquet")
        .partitionBy("topic", "date")
        .option("checkpointLocation", options.checkpoint or f"{options.to.rstrip('/')}/_checkpoint")
    )
    if options.every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{max(1, round(options.every * 1000))} milliseconds")
    query = writer.start(options.to)
    print(f"archiving to {options.to}; the broker keeps the rest for {subscription}", flush=True)
    tally = Tally(telemetry.of(options))
    with _stop_on_signal() as stopping:
        try:
            while not query.awaitTermination(POLL_S) and not stopping:
                tally.add(query)
        except PySparkException:
            if not stopping:  # else the next run meets it again
                raise
        finally:
            query.stop()
            tally.add(query)
            print(f"archived {tally}", flush=True)
        spark.stop()
    if stopping:
        print(f"stopped by {signal.Signals(stopping[0]).name}; the next run goes on from here", flush=True)
        return 128 + stopping[0]
    return 0


@contextlib.contextmanager
def _stop_on_signal() -> Iterator[list[int]]:
    """Has something in it once the job is to stop. A micro-batch that is cut off is done again by the next run."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if heard:
            sys.exit(128 + number)
        heard.append(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
