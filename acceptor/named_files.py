"""Files that options name: certificates, keys, users, configurations. They are read at a start, and again on SIGHUP.

A FIFO or a device is refused, since a reader would wait for ever or never reach its end.

The supervisor reads certificates, keys and similar files once, checks that they can be used, and gives the same bytes
to all processes, also to one that starts when the file has been damaged or removed: see keep().
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson

MAX_BYTES: Final = 64 << 20

Files = Mapping[str, bytes]  # by path

# What read() returns for these paths, whatever is on the disk. A module variable, since a process has one supervisor.
_kept: dict[str, bytes] = {}


class NamedFileError(OSError):
    """A file that cannot be used; `strerror` says why."""


def check(path: str | Path) -> None:
    """Raises OSError if the file cannot be opened for reading."""
    if str(path) not in _kept:
        os.close(_open(path))


def read(path: str | Path) -> bytes:
    """Returns the whole content. Raises OSError."""
    if str(path) in _kept:
        return _kept[str(path)]
    with os.fdopen(_open(path), "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise NamedFileError(errno.EFBIG, f"more than {MAX_BYTES >> 20} MiB", str(path))
    return content


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[str]:
    """Yields a path with the file's content, for libraries such as ssl that accept only a path. Raises OSError."""
    content = _kept.get(str(path))
    if content is None:
        check(path)
        yield str(path)
        return
    with in_memory(content) as fd:
        yield f"/proc/self/fd/{fd}"


# --- kept contents ----------------------------------------------------------------------------------------------------


def keep(files: Files) -> None:
    """From now on reads of these paths return these contents. Replaces everything that was kept before."""
    _kept.clear()
    _kept.update(files)


def all_kept() -> Files:
    """The kept files by path. They change only with keep()."""
    return _kept


@contextlib.contextmanager
def kept(files: Files) -> Iterator[None]:
    """Does the same as keep() until the block ends, then restores what was kept before."""
    before = dict(_kept)
    keep(files)
    try:
        yield
    finally:
        keep(before)


@contextlib.contextmanager
def in_memory(content: bytes) -> Iterator[int]:
    """Yields a descriptor of a file in memory with that content, positioned at its beginning."""
    fd = os.memfd_create("configuration", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def encode(files: Files) -> bytes:
    """Returns one line with all paths and sizes, then the contents."""
    index = [(os.fsencode(path).decode("latin-1"), len(content)) for path, content in files.items()]
    return orjson.dumps(index) + b"\n" + b"".join(files.values())


def decode(content: bytes) -> Files:
    line, _, rest = content.partition(b"\n")
    files, at = {}, 0
    for path, size in orjson.loads(line):
        files[os.fsdecode(path.encode("latin-1"))] = rest[at : at + size]
        at += size
    return files


def keep_what_came(fds: Sequence[int]) -> None:
    """Keeps the files that the supervisor sent: `fds` has a descriptor of what encode() made, or is empty when there is
    nothing to keep. The caller closes it."""
    content = b"[]\n"
    for fd in fds:
        with open(fd, "rb", closefd=False) as file:
            content = file.read()
    keep(decode(content))


# ----------------------------------------------------------------------------------------------------------------------


def _open(path: str | Path) -> int:
    if "\0" in str(path):  # which open() calls a ValueError
        raise NamedFileError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
    # O_NONBLOCK opens a FIFO without waiting for a writer, and makes no difference for a regular file.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode) or os.path.samestat(os.fstat(file), Path(os.devnull).stat()):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise NamedFileError(errno.EINVAL, "not a file but a pipe, a socket or a device", str(path))
