"""Whether a project's tables go with the checkpoints that there are.

Spark's file sink takes no micro-batch up to the last one in the table's log, by its number alone. So it leaves out, and
says nothing, what a flow reads whose checkpoint was lost, and what the second flow of a table reads. Spark keeps the
checkpoint of a flow in STORAGE/_checkpoints/CATALOG/DATABASE/TABLE/FLOW/N, where N rises with each full refresh.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from mq_shards.pipeline.checkpoint import begun_with
from mq_shards.pipeline.sink_log import newest_batch

_REMEDY: Final = "bring them back, or begin {} anew with {}, with what brokers still have"


def has_rows(warehouse: Path) -> bool:
    return any(warehouse.rglob("part-*"))


def wrong(storage: Path, warehouse: Path, anew: Collection[str]) -> str | None:
    """Says which tables lose rows, but for those that are begun `anew`, and what to do; None if none does. Raises
    OptionError if a checkpoint is damaged."""
    kept = storage / "_checkpoints"
    if not kept.is_dir():
        if not has_rows(warehouse):
            return None
        remedy = _REMEDY.format("all tables", "--full-refresh-all")
        return f"{warehouse} has tables, and {storage} no checkpoints of them any more: {remedy}"
    spared = {table.lower() for table in anew}
    found = [log.parent for log in warehouse.glob("*/_spark_metadata")]
    logs = {table.name: table for table in found if table.name.lower() not in spared}
    for table in sorted(logs):
        flows = _flows(kept, table)
        for of_table in {flow.parent for flow in flows}:  # in several databases a table may have this name
            if len(names := sorted(flow.name for flow in flows if flow.parent == of_table)) > 1:
                return _lost_rows(table, names, of_table)
    lost = sorted(table for table, directory in logs.items() if newest_batch(directory) > _begun(kept, table))
    if not lost:
        return None
    remedy = _REMEDY.format("them", f"--full-refresh {','.join(lost)}")
    return f"{storage} has no checkpoints any more that go with the tables {', '.join(lost)}: {remedy}"


def _lost_rows(table: str, flows: Sequence[str], checkpoints: Path) -> str:
    return (
        f"the table {table} is written by {len(flows)} flows ({', '.join(flows)}), and has lost rows: Spark's file "
        "sink takes a micro-batch's number once, whichever flow it is of. Make one flow of them (UNION ALL) or a table "
        f"of each, remove {checkpoints}, and begin it anew with --full-refresh {table}"
    )


def _flows(kept: Path, table: str) -> list[Path]:
    """A catalog may write a table's name in small letters."""
    return [flow for flow in kept.glob("*/*/*/*") if flow.parent.name.lower() == table.lower()]


def _begun(kept: Path, table: str) -> int:
    """Returns the last micro-batch that was begun of the table; -1: none."""
    flows = _flows(kept, table)
    newest = (max(flow.glob("[0-9]*"), key=lambda path: int(path.name), default=flow) for flow in flows)
    return max((begun_with(checkpoint) for checkpoint in newest), default=-1)
