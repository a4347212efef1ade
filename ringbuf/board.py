"""The board (csrc/ringbuf/board.h) as the supervisor sees it, which creates it and turns on drain mode."""

from __future__ import annotations

import mmap
import os
import struct
from typing import Final

from mq_shards.csrc._core import ffi, lib

DRAINING_OFFSET: Final = 64  # of `draining`, a uint32_t, in struct board


def create() -> int:
    """A memfd that holds a formatted board; the caller closes it. OSError if there is no memory for it."""
    fd = os.memfd_create("mq-board", os.MFD_CLOEXEC)
    if not lib.board_format(fd):
        os.close(fd)
        raise OSError(ffi.errno, f"cannot make the board: {os.strerror(ffi.errno)}")
    return fd


def drain(fd: int) -> None:
    """Turns on drain mode: acceptors refuse new messages until the broker is restarted."""
    with mmap.mmap(fd, mmap.PAGESIZE) as page:
        # One aligned 32-bit store; acceptors read it with relaxed loads, and no other memory depends on it.
        struct.pack_into("=I", page, DRAINING_OFFSET, 1)
