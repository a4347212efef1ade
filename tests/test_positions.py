"""Where subscriptions begin and go on, by ring messages alone: what a topic retains, seeks, readers, credit in parts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mq_shards.csrc._core import lib

from tests.test_shard_protocol import ask, subscribe
from tests.test_subscriptions import Channels


@pytest.fixture()
def bench() -> Iterator[Channels]:
    b = Channels()
    yield b
    b.dispose()


NOT_BUILT = (lib.MSG_SEEK, lib.MSG_POSITION, lib.MSG_PEEK_SEQ)
UNUSED = (
    lib.MSG_RETAIN, lib.MSG_BY_SEQ, lib.MSG_ALL, lib.MSG_PERMITS, lib.MSG_DISMISS, lib.START_LATEST, lib.START_EARLIEST,
    lib.START_SEQ, lib.START_TIME, lib.DISMISSED_DELETED, lib.DISMISSED_MOVED, lib.SUBSCRIBE_UNCOUNTED,
    lib.STATUS_TERMINATED, lib.CHANGE_RETAIN, lib.CHANGE_TERMINATE,
)  # fmt: skip


@pytest.mark.parametrize("kind", NOT_BUILT)
def test_what_is_not_known_is_refused(bench: Channels, kind: int) -> None:
    assert ask(bench, kind, topic=bench.topic("t"), flags=max(UNUSED)).status == lib.STATUS_INVALID
    assert subscribe(bench, 1, 0, "t", "c", flags=lib.SUBSCRIBE_START) != lib.STATUS_OK
