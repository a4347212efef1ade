"""The declarative project on a real broker: run as Spark documents it, killed, and run again."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyspark
import pytest
import yaml
from mq_shards.pipeline import run as run_job
from mq_shards.pipeline import spark_pipelines
from mq_shards.pipeline.command import main
from mq_shards.pipeline.declarative.restart import IN_CHECKOUT, python_path
from mq_shards.pipeline.declarative.settings import check_source, source_options
from mq_shards.pipeline.project import Project, ProjectError

from tests.pipeline.broker import Broker, broker_in
from tests.pipeline.class_archive import SHORT_LIVED
from tests.pipeline.conftest import CONNECT_PORT, CONNECT_TOKEN
from tests.servers import ROOT, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 400
ENVIRONMENT = {
    **os.environ,
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONPATH": str(ROOT),
    "SPARK_LOCAL_IP": "127.0.0.1",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with broker_in(tmp_path / "data") as broker:
        yield broker


def event(number: int) -> bytes:
    """Half a second old when it is published, about."""
    return json.dumps({"id": number, "time": time.time() - 0.5, "user": f"user-{number % 3}"}).encode()


def job(broker: Broker, directory: Path, *more: str) -> list[str]:
    run = [sys.executable, "-W", "ignore", "-m", "mq_shards.pipeline.command", "--master", "local[2]", "--nice", "0"]
    return [
        *run, "--brokers", broker.address, "run", "--dir", str(directory),
        "--topic-pattern", "orders|notes|password-resets",
        "--format", "orders=json", "--conf", "spark.sql.shuffle.partitions=2", *more,
    ]  # fmt: skip


def run(command: Sequence[str], **environment: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env={**ENVIRONMENT, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=TIMEOUT_S, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


class Run:
    """One that is under way."""

    def __init__(self, command: Sequence[str], said: Path) -> None:
        self._said = said
        with said.open("wb") as sink:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def wait_for(self, what: str, times: int = 1) -> None:
        def said() -> bool:
            return self.said().count(what) >= times

        wait_until(lambda: said() or self._process.poll() is not None, f"the run says {what}", TIMEOUT_S)
        assert said(), self.said()[-6000:]

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(TIMEOUT_S)

    def kill(self) -> None:
        """Python and its JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def commands() -> Iterator[bytes]:
    """Of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()


def run_and_kill(command: Sequence[str], said: Path, when: str) -> None:
    """kill -9 as soon as it has said that."""
    process = Run(command, said)
    try:
        process.wait_for(when)
    finally:
        process.kill()
    # spark-pipelines is told by whom it was begun.
    ending = b"\0%d\0" % process.pid
    ours = "nothing of it is left"
    wait_until(lambda: not any(b"pipelines.cli" in line and line.endswith(ending) for line in commands()), ours, 60)


@pytest.fixture
def served(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run in this process takes the session of all tests for its own, which serves Spark Connect to it. Returns where
    its tables are, which go at the end."""
    monkeypatch.setenv(spark_pipelines._TOKEN, CONNECT_TOKEN)
    monkeypatch.setenv("PYTHONPATH", python_path(os.environ["PYTHONPATH"]))
    assert spark._jvm is not None
    spark._jvm.org.apache.spark.sql.connect.service.SparkConnectService.start(spark.sparkContext._jsc.sc())

    @contextlib.contextmanager
    def shared(*_: object) -> Iterator[spark_pipelines.Application]:
        application = spark_pipelines.Application(spark, int(spark.conf.get(CONNECT_PORT)))
        try:
            yield application
        finally:
            application.close()

    monkeypatch.setattr(run_job, "application", shared)
    yield Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:"))
    for found in spark.catalog.listTables():
        spark.sql(f"DROP TABLE {found.name}")


@contextlib.contextmanager
def meanwhile(steps: Callable[[], None]) -> Iterator[None]:
    """Does the steps in a thread, whose failure is ours, and then sends this process SIGTERM, which its job hears."""
    failed: list[BaseException] = []

    def do() -> None:
        try:
            steps()
        except BaseException as error:
            failed.append(error)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # should no job hear it any more
    thread = threading.Thread(target=do)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGTERM, before)
    if failed:
        raise failed[0]


