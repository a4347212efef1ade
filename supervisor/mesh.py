"""Pairs of rings between acceptors whose clients talk to each other: one for each two processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Final

from mq_shards import ringbuf
from mq_shards.supervisor.child import Child


class Mesh:
    """The rings between all acceptors. The gateway has none: it has no clients to pass messages to."""

    def __init__(self, acceptors: Sequence[Child], ring_bytes: int) -> None:
        self._acceptors: Final = [child for child in acceptors if child.role == "acceptor"]
        self._ring_bytes: Final = ring_bytes
        self._epoch = 1

    def join(self, started: Child) -> None:
        """Joins a new acceptor to those that are alive."""
        if started not in self._acceptors:
            return
        for other in self._acceptors:
            if other is started or not other.alive:
                continue
            with contextlib.ExitStack() as stack:
                rings = []
                for title in (f"mq-a{started.index}-a{other.index}", f"mq-a{other.index}-a{started.index}"):
                    rings.append(ringbuf.create(self._ring_bytes, self._epoch, title))
                    stack.callback(os.close, rings[-1])
                self._epoch += 1
                started.send({"do": "mesh", "acceptor": other.index}, [rings[0], rings[1], other.wake_fd])
                other.send({"do": "mesh", "acceptor": started.index}, [rings[1], rings[0], started.wake_fd])

    def sever(self, child: Child) -> None:
        """Tells the other acceptors that `child` is dead."""
        if child in self._acceptors:
            for other in self._acceptors:
                if other is not child:
                    other.send({"do": "mesh-gone", "acceptor": child.index})
