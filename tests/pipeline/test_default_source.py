"""Where the package is installed, Spark finds the format by itself. Spark looks when a session begins: hence one of its
own, which finds the package where a checkout has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.pipeline.serving import Gateway
from tests.servers import ROOT

PROGRAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("mqshards").option("brokers", sys.argv[1]).option("topic", "a").load()
print("rows", [row.seq for row in frame.where("seq > 1").collect()])
print("modules", sorted(name for name in sys.modules if name.split(".")[0] in ("mq_shards", "pyspark_mqshards")))
"""


# Of the source itself, and of a session: what each says of the format when a package is missing.
USED = """
import sys
sys.modules["orjson"] = None
from pyspark_mqshards import DefaultSource
from pyspark.sql.datasource import DataSource
assert issubclass(DefaultSource, DataSource)
print(DefaultSource.name())
DefaultSource({})
"""
ASKED = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.read.format("mqshards").option("topic", "a").load()
"""


def run(program: str, tmp_path: Path, *arguments: str, first: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """`first`: folders where modules are looked for before all others."""
    path = [*map(str, first), str(ROOT / "pipeline" / "default_source")]
    path += filter(None, [os.environ.get("PYTHONPATH")])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, cwd=tmp_path, timeout=200, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


def test_a_missing_package_is_named_where_the_format_is_used(tmp_path: Path) -> None:
    said = run(USED, tmp_path)
    assert said.stdout == "mqshards\n", said.stderr
    assert "cannot read or write mqshards: ModuleNotFoundError: import of orjson halted" in said.stderr


@pytest.mark.long
def test_spark_tells_of_a_missing_package(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "orjson.py").write_text("raise ModuleNotFoundError('there is no orjson')")
    said = run(ASKED, tmp_path, first=[tmp_path / "first"])
    assert "mqshards: ModuleNotFoundError: there is no orjson. Install the wheel" in said.stderr, said.stderr[-3000:]


@pytest.mark.long
def test_spark_finds_the_format_without_an_import(gateway: Gateway, tmp_path: Path) -> None:
    for n in range(4):
        gateway.topic("a").add(b"%d" % n)
    said = run(PROGRAM, tmp_path, gateway.address)
    assert "rows [2, 3]" in said.stdout, said.stderr[-3000:]
    assert "modules []" in said.stdout, "the driver's program imports nothing of ours"
