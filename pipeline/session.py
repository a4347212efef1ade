"""The Spark session of the jobs of mq-pipeline."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mq_shards import pipeline
from pyspark.sql import SparkSession

NICENESS: Final = 10


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
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        builder = (
            builder.config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
        )
    quiet = Path(__file__).with_name("declarative") / "conf" / "log4j2.properties"
    java_options = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{quiet}"}
    for key, value in (java_options | dict(settings or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    pipeline.register(spark)
    return spark
