"""What a worker's Python has to know of the segments of one shard's log."""

from __future__ import annotations

from dataclasses import dataclass, field

from mq_shards.shards.store import SegmentStore
from mq_shards.shards.unread import UnreadSegments


@dataclass(slots=True, eq=False, repr=False)
class ShardFiles:
    """A shard's files, and what is being done with them."""

    store: SegmentStore
    sealed_at: dict[int, float] = field(default_factory=dict)
    # Whether `create` failed last time: reported once, not at every try.
    refused: bool = False
    unremoved: bool = False  # the same of `remove`
    # So many of the oldest segments may go once the log is synced up to there: what has taken their place in it.
    doomed: int = 0
    doomed_until: int = 0
    # The first segment that the next start has to read, and what it will be when the log is synced up to there.
    read_from: int = 0
    passing: int = 0
    passing_until: int = 0
    # Segments up to this number have been cut to their length; and the one that was read ahead in order to be emptied.
    cut: int = 0
    warming: int = 0
    warmed: int = 0
    headed: set[int] = field(default_factory=set)  # those whose heads were written, or are not worth it
    noted: int = 0  # the newest segment that is listed as begun
    # When an unfilled segment may next be sealed because of erased messages: frequent erasing must not make many
    # segments.
    roll_at: float = 0.0
    # What named readers have not read; None with --memory, where there are none.
    unread: UnreadSegments | None = None

    def note_sealed(self, first: int, active: int, now: float) -> None:
        """Notes when segments were sealed: retention counts from the last write. After a start their files tell."""
        self.sealed_at.pop(active, None)
        for number in range(first, active):
            self.sealed_at.setdefault(number, now)
