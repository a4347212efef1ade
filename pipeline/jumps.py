"""Where the seqs of a topic jump: of those that were left out nobody can say whether there were messages, because the
broker's machine stopped, or its data directory was restored. They count neither as messages nor as lost."""

from __future__ import annotations

from collections.abc import Sequence

Jumps = Sequence[tuple[int, int]]  # each from the first seq that was left out to the first that was given out again


def jumped(jumps: Jumps, start: int, end: int) -> int:
    """How many of the seqs `start` to `end` - 1 are in jumps."""
    return sum(max(0, min(end, until) - max(start, begin)) for begin, until in jumps)
