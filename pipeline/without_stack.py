"""What Spark is told of our errors: their line, which says all, without the stack of Python's around it. Other errors,
which nobody has foreseen, keep theirs.

A process of Spark's ends when it has told an error. So what is set here, in the process that is about to do so, is for
this error alone: Spark sets the same for `spark.sql.execution.pyspark.udf.hideTraceback.enabled`, for all errors.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

HIDE: Final = "SPARK_HIDE_TRACEBACK"
OF_SPARK: Final = "SPARK_BUFFER_SIZE"  # what Spark sets in each Python process that it starts
OURS: Final = __name__.partition(".")[0] + "."
# What Spark calls of a source, a reader or a writer. Not streamReader: after an error of it PySpark (4.3) raises one of
# its own, and only the stack has ours then.
CALLS: Final = (
    "reader", "writer", "streamWriter",
    "partitions", "read", "pushFilters",
    "initialOffset", "latestOffset", "prepareForTriggerAvailableNow", "reportLatestOffset",
    "write", "commit", "abort",
)  # fmt: skip


def told(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **given: Any) -> Any:  # noqa: ANN401
        with _telling():
            found = method(*args, **given)
        return _each(found) if isinstance(found, Generator) else found

    return call


def _each(found: Iterator[Any]) -> Iterator[Any]:
    with _telling():
        yield from found


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if OF_SPARK in os.environ and type(error).__module__.startswith(OURS):
            os.environ[HIDE] = "1"
        raise
