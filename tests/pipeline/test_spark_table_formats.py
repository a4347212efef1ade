"""The declarative project on PySpark 4.2, with tables of Parquet, and of Delta, which has a release for that one. Where
they cannot be had there is nothing to run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pipeline.broker import Broker, broker_in
from tests.servers import ROOT

VERSION = "4.2.1"
DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
# Delta reads its own log in 50 partitions otherwise, whatever there is in it.
SMALL = "spark.databricks.delta.snapshotPartitions=1"
FORMATS = {"parquet": (), "delta": ("--conf", f"spark.jars.packages={DELTA}", "--conf", SMALL)}
RUN_S = 1500
SHOWN = "topic_quality\ntopic   read  kept  duplicates  bad\n------  ----  ----  ----------  ---\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """That PySpark before the one of our own; all else they have in common."""
    into = tmp_path_factory.mktemp("pyspark")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", "--target", into]
    done = subprocess.run([*pip, f"pyspark=={VERSION}"], capture_output=True, text=True, timeout=RUN_S, check=False)
    if done.returncode:
        pytest.skip(f"there is no PySpark {VERSION}: {done.stderr[-200:]}")
    left = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "JAVA_TOOL_OPTIONS")}
    return left | {"PYTHONPATH": str(into), "SPARK_HOME": str(into / "pyspark"), "SPARK_LOCAL_IP": "127.0.0.1"}


def event(number: int) -> bytes:
    return json.dumps({"id": number, "time": time.time() - 0.5, "user": f"user-{number % 3}"}).encode()


def run(broker: Broker, project: Path, environment: dict[str, str], *more: str) -> str:
    job = [sys.executable, "-W", "ignore", "-m", "mq_shards.pipeline.command", "--master", "local[2]", "--nice", "0"]
    done = subprocess.run(
        [*job, "--brokers", broker.address, "run", "--dir", str(project), *more], cwd=ROOT, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_S, text=True,
        check=False,
    )  # fmt: skip
    if any(DELTA in word for word in more) and "unresolved dependency" in done.stdout:
        pytest.skip(f"there is no {DELTA}")
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(5 * RUN_S)
@pytest.mark.parametrize("table_format", FORMATS)
def test_each_event_is_in_the_tables_once(table_format: str, environment: dict[str, str], tmp_path: Path) -> None:
    project = tmp_path / "project"
    with broker_in(tmp_path / "data") as broker:
        broker.publish("orders", [*(event(number) for number in range(30)), event(3), b"{torn", b"text"])
        broker.publish("notes", [b"a note", b"another", b"a note"])
        words = ["--topics", "orders,notes", "--format", "orders=json", "--table-format", table_format]
        words += ["--conf", "spark.sql.shuffle.partitions=1", *FORMATS[table_format]]
        said = run(broker, project, environment, *words)
        assert SHOWN + "notes      3     2           1    0\norders    33    30           1    2\n" in said
        broker.publish("orders", [*(event(number) for number in range(25, 40)), b"{torn again"])
        said = run(broker, project, environment)
        assert SHOWN + "notes      3     2           1    0\norders    49    40           6    3\n" in said
        said = run(broker, project, environment, "--full-refresh-all")
        assert SHOWN + "notes      3     2           1    0\norders    49    40           6    3\n" in said
        logs = {path.parent.name for path in (project / "warehouse").glob("*/_delta_log")}
        assert ("messages" in logs) == (table_format == "delta")
