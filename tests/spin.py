"""An endless loop in a process that runs: the fault that does not end it."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path
from typing import Final

# A jump to itself, and where the kernel keeps the program counter among the general registers (PTRACE_GETREGSET).
LOOPS: Final = {"x86_64": (b"\xeb\xfe", 16), "aarch64": (b"\x00\x00\x00\x14", 32)}
PTRACE_ATTACH: Final = 16
PTRACE_DETACH: Final = 17
PTRACE_GETREGSET: Final = 0x4204
NT_PRSTATUS: Final = 1
WALL: Final = 0x40000000  # __WALL
REGISTERS: Final = 64


class Span(ctypes.Structure):
    """struct iovec"""

    _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


def can() -> bool:
    return platform.machine() in LOOPS


def spin(pid: int) -> None:
    """Its first thread goes round for ever, where it is now. Raises OSError where that is not allowed."""
    loop, counter = LOOPS[platform.machine()]
    _ptrace(PTRACE_ATTACH, pid)
    try:
        os.waitpid(pid, WALL)
        registers = (ctypes.c_uint64 * REGISTERS)()
        span = Span(ctypes.addressof(registers), ctypes.sizeof(registers))
        _ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, ctypes.addressof(span))
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(registers[counter])
            memory.write(loop)  # its own copy of the page: nobody else runs it
    finally:
        _ptrace(PTRACE_DETACH, pid)


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, pid, address, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
