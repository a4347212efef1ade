"""What is mapped to a subject that is kept: as much of it waits as of what is published to that itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nats.clusters import OURS, Member, configured
from tests.nats.leaf_wire import LeafWire
from tests.servers import wait_until

CONF = """
listen: "127.0.0.1:$PORT"
leafnodes { listen: "127.0.0.1:$ROUTE_PORT" }
mappings { "old.*": "kept.$1", me: "$SYS.REQ.USER.INFO" }
"""
# More than may be on their way to a worker.
MANY = 3000


@pytest.fixture
def broker() -> Iterator[Member]:
    with configured(OURS, CONF, ("--set", "nats.topics=kept.*")) as member:
        yield member


def test_a_client_that_publishes_much_waits_for_its_worker(broker: Member) -> None:
    client = broker.client(b"SUB r 1\r\n")
    client.send(b"PUB old.x r 1\r\n-\r\n" * MANY)
    wait_until(lambda: client.heard.data.count(b'"stream":"kept.x"') == MANY or client.barrier(), "all is kept")
    assert not client.heard.closed
    client.close()


def test_a_leaf_node_that_sends_much_waits_for_it_too(broker: Member) -> None:
    client = broker.client(b"SUB r 1\r\n")
    leaf = LeafWire.joining(broker.route_port, "")
    leaf.send(b"LMSG old.x r 1\r\n-\r\n" * MANY)
    assert leaf.barrier() == [] and not leaf.closed
    wait_until(lambda: client.heard.data.count(b'"stream":"kept.x"') == MANY or client.barrier(), "all is kept")
    for wire in (client, leaf):
        wire.close()


def test_what_is_mapped_to_a_question_is_asked_when_all_before_it_is_kept(broker: Member) -> None:
    client = broker.client(b"SUB r 1\r\nSUB i 2\r\n")
    client.send(b"PUB kept.x r 1\r\n-\r\nPUB me i 0\r\n\r\n" * 20)
    wait_until(lambda: client.heard.data.count(b"MSG i 2 ") == 20 or client.barrier(), "all is answered")
    assert client.heard.data.count(b'"stream":"kept.x"') == 20
    client.close()
