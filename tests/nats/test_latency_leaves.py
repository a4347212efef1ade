"""Services that are measured when the request comes over a leaf node or from a hub, and what they are told of these."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, configured, mixtures
from tests.nats.hub_wire import HubPort
from tests.nats.latency_scenes import QUIET_S, request
from tests.nats.leaf_wire import LeafWire
from tests.nats.route_wire import RouteWire
from tests.nats.test_latency_clusters import CONF, come, until
from tests.nats.wire import Wire
from tests.ready import readable

HUB = f"""
listen: "127.0.0.1:$PORT"
server_name: hub
leafnodes {{
  listen: "127.0.0.1:$ROUTE_PORT"
  compression: off
  authorization {{ users: [ {{user: lb, password: lb, account: B}} ] }}
}}
{CONF.read_text()}"""
SPOKE = f"""
listen: "127.0.0.1:$PORT"
server_name: spoke
leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:$HUB_PORT", account: B }} ] }}
{CONF.read_text()}"""
KINDS = [parameter for kind in (OURS, OURS_3, NEW_REAL) for parameter in mixtures((kind,))]
HEADERS = b'NATS/1.0\r\nNats-Request-Info: {"acc":"X"}\r\n\r\n'


class Service:
    """A responder, and who hears the results."""

    def __init__(self, member: Member) -> None:
        self.wires = come(member, b"a", b"responder"), come(member, b"a", b"listener", b"SUB lat.* 1\r\n")
        self.serve(True)

    def serve(self, is_there: bool) -> None:
        responder = self.wires[0]
        responder.send(b"SUB all 1\r\nSUB one 2\r\n" if is_there else b"UNSUB 1\r\nUNSUB 2\r\n")
        responder.barrier()

    def asked(self, how: Callable[[], None]) -> tuple[bytes, dict[str, Any]]:
        """The subject for the answer to a request, and what its header says of who asks."""
        (found,) = heard(self.wires[0], rb"HMSG \S+ \d (\S+\.T) [^{]*Nats-Request-Info: (.*)\r\n\r\nhi", how)
        return found[0], json.loads(found[1])

    def answer(self, subject: bytes) -> None:
        self.wires[0].send(b"PUB %s 3\r\nyes\r\n" % subject)

    def result(self, how: Callable[[], None]) -> dict[str, Any]:
        (found,) = heard(self.wires[1], rb'(\{"type".*\})\r\n', how)
        result: dict[str, Any] = json.loads(found)
        return result

    def close(self) -> None:
        for wire in self.wires:
            wire.close()


def heard(wire: Wire, pattern: bytes, how: Callable[[], None]) -> list[Any]:
    """What of that form comes by what is done."""
    start = len(wire.heard.data)
    how()
    while not (found := re.findall(pattern, wire.heard.data[start:])):
        wire.receive()
    return found


def play(service: Service, other: RouteWire, known: dict[str, Any]) -> None:
    """`other` is a leaf node or a hub, in account B. `known`: what services that are told all are told of it."""

    def said(text: bytes) -> Callable[[], None]:
        return lambda: other.send(text)

    def is_told(who: dict[str, Any]) -> bool:
        return {name: value for name, value in who.items() if name not in ("rtt", "start", "id", "host")} == known

    other.send(b"LS+ inbox\r\n")
    other.barrier()
    for subject, is_shared in ((b"all", True), (b"plain", False)):
        reply, who = service.asked(said(b"LMSG %b inbox 2\r\nhi\r\n" % subject))
        result = service.result(lambda reply=reply: service.answer(reply))  # type: ignore[misc]
        assert result["status"] == 200 and result["responder"]["name"] == "responder"
        for row in (who, result["requestor"]):
            assert is_told(row) if is_shared else row.keys() - {"rtt"} == {"acc"} and row["acc"] == "B"
    # Whatever it says of who asks is replaced.
    sizes = len(HEADERS), len(HEADERS) + 2
    reply, who = service.asked(said(b"HMSG all inbox %d %d\r\n%bhi\r\n" % (*sizes, HEADERS)))
    assert is_told(who)
    result = service.result(said(b"LS- inbox\r\n"))
    assert result["status"] == 408 and is_told(result["requestor"])
    result = service.result(said(b"LMSG all 2\r\nhi\r\n"))
    assert result["status"] == 400 and is_told(result["requestor"])
    service.serve(False)
    result = service.result(said(b"LMSG all inbox 2\r\nhi\r\n"))
    assert result["status"] == 503 and is_told(result["requestor"])


@pytest.mark.parametrize("kinds", KINDS)
def test_a_request_over_a_leaf_node_is_measured(kinds: tuple[str]) -> None:
    with configured(kinds[0], HUB) as hub:
        service = Service(hub)
        leaf = LeafWire.joining(hub.route_port, "lb", name="leafy", cluster="its")
        known = {"acc": "B", "user": "lb", "name": "leafy", "ver": "2.15.2", "server": "leafy", "kind": "Leafnode"}
        play(service, leaf, known)
        leaf.close()
        service.close()


@pytest.mark.parametrize("kinds", KINDS)
def test_a_request_of_a_hub_is_measured(kinds: tuple[str]) -> None:
    port = HubPort()
    try:
        with configured(kinds[0], SPOKE.replace("$HUB_PORT", str(port.port))) as spoke:
            hub = port.joins()
            service = Service(spoke)
            play(service, hub, {"acc": "B", "server": "hub", "cluster": "spoke", "kind": "Leafnode"})
            hub.close()
            service.close()
    finally:
        port.close()


def with_system_account(accounts: str) -> str:
    system = "SYS { users: [{user: s, password: s}] }"
    return accounts.replace("accounts {", f"accounts {{ {system}", 1) + "\nsystem_account: SYS"


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, NEW_REAL), (OURS, NEW_REAL), (NEW_REAL, OURS), (OURS_3, OURS)))
@pytest.mark.parametrize("knows", [True, False], ids=["with the system account", "without it"])
def test_the_half_measured_at_a_leaf_node_comes_over_the_system_account(kinds: tuple[str, str], knows: bool) -> None:
    accounts = ("A", "SYS") if knows else ("A",)
    users = ", ".join(f"{{user: {name}, password: l, account: {name}}}" for name in accounts)
    leafnodes = f'leafnodes {{ listen: "127.0.0.1:$ROUTE_PORT", authorization {{ users: [{users}] }} }}'
    common = f'listen: "127.0.0.1:$PORT"\n{with_system_account(CONF.read_text())}\n'
    with configured(kinds[0], f"server_name: hub\n{leafnodes}\n{common}") as hub:
        remotes = ", ".join(
            f'{{ url: "nats-leaf://{name}:l@127.0.0.1:{hub.route_port}", account: {name} }}' for name in accounts
        )
        with configured(kinds[1], f"server_name: spoke\nleafnodes {{ remotes: [{remotes}] }}\n{common}") as spoke:
            results = come(hub, b"a", b"results", b"SUB lat.one 1\r\n")
            responder = come(spoke, b"a", b"responder", b"SUB one 1\r\n")
            asker = come(hub, b"b", b"asker", b"SUB r 1\r\n")
            if knows:
                meet(hub, spoke, b"s")
            while not readable([responder.socket], 0.1):  # the hub does not know of the responder yet
                asker.send(request("plain"))
                asker.barrier()
            reply = until(responder, rb"MSG one 1 (_R_\S+\.T) ")[1]
            responder.send(b"PUB %s 3\r\nyes\r\n" % reply)
            until(asker, rb"yes\r\n")
            if knows:
                found = json.loads(until(results, rb'(\{"type".*"status":200.*\})\r\n')[1])
                assert found["requestor"] == {"acc": "B", "rtt": found["requestor"]["rtt"]}
                assert (found["responder"]["name"], found["responder"]["server"]) == ("responder", "spoke")
                assert 0 <= found["service"] <= found["total"] > 0 <= found["system"] <= found["total"]
            else:
                while readable([results.socket], QUIET_S):
                    results.receive()
                assert b'"status":200' not in results.heard.data
            for wire in (results, responder, asker):
                wire.close()


def meet(hub: Member, spoke: Member, user: bytes) -> None:
    """Waits until what that user publishes at the leaf node is heard at the hub."""
    listener, talker = come(hub, user, b"", b"SUB probe 1\r\n"), come(spoke, user, b"")
    while not readable([listener.socket], 0.1):
        talker.send(b"PUB probe 0\r\n\r\n")
    listener.close()
    talker.close()
