"""Go's memory statistics, as far as they mean anything here: the resident memory of the broker's processes."""

from __future__ import annotations

from typing import Final

from mq_shards.gateway.processes import broker_pids, taken_bytes

# nsqd's names, in its order. All but one are 0, since no garbage-collected heap holds messages.
NAMES: Final = (
    "heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes", "gc_pause_usec_100",
    "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes", "gc_total_runs",
)  # fmt: skip


def memory_figures(supervisor: int) -> dict[str, int]:
    """`heap_in_use_bytes` is the memory of the supervisor and its children."""
    figures = dict.fromkeys(NAMES, 0)
    figures["heap_in_use_bytes"] = sum(taken_bytes(pid) for pid in broker_pids(supervisor))
    return figures
