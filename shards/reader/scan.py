"""The records of a segment's file, one window at a time, as numpy arrays (csrc/log/scan.h).

Files are read with pread, not mapped: a worker that recovers may truncate them, and access to a mapped page beyond the
end would kill the process.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mq_shards.csrc._core import ffi, lib
from mq_shards.csrc.structs import struct_in
from mq_shards.shards import medium
from mq_shards.shards.layout import RECORD_BYTES

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

TOPIC: Final[int] = lib.RECORD_TOPIC
PUBLISH: Final[int] = lib.RECORD_PUBLISH
MOVED: Final[int] = lib.RECORD_MOVED
TOPIC_GONE: Final[int] = lib.RECORD_TOPIC_GONE
STAGED: Final[int] = lib.RECORD_STAGED
TXN_END: Final[int] = lib.RECORD_TXN_END
PUBLISH_MORE: Final[int] = lib.PUBLISH_MORE
TXN_COMMIT: Final[int] = lib.TXN_COMMIT
MESSAGES: Final = 1 << PUBLISH | 1 << MOVED
SENT: Final = MESSAGES | 1 << STAGED
KINDS: Final = SENT | 1 << TOPIC | 1 << TOPIC_GONE | 1 << TXN_END

WINDOW_BYTES: Final = 1 << 20
ROOM: Final = WINDOW_BYTES // RECORD_BYTES + 1
MAX_ATTRIBUTE_BYTES: Final = 255
MAX_SEGMENT_BYTES: Final = 3 << 30  # SEGMENT_MAX_BYTES, csrc/log/log.h

END: Final[int] = lib.SCAN_END
FULL: Final[int] = lib.SCAN_FULL
PART: Final[int] = lib.SCAN_PART
BAD: Final[int] = lib.SCAN_BAD


@dataclass(frozen=True, slots=True)
class Batch:
    """Records in the order of the file; `offset` counts from the beginning of the scanned bytes, `bytes` is without
    padding. In a FileScan the `id` of a STAGED record is its transaction's number, as it is in a TXN_END."""

    kind: U8
    attribute_bytes: U8
    flags: U16
    topic: U32
    seq: U64
    time_ns: U64
    id: U64
    offset: U64
    bytes: U32

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, chosen: Any) -> Batch:  # noqa: ANN401
        """The records that a slice, a mask or indices choose."""
        return Batch(*(getattr(self, name)[chosen] for name in FIELDS))

    @property
    def ends(self) -> U64:
        """For each record, the offset of the next one."""
        return self.offset + (self.bytes.astype(np.uint64) + np.uint64(7) & ~np.uint64(7))


FIELDS: Final = ("kind", "attribute_bytes", "flags", "topic", "seq", "time_ns", "id", "offset", "bytes")
_TYPES: Final = ("u1", "u1", "<u2", "<u4", "<u8", "<u8", "<u8", "<u8", "<u4")
_C_TYPES: Final = {"u1": "uint8_t *", "<u2": "uint16_t *", "<u4": "uint32_t *", "<u8": "uint64_t *"}


def join(batches: list[Batch]) -> Batch:
    return Batch(*(np.concatenate([getattr(batch, name) for batch in batches]) for name in FIELDS))


class Columns:
    """Arrays with room for the records of a window, used again for each scan. Not for several threads."""

    def __init__(self, room: int = ROOM) -> None:
        self.room: Final = room
        self._arrays = [np.empty(room, kind) for kind in _TYPES]
        self._columns = ffi.new("struct scan_columns *")
        for name, kind, array in zip(FIELDS, _TYPES, self._arrays, strict=True):
            setattr(self._columns, name, ffi.cast(_C_TYPES[kind], array.ctypes.data))
        self._result = ffi.new("struct scan_result *")

    def scan(
        self,
        data: Any,  # noqa: ANN401
        start: int,
        end: int,
        segment: int,
        *,
        kinds: int = MESSAGES,
        check: bool = True,
    ) -> tuple[int, int, int, int]:
        """Scans the bytes [start, end) of a buffer. Returns the number of records, how far it came (from `start`), how
        many bytes it needs to go on, and why it stopped. batch() has the records until the next call."""
        memory = ffi.from_buffer(data)
        result = self._result
        lib.scan_records(
            ffi.cast("uint8_t *", memory) + start, end - start, segment, check, kinds, self._columns, self.room, result
        )
        return result.records, result.offset, result.needs, result.stop

    def put(self, record: Any) -> int:  # noqa: ANN401
        """Makes a record, a struct record at offset 0, the only one. Returns 1."""
        for name, array in zip(FIELDS, self._arrays, strict=True):
            array[0] = 0 if name == "offset" else getattr(record, name)
        return 1

    def batch(self, records: int, base: int = 0) -> Batch:
        """A copy of the first `records` records, with `base` added to their offsets."""
        arrays = [array[:records].copy() for array in self._arrays]
        if base:
            arrays[FIELDS.index("offset")] += np.uint64(base)
        return Batch(*arrays)


