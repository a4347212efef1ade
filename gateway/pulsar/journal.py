"""The catalog's log on disk: one file, written by one process, which reads all of it when it starts.

    head      magic, version, generation, CRC-32C of these
    records   magic, bytes, CRC-32C (of the generation, the place and the payload), payload

A record is durable when append() returns. Bytes that a crash left after the last whole record are cut off. A record in
the middle that cannot be read is reported, and the records after it are read. If the head cannot be read, the records
tell the generation. When much of the file is outdated it is rewritten, under the next generation; bytes of an earlier
generation never look valid.

Knows nothing of what is in a record. Must run in threads: every call may wait for the disk.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from mq_shards.gateway.pulsar.generation import generation_of
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.durable import sync_directory

VERSION: Final = 1
MAX_RECORD_BYTES: Final = 8 << 20
MAX_ASIDE: Final = 16  # damaged files of one generation that are kept aside

_MAGIC: Final = b"MQPULSAR"
_HEAD: Final = struct.Struct("<8sIQI")
_RECORD_MAGIC: Final = b"\xc5\x9aRC"
_RECORD: Final = struct.Struct("<4sII")


class JournalError(Exception):
    """One line for the operator: why the log cannot be read, and therefore is not written."""


class Journal:
    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.bytes = 0
        self.is_damaged = False  # open() has found that records were lost that had been durable
        self._generation = 0
        self._fd = -1
        self._in_doubt = False  # it is not known what the disk has of the last append or rewrite

    def open(self) -> tuple[list[bytes], list[str]]:
        """Returns all records, and a line for each damage. Makes the file if need be. Raises JournalError, OSError."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.is_damaged = False
        is_first = not os.path.lexists(self.path.parent)  # a link to nothing is not the same as nothing
        if not is_first and not self.path.parent.is_dir():
            raise JournalError(f"{self.path.parent} is not a directory")
        self.path.parent.mkdir(mode=0o750, exist_ok=True)
        if not os.path.lexists(self.path):
            self.rewrite(())
            sync_directory(self.path.parent.parent)
            return [], [] if is_first else [f"{self.path} is missing: it is made anew, and nothing of before is known"]
        if not self.path.is_file():  # reading a pipe would not end
            raise JournalError(f"{self.path} is not a file")
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        if self._in_doubt:  # readable bytes may not be on the disk, and callers were told that the append failed
            os.ftruncate(self._fd, self.bytes)
            os.fsync(self._fd)
            sync_directory(self.path.parent)
        data = self.path.read_bytes()
        head_damages = self._read_head(data)
        payloads, damages, self.bytes = self._read_records(data)
        damages = head_damages + damages
        self.is_damaged = bool(damages)
        if damages:
            self._keep_aside(data)
            self.rewrite(payloads)
        elif self.bytes < len(data):
            if not self._is_cut_short(data):
                with contextlib.suppress(OSError, JournalError):  # the broker serves although the disk is full
                    self._keep_aside(data)
            os.ftruncate(self._fd, self.bytes)
            os.fsync(self._fd)
            damages = [f"{self.path}: its last {len(data) - self.bytes} bytes are cut off: they are no whole record"]
        self._in_doubt = False
        return payloads, damages

    def append(self, payloads: Iterable[bytes]) -> None:
        """Appends records, durably. After an OSError call open() before the next append(): it removes them again."""
        if self._in_doubt:
            raise OSError(f"{self.path} was not written before")
        data = self._encode(payloads, self.bytes)
        self._in_doubt = True
        _write(self._fd, data, self.bytes)
        os.fdatasync(self._fd)
        self._in_doubt = False
        self.bytes += len(data)

    def rewrite(self, payloads: Iterable[bytes]) -> None:
        """Replaces all records by these. After an OSError nothing has changed, or append() fails until open()."""
        generation = self._generation + 1
        new = self.path.with_name(self.path.name + ".new")
        before = self._generation
        self._generation = generation
        try:
            head = _HEAD.pack(_MAGIC, VERSION, generation, 0)[:-4]
            data = head + struct.pack("<I", crc32c(head))
            data += self._encode(payloads, len(data))
            new.unlink(missing_ok=True)  # a pipe could be waited for, and a link leads elsewhere
            fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
            try:
                _write(fd, data, 0)
                os.fsync(fd)
                new.replace(self.path)
            except BaseException:
                os.close(fd)
                raise
        except BaseException:
            self._generation = before
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self.bytes = len(data)
        self._in_doubt = True  # until the sync a crash may leave this file or the one before it
        sync_directory(self.path.parent)
        self._in_doubt = False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _keep_aside(self, data: bytes) -> None:
        """Saves the damaged file under another name, unless an earlier start that failed has saved the same."""
        named = self.path.with_name(f"{self.path.name}.damaged-{self._generation}")
        for number in range(MAX_ASIDE):
            aside = named.with_name(f"{named.name}-{number}") if number else named
            if not aside.exists():
                break
            if aside.stat().st_size == len(data) and aside.read_bytes() == data:
                return
        else:
            raise JournalError(f"{self.path} is damaged, and there are {MAX_ASIDE} of {named} already")
        try:
            aside.write_bytes(data)
        except OSError:
            aside.unlink(missing_ok=True)
            raise

    # --- the format -------------------------------------------------------------------------------------------------

    def _read_head(self, data: bytes) -> list[str]:
        """Sets the generation, and returns what is wrong with the head. Raises JournalError: an unknown version."""
        if len(data) >= _HEAD.size:
            magic, version, self._generation, crc = _HEAD.unpack_from(data)
            if magic == _MAGIC and crc == crc32c(data[: _HEAD.size - 4]):
                if version != VERSION:
                    raise JournalError(f"{self.path} has version {version}, which this mq-shards does not know")
                return []
        generation = generation_of(self._likely_records(data))
        self._generation = generation or 0
        if generation is None:
            return [f"{self.path} has neither head nor records: it is made anew, and nothing of before is known"]
        return [f"{self.path} has a damaged head: its records are read as those of generation {generation}"]

    def _likely_records(self, data: bytes) -> Iterator[tuple[int, bytes, int]]:
        """Yields place, payload and checksum of whatever has the form of a record."""
        at = -1
        while (at := data.find(_RECORD_MAGIC, at + 1)) >= 0:
            if at + _RECORD.size <= len(data):
                _, size, crc = _RECORD.unpack_from(data, at)
                if size <= min(MAX_RECORD_BYTES, len(data) - at - _RECORD.size):
                    yield at, data[at + _RECORD.size : at + _RECORD.size + size], crc

    def _read_records(self, data: bytes) -> tuple[list[bytes], list[str], int]:
        """Returns the payloads, a line for each damage, and where the last whole record ends."""
        payloads, damages = [], []
        at = end = _HEAD.size
        while at < len(data):
            payload = self._record_at(data, at)
            if payload is None:
                behind = self._next_record(data, at + 1)
                if behind < 0:
                    break  # a write that was cut short
                damages.append(f"{self.path}: {behind - at} bytes from {at} on cannot be read: what they said is lost")
                at = behind
                continue
            payloads.append(payload)
            at = end = at + _RECORD.size + len(payload)
        return payloads, damages, end

    def _record_at(self, data: bytes, at: int) -> bytes | None:
        if at + _RECORD.size > len(data):
            return None
        magic, size, crc = _RECORD.unpack_from(data, at)
        if magic != _RECORD_MAGIC or size > MAX_RECORD_BYTES or at + _RECORD.size + size > len(data):
            return None
        payload = data[at + _RECORD.size : at + _RECORD.size + size]
        return payload if crc == self._crc(payload, at) else None

    def _is_cut_short(self, data: bytes) -> bool:
        """Whether the rest is the beginning of one record, cut short; else it may have held several records."""
        if self.bytes + _RECORD.size > len(data):
            return True
        magic, size, _ = _RECORD.unpack_from(data, self.bytes)
        return bool(magic == _RECORD_MAGIC and self.bytes + _RECORD.size + size > len(data))

    def _next_record(self, data: bytes, at: int) -> int:
        while (at := data.find(_RECORD_MAGIC, at)) >= 0:
            if self._record_at(data, at) is not None:
                return at
            at += 1
        return -1

    def _encode(self, payloads: Iterable[bytes], at: int) -> bytes:
        parts = []
        for payload in payloads:
            assert len(payload) <= MAX_RECORD_BYTES
            parts.append(_RECORD.pack(_RECORD_MAGIC, len(payload), self._crc(payload, at)))
            parts.append(payload)
            at += _RECORD.size + len(payload)
        return b"".join(parts)

    def _crc(self, payload: bytes, at: int) -> int:
        return crc32c(payload, crc32c(struct.pack("<QQ", self._generation, at)))


def _write(fd: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written
