"""A segment that is begun before the one before it is full, on a disk that has no room for it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from mq_shards.csrc._core import lib

from tests.shards.positions import publish
from tests.shards.subscriptions import Channels

HEADER_ONLY = 100  # bytes: a header has room in such a file, and what is allocated for records has not


@contextmanager
def nearly_full_disk() -> Iterator[None]:
    """No file can be made longer than a header."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HEADER_ONLY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_one_that_has_no_room_is_not_followed_by_another(bench: Channels) -> None:
    publish(bench)
    bench.supply()
    with nearly_full_disk():
        for _ in range(10):
            lib.worker_roll(bench.worker, 0)
            bench.turn()
            bench.supply()
    assert len(bench.segments[0]) <= 3, "the first, the one without room, and one that waits"
