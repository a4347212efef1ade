"""Who may what: to the byte what a nats-server says that reads the same file."""

from __future__ import annotations

import json
import re

import pytest

from tests.nats.conftest import server_of
from tests.nats.record import WHO, WHO_TRANSCRIPTS
from tests.nats.scenes import Scene
from tests.nats.servers import NatsServer
from tests.nats.test_scenes import in_any_order
from tests.nats.wire import play

OF_ONE_ACCEPTOR = ("who may not have it is nobody",)
SEEN = json.loads(WHO_TRANSCRIPTS.read_text())


server = server_of("who.conf")


@pytest.mark.parametrize("scene", WHO, ids=lambda scene: scene.name.replace(" ", "-"))
def test_it_says_what_a_nats_server_says(server: NatsServer, scene: Scene) -> None:
    if server.acceptors > 1 and scene.name in OF_ONE_ACCEPTOR:
        pytest.skip("an acceptor does not know that of another")
    heard = [[heard.data.decode("latin-1"), heard.closed] for heard in play(scene, server.port)]
    seen = [in_any_order(*timeless(*one)) for one in SEEN[scene.name]]
    assert [in_any_order(*timeless(*one)) for one in heard] == seen


def timeless(text: str, closed: bool) -> tuple[str, bool]:
    """Without how far away somebody is, and the sizes that follow from it."""
    if "Nats-Request-Info" in text:
        text = re.sub(r',"rtt":[0-9]+', "", text)
        text = re.sub(r"(HMSG [^\r]*?) [0-9]+ [0-9]+\r\n(?=NATS/1.0\r\n(.+\r\n)*Nats-Request-Info)", r"\1\r\n", text)
    return text, closed
