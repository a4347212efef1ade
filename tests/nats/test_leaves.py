"""Hubs and leaf nodes, real ones and ours: what is published on one side reaches the other, once, in its order."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, OURS_3, Member, bodies, configured, mixtures, settled
from tests.nats.leaf_wire import LeafWire
from tests.nats.route_wire import line
from tests.nats.wire import Wire
from tests.servers import free_port, wait_until

HUB = """
listen: "127.0.0.1:$PORT"
server_name: hub
http: "127.0.0.1:%(http)s"
leafnodes {
  listen: "127.0.0.1:$ROUTE_PORT"
  authorization { users = [ {user: a, password: a, account: A}, {user: b, password: b, account: A} ] }
}
accounts { A { users = [ {user: ca, password: ca} ] }, B { users = [ {user: cb, password: cb} ] } }
"""
LEAF = """
listen: "127.0.0.1:$PORT"
server_name: %(name)s
leafnodes { remotes [ { url: "nats-leaf://%(user)s:%(user)s@127.0.0.1:%(port)s" } ] }
"""
# A member of a cluster with leaf nodes, and one without.
MEMBER = """
listen: "127.0.0.1:$PORT"
server_name: %(name)s
leafnodes { listen: "127.0.0.1:%(leaf)s", no_advertise: true }
cluster { name: xyz, listen: "127.0.0.1:$ROUTE_PORT", routes: [%(routes)s] }
"""


@contextlib.contextmanager
def leaf_of(port: int, kind: str, name: str, user: str = "a") -> Iterator[Member]:
    with configured(kind, LEAF % {"name": name, "user": user, "port": port}) as member:
        yield member


def client(member: Member, said: bytes = b"", user: str = "") -> Wire:
    wire = Wire(member.port)
    who = {"user": user, "pass": user} if user else {}
    wire.send(line("CONNECT", {"verbose": False, "headers": True, "no_responders": True, **who}) + said)
    wire.barrier()
    return wire


def joined(*clients: Wire) -> None:
    """Until what each of them publishes is heard by all the others: with 3 acceptors, by whichever it is on."""
    for wire in clients:
        wire.send(b"SUB probe probe\r\n")
        wire.barrier()

    def all_hear() -> bool:
        for number, wire in enumerate(clients):
            wire.send(b"PUB probe 1\r\n%d\r\n" % number)
        for wire in clients:
            wire.barrier()
        wanted = {b"%d" % number for number in range(len(clients))}
        return all(wanted <= set(bodies(wire)) for wire in clients)

    wait_until(all_hear, "all hear each other")
    for wire in clients:
        wire.send(b"UNSUB probe\r\n")
        wire.barrier()
        wire.heard.data = b""
        wire.asked = 0


MIXTURES = mixtures((OURS_3, NEW_REAL, OLD_REAL), (NEW_REAL, OURS_3, OURS))
MORE = mixtures((OURS, NEW_REAL, OURS_3), (OLD_REAL, OURS, NEW_REAL), long=True)


@pytest.fixture(params=[*MIXTURES, *MORE], scope="module")
def three(request: pytest.FixtureRequest) -> Iterator[list[Member]]:
    """A hub, and two leaf nodes."""
    kind, *leaves = request.param
    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(configured(kind, HUB % {"http": free_port()}))
        found = [
            stack.enter_context(leaf_of(hub.route_port, each, f"leaf{number}", "ab"[number]))
            for number, each in enumerate(leaves)
        ]
        yield [hub, *found]


def clients_of(three: list[Member], said: bytes = b"") -> list[Wire]:
    hub, *leaves = three
    wires = [client(hub, said, "ca"), *(client(leaf, said) for leaf in leaves)]
    joined(*wires)
    return wires


MESSAGES = 50
HEADERS = b"NATS/1.0\r\nn: 1\r\n\r\n"


def publish(wire: Wire, subject: bytes, number: int) -> list[bytes]:
    said = [b"%d-%d" % (number, n) for n in range(MESSAGES)]
    size = len(HEADERS)
    wire.send(
        b"".join(
            b"HPUB %s %d %d\r\n%s%s\r\n" % (subject, size, size + len(body), HEADERS, body)
            if n % 2
            else b"PUB %s %d\r\n%s\r\n" % (subject, len(body), body)
            for n, body in enumerate(said)
        )
    )
    wire.barrier()
    return said


def test_everybody_who_listens_has_all_once_and_in_order(three: list[Member]) -> None:
    wires = clients_of(three, b"SUB news.* 1\r\n")
    said = [publish(wire, b"news.now", number) for number, wire in enumerate(wires)]
    settled(three, wires, 3 * 3 * MESSAGES)
    for wire in wires:
        assert Counter(bodies(wire)) == Counter(body for each in said for body in each)
        for number, each in enumerate(said):
            assert [body for body in bodies(wire) if body.startswith(b"%d-" % number)] == each
        wire.close()


def test_of_a_group_one_has_it_and_the_nearest_if_there_is_one(three: list[Member]) -> None:
    wires = clients_of(three, b"SUB work.a q 1\r\nSUB work.* q 2\r\n")
    said = [publish(wire, b"work.a", number) for number, wire in enumerate(wires)]
    settled(three, wires, 3 * MESSAGES)
    # Those of one's own cluster first: so everybody has what it published.
    assert [Counter(bodies(wire)) for wire in wires] == [Counter(each) for each in said]
    hub, *leaves = wires
    for wire in wires:
        wire.heard.data, wire.asked = b"", 0
    hub.send(b"UNSUB 1\r\nUNSUB 2\r\n")
    hub.barrier()
    said = [publish(hub, b"work.a", 3)]
    settled(three, leaves, MESSAGES)
    assert Counter(body for wire in leaves for body in bodies(wire)) == Counter(said[0])
    assert bodies(hub) == []
    for wire in wires:
        wire.close()


def test_requests_are_answered_from_any_side_and_nobody_there_is_said_at_once(three: list[Member]) -> None:
    wires = clients_of(three)
    for asked in wires:
        asked.send(b"SUB help svc 9\r\n")
        asked.barrier()
        for number, asker in enumerate(wires):
            if asker is not asked:
                wait_until(lambda r=asker, d=asked, n=number: is_answered(r, d, n), "it is answered")
        asked.send(b"UNSUB 9\r\n")
        asked.barrier()
        for number, asker in enumerate(wires):
            wait_until(lambda r=asker, n=number: is_refused(r, n), "nobody is there")
    for wire in wires:
        wire.close()


def is_answered(asker: Wire, asked: Wire, number: int) -> bool:
    asker.heard.data, asker.asked = b"", 0
    asked.heard.data, asked.asked = b"", 0
    asker.send(b"SUB _I.%d.* 8\r\nPUB help _I.%d.x 1\r\n?\r\n" % (number, number))
    asker.barrier()
    asked.barrier()
    if b"_I.%d.x 1\r\n?" % number not in asked.heard.data:
        return False
    asked.send(b"PUB _I.%d.x 1\r\n!\r\n" % number)
    asked.barrier()
    wait_until(lambda: b"\r\n!\r\n" in asker.heard.data or asker.barrier(), "the answer comes")
    asker.send(b"UNSUB 8\r\n")
    asker.barrier()
    return True


def is_refused(asker: Wire, number: int) -> bool:
    asker.heard.data, asker.asked = b"", 0
    asker.send(b"SUB _N.%d.* 7\r\nPUB help _N.%d.x 1\r\n?\r\n" % (number, number))
    asker.barrier()
    asker.send(b"UNSUB 7\r\n")
    asker.barrier()
    return b"NATS/1.0 503" in asker.heard.data


def test_accounts_stay_apart(three: list[Member]) -> None:
    wires = clients_of(three, b"SUB apart 1\r\n")
    foreign = client(three[0], b"SUB apart 1\r\n", "cb")
    said = publish(wires[1], b"apart", 1)
    publish(foreign, b"apart", 2)
    settled(three, wires, 3 * MESSAGES)
    assert all(bodies(wire) == said for wire in wires)
    foreign.barrier()
    assert len(bodies(foreign)) == MESSAGES
    for wire in (*wires, foreign):
        wire.close()


def ask(port: int, path: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", path)
        found: dict[str, Any] = json.loads(connection.getresponse().read())
        return found


def test_a_leaf_node_is_shown_with_what_it_did() -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        hub = stack.enter_context(configured(OURS, HUB % {"http": port}))
        assert ask(port, "/leafz")["leafnodes"] == 0
        wire = LeafWire.joining(hub.route_port, "a", name="seen", cluster="seen")
        listener = client(hub, b"SUB x 1\r\n", "ca")
        wire.wants(b"LS+ y\r\nLS+ z q 2\r\n")
        wire.send(b"LMSG x 2\r\nhi\r\n")
        wire.barrier()
        listener.send(b"PUB y 3\r\nxyz\r\n")
        wire.hears(b"xyz")
        found = ask(port, "/leafz?subs=1")
        (row,) = found["leafs"]
        assert found["leafnodes"] == 1 and row["name"] == "seen" and row["account"] == "A" and not row["is_spoke"]
        assert [row[f"{way}_{what}"] for way in ("in", "out") for what in ("msgs", "bytes")] == [1, 2, 1, 3]
        assert row["subscriptions"] == 2 and sorted(row["subscriptions_list"]) == ["y", "z"]
        assert ask(port, "/leafz?acc=B")["leafs"] == []
        varz = ask(port, "/varz")
        assert varz["leafnodes"] == 1 and varz["leaf"]["port"] == hub.route_port
        assert ask(port, "/accountz?acc=A")["account_detail"]["leafnode_connections"] == 1
        (account,) = [one for one in ask(port, "/accstatz")["account_statz"] if one["acc"] == "A"]
        assert (account["conns"], account["leafnodes"], account["total_conns"]) == (1, 1, 2)
        wire.close()
        wait_until(lambda: ask(port, "/varz")["leafnodes"] == 0, "it is gone")
        listener.close()


@pytest.mark.parametrize("kinds", mixtures((OURS,), (NEW_REAL,)))
def test_what_a_leaf_node_may_is_told_it_and_kept_to(kinds: tuple[str]) -> None:
    limits = 'permissions { publish: {allow: ["p.>", "_I.>"], deny: p.no}, subscribe: {allow: "s.>", deny: s.no} }'
    conf = """
    listen: "127.0.0.1:$PORT"
    leafnodes { listen: "127.0.0.1:$ROUTE_PORT" }
    authorization { users = [ {user: a, password: a, %s}, {user: c, password: c} ] }
    """
    with configured(kinds[0], conf % limits) as hub:
        talker = client(hub, b"SUB p.> 1\r\nSUB q 1\r\nSUB p.no 2\r\nSUB p.yes 3\r\n", "c")
        wire = LeafWire.joining(hub.route_port)
        assert wire.connected["import"] == {"allow": ["s.>"], "deny": ["s.no"]}
        assert wire.connected["export"] == {"allow": ["p.>", "_I.>"], "deny": ["p.no"]}
        assert sorted(wire.told) == [b"LS+ p.>", b"LS+ p.yes"]
        wire.wants(b"LS+ s.>\r\n")
        talker.send(b"PUB s.no 1\r\n0\r\nPUB s.a 1\r\n1\r\n")
        assert wire.hears(b"1") == [b"LMSG s.a 1", b"1"]
        for said, what in ((b"LS+ s.no\r\n", b"Subscription to"), (b"LMSG p.no 1\r\nx\r\n", b"Publish to")):
            other = LeafWire.joining(hub.route_port)
            other.send(said)
            subject = said.split()[1]
            assert other.rest().endswith(b"-ERR 'Permissions Violation for %s \"%s\"'\r\n" % (what, subject))
        talker.close()
        wire.close()


@pytest.mark.parametrize(
    "kinds", [*mixtures((OURS_3, NEW_REAL), (NEW_REAL, OURS_3)), *mixtures((OURS, NEW_REAL), long=True)]
)
def test_members_of_a_cluster_hear_of_leaf_nodes_and_leaf_nodes_of_them(kinds: tuple[str, str]) -> None:
    with contextlib.ExitStack() as stack:
        port = free_port()
        conf = MEMBER % {"name": "one", "leaf": port, "routes": ""}
        one = stack.enter_context(configured(kinds[0], conf))
        conf = MEMBER % {"name": "two", "leaf": free_port(), "routes": f'"{one.route_url}"'}
        two = stack.enter_context(configured(kinds[1], conf))
        leaf = stack.enter_context(leaf_of(port, NEW_REAL, "leafy"))
        wires = [client(member, b"SUB all 1\r\nSUB few q 2\r\n") for member in (one, two, leaf)]
        joined(*wires)
        said = [publish(wire, b"all", number) for number, wire in enumerate(wires)]
        settled([one, two, leaf], wires, 3 * 3 * MESSAGES)
        for wire in wires:
            assert Counter(bodies(wire)) == Counter(body for each in said for body in each)
            wire.heard.data, wire.asked = b"", 0
        said = [publish(wire, b"few", number) for number, wire in enumerate(wires)]
        settled([one, two, leaf], wires, 3 * MESSAGES)
        heard = Counter(body for wire in wires for body in bodies(wire))
        assert heard == Counter(body for each in said for body in each)
        for wire in wires:
            wire.close()


@pytest.mark.parametrize("kinds", mixtures((OURS, NEW_REAL), (NEW_REAL, OURS)))
def test_leaf_nodes_are_told_where_else_they_can_go(kinds: tuple[str, str]) -> None:
    with contextlib.ExitStack() as stack:
        ports = free_port(), free_port()
        text = MEMBER.replace("no_advertise: true", "no_advertise: false")
        conf = text % {"name": "one", "leaf": ports[0], "routes": ""}
        one = stack.enter_context(configured(kinds[0], conf))
        wire = LeafWire.joining(ports[0], "")
        assert wire.connected["leafnode_urls"] == [f"127.0.0.1:{ports[0]}"]
        conf = text % {"name": "two", "leaf": ports[1], "routes": f'"{one.route_url}"'}
        stack.enter_context(configured(kinds[1], conf))
        told: list[bytes] = []
        wanted = {f"127.0.0.1:{port}" for port in ports}

        def are_told() -> bool:
            told.extend(one for one in wire.barrier() if one.startswith(b"INFO "))
            return any(set(json.loads(one[5:])["leafnode_urls"]) == wanted for one in told)

        wait_until(are_told, "both are told")
        wire.close()


def test_who_may_not_come_any_more_is_sent_away_and_who_may_now_comes() -> None:
    with configured(OURS_3, HUB % {"http": free_port()}) as hub:
        gone, stays = LeafWire.joining(hub.route_port, "a"), LeafWire.joining(hub.route_port, "b")
        text = hub.conf_path.read_text()
        one, other = "{user: a, password: a, account: A}", "{user: n, password: n, account: B}"
        hub.conf_path.write_text(text.replace(one, other))
        assert hub.process is not None
        hub.process.send_signal(signal.SIGHUP)
        assert gone.rest().endswith(b"-ERR 'Authorization Violation'\r\n")
        new = LeafWire.joining(hub.route_port, "n")
        assert new.connected["remote_account"] == "B"
        assert stays.barrier() == [] and not stays.closed
        for wire in (new, stays):
            wire.close()


OF_HUB = """
listen: "127.0.0.1:$PORT"
accounts { A { users [ {user: a, password: a} ] }, SYS { users [ {user: s, password: s} ] } }
system_account: SYS
leafnodes { listen: "127.0.0.1:$ROUTE_PORT" }
"""
OF_LEAF = """
listen: "127.0.0.1:$PORT"
server_name: leafy
accounts { B {}, SYS { users [ {user: s, password: s} ] } }
system_account: SYS
leafnodes { reconnect: 1, remotes [ { url: "nats-leaf://a:a@127.0.0.1:%s", account: B } ] }
"""


def events_of(wire: Wire, account: str) -> list[tuple[str, dict[str, Any]]]:
    """What the system account was told of connections of that account."""
    wire.barrier()
    found = []
    for said in re.finditer(rb"MSG \$SYS\.ACCOUNT\.(\S+) 1 +\d+\r\n(.*?)\r\n", wire.heard.data):
        body = json.loads(said[2])
        if not (subject := said[1].decode()).startswith(f"{account}."):
            continue
        client = {key: body["client"][key] for key in body["client"] if key in SHOWN} if "client" in body else {}
        found.append((subject, {"reason": body["reason"], **client} if "reason" in body else client))
    return [one for one in found if one[1]]


# Ours is told of those as well that it does not keep.
KEEPS_NONE = pytest.param((OURS, "--set", "nats.max-closed-clients=0"), id="ours-keeps-none")
TELLING = [*mixtures((OURS,), (NEW_REAL,)), KEEPS_NONE]
SHOWN = ("acc", "user", "name", "name_tag", "kind", "client_type", "host")


IT = {"host": "127.0.0.1", "kind": "Leafnode"}


def watched(member: Member) -> Wire:
    wire = Wire(member.port)
    wire.send(b'CONNECT {"user":"s","pass":"s","verbose":false}\r\nSUB $SYS.ACCOUNT.> 1\r\n')
    wire.barrier()
    return wire


@pytest.mark.parametrize("kinds", TELLING)
def test_the_system_account_is_told_of_leaf_nodes(kinds: tuple[str, ...]) -> None:
    with configured(kinds[0], OF_HUB, kinds[1:]) as hub:
        system = watched(hub)
        for password in (b"wrong", b"a"):
            raw = Wire(hub.route_port)
            raw.send(b'CONNECT {"user":"a","pass":"%b","name":"raw","version":"2.15.2"}\r\n' % password)
            raw.barrier()
            raw.close()
        wait_until(lambda: len(events_of(system, "A")) >= 2, "it has come and gone")
        it = {**IT, "acc": "A", "name_tag": "A", "user": "a", "name": "raw"}
        (came, first), (went, last) = events_of(system, "A")
        # Whether its end is an error depends on what it has not read.
        assert last.pop("reason") in ("Client Closed", "Read Error", "Write Error")
        assert (came, first, went, last) == ("A.CONNECT", it, "A.DISCONNECT", it)


@pytest.mark.parametrize("kinds", TELLING)
def test_the_system_account_is_told_of_hubs(kinds: tuple[str, ...]) -> None:
    it = {**IT, "acc": "B", "name_tag": "B"}
    gone, back = ("B.DISCONNECT", {**it, "reason": "Client Closed"}), ("B.CONNECT", it)
    with configured(kinds[0], OF_HUB) as hub:
        there = watched(hub)
        with configured(kinds[0], OF_LEAF % hub.route_port, kinds[1:]) as leaf:
            wait_until(lambda: events_of(there, "A"), "it is connected to the hub")
            system = watched(leaf)
            hub.stop()
            wait_until(lambda: gone in events_of(system, "B"), "the hub has gone")
            hub.start()
            wait_until(lambda: events_of(system, "B")[-2:] == [gone, back], "it is connected to the hub again")
