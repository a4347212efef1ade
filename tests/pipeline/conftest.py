"""One Spark session for all tests of the pipeline, a gateway of our own for each. Without PySpark they are skipped."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.class_archive import java_options
from tests.servers import ROOT, free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.serving import Gateway

# Modules that cannot be imported without it; test_installed.py says that they are left out.
MISSING = [name for name in ("numpy", "pyarrow", "pyspark") if importlib.util.find_spec(name) is None]
MISSING += ["java"] if shutil.which("java") is None and "JAVA_HOME" not in os.environ else []
collect_ignore_glob = ["test_re*.py", "test_spark_*.py", "test_stream_*.py"] if MISSING else []

os.environ.setdefault("JAVA_TOOL_OPTIONS", java_options())


# Of a test with a JVM, on a machine that does other things too: who is cut off in the midst of a call to the session
# spoils it for all that follow.
TIMEOUT_S = 400
NONE: Mapping[str, str] = {}
# Compiling code for a query, and planning it twice, takes longer than to run it on a few rows.
FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}
# For a test that begins a server of Spark Connect in this JVM.
CONNECT_PORT = "spark.connect.grpc.binding.port"
CONNECT_TOKEN = str(uuid.uuid4())
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


def session(
    master: str, directory: Path, environment: Mapping[str, str] = NONE, settings: Mapping[str, str] = NONE
) -> SparkSession:
    from mq_shards import pipeline
    from mq_shards.pipeline import worker_python
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    worker_python.use(os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    os.environ.update(environment)
    conf = SparkConf(loadDefaults=False).setMaster(master)
    conf.setAll(
        [
            ("spark.ui.enabled", "false"),
            ("spark.ui.showConsoleProgress", "false"),
            ("spark.driver.bindAddress", "127.0.0.1"),
            ("spark.driver.host", "127.0.0.1"),
            ("spark.sql.shuffle.partitions", "2"),
            ("spark.sql.session.timeZone", "UTC"),
            ("spark.sql.warehouse.dir", str(directory / "warehouse")),
            ("spark.local.dir", str(directory)),
            # The one that is the default starts ten processes (chmod, readlink) for each file of a checkpoint.
            ("spark.sql.streaming.checkpointFileManagerClass", FILE_MANAGER),
            *settings.items(),
        ]
    )
    # The kernel shares the cores out among sessions, and each broker of the tests has one. With one of its own the JVM
    # need not wait for all streams of `make test`. It ends when its stdin does. A program that has a session is killed
    # with all that is in it.
    has_one = os.getsid(0) == os.getpid()
    SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"start_new_session": not has_one}))
    found = SparkSession.builder.config(conf=conf).getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    pipeline.register(found, push_filters=True)
    return found


@pytest.fixture(scope="session")
def spark_said(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the JVM of `spark` and its Python workers write to stderr, warnings of the data source among it."""
    return tmp_path_factory.mktemp("said") / "stderr"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, spark_said: Path) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("spark")
    with loaded_python(directory) as python:
        with stderr_to(spark_said):
            environment = {"MQ_PIPELINE_PYTHON": python, "SPARK_CONNECT_AUTHENTICATE_TOKEN": CONNECT_TOKEN}
            serving = {CONNECT_PORT: str(free_port()), "spark.connect.grpc.binding.address": "127.0.0.1"}
            found = session("local[2]", directory, environment, FEW_ROWS | serving)
            del os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"]
        yield found
        found.stop()


@contextlib.contextmanager
def loaded_python(directory: Path) -> Iterator[str]:
    """A program that Spark may take for Python: what it runs is forked from a process that has loaded its modules."""
    from mq_shards.pipeline.declarative.restart import python_path

    place, program = directory / "python", directory / "python.sh"
    asking = Path(__file__).with_name("loaded_python.py")
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {asking} {place} "$@"\n')
    program.chmod(0o755)
    command = [sys.executable, "-m", "tests.pipeline.loaded_python", str(place)]
    # What Spark sets for its own; and the source that Spark finds by itself, which a declarative run wants.
    path = python_path(str(ROOT), os.environ.get("PYTHONPATH", ""))
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as loading:
        assert loading.stdout is not None and loading.stdout.readline() == b"ready\n"
        yield str(program)


@pytest.fixture
def jobs_share(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The jobs of mq-pipeline run in this process and session, which they take for their own."""
    from mq_shards.pipeline import archive, replay

    for job in (archive, replay):
        monkeypatch.setattr(job, "open_session", lambda *_, **__: Shared(spark))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    inference = "spark.sql.sources.partitionColumnTypeInference.enabled"
    yield
    spark.conf.unset(inference)
    for number, handler in handlers.items():
        signal.signal(number, handler)


class Shared:
    """A session that nobody ends."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


@contextlib.contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Of this process and those that it starts meanwhile, which keep it."""
    sys.stderr.flush()
    before = os.dup(2)
    with path.open("ab") as sink:
        os.dup2(sink.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@pytest.fixture(scope="module", params=["core", "python"])
def either(request: pytest.FixtureRequest) -> Iterator[str]:
    """With the C core, and as if there were none."""
    from mq_shards.pipeline import (
        contents,
        decode,
        decode_core,
        decode_python,
        encode,
        encode_core,
        encode_python,
        task,
    )

    reads, writes = {"core": (decode_core, encode_core), "python": (decode_python, encode_python)}[request.param]
    with pytest.MonkeyPatch.context() as patch:
        for module in (decode, task):
            patch.setattr(module, "Decoder", reads.Decoder)
        for module in (encode, contents):
            patch.setattr(module, "join", writes.join)
        patch.setattr(encode, "Column", writes.Column)
        yield request.param


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    from tests.pipeline.serving import serving

    with serving() as gateway:
        yield gateway
