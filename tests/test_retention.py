"""What may be dropped and what is worth compacting, by time, size and need."""

from __future__ import annotations

import pytest
from mq_shards.shards.retention import Decision, Retention, Segment, decide

MIB = 1 << 20
DAY = 86_400.0
KEEP = Retention(age_s=DAY, bytes=1024 * MIB)


def sealed(*live: int, age: float = 0.0, size: int = 64 * MIB) -> list[Segment]:
    return [Segment(n, size, 1000 * DAY - age, alive, 100) for n, alive in enumerate(live, start=1)]


@pytest.mark.parametrize(
    ("segments", "disk_full", "expected"),
    [
        ([], False, Decision(0, False)),
        (sealed(0, 0), False, Decision(0, False)),  # dead, but readers may want them
        (sealed(0, 0, age=2 * DAY), False, Decision(2, False)),
        (sealed(0, 0), True, Decision(2, False)),
        (sealed(*[0] * 20), False, Decision(5, False)),  # 21 x 64 MiB: five too many
        (sealed(100, 0, 0, age=2 * DAY), False, Decision(0, True)),  # one full, all behind it dead
        (sealed(100, 100, 90, age=2 * DAY), False, Decision(0, False)),  # nothing to be won
        (sealed(10, 100, 100, age=2 * DAY), False, Decision(0, True)),  # nearly dead
        (sealed(0, 10, 100, age=2 * DAY), False, Decision(1, True)),
        (sealed(10, 0, 0), False, Decision(0, False)),  # not past its retention: stays as it is
        (sealed(10, 0, 0), True, Decision(0, True)),
    ],
)
def test_the_oldest_go_when_dead_and_past_retention(
    segments: list[Segment], disk_full: bool, expected: Decision
) -> None:
    assert decide(segments, 64 * MIB, KEEP, 1000 * DAY, disk_full) == expected


def test_nothing_is_kept_without_a_retention() -> None:
    assert decide(sealed(0, 0, 50), 0, Retention(0.0, 0), 1000 * DAY, disk_full=False) == Decision(2, compact=False)


@pytest.mark.parametrize(
    ("names", "live", "disk_full", "drop"),
    [
        ([60], [0], False, 0),  # all of them would be written again
        ([60, 0], [0, 0], False, 2),
        ([60, 40, 0, 0], [0, 0, 0, 0], False, 4),
        ([0, 60, 60], [0, 0, 0], False, 2),  # those before them may go
        ([60, 0, 0], [0, 10, 0], False, 1),  # what comes behind can only be emptied when they are gone
        ([60], [0], True, 1),
        ([65], [0], True, 0),  # that would not make room
    ],
)
def test_names_are_not_written_again_and_again(names: list[int], live: list[int], disk_full: bool, drop: int) -> None:
    segments = [s._replace(names=n * MIB) for s, n in zip(sealed(*live, age=2 * DAY), names, strict=True)]
    assert decide(segments, 0, KEEP, 1000 * DAY, disk_full).drop == drop
