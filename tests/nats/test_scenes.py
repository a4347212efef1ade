"""To the byte what a nats-server says: as it was seen, and as a real one says it now where there is one."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from tests.nats.record import TRANSCRIPTS
from tests.nats.scenes import SCENES, Scene
from tests.nats.servers import NatsServer
from tests.nats.wire import play

SEEN = json.loads(TRANSCRIPTS.read_text())


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name.replace(" ", "-"))
def test_it_says_what_a_nats_server_says(server: NatsServer, scene: Scene) -> None:
    heard = [[heard.data.decode("latin-1"), heard.closed] for heard in play(scene, server.port)]
    assert [in_any_order(*one) for one in heard] == [in_any_order(*one) for one in SEEN[scene.name]]


def in_any_order(text: str, closed: bool) -> tuple[list[str], bool]:
    """One message reaches the subscriptions of a connection in no order that anybody promises."""
    lines = text.split("\r\n")
    parts = re.findall(r"(?:H?MSG [^\n]*\r\n[^\n]*|[^\n]*)(?:\r\n|$)", text) if "NATS/1.0" not in text else lines
    kinds = itertools.groupby(parts, key=lambda part: _message(part))
    return [part for _, run in kinds for part in sorted(run)], closed


def _message(part: str) -> tuple[str, str] | str:
    """What all who are interested in one message hear of it."""
    line, _, payload = part.partition("\r\n")
    return (line.split(" ")[1], payload) if line.startswith("MSG ") else part
