"""Pages that are prepared for what is about to be written (csrc/log/pages.h): nothing that is read changes by it."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib

from tests.log.log import Entry, Log, content_of, memfd, on_disk

CAPACITY = 16 << 20
PIECE = 64 << 10


def prepared(log: Log) -> Log:
    lib.log_prepare_pages(log.c)
    return log


def written_to(fd: int) -> int:
    """How far the file has been written to, not merely allocated."""
    end = 0
    try:
        while True:
            data = os.lseek(fd, end, os.SEEK_DATA)
            end = os.lseek(fd, data, os.SEEK_HOLE)
    except OSError as error:
        assert error.errno == errno.ENXIO
    return end


def test_what_is_appended_reads_back_whatever_the_size_of_a_flush(log: Log, tmp_path: Path) -> None:
    fd = on_disk(tmp_path)
    assert prepared(log).add(fd, 1, CAPACITY)
    rng = random.Random(11)
    held = []
    while lib.log_segment_end(log.c, 1) < 6 << 20:
        for _ in range(rng.choice([1, 1, 3, 40])):
            size = rng.choice([0, 30, 250, 4_000, 70_000 if rng.random() < 0.1 else 9])
            e = Entry(seq=len(held), body=rng.randbytes(size))
            held.append((log.put(e), e))
        assert log.flush() == lib.LOG_OK
    assert all(log.read(p) == e for p, e in held)
    end = lib.log_segment_end(log.c, 1)
    assert not any(content_of(fd)[end:]), "what follows is zeros"
    scan = log.scan(1)
    assert [e for _, e in scan.entries] == [e for _, e in held] and (scan.end, scan.torn, scan.damage) == (end, 0, [])


def test_a_log_goes_on_where_one_that_was_killed_had_prepared_more(tmp_path: Path) -> None:
    fd = on_disk(tmp_path)
    first = prepared(Log())
    assert first.add(os.dup(fd), 1, CAPACITY)
    held = [Entry(seq=n, body=bytes([n % 251]) * 900) for n in range(200)]
    for e in held:
        first.put(e)
        assert first.flush() == lib.LOG_OK
    end = lib.log_segment_end(first.c, 1)
    first.close()
    second = prepared(Log())
    assert second.add(os.dup(fd), 1, CAPACITY, new=False)
    scan = second.scan(1)
    assert (scan.end, scan.torn, scan.damage) == (end, 0, [])
    assert lib.log_truncate(second.c, 1, end)
    more = [Entry(seq=1000 + n, body=b"more" * 100) for n in range(300)]
    for e in more:
        second.put(e)
        assert second.flush() == lib.LOG_OK
    assert [e for _, e in second.scan(1).entries] == held + more
    second.close()
    os.close(fd)


def test_no_more_than_a_piece_is_prepared_and_none_for_a_log_that_is_short(log: Log, tmp_path: Path) -> None:
    fd = on_disk(tmp_path)
    os.posix_fallocate(fd, 0, 1 << 20)
    if written_to(fd):
        pytest.skip("this file system does not tell what was written from what is allocated")
    os.ftruncate(fd, 0)
    assert prepared(log).add(fd, 1, CAPACITY)
    ahead = []
    for n in range(2000):
        log.put(Entry(seq=n, body=b"x" * 300))
        assert log.flush() == lib.LOG_OK
        end = lib.log_segment_end(log.c, 1)
        ahead.append((end, written_to(fd) - end))
    assert max(more for _, more in ahead) <= PIECE + 4096
    assert all(more < PIECE // 4 for end, more in ahead if end < PIECE)


def test_where_it_cannot_be_the_write_that_follows_says_so(log: Log, tmp_path: Path) -> None:
    fd = on_disk(tmp_path)
    good, bad = os.dup(fd), os.open("/dev/null", os.O_RDONLY)
    assert prepared(log).add(fd, 1, CAPACITY)
    held = [Entry(seq=n, body=b"y" * 1000) for n in range(100)]
    for e in held:
        log.put(e)
    assert log.flush() == lib.LOG_OK
    os.dup2(bad, fd)
    last = log.put(Entry(body=b"z" * 1000))
    assert log.flush() == lib.LOG_FAILING and lib.log_errno(log.c) == errno.EBADF
    os.dup2(good, fd)
    assert log.flush() == lib.LOG_OK
    assert log.read(last) == Entry(body=b"z" * 1000)
    assert [e for _, e in log.scan(1).entries] == [*held, Entry(body=b"z" * 1000)]
    os.close(good)
    os.close(bad)


def test_a_log_in_memory_is_as_it_was(log: Log) -> None:
    fd = memfd()
    assert prepared(log).add(fd, 1, CAPACITY)
    for n in range(500):
        log.put(Entry(seq=n, body=b"m" * 500))
        assert log.flush() == lib.LOG_OK
    assert len(log.scan(1).entries) == 500
