"""What one Spark task reads: a part of a large topic, or many small topics of one broker.

A task costs Spark some 10 ms, whatever it reads. With a task for each of 20,000 topics a micro-batch of a few
kilobytes would take minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from mq_shards.pipeline.client import BrokenOffError, BrokerError, Client
from mq_shards.pipeline.decode import Decoder
from mq_shards.pipeline.decoding import DecodeError
from mq_shards.pipeline.options import ReadOptions
from mq_shards.pipeline.ranges import split
from mq_shards.pipeline.reading import Range, RangeReader
from mq_shards.pipeline.topics import Key
from pyspark.sql.datasource import InputPartition

# Ranges up to SMALL_BYTES share a task, which has at most TASK_BYTES and TASK_RANGES.
SMALL_BYTES: Final = 1 << 20
TASK_BYTES: Final = 16 << 20
TASK_RANGES: Final = 1024
REPLY_BYTES: Final = 64 << 20  # most bytes asked for at once: more than a task of many ranges has
NOT_ALLOWED: Final = 405


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
    """Makes at least `min_partitions` tasks, if there are so many messages, and none of more than `max_records`.
    `message_bytes`: the average size of a message, by broker and topic."""
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
        more, count = _bytes(part, message_bytes), part.messages
        full = len(room) == most or size + more > TASK_BYTES
        if room and (full or (max_records is not None and records + count > max_records)):
            yield Task(tuple(room))
            room, size, records = [], 0.0, 0
        room.append(part)
        size, records = size + more, records + count
    if room:
        yield Task(tuple(room))


def _bytes(of: Range, message_bytes: Mapping[Key, float]) -> float:
    return of.messages * message_bytes[of.key]


def read(task: Task, schema: pa.Schema, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Raises DataLossError, BrokerError."""
    first = task.ranges[0]
    with Client(first.address, options.timeout_s, first.broker) as client:
        yield from TaskReader(task.ranges, schema, options).batches(client)


class TaskReader:
    """Asks for all ranges at once, and again as long as that makes progress; what is left over, one by one."""

    def __init__(self, ranges: Sequence[Range], schema: pa.Schema, options: ReadOptions) -> None:
        # Ranges of one shard lie in the same files.
        self._left = sorted(ranges, key=lambda of: (of.shard, of.topic, of.start))
        self._options = options
        self._decoder = Decoder(ranges[0].broker, schema, sum(of.end - of.start for of in ranges))

    def batches(self, client: Client) -> Iterator[pa.RecordBatch]:
        many = len(self._left) > 1
        while self._left:
            before = len(self._left)
            if many:
                try:
                    yield from self._many(client)
                except (BrokenOffError, DecodeError):
                    pass  # the first range that is left is read alone, until its own timeout
                except BrokerError as error:
                    if error.status != NOT_ALLOWED:
                        raise
                    many = False  # an older broker, which does not know that call
            if self._left and len(self._left) == before:
                yield from self._reader(self._left[0]).batches(client)
                self._left.pop(0)
        if (batch := self._decoder.take()) is not None:
            yield batch

    def _many(self, client: Client) -> Iterator[pa.RecordBatch]:
        asked = self._left[:TASK_RANGES]
        with client.records_of([(of.topic, of.start, of.end) for of in asked], REPLY_BYTES) as reply:
            for of, part in zip(asked, reply.parts, strict=False):
                reader = self._reader(of)
                try:
                    yield from reader.part(part)
                finally:
                    # What has come is in a batch, whatever becomes of the rest.
                    self._left[0] = replace(of, start=reader.next_seq)
                if reader.next_seq < of.end:
                    return
                self._left.pop(0)

    def _reader(self, of: Range) -> RangeReader:
        options = self._options
        return RangeReader(
            of, self._decoder, fail_on_data_loss=options.fail_on_data_loss, timeout_s=options.timeout_s
        )  # fmt: skip
