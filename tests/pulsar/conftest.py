"""Brokers that tests share: names of their own keep them apart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pulsar.control_side import Run, around
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire

_names = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[PulsarServer]:
    with running(workers=2) as server:
        yield server


@pytest.fixture
def topic() -> str:
    return f"t{next(_names)}"


@pytest.fixture
def wire(server: PulsarServer) -> Iterator[Wire]:
    with Wire(server.port) as wire:
        yield wire.connect()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda test: around(test, tmp_path)
