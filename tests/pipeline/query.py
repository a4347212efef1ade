"""A stream of topics into Parquet, in a program that can be killed: python -m tests.pipeline.query DIR JSON"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.servers import ROOT, wait_until

EVERY = "20 milliseconds"
EXECUTORS_PYTHON = "MQ_SHARDS_TESTS_EXECUTORS_PYTHON"  # where it is not the driver's


def start_query(
    spark: SparkSession, directory: Path, options: Mapping[str, str], *, available_now: bool = False
) -> StreamingQuery:
    """Goes on where the last one in this directory was."""
    frame = spark.readStream.format("mqshards").options(**options).load()
    writer = frame.select("topic", "seq", "batch_index", "body", "attributes").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=EVERY)
    return writer.start(str(directory / "out"))


class QueryProcess:
    """Runs `main` below, with executors of its own."""

    def __init__(
        self, master: str, directory: Path, options: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> None:
        self._directory = directory
        self._said = directory / "said"
        with self._said.open("ab") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.query", master, str(directory), json.dumps(dict(options))],
                stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=ROOT, start_new_session=True,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **(environment or {})},
            )  # fmt: skip

    def wait_for(self, mark: Path) -> None:
        """Until it has written a file. Fails if it ends before."""

        def written() -> bool:
            assert self._process.poll() is None, self._said.read_text(errors="replace")[-4000:]
            return mark.exists()

        wait_until(written, f"the query writes {mark}", 120)

    def executors(self) -> int:
        """So many are processes of their own."""
        return sum("CoarseGrainedExecutorBackend" in command for command in self._commands().values())

    def kill(self) -> None:
        """With all its processes. Those of Python that its executors started end when their JVM does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        wait_until(lambda: not self._commands(), "all its processes have ended", 20)

    def _commands(self) -> dict[int, str]:
        """By pid: of its session."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                state, _, _, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == self._process.pid and state not in "ZX":
                    found[int(path.name)] = (path / "cmdline").read_text()
        return found


def main(master: str, directory: str, options: str) -> None:
    from tests.pipeline.conftest import session

    executors = {"PYSPARK_PYTHON": os.environ[EXECUTORS_PYTHON]} if EXECUTORS_PYTHON in os.environ else {}
    spark = session(master, Path(directory), executors)
    start_query(spark, Path(directory), json.loads(options)).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
