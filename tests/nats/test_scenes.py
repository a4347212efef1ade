"""To the byte what a nats-server says: as it was seen, and as a real one says it now where there is one."""

from __future__ import annotations

import json

import pytest

from tests.nats.record import TRANSCRIPTS
from tests.nats.scenes import SCENES, Scene
from tests.nats.servers import NatsServer
from tests.nats.wire import play

SEEN = json.loads(TRANSCRIPTS.read_text())


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name.replace(" ", "-"))
def test_it_says_what_a_nats_server_says(server: NatsServer, scene: Scene) -> None:
    heard = [[heard.data.decode("latin-1"), heard.closed] for heard in play(scene, server.port)]
    assert [_in_any_order(*one) for one in heard] == [_in_any_order(*one) for one in SEEN[scene.name]]


def _in_any_order(text: str, closed: bool) -> tuple[list[str], bool]:
    """One message reaches the subscriptions of a connection in no order that anybody promises."""
    lines = text.split("\r\n")
    return (sorted(lines) if text.count("MSG a.b.c.d") > 1 else lines), closed
