"""What is said to a hub, to the byte: by ours as by a real server."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, configured, mixtures
from tests.nats.hub_wire import NONCE, HubPort
from tests.nats.jwts import Key
from tests.nats.leaf_wire import LeafWire, besides
from tests.nats.operators import A
from tests.nats.test_leaf_wire import client, is_heard
from tests.nats.wire import Wire
from tests.servers import wait_until

CONF = """
listen: "127.0.0.1:$PORT"
server_name: leafy
ping_interval: "30s"
leafnodes {
  listen: "127.0.0.1:$ROUTE_PORT"
  authorization { users = [ {user: a, password: a, account: A} ] }
  reconnect: "100ms"
  remotes [ %s ]
}
accounts {
  A { users = [ {user: ca, password: ca} ], mappings { "old.*": "new.$1" }
      imports = [ {service: {account: B, subject: "help.me"}} ] }
  B { users = [ {user: cb, password: cb} ], exports = [ {service: "help.*"} ] }
}
"""
HEADERS = b"NATS/1.0\r\n\r\n"
KINDS = [parameter for kind in (OURS, OURS_3, NEW_REAL) for parameter in mixtures((kind,))]
EITHER = [parameter for kind in (OURS, NEW_REAL) for parameter in mixtures((kind,))]


def remote(port: HubPort, more: str = "", who: str = "u:p@") -> str:
    url = f"nats-leaf://{who}127.0.0.1:{port.port}"
    return f'{{ url: "{url}", account: A, compression: off, first_info_timeout: "30s" {more} }}'


@contextlib.contextmanager
def leaf_of(kind: str, *remotes: str) -> Iterator[Member]:
    with configured(kind, CONF % ", ".join(remotes)) as member:
        yield member


@pytest.fixture
def port() -> Iterator[HubPort]:
    found = HubPort()
    yield found
    found.close()


@pytest.fixture
def other_port() -> Iterator[HubPort]:
    found = HubPort()
    yield found
    found.close()


@dataclass
class Wired:
    """A leaf node, and where its hubs are: two, and one that may not do all."""

    member: Member
    near: HubPort
    other: HubPort
    limited: HubPort

    def client(self, said: bytes = b"") -> Wire:
        return client(self.member, said)


@pytest.fixture(params=KINDS, scope="module")
def wired(request: pytest.FixtureRequest) -> Iterator[Wired]:
    ports = HubPort(), HubPort(), HubPort()
    limits = ", deny_imports: in.no, deny_exports: [out.no]"
    with leaf_of(request.param[0], remote(ports[0]), remote(ports[1]), remote(ports[2], limits)) as member:
        yield Wired(member, *ports)
    for port in ports:
        port.close()


def has_come(wire: Wire, wanted: bytes) -> None:
    wait_until(lambda: wanted in wire.heard.data or wire.barrier(), f"{wanted!r} comes")


def test_it_says_who_it_is_and_what_is_wanted_here(wired: Wired) -> None:
    wanting = wired.client(b"SUB t.a 1\r\nSUB t.* g 2\r\nSUB t.* g 3\r\n")
    wire = wired.near.comes()
    said = wire.said_who
    assert set(said) - {"compress_mode"} == {
        "version", "user", "pass", "server_id", "name", "cluster", "headers", "remote_account", "protocol",
    }  # fmt: skip
    assert (said["name"], said["cluster"], said["remote_account"]) == ("leafy", "leafy", "A")
    assert (said["user"], said["pass"], said["headers"]) == ("u", "p", True)
    wire.tell()
    # What is mapped, and asked of another account, is wanted here too.
    assert {b"LS+ t.a", b"LS+ t.* g 2", b"LS+ old.*", b"LS+ help.me"} <= set(wire.told)
    assert wire.loop.startswith(b"$LDS.")
    wanting.send(b"UNSUB 1\r\nUNSUB 2\r\n")
    assert b"LS- t.a" in wire.hears(b"LS+ t.* g 1")
    wanting.close()
    wire.hears(b"LS- t.* g")
    wire.close()


def test_messages_go_both_ways_once_each(wired: Wired) -> None:
    wire = wired.near.joins()
    wire.send(b"LS+ m.a\r\nLS+ m.*\r\nLS+ m.a q 3\r\n")
    wire.barrier()
    clients = [wired.client(b"SUB d.a 1\r\nSUB d.a q 2\r\n") for _ in range(4)]
    for talker in clients:
        wait_until(lambda t=talker: is_heard(t, b"PUB m.b 1\r\np\r\n", wire, b"p"), "it is wanted there")
    size = b"%d %d" % (len(HEADERS), len(HEADERS) + 2)
    for talker in clients:
        talker.send(b"PUB m.a r 2\r\nhi\r\nHPUB m.b x %s\r\n%shu\r\n" % (size, HEADERS))
        talker.barrier()
        heard = [one for one in besides(wire.hears(b"hu")) if one not in (b"p", b"LMSG m.b 1")]
        assert heard == [b"LMSG m.a + r q 2", b"hi", b"HMSG m.b x " + size, b"NATS/1.0", b"hu"]
    wire.send(b"LMSG d.a 2\r\nhi\r\nLMSG d.a + r q 2\r\nho\r\nHMSG d.a %s\r\n%sha\r\n" % (size, HEADERS))
    wire.barrier()
    for each in clients:
        has_come(each, b"MSG d.a 1 2\r\nhi\r\n")
        has_come(each, b"MSG d.a 1 r 2\r\nho\r\n")
        has_come(each, b"HMSG d.a 1 %s\r\n%sha\r\n" % (size, HEADERS))

    def is_chosen() -> bool:
        for each in clients:
            each.barrier()
        return sum(each.heard.data.count(b"MSG d.a 2 r 2\r\nho\r\n") for each in clients) == 1

    wait_until(is_chosen, "one member has what is for its group")
    # No echo.
    assert besides(wire.barrier()) == []
    for each in (*clients, wire):
        each.close()


def test_what_may_not_pass_does_not(wired: Wired) -> None:
    wanting = wired.client(b"SUB in.no 1\r\nSUB in.far 2\r\nSUB in.* 3\r\nSUB else 4\r\nSUB in.yes 5\r\n")
    limits = {"allow": ["in.*"], "deny": ["in.far"]}
    wire = wired.limited.comes()
    assert wire.said_who["deny_pub"] == ["in.no"]
    wire.tell(**{"import": limits, "export": {"allow": ["out.*", "end"], "deny": ["out.far"]}})
    assert sorted(wire.told) == [b"LS+ in.*", b"LS+ in.yes"]
    wire.send(b"LS+ out.*\r\nLS+ out.no\r\nLS+ far\r\nLS+ end\r\n")
    wait_until(lambda: is_heard(wanting, b"PUB end 5\r\nprobe\r\n", wire, b"probe"), "it is wanted there")
    said = b"PUB out.no 1\r\n0\r\nPUB out.far 1\r\n1\r\nPUB far 1\r\n2\r\nPUB out.a 1\r\n3\r\nPUB end 1\r\n4\r\n"
    wanting.send(said)
    wanting.barrier()
    assert besides(wire.hears(b"4")) == [b"LMSG out.a 1", b"3", b"LMSG end 1", b"4"]
    wire.send(b"LMSG in.no 1\r\n0\r\nLMSG in.far 1\r\n1\r\nLMSG else 1\r\n2\r\nLMSG in.yes 1\r\n3\r\n")
    wire.barrier()
    has_come(wanting, b"MSG in.yes 5 1\r\n3\r\n")
    for hidden in (b"MSG in.no", b"MSG in.far", b"MSG else"):
        assert hidden not in wanting.heard.data
    assert not wire.closed
    for each in (wanting, wire):
        each.close()


def test_hubs_do_not_hear_of_each_other_but_leaf_nodes_of_all(wired: Wired) -> None:
    one, other = wired.near.joins(), wired.other.joins()
    leaf = LeafWire.joining(wired.member.route_port)
    one.send(b"LS+ x\r\nLS+ y\r\n")
    one.barrier()
    assert b"LS+ x" in leaf.hears(b"LS+ y")
    leaf.wants(b"LS+ y\r\n")
    # What a leaf node wants both are told.
    for hub in (one, other):
        assert b"LS+ x" not in hub.hears(b"LS+ y")
    leaf.send(b"LMSG x 1\r\n1\r\n")
    assert besides(one.hears(b"1")) == [b"LMSG x 1", b"1"]
    one.send(b"LMSG y 1\r\n2\r\n")
    assert besides(leaf.hears(b"2")) == [b"LMSG y 1", b"2"]
    assert b"2" not in [*one.barrier(), *other.barrier()]
    # It is told of no interest, but what a hub sends goes to whoever wants it.
    other.send(b"LS+ z\r\n")
    other.barrier()
    one.send(b"LMSG z 1\r\n3\r\n")
    assert besides(other.hears(b"3")) == [b"LMSG z 1", b"3"]
    assert b"LS+ z" not in one.barrier()
    for wire in (one, other, leaf):
        wire.close()


@pytest.mark.parametrize("kinds", EITHER)
def test_a_circle_is_ended(kinds: Sequence[str], port: HubPort, other_port: HubPort) -> None:
    with leaf_of(kinds[0], remote(port), remote(other_port)) as member:
        one, other = port.joins(), other_port.joins()
        leaf = LeafWire.joining(member.route_port)
        assert leaf.loop == one.loop == other.loop
        # By what one hub says the others, and leaf nodes, find theirs.
        one.send(b"LS+ $LDS.another\r\n")
        for wire in (other, leaf):
            wire.hears(b"LS+ $LDS.another")
        one.send(b"LS+ %s\r\n" % one.loop)
        assert one.rest().endswith(
            b"-ERR 'Loop detected for leafnode account=\"A\". Delaying attempt to reconnect for 30s'\r\n"
        )
        other.send(b"-ERR 'Loop detected for leafnode account=\"X\". Delaying attempt to reconnect for 30s'\r\n")
        other.rest()
        # They are not tried again at once, as others are.
        assert port.is_alone(0.5) and other_port.is_alone(0)
        leaf.close()


@pytest.mark.parametrize("kinds", EITHER)
def test_a_hub_for_which_this_version_is_too_old_is_not_tried_again_at_once(
    kinds: Sequence[str], port: HubPort
) -> None:
    with leaf_of(kinds[0], remote(port)):
        one = port.joins()
        one.send(b"-ERR 'connection rejected since minimum version required is \"9.0.0\"'\r\n")
        one.barrier()
        one.close()
        assert port.is_alone(0.5)  # "reconnect" is a fifth of that


@pytest.mark.parametrize("kinds", EITHER)
def test_an_account_is_connected_to_no_more_hubs_than_it_may_have_leaf_nodes(
    kinds: Sequence[str], port: HubPort, other_port: HubPort
) -> None:
    text = CONF.replace("  A {", "  A { limits { max_leafnodes: 1 }, ")
    with configured(kinds[0], text % ", ".join((remote(port), remote(other_port)))):
        one, other = port.joins(), other_port.comes()
        other.tell()
        said = b"-ERR 'maximum account active connections exceeded'"
        assert said in other.heard_last
        assert one.barrier() == []
        for wire in (one, other):
            wire.close()


def test_a_hub_that_goes_or_is_none_is_connected_to_again(wired: Wired) -> None:
    first = wired.near.joins()
    first.send(b"LS+ x\r\n")
    first.barrier()
    first.close()
    # A client's port is none of a hub.
    wrong = wired.near.accept()
    wrong.greet({"info_on_connect": False, "leafnode_urls": None, "client_id": 0})
    assert b"CONNECT" not in wrong.rest()
    for name in ("two words", "_"):
        bad = wired.near.accept()
        bad.greet({"cluster": name})
        assert b"CONNECT" not in (said := bad.rest()) and b"-ERR 'cluster name " in said
    refused = wired.near.comes()
    refused.send(b"-ERR 'Authorization Violation'\r\n")
    refused.close()
    again = wired.near.joins()
    talker = wired.client()
    talker.send(b"PUB x 1\r\n1\r\n")
    talker.barrier()
    # What the last one wanted is nobody's.
    assert besides(again.barrier()) == []
    again.send(b"LS+ x\r\n")
    wait_until(lambda: is_heard(talker, b"PUB x 5\r\nprobe\r\n", again, b"probe"), "it is wanted there")
    talker.send(b"PUB x 1\r\n2\r\n")
    talker.barrier()
    assert besides(again.hears(b"2")) == [b"LMSG x 1", b"2"]
    for wire in (talker, again):
        wire.close()


@pytest.mark.parametrize("kinds", EITHER)
def test_other_servers_of_the_hub_are_tried_when_one_has_gone(
    kinds: Sequence[str], port: HubPort, other_port: HubPort
) -> None:
    with leaf_of(kinds[0], remote(port, ", no_randomize: true")):
        first = port.joins(leafnode_urls=[f"127.0.0.1:{port.port}", f"127.0.0.1:{other_port.port}"])
        port.close()
        first.close()
        second = other_port.comes()
        assert (second.said_who["user"], second.said_who["pass"]) == ("u", "p")
        second.close()


@pytest.mark.parametrize("kinds", mixtures((OURS,)))
def test_a_hub_that_says_nothing_is_tried_again_one_connection_at_a_time(kinds: Sequence[str], port: HubPort) -> None:
    with leaf_of(kinds[0], remote(port, ', dial_timeout: "20ms"').replace('"30s"', '"20ms"')):
        for _ in range(5):
            assert b"CONNECT" not in port.accept().rest()
        wire = port.accept()
        wire.greet({})
        while not wire.hear_who():  # too late
            wire = port.accept()
            wire.greet({})
        assert port.is_alone(0.3)
        wire.close()


@pytest.mark.parametrize("kinds", EITHER)
def test_it_signs_with_its_key(kinds: Sequence[str], port: HubPort, tmp_path: Path) -> None:
    key, (other, jwt) = Key(nats_nkeys.USER, "leaf"), A.user("leaf")
    path = tmp_path / "leaf.creds"
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{other.seed}\n------END USER NKEY SEED------\n"
    )
    for more, named, signer in (
        (f", nkey: {key.seed}", {"nkey": key.public}, key),
        (f', credentials: "{path}"', {"jwt": jwt}, other),
    ):
        with leaf_of(kinds[0], remote(port, more, who="")):
            wire = port.comes()
            said = wire.said_who
            assert {name: said.get(name) for name in ("nkey", "jwt") if said.get(name)} == named
            signature = base64.urlsafe_b64decode(said["sig"] + "==")
            assert nats_nkeys.verify(signer.public, NONCE.encode(), signature)
            wire.close()
