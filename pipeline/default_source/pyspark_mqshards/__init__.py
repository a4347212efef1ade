"""Lets Spark find `mqshards` by itself: `spark.read.format("mqshards")`, with no import.

Spark looks, once in a session, for top-level modules whose names begin with `pyspark_` and that have a DefaultSource:
installed, this package is `pyspark_mqshards`. A source found this way knows nothing of the session's settings, and
Spark refuses a source that takes filters where these settings do not allow it. So this one takes none. With
`pipeline.register(spark, push_filters=True)` filters are pushed down too.

An error of this import would be hidden: Spark goes on without any source in Python, and says that there is no format of
that name. So where something is missing the format is there all the same, and says what when it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NoReturn

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]

try:
    from mq_shards.pipeline.source import Unfiltered
except Exception as error:  # also the ValueError of a library that was built for another numpy
    _error = f"{type(error).__name__}: {error}"

    class DefaultSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "mqshards"

        def __init__(self, options: Mapping[str, str]) -> NoReturn:
            raise ImportError(
                f"{sys.executable} (Python {sys.version.split()[0]}) cannot read or write mqshards: {_error}. "
                "Install the wheel pyspark_mqshards there, with what it depends on"
            )
else:

    class DefaultSource(Unfiltered):  # type: ignore[no-redef]
        pass
