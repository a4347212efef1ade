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
    from mq_shards.pipeline.source import MqShards
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote
except ModuleNotFoundError as error:
    needed = f"the pipeline needs Spark: pip install 'mq-shards[spark]', and Java 17 (there is no {error.name})"
    # The command's own module is in this package, so it would have a traceback.
    if Path(sys.argv[0]).name == "mq-pipeline":
        sys.exit(f"mq-pipeline: {needed}")
    raise ModuleNotFoundError(needed) from error

__all__ = ["MqShards", "register"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Makes the format known to a session, and lets Spark give it the filters of a query."""
    spark.dataSource.register(MqShards)
    # Spark refuses a data source that takes filters while this is off, which is the default. In a declarative project
    # it is for the spec to say, and setting it an error.
    if spark.conf.get(PUSHDOWN, "false") != "true":
        spark.conf.set(PUSHDOWN, "true")


if not is_remote() and (_active := SparkSession.getActiveSession()) is not None:
    register(_active)
