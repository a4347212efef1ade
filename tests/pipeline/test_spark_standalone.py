"""A standalone master with two workers, each in a directory of its own; the Python of their executors has the wheel for
Spark alone, and nothing of the broker. Whatever is killed -9, each message is in the table once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.broker import Publisher, broker_in
from tests.pipeline.query import EXECUTORS_PYTHON, QueryProcess
from tests.pipeline.test_spark_crashes import MARKS, TOPICS, check, done, options
from tests.servers import ROOT, free_port, wait_until

HOST = "127.0.0.1"
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment as docs/pipeline-clusters.md has it: PySpark itself comes with the workers' Spark."""
    subprocess.run(["make", "-s", "wheel-spark"], cwd=ROOT, check=True, timeout=900)
    (wheel,) = (path for path in (ROOT / "dist").glob("pyspark_mqshards-*.whl") if "none-any" not in path.name)
    venv = tmp_path_factory.mktemp("executors") / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=300)
    found = venv / "bin" / "python"
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        needs = message_from_bytes(opened.read(name)).get_all("Requires-Dist", [])
    # pandas is what Spark has its Arrow code look for.
    pip = [found, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *needs, "pandas>=2.2,<3"], check=True, timeout=900)
    subprocess.run([*pip, "--no-deps", wheel], check=True, timeout=300)
    (ours,) = venv.glob("lib/python*/site-packages/mq_shards")
    assert {path.name for path in ours.iterdir()} <= {"csrc", "pipeline", "shards", "__pycache__"}
    assert {path.name for path in (ours / "shards").glob("*.py")} == {"__init__.py", "reader_names.py"}
    return found


def _bare(python: Path) -> dict[str, str]:
    """What this process was given of Python's paths is not for them."""
    left = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_CONF_DIR")}
    home = Path(pyspark.__file__).parent
    return left | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": HOST}


@dataclass
class Cluster:
    master: str
    directories: list[Path]  # of the workers
    _said: list[Path]

    def executors(self) -> dict[int, Path]:
        """By pid, the directory of the worker that it is of."""
        return {
            pid: directory
            for pid, command in commands().items()
            for directory in self.directories
            if "CoarseGrainedExecutorBackend" in command and _cwd(pid).is_relative_to(directory)
        }

    def said(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self._said)


def commands() -> dict[int, str]:
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found[int(path.name)] = (path / "cmdline").read_text()
    return found


def _cwd(pid: int) -> Path:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return Path("/")


@pytest.fixture
def cluster(python: Path, tmp_path: Path) -> Iterator[Cluster]:
    with cluster_of(2, python, tmp_path) as found:
        yield found


@contextlib.contextmanager
def cluster_of(workers: int, python: Path, tmp_path: Path) -> Iterator[Cluster]:
    port, environment = free_port(), _bare(python)
    master = f"spark://{HOST}:{port}"
    spark_class = Path(environment["SPARK_HOME"]) / "bin" / "spark-class"
    common = ["--host", HOST, "--webui-port", "0"]
    deploy = "org.apache.spark.deploy"
    with contextlib.ExitStack() as stack:
        said: list[Path] = []

        def start(directory: Path, *command: str) -> None:
            directory.mkdir()
            said.append(directory / "said")
            with said[-1].open("wb") as sink:
                process = subprocess.Popen(
                    [spark_class, *command, *common], stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                    cwd=directory, env=environment, start_new_session=True,
                )  # fmt: skip
            stack.callback(_end, process)

        start(tmp_path / "master", f"{deploy}.master.Master", "--port", str(port))
        wait_until(lambda: b"elected leader" in said[0].read_bytes(), "the master serves", TIMEOUT_S)
        directories = [tmp_path / f"worker-{n}" for n in range(workers)]
        for directory in directories:
            start(directory, f"{deploy}.worker.Worker", master, "--work-dir", str(directory), "--cores", "1",
                  "--memory", "1g")  # fmt: skip
        for one in said[1:]:
            wait_until(
                lambda one=one: b"Successfully registered with master" in one.read_bytes(),  # type: ignore[misc]
                "all workers are there", TIMEOUT_S,
            )  # fmt: skip
        found = Cluster(master, directories, said)
        try:
            yield found
        finally:
            for pid in found.executors():
                _kill(pid)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_whatever_is_killed_each_message_is_written_once(
    spark: SparkSession, cluster: Cluster, python: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    table.mkdir()
    environment = {EXECUTORS_PYTHON: str(python)}

    def goes_on(query: QueryProcess) -> None:
        query.wait_for(table / MARKS[2] / str(done(table) + 3))

    def each_worker_has_an_executor() -> bool:
        return set(cluster.executors().values()) == set(cluster.directories)

    with broker_in(tmp_path / "data", "--shards=8") as broker:

        def all_of_the_broker() -> None:
            broker.kill()
            broker.start(2)

        kills: list[Callable[[], None]] = [
            lambda: _kill(next(iter(cluster.executors()))),
            lambda: _kill(broker.running.pid_of("mq-gateway")),
            lambda: _kill(broker.running.pid_of("mq-worker-0")),
            all_of_the_broker,
        ]
        with Publisher(broker, TOPICS) as publisher:
            query = QueryProcess(cluster.master, table, options(broker), environment)
            try:
                goes_on(query)
                wait_until(each_worker_has_an_executor, "each worker has an executor", TIMEOUT_S)
                assert any(command.startswith(str(python)) and "pyspark" in command for command in commands().values())
                for kill in kills:
                    kill()
                    goes_on(query)
                wait_until(each_worker_has_an_executor, "the executor has been replaced", TIMEOUT_S)
            finally:
                query.kill()
            wait_until(lambda: not cluster.executors(), "executors end with their driver", TIMEOUT_S)
            query = QueryProcess(cluster.master, table, options(broker), environment)
            try:
                goes_on(query)
            finally:
                query.kill()
        check(spark, broker, table, publisher)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_job_that_waits_for_executors_says_so(tmp_path: Path) -> None:
    with broker_in(tmp_path / "data") as broker, cluster_of(0, Path(sys.executable), tmp_path) as cluster:
        broker.publish_numbers("numbers", 3)
        said = tmp_path / "said"
        job = ["--brokers", broker.address, "--master", cluster.master, "archive", "--to", tmp_path / "archive"]
        with said.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "mq_shards.pipeline.command", *map(str, job), "--topics", "numbers"],
                stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=_bare(Path(sys.executable)), cwd=ROOT,
            )  # fmt: skip
        try:
            waits = b"Initial job has not accepted any resources"
            wait_until(lambda: waits in said.read_bytes(), "it says that no executor is there", TIMEOUT_S)
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(TIMEOUT_S)
        assert status == 128 + signal.SIGTERM, said.read_text()
