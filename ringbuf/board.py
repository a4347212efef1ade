"""The board (csrc/ringbuf/board.h) as the supervisor sees it: it makes it, and turns the drain switch."""

from __future__ import annotations

import mmap
import os
import struct
from typing import Final

from mq_shards.csrc._core import ffi, lib

DRAINING_OFFSET: Final = 64  # of struct board's `draining`, a uint32_t


def create() -> int:
    """A memfd that holds a formatted board; the caller closes it. OSError if there is no memory for it."""
    fd = os.memfd_create("mq-board", os.MFD_CLOEXEC)
    if not lib.board_format(fd):
        os.close(fd)
        raise OSError(ffi.errno, f"cannot make the board: {os.strerror(ffi.errno)}")
    return fd


def drain(fd: int) -> None:
    """From now on acceptors refuse new messages; there is no way back but a restart."""
    with mmap.mmap(fd, mmap.PAGESIZE) as page:
        # One aligned 32-bit store; the acceptors look at it with relaxed loads, nothing else hangs on it.
        struct.pack_into("=I", page, DRAINING_OFFSET, 1)
