"""Sums of messages that can be summed up again, in any order; the views of the declarative project add them up.

At first each message is a row, with 1 as `messages`. Rows of a group, from whatever runs, become one row with their
sums. So messages that were summed up need not be read again, and may be deleted.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

SUMS: Final = ("messages", "bytes", "delay_ms")
GREATEST: Final = ("max_bytes",)
_OF_MINUTES: Final = ("minute", "delay_class", "delay_ms")


def grouped(rows: pa.Table) -> pa.Table:
    """Returns one row for each group; columns that hold no figures are its key. A row that has both a minute and a
    source becomes two, one with each: else there would be as many groups as messages."""
    if "source" in rows.column_names:
        rows = _apart(rows)
    figures = [(name, "sum") for name in SUMS if name in rows.column_names]
    figures += [(name, "max") for name in GREATEST if name in rows.column_names]
    keys = [name for name in rows.column_names if name not in (*SUMS, *GREATEST)]
    found = rows.group_by(keys).aggregate(figures)
    found = found.rename_columns([*keys, *(name for name, _ in figures)])
    return found.select(rows.column_names).cast(rows.schema)


def _apart(rows: pa.Table) -> pa.Table:
    of_minutes = _without(rows.filter(pc.is_valid(rows["minute"])), "source")
    of_sources = _without(rows.filter(pc.is_valid(rows["source"])), *_OF_MINUTES)
    return pa.concat_tables([of_minutes, of_sources])


def _without(rows: pa.Table, *names: str) -> pa.Table:
    for name in names:
        place = rows.column_names.index(name)
        rows = rows.set_column(place, rows.schema.field(name), pa.nulls(rows.num_rows, rows.schema.field(name).type))
    return rows
