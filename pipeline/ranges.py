"""Splits the messages to be read into the partitions of a Spark job, and into the micro-batches of a stream."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from mq_shards.pipeline.jumps import Jumps, jumped
from mq_shards.pipeline.reading import Range
from mq_shards.pipeline.topics import Key

# Where neither minPartitions nor maxRecordsPerPartition is given: as much as Spark's file sources give a task.
PARTITION_BYTES: Final = 128 << 20


def split(
    ranges: Sequence[Range],
    message_bytes: Mapping[Key, float],
    min_partitions: int | None,
    max_records: int | None,
) -> list[Range]:
    """`message_bytes`: the average size of a message, by broker and topic.

    As Kafka's source does, first cuts ranges that are longer than `max_records`. Then, if there are fewer than
    `min_partitions`, splits ranges in proportion to their length."""
    ranges = [r for r in ranges if r.start < r.end]
    if max_records is not None:
        ranges = [part for r in ranges for part in _parts(r, math.ceil(r.messages / max_records))]
    elif min_partitions is None:
        ranges = [
            part for r in ranges for part in _parts(r, round(r.messages * message_bytes[r.key] / PARTITION_BYTES))
        ]
    if min_partitions is None or len(ranges) >= min_partitions:
        return ranges
    total = max(1, sum(r.messages for r in ranges))
    return [part for r in ranges for part in _parts(r, math.ceil(r.messages / total * min_partitions))]


def _parts(of: Range, count: int) -> list[Range]:
    length = of.messages
    count = max(1, min(count, length))
    within = (_behind(of.jumps, of.start, length * i // count) for i in range(1, count))
    cuts = [of.start, *within, of.end]
    return [replace(of, start=start, end=end) for start, end in pairwise(cuts)]


def _behind(jumps: Jumps, start: int, messages: int) -> int:
    """The seq behind so many messages from `start` on; never within a jump, of which all is in one range."""
    seq = start
    for begin, until in jumps:
        if until <= seq:
            continue
        if seq + messages <= begin:
            break
        messages -= max(0, begin - seq)
        seq = until
    return seq + messages


def ends(
    start: Mapping[Key, int],
    latest: Mapping[Key, int],
    sizes: Mapping[Key, float],
    limit: int,
    jumps: Mapping[Key, Jumps],
) -> dict[Key, int]:
    """Returns how far a micro-batch may go, by stream. `sizes`: of a message on average; `limit`: in the same unit.
    `jumps`: of seqs, where there are some.

    Each stream gets a share in proportion to what it has, and at least one message, so that none waits for ever."""
    available = {
        key: (latest[key] - seq - jumped(jumps.get(key, ()), seq, latest[key])) * sizes[key]
        for key, seq in start.items()
        if latest[key] > seq
    }
    total = sum(available.values())
    if total <= limit:
        return dict(latest)
    result = {key: min(seq, latest[key]) for key, seq in start.items()}
    for key, have in available.items():
        messages = max(1, int(limit * (have / total) / sizes[key]))
        result[key] = min(latest[key], _behind(jumps.get(key, ()), start[key], messages))
    return result
