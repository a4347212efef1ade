"""What may be dropped and what is worth compacting, by time, size and need."""

from __future__ import annotations

import pytest
from mq_shards.shards.memory import MemoryStore
from mq_shards.shards.retention import Decision, Retention, Segment, decide, thin, worth_passing
from mq_shards.shards.shard_files import ShardFiles

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


def test_a_large_message_is_not_moved_for_a_few_bytes() -> None:
    """However many messages these were."""
    large, small = Segment(1, 200 * MIB, 0.0, 1, 1), Segment(2, 64 * MIB, 0.0, 0, 500_000)
    behind = [small._replace(number=n) for n in range(2, 6)]
    assert decide([large, *behind[:3]], 0, KEEP, 1000 * DAY, disk_full=False) == Decision(0, compact=False)
    assert decide([large, *behind], 0, KEEP, 1000 * DAY, disk_full=False) == Decision(0, compact=True)


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


@pytest.mark.parametrize(
    ("names", "read_from", "needed", "worth"),
    [
        ([0, 0, 0], 0, 4, True),
        ([4, 0, 0], 0, 2, True),  # a 16th of 64 MiB
        ([5, 0, 0], 0, 2, False),
        ([5, 0, 0], 0, 3, True),
        ([5, 0, 0], 2, 3, False),  # after a start the names that are found count for the oldest segment
        ([0, 0, 5], 2, 3, True),  # which is not passed
    ],
)
def test_names_are_not_written_again_for_each_segment_that_a_start_need_not_read(
    names: list[int], read_from: int, needed: int, worth: bool
) -> None:
    segments = [s._replace(names=n * MIB) for s, n in zip(sealed(0, 0, 0), names, strict=True)]
    assert worth_passing(segments, read_from, needed) == worth


@pytest.mark.parametrize(
    ("live", "emptied"),
    [
        ([0, 0, 0, 0, 0], 0),
        ([1, 0, 0, 0], 1),
        ([1, 0, 0], 0),  # there is little behind it
        ([0, 0, 6, 0, 100, 100], 3),
        ([0, 0, 7, 0, 0, 0], 0),  # too much
        ([7, 1, 0, 0, 0], 0),  # what is behind it cannot be passed over either
    ],
)
def test_few_messages_do_not_make_a_start_read_all_that_came_since(live: list[int], emptied: int) -> None:
    assert thin(sealed(*live)) == emptied


@pytest.mark.parametrize(
    ("live", "age", "disk_full", "expected"),
    [
        ([100, 100, 90], 2 * DAY, False, Decision(0, True)),  # whatever it costs
        ([0, 0, 90], 2 * DAY, False, Decision(2, True)),
        ([0, 0, 0], 2 * DAY, False, Decision(3, False)),
        ([100, 100, 90], 0.5 * DAY, False, Decision(0, False)),  # others may read for as long as was promised
        ([100, 100, 90], 2 * DAY, True, Decision(0, False)),  # moving it would take room that there is not
    ],
)
@pytest.mark.parametrize("where", [0, 2])
def test_what_was_erased_goes_when_its_segment_is_past_retention(
    live: list[int], age: float, disk_full: bool, where: int, expected: Decision
) -> None:
    segments = sealed(*live, age=age)
    segments[where] = segments[where]._replace(erased=True)
    if expected.drop == 2 and where == 0:
        expected = Decision(2, compact=False)  # it goes with those, and the last need not be emptied
    assert decide(segments, 64 * MIB, KEEP, 1000 * DAY, disk_full) == expected


@pytest.mark.parametrize(
    ("erased", "age", "limit", "expected"),
    [
        (2, 0.5 * DAY, 0.25 * DAY, Decision(1, True)),  # also what is alive there, and nothing behind
        (3, 0.5 * DAY, 0.25 * DAY, Decision(1, True)),
        (1, 0.5 * DAY, 0.25 * DAY, Decision(1, False)),
        (0, 0.5 * DAY, 0.25 * DAY, Decision(0, False)),
        (2, 0.1 * DAY, 0.25 * DAY, Decision(0, False)),
        (2, 2 * DAY, 3 * DAY, Decision(1, True)),  # it makes nothing stay longer
    ],
)
def test_erased_bytes_may_have_a_shorter_time_than_history(
    erased: int, age: float, limit: float, expected: Decision
) -> None:
    segments = [s._replace(erased=True, soon=n < erased) for n, s in enumerate(sealed(0, 100, 100, age=age))]
    assert decide(segments, 0, KEEP._replace(erased_age_s=limit), 1000 * DAY, disk_full=False) == expected


@pytest.mark.parametrize(
    ("reader_bytes", "age", "disk_full", "unread", "drop"),
    [
        (0, 0.5 * DAY, False, 2, 1),  # however much there is: history would have kept it too
        (1024 * MIB, 0.5 * DAY, False, 2, 1),
        (0, 0.5 * DAY, False, 9, 3),
        (0, 2 * DAY, False, 2, 3),
        (1024 * MIB, 2 * DAY, False, 2, 1),
        (0, 0.5 * DAY, True, 2, 3),
    ],
)
def test_what_was_erased_takes_nothing_from_readers_that_they_would_have_had(
    reader_bytes: int, age: float, disk_full: bool, unread: int, drop: int
) -> None:
    segments = [s._replace(erased=True, soon=True) for s in sealed(0, 0, 0, age=age)]
    keep = KEEP._replace(erased_age_s=0.0, reader_bytes=reader_bytes)
    assert decide(segments, 0, keep, 1000 * DAY, disk_full, lambda segment: segment >= unread).drop == drop


@pytest.mark.parametrize(
    ("erased", "disk_full", "drop"), [((), False, 0), ((0,), False, 1), ((1,), False, 2), ((1,), True, 0)]
)
def test_names_are_written_again_for_what_was_erased(erased: tuple[int, ...], disk_full: bool, drop: int) -> None:
    segments = [s._replace(names=65 * MIB, erased=n in erased) for n, s in enumerate(sealed(0, 0, age=2 * DAY))]
    assert decide(segments, 0, KEEP, 1000 * DAY, disk_full).drop == drop


def test_retention_counts_from_the_end_of_a_segment() -> None:
    """Not from when the next one was made, at half of it: in a quiet shard that is days before."""
    store = MemoryStore(0, {}, keep=lambda *_: None, drop=lambda *_: None)
    files = ShardFiles(store, sealed_at={1: 100.0, 2: 200.0})  # found at a start, and 2 is written to
    files.note_sealed(1, 2, 1000.0)
    assert files.sealed_at == {1: 100.0}
    files.note_sealed(1, 3, 9000.0)
    files.note_sealed(1, 3, 9001.0)
    assert files.sealed_at == {1: 100.0, 2: 9000.0}
