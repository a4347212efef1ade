"""What of Go's memory statistics has a meaning here: the resident memory of the broker's processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")
# nsqd's names, in its order. There is no collected heap that holds messages, so all but one are 0.
NAMES: Final = (
    "heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes", "gc_pause_usec_100",
    "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes", "gc_total_runs",
)  # fmt: skip


def memory_figures(supervisor: int) -> dict[str, int]:
    """`heap_in_use_bytes` is what the supervisor and its children hold."""
    figures = dict.fromkeys(NAMES, 0)
    figures["heap_in_use_bytes"] = sum(_resident_bytes(pid) for pid in [supervisor, *_children(supervisor)])
    return figures


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(word) for word in (thread / "children").read_text().split()]
    except OSError:
        pass  # it has ended
    return found


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0
