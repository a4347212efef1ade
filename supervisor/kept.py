"""Segments in memory (`--memory`): the supervisor holds their descriptors, so they outlive their worker."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from mq_shards.supervisor.child import Child


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
