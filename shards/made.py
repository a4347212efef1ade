"""The files of a segment that a log is about to get."""

from __future__ import annotations

import logging
import os
from typing import Any, NamedTuple

from mq_shards.csrc._core import lib
from mq_shards.shards.store import SegmentStore
from mq_shards.shards.store_error import StoreError

log = logging.getLogger(__name__)


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


def keep_copies(worker: Any, shard: int, number: int, made: Made) -> None:  # noqa: ANN401
    """Gives the core the copies of names. They help only after damage, so a segment can do without them."""
    if made.no_copies:
        log.warning("shard %d: no copies of names are kept: %s", shard, made.no_copies)
    if made.copies is not None and not lib.worker_keep_copies(worker, shard, made.copies, number):
        os.close(made.copies)
