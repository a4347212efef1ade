"""For the tests of channels: one, by its two ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ringbuf.channel_ends import End, connect


@pytest.fixture
def pair() -> Iterator[tuple[End, End]]:
    ends = connect()
    yield ends
    for end in ends:
        end.close()
