"""Files that options name: certificates, keys, users, configurations. They are read at a start, and again on SIGHUP.

A FIFO or a device would keep him waiting for ever, or never end: it is refused before it is opened by who would wait.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 64 << 20


class NamedFileError(OSError):
    """Not one that can be read; `strerror` says why."""


def check(path: str | Path) -> None:
    """Raises OSError, as opening it would."""
    os.close(_open(path))


def read(path: str | Path) -> bytes:
    """All of it. Raises OSError."""
    with os.fdopen(_open(path), "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise NamedFileError(errno.EFBIG, f"more than {MAX_BYTES >> 20} MiB", str(path))
    return content


def _open(path: str | Path) -> int:
    # It opens a FIFO without waiting for who writes into it, and changes nothing for a file.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode) or os.path.samestat(os.fstat(file), Path(os.devnull).stat()):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise NamedFileError(errno.EINVAL, "not a file but a pipe, a socket or a device", str(path))
