"""Merges many small Parquet files of a directory into few. Spark's streams have written them, and must not write
meanwhile.

Others may read meanwhile: the files that they have listed stay, see `sink_log`.
"""

from __future__ import annotations

import math
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from mq_shards.pipeline.arguments import COMPACT_MIB
from mq_shards.pipeline.sink_log import SinkFile, SinkLog
from mq_shards.shards import durable

WHOLE_BYTES: Final = 128 << 20  # about the size of a merged file
AT_LEAST: Final = 4  # small files in a folder before merging is worth it
ROW_GROUP_BYTES: Final = 64 << 20  # size in memory
ROWS: Final = 1 << 14
_UTC_US: Final = pa.timestamp("us", tz="UTC")
# Sums rows up into fewer rows; can be applied to its own results too.
Summed = Callable[[pa.Table], pa.Table]


def compact(
    log: SinkLog,
    summed: Summed | None = None,
    *,
    small_bytes: int = COMPACT_MIB << 20,
    at_least: int = AT_LEAST,
    most_s: float = math.inf,
) -> int:
    """Returns how many files were replaced. `summed`: makes fewer rows of theirs, one file in memory at a time.
    `most_s`: no merge begins later, the rest is for the next call. Raises OSError, SinkLogError,
    pyarrow.ArrowException."""
    gone, until = 0, time.monotonic() + most_s
    for files in [files for files in _groups(log, small_bytes) if len(files) >= at_least]:
        if time.monotonic() > until:
            break
        made = _merged(log, files, summed)
        log.replace({file.path for file in files}, [made])
        gone += len(files)
    return gone


def _groups(log: SinkLog, small_bytes: int) -> list[list[SinkFile]]:
    """Returns groups of small files to be merged into one, each in the order in which it was written."""
    folders: dict[Path, list[SinkFile]] = defaultdict(list)
    for file in sorted(log.settled, key=lambda file: (file.modified_s, file.path)):
        if file.size < small_bytes:
            folders[file.path.parent].append(file)
    found: list[list[SinkFile]] = []
    for files in folders.values():
        group: list[SinkFile] = []
        for file in files:
            group.append(file)
            if sum(one.size for one in group) >= WHOLE_BYTES:
                found.append(group)
                group = []
        found.append(group)
    return found


def _merged(log: SinkLog, files: Sequence[SinkFile], summed: Summed | None) -> Path:
    """Writes the merged file and returns its path. The file is durable, but does not count yet."""
    schemas = [_plain(pq.read_schema(file.path)) for file in files]
    schema = pa.unify_schemas(schemas).with_metadata(schemas[-1].metadata)
    folder = files[0].path.parent
    path = folder / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    # Until it is complete the file has a name that no reader looks for.
    new = folder / f".{path.name}.new"
    try:
        with pq.ParquetWriter(new, schema, compression="snappy") as writer:
            if summed is None:
                for rows in _row_groups(files, schema):
                    writer.write_table(rows)
            else:
                each = [summed(pa.Table.from_batches(_rows([file], schema), schema)) for file in files]
                writer.write_table(summed(pa.concat_tables(each)))
        with new.open("rb") as written:
            os.fsync(written.fileno())
        log.expect(path)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    durable.sync_directory(folder)
    return path


def _row_groups(files: Sequence[SinkFile], schema: pa.Schema) -> Iterator[pa.Table]:
    batches: list[pa.RecordBatch] = []
    for batch in _rows(files, schema):
        batches.append(batch)
        if sum(one.nbytes for one in batches) >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(batches, schema)
            batches = []
    if batches:
        yield pa.Table.from_batches(batches, schema)


def _rows(files: Sequence[SinkFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as parquet:
            for batch in parquet.iter_batches(ROWS):
                # A column that was added later is null in older files.
                columns = [
                    batch.column(field.name).cast(field.type)
                    if field.name in batch.schema.names
                    else pa.nulls(batch.num_rows, field.type)
                    for field in schema
                ]
                yield pa.record_batch(columns, schema=schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with timestamps as UTC microseconds, in whichever form Spark's files store them."""
    fields = [field.with_type(_UTC_US) if pa.types.is_timestamp(field.type) else field for field in schema]
    return pa.schema(fields, schema.metadata)
