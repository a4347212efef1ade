"""Spark on mq-shards: the data source `mqshards`.

    from mq_shards import pipeline

    pipeline.register(spark)
    spark.read.format("mqshards").option("brokers", "127.0.0.1:4180").option("topic", "orders").load()

The import alone registers it with the active session, if there is one, but not over Spark Connect. Declarative projects
run over Spark Connect and leave it to Spark to find the source (`declarative.settings.check_source`). It loads Spark
only where that is loaded already: every module here imports this one first, those of mq-pipeline --help too.
"""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq_shards.pipeline.source import MqShards, Unfiltered
    from pyspark.sql import SparkSession

__all__ = ["MqShards", "Unfiltered", "register"]

# mq-pipeline imports this package before all else.
IS_THE_COMMAND = Path(sys.argv[0]).name == "mq-pipeline"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
NEEDED = ("numpy", "pyarrow", "pyspark")


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in ("MqShards", "Unfiltered"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mq_shards.pipeline import source

    return getattr(source, name)


def register(spark: SparkSession, *, push_filters: bool = False) -> None:
    """Registers the format with a session. With `push_filters`, or if the session has set
    `spark.sql.python.filterPushdown.enabled`, Spark hands the filters of a query to the source. Then use each `load()`
    for one filter only: Spark (4.1 to 4.3) applies the last pushed filters to all later scans of that load."""
    from mq_shards.pipeline.source import MqShards, Unfiltered

    is_on = spark.conf.get(PUSHDOWN, "false") == "true"
    # Spark refuses a data source that takes filters while this setting is off, which is the default. In a declarative
    # project only the spec may set it; setting it here is an error.
    if push_filters and not is_on:
        spark.conf.set(PUSHDOWN, "true")
    # Spark looks for the source's name in the active session, but registers it in this one. This call makes this
    # session the active one; otherwise Spark would report that the source exists already.
    spark.createDataFrame([], "is_active boolean")
    spark.dataSource.register(MqShards if push_filters or is_on else Unfiltered)


def _is_there(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    return find_spec(name) is not None


def _begin() -> None:
    if IS_THE_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until a job begins, which takes signals as exceptions, they end it at once: not by a traceback of an import.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if missing := [name for name in NEEDED if not _is_there(name)]:
        needed = f"pip install 'mq-shards[spark]', and Java 17 (there is no {' and no '.join(missing)})"
        if IS_THE_COMMAND:
            sys.exit(f"mq-pipeline: the pipeline needs Spark: {needed}")
        raise ModuleNotFoundError(f"the pipeline needs Spark: {needed}", name=missing[0])
    if "pyspark.sql" in sys.modules:
        from pyspark.sql import SparkSession
        from pyspark.sql.utils import is_remote

        if not is_remote() and (active := SparkSession.getActiveSession()) is not None:
            register(active)


_begin()
