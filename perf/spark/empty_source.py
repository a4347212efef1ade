"""A data source for Spark that reads from nowhere: it makes the columns of `mqshards` from the same Arrow buffers again
and again. The time that a query takes over it is Spark's share of the time that it takes over messages.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from mq_shards.pipeline.source import SCHEMA
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

BATCH = 32768


class Empty(DataSource):
    """Options: rows, bodyBytes, partitions."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> EmptyReader:
        return EmptyReader(schema, *(int(self.options[name]) for name in ("rows", "bodyBytes", "partitions")))


class EmptyReader(DataSourceReader):
    def __init__(self, schema: StructType, rows: int, body_bytes: int, partitions: int) -> None:
        self._schema = schema
        self._rows = rows
        self._body_bytes = body_bytes
        self._partitions = partitions

    def partitions(self) -> list[InputPartition]:
        cuts = [self._rows * i // self._partitions for i in range(self._partitions + 1)]
        return [InputPartition(cuts[i + 1] - cuts[i]) for i in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = record_batch(to_arrow_schema(self._schema, timezone="UTC"), self._body_bytes)
        left = partition.value
        while left > 0:
            yield batch.slice(0, min(BATCH, left))
            left -= BATCH


def record_batch(schema: pa.Schema, body_bytes: int) -> pa.RecordBatch:
    """Makes a batch that looks like messages that the NSQ load generator publishes to one topic."""
    count = np.arange(BATCH, dtype=np.int64)
    names = pa.array(["pri", "ttr_ms"] * BATCH)
    values = pa.array(["1024", "60000"] * BATCH)
    columns = {
        "topic": _repeated(pa.string(), b"topic", BATCH),
        "shard": pa.array(np.zeros(BATCH, np.int32)),
        "seq": pa.array(count),
        "timestamp": pa.array(count + 1_700_000_000_000_000, pa.timestamp("us", "UTC")),
        "body": _repeated(pa.binary(), b"x" * body_bytes, BATCH),
        "id": _repeated(pa.string(), b"0123456789abcdef-0123456789abcdef", BATCH),
        "attributes": pa.MapArray.from_arrays(pa.array(np.arange(BATCH + 1, dtype=np.int32) * 2), names, values),
        "broker": _repeated(pa.string(), b"0123456789abcdef" * 2, BATCH),
        "batch_index": pa.array(np.full(BATCH, -1, np.int32)),
    }
    arrays = [columns[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _repeated(kind: pa.DataType, value: bytes, times: int) -> pa.Array:
    offsets = np.arange(times + 1, dtype=np.int32) * len(value)
    return pa.Array.from_buffers(kind, times, [None, pa.py_buffer(offsets), pa.py_buffer(value * times)])
