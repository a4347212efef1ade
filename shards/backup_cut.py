"""The moment that all shards of a backup have in common, nearly: how far the log of each goes by then.

To copy takes long, so it is done before. Then it is only looked at what has come since, of all shards, again and again:
each round has less to look at, and the last one is so short that its shards are of one moment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mq_shards.shards.reader.scan import Columns, FileScan
from mq_shards.shards.store import SEGMENT_HEADER, StoreError, segment_name, waits

ROUND_S: Final = 0.01  # short enough
ROUNDS: Final = 10
TRIES: Final = 20  # while retention takes away what was about to be opened
WINDOW_BYTES: Final = 1 << 16


@dataclass(slots=True)
class Tail:
    """Of a shard, what has grown since it was copied, or come. `first`: the last segment that was copied, which others
    follow; `ends`: how far each goes."""

    path: Path
    listed: Callable[[], set[int]]
    first: int
    ends: dict[int, int]
    open: dict[int, int] = field(default_factory=dict)
    there: set[int] = field(default_factory=set)  # all that the shard has

    def look(self, columns: Columns) -> None:
        """The last segment first: what it has is behind all that those before it have."""
        self._open_new()
        for segment in sorted(self.open, reverse=True):
            fd = self.open[segment]
            if segment not in self.there or waits(fd, is_last=segment == max(self.there)):
                continue
            at = self.ends.get(segment, SEGMENT_HEADER.size)
            scan = FileScan(fd, segment, at, os.fstat(fd).st_size, columns, WINDOW_BYTES)
            while scan.next() is not None:
                pass
            self.ends[segment] = scan.offset

    def _open_new(self) -> None:
        for _ in range(TRIES):
            self.there = self.listed()
            try:
                for segment in self.there:
                    if segment >= self.first and segment not in self.open:
                        path = self.path / segment_name(segment)
                        self.open[segment] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                return
            except FileNotFoundError:
                time.sleep(0.01)
        raise StoreError(f"{self.path}: segments that its manifest lists are not there")

    def close(self) -> None:
        for fd in self.open.values():
            os.close(fd)


def cut(tails: list[Tail], columns: Columns) -> int:
    """Their ends are of one moment, which is returned as the wall clock's."""
    at_ns = 0
    for _ in range(ROUNDS):
        at_ns, begun = time.time_ns(), time.monotonic()
        for tail in tails:
            tail.look(columns)
        if time.monotonic() - begun < ROUND_S:
            break
    return at_ns
