"""The log of a shard, its checksum and its syncer: against a model, against damage and against full disks.

The contracts are in csrc/log/log.h, csrc/base/crc32c.h and csrc/log/sync.h.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mq_shards.csrc._core import ffi, lib

SHARD, SHARDS = 3, 64
NOW = 1_700_000_000_000_000_000
HEADER = 64
UNKNOWN = 2**64 - 1


@dataclass(frozen=True)
class Entry:
    kind: int = 1
    flags: int = 0
    topic: int = 7
    seq: int = 0
    time_ns: int = NOW
    id: int = 0
    attributes: bytes = b""
    body: bytes = b""

    @property
    def bytes(self) -> int:
        return 40 + len(self.attributes) + len(self.body)

    @property
    def stride(self) -> int:
        return (self.bytes + 7) // 8 * 8


def entry_of(record: Any) -> Entry:  # noqa: ANN401
    return Entry(
        record.kind, record.flags, record.topic, record.seq, record.time_ns, record.id,
        bytes(ffi.buffer(lib.record_attributes(record), record.attribute_bytes)),
        bytes(ffi.buffer(lib.record_body(record), lib.record_body_bytes(record))),
    )


@dataclass(frozen=True)
class Scan:
    """What a walk over one segment found."""

    entries: list[tuple[int, Entry]]  # offset, record
    damage: list[tuple[int, int]]  # from, to
    end: int
    torn: int  # 0, or where the end is not clean


class Log:
    """One C log, its errors as values and its records as `Entry`."""

    def __init__(self) -> None:
        self.c = lib.log_new(SHARD, SHARDS)
        assert self.c != ffi.NULL

    def close(self) -> None:
        lib.log_free(self.c)
        self.c = ffi.NULL

    def add(self, fd: int, segment: int, capacity: int = 1 << 16, *, new: bool = True, end: int = UNKNOWN) -> bool:
        return bool(lib.log_add_segment(self.c, fd, segment, capacity, new, end, NOW))

    def reserve(self, *entries: Entry, keep: int = 0) -> int:
        payload = sum(len(e.attributes) + len(e.body) for e in entries)
        return int(lib.log_reserve(self.c, len(entries), payload, keep, NOW))

    def append(self, e: Entry) -> int:
        head = ffi.new("struct record *")
        head.kind, head.flags, head.topic, head.seq = e.kind, e.flags, e.topic, e.seq
        head.time_ns, head.id, head.attribute_bytes = e.time_ns, e.id, len(e.attributes)
        return int(lib.log_append(self.c, head, e.attributes, e.body, len(e.body)))

    def put(self, e: Entry, keep: int = 0) -> int:
        """The position, or 0 if there is no room."""
        return self.append(e) if self.reserve(e, keep=keep) == lib.LOG_OK else 0

    def flush(self) -> int:
        return int(lib.log_flush(self.c))

    def read(self, position: int) -> Entry | None:
        record = lib.log_read(self.c, position)
        return None if record == ffi.NULL else entry_of(record)

    def scan(self, segment: int) -> Scan:
        offset, bad, record = ffi.new("uint64_t *"), ffi.new("uint64_t *"), ffi.new("const struct record **")
        entries: list[tuple[int, Entry]] = []
        damage: list[tuple[int, int]] = []
        while True:
            result = lib.log_scan(self.c, segment, offset, record, bad)
            if result == 0:
                return Scan(entries, damage, offset[0], bad[0])
            if result < 0:
                damage.append((bad[0], offset[0]))
            else:
                entries.append((offset[0] - lib.record_stride(record[0]), entry_of(record[0])))

    def truncate(self, segment: int, offset: int) -> bool:
        return bool(lib.log_truncate(self.c, segment, offset))

    def unsynced(self, at_most: int = 16) -> tuple[list[int], int]:
        fds, upto = ffi.new("int[]", at_most), ffi.new("uint64_t *")
        count = lib.log_unsynced_fds(self.c, fds, at_most, upto)
        return list(fds[0:count]), upto[0]


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.close()


def memfd(content: bytes = b"") -> int:
    fd = os.memfd_create("segment", os.MFD_CLOEXEC)
    os.write(fd, content)
    return fd


def on_disk(directory: Path) -> int:
    """A segment that is written by system calls, which can fail; one in memory is written by copying."""
    fd = os.open(directory / "segment", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    kind = subprocess.run(["stat", "-f", "-c", "%T", directory], check=True, capture_output=True, text=True).stdout
    if kind.strip() == "tmpfs":
        pytest.skip("the directory for temporary files is in memory")
    return fd


def content_of(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def written(segment: int, entries: list[Entry]) -> bytes:
    """A segment's bytes up to the end of its last record."""
    log, fd = Log(), memfd()
    assert log.add(fd, segment, 1 << 20)
    for e in entries:
        assert log.put(e)
    assert log.flush() == lib.LOG_OK
    content = os.pread(fd, lib.log_segment_end(log.c, segment), 0)
    log.close()
    return content


