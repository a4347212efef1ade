"""Pairs of rings between acceptors whose clients talk to each other: one for each two processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from mq_shards import ringbuf
from mq_shards.supervisor.child import Child


def join_by_mesh(started: Child, acceptors: Sequence[Child], ring_bytes: int, epoch: int) -> int:
    """A new acceptor with those that are there; the gateway has no clients to pass messages to. The next epoch."""
    if started.role == "gateway":
        return epoch
    for other in acceptors:
        if other is started or other.role == "gateway" or not other.alive:
            continue
        with contextlib.ExitStack() as stack:
            rings = []
            for title in (f"mq-a{started.index}-a{other.index}", f"mq-a{other.index}-a{started.index}"):
                rings.append(ringbuf.create(ring_bytes, epoch, title))
                stack.callback(os.close, rings[-1])
            epoch += 1
            started.send({"do": "mesh", "acceptor": other.index}, [rings[0], rings[1], other.wake_fd])
            other.send({"do": "mesh", "acceptor": started.index}, [rings[1], rings[0], started.wake_fd])
    return epoch
