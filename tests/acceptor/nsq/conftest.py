"""Acceptors that speak NSQ, before one and two workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptor.nsq.bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture
def duo() -> Iterator[Bench]:
    bench = Bench(workers=2)
    yield bench
    bench.close()
