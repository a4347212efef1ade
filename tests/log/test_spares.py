"""Segments in memory that are made of earlier ones (csrc/log/spares.h): nothing of these is ever read again."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from mq_shards.csrc._core import ffi, lib
from mq_shards.shards.memory import cut_stale

from tests.log.log import HEADER, Entry, Log, content_of, memfd

CAPACITY = 2 << 20  # several of the pieces that are cleared at a time
KEPT_NS = 4_000_000_000


@pytest.fixture
def spares() -> Iterator[Any]:
    spares = ffi.new("struct spares *")
    yield spares
    lib.spares_free(spares)


def fill(log: Log, held: list[Entry], rng: random.Random, most: int = 40_000) -> None:
    """Appends records until the active segment is full."""
    active = lib.log_active_segment(log.c)
    while lib.log_active_segment(log.c) == active:
        held.append(Entry(seq=len(held), body=rng.randbytes(rng.choice([0, 30, 900, most]))))
        assert log.put(held[-1])


def with_a_spare(log: Log, spares: Any, rng: random.Random) -> None:  # noqa: ANN401
    """Fills the first segment and drops it: the second one is active, and there is one spare."""
    lib.log_use_spares(log.c, spares)
    assert log.add(memfd(), 1, CAPACITY) and log.add(memfd(), 2, CAPACITY)
    fill(log, [], rng)
    lib.log_drop_first(log.c)


def made_of_a_spare(log: Log, spares: Any, rng: random.Random) -> int:  # noqa: ANN401
    """Lets the active segment be one that was made of another; returns a descriptor that outlives the log."""
    with_a_spare(log, spares, rng)
    fd = lib.spares_next(spares)
    kept = os.dup(fd)
    assert log.add(fd, 3, CAPACITY)
    assert spares.count == 0
    fill(log, [], rng)
    return kept


def recovered(fd: int) -> tuple[Log, list[Entry]]:
    """What a log finds that gets the segment as the next worker does; it can go on."""
    cut_stale(fd)
    log = Log()
    assert log.add(os.dup(fd), 3, CAPACITY, new=False)
    scan = log.scan(3)
    assert (scan.damage, scan.torn) == ([], 0)
    assert log.truncate(3, scan.end)
    return log, [e for _, e in scan.entries]


@pytest.mark.parametrize("records", [1, 3, 30, 70, 480])
def test_after_a_kill_nothing_is_found_of_the_segment_before(log: Log, spares: Any, records: int) -> None:  # noqa: ANN401
    rng = random.Random(records)
    fd = made_of_a_spare(log, spares, rng)
    held = [Entry(seq=n, body=rng.randbytes(4_000)) for n in range(records)]
    lib.log_flush(log.c)
    first = log.scan(3).entries
    for e in held:
        assert log.put(e)
    assert log.flush() == lib.LOG_OK
    end, known = lib.log_segment_end(log.c, 3), os.lseek(fd, 0, os.SEEK_CUR)
    assert not any(content_of(fd)[end : known or None]), "zeros follow, up to what is known not to be the segment's"
    assert any(content_of(fd)[end:]) or records == 480, "behind that is what was there before"
    again, found = recovered(fd)
    assert found == [e for _, e in first] + held
    more = Entry(seq=9, body=bytes(700_000 if records < 100 else 20_000))
    assert again.put(more) and again.flush() == lib.LOG_OK
    again.close()
    again, found = recovered(fd)
    assert found[-1] == more
    again.close()
    os.close(fd)


def test_one_that_nothing_was_written_to_is_as_good_as_empty(log: Log, spares: Any) -> None:  # noqa: ANN401
    with_a_spare(log, spares, random.Random(5))
    fd = os.dup(lib.spares_next(spares))
    cut_stale(fd)
    assert 0 < len(content_of(fd)) < 1 << 16 and not any(content_of(fd))
    os.close(fd)


def test_a_large_record_meets_nothing_stale(log: Log, spares: Any) -> None:  # noqa: ANN401
    """Its body is written ahead of the log's end."""
    with_a_spare(log, spares, random.Random(6))
    fd = lib.spares_next(spares)
    kept = os.dup(fd)
    assert log.add(fd, 3, CAPACITY)
    assert lib.log_large_begin(log.c, 1000, 0, 500_000, 0) == lib.LOG_OK
    assert len(content_of(kept)) < 500_000 and not any(content_of(kept)) and os.lseek(kept, 0, os.SEEK_CUR) == 0
    os.close(kept)


