"""What one Spark task reads: a part of a large topic, or many small topics of one broker.

A task costs Spark some 10 ms, whatever it reads. With a task for each of 20,000 topics a micro-batch of a few
kilobytes would take minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from mq_shards.pipeline.client import Client
from mq_shards.pipeline.options import ReadOptions
from mq_shards.pipeline.ranges import split
from mq_shards.pipeline.reading import Range, RangeReader
from mq_shards.pipeline.topics import Key
from pyspark.sql.datasource import InputPartition

# What is smaller shares a task, which has no more than this, in bytes and in topics.
SMALL_BYTES: Final = 1 << 20
TASK_BYTES: Final = 16 << 20
TASK_RANGES: Final = 1024
# Batches of a few rows are put together until they have so many.
BATCH_ROWS: Final = 4096


@dataclass(frozen=True)
class Task(InputPartition):
    """Ranges of one broker, one after the other."""

    ranges: tuple[Range, ...]


def tasks(
    ranges: Sequence[Range],
    message_bytes: Mapping[Key, float],
    min_partitions: int | None,
    max_records: int | None,
) -> list[Task]:
    """`message_bytes`: the average of each range's topic. No fewer than `min_partitions`, if there are so many
    messages, and none of more than `max_records`."""
    parts = split(ranges, message_bytes, min_partitions, max_records)
    most = TASK_RANGES if min_partitions is None else max(1, min(TASK_RANGES, len(parts) // min_partitions))
    found: list[Task] = []
    small: dict[str, list[Range]] = {}
    for part in parts:
        if _bytes(part, message_bytes) > SMALL_BYTES:
            found.append(Task((part,)))
        else:
            small.setdefault(part.broker, []).append(part)
    for of_broker in small.values():
        found += _shared(of_broker, message_bytes, most, max_records)
    return found


def _shared(
    ranges: Iterable[Range], message_bytes: Mapping[Key, float], most: int, max_records: int | None
) -> Iterator[Task]:
    room: list[Range] = []
    size, records = 0.0, 0
    for part in ranges:
        more, count = _bytes(part, message_bytes), part.end - part.start
        full = len(room) == most or size + more > TASK_BYTES
        if room and (full or (max_records is not None and records + count > max_records)):
            yield Task(tuple(room))
            room, size, records = [], 0.0, 0
        room.append(part)
        size, records = size + more, records + count
    if room:
        yield Task(tuple(room))


def _bytes(of: Range, message_bytes: Mapping[Key, float]) -> float:
    return (of.end - of.start) * message_bytes[of.key]


def read(task: Task, schema: pa.Schema, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Raises DataLossError, BrokerError."""
    first = task.ranges[0]
    with Client(first.address, options.patience_s, first.broker) as client:
        gathered: list[pa.RecordBatch] = []
        rows = 0
        for part in task.ranges:
            reader = RangeReader(
                part, schema, fail_on_data_loss=options.fail_on_data_loss, patience_s=options.patience_s
            )
            for batch in reader.batches(client):
                gathered.append(batch)
                rows += batch.num_rows
                if rows >= BATCH_ROWS:
                    yield _one(gathered)
                    gathered, rows = [], 0
        if gathered:
            yield _one(gathered)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
