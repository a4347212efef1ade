"""Runs: records of a topic as they are sent, in order of seq, each run from one segment. Records that an aborted
transaction staged are among them unchanged (STAGED): they are no messages, but without them there would be gaps.

A segment's file is opened before a run of it is promised: when retention removes it, its content stays until it is
closed.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from mq_shards.csrc._core import ffi
from mq_shards.shards import durable
from mq_shards.shards.reader.scan import SENT, Columns, heads
from mq_shards.shards.reader.shard import MAX_STRETCHES, ChangedError, ShardView, Span

# A run is a struct run (csrc/pipeline/decode.h), then its bytes of records, each padded to 8.
HEAD_BYTES: Final = ffi.sizeof("struct run")
MAX_FILES: Final = 64  # most segments in one answer
MAX_STRETCHES_OF_MANY: Final = 1024  # most stretches of a segment, in an answer to many ranges


@dataclass(frozen=True, slots=True)
class Asked:
    """Seqs [first, until) of a topic."""

    topic: str
    first: int
    until: int


@dataclass(slots=True)
class Run:
    segment: int
    fd: int
    records: int = 0
    size: int = 0  # bytes of records
    offsets: list[int] = field(default_factory=list)  # offsets in the file of the pieces that make up the run
    lengths: list[int] = field(default_factory=list)

    @property
    def head(self) -> bytes:
        return bytes(ffi.buffer(ffi.new("struct run *", (self.segment, self.records, self.size))))

    def add(self, records: int, offset: int, length: int) -> None:
        self.records += records
        self.size += length
        if self.offsets and self.offsets[-1] + self.lengths[-1] == offset:
            self.lengths[-1] += length
        else:
            self.offsets.append(offset)
            self.lengths.append(length)


class Files:
    """The segments that are open for one answer."""

    def __init__(self, most: int = MAX_FILES) -> None:
        self._most = most
        self._open: dict[tuple[int, int], int] = {}  # by shard and segment
        self._aside: list[int] = []

    def open(self, view: ShardView, segment: int) -> int | None:
        """The segment's descriptor; None: too many are open. Raises OSError."""
        fd = self._open.get((view.shard, segment))
        if fd is None and len(self) < self._most:
            fd = self._open[view.shard, segment] = durable.open_to_read(view.path(segment))
        return fd

    def set_aside(self, shard: int) -> None:
        """A shard's segments may have been replaced: later runs open them anew, earlier ones use the open files."""
        for key in [key for key in self._open if key[0] == shard]:
            self._aside.append(self._open.pop(key))

    def __len__(self) -> int:
        return len(self._open) + len(self._aside)

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for fd in (*self._open.values(), *self._aside):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._open, self._aside = {}, []


@dataclass(slots=True)
class Runs:
    """The runs of one range. `next`: the seq to ask for next. `files`: of the whole answer, to be closed when it has
    been sent. `segments`: those of this range. `spans`: the number of its stretches."""

    next: int
    files: Files
    spans: int = 0
    runs: list[Run] = field(default_factory=list)
    segments: set[int] = field(default_factory=set)

    @property
    def size(self) -> int:
        """Bytes to send, heads included."""
        return sum(HEAD_BYTES + run.size for run in self.runs)

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.files.close()


def runs_of(view: ShardView, asked: Asked, max_bytes: int, files: Files, *, alone: bool = True) -> Runs:
    """The records of a range, at most `max_bytes` of them; but one of any size if the range is `alone` in its answer.

    Raises FileNotFoundError when a segment has just been removed: refresh the view and try again; ChangedError: let it
    forget the segment before that. Raises OSError.
    """
    found = view.find(asked.topic, asked.first, asked.until, MAX_STRETCHES if alone else MAX_STRETCHES_OF_MANY)
    result = Runs(found.until, files, len(found.spans))
    _collect(result, view, found.spans, max_bytes, alone=alone)
    return result


def _collect(result: Runs, view: ShardView, spans: list[Span], max_bytes: int, *, alone: bool) -> None:
    room = max_bytes
    for span in spans:
        if (fd := result.files.open(view, span.segment)) is None:
            result.next = span.first
            return
        result.segments.add(span.segment)
        if not result.runs or result.runs[-1].segment != span.segment:
            if result.runs and room <= 0:
                result.next = span.first
                return
            result.runs.append(Run(span.segment, fd))
        run = result.runs[-1]
        records, offset, length = _cut(fd, span, room, not alone or room < max_bytes, view.columns)
        if records:
            run.add(records, offset, length)
        else:
            _drop_empty(result)
        room -= length
        if records < span.until - span.first:
            result.next = span.first + records
            return


def _drop_empty(result: Runs) -> None:
    if result.runs[-1].records == 0:
        result.runs.pop()


def _cut(fd: int, span: Span, room: int, any_before: bool, columns: Columns) -> tuple[int, int, int]:
    """Takes as many of the span's records as there is room for, at least one if there were none before. Returns their
    number, offset and bytes."""
    if span.whole and span.bytes <= room:
        return span.count, span.offset, span.bytes
    batch = heads(fd, span.offset, span.bytes, span.segment, SENT, columns)
    chosen = batch.take((batch.seq >= np.uint64(span.first)) & (batch.seq < np.uint64(span.until)))
    if len(chosen) != span.until - span.first:
        raise ChangedError(span.segment, span.offset)
    start = int(chosen.offset[0])
    ends = chosen.ends - np.uint64(start)
    fits = int(np.searchsorted(ends, np.uint64(max(room, 0)), "right"))
    if fits == 0 and not any_before:
        fits = 1
    return fits, span.offset + start, int(ends[fits - 1]) if fits else 0
