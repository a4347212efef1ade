"""`mq-pipeline archive`: topics to Parquet, partitioned by topic and date, each message once.

Spark's checkpoint says what has been read, and the log of its file sink (`_spark_metadata`) says which files count. A
run that is killed may leave files that no reader of the archive sees; the next run continues from the checkpoint. A
subscription keeps the broker from deleting messages that are not archived yet. While nothing is written, small files
are merged into larger ones and the manifest is rewritten.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import logging
import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

import pyarrow as pa
from mq_shards.pipeline import archive_manifest, checkpoint_files, telemetry
from mq_shards.pipeline.archive_folders import folded
from mq_shards.pipeline.checkpoint import check_continues
from mq_shards.pipeline.client import check_brokers
from mq_shards.pipeline.compaction import compact
from mq_shards.pipeline.lag import behind
from mq_shards.pipeline.options import OptionError, ReadOptions
from mq_shards.pipeline.session import breaking_off, open_session
from mq_shards.pipeline.sink_log import SinkFile, SinkLog, SinkLogError, local_path
from mq_shards.pipeline.stopping import Stopped, heard_by, ignore_signals
from mq_shards.pipeline.telemetry import Telemetry
from mq_shards.pipeline.topics import told_missing
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_S: Final = 1
UPKEEP_S: Final = 3600.0  # how often the query of an endless job (--every) pauses for upkeep
COMPACT_S: Final = 60.0  # most time that merging files takes in such a pause, or a little more
_DESCRIBING: Final = threading.Lock()
_newest: Final[dict[Path, int]] = {}  # by archive, the number of the newest list of its files

log = logging.getLogger(__name__)


def subscription_of(archive: str) -> str:
    path = archive if "://" in archive else str(Path(archive).resolve())
    return f"archive-{hashlib.sha256(path.encode()).hexdigest()[:12]}"


@dataclass
class Tally:
    """Counts what the micro-batches of a run have done."""

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
    directory = local_directory(options.to)
    tally = Tally(telemetry.of(options))
    checkpoint = options.checkpoint or f"{options.to.rstrip('/')}/_checkpoint"
    with only_one(directory):
        if directory is not None:
            check_place(directory)
            if (kept := local_directory(checkpoint)) is not None:
                check_continues(kept, directory)
        source = _source_options(options, connection)
        read = ReadOptions.parse(source, streaming=True)
        check_brokers(read.brokers)
        if text := told_missing(read):
            print(text, file=sys.stderr)
        settings = checkpoint_files.settings_for([directory, local_directory(checkpoint)])
        spark = open_session(master, "mq-pipeline archive", settings, options.nice)
        writer = _writer(spark, options, source).option("checkpointLocation", checkpoint)
        end = ""
        most_s = math.inf if options.every is None else UPKEEP_S
        # Until here a stop is told as of any job: it may be minutes until a JVM has begun on a busy machine.
        try:
            while True:
                _follow(spark, writer, options.to, tally, most_s)
                if directory is not None:
                    files = look_after(directory, options.compact_below << 20)
                    describe(directory, files, wait=options.every is None)
                if options.every is None:
                    break
            spark.stop()
        except Stopped as stopped:
            end = f"\nstopped by {stopped}; the next run goes on from here"
            return stopped.exit_code
        finally:
            print(f"archived {tally}{end}", flush=True)
    return 0


def _source_options(options: argparse.Namespace, connection: Mapping[str, str]) -> dict[str, str]:
    source = {
        **connection,
        "startingOffsets": options.start,
        "subscription": options.subscription or subscription_of(options.to),
        "failOnDataLoss": str(not options.allow_data_loss).lower(),
    }
    if options.topics:
        source["topics"] = options.topics
    else:
        source["topicPattern"] = options.topic_pattern
    if options.max_messages:
        source["maxOffsetsPerTrigger"] = str(options.max_messages)
    return source


def _writer(spark: SparkSession, options: argparse.Namespace, source: Mapping[str, str]) -> DataStreamWriter:
    messages = spark.readStream.format("mqshards").options(**source).load()
    writer = (
        folded(messages)
        .withColumn("date", sf.to_date("timestamp"))
        .writeStream.format("parquet")
        .partitionBy("topic", "date")
    )
    print(f"archiving to {options.to}; the broker keeps the rest for {source['subscription']}", flush=True)
    if options.every is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{max(1, round(options.every * 1000))} milliseconds")


def _follow(spark: SparkSession, writer: DataStreamWriter, to: str, tally: Tally, most_s: float) -> None:
    """Follows a query until it ends or has run for `most_s`. It has stopped when this returns, or raises Stopped."""
    until = time.monotonic() + most_s
    with _stop_on_signal() as heard:
        query = writer.start(to)
        try:
            while not query.awaitTermination(POLL_S) and not heard and time.monotonic() < until:
                tally.add(query)
        finally:
            with breaking_off(spark) if heard else contextlib.nullcontext():
                query.stop()
                tally.add(query)


def local_directory(to: str) -> Path | None:
    """Returns the archive's path; None if it is not on a file system of this machine."""
    try:
        return local_path(to).absolute()
    except ValueError:
        return None


