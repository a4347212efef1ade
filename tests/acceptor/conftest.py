"""Acceptors that speak beanstalkd's protocol, before one, two and three workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptor.bench import Bench, Client


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


@pytest.fixture
def trio() -> Iterator[Bench]:
    bench = Bench(workers=3)
    yield bench
    bench.close()


@pytest.fixture
def watcher(trio: Bench) -> Client:
    return trio.quiet_client(trio.name_at(0), trio.name_at(1))
