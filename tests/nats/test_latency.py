"""Latency of services: results as of a nats-server that reads the same file."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.nats.conftest import KINDS
from tests.nats.latency_scenes import LATENCIES, Latency, play
from tests.nats.record import LATENCY_TRANSCRIPTS
from tests.nats.servers import NatsServer
from tests.nats.test_who import serving

SEEN = json.loads(LATENCY_TRANSCRIPTS.read_text()) if LATENCY_TRANSCRIPTS.exists() else {}


@pytest.fixture(params=KINDS, scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[NatsServer]:
    with serving(request.param, "latency.conf") as server:
        yield server


@pytest.mark.parametrize("scene", LATENCIES, ids=lambda scene: scene.name.replace(" ", "-"))
def test_results_are_those_of_a_nats_server(server: NatsServer, scene: Latency) -> None:
    # Text, since the order of the fields counts, too.
    assert json.dumps(play(scene, server.port), indent=1) == json.dumps(SEEN[scene.name], indent=1)