def test_a_run_makes_the_tables_and_goes_on_as_long_as_something_comes(
    broker: Broker, tmp_path: Path, spark: SparkSession, served: Path
) -> None:
    project, said = tmp_path / "project", tmp_path / "said"
    broker.publish("orders", [*(event(number) for number in range(30)), event(3), b"{torn", b"text"])
    broker.publish("notes", [b"a note", b"another", b"a note"])
    # The catalog that persists is for the long tests: to make it takes seconds.
    settings = [
        "spark.sql.streaming.fileSink.log.compactInterval=2", "spark.mqshards.catalog=own",
        f"spark.sql.warehouse.dir=file://{served}",
    ]  # fmt: skip
    command = job(broker, project, "--bronze-retention", "1ms", *(f"--conf={setting}" for setting in settings))
    at = command.index("run")
    assert main([*command[command.index("--master") : at], "init", *command[at + 1 :]]) == 0
    spec = (project / "spark-pipeline.yml").read_bytes()
    (project / "transformations" / "mine.sql").write_text(
        "CREATE MATERIALIZED VIEW mine AS SELECT topic, count(*) AS kept FROM messages GROUP BY topic"
    )
    # Of the brokers and topics the project knows.
    metrics = tmp_path / "run.prom"
    known = [*command[command.index("--master") : command.index("--brokers")], "run", "--dir", str(project)]
    ended = threading.Event()

    def wait_for(what: str, times: int = 1) -> None:
        def found() -> bool:
            assert not ended.is_set(), said.read_text()
            return said.exists() and said.read_text().count(what) >= times

        wait_until(found, f"the run says {what}", TIMEOUT_S)

    def publish_more() -> None:
        wait_for("run complete")
        assert "mine 2" in said.read_text()
        assert counts(spark, project) == {"orders": (33, 30, 1, 2), "notes": (3, 2, 1, 0)}
        broker.publish("orders", [event(4), event(30)])
        # Raw messages have gone then, and sums are fewer rows; the views know of all the same.
        wait_for("files of raw_messages were read long enough ago, and are gone")
        broker.publish("orders", [event(31), event(1)])
        wait_for("up to date", 2)

    with meanwhile(publish_more), said.open("w") as sink, contextlib.redirect_stdout(sink):
        try:
            status = main([*known, "--continuous", "--every", "0.1", "--metrics-file", str(metrics)])
        finally:
            ended.set()
    assert status == 128 + signal.SIGTERM
    assert "stopped by SIGTERM; the next run goes on from here" in said.read_text()
    checkpoints = project / "storage" / "_checkpoints" / "spark_catalog" / "default"
    batches = [len([*(checkpoints / name).glob("*/0/offsets/[0-9]*")]) for name in ("messages", "bad_messages")]
    assert batches[0] == batches[1] > 0, "none is without messages"
    assert 'mq_pipeline_lag_messages{job_name="mq-pipeline run"} 0.0' in metrics.read_text()
    assert (project / "spark-pipeline.yml").read_bytes() == spec
    assert {row.topic: row.kept for row in table(spark, project, "mine").collect()} == {"orders": 32, "notes": 2}
    assert quality(spark, project) == {"orders": (37, 32, 3, 2), "notes": (3, 2, 1, 0)}
    assert table(spark, project, "raw_messages").count() <= 2
    summed = table(spark, project, "message_parts").where("source is not null and minute is null").collect()
    assert sum(row.messages for row in summed) == 31, "those of the first two runs"
    minutes = table(spark, project, "topic_minutes").where("topic = 'orders'").collect()
    assert sum(row.messages for row in minutes) == 32
    assert all(495 <= row.p50_delay_ms <= row.p99_delay_ms for row in minutes)
    assert all(row.mean_delay_ms >= 500 for row in minutes)
    talkers = table(spark, project, "top_talkers").where("topic = 'orders'").collect()
    messages = {row.source: row.messages for row in talkers}
    assert messages == {"user-0": 11, "user-1": 11, "user-2": 10}
    (reader,) = broker.get("/v1/readers")["readers"]
    assert (reader["name"], sum(reader["unread"].values())) == (Project(project).subscription, 0)


