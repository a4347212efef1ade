"""What is staged, and how it comes to a file."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib

from tests.log.log import HEADER, NOW, Entry, Log, content_of, in_subprocess, limit_file_size, memfd, on_disk


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
    assert (lib.log_errno(log.c), lib.log_fd(log.c)) == (errno.EBADF, fd)
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


def header_without_room(directory: str) -> None:
    log, fd = Log(), os.open(f"{directory}/1.log", os.O_RDWR | os.O_CREAT)
    assert log.add(fd, 1)
    limit_file_size(HEADER)
    assert log.flush() == lib.LOG_OK
    header = content_of(fd)
    assert len(header) == HEADER and any(header)
    assert log.reserve(Entry()) == lib.LOG_NO_SPACE
    assert content_of(fd) == header
    limit_file_size(resource.RLIM_INFINITY)
    assert log.put(Entry(seq=7)) and log.flush() == lib.LOG_OK
    assert content_of(fd)[:HEADER] == header


def test_a_header_stays_when_there_is_no_room_for_what_comes_behind_it(tmp_path: Path) -> None:
    in_subprocess(header_without_room, str(tmp_path))


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


def fill(disk: Path, leave: int) -> None:
    """Until there is no more room than that."""
    with (disk / "filler").open("ab", buffering=0) as filler, contextlib.suppress(OSError):
        while (free := os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - leave) > 0:
            filler.write(bytes(min(free, 1 << 16)))


def test_what_the_next_segment_took_ahead_is_used_where_the_disk_has_no_more_for_this_one(small_disk: Path) -> None:
    capacity, keep = 400_000, 230_000
    files = [os.open(small_disk / f"{n}.log", os.O_RDWR | os.O_CREAT) for n in (1, 2)]
    written, log = Log(), Log()
    assert written.add(files[0], 1, capacity)
    for _ in range(200):
        assert written.put(Entry(body=b"x" * 1000))
    assert written.flush() == lib.LOG_OK
    end = written.scan(1).end
    written.close()
    # A restart gives back what had been taken ahead.
    assert log.add(os.open(small_disk / "1.log", os.O_RDWR), 1, capacity, new=False) and log.truncate(1, end)
    assert log.add(files[1], 2, capacity)
    fill(small_disk, 300_000)
    first = log.put(Entry(kind=2), keep=keep)
    fill(small_disk, 0)
    acks = [log.put(Entry(kind=2), keep=keep) for _ in range(400)]
    assert first and all(acks)
    assert log.flush() == lib.LOG_OK
    assert {p >> 32 for p in (first, *acks)} == {1, 2}
    assert len(log.scan(1).entries) + len(log.scan(2).entries) == 200 + 1 + len(acks)
    log.close()
