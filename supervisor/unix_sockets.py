"""Socket files: bound with the access they are to have, taken over from a broker that died, removed at the end."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import socket
import stat
from pathlib import Path
from typing import NamedTuple


class Access(NamedTuple):
    mode: int = 0o660
    user: int = -1  # -1: not changed
    group: int = -1


def access(mode: str, owner: str, runs_as: tuple[int, int] = (-1, -1)) -> Access:
    """The access that the options ask for. `runs_as`: user and group that the broker becomes later, which own the file
    unless `owner` names others. Raises ValueError, with one line, if there is no such user or group."""
    user_name, _, group_name = owner.partition(":")
    try:
        user = pwd.getpwnam(user_name).pw_uid if user_name else runs_as[0]
        group = grp.getgrnam(group_name).gr_gid if group_name else runs_as[1]
    except KeyError:
        raise ValueError(f'broker.unix-owner: there is no "{owner}"') from None
    return Access(int(mode, 8), user, group)


def bind(path: Path, wanted: Access) -> socket.socket:
    """A bound socket that does not listen yet: nobody can connect before owner and mode are set. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        before = os.umask(0o177)
        try:
            _take_over(path)
            sock.bind(str(path))
        finally:
            os.umask(before)
        if (wanted.user, wanted.group) != (-1, -1):
            os.chown(path, wanted.user, wanted.group)
        path.chmod(wanted.mode)
    except BaseException:
        sock.close()
        raise
    return sock


def _take_over(path: Path) -> None:
    """Removes the file of a broker that died. Raises OSError if it is no socket, or a process listens on it."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass  # its queue is full: a process listens
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def remove(path: Path, bound: tuple[int, int]) -> None:
    """Removes the file, unless another process has bound it anew."""
    with contextlib.suppress(OSError):
        if identity(path) == bound:
            path.unlink()
