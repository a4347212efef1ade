"""Files that options name: certificates, keys, users, configurations. They are read at a start, and again on SIGHUP.

A FIFO or a device would keep him waiting for ever, or never end: it is refused before it is opened by who would wait.

The supervisor reads the files of certificates, keys and the like once, looks whether that can be used, and gives the
same bytes to all processes, also to one that starts when the file is damaged or gone: see keep().
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

# Of this process, which has one supervisor: what stands for these files, whatever is on the disk.
_kept: dict[str, bytes] = {}


class NamedFileError(OSError):
    """Not one that can be read; `strerror` says why."""


def check(path: str | Path) -> None:
    """Raises OSError, as opening it would."""
    if str(path) not in _kept:
        os.close(_open(path))


def read(path: str | Path) -> bytes:
    """All of it. Raises OSError."""
    if str(path) in _kept:
        return _kept[str(path)]
    with os.fdopen(_open(path), "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise NamedFileError(errno.EFBIG, f"more than {MAX_BYTES >> 20} MiB", str(path))
    return content


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[str]:
    """A path where its content is found by who takes nothing but a path, as ssl does. Raises OSError."""
    content = _kept.get(str(path))
    if content is None:
        check(path)
        yield str(path)
        return
    with in_memory(content) as fd:
        yield f"/proc/self/fd/{fd}"


# --- what is kept of them ---------------------------------------------------------------------------------------------


def keep(files: Files) -> None:
    """From now on these are what is found at their paths, and nothing that was kept before."""
    _kept.clear()
    _kept.update(files)


def all_kept() -> Files:
    """By path. They are the same until others are kept."""
    return _kept


@contextlib.contextmanager
def kept(files: Files) -> Iterator[None]:
    """The same, for a while."""
    before = dict(_kept)
    keep(files)
    try:
        yield
    finally:
        keep(before)


@contextlib.contextmanager
def in_memory(content: bytes) -> Iterator[int]:
    """A descriptor of a file that is on no disk, at its beginning."""
    fd = os.memfd_create("configuration", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def encode(files: Files) -> bytes:
    """Paths and sizes in a line, then the contents."""
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
    """From the supervisor: a descriptor of what encode() made, or none where there is nothing to be kept. It stays
    the caller's."""
    content = b"[]\n"
    for fd in fds:
        with open(fd, "rb", closefd=False) as file:
            content = file.read()
    keep(decode(content))


# ----------------------------------------------------------------------------------------------------------------------


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
