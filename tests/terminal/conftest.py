"""A broker that listens by every protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nsq.servers import HOST, listening
from tests.reader.broker import Broker, started
from tests.servers import wait_until

SCHEMES = ("nats", "pulsar", "nats-http")


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    listen = [f"--listen={scheme}://{HOST}:0" for scheme in SCHEMES]
    data = Path(tmp_path_factory.mktemp("terminal")) / "data"
    with started(data, *listen, "--set", "nats.topics=bound.>") as broker:
        wait_until(lambda: set(SCHEMES) < set(listening(broker.server)), "all are listened for")
        yield broker


@pytest.fixture(scope="package")
def at(broker: Broker) -> dict[str, str]:
    """The --at of each scheme."""
    return {scheme: f"--at={scheme}://{HOST}:{port}" for scheme, port in listening(broker.server).items()}
