"""What is known of one segment: where its messages are, the names of topics, the places that are damaged.

The active segment is read on from where the last reading ended. Its end may be half written: a place without a whole
record is damage only if a whole record follows, and messages published together count only when all of them are there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from mq_shards.csrc.structs import struct_in
from mq_shards.shards import durable
from mq_shards.shards.layout import RECORD_BYTES, SEGMENT_HEADER_BYTES
from mq_shards.shards.reader.scan import (
    END,
    MOVED,
    PUBLISH,
    PUBLISH_MORE,
    STAGED,
    TOPIC,
    TOPIC_GONE,
    TXN_COMMIT,
    TXN_END,
    Batch,
    Columns,
    FileScan,
    find_whole,
    is_zero,
    join,
)
from mq_shards.shards.reader.stretches import Stretches, merge, of_batch

MAX_NAME_BYTES: Final = 1024  # TOPIC_NAME_BYTES, csrc/ringbuf/limits.h
ALL_OF_TOPIC: Final = (1 << 64) - 1  # instead of a transaction's number: all of the topic's transactions


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [offset, until) of a segment that are not a whole record."""

    offset: int
    until: int


@dataclass(slots=True)
class Known:
    """What the last TOPIC record of a topic number says: name and next seq."""

    name: bytes
    next_seq: int


@dataclass(slots=True)
class Segment:
    number: int
    header: bytes
    offset: int = SEGMENT_HEADER_BYTES  # how far it has been read
    sealed: bool = False  # it is sealed and has been read to its end
    parts: list[Stretches] = field(default_factory=list)
    staged: list[Stretches] = field(default_factory=list)
    aborted: set[tuple[int, int]] = field(default_factory=set)  # topic number, transaction or ALL_OF_TOPIC
    topics: dict[int, Known] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)  # topic numbers of which something was read since a listing
    empty: tuple[int, int, int] | None = None  # the file had zeros from there on, when it had this size and mtime_ns

    def add(self, part: Stretches, to: list[Stretches]) -> None:
        """Adds a part. Each part of a list is at least twice as large as the next: they are few and seldom merged."""
        if len(part):
            to.append(part)
            self.touched.update(part.number.tolist())
        while len(to) > 1 and len(to[-2]) < 2 * len(to[-1]):
            last = to.pop()
            to[-1] = merge([to[-1], last])

    def read_on(self, path: Path, columns: Columns, previous_end: int | None) -> None:
        """Reads what was appended. `previous_end`: where this segment ends, according to the next one; None: there is
        no next one yet. Raises OSError; FileNotFoundError when retention was quicker."""
        fd = durable.open_to_read(path)
        try:
            _Reading(self, fd, os.fstat(fd), columns, previous_end).run()
        finally:
            os.close(fd)
        if previous_end is not None:
            if len(self.parts) > 1:
                self.parts = [merge(self.parts)]
            if len(self.staged) > 1:
                self.staged = [merge(self.staged)]
            self.touched.clear()
            self.sealed = True


def previous_end(header: bytes) -> int:
    """Where the segment before the one with this header ends."""
    return int(struct_in("segment_header", header).previous_end)


def log_began_ns(header: bytes) -> int:
    """When the log of the segment with this header was begun."""
    return int(struct_in("segment_header", header).log_began_ns)


