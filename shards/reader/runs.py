"""Runs: records of a topic as they are sent, in order of seq, each run out of one segment.

The files are opened before anything is said of them: what retention removes then is there until they are closed.
"""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np
from mq_shards.shards.reader.scan import MESSAGES, Batch, Columns
from mq_shards.shards.reader.shard import ChangedError, ShardView, Span

# uint32 segment, uint32 records, uint64 bytes; then so many bytes of records, each padded to 8.
RUN_HEAD: Final = struct.Struct("<IIQ")
MAX_FILES: Final = 64  # segments in one answer


@dataclass(slots=True)
class Run:
    segment: int
    fd: int
    records: int = 0
    size: int = 0  # bytes of records
    offsets: list[int] = field(default_factory=list)  # of pieces of the file that follow each other here
    lengths: list[int] = field(default_factory=list)

    @property
    def head(self) -> bytes:
        return RUN_HEAD.pack(self.segment, self.records, self.size)

    def add(self, records: int, offset: int, length: int) -> None:
        self.records += records
        self.size += length
        if self.offsets and self.offsets[-1] + self.lengths[-1] == offset:
            self.lengths[-1] += length
        else:
            self.offsets.append(offset)
            self.lengths.append(length)


@dataclass(slots=True)
class Runs:
    """`next`: the seq to ask for next."""

    next: int
    runs: list[Run] = field(default_factory=list)
    files: dict[int, int] = field(default_factory=dict)  # descriptors by segment

    @property
    def size(self) -> int:
        """Bytes, heads and all."""
        return sum(RUN_HEAD.size + run.size for run in self.runs)

    def __enter__(self) -> Runs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for fd in self.files.values():
            with contextlib.suppress(OSError):
                os.close(fd)
        self.files = {}


def runs_of(view: ShardView, topic: str, first: int, until: int, max_bytes: int) -> Runs:
    """What is there of seqs [first, until): `max_bytes` of records, or one that is larger.

    Raises FileNotFoundError when a segment has just been removed: refresh and ask again; ChangedError: forget it
    before that. OSError.
    """
    found = view.find(topic, first, until)
    result = Runs(found.until)
    try:
        _collect(result, view, found.spans, max_bytes)
    except BaseException:
        result.close()
        raise
    return result


def _collect(result: Runs, view: ShardView, spans: list[Span], max_bytes: int) -> None:
    room = max_bytes
    for span in spans:
        if span.segment not in result.files:
            if len(result.files) == MAX_FILES:
                result.next = span.first
                return
            result.files[span.segment] = _open(view.path(span.segment))
        fd = result.files[span.segment]
        if not result.runs or result.runs[-1].segment != span.segment:
            if result.runs and room <= 0:
                result.next = span.first
                return
            result.runs.append(Run(span.segment, fd))
        run = result.runs[-1]
        records, offset, length = _cut(fd, span, room, room < max_bytes, view.columns)
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


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _cut(fd: int, span: Span, room: int, any_before: bool, columns: Columns) -> tuple[int, int, int]:
    """As many of the span's records as there is room for, one at least if there are none before: how many, where they
    begin and how many bytes they have."""
    if span.whole and span.bytes <= room:
        return span.count, span.offset, span.bytes
    batch = records_of(fd, span, columns)
    chosen = batch.take((batch.seq >= np.uint64(span.first)) & (batch.seq < np.uint64(span.until)))
    if len(chosen) != span.until - span.first:
        raise ChangedError(span.segment, span.offset)
    start = int(chosen.offset[0])
    ends = chosen.ends - np.uint64(start)
    fits = int(np.searchsorted(ends, np.uint64(max(room, 0)), "right"))
    if fits == 0 and not any_before:
        fits = 1
    return fits, span.offset + start, int(ends[fits - 1]) if fits else 0


def records_of(fd: int, span: Span, columns: Columns) -> Batch:
    """Of the whole stretch, offsets from its beginning."""
    data = os.pread(fd, span.bytes, span.offset)
    records, _, _, _ = columns.scan(data, 0, len(data), span.segment, kinds=MESSAGES, check=False)
    return columns.batch(records)
