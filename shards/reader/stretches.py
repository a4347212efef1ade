"""Where a topic's records are in a segment: stretches of adjacent records with consecutive seqs.

A stretch has at most 256 KiB (or one record), so that finding a record in it is quick. Messages published in batches
make few stretches; a message between those of other topics is a stretch of its own. Records staged in transactions have
separate stretches.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mq_shards.shards.reader.scan import MOVED, STAGED, U32, U64, Batch

STRETCH_SHIFT: Final = 18
NOWHERE: Final = (1 << 64) - 1
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Stretches:
    """Columns. The first six have an entry for each topic number that occurs, the others for each stretch, sorted by
    topic number and seq. Stretches of a topic number do not overlap: a segment has a message only once."""

    number: U32
    first: U32  # its first stretch; they end at the next one's first, or at the end
    records: U64
    record_bytes: U64
    published_from: U64  # seq of the first that was published here and not moved; NOWHERE
    last_ns: U64  # the latest time of its messages

    seq: U64
    count: U32
    offset: U32
    bytes: U32
    time_ns: U64  # the latest of the stretch; of one that is staged both are its transaction's number
    since_ns: U64  # the earliest
    moved: Bools

    def __len__(self) -> int:
        return len(self.seq)

    def place(self, number: int) -> int:
        """The place of a topic number in the first six columns; -1: it does not occur."""
        place = int(np.searchsorted(self.number, np.uint32(number)))
        return place if place < len(self.number) and int(self.number[place]) == number else -1

    def range(self, place: int) -> tuple[int, int]:
        end = int(self.first[place + 1]) if place + 1 < len(self.first) else len(self.seq)
        return int(self.first[place]), end


COLUMNS: Final = {
    "number": "<u4", "first": "<u4", "records": "<u8", "record_bytes": "<u8", "published_from": "<u8", "last_ns": "<u8",
    "seq": "<u8", "count": "<u4", "offset": "<u4", "bytes": "<u4", "time_ns": "<u8", "since_ns": "<u8",
    "moved": "?",
}  # fmt: skip
OF_TOPICS: Final = 6  # how many of the columns have an entry for each topic number
assert tuple(COLUMNS) == tuple(field.name for field in fields(Stretches))


def of_batch(batch: Batch) -> Stretches:
    """The stretches of messages, or of staged records, that are in the order of the file."""
    if len(batch) == 0:
        return merge([])
    ends = batch.ends
    is_staged = batch.kind == STAGED
    time_ns = np.where(is_staged, batch.id, batch.time_ns)
    begins = np.empty(len(batch), np.bool_)
    begins[0] = True
    begins[1:] = (
        (batch.topic[1:] != batch.topic[:-1])
        | (batch.seq[1:] != batch.seq[:-1] + np.uint64(1))
        | (batch.offset[1:] != ends[:-1])
        | (batch.kind[1:] != batch.kind[:-1])
        | (is_staged[1:] & (time_ns[1:] != time_ns[:-1]))
        | (batch.offset[1:] >> np.uint64(STRETCH_SHIFT) != batch.offset[:-1] >> np.uint64(STRETCH_SHIFT))
    )
    first = np.flatnonzero(begins)
    count = np.diff(first, append=len(batch))
    offset = batch.offset[first]
    return build(
        batch.topic[first],
        batch.seq[first],
        count.astype(np.uint32),
        offset.astype(np.uint32),
        (ends[first + count - 1] - offset).astype(np.uint32),
        np.maximum.reduceat(time_ns, first),
        np.minimum.reduceat(time_ns, first),
        batch.kind[first] == MOVED,
    )


def merge(parts: list[Stretches]) -> Stretches:
    """Merges parts of the same segment."""
    if not parts:
        return build(*(np.empty(0, kind) for kind in ("<u4", "<u8", "<u4", "<u4", "<u4", "<u8", "<u8", "?")))
    topics = [np.repeat(part.number, np.diff(part.first, append=len(part))) for part in parts]
    rest = ("seq", "count", "offset", "bytes", "time_ns", "since_ns", "moved")
    return build(np.concatenate(topics), *(np.concatenate([getattr(part, name) for part in parts]) for name in rest))


def build(
    topic: U32, seq: U64, count: U32, offset: U32, size: U32, time_ns: U64, since_ns: U64, moved: Bools
) -> Stretches:
    order = np.lexsort((seq, topic))
    topic, seq, count, offset = topic[order], seq[order], count[order], offset[order]
    size, time_ns, since_ns, moved = size[order], time_ns[order], since_ns[order], moved[order]
    first = np.flatnonzero(np.concatenate(([True], topic[1:] != topic[:-1]))) if len(topic) else np.empty(0, np.int64)

    def reduce(function: np.ufunc, column: npt.NDArray[Any]) -> U64:
        return function.reduceat(column, first).astype(np.uint64) if len(first) else np.empty(0, np.uint64)

    return Stretches(
        number=topic[first],
        first=first.astype(np.uint32),
        records=reduce(np.add, count.astype(np.uint64)),
        record_bytes=reduce(np.add, size.astype(np.uint64)),
        published_from=reduce(np.minimum, np.where(moved, np.uint64(NOWHERE), seq)),
        last_ns=reduce(np.maximum, time_ns),
        seq=seq,
        count=count,
        offset=offset,
        bytes=size,
        time_ns=time_ns,
        since_ns=since_ns,
        moved=moved,
    )
