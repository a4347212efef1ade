"""Two accounts that are leaf nodes of one hub, where imports on this side lead from the one to the other, and imports
of the hub lead back: what came from the hub and was imported is not sent to it. Ours as the real ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, configured, mixtures
from tests.nats.wire import Wire
from tests.servers import free_port, wait_until

HUB = """
listen: "127.0.0.1:$PORT"
server_name: hub
{cluster}
accounts {{
  A {{ users: [{{user: a, password: a}}], {a} }}
  B {{ users: [{{user: b, password: b}}], {b} }}
}}
leafnodes {{ listen: "127.0.0.1:{port}", authorization {{ users: [
  {{user: a, password: a, account: A}}, {{user: b, password: b, account: B}}] }} }}
"""
LEAF = """
listen: "127.0.0.1:$PORT"
server_name: leaf
accounts {{
  A {{ users: [{{user: a, password: a}}], {a} }}
  B {{ users: [{{user: b, password: b}}], {b} }}
}}
leafnodes {{ remotes: [
  {{url: "nats-leaf://a:a@127.0.0.1:{port}", account: A}}, {{url: "nats-leaf://b:b@127.0.0.1:{port}", account: B}}] }}
"""
CLUSTER = 'cluster { name: xyz, listen: "127.0.0.1:$ROUTE_PORT" }'
GIVES = {"stream": 'exports: [{stream: "x"}]', "service": 'exports: [{service: "x"}]'}
TAKES = {
    "stream": 'imports: [{stream: {account: %s, subject: "x"}}]',
    "service": 'imports: [{service: {account: %s, subject: "x"}}]',
}


def come(member: Member, user: str, said: bytes = b"") -> Wire:
    wire = Wire(member.port)
    wire.send(b'CONNECT {"verbose":false,"user":"%s","pass":"%s"}\r\n' % (user.encode(), user.encode()) + said)
    wire.barrier()
    return wire


def heard(wire: Wire) -> Counter[bytes]:
    wire.barrier()
    return Counter(wire.heard.data.split(b"\r\n"))


MIXTURES = mixtures((NEW_REAL, NEW_REAL), (NEW_REAL, OURS), (OURS_3, OURS_3), (OURS, NEW_REAL))


@pytest.mark.parametrize("cluster", ["", CLUSTER], ids=["alone", "cluster"])
@pytest.mark.parametrize("what", ["stream", "service"])
@pytest.mark.parametrize("kinds", MIXTURES)
def test_what_was_imported_does_not_go_back_to_its_hub(kinds: Sequence[str], what: str, cluster: str) -> None:
    port = free_port()
    # A message of a stream goes from its exporter to who imports it, a request the other way.
    here = {"a": GIVES[what], "b": TAKES[what] % "A"}
    there = {"a": TAKES[what] % "B", "b": GIVES[what]}
    if what == "service":
        here, there = there, here
    hub, leaf = HUB.format(port=port, cluster=cluster, **there), LEAF.format(port=port, **here)
    with configured(kinds[0], hub) as one, configured(kinds[1], leaf) as two:
        wires = [come(member, user, b"SUB x 1\r\nSUB probe 2\r\n") for member in (one, two) for user in ("a", "b")]
        publishers = [come(one, "a"), come(one, "b")]

        def joined() -> bool:
            for publisher in publishers:
                publisher.send(b"PUB probe 0\r\n\r\n")
                publisher.barrier()
            return all(heard(wire)[b"MSG probe 2 0"] > 0 for wire in wires[2:])

        wait_until(joined, "both leaf nodes are there")
        publishers[0].send(b"PUB x 4\r\nonce\r\nPUB probe 3\r\nend\r\n")
        wait_until(lambda: heard(wires[2])[b"end"] > 0, "what was published has come")
        counts = [heard(wire)[b"once"] for wire in wires]
        # What goes round has passed here some hundred times by now, and does so with each look.
        for _ in range(20):
            counts = [heard(wire)[b"once"] for wire in wires]
        assert max(counts) <= 2 and counts[2] == 1, counts
        for wire in (*wires, *publishers):
            wire.close()
