"""The board (csrc/ringbuf/board.h) as the supervisor sees it, which creates it and turns on drain mode."""

from __future__ import annotations

import os

from mq_shards.csrc._core import ffi, lib


def create() -> int:
    """A memfd that holds a formatted board; the caller closes it. OSError if there is no memory for it."""
    fd = os.memfd_create("mq-board", os.MFD_CLOEXEC)
    if not lib.board_format(fd):
        os.close(fd)
        raise OSError(ffi.errno, f"cannot make the board: {os.strerror(ffi.errno)}")
    return fd


def drain(fd: int) -> None:
    """Turns on drain mode: acceptors refuse new messages until the broker is restarted. OSError: no memory for that."""
    if not lib.board_drain(fd):
        raise OSError(ffi.errno, f"cannot reach the board: {os.strerror(ffi.errno)}")
