"""Ports for servers that must be told where to listen.

They are outside the range from which the kernel serves clients, and no two processes get the same ones: each process
has blocks of its own, which it locks for as long as it lives. A port is given again only after some thousand others.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LOWEST: Final = 10_000
BLOCK: Final = 250  # ports in a block
BLOCKS: Final = 88
MOST: Final = 8  # most blocks of one process
TIMEOUT_S: Final = 60.0

_LOCKS: Final = Path(tempfile.gettempdir()) / f"mq-shards-ports-{os.getuid()}"
_held: Final[list[int]] = []  # open lock files of this process's blocks


def free_port() -> int:
    while True:
        port = next(_numbers)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def _given() -> Iterator[int]:
    ports: list[int] = []
    until = time.monotonic() + TIMEOUT_S
    while len(ports) < MOST * BLOCK:
        block = _take_block()
        if block is None and (ports or time.monotonic() > until):
            break
        if block is None:
            time.sleep(0.1)
            continue
        yield from block
        ports += block
    if not ports:
        raise RuntimeError("all ports for tests are other processes'")
    yield from itertools.cycle(ports)


def _take_block() -> range | None:
    _LOCKS.mkdir(exist_ok=True)
    first = secrets.randbelow(BLOCKS)
    for number in (*range(first, BLOCKS), *range(first)):
        file = os.open(_LOCKS / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        _held.append(file)
        return range(LOWEST + number * BLOCK, LOWEST + (number + 1) * BLOCK)
    return None


def _begin_anew() -> None:
    """Begins with new blocks in a child process, as the old ones belong to its parent."""
    global _numbers
    _numbers = _given()


_numbers = _given()
os.register_at_fork(after_in_child=_begin_anew)
