"""The Spark session of the jobs of mq-pipeline."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mq_shards import pipeline
from mq_shards.pipeline.declarative.restart import python_path
from pyspark.sql import SparkSession

NICENESS: Final = 10
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"


def open_session(
    master: str, name: str, settings: Mapping[str, str] | None = None, nice: int = NICENESS
) -> SparkSession:
    """Executors on this machine use this interpreter and find what it finds; on a cluster, what is installed there.
    `nice`: by so much they stand back on this machine."""
    local = master.startswith("local")
    builder = (
        SparkSession.builder.master(master)
        .appName(name)
        .config("spark.ui.showConsoleProgress", "false")
        # Dates are days in UTC, wherever a job runs.
        .config("spark.sql.session.timeZone", "UTC")
    )
    if local:
        # Where the broker runs too, its clients come first.
        os.nice(max(0, nice - os.nice(0)))  # a job that is tried again is no nicer
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYTHONPATH"] = python_path(*sys.path)
        builder = (
            builder.config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
        )
    quiet = Path(__file__).with_name("declarative") / "conf" / "log4j2.properties"
    given = dict(settings or {})
    # Before what is given, which may name another: the last one counts.
    given[JAVA_OPTIONS] = f"-Dlog4j2.configurationFile=file:{quiet} {given.get(JAVA_OPTIONS, '')}".rstrip()
    for key, value in given.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    pipeline.register(spark)
    return spark
