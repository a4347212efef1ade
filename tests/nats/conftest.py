"""A server for each kind of test: those that only look share one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nats.servers import NatsServer, nats_server, running

KINDS = [
    pytest.param(0, id="nats-server", marks=pytest.mark.skipif(nats_server() is None, reason="no nats-server")),
    pytest.param(1, id="shards-1"),
    pytest.param(2, id="shards-2"),
    pytest.param(3, id="shards-3"),
]


@pytest.fixture(params=KINDS, scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[NatsServer]:
    with running(request.param) as server:
        yield server
