"""Where the package is installed, Spark finds the format by itself. Spark looks when a session begins: hence one of its
own, which finds the package where a checkout has it."""

from __future__ import annotations

import os
import subprocess
import sys
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


@pytest.mark.long
def test_spark_finds_the_format_without_an_import(gateway: Gateway, tmp_path: Path) -> None:
    for n in range(4):
        gateway.topic("a").add(b"%d" % n)
    path = [str(ROOT / "pipeline" / "default_source"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM, gateway.address], env=environment, cwd=tmp_path, timeout=200,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "rows [2, 3]" in said.stdout, said.stderr[-3000:]
    assert "modules []" in said.stdout, "the driver's program imports nothing of ours"
