"""A token gets to the tasks, and is in nothing that Spark shows or writes: plans, logs, the UI, the event log,
checkpoints. Neither is one that a file names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.broker import broker_in
from tests.servers import ROOT, free_port

IN_AN_OPTION, IN_A_FILE = "option-4d1f0c99aa", "file-77b1e02f3c"
LOG = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c: %m%n%ex
logger.catalyst.name = org.apache.spark.sql
logger.catalyst.level = debug
"""
PROGRAM = """
import sys
from urllib.request import urlopen
from mq_shards import pipeline
from pyspark.sql import SparkSession

brokers, token, file, directory, port = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.port", port).config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.dir", "file:" + directory + "/events").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-Dlog4j2.configurationFile=file:" + directory + "/log4j2.properties")
    .config("spark.eventLog.compress", "false").config("spark.sql.debug.maxToStringFields", "1000").getOrCreate()
)
pipeline.register(spark)
for given in ({"token": token}, {"tokenFile": file}):
    of = dict(brokers=brokers, topic="numbers", **given)
    rows = spark.read.format("mqshards").options(**of).load()
    rows.where("seq > 3").explain("extended")
    rows.where("seq > 3").explain("formatted")
    print("read", rows.count())
    few = rows.where("seq < 5").select("body")
    few.write.format("mqshards").options(**(of | {"topic": "copy"})).mode("append").save()
    stream = spark.readStream.format("mqshards").options(**of, startingOffsets="earliest", subscription="s").load()
    query = stream.select("body").writeStream.format("mqshards").options(**(of | {"topic": "streamed"}))
    where = directory + "/checkpoint-" + next(iter(given))
    query = query.option("checkpointLocation", where).trigger(availableNow=True).start()
    query.awaitTermination(100)
    print(query.lastProgress, query.status)
    query.explain(True)
for where in ("jobs/", "stages/", "environment/", "executors/", "SQL/", "StreamingQuery/"):
    print(urlopen(f"http://127.0.0.1:{port}/{where}").read().decode())
rest = f"http://127.0.0.1:{port}/api/v1/applications/{spark.sparkContext.applicationId}"
for where in ("/sql?details=true&planDescription=true", "/environment", "/jobs", "/stages?details=true"):
    print(urlopen(rest + where).read().decode())
try:
    spark.read.format("mqshards").options(**(of | {"topic": "nowhere"})).load().count()
except Exception as error:
    print(error)
spark.stop()
"""


@pytest.mark.long
def test_a_token_is_in_nothing_that_spark_shows_or_writes(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "log4j2.properties").write_text(LOG)
    file = tmp_path / "token"
    file.write_text(IN_A_FILE)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with broker_in(tmp_path / "data", workers=1) as broker:
        broker.publish_numbers("numbers", 100)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, broker.address, IN_AN_OPTION, file, tmp_path, str(free_port())],
            env=environment, cwd=ROOT, capture_output=True, text=True, timeout=350, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stdout.count("read 100") == 2 and broker.topic("streamed")["records"] == 200
    file.unlink()
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(b"SparkListenerApplicationStart" in content for content in written.values())
    assert "redacted" in done.stdout and "mqshards" in done.stdout and "DEBUG" in done.stderr
    for secret in (IN_AN_OPTION, IN_A_FILE):
        assert secret not in done.stdout
        assert secret not in done.stderr
        assert [path for path, content in written.items() if secret.encode() in content] == []