@pytest.fixture
def every_class_from_its_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derby's packages are sealed: where some of its classes come out of the archive, those with which it recovers what
    was killed, which are not in it, are refused."""
    monkeypatch.setitem(ENVIRONMENT, "JAVA_TOOL_OPTIONS", SHORT_LIVED)


@pytest.mark.long
@pytest.mark.usefixtures("every_class_from_its_jar")
@pytest.mark.timeout(1800)
def test_each_event_is_in_the_tables_once_however_often_and_badly_the_project_is_run(
    broker: Broker, tmp_path: Path, spark: SparkSession
) -> None:
    project = tmp_path / "project"
    # The first run, as Spark's documentation has it; from Spark's own command Spark 4.3 hides what looks like a secret.
    events = [event(number) for number in range(300)]
    broker.publish("orders", [*events, *events[:7], b"{torn", b"text"])
    broker.publish("notes", [b"a note", b"another", b"a note"])
    run(["init" if word == "run" else word.removesuffix("|password-resets") for word in job(broker, project)])
    program = Path(sysconfig.get_path("scripts")) / "spark-pipelines"
    run([str(program), "--remote", "local[2]", "run", "--spec", str(project / "spark-pipeline.yml")])
    assert counts(spark, project) == {"orders": (309, 300, 7, 2), "notes": (3, 2, 1, 0)}
    # The second is killed when it has read what is new, and has decoded it or not; duplicates of the first are in it.
    broker.publish("orders", [*(event(number) for number in range(300, 500)), *events[:5], b"\xff\xfe"])
    run_and_kill(job(broker, project), tmp_path / "said", "messages: running")
    # The third goes on from there.
    broker.publish("orders", [event(number) for number in range(500, 600)])
    broker.publish("notes", [b"a third"])
    going = Run([*job(broker, project), "--continuous"], tmp_path / "third")
    try:
        going.wait_for("run complete")
        assert going.stop() == 128 + signal.SIGTERM
    finally:
        going.kill()
    assert "stopped by SIGTERM; the next run goes on from here" in going.said()
    assert "\tat " not in going.said(), "a stack trace of Java's"
    assert counts(spark, project) == {"orders": (615, 600, 12, 3), "notes": (4, 3, 1, 0)}

    seqs = table(spark, project, "raw_messages").where("topic = 'orders'").select("seq").collect()
    assert sorted(row.seq for row in seqs) == list(range(615))
    kept = table(spark, project, "messages").where("topic = 'orders'").select("event_id", "kind", "source").collect()
    assert sorted(int(row.event_id) for row in kept) == list(range(600))
    assert {(row.kind, row.source) for row in kept} == {("json", f"user-{number}") for number in range(3)}
    bad = table(spark, project, "bad_messages").select("body", "reason").collect()
    assert {(bytes(row.body), row.reason) for row in bad} == {
        (b"{torn", "not JSON"), (b"text", "not JSON"), (b"\xff\xfe", "not UTF-8"),
    }  # fmt: skip
    minutes = table(spark, project, "topic_minutes").where("topic = 'orders'").collect()
    assert sum(row.messages for row in minutes) == 600
    assert sum(row.bytes for row in minutes) == pytest.approx(600 * len(event(100)), rel=0.1)
    assert all(495 <= row.p50_delay_ms <= row.p99_delay_ms < 60_000 for row in minutes)
    talkers = table(spark, project, "top_talkers").collect()
    assert {(row.source, row.messages) for row in talkers} == {(f"user-{number}", 200) for number in range(3)}
    # The broker need not keep anything for it.
    (reader,) = broker.get("/v1/readers")["readers"]
    assert (reader["name"], sum(reader["unread"].values())) == (Project(project).subscription, 0)


@pytest.mark.long
@pytest.mark.usefixtures("every_class_from_its_jar")
@pytest.mark.timeout(3600)
def test_a_full_refresh_that_is_killed_at_any_step_is_finished_by_the_next_run(
    broker: Broker, tmp_path: Path, spark: SparkSession
) -> None:
    project = tmp_path / "project"
    events = [event(number) for number in range(100)]
    broker.publish("orders", [*events, *events[:7], b"{torn"])
    broker.publish("notes", [b"a note", b"another", b"a note"])
    run(job(broker, project))
    expected = {"orders": (108, 100, 7, 1), "notes": (3, 2, 1, 0)}
    assert counts(spark, project) == expected
    for number, (tables, when) in enumerate(
        (
            ("--full-refresh-all", "raw_messages: running"),
            ("--full-refresh=messages", "messages: running"),
            ("--full-refresh-all", "messages: ended"),
        )
    ):
        run_and_kill([*job(broker, project), tables], tmp_path / "said", when)
        # What comes meanwhile is read by the run that finishes it.
        broker.publish("orders", [event(1000 + number)])
        read, kept, duplicates, bad = expected["orders"]
        expected["orders"] = read + 1, kept + 1, duplicates, bad
        run(job(broker, project))
        assert counts(spark, project) == expected, (tables, when)
        assert not (project / ".full-refresh").exists()


def table(spark: SparkSession, project: Path, name: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
    return spark.read.parquet(f"{Project(project).warehouse()}/{name}")


def counts(spark: SparkSession, project: Path) -> dict[str, tuple[int, int, int, int]]:
    """By topic: read, kept, duplicates, bad, as the tables of messages have them; the view must say the same."""

    def rows(name: str) -> dict[str, int]:
        return {row["topic"]: row["count"] for row in table(spark, project, name).groupBy("topic").count().collect()}

    raw, kept, bad = rows("raw_messages"), rows("messages"), rows("bad_messages")
    found = {
        topic: (count, kept[topic], count - kept[topic] - bad.get(topic, 0), bad.get(topic, 0))
        for topic, count in raw.items()
    }
    assert quality(spark, project) == found
    return found


def quality(spark: SparkSession, project: Path) -> dict[str, tuple[int, int, int, int]]:
    view = table(spark, project, "topic_quality").collect()
    return {row.topic: (row.read, row.kept, row.duplicates, row.bad) for row in view}


def test_a_project_is_written_once_and_is_its_owners_then(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "project"
    words = ["init", "--dir", str(directory)]
    assert main(words) == 1 and "--topics or --topic-pattern is wanted" in capsys.readouterr().err
    assert main(["--brokers", "a:1", *words, "--topics", "t", "--conf", "spark.driver.memory=2g"]) == 0
    files = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert {path.name for path in files} == {
        "spark-pipeline.yml", "spark-defaults.conf", "log4j2.properties", "bronze.py", "silver.py", "gold.py",
        "watermark.sql",
    }  # fmt: skip
    assert main([*words, "--topics", "other"]) == 1 and "is there already, and yours" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == files
    # What its owner has written counts, and what a run is told, for that run.
    spec = directory / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("spark.mqshards.top: '10'", "spark.mqshards.top: '3'"))
    project = Project(directory, {"spark.mqshards.formats": "{}", "spark.sql.shuffle.partitions": "5"})
    configuration = project.spec()["configuration"]
    assert configuration["spark.mqshards.top"] == "3" and configuration["spark.sql.shuffle.partitions"] == "5"
    assert configuration["spark.mqshards.brokers"] == "a:1" and configuration["spark.mqshards.topics"] == "t"
    assert project.application_settings()["spark.driver.memory"] == "2g"
    assert "shuffle.partitions: '8'" in spec.read_text()
    (directory / "conf" / "spark-defaults.conf").unlink()
    with pytest.raises(ProjectError, match=r"spark-defaults\.conf: No such file"):
        project.application_settings()
    spec.write_text("configuration: [")
    with pytest.raises(ProjectError, match="is no spec"):
        project.spec()
    # As each run wrote it before: nobody has changed it.
    spec.write_text("# Written by mq-pipeline run.\nname: x\n")
    Project(directory).write()
    assert "name: mq-shards" in spec.read_text()


def test_another_format_of_tables_wants_its_package_for_this_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["init", "--dir", str(tmp_path / "project"), "--topics", "t", "--table-format"]
    ours = ".".join(pyspark.__version__.split(".")[:2])
    packages = {"delta": "io.delta:delta-spark", "iceberg": "org.apache.iceberg:iceberg-spark-runtime"}
    for name, package in packages.items():
        assert main([*words, name]) == 1
        wanted = f"{package}_{ours}_2.13:VERSION"
        assert f"--conf spark.jars.packages={wanted}" in capsys.readouterr().err
        other = f"spark.jars.packages={package}_3.5_2.13:1.0"
        assert main([*words, name, "--conf", other]) == 1 and wanted in capsys.readouterr().err
        assert not (tmp_path / "project").exists()
    fits = f"spark.jars.packages={packages['delta']}_{ours}_2.13:9.9"
    assert main([*words, "delta", "--conf", fits]) == 0
    project = Project(tmp_path / "project")
    assert project.spec()["configuration"]["spark.sql.sources.default"] == "delta"
    assert "DeltaCatalog" in project.application_settings()["spark.sql.catalog.spark_catalog"]
    assert main(["run", "--dir", str(tmp_path / "project"), "--table-format", "parquet"]) == 1
    assert "are what they are" in capsys.readouterr().err


def test_two_runs_do_not_work_in_one_directory(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    project.write()
    with project.lock(), pytest.raises(ProjectError, match="another run"), project.lock():
        pass


def test_a_first_run_that_died_early_leaves_no_half_catalog(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "metastore").mkdir()
    project.remove_unborn()
    assert not (tmp_path / "metastore").exists()
    for name in ("storage", "metastore"):
        (tmp_path / name).mkdir()
    project.remove_unborn()
    assert (tmp_path / "metastore").exists()


@pytest.mark.parametrize("storage", ["gone", "elsewhere"])
def test_tables_with_rows_stay_wherever_their_checkpoints_are(tmp_path: Path, storage: str) -> None:
    project = Project(tmp_path / "p")
    project.write()
    if storage == "elsewhere":
        (tmp_path / "elsewhere").mkdir()
        spec = project.spec_path.read_text()
        project.spec_path.write_text(spec.replace(f"{tmp_path}/p/storage", f"{tmp_path}/elsewhere"))
    else:
        (tmp_path / "p" / "warehouse" / "messages").mkdir(parents=True)
        (tmp_path / "p" / "warehouse" / "messages" / "part-0.parquet").touch()
    (tmp_path / "p" / "metastore").mkdir()
    project.remove_unborn()
    assert (tmp_path / "p" / "metastore").exists()


def test_a_table_of_which_spark_would_leave_out_rows_is_not_written(tmp_path: Path) -> None:
    """Its file sink has micro-batches of these numbers already: the checkpoint is lost, or of another flow."""
    project = Project(tmp_path)
    options = argparse.Namespace(full_refresh_all=False, full_refresh=[])
    run_job._check_checkpoints(project, options)
    for table in ("raw_messages", "messages"):
        log = tmp_path / "warehouse" / table / "_spark_metadata"
        log.mkdir(parents=True)
        (log / "2").write_text("v1")
        (log.parent / "part-0.parquet").touch()
    with pytest.raises(ProjectError, match=r"no checkpoints of them any more: .* --full-refresh-all"):
        run_job._check_checkpoints(project, options)
    checkpoints = tmp_path / "storage" / "_checkpoints" / "spark_catalog" / "default"
    for table, number, begun in (("raw_messages", "0", "3"), ("messages", "9", "5"), ("messages", "10", "1")):
        offsets = checkpoints / table / table / number / "offsets"
        offsets.mkdir(parents=True)
        (offsets / begun).write_text("v1\n{}\n{}")
    with pytest.raises(ProjectError, match=r"go with the tables messages: .* --full-refresh messages,"):
        run_job._check_checkpoints(project, options)
    options.full_refresh = ["default.Messages"]
    run_job._check_checkpoints(project, options)
    offsets = checkpoints / "messages" / "messages" / "10" / "offsets"
    (offsets / "1").rename(offsets / "2")
    (checkpoints / "messages").rename(checkpoints / "Messages")
    options.full_refresh = []
    run_job._check_checkpoints(project, options)
    (checkpoints / "Messages" / "of_files" / "0" / "offsets").mkdir(parents=True)
    said = r"written by 2 flows \(messages, of_files\), and has lost rows: .* --full-refresh messages"
    with pytest.raises(ProjectError, match=said):
        run_job._check_checkpoints(project, options)


def test_only_views_that_the_catalog_has_lost_are_removed(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for name in ("messages", "topic_minutes", "top_talkers"):
        (tmp_path / "warehouse" / name).mkdir(parents=True)
    project.remove_dropped({"messages", "top_talkers"})
    assert sorted(path.name for path in (tmp_path / "warehouse").iterdir()) == ["messages", "top_talkers"]


def test_flows_that_a_refresh_leaves_alone_are_not_listed_nor_failed_ones_called_done() -> None:
    states = ("EXCLUDED", "QUEUED", "RUNNING", "COMPLETED", "FAILED")
    lines = [f"Flow 'spark_catalog.default.mine' is {state}." for state in states]
    said = [line.split(" s  ")[1] for line in run_job._progress(lines, time.monotonic())]
    assert said == ["mine: running", "mine: ended", lines[-1]]


def test_static_settings_are_not_in_the_spec(tmp_path: Path) -> None:
    given = {"spark.sql.shuffle.partitions": "3", "spark.sql.warehouse.dir": "file:///else"}
    ours = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-Dours=1"}
    project = Project(tmp_path, given | ours)
    configuration = project.spec()["configuration"]
    assert configuration["spark.sql.shuffle.partitions"] == "3"
    assert not {"spark.sql.warehouse.dir", "spark.driver.memory"} & set(configuration)
    settings = project.application_settings()
    assert settings["spark.sql.warehouse.dir"] == "file:///else"
    assert settings["spark.driver.extraJavaOptions"].endswith(f"{tmp_path}/derby.log -Dours=1")


def test_what_looks_like_a_secret_is_not_hidden_from_the_transformations(tmp_path: Path) -> None:
    """Spark hides it: a broker that has users would be asked without a token, and for other topics."""
    directory = tmp_path / "project"
    words = ["--token-file", "/token", "init", "--dir", str(directory), "--topics", "password-resets"]
    assert main(words) == 0
    configuration = yaml.safe_load(Project(directory).write_run_spec().read_text())["configuration"]
    secret = re.compile("(?i)secret|password|token|access[.]?key")  # spark.redaction.regex

    def get(key: str, default: str) -> str:
        value = configuration.get(key, default)
        return default if secret.search(key) or secret.search(value) else value

    spark = SimpleNamespace(conf=SimpleNamespace(get=get))
    found = source_options(spark)  # type: ignore[arg-type]
    assert found == Project(directory).source_options()
    assert (found["tokenFile"], found["topics"]) == ("/token", "password-resets")


def test_a_run_logs_what_its_project_says(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write()
    options = project.running_settings()["spark.driver.extraJavaOptions"]
    assert options.startswith(f"-Dlog4j2.configurationFile=file:{tmp_path}/conf/log4j2.properties ")
    assert options.endswith(f"{tmp_path}/derby.log")
    assert "log4j2" not in (tmp_path / "conf" / "spark-defaults.conf").read_text()


def test_a_project_of_an_older_release_registers_nothing_that_is_read() -> None:
    """Spark finds the source by itself: one that is registered in a pipeline's session ends the run with an error."""
    from mq_shards.pipeline.declarative.source import PipelineSource
    from mq_shards.pipeline.source import MqShards

    assert PipelineSource.name() != MqShards.name()


