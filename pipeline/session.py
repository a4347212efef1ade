"""The Spark session of the jobs of mq-pipeline."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyspark
from mq_shards import pipeline
from mq_shards.pipeline import worker_python
from mq_shards.pipeline.failure import CAUSES
from mq_shards.pipeline.options import OptionError
from mq_shards.pipeline.standing_back import NICENESS, be_nice, begin_nice_session, told_if_busy
from pyspark.sql import SparkSession

END_S: Final = 10.0
LOOK_S: Final = 0.1
OLDEST: Final = (4, 2)  # PySpark: with older ones Trigger.AvailableNow ends before all has been read
_begins: Final[list[_Beginning]] = []  # not empty while a JVM is started
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
# Arrow's own checks of each value that the JVM reads, in batches whose offsets and counts are sound, are up to a third
# of what a row takes it.
UNCHECKED: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"


def _begun(builder: SparkSession.Builder) -> SparkSession:
    """Begins a session in a thread of its own. In the main thread PySpark would take SIGINT, and its handler calls the
    JVM in the midst of another call, which py4j logs with two tracebacks."""
    found: list[SparkSession] = []
    failed: list[BaseException] = []
    ended = threading.Event()  # a Thread that a signal interrupts in join() counts as ended (Python 3.11)

    def begin() -> None:
        try:
            found.append(builder.getOrCreate())
        except BaseException as error:  # another try will use the same JVM
            failed.append(error)
        ended.set()

    with _Beginning() as beginning:
        _begins.append(beginning)
        try:
            threading.Thread(target=begin, name="session", daemon=True).start()
            ended.wait()
        except BaseException:
            logging.disable()  # py4j logs that the JVM is gone
            until = time.monotonic() + END_S
            beginning.end()
            while not ended.wait(LOOK_S) and time.monotonic() < until:
                beginning.end()  # PySpark may not have forked yet
            logging.disable(logging.NOTSET)
            raise
        finally:
            _begins.pop()
    if failed:
        raise failed[0]
    return found[0]


class _Beginning:
    """Learns from the forked process itself which one becomes the JVM: PySpark does not tell."""

    def __enter__(self) -> _Beginning:
        self._said, self._to = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._said)
        os.close(self._to)

    def say(self) -> None:
        os.write(self._to, b"%d " % os.getpid())

    def end(self) -> None:
        """Kills the JVM: left to begin, it would print a stack later, because nobody waits for it any more."""
        with contextlib.suppress(BlockingIOError):
            for pid in os.read(self._said, 4096).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def _in_the_jvm() -> None:
    """Runs in a forked process: a JVM ignores SIGTERM, which schedulers send to all processes of a job, so that it can
    still be asked how far it is. It ends when we do, which closes its input. PySpark makes it ignore SIGINT."""
    for beginning in _begins:
        beginning.say()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        begin_nice_session()


os.register_at_fork(after_in_child=_in_the_jvm)


@contextlib.contextmanager
def breaking_off(spark: SparkSession) -> Iterator[None]:
    """While a job that was stopped ends: Spark calls the tasks that it breaks off errors, and PySpark's thread for
    accumulators prints a traceback when a task's end does not reach it. Both are kept from stderr."""
    with contextlib.suppress(Exception):  # the JVM may be gone
        spark.sparkContext.setLogLevel("OFF")
    with contextlib.redirect_stderr(io.StringIO()):
        yield


def open_session(
    master: str, name: str, settings: Mapping[str, str] | None = None, nice: int = NICENESS
) -> SparkSession:
    """Executors on this machine use this interpreter and its paths; those of a cluster use what is installed there.
    `nice`: the niceness of Spark on this machine. Raises OptionError, before Spark begins, if it is too old."""
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise OptionError(f"PySpark {wanted} or later is wanted: {sys.executable} has {pyspark.__version__}")
    local = master.startswith("local")
    builder = (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.showConsoleProgress", "false")
        # Dates are days in UTC, wherever a job runs.
        .config("spark.sql.session.timeZone", "UTC")
        .config(*CAUSES)
    )
    if local:
        be_nice(nice)  # if the broker runs here too, its clients come first
        if text := told_if_busy(nice, os.getloadavg()[0], os.cpu_count() or 1):
            print(text, file=sys.stderr)
        worker_python.use()
        builder = (
            builder.config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
        )
    quiet = Path(__file__).with_name("declarative") / "conf" / "log4j2.properties"
    given = dict(settings or {})
    # Ours comes before the given options, which may name another file: the last one counts.
    ours = f"-Dlog4j2.configurationFile=file:{quiet} {UNCHECKED}"
    given[JAVA_OPTIONS] = f"{ours} {given.get(JAVA_OPTIONS, '')}".rstrip()
    for key, value in given.items():
        builder = builder.config(key, value)
    spark = _begun(builder)
    spark.sparkContext.setLogLevel("ERROR")
    # Each job uses one filter for a load.
    pipeline.register(spark, push_filters=True)
    return spark
