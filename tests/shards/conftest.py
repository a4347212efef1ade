from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.shards.subscriptions import Channels


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Channels]:
    """What most tests of a worker are given, with what their module says in BENCH; some have one of their own."""
    bench = Channels(**getattr(request.module, "BENCH", {}))
    yield bench
    bench.dispose()
