"""A server for each kind of test: those that only look share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.nats.servers import NatsServer, nats_server, running

KINDS = [
    pytest.param(0, id="nats-server", marks=pytest.mark.skipif(nats_server() is None, reason="no nats-server")),
    pytest.param(1, id="shards-1"),
    pytest.param(2, id="shards-2", marks=pytest.mark.long),  # what differs from one, differs with three
    pytest.param(3, id="shards-3"),
]


CONFS = Path(__file__).with_name("confs")


def serving(kind: int, conf: str) -> AbstractContextManager[NatsServer]:
    option = "-c" if kind == 0 else "--nats-config"
    return running(kind, arguments=[option, str(CONFS / conf)])


def server_of(conf: str) -> Callable[..., Iterator[NatsServer]]:
    """Makes a module's fixture: a server of each kind that reads this file."""

    @pytest.fixture(params=KINDS, scope="module", name="server")
    def server(request: pytest.FixtureRequest) -> Iterator[NatsServer]:
        with serving(request.param, conf) as server:
            yield server

    return server


@pytest.fixture(params=KINDS, scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[NatsServer]:
    with running(request.param) as server:
        yield server
