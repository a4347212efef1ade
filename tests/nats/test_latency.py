"""Latency of services: results as of a nats-server that reads the same file."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.nats.conftest import server_of
from tests.nats.latency_scenes import LATENCIES, PARENT, Latency, by_headers, play
from tests.nats.record import LATENCY_TRANSCRIPTS
from tests.nats.servers import NatsServer

SEEN = json.loads(LATENCY_TRANSCRIPTS.read_text()) if LATENCY_TRANSCRIPTS.exists() else {}


server = server_of("latency.conf")


@pytest.mark.parametrize("scene", LATENCIES, ids=lambda scene: scene.name.replace(" ", "-"))
def test_results_are_those_of_a_nats_server(server: NatsServer, scene: Latency) -> None:
    # Text, since the order of the fields counts, too.
    assert json.dumps(_sorted(play(scene, server.port)), indent=1) == json.dumps(_sorted(SEEN[scene.name]), indent=1)


def _sorted(seen: dict[str, Any]) -> dict[str, Any]:
    """A result and an answer come from two connections: either may be the first."""
    heard = {who: sorted(re.split(r"(?=HMSG |(?<!H)MSG |PONG)", text)) for who, text in seen["heard"].items()}
    return {**seen, "heard": heard}


def test_very_long_headers_are_left_out_of_a_result(server: NatsServer, request: pytest.FixtureRequest) -> None:
    """They are kept until there is an answer, and anybody who may ask can send them."""
    if "[nats-server]" in request.node.name:
        pytest.skip("a nats-server keeps any")
    (result,) = play(by_headers("long", f"{PARENT}-01", "Tracestate: " + "x" * 20_000), server.port)["results"]
    assert result["status"] == 200 and "header" not in result
