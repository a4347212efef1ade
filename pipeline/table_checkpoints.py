"""Whether a project's tables still have the checkpoints that they were written with.

Without them a run would read everything again, and leave out what it reads: Spark's file sink takes no micro-batch up
to the last one in the table's log. Spark keeps the checkpoint of a table's flow in
STORAGE/_checkpoints/CATALOG/DATABASE/TABLE/FLOW/N, where N rises with each full refresh.
"""

from __future__ import annotations

import glob
from collections.abc import Collection
from pathlib import Path
from typing import Final

from mq_shards.pipeline.checkpoint import begun_with
from mq_shards.pipeline.sink_log import newest_batch

_REMEDY: Final = "bring them back, or begin {} anew with {}, with what brokers still have"


def has_rows(warehouse: Path) -> bool:
    return any(warehouse.rglob("part-*"))


def without(storage: Path, warehouse: Path, anew: Collection[str]) -> str | None:
    """Says which tables have lost their checkpoints, but for those that are begun `anew`, and what to do; None if none
    has. Raises OptionError if a checkpoint is damaged."""
    kept = storage / "_checkpoints"
    if not kept.is_dir():
        if not has_rows(warehouse):
            return None
        remedy = _REMEDY.format("all tables", "--full-refresh-all")
        return f"{warehouse} has tables, and {storage} no checkpoints of them any more: {remedy}"
    logs = {log.parent.name: log.parent for log in warehouse.glob("*/_spark_metadata") if log.parent.name not in anew}
    lost = sorted(table for table, directory in logs.items() if newest_batch(directory) > _begun(kept, table))
    if not lost:
        return None
    remedy = _REMEDY.format("them", f"--full-refresh {','.join(lost)}")
    return f"{storage} has no checkpoints any more that go with the tables {', '.join(lost)}: {remedy}"


def _begun(kept: Path, table: str) -> int:
    """Returns the last micro-batch that was begun of the table; -1: none."""
    flows = kept.glob(f"*/*/{glob.escape(table)}/*")
    newest = (max(flow.glob("[0-9]*"), key=lambda path: int(path.name), default=flow) for flow in flows)
    return max((begun_with(checkpoint) for checkpoint in newest), default=-1)
