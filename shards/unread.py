"""Which segments hold messages that readers have not read yet, found from the heads of segments alone.

Each segment begins with a TOPIC record, with the next seq, for every topic that a reader named at that time. So the
seqs published in a segment are those from the next seq in its own head to the one in the head of the next segment, and
a worker need not read the messages. If the next head lacks the topic, which no reader had named yet, a later head has
it, or the worker itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from mq_shards.csrc._core import ffi, lib
from mq_shards.csrc.structs import struct_in
from mq_shards.shards import durable
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.layout import (
    RECORD_BYTES,
    RECORD_CRC_END,
    SEGMENT_HEADER_BYTES,
    record_crc_begun,
)

ROOM: Final = 4096
WINDOW_BYTES: Final = 1 << 20
TOPIC: Final = 1
HEAD_KINDS: Final = (1, 2, 7)  # TOPIC, FLOOR, SUBSCRIPTION: csrc/log/records.h
ALL_KINDS: Final = (1 << 64) - 1


class Head(NamedTuple):
    next_seqs: Mapping[str, int]  # by topic, of those that were asked for
    whole: bool  # another record follows, so the head is complete


def read_head(path: Path, segment: int, topics: frozenset[str]) -> Head:
    """Reads the head of a segment, for these topics. Raises OSError."""
    names = {topic.encode("latin-1", "replace"): topic for topic in topics}
    sizes = {len(name) for name in names}
    kind, attributes = ffi.new("uint8_t[]", ROOM), ffi.new("uint8_t[]", ROOM)
    seq, at, size = ffi.new("uint64_t[]", ROOM), ffi.new("uint64_t[]", ROOM), ffi.new("uint32_t[]", ROOM)
    columns = ffi.new(
        "struct scan_columns *", {"kind": kind, "attribute_bytes": attributes, "seq": seq, "offset": at, "bytes": size}
    )
    result = ffi.new("struct scan_result *")
    found: dict[str, int] = {}
    offset = SEGMENT_HEADER_BYTES
    with os.fdopen(durable.open_to_read(path), "rb", buffering=0) as file:
        while True:
            data = os.pread(file.fileno(), WINDOW_BYTES, offset)
            pointer = ffi.cast("uint8_t *", ffi.from_buffer(data))
            lib.scan_records(pointer, len(data), segment, True, ALL_KINDS, columns, ROOM, result)
            for n in range(result.records):
                if kind[n] not in HEAD_KINDS:
                    return Head(found, whole=True)
                name_bytes = size[n] - RECORD_BYTES - attributes[n]
                if kind[n] == TOPIC and name_bytes in sizes:
                    start = at[n] + RECORD_BYTES + attributes[n]
                    topic = names.get(data[start : start + name_bytes])
                    if topic is not None:
                        found[topic] = max(seq[n], found.get(topic, 0))
            if result.offset == 0 and result.stop == lib.SCAN_PART and len(data) == WINDOW_BYTES:
                return Head(found, whole=_ends_head(file.fileno(), segment, offset))
            if result.offset == 0 or result.stop not in (lib.SCAN_FULL, lib.SCAN_PART):
                return Head(found, whole=False)
            offset += result.offset


def _ends_head(fd: int, segment: int, offset: int) -> bool:
    """Whether a record longer than a window ends the head: old data of the file may look like one, but for its CRC."""
    record = struct_in("record", os.pread(fd, RECORD_BYTES, offset))
    if record.kind in HEAD_KINDS:
        return False
    crc = record_crc_begun(record.bytes, segment)
    at, end = offset + RECORD_CRC_END, offset + record.bytes
    while at < end:
        data = os.pread(fd, min(WINDOW_BYTES, end - at), at)
        if not data:
            return False
        crc = crc32c(data, crc)
        at += len(data)
    return bool(crc == record.crc)


@dataclass(slots=True, eq=False, repr=False)
class UnreadSegments:
    """Which segments of a shard hold messages that some reader has not read. Remembers heads."""

    path: Callable[[int], Path]
    active: Callable[[], int]  # number of the segment being written to
    next_seq: Callable[[str], int]  # next seq of a topic; 0: the worker does not know it
    unread: Mapping[str, int] = field(default_factory=dict)  # for topics of this shard: the first seq not read
    # Reads a head on another thread and passes it to `heard`; None: heads are read at once.
    fetch: Callable[[int, frozenset[str]], None] | None = None
    _names: frozenset[str] = frozenset()
    _since: dict[str, int] = field(default_factory=dict)  # heads of segments after this one name the topic
    _heads: dict[int, Head] = field(default_factory=dict)
    _parts: dict[int, Head] = field(default_factory=dict)  # heads, valid during one `hold`
    _looked_at: set[int] = field(default_factory=set)  # segments looked at by this `hold`
    _asked: set[int] = field(default_factory=set)

    def set(self, unread: Mapping[str, int]) -> None:
        self.unread = unread
        if frozenset(unread) != self._names:
            self._names = frozenset(unread)
            active = self.active()
            self._since = {topic: self._since.get(topic, active) for topic in unread}
            self._heads, self._parts, self._asked = {}, {}, set()

    def hold(self, segment: int) -> bool:
        """Whether a sealed segment must be kept; True also when that is not known yet."""
        held = self._hold(segment)
        for looked_at in self._looked_at:
            self._parts.pop(looked_at, None)
        self._looked_at.clear()
        return held

    def _hold(self, segment: int) -> bool:
        if not self.unread:
            return False
        try:
            begin, end = self._head(segment), self._head(segment + 1)
            return (
                begin is None
                or end is None
                or any(self._holds(segment, topic, seq, begin, end) for topic, seq in self.unread.items())
            )
        except OSError:
            return True

    def _holds(self, segment: int, topic: str, unread: int, begin: Head, end: Head) -> bool:
        until = end.next_seqs.get(topic)
        if until is None:
            until = self._until(segment + 1, topic)
        return until is None or (unread < until and begin.next_seqs.get(topic, 0) < until)

    def _until(self, segment: int, topic: str) -> int | None:
        """The next seq at the beginning of `segment`, or of a later one that tells; None: it is not known yet."""
        for number in range(segment, self.active() + 1):
            head = self._head(number)
            if head is None:
                return None
            if topic in head.next_seqs:
                return head.next_seqs[topic]
            if number > self._since[topic] and head.whole:
                return 0  # the topic did not exist yet, or was forgotten
        return self.next_seq(topic)

    def heard(self, segment: int, names: frozenset[str], head: Head | OSError) -> None:
        if names != self._names:
            return
        self._asked.discard(segment)
        if isinstance(head, Head):
            (self._heads if head.whole else self._parts)[segment] = head

    def _head(self, segment: int) -> Head | None:
        self._looked_at.add(segment)
        head = self._heads.get(segment) or self._parts.get(segment)
        if head is not None:
            return head
        if self.fetch is None:
            self.heard(segment, self._names, head := read_head(self.path(segment), segment, self._names))
        elif segment not in self._asked:
            self._asked.add(segment)
            self.fetch(segment, self._names)
        return head

    def forget(self, segment: int) -> None:
        self._heads.pop(segment, None)
        self._parts.pop(segment, None)