def offsets(entries: list[Entry]) -> list[tuple[int, Entry]]:
    found, offset = [], HEADER
    for e in entries:
        found.append((offset, e))
        offset += e.stride
    return found


SEVERAL = [
    Entry(body=b"first", seq=1),
    Entry(kind=2, attributes=b"key=value", body=b"x" * 100, id=2**64 - 1, flags=0xFFFF),
    Entry(kind=255),
    Entry(attributes=b"a" * 255, body=bytes(64)),
    Entry(body=bytes(range(1, 28)), topic=2**32 - 1, time_ns=0),
    Entry(body=b"y" * 300, seq=2**63),
]


# ---- the checksum ----


@given(st.binary(max_size=9000), st.integers(0, 2**32 - 1), st.data())
def test_crc_is_the_python_packages(data: bytes, start: int, draw: st.DataObject) -> None:
    expected = crc32c.crc32c(data, start)
    assert lib.crc32c_extend(start, data, len(data)) == expected
    assert lib.crc32c_extend_portable(start, data, len(data)) == expected
    split = draw.draw(st.integers(0, len(data)))
    first = lib.crc32c_extend(start, data, split)
    assert lib.crc32c_extend(first, data[split:], len(data) - split) == expected


@pytest.mark.parametrize("size", [*range(64), 383, 384, 385, 767, 3071, 3072, 3073, 3456, 100_003, 1 << 20])
def test_crc_of_every_kind_of_length_and_alignment(size: int) -> None:
    data = random.Random(size).randbytes(size + 8)
    buffer = ffi.from_buffer(data)
    for shift in range(8):
        expected = crc32c.crc32c(data[shift : shift + size])
        assert lib.crc32c_extend(0, buffer + shift, size) == expected
        assert lib.crc32c_extend_portable(0, buffer + shift, size) == expected


