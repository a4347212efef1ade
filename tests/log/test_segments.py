"""A segment is one of its shard, its number and its data directory."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib

from tests.log.log import HEADER, NOW, Entry, Log, memfd


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


def test_room_behind_the_end_of_a_file_is_what_its_log_allocates_later(log: Log, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "segment", os.O_RDWR | os.O_CREAT, 0o600)
    if not lib.log_allocate_ahead(fd, 8 << 20):
        pytest.skip("the file system has not got it")
    blocks = os.fstat(fd).st_blocks
    assert os.fstat(fd).st_size == 0 and blocks * 512 >= 8 << 20
    assert log.add(fd, 1, 8 << 20)
    for _ in range(4):
        assert log.put(Entry(body=bytes(1 << 20)))
        assert log.flush() == lib.LOG_OK
    assert os.fstat(fd).st_blocks <= blocks + 64, "but for what the file system notes of it"
    assert not lib.log_allocate_ahead(fd, 1 << 46), "more than a part of what is free"


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
