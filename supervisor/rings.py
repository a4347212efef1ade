"""The pairs of rings between acceptors and workers, as the supervisor has them: one for each two processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mq_shards import ringbuf
from mq_shards.supervisor.child import Child


@dataclass(slots=True, eq=False, repr=False)
class Link:
    """The pair of rings between an acceptor and a worker."""

    epoch: int = 0
    rings: tuple[int, int] | None = None  # requests, replies: the worker has both, the acceptor not yet
    joined: bool = False  # whether both processes have their sides

    def discard(self) -> None:
        for fd in self.rings or ():
            os.close(fd)
        self.rings = None
        self.joined = False


class Rings:
    def __init__(self, acceptors: Sequence[Child], workers: Sequence[Child], ring_bytes: int) -> None:
        """`acceptors` and `workers` are ordered by their index."""
        self._acceptors: Final = acceptors
        self._workers: Final = workers
        self._ring_bytes: Final = ring_bytes
        self._links: Final = {(a.index, w.index): Link() for a in acceptors for w in workers}

    def offer(self, acceptor: Child, worker: Child) -> None:
        """Gives the worker its side of new rings, unless it has one that no acceptor has used yet."""
        link = self._links[acceptor.index, worker.index]
        if link.rings is not None:
            return
        link.epoch += 1
        requests = ringbuf.create(self._ring_bytes, link.epoch, f"mq-a{acceptor.index}-w{worker.index}")
        try:
            replies = ringbuf.create(self._ring_bytes, link.epoch, f"mq-w{worker.index}-a{acceptor.index}")
        except BaseException:
            os.close(requests)
            raise
        link.rings = requests, replies
        worker.send(
            {"do": "peer", "acceptor": acceptor.index, "epoch": link.epoch}, [replies, requests, acceptor.wake_fd]
        )

    def join(self, acceptor: Child, worker: Child) -> None:
        """Gives the acceptor its side, if the worker serves already."""
        link = self._links[acceptor.index, worker.index]
        if link.rings is None or not worker.serving:
            return
        acceptor.send({"do": "peer", "worker": worker.index, "epoch": link.epoch}, [*link.rings, worker.wake_fd])
        link.discard()
        link.joined = True

    def sever(self, child: Child) -> None:
        """Tells the process at the other side of each pair of `child` that `child` is dead."""
        for (a, w), link in self._links.items():
            if child is self._workers[w]:
                if link.joined:
                    self._acceptors[a].send({"do": "gone", "worker": w})
                link.discard()
            elif child is self._acceptors[a] and link.joined:
                self._workers[w].send({"do": "gone", "acceptor": a})
                link.discard()

    def close(self) -> None:
        for link in self._links.values():
            link.discard()
