"""The pair of rings between an acceptor and a worker, as the supervisor has it."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(slots=True)
class Link:
    """The pair of rings between an acceptor and a worker."""

    epoch: int = 0
    rings: tuple[int, int] | None = None  # requests, replies: the worker has them, the acceptor has not yet
    joined: bool = False  # both have them

    def discard(self) -> None:
        for fd in self.rings or ():
            os.close(fd)
        self.rings = None
        self.joined = False
