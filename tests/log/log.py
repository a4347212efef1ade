"""The log of a shard, its checksum and its syncer: against a model, against damage and against full disks.

The contracts are in csrc/log/log.h, csrc/base/crc32c.h and csrc/log/sync.h.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mq_shards.csrc._core import ffi, lib

SHARD, SHARDS = 3, 64
NOW = 1_700_000_000_000_000_000
HEADER = 64
UNKNOWN = 2**64 - 1


@dataclass(frozen=True)
class Entry:
    kind: int = 1
    flags: int = 0
    topic: int = 7
    seq: int = 0
    time_ns: int = NOW
    id: int = 0
    attributes: bytes = b""
    body: bytes = b""

    @property
    def bytes(self) -> int:
        return 40 + len(self.attributes) + len(self.body)

    @property
    def stride(self) -> int:
        return (self.bytes + 7) // 8 * 8


def entry_of(record: Any) -> Entry:  # noqa: ANN401
    return Entry(
        record.kind,
        record.flags,
        record.topic,
        record.seq,
        record.time_ns,
        record.id,
        bytes(ffi.buffer(lib.record_attributes(record), record.attribute_bytes)),
        bytes(ffi.buffer(lib.record_body(record), lib.record_body_bytes(record))),
    )


@dataclass(frozen=True)
class Scan:
    """What a walk over one segment found."""

    entries: list[tuple[int, Entry]]  # offset, record
    damage: list[tuple[int, int]]  # from, to
    end: int
    torn: int  # 0, or where the end is not clean


class Log:
    """One C log, its errors as values and its records as `Entry`."""

    def __init__(self) -> None:
        self.c = lib.log_new(SHARD, SHARDS)
        assert self.c != ffi.NULL

    def close(self) -> None:
        lib.log_free(self.c)
        self.c = ffi.NULL

    def add(self, fd: int, segment: int, capacity: int = 1 << 16, *, new: bool = True, end: int = UNKNOWN) -> bool:
        return bool(lib.log_add_segment(self.c, fd, segment, capacity, new, end, NOW))

    def reserve(self, *entries: Entry, keep: int = 0) -> int:
        payload = sum(len(e.attributes) + len(e.body) for e in entries)
        return int(lib.log_reserve(self.c, len(entries), payload, keep, NOW))

    def append(self, e: Entry, lent: Any = None) -> int:  # noqa: ANN401
        """`lent`: memory of C's that its body is to be written from."""
        head = ffi.new("struct record *")
        head.kind, head.flags, head.topic, head.seq = e.kind, e.flags, e.topic, e.seq
        head.time_ns, head.id, head.attribute_bytes = e.time_ns, e.id, len(e.attributes)
        if lent is None:
            return int(lib.log_append(self.c, head, e.attributes, e.body, len(e.body)))
        return int(lib.log_append_lent(self.c, head, e.attributes, lent, len(e.body)))

    def put(self, e: Entry, keep: int = 0) -> int:
        """The position, or 0 if there is no room."""
        return self.append(e) if self.reserve(e, keep=keep) == lib.LOG_OK else 0

    def flush(self) -> int:
        return int(lib.log_flush(self.c))

    def read(self, position: int) -> Entry | None:
        record = lib.log_read(self.c, position)
        return None if record == ffi.NULL else entry_of(record)

    def scan(self, segment: int) -> Scan:
        offset, bad, record = ffi.new("uint64_t *"), ffi.new("uint64_t *"), ffi.new("const struct record **")
        entries: list[tuple[int, Entry]] = []
        damage: list[tuple[int, int]] = []
        while True:
            result = lib.log_scan(self.c, segment, offset, record, bad)
            if result == 0:
                return Scan(entries, damage, offset[0], bad[0])
            if result < 0:
                damage.append((bad[0], offset[0]))
            else:
                entries.append((offset[0] - lib.record_stride(record[0]), entry_of(record[0])))

    def truncate(self, segment: int, offset: int) -> bool:
        return bool(lib.log_truncate(self.c, segment, offset))

    def unsynced(self, at_most: int = 16) -> tuple[list[int], int]:
        fds, upto = ffi.new("int[]", at_most), ffi.new("uint64_t *")
        count = lib.log_unsynced_fds(self.c, fds, at_most, upto)
        return list(fds[0:count]), upto[0]


def memfd(content: bytes = b"") -> int:
    fd = os.memfd_create("segment", os.MFD_CLOEXEC)
    os.write(fd, content)
    return fd


def on_disk(directory: Path) -> int:
    """A segment that is written by system calls, which can fail; one in memory is written by copying."""
    fd = os.open(directory / "segment", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    kind = subprocess.run(["stat", "-f", "-c", "%T", directory], check=True, capture_output=True, text=True).stdout
    if kind.strip() == "tmpfs":
        pytest.skip("the directory for temporary files is in memory")
    return fd


def in_subprocess(test: Callable[..., None], *arguments: str) -> None:
    """Runs a function where it may spoil its process's limits."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import {test.__module__} as t; t.{test.__name__}(*{arguments!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def limit_file_size(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def content_of(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def written(segment: int, entries: list[Entry]) -> bytes:
    """A segment's bytes up to the end of its last record."""
    log, fd = Log(), memfd()
    assert log.add(fd, segment, 1 << 20)
    for e in entries:
        assert log.put(e)
    assert log.flush() == lib.LOG_OK
    content = os.pread(fd, lib.log_segment_end(log.c, segment), 0)
    log.close()
    return content


def offsets(entries: list[Entry]) -> list[tuple[int, Entry]]:
    found, offset = [], HEADER
    for e in entries:
        found.append((offset, e))
        offset += e.stride
    return found


SEVERAL = [
    Entry(body=b"first", seq=1),
    Entry(kind=2, attributes=b"key=value", body=b"x" * 100, id=2**64 - 1, flags=0xFFFF),
    Entry(kind=255),
    Entry(attributes=b"a" * 255, body=bytes(64)),
    Entry(body=bytes(range(1, 28)), topic=2**32 - 1, time_ns=0),
    Entry(body=b"y" * 300, seq=2**63),
]