def test_where_spark_would_not_find_the_source_a_project_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ValueError, match=r"install mq-shards.* or pyspark_mqshards"):
        check_source()
    monkeypatch.setattr(sys, "path", [str(IN_CHECKOUT)])
    check_source()
    relative = str(IN_CHECKOUT.relative_to(ROOT))
    for name, path in (("PYSPARK_PYTHON", ".venv/bin/python"), ("PYTHONPATH", f"elsewhere:{relative}")):
        with monkeypatch.context() as patch:
            patch.setenv(name, path)
            with pytest.raises(ValueError, match=f"{name}={path.split(':')[-1]}: a path from / on is wanted"):
                check_source()
            patch.setenv(name, f"{ROOT / path.split(':')[-1]}")
            check_source()
    monkeypatch.setenv("PYTHONPATH", f"{relative}:{IN_CHECKOUT}")
    check_source()


FAILING_ONCE = """
import sys
from mq_shards.pipeline import run, running
from mq_shards.pipeline.command import main
from mq_shards.pipeline.spark_pipelines import PipelineError
real = run._round

def fail(*given: object) -> None:
    run._round = real
    real(*given)
    raise PipelineError("the run failed", running.NOT_STARTED[1])

run._round = fail
sys.exit(main())
"""


@pytest.mark.long
def test_a_run_that_is_tried_again_finds_the_catalog_that_its_jvm_has_open(broker: Broker, tmp_path: Path) -> None:
    broker.publish("orders", [event(1)])
    words = job(broker, tmp_path / "project", "--dry-run")
    said = run([sys.executable, "-c", FAILING_ONCE, *words[words.index("--master") :]])
    assert "could not start a Python worker in 10 s; trying again" in said
    assert "the project is sound" in said
