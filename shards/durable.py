"""Reads small files, and replaces them as a whole, so that they survive a power failure. Only this module knows how.

It knows nothing of their content.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# Several syncs cost a disk no more than one: they share a commit of its journal.
SYNCING_THREADS: Final = 4


class NotAFileError(OSError):
    """A directory, a pipe or the like is in a file's place."""


def open_to_read(path: Path) -> int:
    """Opens a file; returns its descriptor. Raises OSError; NotAFileError for a pipe, too, which could be waited for
    without end, and for a link to nothing, which is not the same as no file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP) and path.is_symlink():
            raise NotAFileError(errno.EINVAL, "it is a link to nothing", str(path)) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotAFileError(errno.EINVAL, "it is not a file", str(path))
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_anew(path: Path) -> int:
    """Makes an empty file in the place of whatever has that name; returns a descriptor to write with. What is there is
    unlinked, not opened: a pipe could be waited for without end. Raises OSError; NotAFileError for a directory."""
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        raise NotAFileError(errno.EISDIR, f"{path.name} is a directory", str(path)) from None
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def read(path: Path) -> bytes:
    """Reads a file. Raises OSError; NotAFileError for a pipe and the like."""
    with os.fdopen(open_to_read(path), "rb") as file:
        return file.read()


def save(path: Path, content: bytes) -> None:
    """Replaces the file, durably when it returns. Until then, and if it raises OSError, `path` is unchanged.

    The folder must exist. One writer at a time: the content is first written to a file with the suffix .new.
    """
    new = path.with_name(path.name + ".new")
    with os.fdopen(open_anew(new), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Makes what was written to a file durable. Raises OSError."""
    fd = open_to_read(path)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Makes the names in a folder durable, those added and those removed. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_all(paths: Sequence[Path]) -> None:
    """Makes files durable, and folders with the names in them. Raises OSError."""
    failed: list[OSError] = []

    def sync(some: Sequence[Path]) -> None:
        try:
            for path in some:
                sync_file(path) if path.is_file() else sync_directory(path)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=sync, args=(paths[at::SYNCING_THREADS],)) for at in range(SYNCING_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
