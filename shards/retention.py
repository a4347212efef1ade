"""Which segments of a shard's log may be dropped, and which are worth emptying so that they may be.

Only the oldest can be dropped: a delete is recorded in a later segment than the message it deletes, so a log without
its oldest segments is consistent, and one with a gap is not. A segment is dead when no message in it is alive. Dead
segments are kept for readers of the log (Spark) as long as the retention says, and longer if a named reader has not
read them yet (shards/readers.py); but none is kept when the disk is full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

# The oldest segment, once past its retention, is emptied (its live messages move to the head of the log) when less than
# this part of its messages, or of the bytes of the whole log, is live: then about each byte moved frees one. What is
# live of a segment's bytes is reckoned by its messages; one larger than a segment has one of its own.
WORTH_MOVING: Final = 0.5
# The names that would have to be written anew are at most this part of what is past its retention; when the disk is
# full, no more than what goes.
WORTH_NAMING: Final = 0.5
# ... and of what a start need not read any more, which is decided more often.
WORTH_PASSING: Final = 1 / 16
# The oldest segment that holds anything is emptied too, so that a start need not read it, if less than this part of its
# messages is live, and so many bytes lie behind it.
THIN: Final = 1 / 16
THIN_BEHIND: Final = 256 << 20


class Retention(NamedTuple):
    age_s: float
    bytes: int
    reader_bytes: int = 0  # the most that is kept for readers that have not read it
    erased_age_s: float = math.inf  # `age_s` of segments that are to go soon, if that is less


class Segment(NamedTuple):
    """A sealed segment. `live` of the `total` messages that were written to it are still needed; `names` bytes of
    names are in it and in no later segment. `erased`: it holds, or may hold, messages of erased topics. `soon`: it may
    therefore go before history does."""

    number: int
    bytes: int
    sealed_at: float  # wall clock, seconds
    live: int
    total: int
    names: int = 0
    erased: bool = False
    soon: bool = False


class Decision(NamedTuple):
    drop: int  # how many of the oldest to drop
    compact: bool  # whether to empty the next oldest then


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
    """Decides for a shard. `sealed` begins with the oldest; `unread(segment)`: whether a reader has not read all of it.
    Pure: the caller passes in the clock and the state of the log."""
    held = active_bytes + sum(s.bytes for s in sealed)
    past = []
    for segment in sealed:
        age_s = now - segment.sealed_at
        is_past = disk_full or held > retention.bytes or age_s > retention.age_s
        may_go_soon = segment.soon and age_s > retention.erased_age_s
        # Readers lose nothing by what was erased beside it: without that they would have had it for `age_s`.
        kept_for_readers = not is_past or (not disk_full and held <= retention.reader_bytes)
        if not (is_past or may_go_soon) or (kept_for_readers and unread(segment.number)):
            break
        past.append(segment)
        held -= segment.bytes
    dead = next((n for n, segment in enumerate(past) if segment.live), len(past))
    drop = _worth_naming(past, dead, disk_full)
    # Erased bytes were promised to go, whatever rewriting the rest costs; but on a full disk room comes first.
    promised = not disk_full and any(segment.erased for segment in past[drop:])
    return Decision(drop, drop == dead < len(past) and (promised or _worth_moving(sealed[drop:])))


def _worth_naming(past: Sequence[Segment], dead: int, disk_full: bool) -> int:
    """How many of the dead segments to drop: not so many that writing their names again would cost too much."""
    size = sum(s.bytes for s in past)
    while dead and sum(s.names for s in past[:dead]) > (
        sum(s.bytes for s in past[:dead]) if disk_full else WORTH_NAMING * size
    ):
        if past[dead - 1].erased and not disk_full:
            break
        dead -= 1
    return dead


def worth_passing(sealed: Sequence[Segment], read_from: int, needed: int) -> bool:
    """Whether the names in segments before `needed` may be written again so that a start need not read those."""
    passed = sum(s.bytes for s in sealed if read_from <= s.number < needed)
    return sum(s.names for s in sealed if s.number < needed) <= WORTH_PASSING * passed


def thin(sealed: Sequence[Segment]) -> int:
    """The segment that keeps a start from passing over it for a few messages only; 0: none."""
    for n, segment in enumerate(sealed):
        if segment.live:
            few = segment.live < THIN * segment.total and sum(s.bytes for s in sealed[n:]) >= THIN_BEHIND
            return segment.number if few else 0
    return 0


def _worth_moving(sealed: Sequence[Segment]) -> bool:
    oldest = sealed[0]
    live = sum(s.bytes * s.live / s.total for s in sealed if s.total)
    return oldest.live < WORTH_MOVING * oldest.total or live < WORTH_MOVING * sum(s.bytes for s in sealed)
