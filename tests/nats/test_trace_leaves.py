"""Message tracing over leaf nodes: the hub and the leaf node each publish what they have done with the message."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, configured, mixtures
from tests.nats.test_trace_clusters import come, events_of, shown
from tests.nats.trace_scenes import ONLY, traced

HUB = 'listen: "127.0.0.1:$PORT"\nserver_name: hub\nleafnodes { listen: "127.0.0.1:$ROUTE_PORT" }\n'
LEAF = 'listen: "127.0.0.1:$PORT"\nserver_name: leaf\nleafnodes { remotes: [ { url: "nats-leaf://127.0.0.1:%d" } ] }\n'
CLIENT, LEAF_NODE = 0, 4  # kinds of connections in an event


def play(near: Member, far: Member, names: tuple[str, str]) -> None:
    tracer = come(near, "tracer", b"SUB t.> 1\r\n")
    there, publisher, teller = come(far, "there", b"SUB x.y 1\r\n"), come(near, "publisher"), come(far, "teller")
    while b"ready" not in there.heard.data or b"ready" not in tracer.heard.data:
        publisher.send(b"PUB x.y 5\r\nready\r\n")
        teller.send(b"PUB t.ready 5\r\nready\r\n")
        for wire in (publisher, teller, there, tracer):
            wire.barrier()
    for lines in ((), (ONLY,)):
        tracer.heard.data, tracer.asked = b"", 0
        publisher.send(traced("x.y", *lines))
        events = events_of(tracer, 2)
        assert [shown(event) for event in events] == [
            (None, 1, [
                (("type", "in"), ("kind", CLIENT), ("acc", "$G"), ("subj", "x.y")),
                (("type", "eg"), ("kind", LEAF_NODE), ("hop", "1")),
            ]),
            (["1"], 0, [
                (("type", "in"), ("kind", LEAF_NODE), ("acc", "$G"), ("subj", "x.y")),
                (("type", "eg"), ("kind", CLIENT), ("sub", "x.y")),
            ]),
        ]  # fmt: skip
        assert tuple(event["server"]["name"] for event in events) == names
        assert [[one.get("name") for one in event["events"]] for event in events] == [
            ["publisher", names[1]], [names[0], "there"],
        ]  # fmt: skip
    there.barrier()
    assert there.heard.data.count(b"hi\r\n") == 1  # the second is for nobody
    for wire in (tracer, there, publisher, teller):
        wire.close()


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, NEW_REAL), (OURS, NEW_REAL), (NEW_REAL, OURS), (OURS_3, OURS_3)))
def test_the_hub_and_the_leaf_node_tell_their_parts(kinds: Sequence[str]) -> None:
    with configured(kinds[0], HUB) as hub, configured(kinds[1], LEAF % hub.route_port) as leaf:
        play(hub, leaf, ("hub", "leaf"))
        play(leaf, hub, ("leaf", "hub"))
