"""Message tracing: events and deliveries as of a nats-server that reads the same file."""

from __future__ import annotations

import json

import pytest

from tests.nats.conftest import server_of
from tests.nats.record import TRACE_TRANSCRIPTS
from tests.nats.servers import NatsServer
from tests.nats.trace_scenes import TRACES, Trace, play

SEEN = json.loads(TRACE_TRANSCRIPTS.read_text()) if TRACE_TRANSCRIPTS.exists() else {}


server = server_of("trace.conf")


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name.replace(" ", "-"))
def test_the_event_and_the_delivery_are_those_of_a_nats_server(server: NatsServer, trace: Trace) -> None:
    # Text, since the order of the fields counts, too.
    assert json.dumps(play(trace, server.port), indent=1) == json.dumps(SEEN[trace.name], indent=1)
