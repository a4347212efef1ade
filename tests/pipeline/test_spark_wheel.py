"""The wheel for Spark alone, `pyspark_mqshards`: in environments that have nothing else of ours, no compiler, and
another PySpark each; with its C core and without."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.pipeline.broker import broker_in
from tests.servers import ROOT

VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
COUNT = 3000
PROGRAM = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC").getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
brokers, directory, end = sys.argv[1:]
mqshards = lambda of: of.format("mqshards").option("brokers", brokers)

numbers = mqshards(spark.read).option("topic", "numbers").load()
print("read", numbers.count(), numbers.selectExpr("sum(int(string(body)))").first()[0])
try:
    print("counted", mqshards(spark.read).option("topic", "numbers").schema(StructType()).load().count())
except Exception as error:
    print("counted", "counts no rows without columns" in str(error))
row = numbers.where("seq = 7").first()
print("row", row.topic, row.seq, bytes(row.body), sorted(row.attributes), row.timestamp is not None, row.batch_index)

said = spark.range(50).selectExpr(
    f"'copy{end}' topic", "string(id) body", "map('n', string(id)) attributes", "string(id) key")
mqshards(said.write).mode("append").save()
copy = mqshards(spark.read).option("topics", f"copy{end},numbers").load().where(f"topic = 'copy{end}'")
print("written", sorted((int(r.body), r.attributes["n"], r.attributes["key"]) for r in copy.collect()) == [
    (n, str(n), str(n)) for n in range(50)])

rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).option("numPartitions", 1).load()
rows = rows.where("value < 40").selectExpr("string(value) body", "map('n', string(value)) headers")
query = mqshards(rows.writeStream).option("topic", "streamed" + end)
query = query.option("checkpointLocation", directory + "/w").start()
while query.lastProgress is None or query.lastProgress["batchId"] < 4:
    query.exception() and print(query.exception())
    query.awaitTermination(0.2)
query.stop()
streamed = mqshards(spark.read).option("topic", "streamed" + end).load().collect()
print("streamed", sorted((int(r.body), r.attributes["n"]) for r in streamed) == [(n, str(n)) for n in range(40)])

def archived():
    stream = mqshards(spark.readStream).option("topic", "copy" + end).option("startingOffsets", "earliest").load()
    query = stream.writeStream.format("parquet").option("path", directory + "/t").trigger(availableNow=True)
    query = query.option("checkpointLocation", directory + "/r")
    while True:
        try:
            query.start().awaitTermination(100)
            break
        except Exception as error:  # Spark gives a Python process 10 s to start
            if "worker failed to connect back" not in str(error):
                raise
    return spark.read.parquet(directory + "/t").selectExpr("count(*)", "count(distinct seq)", "max(seq)").first()

print("stream", *archived())
mqshards(said.write).mode("append").save()
if spark.version < "4.2":
    wrapper = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
    spark.conf.set(wrapper, "true")
    try:
        archived()
    except Exception as error:
        print("refused", wrapper in str(error))
    spark.conf.set(wrapper, "false")  # as it is if nobody says so
print("stream", *archived())
"""
CORE = """
from mq_shards.pipeline.decode import Decoder
from mq_shards.pipeline.encode import Column
print(Decoder.__module__, Column.__module__)
"""


@pytest.fixture(scope="module")
def wheels() -> dict[str, Path]:
    subprocess.run(["make", "-s", "wheel-spark"], cwd=ROOT, check=True, timeout=900)
    found = sorted((ROOT / "dist").glob("pyspark_mqshards-*.whl"))
    assert len(found) == 2
    return {"python" if "none-any" in path.name else "core": path for path in found}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_wheels_have_nothing_of_the_broker_and_are_small(wheels: dict[str, Path]) -> None:
    for wheel in wheels.values():
        names = zipfile.ZipFile(wheel).namelist()
        folders = {name.rpartition("/")[0] for name in names if name[-1] != "/" and "dist-info" not in name}
        parts = {"csrc", "pipeline", "pipeline/declarative", "shards"}
        assert folders == {f"mq_shards/{part}" for part in parts} | {"pyspark_mqshards"}
        assert {name for name in names if name.startswith("mq_shards/shards/")} == {
            f"mq_shards/shards/{name}.py" for name in ("__init__", "reader_names")
        }
        assert wheel.stat().st_size < 400_000


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("version", VERSIONS)
def test_spark_reads_and_writes_with_it_alone(version: str, wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "JAVA_TOOL_OPTIONS")}
    environment |= {"CC": "false", "SPARK_LOCAL_IP": "127.0.0.1"}
    venv = tmp_path / "venv"
    python = venv / "bin" / "python"
    environment["PYSPARK_PYTHON"] = str(python)

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            [*map(str, command)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=1200,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    run(sys.executable, "-m", "venv", venv)
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, "setuptools", "wheel")
    # Its own build of a JAR's wheel needs no compiler; pandas is what Spark has its Arrow code look for.
    run(*pip, f"pyspark=={version}", "pandas>=2.2,<3")
    refused = ["refused True"] if version < "4.2" else []
    with broker_in(tmp_path / "data") as broker:
        broker.publish_numbers("numbers", COUNT)
        for kind, wheel in wheels.items():
            run(*pip, "--force-reinstall", "--no-deps", wheel)
            run(*pip, wheel)
            run(python, "-m", "pip", "check")
            assert run(python, "-c", CORE).split() == [f"mq_shards.pipeline.{d}_{kind}" for d in ("decode", "encode")]
            said = run(python, "-c", PROGRAM, broker.address, tmp_path / kind, kind)
            assert said.splitlines() == [
                f"read {COUNT} {COUNT * (COUNT - 1) // 2}",
                f"counted {True if version < '4.1' else COUNT}",
                "row numbers 7 b'000000000007' ['pri', 'ttr_ms'] True -1",
                "written True",
                "streamed True",
                "stream 50 50 49",
                *refused,
                "stream 100 100 99",
            ]
