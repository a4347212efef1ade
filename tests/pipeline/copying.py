"""A stream of one topic into others, in a program that can be killed: python -m tests.pipeline.copying DIR BROKER.

And a job whose tasks fail at first: python -m tests.pipeline.copying DIR BROKER --failing
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

from tests.servers import ROOT

WRITER = "copier"
SOURCE = "in"
TOPICS = 3  # out-0, out-1, ...
ROWS = 600
ROW_BYTES = 40_000  # so that a task has sent some of them when it fails


def start_copy(spark: SparkSession, directory: Path, broker: str, *, available_now: bool = False) -> StreamingQuery:
    """Goes on where the last one in this directory was."""
    most = "100000" if available_now else "100"
    given = {"brokers": broker, "topic": SOURCE, "startingOffsets": "earliest", "maxOffsetsPerTrigger": most}
    rows = spark.readStream.format("mqshards").options(**given).load().repartition(2)
    topic = sf.concat(sf.lit("out-"), (sf.col("seq") % TOPICS).cast("string")).alias("topic")
    query = rows.select(topic, "body").writeStream.format("mqshards").options(brokers=broker, writer=WRITER)
    query = query.option("checkpointLocation", str(directory / "checkpoint"))
    query = query.trigger(availableNow=True) if available_now else query.trigger(processingTime="10 milliseconds")
    return query.start()


def write_failing(spark: SparkSession, directory: Path, broker: str) -> None:
    """Each task fails behind its last row, in its first attempt."""

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        mark = directory / f"failed-{context.partitionId()}"
        if not mark.exists():
            mark.touch()
            raise RuntimeError("the first attempt fails")

    body = sf.concat(sf.col("id").cast("string"), sf.lit("." * ROW_BYTES)).cast("binary").alias("body")
    # Batches small enough that much is sent before the failure.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    rows = spark.range(ROWS, numPartitions=2).select(body).mapInArrow(fail_once, "body binary")
    rows.write.format("mqshards").options(brokers=broker, topic="failing").mode("append").save()


@contextlib.contextmanager
def program(directory: Path, broker: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `main` below, until the end of the context."""
    with (directory / "said").open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.copying", str(directory), broker, *arguments],
            stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=ROOT, start_new_session=True,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main(directory: str, broker: str, *arguments: str) -> None:
    from tests.pipeline.conftest import session

    if arguments:
        write_failing(session("local[2,4]", Path(directory)), Path(directory), broker)
    else:
        start_copy(session("local[2]", Path(directory)), Path(directory), broker).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
