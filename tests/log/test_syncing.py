"""Rounds of syncs, and what each has made safe."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.log.log import SEVERAL, Entry, Log, memfd, written


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
        assert lib.syncer_done(syncer.c) == 1 and lib.syncer_failed_fd(syncer.c) == -1
        assert syncer.request(2, file.fileno(), file.fileno(), wake=False)
        assert syncer.woken(), "a failure wakes in any case"
        assert lib.syncer_done(syncer.c) == 1 and lib.syncer_error(syncer.c) == errno.EIO
        assert not syncer.request(3, file.fileno())
        assert lib.syncer_done(syncer.c) == 1 and lib.syncer_error(syncer.c) == errno.EIO
        inode = os.fstat(file.fileno()).st_ino
    failed = lib.syncer_failed_fd(syncer.c)
    assert os.fstat(failed).st_ino == inode, "it stays open, to say which it was"
    syncer.close()
    with pytest.raises(OSError):
        os.fstat(failed)


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
