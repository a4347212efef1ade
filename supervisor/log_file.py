"""The log file: a file that is stderr of all processes. It is opened anew at SIGUSR1, replaced when a reload names
another, and rotated when it has grown past a limit.

Owns: the supervisor's descriptor 2, and copies of it in the children. Must never: rename what is not a regular file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mq_shards.acceptor.protocol import LogFileTerms
from mq_shards.ringbuf.control import STDERR
from mq_shards.supervisor.child import Child

FILE_MODE: Final = 0o640  # of a new log file
# What a rotation puts behind the file's name: the local time, to the nanosecond.
STAMP: Final = re.compile(r"\.[0-9]{4}(?:\.[0-9]{2}){5}\.[0-9]{9}")

log = logging.getLogger(__name__)


class LogFile:
    def __init__(self) -> None:
        self._terms = LogFileTerms()
        self._rotate_at = 0  # size in bytes: the limit, or more after a rotation has failed
        self._first_stderr = -1  # a copy, as soon as descriptor 2 is a file

    def use(self, terms: LogFileTerms, children: Iterable[Child] = ()) -> None:
        """Writes to the end of that file from now on, and creates it if it is missing. Raises OSError, with nothing
        changed."""
        if terms.path != self._terms.path:
            fd = _open(terms.path) if terms.path else os.dup(self._first_stderr)
            if self._first_stderr < 0:
                self._first_stderr = _copy_of_stderr()
            log.info("reloaded: log-file = %s", terms.path or "stderr")  # the last line of the old file
            _replace_stderr(fd, children)
        self._terms = terms
        self._rotate_at = terms.limit_bytes

    def reopen(self, children: Iterable[Child]) -> None:
        """Opens the file, which there is, anew: logrotate has renamed it."""
        try:
            _replace_stderr(_open(self._terms.path), children)
        except OSError as error:
            log.error("cannot reopen the log file: %s: %s", self._terms.path, error.strerror)
        else:
            log.info("log file re-opened")

    def rotate_if_long(self, children: Iterable[Child]) -> None:
        """To be called now and then. Between two calls the file may grow past its limit."""
        if not self._terms.path or not self._terms.limit_bytes:
            return
        found = os.fstat(STDERR)
        if found.st_size <= self._rotate_at or not stat.S_ISREG(found.st_mode):
            return
        path = self._terms.path
        backup = path + _stamp(time.time_ns())
        try:
            with contextlib.suppress(FileNotFoundError):  # somebody has renamed or removed it
                Path(path).rename(backup)
            _replace_stderr(_open(path), children)
        except OSError as error:
            self._rotate_at = 2 * found.st_size
            why = f"{path}: {error.strerror}"
            log.error("cannot rotate the log file, trying again when it has %d bytes: %s", self._rotate_at, why)
            return
        self._rotate_at = self._terms.limit_bytes
        log.info('Rotated log, backup saved as "%s"', backup)
        if self._terms.max_files:
            self._purge()

    def _purge(self) -> None:
        current = Path(self._terms.path)
        name = current.name
        try:
            backups = sorted(
                path
                for path in current.parent.iterdir()
                if path.name.startswith(name) and STAMP.fullmatch(path.name, len(name)) and path.is_file()
            )
            for path in backups[: max(0, len(backups) - (self._terms.max_files - 1))]:
                path.unlink()
                log.info('Purged log file "%s"', path)
        except OSError as error:
            log.error("cannot remove old log files, trying again at the next rotation: %s", error)


def _open(path: str) -> int:
    # O_NONBLOCK: opening a FIFO that nobody reads is an error then, instead of a wait.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, FILE_MODE)
    os.set_blocking(fd, True)
    return fd


def _copy_of_stderr() -> int:
    try:
        return os.dup(STDERR)
    except OSError:  # it is closed
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _replace_stderr(fd: int, children: Iterable[Child]) -> None:
    """Makes `fd`, which is closed, stderr of this process, of its children and of those that are forked later."""
    os.dup2(fd, STDERR)
    os.close(fd)
    for child in children:
        child.send({"do": "stderr"}, [STDERR])


def _stamp(now_ns: int) -> str:
    second, ns = divmod(now_ns, 1_000_000_000)
    return f"{time.strftime('.%Y.%m.%d.%H.%M.%S', time.localtime(second))}.{ns:09d}"
