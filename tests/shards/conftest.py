from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.shards.subscriptions import Channels


@pytest.fixture
def bench() -> Iterator[Channels]:
    """What most tests of a worker are given; those that want another have one of their own."""
    bench = Channels()
    yield bench
    bench.dispose()
