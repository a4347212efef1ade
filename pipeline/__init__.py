"""Spark on mq-shards: the data source `mqshards`.

    from mq_shards import pipeline

    pipeline.register(spark)
    spark.read.format("mqshards").option("brokers", "127.0.0.1:4180").option("topic", "orders").load()

The import alone registers it with the session that is active, if there is one; but not over Spark Connect, whose
clients declarative projects are: those leave it to Spark (`declarative.settings.check_source`).
"""

from __future__ import annotations

import sys
from pathlib import Path

try:
    from mq_shards.pipeline.source import MqShards, Unfiltered
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote
except ModuleNotFoundError as error:
    needed = f"the pipeline needs Spark: pip install 'mq-shards[spark]', and Java 17 (there is no {error.name})"
    # The command's own module is in this package, so it would have a traceback.
    if Path(sys.argv[0]).name == "mq-pipeline":
        sys.exit(f"mq-pipeline: {needed}")
    raise ModuleNotFoundError(needed) from error

__all__ = ["MqShards", "Unfiltered", "register"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, push_filters: bool = False) -> None:
    """Makes the format known to a session. With `push_filters` Spark gives it the filters of a query, also with the
    session's own `spark.sql.python.filterPushdown.enabled`: then each `load()` is for one filter only. Of what was
    pushed last Spark (4.1 to 4.3) makes all later scans of the same load, whatever they ask for."""
    is_on = spark.conf.get(PUSHDOWN, "false") == "true"
    # Spark refuses a data source that takes filters while this is off, which is the default. In a declarative project
    # it is for the spec to say, and setting it an error.
    if push_filters and not is_on:
        spark.conf.set(PUSHDOWN, "true")
    # Spark looks in the session that is active whether there is one already, and registers it here: of a session that
    # is not active it says that there is.
    spark.createDataFrame([], "is_active boolean")
    spark.dataSource.register(MqShards if push_filters or is_on else Unfiltered)


if not is_remote() and (_active := SparkSession.getActiveSession()) is not None:
    register(_active)
