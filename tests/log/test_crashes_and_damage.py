"""What was cut short or spoilt is found, and what is whole is read."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mq_shards.csrc._core import lib

from tests.log.log import (
    HEADER,
    NOW,
    SEVERAL,
    SHARD,
    SHARDS,
    UNKNOWN,
    Entry,
    Log,
    Scan,
    content_of,
    memfd,
    offsets,
    written,
)


def test_cut_at_every_byte_yields_exactly_the_whole_records_before() -> None:
    content = written(1, SEVERAL)
    expected = offsets(SEVERAL)
    for size in range(len(content) + 1):
        log, fd = Log(), memfd(content[:size])
        if size < HEADER:
            assert not log.add(fd, 1, new=False), size
            os.close(fd)
            log.close()
            continue
        assert log.add(fd, 1, new=False), size
        scan = log.scan(1)
        whole = [(o, e) for o, e in expected if o + e.bytes <= size]
        assert scan.entries == whole and scan.damage == [], size
        assert scan.end == (whole[-1][0] + whole[-1][1].stride if whole else HEADER), size
        assert scan.torn == (scan.end if content[scan.end : size].strip(b"\0") else 0), size
        # It goes on from there as if nothing had been.
        assert log.truncate(1, scan.end)
        position = log.put(Entry(body=b"after"))
        assert log.flush() == lib.LOG_OK
        again = log.scan(1)
        assert again.entries == [*whole, (position & 0xFFFFFFFF, Entry(body=b"after"))] and again.torn == 0, size
        log.close()


def expect_after_damage(entries: list[Entry], hit: int) -> tuple[list[tuple[int, Entry]], list[tuple[int, int]], int]:
    """What a scan must say when the record at index `hit` is damaged."""
    placed = offsets(entries)
    others = [p for i, p in enumerate(placed) if i != hit]
    if hit == len(entries) - 1:
        return others, [], placed[hit][0]
    return others, [(placed[hit][0], placed[hit + 1][0])], 0


def test_a_flipped_bit_anywhere_in_a_record_is_named_and_all_others_are_served() -> None:
    content = written(1, SEVERAL)
    log, fd = Log(), memfd(content)
    assert log.add(fd, 1, new=False)
    for hit, (begin, e) in enumerate(offsets(SEVERAL)):
        others, damage, torn = expect_after_damage(SEVERAL, hit)
        for offset in range(begin, begin + e.bytes):
            for bit in range(8):
                os.pwrite(fd, bytes([content[offset] ^ 1 << bit]), offset)
                scan = log.scan(1)
                assert (scan.entries, scan.damage, scan.torn) == (others, damage, torn), (offset, bit)
            os.pwrite(fd, content[offset : offset + 1], offset)
    assert log.scan(1) == Scan(offsets(SEVERAL), [], len(content), 0)
    log.close()


def test_a_flipped_bit_in_a_large_record_is_named_and_all_others_are_served() -> None:
    rng = random.Random(1)
    entries = [
        Entry(seq=1, body=b"before"),
        Entry(seq=2, body=rng.randbytes(20_000)),
        Entry(seq=3, body=rng.randbytes(30_001)),
        Entry(seq=4, body=rng.randbytes(5_000)),
    ]
    content = written(9, entries)
    log, fd = Log(), memfd(content)
    assert log.add(fd, 9, new=False)
    for hit, (begin, e) in enumerate(offsets(entries)):
        others, damage, torn = expect_after_damage(entries, hit)
        places = [*range(begin, begin + 40), *rng.sample(range(begin, begin + e.bytes), min(60, e.bytes))]
        for offset in places:
            os.pwrite(fd, bytes([content[offset] ^ 1 << rng.randrange(8)]), offset)
            scan = log.scan(9)
            assert (scan.entries, scan.damage, scan.torn) == (others, damage, torn), offset
            os.pwrite(fd, content[offset : offset + 1], offset)
    log.close()


def test_a_flipped_bit_anywhere_in_a_header_is_mended_and_named() -> None:
    content = written(1, SEVERAL)
    for bit in range(HEADER * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        fd = memfd(bytes(damaged))
        log = Log()
        assert log.add(os.dup(fd), 1, new=False), bit
        scan = log.scan(1)
        assert (scan.entries, scan.damage) == (offsets(SEVERAL), [(0, HEADER)]), bit
        log.close()
        again = Log()
        assert again.add(fd, 1, new=False), bit
        assert again.scan(1).damage == []
        again.close()


def test_a_whole_header_of_another_log_is_refused() -> None:
    log = Log()
    fd = memfd(written(2, SEVERAL))
    assert not log.add(fd, 1, new=False)
    os.close(fd)
    log.close()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(HEADER, 1200), st.binary(min_size=1, max_size=200)), max_size=4), st.booleans())
def test_any_damage_leaves_all_records_that_it_did_not_touch(blows: list[tuple[int, bytes]], ahead: bool) -> None:
    content = bytearray(written(1, SEVERAL) + bytes(4096 * ahead))
    sound = bytes(content)
    for offset, junk in blows:
        content[offset : offset + len(junk)] = junk[: max(0, len(content) - offset)]
    log, fd = Log(), memfd(bytes(content))
    assert log.add(fd, 1, new=False)
    scan = log.scan(1)
    untouched = [(o, e) for o, e in offsets(SEVERAL) if content[o : o + e.bytes] == sound[o : o + e.bytes]]
    assert scan.entries == untouched
    # All that is lost is named.
    ranges = [*scan.damage, *([(scan.torn, len(content))] if scan.torn else [])]
    for o, e in offsets(SEVERAL):
        assert (o, e) in untouched or any(begin <= o < end for begin, end in ranges)
    log.close()


def test_records_of_another_segment_are_not_believed(log: Log) -> None:
    stale = written(5, SEVERAL)
    fresh = written(6, [SEVERAL[0]])
    assert log.add(memfd(fresh + stale[len(fresh) :]), 6, new=False)
    scan = log.scan(6)
    assert scan.entries == [(HEADER, SEVERAL[0])] and scan.damage == [] and scan.torn == len(fresh)


@pytest.mark.parametrize("what", ["shard", "shards", "segment"])
def test_a_segment_of_another_place_is_refused(what: str) -> None:
    content = written(5, SEVERAL)
    c = lib.log_new(SHARD + (what == "shard"), SHARDS + (what == "shards"))
    fd = memfd(content)
    assert not lib.log_add_segment(c, fd, 5 + (what == "segment"), 1 << 16, False, UNKNOWN, NOW)
    os.close(fd)
    lib.log_free(c)


def test_what_a_damaged_record_says_of_its_length_costs_no_time(log: Log) -> None:
    """Every eight bytes of the damaged body claim to be a record of 30 MB: 128 TB of CRC, were each computed."""
    claim = (30 << 20).to_bytes(4, "little") + b"\1\2\3\4" + b"\1\0\0\0\0\0\0\0"
    entries = [Entry(seq=1, body=claim * (1 << 17)), Entry(seq=2, body=bytes(34 << 20)), Entry(seq=3)]
    fd = memfd()
    assert log.add(fd, 1, 64 << 20)
    for e in entries:
        assert log.put(e)
    assert log.flush() == lib.LOG_OK
    os.pwrite(fd, b"\xff", HEADER + 50)
    scan = log.scan(1)
    assert scan.damage == [offsets(entries)[0][:1] + offsets(entries)[1][:1]]
    assert [e.seq for _, e in scan.entries] == [2, 3]


def test_a_sealed_segment_that_has_lost_its_end_is_damaged() -> None:
    log, first, second = Log(), memfd(), memfd()
    assert log.add(os.dup(first), 1, 1024) and log.put(Entry(seq=1, body=b"x" * 500))
    assert log.put(Entry(seq=2, body=b"x" * 300))
    assert log.add(os.dup(second), 2, 4096) and log.put(Entry(seq=3, body=b"x" * 500))
    assert log.flush() == lib.LOG_OK
    log.close()
    end = os.fstat(first).st_size
    os.ftruncate(first, HEADER + Entry(body=b"x" * 500).stride)

    log = Log()
    assert log.add(first, 1, new=False) and log.add(second, 2, new=False)
    scan = log.scan(1)
    assert [e.seq for _, e in scan.entries] == [1]
    assert scan.damage == [(HEADER + Entry(body=b"x" * 500).stride, end)] and scan.end == end
    assert [e.seq for _, e in log.scan(2).entries] == [3]
    log.close()


def test_zeros_allocated_ahead_are_a_clean_end(log: Log) -> None:
    content = written(1, SEVERAL)
    assert log.add(memfd(content + bytes(1 << 20)), 1, new=False)
    assert log.scan(1) == Scan(offsets(SEVERAL), [], len(content), 0)


def test_what_was_cut_off_does_not_come_back(log: Log) -> None:
    content = written(1, SEVERAL)
    fd = memfd(content)
    assert log.add(fd, 1, new=False)
    second = offsets(SEVERAL)[1][0]
    assert log.truncate(1, second)
    # Of the length of the record that stood there, so that the next one would follow.
    assert log.put(Entry(body=bytes(SEVERAL[1].bytes - 40))) and log.flush() == lib.LOG_OK
    scan = log.scan(1)
    assert len(scan.entries) == 2 and scan.damage == [] and scan.torn == 0
    assert content_of(fd)[scan.end :].strip(b"\0") == b""


def test_a_recovered_segment_takes_no_records_before_its_end_is_known(log: Log) -> None:
    content = written(1, SEVERAL)
    assert log.add(memfd(content + bytes(100)), 1, new=False)
    assert log.reserve(Entry()) == lib.LOG_FAILING
    assert log.truncate(1, len(content))
    assert log.put(Entry()) == 1 << 32 | len(content)
