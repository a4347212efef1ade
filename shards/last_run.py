"""How the last run on a data directory ended: whether its logs may have lost what was written last without a trace.

    DIR/last-run.json   {"version": 1, "file": [INODE, GENERATION], "boot": "...", "synced": false, "stopped": true}

A killed broker loses nothing, as the kernel has what it wrote. What was not synced is lost when the machine stops,
which shows in the kernel's boot id; and a directory that was copied or restored does not have what was written since,
which shows in the file: a copy has another inode, or at least another generation of it. `synced`: all that was answered
was on the disk before. The file is written over in its place, so that it needs no room; a power failure meanwhile
damages it, which counts as a reason too.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from mq_shards.shards import durable

NAME: Final = "last-run.json"
VERSION: Final = 1
BYTES: Final = 512
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
FS_IOC_GETVERSION: Final = 0x80087601  # _IOR('v', 1, long), linux/fs.h; the kernel fills an int

log = logging.getLogger(__name__)


class _Said(NamedTuple):
    boot: str
    synced: bool
    stopped: bool


class LastRun:
    def __init__(self, directory: Path, why_lost: str, *, synced: bool) -> None:
        """`why_lost`: why something may be lost; "": nothing is. `synced`: all that is in the logs is on the disk."""
        self.why_lost = why_lost
        self._path: Final = directory / NAME
        self._synced = synced
        self._begun = False

    @classmethod
    def look(cls, directory: Path) -> LastRun:
        """Raises OSError."""
        try:
            said = _read(directory / NAME)
        except FileNotFoundError:
            return cls(directory, f"there is no {NAME} to say how it ended", synced=False)
        except durable.NotAFileError:
            return cls(directory, f"{NAME} is not a file", synced=False)
        if said is None:
            return cls(directory, f"{NAME} is damaged, or a copy", synced=False)
        same_boot = said.boot == _boot_id()
        # What is there after a power failure is on the disk.
        known = said.stopped or said.synced or not same_boot
        lost = not (said.stopped or said.synced or same_boot)
        return cls(directory, "the machine stopped while the broker ran" if lost else "", synced=known)

    def begins(self, *, sync_always: bool) -> None:
        """Notes durably that a run begins, before it gives out anything. What may be lost has been made up for."""
        self.why_lost = ""
        self._synced &= sync_always
        self._begun = True
        self._write(stopped=False)

    def stopped(self) -> None:
        """Notes that the run has ended, and that all it wrote is on the disk."""
        if self._begun:
            self._write(stopped=True)

    def _write(self, *, stopped: bool) -> None:
        try:
            write(self._path.parent, _Said(_boot_id(), self._synced, stopped))
        except OSError as error:
            log.error("%s cannot be written, so ids may be given out twice after a power failure: %s", NAME, error)


_NEW: Final = _Said("", synced=True, stopped=True)


def write(directory: Path, said: _Said = _NEW) -> None:
    """By default: of a new directory. Durable when it returns. Raises OSError."""
    path = directory / NAME
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o640)
    try:
        is_new = os.fstat(fd).st_size == 0
        content = {"version": VERSION, "file": _identity(fd), **said._asdict()}
        os.pwrite(fd, json.dumps(content).encode().ljust(BYTES - 1) + b"\n", 0)
        os.ftruncate(fd, BYTES)
        os.fsync(fd)
    finally:
        os.close(fd)
    if is_new:
        durable.sync_directory(directory)


def _read(path: Path) -> _Said | None:
    """None: it is damaged, or was written as another file. Raises OSError."""
    fd = durable.open_to_read(path)
    try:
        identity = _identity(fd)
        text = os.pread(fd, BYTES, 0)
    finally:
        os.close(fd)
    try:
        found = json.loads(text)
        if found["version"] != VERSION or found["file"] != identity:
            return None
        return _Said(str(found["boot"]), found["synced"] is True, found["stopped"] is True)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _identity(fd: int) -> list[int]:
    """Inode numbers are used again, their generations are not; 0 where the file system has none."""
    generation = bytearray(struct.calcsize("l"))
    try:
        fcntl.ioctl(fd, FS_IOC_GETVERSION, generation)
    except OSError:
        generation = bytearray(len(generation))
    return [os.fstat(fd).st_ino, struct.unpack("l", generation)[0]]


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
