"""Streams that an account imports from another, in a cluster: a message crosses a route once, in the account that
exports it, and each server imports it for its own clients. Ours as the real ones."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, OURS_3, Member, configured, mixtures
from tests.nats.leaf_wire import LeafWire
from tests.nats.route_wire import CONNECT, INFO, RouteWire
from tests.nats.wire import Wire
from tests.servers import free_port, wait_until

CONF = """
listen: "127.0.0.1:$PORT"
cluster {{ name: xyz, listen: "127.0.0.1:$ROUTE_PORT", routes: [{routes}] }}
accounts {{
  A {{ users: [{{user: a, password: a}}], exports: [{{stream: "s.>"}}, {{stream: "t.*.*"}}] }}
  B {{ users: [{{user: b, password: b}}], imports: [{imports}] }}
  C {{ users: [{{user: c, password: c}}], imports: [{{stream: {{account: A, subject: "s.>"}}}}] }}
}}
{more}
"""
PREFIXED = '{stream: {account: A, subject: "s.>"}, prefix: "p"}'
TURNED = '{stream: {account: A, subject: "t.*.*"}, to: "x.$2.y.$1"}'
COUNT = 60


def conf(routes: str = "", imports: str = f"{PREFIXED}, {TURNED}", more: str = "") -> str:
    return CONF.format(routes=routes, imports=imports, more=more)


def come(member: Member, user: str, said: bytes = b"") -> Wire:
    wire = Wire(member.port)
    wire.send(b'CONNECT {"verbose":false,"user":"%s","pass":"%s"}\r\n' % (user.encode(), user.encode()) + said)
    wire.barrier()
    return wire


@contextlib.contextmanager
def both(kinds: Sequence[str]) -> Iterator[tuple[Member, Member]]:
    with configured(kinds[0], conf()) as one, configured(kinds[1], conf(f'"{one.route_url}"')) as two:
        yield one, two


def heard(wire: Wire) -> Counter[bytes]:
    wire.barrier()
    return Counter(wire.heard.data.split(b"\r\n"))


BOTH = mixtures(
    (NEW_REAL, NEW_REAL), (OURS, NEW_REAL), (NEW_REAL, OURS), (OURS, OURS), (OURS_3, NEW_REAL), (OLD_REAL, OURS_3),
    (OURS, OLD_REAL),
)  # fmt: skip


@pytest.mark.parametrize("kinds", BOTH)
def test_a_message_comes_once_wherever_it_is_imported(kinds: Sequence[str]) -> None:
    """And once to each group, whose members are in several accounts and at both servers."""
    with both(kinds) as (first, second):
        plain = [
            come(member, user, b"SUB %s 1\r\n" % subject)
            for member in (first, second)
            for user, subject in (("a", b"s.x"), ("b", b"p.s.*"), ("b", b">"), ("c", b"s.x"), ("c", b"*.>"))
        ]
        members = [
            come(member, user, b"SUB %s q 1\r\n" % subject)
            for member in (first, second)
            for user, subject in (("a", b"s.>"), ("b", b"p.s.x"), ("b", b"p.>"), ("c", b"s.*"))
        ]
        for publisher in (come(member, "a") for member in (first, second)):

            def is_ready(publisher: Wire = publisher) -> bool:
                publisher.send(b"PUB s.x 5\r\nready\r\n")
                publisher.barrier()
                return all(heard(wire)[b"ready"] > 0 for wire in plain)

            wait_until(is_ready, "all have heard of each other")
            for wire in (*plain, *members):
                wire.heard.data, wire.asked = b"", 0
            publisher.send(b"".join(b"PUB s.x 4\r\nn%03d\r\n" % n for n in range(COUNT)) + b"PUB s.x 4\r\nlast\r\n")
            publisher.barrier()
            wait_until(lambda: all(heard(wire)[b"last"] > 0 for wire in plain), "the last one has come")
            wait_until(lambda: sum(heard(wire)[b"last"] for wire in members) == 1, "also to the group")
            sent = [b"n%03d" % n for n in range(COUNT)]
            for wire in plain:
                assert [heard(wire)[one] for one in sent] == [1] * COUNT
            shares = [sum(heard(wire)[one] for one in sent) for wire in members]
            assert [sum(heard(wire)[one] for wire in members) for one in sent] == [1] * COUNT, shares
            # Each of 8 has none of 60 once in 3,000 times.
            assert sum(share > 0 for share in shares) >= 6, shares
        for wire in (*plain, *members):
            wire.close()


KINDS = [kind for (kind,) in [(OURS,), (OURS_3,), (NEW_REAL,)]]
ONE = [pytest.param(kind, marks=mixtures((kind,))[0].marks, id=kind) for kind in KINDS]


def told(peer: RouteWire, wire: Wire, account: bytes = b"A") -> list[bytes]:
    """What the server says to another of interest in an account, until it has done what a client said."""
    wire.barrier()
    return sorted(one for one in peer.barrier() if one[:4] in (b"RS+ ", b"RS- ") and one.split()[1] == account)


@pytest.mark.parametrize("kind", ONE)
def test_servers_are_told_what_importing_accounts_want_and_no_more(kind: str) -> None:
    with configured(kind, conf()) as member:
        wire, peer = come(member, "b"), RouteWire.joined(member.route_port)
        steps = [
            (b"SUB p.s.x 1\r\n", [b"RS+ A s.x"]),
            (b"SUB p.s.x 2\r\n", []),
            (b"SUB other 3\r\nSUB s.x 4\r\nSUB p.s 5\r\nSUB x.1.z.2 6\r\n", []),
            (b"SUB x.1.y.* 7\r\n", [b"RS+ A t.*.1"]),
            (b"SUB p.*.z 9\r\nUNSUB 9\r\n", [b"RS+ A s.z", b"RS- A s.z"]),
            (b"SUB > q 8\r\n", [b"RS+ A s.> q 1", b"RS+ A t.*.* q 1"]),
            (b"UNSUB 1\r\n", []),
            (b"UNSUB 2\r\n", [b"RS- A s.x"]),
            (b"UNSUB 8\r\n", [b"RS- A s.> q", b"RS- A t.*.* q"]),
        ]
        found = []
        for said, _ in steps:
            wire.send(said)
            found.append((said, told(peer, wire)))
        assert found == steps
        later = RouteWire(member.route_port)
        later.join("77777")
        assert [one for one in later.barrier() if one.startswith(b"RS+ A ")] == [b"RS+ A t.*.1"]
        wire.close()
        assert told(peer, come(member, "a")) == [b"RS- A t.*.1"]
        for one in (peer, later):
            one.close()


@pytest.mark.parametrize("kind", ONE)
def test_over_a_route_a_stream_is_a_message_of_its_own_account(kind: str) -> None:
    """Which is imported where it arrives; a server is never sent it as one of the importing account."""
    with configured(kind, conf()) as member:
        wire, peer = come(member, "b", b"SUB p.s.x 1\r\nSUB p.s.x q 2\r\n"), RouteWire.joined(member.route_port)
        peer.send(b"RMSG A s.x r 3\r\none\r\nRMSG A s.x | q 3\r\ntwo\r\nRMSG A s.y 5\r\nthree\r\n")
        peer.barrier()
        expected = b"MSG p.s.x 1 r 3\r\none\r\nMSG p.s.x 1 3\r\ntwo\r\nMSG p.s.x 2 3\r\ntwo\r\n"
        wait_until(lambda: wire.barrier() is not None or wire.heard.data.count(b"two") == 2, "all has come")
        assert sorted(wire.heard.data.replace(b"PONG\r\n", b"").split(b"MSG")) == sorted(expected.split(b"MSG"))
        peer.send(b"RS+ B p.s.x\r\nRS+ B p.s.x q 9\r\nRS+ A s.>\r\n")
        publisher = come(member, "a")
        sent: list[bytes] = []

        def has_come() -> bool:
            publisher.send(b"PUB s.x 4\r\nfour\r\n")
            publisher.barrier()
            sent.extend(one for one in peer.barrier() if one.startswith(b"RMSG"))
            return len(sent) > 2

        wait_until(has_come, "it is known what the other server wants")
        assert set(sent) == {b"RMSG A s.x 4"}
        for one in (wire, publisher, peer):
            one.close()


@pytest.mark.parametrize("kind", [OURS, OURS_3])
def test_imports_that_come_and_go_by_a_reload_are_told(kind: str) -> None:
    """A nats-server withdraws nothing then."""
    with configured(kind, conf()) as member:
        wire = come(member, "b", b"SUB p.s.x 1\r\nSUB x.> 2\r\nSUB z.> q 3\r\n")
        peer = RouteWire.joined(member.route_port)
        assert sorted(one for one in peer.told if one.startswith(b"RS+ A ")) == [b"RS+ A s.x", b"RS+ A t.*.*"]
        lines: list[bytes] = []
        for imports, expected in (
            (f'{TURNED}, {{stream: {{account: A, subject: "s.>"}}, prefix: "z"}}', {b"RS- A s.x", b"RS+ A s.> q 1"}),
            (PREFIXED, {b"RS+ A s.x", b"RS- A t.*.*", b"RS- A s.> q"}),
        ):
            lines.clear()
            text = conf(imports=imports).replace("$ROUTE_PORT", str(member.route_port))
            member.conf_path.write_text(text.replace("$PORT", str(member.port)))
            assert member.process is not None
            member.process.send_signal(signal.SIGHUP)

            def has_come(expected: set[bytes] = expected) -> bool:
                lines.extend(told(peer, wire))
                return expected <= set(lines)

            wait_until(has_come, f"{expected} is told")
        wire.close()
        peer.close()


@pytest.mark.parametrize(("knows", "wanted"), [({}, b"RS+ A s.x"), ({"ln": True}, b"LS+ _ A s.x")], ids=["old", "new"])
@pytest.mark.parametrize("kind", ONE)
def test_a_leaf_node_of_an_importing_account_gets_a_stream(kind: str, knows: dict[str, bool], wanted: bytes) -> None:
    port = free_port()
    leaves = f'leafnodes {{ listen: "127.0.0.1:{port}", authorization {{ user: b, password: b, account: B }} }}'
    with configured(kind, conf(more=leaves)) as member:
        peer = RouteWire.joined(member.route_port, {**INFO, **knows}, {**CONNECT, **knows})
        leaf, wire = LeafWire.joining(port, user="b"), come(member, "a")
        leaf.wants(b"LS+ p.s.x\r\n")
        leaf.barrier()
        heard = [*peer.barrier(), *peer.barrier()]
        assert [one for one in heard if one.endswith(b" s.x")] == [wanted]
        peer.send(b"RMSG A s.x 3\r\none\r\n")
        peer.barrier()
        wait_until(lambda: b"LMSG p.s.x 3" in leaf.barrier(), "it has come")
        leaf.close()
        peer.close()
        wire.close()


LEAVES = mixtures((NEW_REAL, NEW_REAL), (OURS, NEW_REAL), (NEW_REAL, OURS_3), (OURS_3, OURS))


@pytest.mark.parametrize("kinds", LEAVES)
def test_a_group_of_an_importing_account_gets_what_comes_over_a_leaf_connection(kinds: Sequence[str]) -> None:
    """On either side, whichever of the two has connected to the other; members of one group are on one side only."""
    port = free_port()
    hub = f'leafnodes {{ listen: "127.0.0.1:{port}", authorization {{ user: a, password: a, account: A }} }}'
    leaf = f'leafnodes {{ remotes: [{{url: "nats-leaf://a:a@127.0.0.1:{port}", account: A}}] }}'
    elsewhere = conf(more=leaf).replace("name: xyz", "name: elsewhere")
    with configured(kinds[0], conf(more=hub)) as one, configured(kinds[1], elsewhere) as two:
        for here, there in ((one, two), (two, one)):
            members = [come(here, "b", b"SUB p.s.* %s 1\r\n" % queue) for queue in (b"q", b"q", b"r")]
            alone, publisher = come(here, "a", b"SUB s.* q 1\r\nSUB probe 2\r\n"), come(there, "a")

            def joined(alone: Wire = alone, publisher: Wire = publisher) -> bool:
                publisher.send(b"PUB probe 0\r\n\r\n")
                publisher.barrier()
                return heard(alone)[b"MSG probe 2 0"] > 0

            wait_until(joined, "what is published there is heard here")
            alone.send(b"UNSUB 1\r\n")
            alone.barrier()
            for n in range(COUNT):
                publisher.send(b"PUB s.x 2\r\n%02d\r\n" % n)
            publisher.send(b"PUB probe 3\r\nend\r\n")
            wait_until(lambda alone=alone: heard(alone)[b"end"] > 0, "all have come")
            counts = [heard(member)[b"MSG p.s.x 1 2"] for member in members]
            assert (counts[0] + counts[1], counts[2]) == (COUNT, COUNT)
            for wire in (*members, alone, publisher):
                wire.close()
