"""Where segments live with --memory: in files that have no name, which a worker leaves to the next one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from mq_shards.shards.descriptors import Share
from mq_shards.shards.paths import segment_name
from mq_shards.shards.segment_header import lacks_header
from mq_shards.shards.store import Recovered
from mq_shards.shards.store_error import StoreError, explained


class MemoryStore:
    """The segments of a shard in memory: memfds that outlive the worker because someone else holds duplicates.

    `handed` are descriptors left by the previous worker, owned here until `open` gives them away. `keep(shard, segment,
    fd)` must duplicate the descriptor before it returns; `drop(shard, segment)` tells that the duplicate is no longer
    needed. `spare()` returns the descriptor of a removed segment that may be used again, which the core owns, or -1.
    `share` says how many there may be.
    """

    def __init__(
        self,
        shard: int,
        handed: Mapping[int, int],
        keep: Callable[[int, int, int], None],
        drop: Callable[[int, int], None],
        spare: Callable[[], int] = lambda: -1,
        share: Share | None = None,
    ) -> None:
        self.shard = shard
        self._share = share or Share()
        self._share.taken += len(handed)
        self._handed = dict(handed)
        self._segments = set(handed)
        self._keep = keep
        self._drop = drop
        self._spare = spare
        for fd in self._handed.values():
            cut_stale(fd)

    def close(self) -> None:
        while self._handed:
            os.close(self._handed.popitem()[1])

    def recover(self, refuse: bool = False) -> Recovered:
        """As SegmentStore says. A missing segment here is a fault of this program."""
        segments = _without_gap(self.shard, sorted(self._segments))
        while segments and segments[-1] in self._handed and lacks_header(self._handed[segments[-1]], is_last=True):
            self.remove(segments.pop())
        return Recovered(segments)

    def path_of(self, segment: int) -> None:
        return None

    def note_begun(self, ended: tuple[int, int] = (0, 0)) -> None:
        """Does nothing: no file can get lost."""

    def note_read_from(self, segment: int) -> None:
        """Does nothing: what is not needed is not kept."""

    def open(self, segment: int) -> int:
        """Returns the descriptor that was handed over, once."""
        if segment not in self._handed:
            raise StoreError(f"shard {self.shard} has no segment {segment} in memory that is not open")
        return self._handed.pop(segment)

    def create(self, segment: int) -> int:
        if segment in self._segments:
            raise StoreError(f"shard {self.shard} has a segment {segment} already")
        self._share.take()
        try:
            if (fd := self._spare()) >= 0:
                self._keep(self.shard, segment, fd)
            else:
                fd = self._new(segment)
        except BaseException:
            self._share.give()
            raise
        self._segments.add(segment)
        return fd

    def _new(self, segment: int) -> int:
        with explained(f"segment {segment} of shard {self.shard} cannot be made in memory"):
            fd = os.memfd_create(f"mq-{self.shard}-{segment}", os.MFD_CLOEXEC)
        try:
            self._keep(self.shard, segment, fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def open_copies(self, segment: int) -> int | None:
        """None: memory does not get damaged."""
        return None

    def remove(self, segment: int) -> None:
        if segment in self._handed:
            os.close(self._handed.pop(segment))
        if segment in self._segments:
            self._segments.remove(segment)
            self._share.give()
            self._drop(self.shard, segment)


def _without_gap(shard: int, segments: list[int]) -> list[int]:
    if segments:
        missing = sorted(set(range(segments[0], segments[-1])) - set(segments))
        if missing:
            names = ", ".join(segment_name(n) for n in missing[:4]) + (", ..." if len(missing) > 4 else "")
            raise StoreError(f"shard {shard}: {names} missing between {segments[0]} and {segments[-1]}")
    return segments


def cut_stale(fd: int) -> None:
    """Cuts off what a segment that was made of another still has of that one (csrc/log/spares.h)."""
    if end := os.lseek(fd, 0, os.SEEK_CUR):
        os.ftruncate(fd, min(end, os.fstat(fd).st_size))
        os.lseek(fd, 0, os.SEEK_SET)
