"""Segments in memory (`--memory`): the supervisor holds their descriptors, so they outlive their worker."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Collection
from typing import Final

from mq_shards.supervisor.child import Child

# Of a child the supervisor has its control socket, pidfd, eventfd and, while it starts, rings; the rest is for what is
# opened for a while.
OF_A_CHILD: Final = 8
SPARE: Final = 32


def share(children: int, sockets: int, workers: int) -> int:
    """How many segments of each worker's can be kept. With more the supervisor could start no process any more, and
    would lose them all."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(0, most - OF_A_CHILD * children - sockets - SPARE) // workers


class KeptSegments:
    def __init__(self) -> None:
        self._kept: Final[dict[tuple[int, int], int]] = {}  # descriptors by shard and segment

    def keep(self, shard: int, segment: int, fd: int) -> None:
        """Takes over the descriptor of a segment."""
        self.forget(shard, segment)
        self._kept[shard, segment] = fd

    def forget(self, shard: int, segment: int) -> None:
        fd = self._kept.pop((shard, segment), None)
        if fd is not None:
            os.close(fd)

    def tell(self, worker: Child, own: Collection[int]) -> None:
        """Sends a worker that is starting the segments of `own`, its shards."""
        for (shard, segment), fd in sorted(self._kept.items()):
            if shard in own:
                worker.send({"do": "segment", "shard": shard, "segment": segment}, [fd])

    def close(self) -> None:
        for fd in self._kept.values():
            os.close(fd)
        self._kept.clear()
