"""Keeps memory in use before a load, so that what a broker writes finds pages that its host has.

A virtual machine may give memory that nobody uses back to its host. A process that then takes such a page first waits
until the host has one: several times what the copy into it costs. For a load that writes a GB a second that is more
than half of all processor time. Whether a round meets such pages depends on what ran before it. A broker that has been
up for a while meets none: the page cache uses all memory by then. So as much memory as a round writes is held in use
before it, and freed when its load begins.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from types import TracebackType
from typing import Final

BYTES_PER_S: Final = 3 << 29  # as much as the fastest load writes
SHARE: Final = 4  # holds at most one part in so many of the available memory


class MemoryInUse:
    """Holds as much memory as is written in `seconds`, from the beginning of the context, or hold(), until free()."""

    def __init__(self, seconds: float) -> None:
        self._most_bytes = int(BYTES_PER_S * seconds)
        self._held: mmap.mmap | None = None

    def __enter__(self) -> MemoryInUse:
        self.hold()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.free()

    @property
    def held_bytes(self) -> int:
        return 0 if self._held is None else len(self._held)

    def hold(self) -> None:
        self.free()
        pages = min(self._most_bytes, available_bytes() // SHARE) // mmap.PAGESIZE
        if pages == 0:
            return
        self._held = mmap.mmap(-1, pages * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._held.madvise(mmap.MADV_HUGEPAGE)
        self._held[:: mmap.PAGESIZE] = b"x" * pages

    def free(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


def available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, value, *_ = line.split()
        if name == "MemAvailable:":
            return int(value) * 1024
    return 0
