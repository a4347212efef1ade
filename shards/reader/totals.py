"""What the sealed segments of a shard hold of each topic number, added up once.

A listing needs the totals of every topic whenever something was appended. Without these sums it would examine each
segment for each topic, which takes seconds of processor time for a log of a terabyte. Sealed segments do not change, so
the sums hold until another one is sealed or one is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mq_shards.shards.reader.scan import U64
from mq_shards.shards.reader.segment import Segment
from mq_shards.shards.reader.stretches import Stretches


@dataclass(frozen=True, slots=True)
class OfTopic:
    """The totals of a topic number, as in `shard.Topic`; staged records count for the first three only."""

    earliest: int
    complete: int
    latest: int
    records: int
    bytes: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class Totals:
    segments: Sequence[Segment]
    """Of which it is. They are kept, so that no other one takes the place of one of them unseen."""
    topics: dict[int, OfTopic]
    staging: Sequence[Segment]
    """Those of them that have something staged."""

    def are_of(self, segments: Sequence[Segment]) -> bool:
        same = zip(self.segments, segments, strict=False)
        return len(self.segments) == len(segments) and all(one is other for one, other in same)


def totals_of(segments: Sequence[Segment]) -> Totals:
    """Adds up `segments`, which must be sealed."""
    rows = [_rows(part, counts=True) for segment in segments for part in segment.parts]
    rows += [_rows(part, counts=False) for segment in segments for part in segment.staged]
    staging = [segment for segment in segments if segment.staged]
    if not rows:
        return Totals(segments, {}, staging)
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    number, earliest, complete, latest, records, size, last_ns = (column[order] for column in columns)
    first = np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1])))
    found = (
        np.minimum.reduceat(earliest, first), np.minimum.reduceat(complete, first), np.maximum.reduceat(latest, first),
        np.add.reduceat(records, first), np.add.reduceat(size, first), np.maximum.reduceat(last_ns, first),
    )  # fmt: skip
    each = zip(*(column.tolist() for column in found), strict=True)
    return Totals(segments, dict(zip(number[first].tolist(), (OfTopic(*row) for row in each), strict=True)), staging)


def _rows(part: Stretches, *, counts: bool) -> list[U64]:
    """A row for each topic number: number, then the columns of OfTopic."""
    first = part.first.astype(np.int64)
    last = np.append(first[1:], len(part)) - 1
    nothing = np.zeros(len(first), np.uint64)
    sums = [part.records, part.record_bytes, part.last_ns] if counts else [nothing] * 3
    latest = part.seq[last] + part.count[last].astype(np.uint64)
    return [part.number.astype(np.uint64), part.seq[first], part.published_from, latest, *sums]
