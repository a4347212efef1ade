"""Reads segment files on a medium that may fail in places: blocks that cannot be read are zeros, which are no record.

So for a copy, a dump or a reader, as for a start, a bad block costs the records on it, but not all that follow.
"""

from __future__ import annotations

import errno
import os
from typing import Final

BLOCK: Final = 4096


def read_into(fd: int, into: memoryview, at: int) -> int:
    """Reads until `into` is full or the file ends; returns how much. Raises OSError unless it is a medium error."""
    got = 0
    while got < len(into):
        count = _read_some(fd, into[got:], at + got)
        if count == 0:
            break
        got += count
    return got


def read(fd: int, count: int, at: int) -> bytes:
    data = bytearray(count)
    return bytes(memoryview(data)[: read_into(fd, memoryview(data), at)])


def is_failing(fd: int, count: int, at: int) -> bool:
    """Whether some of these bytes cannot be read."""
    try:
        while count > 0 and (got := len(os.pread(fd, count, at))):
            at, count = at + got, count - got
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return True
    return False


def _read_some(fd: int, into: memoryview, at: int) -> int:
    try:
        return os.preadv(fd, [into], at)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    # A block by itself: those beside it may be whole.
    piece = into[: BLOCK - at % BLOCK]
    try:
        return os.preadv(fd, [piece], at)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    there = min(len(piece), os.fstat(fd).st_size - at)
    if there <= 0:
        return 0
    piece[:there] = bytes(there)
    return there
