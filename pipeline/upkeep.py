"""Upkeep of a project's tables between its runs, if they are Parquet that Spark's streams have written.

Sums are merged into fewer rows, so that views which add them up do not grow with the number of runs. Raw messages are
dropped when they have been kept for long enough. Both replace whole files, and only later readers notice: see
`sink_log`.
"""

from __future__ import annotations

import functools
import logging
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
from mq_shards.pipeline import parts
from mq_shards.pipeline.compaction import WHOLE_BYTES, compact
from mq_shards.pipeline.sink_log import SinkLog, SinkLogError

SUMMED: Final = ("message_parts", "read_parts")
RAW: Final = "raw_messages"
READ: Final = "read_parts"

logger = logging.getLogger(__name__)


def look_after(warehouse: Path, bronze_retention_s: float | None) -> int:
    """Returns how many files of raw messages were dropped. `bronze_retention_s`: how long they are kept after they were
    read; None: for ever. Raises SinkLogError."""
    try:
        for name in SUMMED:
            if (log := _log(warehouse / name)) is not None:
                log.remove_left()
                # All that has come is summed up, even if it is only two files.
                compact(log, parts.grouped, small_bytes=WHOLE_BYTES, at_least=2)
        log = _log(warehouse / RAW)
        if log is None and bronze_retention_s is not None:
            raise SinkLogError(f"--bronze-retention: {warehouse / RAW} is no Parquet that a stream has written")
        if log is None:
            return 0
        log.remove_left()
        if bronze_retention_s is None:
            return 0
        if _log(warehouse / READ) is None:
            _tell_needed(warehouse)
            return 0
        return _drop(log, time.time() - bronze_retention_s)
    except (OSError, pa.ArrowException) as error:
        raise SinkLogError(f"the tables in {warehouse} cannot be looked after: {error}") from None


def has_dropped(warehouse: Path) -> bool:
    """Whether raw messages were dropped since their table was last emptied. Raises SinkLogError."""
    log = _log(warehouse / RAW)
    return log is not None and log.has_replaced


@functools.cache
def _tell_needed(warehouse: Path) -> None:
    """Warns once of each warehouse."""
    logger.warning(
        "--bronze-retention: nothing was dropped, as %s is not there: without it the views count raw_messages "
        "themselves. Take over transformations/gold.py of this release first (mq-pipeline init writes it)",
        warehouse / READ,
    )


def _drop(log: SinkLog, before_s: float) -> int:
    gone = {file.path for file in log.settled if file.modified_s < before_s}
    if gone:
        log.replace(gone, [])
    return len(gone)


def _log(table: Path) -> SinkLog | None:
    return SinkLog(table) if (table / "_spark_metadata").is_dir() else None