class FileScan:
    """Reads the records of one segment's file from an offset on."""

    def __init__(
        self, fd: int, segment: int, offset: int, size: int, columns: Columns, window_bytes: int = WINDOW_BYTES
    ) -> None:
        """`size`: where to stop in the file; `window_bytes`: how much to read at once."""
        self.offset = offset
        self.stop: int | None = None  # END or BAD, at `offset`
        self._fd = fd
        self._segment = segment
        self._size = size
        self._columns = columns
        self._buffer: Final = bytearray(window_bytes)

    def next(self) -> Batch | None:
        """The next records; None: `stop` says why there are no more. Raises OSError."""
        while self.stop is None:
            got = self._read(self.offset)
            records, offset, needs, stop = self._columns.scan(
                self._buffer, 0, got, self._segment, kinds=KINDS, check=True
            )
            base = self.offset
            self.offset += offset
            if stop in (END, BAD):
                self.stop = stop
            elif stop == PART and offset == 0:
                records = self._long(got, needs)
            if records:
                return _with_transactions(self._columns.batch(records, base), self._buffer, base)
        return None

    def _read(self, at: int) -> int:
        wanted = min(len(self._buffer), self._size - at)
        return medium.read_into(self._fd, memoryview(self._buffer)[:wanted], at) if wanted > 0 else 0

    def _long(self, got: int, needs: int) -> int:
        """Takes a record that is longer than the window, and checks it a window at a time. Returns 1; 0: it is none, or
        not of those kinds."""
        if got == 0:
            self.stop = END
            return 0
        if self.offset + needs > self._size or needs > MAX_SEGMENT_BYTES or got < RECORD_BYTES:
            self.stop = BAD
            return 0
        head = bytes(self._buffer[: RECORD_BYTES + MAX_ATTRIBUTE_BYTES])
        record = struct_in("record", head)
        memory = ffi.from_buffer("uint8_t[]", self._buffer)
        checked = lib.crc32c_extend(0, struct.pack("<II", record.bytes, self._segment), 8)
        checked = lib.crc32c_extend(checked, memory + 8, got - 8)
        at, end = self.offset + got, self.offset + record.bytes
        while at < end and (got := min(self._read(at), end - at)) > 0:
            checked = lib.crc32c_extend(checked, memory, got)
            at += got
        if at < end or checked != record.crc:
            self.stop = BAD
            return 0
        self._buffer[: len(head)] = head
        self.offset += needs
        return self._columns.put(record) if KINDS >> record.kind & 1 else 0

    def resume(self) -> None:
        """Goes on at `offset`, after the caller has set it."""
        self.stop = None


def _with_transactions(batch: Batch, data: bytearray, base: int) -> Batch:
    staged = np.flatnonzero(batch.kind == STAGED)
    if len(staged) == 0:
        return batch
    at = (batch.offset[staged] - np.uint64(base)).astype(np.int64) + RECORD_BYTES
    attributes = np.frombuffer(data, np.uint8)[at[:, None] + np.arange(8)]
    id = batch.id.copy()
    id[staged] = attributes.view("<u8")[:, 0]
    return replace(batch, id=id)


def heads(fd: int, offset: int, size: int, segment: int, kinds: int, columns: Columns) -> Batch:
    """The records at [offset, offset + size), with offsets from there. They are not checked, and of the last one, which
    may be large, no more than its head is read."""
    data = os.pread(fd, min(size, WINDOW_BYTES), offset)
    records, at, _, stop = columns.scan(data, 0, len(data), segment, kinds=kinds, check=False)
    found = columns.batch(records)
    if stop == PART and len(head := os.pread(fd, RECORD_BYTES, offset + at)) == RECORD_BYTES:
        last = struct_in("record", head)
        if kinds >> last.kind & 1 and at + (last.bytes + 7) // 8 * 8 == size:
            found = join([found, columns.batch(columns.put(last), at)])
    return found


def find_whole(fd: int, segment: int, offset: int, size: int) -> int | None:
    """Where the first whole record begins at or after `offset`."""
    data = medium.read(fd, max(0, size - offset), offset)
    found = int(lib.scan_find(ffi.cast("uint8_t *", ffi.from_buffer(data)), len(data), 0, segment))
    return None if found >= len(data) else offset + found


def is_zero(fd: int, offset: int, size: int) -> bool:
    """Whether the file has nothing but zeros from `offset` on."""
    while offset < size:
        data = medium.read(fd, min(WINDOW_BYTES, size - offset), offset)
        if not data:
            break
        if data.count(0) != len(data):
            return False
        offset += len(data)
    return True


def gather(fd: int, offsets: U64, lengths: U32, out: bytearray, scratch: bytearray) -> None:
    """Reads pieces of a file into `out`, one after the other. Raises OSError."""
    done = lib.scan_gather_file(
        fd,
        ffi.cast("uint64_t *", offsets.ctypes.data),
        ffi.cast("uint32_t *", lengths.ctypes.data),
        len(offsets),
        ffi.cast("uint8_t *", ffi.from_buffer(out)),
        ffi.cast("uint8_t *", ffi.from_buffer(scratch)),
        len(scratch),
    )
    if not done:
        raise OSError(ffi.errno, os.strerror(ffi.errno))