def test_what_is_mapped_elsewhere_is_not_used_again(log: Log, spares: Any) -> None:  # noqa: ANN401
    lib.log_use_spares(log.c, spares)
    assert log.add(memfd(), 1, CAPACITY) and log.add(memfd(), 2, CAPACITY)
    position = log.put(Entry(body=b"lent" * 1000))
    fill(log, [], random.Random(7))
    place, size, at = ffi.new("uint8_t **"), ffi.new("size_t *"), ffi.new("const uint8_t **")
    body = lib.record_body(lib.log_read(log.c, position))
    assert lib.log_map_apart(log.c, body, 4000, place, size, at)
    lib.log_drop_first(log.c)
    assert spares.count == 0 and lib.spares_next(spares) == -1
    assert bytes(ffi.buffer(at[0], 4000)) == b"lent" * 1000


def test_what_is_not_needed_for_seconds_is_given_back(log: Log, spares: Any) -> None:  # noqa: ANN401
    lib.log_use_spares(log.c, spares)
    now = 1_000 * KEPT_NS
    assert not lib.spares_trim(spares, now)
    for number in range(1, 6):
        assert log.add(memfd(), number, 6 << 20)
        if number > 1:
            fill(log, [], random.Random(number), most=400_000)
    for _ in range(4):
        lib.log_drop_first(log.c)
    assert spares.count == 4
    assert not lib.spares_trim(spares, now + KEPT_NS), "nobody could need them before"
    fd = lib.spares_next(spares)
    assert log.add(fd, 6, 6 << 20)
    assert not lib.spares_trim(spares, now + 2 * KEPT_NS - 1) and spares.count == 3
    assert lib.spares_trim(spares, now + 2 * KEPT_NS), "a piece at a time"
    assert lib.spares_next(spares) == -1
    while lib.spares_trim(spares, now + 2 * KEPT_NS):
        pass
    assert spares.count == 0


def test_one_that_is_too_small_is_mapped_anew(log: Log, spares: Any) -> None:  # noqa: ANN401
    rng = random.Random(8)
    with_a_spare(log, spares, rng)
    fd = lib.spares_next(spares)
    kept = os.dup(fd)
    assert log.add(fd, 3, 2 * CAPACITY)
    held: list[Entry] = []
    while lib.log_active_segment(log.c) == 2:
        held = [Entry(body=rng.randbytes(100_000))]
        assert log.put(held[0])
    while lib.log_segment_end(log.c, 3) < 3 << 20:
        held.append(Entry(body=rng.randbytes(100_000)))
        assert log.put(held[-1])
    assert log.flush() == lib.LOG_OK
    assert [e for _, e in log.scan(3).entries] == held
    assert lib.log_segment_end(log.c, 3) == HEADER + sum(e.stride for e in held)
    os.close(kept)


def test_pages_of_a_segment_that_fills_slowly_are_given_back(log: Log, spares: Any) -> None:  # noqa: ANN401
    now = 1_000 * KEPT_NS
    fd = made_of_a_spare(log, spares, random.Random(9))
    before = len(content_of(fd))
    assert lib.spares_trim_log(log.c, now)
    while lib.spares_trim_log(log.c, now):
        pass
    assert len(content_of(fd)) < before and os.lseek(fd, 0, os.SEEK_CUR) == 0
    held = [Entry(seq=n, body=bytes(4_000)) for n in range(300)]
    assert all(log.put(e) for e in held) and log.flush() == lib.LOG_OK
    again, found = recovered(fd)
    assert found[-300:] == held
    again.close()
    os.close(fd)