@given(st.integers(0, 2**32 - 1), st.integers(0, 5000))
def test_crc_advances_over_zeros(state: int, count: int) -> None:
    assert lib.crc32c_advance(state, count) == crc32c.crc32c(bytes(count), state ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


def test_the_crc_in_a_record_is_what_the_header_file_says() -> None:
    content = written(0x01020304, [Entry(body=b"body")])
    record = content[HEADER:]
    size = int.from_bytes(record[0:4], "little")
    seeded = crc32c.crc32c(record[0:4] + (0x01020304).to_bytes(4, "little"))
    assert int.from_bytes(record[4:8], "little") == crc32c.crc32c(record[8:size], seeded)
    assert int.from_bytes(content[60:64], "little") == crc32c.crc32c(content[:60])


def test_padding_is_zeros_whatever_was_staged_before(log: Log) -> None:
    fd = memfd()
    assert log.add(fd, 1)
    for _ in range(2):
        assert log.put(Entry(body=b"\xff" * 1000)) and log.flush() == lib.LOG_OK
    begin = lib.log_segment_end(log.c, 1)
    assert log.put(Entry(body=b"\xff")) and log.flush() == lib.LOG_OK
    assert os.pread(fd, 48, begin)[40:] == b"\xff" + bytes(7)


# ---- against a model ----

ENTRIES = st.builds(
    Entry,
    kind=st.integers(1, 255),
    flags=st.integers(0, 0xFFFF),
    topic=st.integers(0, 2**32 - 1),
    seq=st.integers(0, 2**64 - 1),
    time_ns=st.integers(0, 2**64 - 1),
    id=st.integers(0, 2**64 - 1),
    attributes=st.binary(max_size=255),
    body=st.one_of(st.binary(max_size=400), st.integers(400, 9000).map(lambda n: b"b" * n)),
)


class Model(RuleBasedStateMachine):
    """A list of (position, entry) beside a log with small segments that is killed and recovered now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.files: dict[int, int] = {}  # segment: a descriptor that outlives the log, as the disk does
        self.held: list[tuple[int, Entry]] = []
        self.flushed = 0  # how many of them, at least
        self.next_segment = 1
        self.kept = 0

    def teardown(self) -> None:
        self.log.close()
        for fd in self.files.values():
            os.close(fd)

    def add_segment(self, capacity: int) -> None:
        self.files[self.next_segment] = memfd()
        assert self.log.add(os.dup(self.files[self.next_segment]), self.next_segment, capacity)
        self.next_segment += 1

    @rule(capacity=st.integers(512, 20_000))
    def hand_over_a_segment_if_wanted(self, capacity: int) -> None:
        if lib.log_wants_segment(self.log.c):
            self.add_segment(capacity)
            assert lib.log_wants_segment(self.log.c) == 0 or len(self.files) == 1

    @rule(entries=st.lists(ENTRIES, min_size=1, max_size=4), keep=st.integers(0, 3000))
    def append(self, entries: list[Entry], keep: int) -> None:
        before = lib.log_bytes(self.log.c)
        result = self.log.reserve(*entries, keep=keep)
        if result == lib.LOG_NO_SPACE:
            assert lib.log_bytes(self.log.c) == before
            assert lib.log_wants_segment(self.log.c) >= lib.SEGMENT_BYTES
            return
        assert result == lib.LOG_OK
        self.kept = keep
        for e in entries:
            self.held.append((self.log.append(e), e))
        assert len({position >> 32 for position, _ in self.held[-len(entries) :]}) == 1

    @precondition(lambda self: self.kept >= 48)
    @rule()
    def append_what_was_kept(self) -> None:
        e = Entry(kind=9)
        position = self.log.put(e)
        assert position
        self.held.append((position, e))
        self.kept -= 48

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == lib.LOG_OK
        self.flushed = len(self.held)
        assert lib.log_flushed(self.log.c) == lib.log_appended(self.log.c)

    @precondition(lambda self: self.held)
    @rule(draw=st.data())
    def read(self, draw: st.DataObject) -> None:
        position, e = draw.draw(st.sampled_from(self.held))
        assert self.log.read(position) == e

    @precondition(lambda self: 0 < lib.log_first_segment(self.log.c) < lib.log_active_segment(self.log.c))
    @rule()
    def drop_first(self) -> None:
        first = lib.log_first_segment(self.log.c)
        lib.log_drop_first(self.log.c)
        os.close(self.files.pop(first))
        dropped = [p for p, _ in self.held if p >> 32 == first]
        assert all(self.log.read(p) is None for p in dropped)
        self.held = self.held[len(dropped) :]
        self.flushed = max(0, self.flushed - len(dropped))

    @rule()
    def sync(self) -> None:
        fds, upto = self.log.unsynced()
        assert bool(fds) == (lib.log_flushed(self.log.c) > lib.log_synced(self.log.c))
        lib.log_mark_synced(self.log.c, upto)
        assert self.log.unsynced()[0] == []
        assert lib.log_synced(self.log.c) == lib.log_flushed(self.log.c)

    @rule()
    def killed(self) -> None:
        """What was not flushed is gone, or some of it is there: always a beginning of it."""
        self.log.close()
        self.log = Log()
        # The one that waited has no header, and the one before it neither if it had just become active.
        while self.files and content_of(self.files[self.next_segment - 1])[:HEADER].strip(b"\0") == b"":
            self.next_segment -= 1
            os.close(self.files.pop(self.next_segment))
        for segment in sorted(self.files):
            assert self.log.add(os.dup(self.files[segment]), segment, 1024, new=False)
        found = []
        for segment in sorted(self.files):
            scan = self.log.scan(segment)
            assert scan.damage == [] and scan.torn == 0
            assert self.log.truncate(segment, scan.end)
            found += [(segment << 32 | offset, e) for offset, e in scan.entries]
        assert self.flushed <= len(found)
        assert found == self.held[: len(found)]
        self.held, self.flushed, self.kept = found, len(found), 0

    @invariant()
    def bytes_are_those_of_the_records(self) -> None:
        if self.files and lib.log_active_segment(self.log.c):
            active = lib.log_active_segment(self.log.c)
            segments = [s for s in self.files if s <= active]
            expected = HEADER * len(segments) + sum(e.stride for _, e in self.held)
            assert lib.log_bytes(self.log.c) == expected
            assert lib.log_bytes(self.log.c) == sum(lib.log_segment_end(self.log.c, s) for s in segments)

    @invariant()
    def the_newest_is_readable(self) -> None:
        if self.held:
            assert self.log.read(self.held[-1][0]) == self.held[-1][1]


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


# ---- crashes and damage ----


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


# ---- segments ----


def test_segments_must_come_in_order_and_one_at_a_time(log: Log) -> None:
    fd = memfd()
    assert not log.add(fd, 0)
    assert log.add(fd, 4)
    fd = memfd()
    assert not log.add(fd, 4) and not log.add(fd, 6)
    assert log.add(fd, 5)
    fd = memfd()
    assert not log.add(fd, 6), "5 still waits"
    os.close(fd)
    assert lib.log_first_segment(log.c) == lib.log_active_segment(log.c) == 4


def test_a_new_segment_must_be_empty(log: Log) -> None:
    fd = memfd(b"something")
    assert not log.add(fd, 1)
    os.close(fd)


def test_the_next_segment_is_wanted_when_half_is_full_or_kept(log: Log) -> None:
    assert lib.log_wants_segment(log.c) == lib.SEGMENT_BYTES
    assert log.add(memfd(), 1, 10_000)
    assert lib.log_wants_segment(log.c) == 0
    assert log.put(Entry(body=bytes(2000)))
    assert lib.log_wants_segment(log.c) == 0
    assert log.put(Entry(body=bytes(10)), keep=3000)
    assert lib.log_wants_segment(log.c) == lib.SEGMENT_BYTES
    assert log.add(memfd(), 2, 10_000)
    assert lib.log_wants_segment(log.c) == 0


@pytest.mark.parametrize("size", [70 << 20, (1 << 30) + (64 << 10)], ids=["70 MiB", "the largest body and its headers"])
def test_a_reservation_larger_than_any_segment_so_far_gets_one_of_its_size(log: Log, size: int) -> None:
    assert log.add(memfd(), 1, 1 << 16)
    assert lib.log_reserve(log.c, 1, size, 0, NOW) == lib.LOG_NO_SPACE
    capacity = lib.log_wants_segment(log.c)
    assert capacity > size
    assert log.add(memfd(), 2, capacity)
    assert lib.log_reserve(log.c, 1, size, 0, NOW) == lib.LOG_OK
    assert lib.log_active_segment(log.c) == 2


def test_a_segment_that_waits_grows_with_the_reservation(log: Log) -> None:
    assert log.add(memfd(), 1, 4096) and log.add(memfd(), 2, 4096)
    e = Entry(body=random.Random(2).randbytes(6 << 20))
    position = log.put(e)
    assert position == 2 << 32 | HEADER
    assert log.read(position) == e
    assert log.flush() == lib.LOG_OK
    assert log.read(position) == e


def test_a_full_segment_gives_back_what_was_allocated_ahead(log: Log) -> None:
    first = memfd()
    assert log.add(first, 1, 1 << 20)
    assert log.put(Entry(body=bytes(1000)))
    assert os.fstat(first).st_size == 256 << 10
    assert log.add(memfd(), 2, 2 << 20)
    assert log.put(Entry(body=bytes(1 << 20)))
    assert os.fstat(first).st_size == lib.log_segment_end(log.c, 1) == HEADER + 1040


def test_what_is_too_large_for_any_log_is_refused(log: Log) -> None:
    assert log.add(memfd(), 1)
    for records, size, keep in [(1, 2**30 + 1, 0), (2**30, 0, 0), (2**63, 2**63, 2**63), (1, 1, 2**30 + 1)]:
        assert lib.log_reserve(log.c, records, size, keep, NOW) == lib.LOG_NO_SPACE
    assert log.put(Entry())


# ---- writing ----


def test_more_than_the_staging_buffer_is_flushed_early_and_reads_back(log: Log) -> None:
    fd = memfd()
    assert log.add(fd, 1, 64 << 20)
    rng = random.Random(3)
    held = []
    for seq in range(300):
        e = Entry(seq=seq, body=rng.randbytes(rng.choice([10, 60_000, 5 << 20 if seq % 100 == 99 else 100])))
        held.append((log.put(e), e))
    assert all(log.read(p) == e for p, e in held)
    assert lib.log_flushed(log.c) > 0
    assert lib.log_records(log.c) == 300
    assert log.flush() == lib.LOG_OK
    assert [e for _, e in log.scan(1).entries] == [e for _, e in held]


def test_a_failing_write_keeps_what_was_appended_and_is_tried_again(log: Log, tmp_path: Path) -> None:
    fd = on_disk(tmp_path)
    good, bad = os.dup(fd), os.open("/dev/null", os.O_RDONLY)
    assert log.add(fd, 1, 16 << 20)
    first = log.put(Entry(body=b"first"))
    os.dup2(bad, fd)
    assert log.flush() == lib.LOG_FAILING
    assert lib.log_errno(log.c) == errno.EBADF
    assert lib.log_flushed(log.c) == 0 and log.unsynced()[0] == []
    assert log.read(first) == Entry(body=b"first")
    second = log.put(Entry(body=b"second"))
    assert log.flush() == lib.LOG_FAILING
    os.dup2(good, fd)
    assert log.flush() == lib.LOG_OK
    assert lib.log_errno(log.c) == 0
    assert log.read(first) == Entry(body=b"first") and log.read(second) == Entry(body=b"second")
    assert [e.body for _, e in log.scan(1).entries] == [b"first", b"second"]
    os.close(good)
    os.close(bad)


def test_a_full_staging_buffer_that_cannot_be_written_refuses(log: Log, tmp_path: Path) -> None:
    fd = on_disk(tmp_path)
    good, bad = os.dup(fd), os.open("/dev/null", os.O_RDONLY)
    assert log.add(fd, 1, 16 << 20)
    # Allocate before the disk fails: what is tested is the buffer.
    assert lib.log_reserve(log.c, 1, 0, 10 << 20, NOW) == lib.LOG_OK
    os.dup2(bad, fd)
    e = Entry(body=bytes(1 << 20))
    results = [log.reserve(e) == lib.LOG_OK and log.append(e) for _ in range(5)]
    assert all(results[:3]) and not results[4]
    assert log.reserve(e) == lib.LOG_FAILING
    os.dup2(good, fd)
    assert log.put(e) and log.flush() == lib.LOG_OK
    assert len(log.scan(1).entries) == sum(map(bool, results)) + 1
    os.close(good)
    os.close(bad)


def in_subprocess(test: Callable[..., None], *arguments: str) -> None:
    """Runs a function of this file where it may spoil its process's limits."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import tests.test_log as t; t.{test.__name__}(*{arguments!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def limit_file_size(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def short_write(directory: str) -> None:
    fd = os.open(f"{directory}/1.log", os.O_RDWR | os.O_CREAT)
    log = Log()
    assert log.add(fd, 1, 1 << 20)
    held = [Entry(seq=i, body=bytes([i]) * 10_000) for i in range(20)]
    assert log.reserve(*held) == lib.LOG_OK
    positions = [log.append(e) for e in held]
    limit_file_size(100_000)
    assert log.flush() == lib.LOG_FAILING
    assert lib.log_errno(log.c) == errno.EFBIG
    assert lib.log_flushed(log.c) == 100_000
    assert [log.read(p) for p in positions] == held
    limit_file_size(resource.RLIM_INFINITY)
    more = log.put(Entry(seq=99))
    assert log.flush() == lib.LOG_OK
    assert [log.read(p) for p in [*positions, more]] == [*held, Entry(seq=99)]
    assert [e for _, e in log.scan(1).entries] == [*held, Entry(seq=99)]


def test_a_short_write_goes_on_where_it_stopped(tmp_path: Path) -> None:
    in_subprocess(short_write, str(tmp_path))


def file_size_limit(directory: str) -> None:
    limit_file_size(700_000)
    fd = os.open(f"{directory}/1.log", os.O_RDWR | os.O_CREAT)
    log = Log()
    assert log.add(fd, 1, 16 << 20)
    e = Entry(body=b"x" * 1000)
    held = []
    while position := log.put(e, keep=10_000):
        held.append(position)
    assert lib.log_errno(log.c) == errno.EFBIG
    assert len(held) == (700_000 - HEADER - 10_000 - 1048) // e.stride + 1
    for _ in range(10_000 // 48):
        assert log.put(Entry(kind=2))
    assert log.flush() == lib.LOG_OK
    limit_file_size(2_000_000)
    assert log.put(e, keep=10_000)
    assert log.flush() == lib.LOG_OK
    assert len(log.scan(1).entries) == len(held) + 10_000 // 48 + 1


def test_a_file_size_limit_is_no_space_and_nothing_changes(tmp_path: Path) -> None:
    in_subprocess(file_size_limit, str(tmp_path))


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system with about 2 MiB of room."""
    disk, image = tmp_path / "disk", tmp_path / "image"
    disk.mkdir()
    commands = [["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]]
    if request.param == "ext4":
        image.touch()
        os.truncate(image, 3 << 20)
        commands = [
            ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", "-N", "64", str(image)],
            ["mount", "-o", "loop", str(image), str(disk)],
        ]
    for command in commands:
        try:
            subprocess.run(command, capture_output=True, check=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            pytest.skip(f"needs a file system of its own: {error}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_is_no_space_and_goes_on_when_there_is_room(small_disk: Path, log: Log) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(1 << 20))
    fd = os.open(small_disk / "1.log", os.O_RDWR | os.O_CREAT)
    assert log.add(fd, 1, 16 << 20)
    e = Entry(body=b"x" * 1000)
    held = []
    while position := log.put(e, keep=20_000):
        held.append(position)
        assert log.flush() == lib.LOG_OK
    assert lib.log_errno(log.c) == errno.ENOSPC
    assert len(held) > 900, "the room there was has been used"
    # Room that was found but was not enough has been given back.
    assert os.fstat(fd).st_size == lib.log_bytes(log.c) + lib.log_ahead_bytes(log.c)
    # Nothing has changed by being refused, however often.
    before = (lib.log_bytes(log.c), lib.log_ahead_bytes(log.c), os.fstat(fd).st_size)
    for _ in range(10):
        assert log.reserve(e, keep=20_000) == lib.LOG_NO_SPACE
    assert (lib.log_bytes(log.c), lib.log_ahead_bytes(log.c), os.fstat(fd).st_size) == before
    assert all(log.read(p) == e for p in held)
    # What was kept is there.
    for _ in range(20_000 // 48):
        assert log.put(Entry(kind=2))
    assert log.flush() == lib.LOG_OK

    filler.unlink()
    assert log.put(e, keep=20_000)
    assert log.flush() == lib.LOG_OK
    assert len(log.scan(1).entries) == len(held) + 20_000 // 48 + 1


def test_what_is_kept_survives_the_change_of_segments_on_a_full_disk(small_disk: Path, log: Log) -> None:
    capacity = 100_000
    files = [os.open(small_disk / f"{n}.log", os.O_RDWR | os.O_CREAT) for n in (1, 2)]
    assert log.add(files[0], 1, capacity) and log.add(files[1], 2, capacity)
    e = Entry(body=b"x" * 1000)
    while lib.log_segment_end(log.c, 1) + 1048 + 30_000 <= capacity + 20_000:
        assert log.put(e, keep=30_000)
    with contextlib.suppress(OSError):
        os.posix_fallocate(os.open(small_disk / "filler", os.O_RDWR | os.O_CREAT), 0, 4 << 20)
    with (small_disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(4096)):
            pass
    acks = [log.put(Entry(kind=2)) for _ in range(30_000 // 48)]
    assert all(acks) and {p >> 32 for p in acks} == {1, 2}
    assert log.flush() == lib.LOG_OK


# ---- syncing ----


def test_a_sealed_segment_stays_to_be_synced_until_it_is(log: Log) -> None:
    first, second, third = memfd(), memfd(), memfd()
    assert log.unsynced() == ([], 0)
    assert log.add(first, 1, 1000)
    assert log.put(Entry(body=bytes(400)))
    assert log.unsynced() == ([], 0), "nothing is flushed"
    assert log.flush() == lib.LOG_OK
    fds, upto = log.unsynced()
    assert fds == [first] and upto == lib.log_flushed(log.c)
    assert log.put(Entry(body=bytes(300)))
    assert log.add(second, 2, 1000) and log.put(Entry(body=bytes(600)))
    assert log.flush() == lib.LOG_OK
    lib.log_mark_synced(log.c, upto)
    assert log.unsynced()[0] == [first, second], "the first was written to after the round began"
    assert log.add(third, 3, 1000) and log.put(Entry(body=bytes(600)))
    assert log.flush() == lib.LOG_OK
    assert log.unsynced()[0] == [first, second, third]
    # In portions, oldest first.
    fds, upto = log.unsynced(2)
    assert fds == [first, second] and upto < lib.log_flushed(log.c)
    lib.log_mark_synced(log.c, upto)
    assert log.unsynced() == ([third], lib.log_flushed(log.c))


def test_what_recovery_finds_is_to_be_synced(log: Log) -> None:
    fd = memfd(written(1, SEVERAL))
    assert log.add(fd, 1, new=False)
    assert log.unsynced() == ([fd], lib.log_flushed(log.c))


class Syncer:
    """A syncer whose fdatasync is `sync`, called with the descriptor's inode."""

    def __init__(self, sync: Callable[[int], int] | None) -> None:
        self.wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.callback = ffi.NULL

        if sync is not None:

            def call(fd: int) -> int:
                error = sync(os.fstat(fd).st_ino)
                ffi.errno = error
                return -1 if error else 0

            self.callback = ffi.callback("int(int)", call)
        self.c = lib.syncer_new(self.wake, self.callback)
        assert self.c != ffi.NULL

    def request(self, ticket: int, *fds: int, wake: bool = True) -> bool:
        return bool(lib.syncer_request(self.c, ticket, list(fds), len(fds), wake))

    def woken(self, timeout: float = 10) -> bool:
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        return bool(poll.poll(timeout * 1000)) and os.eventfd_read(self.wake) > 0

    def close(self) -> None:
        lib.syncer_free(self.c)
        os.close(self.wake)


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_a_ticket_is_done_only_after_all_its_syncs(tmp_path: Path) -> None:
    fds = [os.open(tmp_path / str(i), os.O_RDWR | os.O_CREAT) for i in range(3)]
    inodes = [os.fstat(fd).st_ino for fd in fds]
    begun: list[int] = []
    step, go = threading.Semaphore(0), threading.Semaphore(0)

    def sync(inode: int) -> int:
        begun.append(inode)
        step.release()
        go.acquire()
        return 0

    syncer = Syncer(sync)
    assert lib.syncer_done(syncer.c) == 0 and not lib.syncer_busy(syncer.c)
    assert syncer.request(5, *fds)
    for fd in fds:
        os.close(fd)  # the round has its own
    for i in range(3):
        assert step.acquire(timeout=10)
        assert begun == inodes[: i + 1]
        assert lib.syncer_done(syncer.c) == 0 and lib.syncer_busy(syncer.c)
        assert not syncer.request(6), "one round at a time"
        assert not syncer.woken(0)
        go.release()
    assert syncer.woken()
    assert lib.syncer_done(syncer.c) == 5 and not lib.syncer_busy(syncer.c) and lib.syncer_error(syncer.c) == 0
    syncer.close()


def test_a_failed_sync_stays_failed(tmp_path: Path) -> None:
    outcomes = iter([0, errno.EIO, 0, 0, 0])
    syncer = Syncer(lambda _: next(outcomes))
    with (tmp_path / "file").open("wb") as file:
        assert syncer.request(1, file.fileno()) and syncer.woken()
        assert lib.syncer_done(syncer.c) == 1
        assert syncer.request(2, file.fileno(), file.fileno(), wake=False)
        assert syncer.woken(), "a failure wakes in any case"
        assert lib.syncer_done(syncer.c) == 1 and lib.syncer_error(syncer.c) == errno.EIO
        assert not syncer.request(3, file.fileno())
        assert lib.syncer_done(syncer.c) == 1 and lib.syncer_error(syncer.c) == errno.EIO
    syncer.close()


def test_an_interrupted_sync_is_repeated(tmp_path: Path) -> None:
    outcomes = iter([errno.EINTR, errno.EINTR, 0])
    syncer = Syncer(lambda _: next(outcomes))
    with (tmp_path / "file").open("wb") as file:
        assert syncer.request(1, file.fileno()) and syncer.woken()
    assert lib.syncer_done(syncer.c) == 1
    assert next(outcomes, None) is None
    syncer.close()


def test_rounds_with_the_real_fdatasync(tmp_path: Path) -> None:
    syncer = Syncer(None)
    before = open_descriptors()
    with (tmp_path / "a").open("wb", buffering=0) as a, (tmp_path / "b").open("wb", buffering=0) as b:
        for ticket in range(1, 6):
            a.write(b"a" * 100)
            b.write(b"b" * 100)
            assert syncer.request(ticket, a.fileno(), b.fileno()) and syncer.woken()
            assert lib.syncer_done(syncer.c) == ticket
    assert syncer.request(6) and syncer.woken(), "a round of nothing is done too"
    assert open_descriptors() == before
    syncer.close()


def test_descriptors_that_are_not_open_start_no_round(tmp_path: Path) -> None:
    syncer = Syncer(None)
    before = open_descriptors()
    with (tmp_path / "a").open("wb") as a:
        assert not syncer.request(1, a.fileno(), 1_000_000)
        assert not lib.syncer_busy(syncer.c)
        assert syncer.request(1, a.fileno()) and syncer.woken()
    assert open_descriptors() == before
    syncer.close()


def test_freeing_waits_for_the_round_under_way(tmp_path: Path) -> None:
    go, finished = threading.Event(), threading.Event()

    def sync(_: int) -> int:
        go.wait(10)
        finished.set()
        return 0

    syncer = Syncer(sync)
    with (tmp_path / "file").open("wb") as file:
        assert syncer.request(1, file.fileno())
    threading.Timer(0.05, go.set).start()
    syncer.close()
    assert finished.is_set()
