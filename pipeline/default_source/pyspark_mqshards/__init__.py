"""Lets Spark find `mqshards` by itself: `spark.read.format("mqshards")`, with no import.

Spark looks, once in a session, for top-level modules whose names begin with `pyspark_` and that have a DefaultSource:
installed, this package is `pyspark_mqshards`. A source found this way knows nothing of the session's settings, and
Spark refuses a source that takes filters where these settings do not allow it. So this one takes none. With
`pipeline.register(spark, push_filters=True)` filters are pushed down too.
"""

from __future__ import annotations

from mq_shards.pipeline.source import Unfiltered

__all__ = ["DefaultSource"]


class DefaultSource(Unfiltered):
    pass
