"""Spark on mq-shards: the data source `mqshards`.

    from mq_shards import pipeline

    pipeline.register(spark)
    spark.read.format("mqshards").option("brokers", "127.0.0.1:4180").option("topic", "orders").load()

The import alone registers it with the active session, if there is one, but not over Spark Connect. Declarative projects
run over Spark Connect and leave it to Spark to find the source (`declarative.settings.check_source`).
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

# mq-pipeline imports this package before all else.
IS_THE_COMMAND = Path(sys.argv[0]).name == "mq-pipeline"
if IS_THE_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until a job begins, which takes signals as exceptions, they end it at once: not by a traceback out of an import.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

try:
    from mq_shards.pipeline.source import MqShards, Unfiltered
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote
except ModuleNotFoundError as error:
    needed = f"the pipeline needs Spark: pip install 'mq-shards[spark]', and Java 17 (there is no {error.name})"
    if IS_THE_COMMAND:
        sys.exit(f"mq-pipeline: {needed}")
    raise ModuleNotFoundError(needed) from error

__all__ = ["MqShards", "Unfiltered", "register"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, push_filters: bool = False) -> None:
    """Registers the format with a session. With `push_filters`, or if the session has set
    `spark.sql.python.filterPushdown.enabled`, Spark hands the filters of a query to the source. Then use each `load()`
    for one filter only: Spark (4.1 to 4.3) applies the last pushed filters to all later scans of that load."""
    is_on = spark.conf.get(PUSHDOWN, "false") == "true"
    # Spark refuses a data source that takes filters while this setting is off, which is the default. In a declarative
    # project only the spec may set it; setting it here is an error.
    if push_filters and not is_on:
        spark.conf.set(PUSHDOWN, "true")
    # Spark looks for the source's name in the active session, but registers it in this one. This call makes this
    # session the active one; otherwise Spark would report that the source exists already.
    spark.createDataFrame([], "is_active boolean")
    spark.dataSource.register(MqShards if push_filters or is_on else Unfiltered)


if not is_remote() and (_active := SparkSession.getActiveSession()) is not None:
    register(_active)
