"""Who has something to read: by poll, as `select` takes no descriptor above 1,023 and other tests have many open."""

from __future__ import annotations

import select
from typing import Protocol, TypeVar


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


F = TypeVar("F", bound=HasDescriptor)


def readable(files: list[F], seconds: float | None = None) -> list[F]:
    """Those of them that can be read, or have ended, as soon as one can; [] when none can for so long."""
    return _ready(files, select.POLLIN, seconds)


def writable(files: list[F], seconds: float | None = None) -> list[F]:
    return _ready(files, select.POLLOUT, seconds)


def _ready(files: list[F], event: int, seconds: float | None) -> list[F]:
    poll = select.poll()
    for file in files:
        poll.register(file.fileno(), event)
    found = {descriptor for descriptor, _ in poll.poll(None if seconds is None else seconds * 1000)}
    return [file for file in files if file.fileno() in found]