class _Reading:
    def __init__(self, segment: Segment, fd: int, status: os.stat_result, columns: Columns, end: int | None) -> None:
        self._segment = segment
        self._fd = fd
        self._size = status.st_size
        self._changed_ns = status.st_mtime_ns
        self._sealed = end is not None
        self._end = end or 0
        self._scan = FileScan(fd, segment.number, segment.offset, self._size, columns)
        self._open: list[Batch] = []  # records of a PUBLISH_MANY whose last message has not been seen

    def run(self) -> None:
        began = self._segment.offset
        while True:
            while (batch := self._scan.next()) is not None:
                self._take(batch)
            if self._scan.stop == END and not self._is_damage_after(began):
                break
            if not self._skip():
                break
        self._finish()

    def _is_damage_after(self, began: int) -> bool:
        """Whether more follows after what looks like the end. In the active segment this is checked only when nothing
        new was read: so a damaged length does not stop a reader for ever. Its zeros, which may be megabytes, are read
        once, as long as nothing is written to it."""
        at = self._scan.offset
        if not self._sealed and at != began:
            return False
        if self._end > at:
            return True
        looked_at = at, self._size, self._changed_ns
        if self._size <= at or self._segment.empty == looked_at:
            return False
        if not is_zero(self._fd, at, self._size):
            return True
        self._segment.empty = looked_at
        return False

    def _skip(self) -> bool:
        """Goes on after a place without a whole record. False: nothing after that place can be read."""
        scan, at = self._scan, self._scan.offset
        until = find_whole(self._fd, self._segment.number, at, self._size)
        if until is None:
            if self._sealed:
                self._segment.damage.append(Damage(at, max(self._size, self._end)))
                scan.offset = max(self._size, self._end)
            return False
        # Later records have been seen, so this place can be judged now, which at its first reading may not have been
        # possible.
        scan.resume()
        again = scan.next()
        if again is None and scan.offset == at:
            self._close()
            self._segment.damage.append(Damage(at, until))
            scan.offset = until
            scan.resume()
        elif again is not None:
            self._take(again)
        return True

    def _take(self, batch: Batch) -> None:
        for n in np.flatnonzero(batch.kind == TOPIC).tolist():
            self._learn(batch, n)
        self._take_transactions(batch)
        messages = batch.take((batch.kind == PUBLISH) | (batch.kind == MOVED))
        if len(messages) == 0:
            return
        if self._open and int(messages.offset[0]) != int(self._open[-1].ends[-1]):
            self._close()  # another record came in between
        more = (messages.kind == PUBLISH) & (messages.flags & PUBLISH_MORE != 0)
        if not more[-1]:
            self._open.append(messages)
            self._close()
            return
        last = np.flatnonzero(~more)
        whole = int(last[-1]) + 1 if len(last) else 0
        if whole:
            self._open.append(messages.take(slice(0, whole)))
            self._close()
        self._open.append(messages.take(slice(whole, None)))

    def _take_transactions(self, batch: Batch) -> None:
        self._segment.add(of_batch(batch.take(batch.kind == STAGED)), self._segment.staged)
        is_gone = batch.kind == TOPIC_GONE
        ends = batch.take(is_gone | (batch.kind == TXN_END) & (batch.flags & TXN_COMMIT == 0))
        numbers = np.where(ends.kind == TOPIC_GONE, np.uint64(ALL_OF_TOPIC), ends.id)
        self._segment.aborted.update(zip(ends.topic.tolist(), numbers.tolist(), strict=True))
        self._segment.touched.update(ends.topic.tolist())

    def _close(self) -> None:
        """Adds the open batches, which are complete, to the segment."""
        if self._open:
            self._segment.add(of_batch(join(self._open)), self._segment.parts)
        self._open = []

    def _finish(self) -> None:
        if self._open and not self._sealed and int(self._open[-1].ends[-1]) == self._scan.offset:
            # A crash now would undo these, and their seqs would be given to other messages.
            self._segment.offset = int(self._open[0].offset[0])
            return
        self._close()
        self._segment.offset = self._scan.offset

    def _learn(self, batch: Batch, n: int) -> None:
        number, seq = int(batch.topic[n]), int(batch.seq[n])
        known = self._segment.topics.get(number)
        if known is not None:
            known.next_seq = max(known.next_seq, seq)
            return
        at = int(batch.offset[n]) + RECORD_BYTES + int(batch.attribute_bytes[n])
        size = int(batch.bytes[n]) - RECORD_BYTES - int(batch.attribute_bytes[n])
        if 0 < size <= MAX_NAME_BYTES:
            name = os.pread(self._fd, size, at)
            if len(name) == size:
                self._segment.topics[number] = Known(name, seq)
