"""The files of a segment that a log is about to get."""

from __future__ import annotations

from typing import NamedTuple

from mq_shards.csrc._core import lib
from mq_shards.shards.store import SegmentStore, StoreError


class Made(NamedTuple):
    """The files of a segment."""

    fd: int
    copies: int | None
    no_copies: str = ""  # why there is no file for copies of names


def make(store: SegmentStore, number: int) -> Made:
    return with_copies(store, number, store.create(number))


def with_copies(store: SegmentStore, number: int, fd: int) -> Made:
    try:
        return Made(fd, store.open_copies(number))
    except StoreError as error:
        return Made(fd, None, str(error))


def allocated(made: Made, size: int) -> Made:
    """Allocates disk space ahead, so that the log need not wait for it. If that fails, the log does it as it grows."""
    lib.log_allocate_ahead(made.fd, size)
    return made
