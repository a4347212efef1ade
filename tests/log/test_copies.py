"""Copies of names beside a log's segments, as the log sees them: csrc/log/copies.h."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from mq_shards.csrc._core import lib

from tests.log.log import Entry, Log, memfd


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.close()


def test_copies_are_synced_with_the_segment_they_are_of(log: Log) -> None:
    fds = {number: memfd() for number in (1, 2)}
    copies = {number: memfd() for number in (1, 2)}
    assert log.add(fds[1], 1, 1000) and lib.log_keep_copies(log.c, copies[1], 1)
    lib.log_copy(log.c, log.put(Entry(body=b"a")))
    assert log.flush() == lib.LOG_OK
    synced, upto = log.unsynced()
    assert synced == [copies[1], fds[1]]
    lib.log_mark_synced(log.c, upto)
    assert log.put(Entry(body=b"b")) and log.flush() == lib.LOG_OK
    assert log.unsynced()[0] == [fds[1]], "nothing was copied"
    lib.log_copy(log.c, log.put(Entry(body=b"c")))
    assert log.add(fds[2], 2, 1000) and lib.log_keep_copies(log.c, copies[2], 2)
    lib.log_copy(log.c, log.put(Entry(body=bytes(800))))
    assert log.flush() == lib.LOG_OK
    synced, upto = log.unsynced()
    assert synced == [copies[1], fds[1], copies[2], fds[2]]
    assert log.unsynced(3)[0] == [copies[1], fds[1]], "both or none"
    lib.log_mark_synced(log.c, upto)
    assert log.unsynced()[0] == []
    with pytest.raises(OSError):
        os.fstat(copies[1])  # it is sealed, and closed
