"""Which segments of a shard's log may go, and which are worth emptying so that they may.

Only the oldest can go: a delete is recorded in a later segment than the message it deletes, so a log without its head
is whole and one with a gap is not. A segment is dead when no message in it is alive. Dead ones are kept for readers of
the log (Spark) as long as the retention says, those that a named reader has not read yet (shards/readers.py) for
longer, and none when the disk is full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

# An oldest segment that is past its retention is emptied (its live messages move to the head) when less than this part
# of it lives, or of the whole log: each byte that is moved then frees at least one.
WORTH_MOVING: Final = 0.5


class Retention(NamedTuple):
    age_s: float
    bytes: int
    reader_bytes: int = 0  # kept at most for what readers have not read


class Segment(NamedTuple):
    """A sealed segment: `live` of the `total` messages that were written to it are still needed."""

    number: int
    bytes: int
    sealed_at: float  # wall clock, seconds
    live: int
    total: int


class Decision(NamedTuple):
    drop: int  # so many of the oldest
    compact: bool  # then empty the one that is oldest after that


def _all_read(segment: int) -> bool:
    return False


def decide(
    sealed: Sequence[Segment],
    active_bytes: int,
    retention: Retention,
    now: float,
    disk_full: bool,
    unread: Callable[[int], bool] = _all_read,
) -> Decision:
    """`sealed` from the oldest on; `unread`: whether a reader has not read all of a segment. Pure: the clock and the
    log are the caller's."""
    held = active_bytes + sum(s.bytes for s in sealed)
    drop = 0
    for segment in sealed:
        past = disk_full or held > retention.bytes or now - segment.sealed_at > retention.age_s
        kept_for_readers = not disk_full and held <= retention.reader_bytes
        if not past or (kept_for_readers and unread(segment.number)):
            return Decision(drop, compact=False)
        if segment.live:
            return Decision(drop, _worth_moving(sealed[drop:]))
        drop += 1
        held -= segment.bytes
    return Decision(drop, compact=False)


def _worth_moving(sealed: Sequence[Segment]) -> bool:
    oldest = sealed[0]
    live, total = sum(s.live for s in sealed), sum(s.total for s in sealed)
    return oldest.live < WORTH_MOVING * oldest.total or live < WORTH_MOVING * total
