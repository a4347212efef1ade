"""Bodies that are written from where they are, without a copy in the staging buffer: the segment is the same."""

from __future__ import annotations

import errno
import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.log.log import Entry, Log, content_of, in_subprocess, limit_file_size, memfd, on_disk


class Lender:
    """Whose memory is something else's as soon as the log may not look at it any more."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.lent: list[Any] = []

    def append(self, e: Entry) -> int:
        self.lent.append(ffi.new("uint8_t[]", e.body))
        return self.log.append(e, self.lent[-1])

    def flush(self) -> int:
        result = self.log.flush()
        for memory in self.lent:
            ffi.memmove(memory, b"\xee" * (len(memory) - 1), len(memory) - 1)
        self.lent.clear()
        return result


@pytest.fixture
def other() -> Iterator[Log]:
    log = Log()
    yield log
    log.close()


def some_entries(rng: random.Random, count: int) -> list[Entry]:
    sizes = [0, 1, 7, 100, 5000, 8192, 20_001]
    return [
        Entry(seq=seq, attributes=rng.randbytes(rng.choice([0, 3, 8, 16])), body=rng.randbytes(rng.choice(sizes)))
        for seq in range(count)
    ]


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_a_segment_is_the_same_whether_bodies_were_lent_or_copied(
    log: Log, other: Log, tmp_path: Path, place: str
) -> None:
    fd, plain = memfd() if place == "memory" else on_disk(tmp_path), memfd()
    assert log.add(fd, 1, 64 << 20) and other.add(plain, 1, 64 << 20)
    rng = random.Random(place)
    lender = Lender(log)
    held: list[tuple[int, Entry]] = []
    for e in some_entries(rng, 600):
        assert log.reserve(e) == other.reserve(e) == lib.LOG_OK
        position = lender.append(e) if e.body and rng.random() < 0.8 else log.append(e)
        assert position == other.append(e)
        held.append((position, e))
        if rng.random() < 0.2:
            position, e = rng.choice(held[-20:])
            assert log.read(position) == e
        if rng.random() < 0.03:
            assert lender.flush() == lib.LOG_OK
    assert all(log.read(position) == e for position, e in held)
    assert lender.flush() == other.flush() == lib.LOG_OK
    end = lib.log_segment_end(log.c, 1)
    assert end == lib.log_segment_end(other.c, 1)
    assert content_of(fd)[:end] == content_of(plain)[:end]
    assert [e for _, e in log.scan(1).entries] == [e for _, e in held]


def test_what_is_lent_is_found_where_it_is_until_it_is_read(log: Log) -> None:
    assert log.add(memfd(), 1, 1 << 20)
    e = Entry(attributes=b"attributes", body=b"b" * 10_000)
    assert log.reserve(e) == lib.LOG_OK
    memory = ffi.new("uint8_t[]", e.body)
    position = log.append(e, memory)
    record = lib.log_find(log.c, position)
    assert lib.log_body(log.c, record) == memory
    assert log.read(position) == e
    assert lib.log_body(log.c, record) == lib.record_body(record)
    ffi.memmove(memory, bytes(10_000), 10_000)
    assert log.flush() == lib.LOG_OK
    assert log.read(position) == e
    record = lib.log_find(log.c, position)
    assert lib.log_body(log.c, record) == lib.record_body(record)


def test_many_lent_bodies_are_written_before_the_turn_is_over(log: Log) -> None:
    assert log.add(memfd(), 1, 8 << 20)
    lender = Lender(log)
    held = [Entry(seq=seq, body=b"%02d" % seq * 5000) for seq in range(80)]
    assert log.reserve(*held) == lib.LOG_OK
    positions = [lender.append(e) for e in held]
    assert lib.log_flushed(log.c) > 0
    assert lender.flush() == lib.LOG_OK
    assert [log.read(position) for position in positions] == held


def test_a_write_that_fails_makes_the_bodies_the_logs_own(log: Log, tmp_path: Path) -> None:
    fd = on_disk(tmp_path)
    good, bad = os.dup(fd), os.open("/dev/null", os.O_RDONLY)
    assert log.add(fd, 1, 16 << 20)
    lender = Lender(log)
    held = [Entry(seq=seq, body=b"%02d" % seq * 5000) for seq in range(70)]
    assert log.reserve(*held) == lib.LOG_OK
    os.dup2(bad, fd)
    positions = []
    for e in held:
        positions.append(lender.append(e))
        if len(positions) % 25 == 0:
            assert lender.flush() == lib.LOG_FAILING
    assert lender.flush() == lib.LOG_FAILING
    assert lib.log_errno(log.c) == errno.EBADF
    assert [log.read(position) for position in positions] == held
    os.dup2(good, fd)
    assert lender.flush() == lib.LOG_OK
    assert [e for _, e in log.scan(1).entries] == held
    os.close(good)
    os.close(bad)


def short_write(directory: str) -> None:
    fd = os.open(f"{directory}/1.log", os.O_RDWR | os.O_CREAT)
    log = Log()
    lender = Lender(log)
    assert log.add(fd, 1, 1 << 20)
    held = [Entry(seq=i, body=bytes([i]) * 10_000) for i in range(20)]
    assert log.reserve(*held) == lib.LOG_OK
    positions = [lender.append(e) for e in held]
    limit_file_size(100_000)
    assert lender.flush() == lib.LOG_FAILING
    assert lib.log_flushed(log.c) == 100_000
    assert [log.read(p) for p in positions] == held
    limit_file_size(resource.RLIM_INFINITY)
    assert lender.flush() == lib.LOG_OK
    assert [e for _, e in log.scan(1).entries] == held


def test_a_short_write_goes_on_within_a_body(tmp_path: Path) -> None:
    in_subprocess(short_write, str(tmp_path))
