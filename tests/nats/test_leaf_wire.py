"""What is said to a leaf node, to the byte: by ours as by a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, configured, mixtures
from tests.nats.leaf_wire import LeafWire, besides
from tests.nats.route_wire import RouteWire, line
from tests.nats.wire import Wire
from tests.servers import wait_until

CONF = """
listen: "127.0.0.1:$PORT"
server_name: hub
ping_interval: "30s"
leafnodes {
  listen: "127.0.0.1:$ROUTE_PORT"
  compression: off
  authorization {
    timeout: 60
    users = [ {user: a, password: a, account: A}, {user: b, password: b, account: B}, {user: g, password: g} ]
  }
}
accounts {
  A { users = [ {user: ca, password: ca} ], exports = [ {service: "help.*"}, {stream: "news.>"} ]
      mappings { "old.*": "new.$1" } }
  B { users = [ {user: cb, password: cb} ]
      imports = [ {service: {account: A, subject: "help.me"}}, {stream: {account: A, subject: "news.>"}, prefix: a} ] }
}
"""
HEADERS = b"NATS/1.0\r\n\r\n"
UNKNOWN = b"-ERR 'Unknown Protocol Operation'"
KINDS = [parameter for kind in (OURS, OURS_3, NEW_REAL) for parameter in mixtures((kind,))]

# What is said to a line, and whether the connection ends then.
LINES: dict[bytes, tuple[bytes, bool]] = {
    b"LS+ a\r\n": (b"", False),
    b"LS+ a q 2\r\n": (b"", False),
    b"LS+ a q 0\r\n": (b"", False),
    b"LS+ a q x\r\n": (b"", False),
    b"LS+ a q\r\n": (b"", True),
    b"LS+ a q 1 2\r\n": (b"", True),
    b"LS+ a..b\r\n": (b"-ERR 'Invalid Subscription'", False),
    b"LS- a\r\n": (b"", False),
    b"LS- a q\r\n": (b"", False),
    b"LMSG a 3\r\nxyz\r\n": (b"", False),
    b"LMSG a r 3\r\nxyz\r\n": (b"", False),
    b"LMSG a + r q 3\r\nxyz\r\n": (b"", False),
    b"LMSG a | q 3\r\nxyz\r\n": (b"", False),
    b"LMSG a 3\r\nxyzz\r\n": (UNKNOWN, True),
    b"LMSG a\r\n": (b"", True),
    b"LMSG a x r 3\r\nxyz\r\n": (b"", True),
    b"LMSG a x\r\n": (b"", True),
    b"HMSG a 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n": (b"", False),
    b"HMSG a 3\r\nxyz\r\n": (b"", True),
    b"HMSG a 16 15\r\nNATS/1.0\r\n\r\nxyz\r\n": (b"", True),
    b"RS+ a\r\n": (b"", False),
    b"FOO\r\n": (UNKNOWN, True),
    b"+OK\r\n": (b"", False),
    b"PONG\r\n": (b"", False),
    b"-ERR 'x'\r\n": (b"", False),
    b"-ERR 'Loop detected for leafnode account=\"X\"'\r\n": (b"", True),
}  # fmt: skip
# What is said to who says that in CONNECT, before the connection ends.
REFUSED: dict[str, tuple[dict[str, object], bytes]] = {
    "nobody": ({"user": "nobody", "pass": "x"}, b"-ERR 'Authorization Violation'"),
    "a wrong password": ({"user": "a", "pass": "x"}, b"-ERR 'Authorization Violation'"),
    "a client": ({"lang": "python"}, b"-ERR 'attempted to connect to leaf node port'"),
    "a cluster with blanks": ({"cluster": "one two"}, b"-ERR 'cluster name cannot contain spaces'"),
    "a reserved cluster": ({"cluster": "_"}, b"-ERR 'cluster name is reserved'"),
    "a gateway": ({"gateway": "g"}, b"-ERR 'Rejecting connection from gateway \"g\" on the leafnode port'"),
}


@pytest.fixture(params=KINDS, scope="module")
def hub(request: pytest.FixtureRequest) -> Iterator[Member]:
    with configured(request.param[0], CONF) as member:
        yield member


def client(hub: Member, said: bytes = b"", user: str = "ca") -> Wire:
    wire = Wire(hub.port)
    asked = line("CONNECT", {"verbose": False, "headers": True, "no_responders": True, "user": user, "pass": user})
    wire.send(asked + said)
    wire.barrier()
    return wire


def test_a_leaf_node_is_greeted_and_told_of_its_account(hub: Member) -> None:
    wire = LeafWire.joining(hub.route_port, "b")
    info = wire.info
    assert info["info_on_connect"] and info["auth_required"] and info["nonce"] and info["client_id"] > 0
    assert info["leafnode_urls"] == [f"127.0.0.1:{hub.route_port}"]
    assert wire.connected["connect_info"] and wire.connected["remote_account"] == "B"
    assert {"nonce"}.isdisjoint(wire.connected) and wire.loop.startswith(b"$LDS.")
    # What is imported is wanted, for who has it to send it.
    assert b"LS+ help.me" in wire.told
    wire.close()


@pytest.mark.parametrize("what", REFUSED)
def test_who_may_not_come_is_told_so(hub: Member, what: str) -> None:
    wire = LeafWire(hub.route_port)
    said, answer = REFUSED[what]
    wire.connect(**{"user": "a", "pass": "a", **said})
    assert wire.rest() == answer + b"\r\n"
    wire.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_leaf_node_may_have_to_be_of_some_version(kind: tuple[str, ...]) -> None:
    conf = CONF.replace("compression: off", "compression: off\n  min_version: 2.11.3")
    with configured(kind[0], conf) as hub:
        for version in ("2.11.3", "2.11.3-beta.1", "2.12.0", "3.0.0"):
            LeafWire.joining(hub.route_port, version=version).close()
        for version in ("2.11.2", "2.9.25", "2.11", "v2.12.0", "", None):
            wire = LeafWire(hub.route_port)
            wire.connect(**{"user": "a", "pass": "a", "version": version})
            said = wire.rest()
            assert said.startswith(b"INFO ") and b'"connect_info":true' in said
            error = b"-ERR 'connection rejected since minimum version required is \"2.11.3\"'\r\n"
            assert said.split(b"\n", 1)[1] == error
            wire.close()


def test_who_does_not_begin_with_connect_is_refused(hub: Member) -> None:
    wire = LeafWire(hub.route_port)
    wire.send(b"LS+ a\r\n")
    assert wire.rest() == b"-ERR 'Authorization Violation'\r\n"
    wire.close()


def test_lines_are_taken_as_a_real_server_takes_them(hub: Member) -> None:
    for said, (answer, ends) in LINES.items():
        wire = LeafWire.joining(hub.route_port)
        wire.send(said)
        heard = wire.hears_besides()
        assert (b"\r\n".join(heard), wire.closed) == (answer, ends), said
        wire.close()


def test_what_is_wanted_here_is_told_once_and_as_often_as_groups_have_members(hub: Member) -> None:
    wire = LeafWire.joining(hub.route_port)
    one = client(hub, b"SUB t.one 1\r\nSUB t.* g 2\r\n")
    assert wire.hears(b"LS+ t.* g 1").count(b"LS+ t.one") == 1
    other = client(hub, b"SUB t.one 1\r\nSUB t.* g 2\r\n")
    assert b"LS+ t.one" not in wire.hears(b"LS+ t.* g 2")
    late = LeafWire.joining(hub.route_port)
    assert sorted(one for one in late.told if b" t." in one) == [b"LS+ t.* g 2", b"LS+ t.one"]
    one.close()
    assert b"LS- t.one" not in wire.hears(b"LS+ t.* g 1")
    other.close()
    assert b"LS- t.one" in [*wire.hears(b"LS- t.* g"), *wire.barrier(), *wire.barrier()]
    for each in (wire, late):
        each.close()


def test_messages_come_once_with_the_groups_that_are_to_choose(hub: Member) -> None:
    wire = LeafWire.joining(hub.route_port)
    wire.wants(b"LS+ m.a\r\nLS+ m.*\r\nLS+ m.a q 3\r\nLS+ m.* q 1\r\n")
    talker = client(hub)
    wait_until(lambda: is_heard(talker, b"PUB m.a 1\r\np\r\n", wire, b"LMSG m.a | q 1"), "it is wanted there")
    size = b"%d %d" % (len(HEADERS), len(HEADERS) + 2)
    talker.send(b"PUB m.a r 2\r\nhi\r\nPUB m.b 2\r\nho\r\nHPUB m.b x %s\r\n%shu\r\n" % (size, HEADERS))
    talker.barrier()
    heard = wire.hears(b"hu")
    assert [one for one in besides(heard) if one not in (b"p", b"LMSG m.a | q 1")] == [
        b"LMSG m.a + r q 2", b"hi", b"LMSG m.b | q 2", b"ho", b"HMSG m.b + x q " + size, b"NATS/1.0", b"hu",
    ]  # fmt: skip
    wire.close()


def is_heard(talker: Wire, said: bytes, wire: RouteWire, wanted: bytes) -> bool:
    talker.send(said)
    talker.barrier()
    return wanted in wire.barrier()


def test_a_group_with_members_here_leaves_nothing_to_leaf_nodes(hub: Member) -> None:
    wire = LeafWire.joining(hub.route_port)
    wire.wants(b"LS+ g.a q 5\r\n")
    talker = client(hub)
    wait_until(lambda: is_heard(talker, b"PUB g.a 1\r\np\r\n", wire, b"LMSG g.a | q 1"), "it is wanted there")
    member = client(hub, b"SUB g.a q 1\r\n")
    wire.hears(b"LS+ g.a q 1")
    talker.send(b"PUB g.a 1\r\nx\r\n" * 20)
    talker.barrier()
    member.barrier()
    wait_until(lambda: member.heard.data.count(b"MSG g.a 1 1\r\nx\r\n") == 20 or member.barrier(), "all have come")
    assert wire.hears_besides() == []
    wire.close()


def test_what_a_leaf_node_sends_goes_to_clients_and_to_the_groups_it_names(hub: Member) -> None:
    alone, member = client(hub, b"SUB s.a 1\r\n"), client(hub, b"SUB s.a q 2\r\nSUB s.a p 3\r\n")
    wire = LeafWire.joining(hub.route_port)
    wire.send(b"LMSG s.a 2\r\nhi\r\nLMSG s.a + r q 2\r\nho\r\nHMSG s.a | p 12 14\r\n%shu\r\n" % HEADERS)
    wire.barrier()
    hu = b"12 14\r\n%shu\r\n" % HEADERS
    to_all = b"MSG s.a 1 2\r\nhi\r\nMSG s.a 1 r 2\r\nho\r\nHMSG s.a 1 "
    to_member = b"MSG s.a 2 r 2\r\nho\r\nHMSG s.a 3 "
    wait_until(lambda: to_all + hu in alone.heard.data or alone.barrier(), "all has come")
    wait_until(lambda: to_member + hu in member.heard.data or member.barrier(), "what is for its groups has come")
    for each in (alone, member, wire):
        each.close()


def test_leaf_nodes_hear_of_each_other_but_not_those_of_one_cluster(hub: Member) -> None:
    one, same = (LeafWire.joining(hub.route_port, cluster="c1") for _ in range(2))
    other = LeafWire.joining(hub.route_port, cluster="c2")
    one.wants(b"LS+ l.a\r\nLS+ l.a q 2\r\n")
    assert b"LS+ l.a" in other.hears(b"LS+ l.a q 2")
    other.wants(b"LS+ l.a\r\nLS+ l.a q 1\r\nLS+ l.b\r\n")
    # Each is told of all others that there are, but those of its own.
    assert b"LS+ l.b" in one.hears(b"LS+ l.b")
    third = LeafWire.joining(hub.route_port, cluster="c3")
    assert {b"LS+ l.a", b"LS+ l.a q 3", b"LS+ l.b"} <= set(third.told)
    late = LeafWire.joining(hub.route_port, cluster="c1")
    assert {b"LS+ l.a", b"LS+ l.a q 1", b"LS+ l.b"} <= set(late.told)
    assert b"LS+ l.a q 2" not in [*same.barrier(), *late.told]
    same.wants(b"LS+ l.b\r\n")
    one.send(b"LMSG l.a 1\r\nx\r\nLMSG l.b 1\r\ny\r\n")
    one.barrier()
    assert besides(other.hears(b"y"))[-4:] == [b"LMSG l.a 1", b"x", b"LMSG l.b 1", b"y"]
    assert b"y" not in [*one.barrier(), *same.barrier()]
    one.close()
    gone: list[bytes] = []
    wait_until(lambda: gone.extend(other.barrier()) or {b"LS- l.a", b"LS- l.a q"} <= set(gone), "nobody wants it")
    for wire in (same, other, third, late):
        wire.close()


def test_a_loop_is_ended(hub: Member) -> None:
    wire = LeafWire.joining(hub.route_port)
    other = LeafWire.joining(hub.route_port)
    assert other.loop == wire.loop
    wire.send(b"LS+ $LDS.another\r\n")
    other.hears(b"LS+ $LDS.another")
    wire.send(b"LS+ %s\r\n" % wire.loop)
    assert wire.rest().endswith(
        b"-ERR 'Loop detected for leafnode account=\"A\". Delaying attempt to reconnect for 30s'\r\n"
    )
    other.close()


def test_who_comes_again_takes_the_place_of_its_last_connection(hub: Member) -> None:
    again: dict[str, object] = {"name": "twice", "cluster": "twice"}
    first = LeafWire.joining(hub.route_port, **again)
    foreign = LeafWire.joining(hub.route_port, "b", **again)
    old = LeafWire.joining(hub.route_port, **again, remote_account=None)
    second = LeafWire.joining(hub.route_port, **again)
    assert first.rest() == b"-ERR 'Duplicate Remote LeafNode Connection'\r\n"
    for wire in (second, foreign, old):
        assert wire.hears_besides() == [] and not wire.closed
        wire.close()


def test_what_is_mapped_and_imported_is_for_leaf_nodes_too(hub: Member) -> None:
    here, there = client(hub, b"SUB new.x 1\r\nSUB help.* 2\r\nSUB _I.1 3\r\n"), client(hub, b"", "cb")
    a, b = LeafWire.joining(hub.route_port), LeafWire.joining(hub.route_port, "b")
    assert b"LS+ old.*" in a.told
    a.send(b"LMSG old.x 1\r\nm\r\n")
    wait_until(lambda: b"MSG new.x 1 1\r\nm\r\n" in here.heard.data or here.barrier(), "it is mapped")
    b.wants(b"LS+ _I.2\r\n")
    b.send(b"LMSG help.me _I.2 1\r\nq\r\n")
    wait_until(lambda: b"\r\nq\r\n" in here.heard.data or here.barrier(), "it is asked")
    asked = (b"MSG help.me", b"HMSG help.me")
    reply = next(words for words in here.heard.data.split(b"\r\n") if words.startswith(asked))
    here.send(b"PUB %s 1\r\na\r\n" % reply.split()[3])
    assert b"LMSG _I.2 1" in b.hears(b"a")
    b.wants(b"LS+ a.news.x\r\n")
    wait_until(lambda: is_heard(here, b"PUB news.x 1\r\nn\r\n", b, b"LMSG a.news.x 1"), "it is imported")
    for wire in (a, b, there, here):
        wire.close()