@contextlib.contextmanager
def only_one(directory: Path | None) -> Iterator[None]:
    """Keeps other jobs off this archive: one might merge files while another writes them. Raises OptionError."""
    if directory is None:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "_lock").open("w") as own:
        try:
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OptionError(f"--to: another job is at work in {directory}") from None
        yield


def check_place(directory: Path) -> SinkLog:
    """Raises OptionError if the archive's log cannot be read, or is of files that are elsewhere."""
    try:
        return SinkLog(directory)
    except SinkLogError as error:
        raise OptionError(str(error)) from None


def look_after(directory: Path, small_bytes: int) -> list[SinkFile]:
    """Merges small files into larger ones, and deletes files merged some time ago. Returns the files that count then.
    Raises OptionError."""
    try:
        files = SinkLog(directory)
        files.remove_left(listed=archive_manifest.listed(directory))
        gone = compact(files, small_bytes=small_bytes, most_s=COMPACT_S)
    except (OSError, SinkLogError, pa.ArrowException) as error:
        raise OptionError(f"all is archived, but the files in {directory} cannot be looked after: {error}") from None
    if gone:
        print(f"{gone} small files have become fewer", flush=True)
    return files.files


def describe(directory: Path, files: Sequence[SinkFile], *, wait: bool) -> None:
    """Writes the manifest. Without an earlier manifest every file is read, which takes long: unless `wait` is set, a
    thread does it. Raises OptionError."""
    number = _newest[directory] = _newest.get(directory, 0) + 1
    if not wait:
        threading.Thread(target=_describe, args=(directory, files, number), name="manifest", daemon=True).start()
        return
    _write(directory, files)


def _write(directory: Path, files: Sequence[SinkFile]) -> None:
    try:
        archive_manifest.write(directory, files)
    except (OSError, pa.ArrowException) as error:
        raise OptionError(f"all is archived, but {directory} has no manifest of it: {error}") from None


def _describe(directory: Path, files: Sequence[SinkFile], number: int) -> None:
    with _DESCRIBING:
        if _newest[directory] != number:
            return  # a newer list waits, or has been written
        try:
            _write(directory, files)
        except OptionError as error:
            log.warning("%s", error)


@contextlib.contextmanager
def _stop_on_signal() -> Iterator[list[int]]:
    """Raises Stopped at its end, once what it yields has the number of a signal: what it is around calls the JVM, and
    can be asked how far it is after an orderly stop only. The next run repeats a micro-batch that was cut off. Errors
    after the signal are ignored: the JVM may have got it too and be gone, and a real failure will show in that run."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        ignore_signals()
        heard.append(number)

    with heard_by(hear):
        try:
            yield heard
        except Exception:
            if not heard:
                raise
    if heard:
        raise Stopped(heard[0])
