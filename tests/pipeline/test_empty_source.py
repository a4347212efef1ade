"""What reading is measured beside has the columns that reading makes, or `make bench` says nothing of Spark."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from mq_shards.pipeline.columns import SCHEMA, to_arrow

from perf.spark.empty_source import BATCH, EmptyReader, record_batch


def test_the_source_of_nothing_makes_every_column_of_ours() -> None:
    batch = record_batch(to_arrow(SCHEMA), 100)
    batch.validate(full=True)
    assert batch.schema.names == SCHEMA.names
    assert batch.num_rows == BATCH and not any(column.null_count for column in batch.columns)
    row: dict[str, Any] = batch.slice(7, 1).to_pylist()[0]
    assert (row["seq"], row["batch_index"], len(row["body"]), len(row["id"])) == (7, -1, 100, 33)
    assert dict(row["attributes"]) == {"pri": "1024", "ttr_ms": "60000"}


def test_the_source_of_nothing_has_so_many_rows() -> None:
    reader = EmptyReader(SCHEMA, 100_001, 10, 3)
    rows = [sum(batch.num_rows for batch in reader.read(part)) for part in reader.partitions()]
    assert len(rows) == 3 and sum(rows) == 100_001
