"""What an operator may say of a cluster, in nats-server's own file: ours and a real one with the same file."""

from __future__ import annotations

import json
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from mq_shards.acceptor.protocols.nats.server_url import RouteUrl, route_url

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, bodies, configured, mixtures
from tests.nats.route_wire import CONNECT, INFO, RouteWire, line
from tests.nats.wire import Wire
from tests.servers import free_port, wait_until

CONF = """
host: 127.0.0.1
port: $PORT
cluster {
    name: xyz
    listen: "127.0.0.1:$ROUTE_PORT"
    authorization { user: route, password: secret, timeout: 0.7
        permissions { import: {allow: ["in.>"]}, export: {allow: "out.*", deny: ["out.no"]} } }
    no_advertise: true
    pool_size: 2
}
"""
LOGIN = {**CONNECT, "user": "route", "pass": "secret"}


def test_a_route_may_have_any_scheme_and_a_path_but_needs_a_host() -> None:
    assert route_url("foo://u:p@host/x/y") == RouteUrl("host", 6222, "u", "p")
    assert [route_url(text) for text in ("nats-route://:6222", "host:6222", "host", "//host:6222")] == [None] * 4


@pytest.fixture(params=mixtures((NEW_REAL,), (OURS,)), scope="module")
def member(request: pytest.FixtureRequest) -> Iterator[Member]:
    with configured(request.param[0], CONF) as member:
        yield member


def test_info_says_so(member: Member) -> None:
    wire = RouteWire(member.route_port)
    assert wire.info["auth_required"] is True
    assert wire.info["import"] == {"allow": ["in.>"]}
    assert wire.info["export"] == {"allow": ["out.*"], "deny": ["out.no"]}
    assert wire.info["route_pool_size"] == 2
    assert "connect_urls" not in wire.info
    wire.close()


@pytest.mark.parametrize(
    "wrong", [{}, {"user": "route"}, {"user": "route", "pass": "other"}, {"user": "x", "pass": "secret"}]
)
def test_who_does_not_know_the_password_is_refused(member: Member, wrong: dict[str, str]) -> None:
    wire = RouteWire(member.route_port)
    wire.send(line("CONNECT", {**CONNECT, **wrong}) + line("INFO", INFO))
    assert wire.rest() == b"-ERR 'Authorization Violation'\r\n"
    wire.close()


def test_who_says_nothing_is_refused_in_time(member: Member) -> None:
    wire = RouteWire(member.route_port)
    began = time.monotonic()
    assert wire.rest() == b"-ERR 'Authentication Timeout'\r\n"
    assert 0.3 < time.monotonic() - began < 3
    wire.close()


def test_only_what_is_imported_is_asked_for_and_only_what_is_exported_is_given(member: Member) -> None:
    client = member.client(b"SUB in.a 1\r\nSUB other 2\r\nSUB > 3\r\nSUB in.q q 4\r\n")
    wire = RouteWire.joined(member.route_port, connect=LOGIN)
    assert sorted(said for said in wire.told if b" $G " in said) == [b"RS+ $G in.a", b"RS+ $G in.q q 1"]
    wire.send(b"RS+ $G out.a\r\nRS+ $G out.no\r\nRS+ $G other\r\nRS+ $G out.b.c\r\n")
    wire.barrier()
    client.send(b"".join(b"PUB %s 1\r\nx\r\n" % s for s in (b"out.no", b"other", b"out.b.c", b"out.a")))
    client.barrier()
    assert wire.barrier() == [b"RMSG $G out.a 1", b"x"]
    client.heard.data = b""
    wire.send(b"RMSG $G in.a 1\r\ny\r\n")
    wire.barrier()
    client.send(b"")
    client.asked = 0
    client.barrier()
    assert bodies(client) == [b"y", b"y"]
    client.close()
    wire.close()


def test_it_finds_the_servers_of_its_file_and_tells_who_it_is() -> None:
    conf = CONF.replace('import: {allow: ["in.>"]}, ', "")
    with configured(OURS, conf) as first:
        routes = f"routes: [ nats-route://route:secret@127.0.0.1:{first.route_port} ]"
        with configured(OURS, conf.replace("pool_size: 2", routes)) as second:
            listener = first.client(b"SUB out.x 1\r\n")
            talker = second.client()
            until = time.monotonic() + 60
            listener.socket.settimeout(0.1)
            while not bodies(listener):
                assert time.monotonic() < until, (first.said(), second.said())
                talker.send(b"PUB out.x 1\r\nx\r\n")
                try:
                    listener.receive()
                except TimeoutError:
                    continue
            listener.close()
            talker.close()


def routez(port: int, query: str = "") -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/routez{query}", timeout=60) as answer:
        shown: dict[str, Any] = json.load(answer)
    return shown


def heard_once(client: Wire, wire: RouteWire, subject: bytes, payload: bytes) -> None:
    """Published until the route is given it. The client may be another acceptor's, which hears of what a route wants a
    moment later; what is not in the route's output when a client hears PONG goes nowhere."""
    until = time.monotonic() + 60
    while True:
        client.send(b"PUB %s %d\r\n%s\r\n" % (subject, len(payload), payload))
        client.barrier()
        if payload in wire.barrier():
            return
        assert time.monotonic() < until, f"nobody was told of {subject!r}"


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL,), (OURS,), (OURS_3,)))
def test_routez_shows_each_route(kinds: tuple[str, ...]) -> None:
    http = free_port()
    with configured(kinds[0], CONF + f'http: "127.0.0.1:{http}"\n') as member:
        client = member.client(b"SUB in.a 1\r\n")
        wire = RouteWire.joined(member.route_port, connect=LOGIN)
        wire.send(b"RS+ $G out.a\r\nRMSG $G in.a 3\r\nxyz\r\n")
        wire.barrier()
        heard_once(client, wire, b"out.a", b"hi")
        # A PING of its own may be on its way.
        wait_until(lambda: not routez(http)["routes"][0]["pending_size"], "all has been sent")
        shown = routez(http)
        assert shown["num_routes"] == 1
        (route,) = shown["routes"]
        wanted = {
            "remote_id": wire.server_id, "did_solicit": False, "is_configured": False, "ip": "127.0.0.1",
            "port": wire.socket.getsockname()[1], "in_msgs": 1, "in_bytes": 3, "out_msgs": 1, "out_bytes": 2,
            "subscriptions": 1, "compression": "not supported",
        }  # fmt: skip
        assert {name: route[name] for name in wanted} == wanted
        assert {"subscriptions_list", "subscriptions_list_detail"}.isdisjoint(route)
        # What it wants: subjects, or each in detail.
        wire.send(b"RS+ $G out.b workers 3\r\n")
        wire.barrier()
        (route,) = routez(http, "?subs=1")["routes"]
        assert (route["subscriptions"], sorted(route["subscriptions_list"])) == (2, ["out.a", "out.b"])
        # A message counts for the first that matched it, wherever it was published.
        talkers = [member.client() for _ in range(6)]
        for talker in talkers:
            heard_once(talker, wire, b"out.b", b"x")
            heard_once(talker, wire, b"out.a", b"x")
            talker.close()
        (route,) = routez(http, "?subs=detail")["routes"]
        details = sorted(route["subscriptions_list_detail"], key=lambda one: one["subject"])
        assert [one.pop("cid") for one in details] == [route["rid"]] * 2
        # To a real one the sid begins with R where the other server speaks of origins.
        assert [{**one, "sid": one["sid"].removeprefix("R ")} for one in details] == [
            {"subject": "out.a", "sid": "$G out.a", "msgs": 1 + len(talkers)},
            {"subject": "out.b", "qgroup": "workers", "sid": "$G out.b workers", "msgs": len(talkers)},
        ]
        client.close()
        wire.close()


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL,), (OURS,)))
def test_a_server_that_sends_its_clients_away_says_so_to_the_others(kinds: tuple[str, ...]) -> None:
    with configured(kinds[0], CONF + 'lame_duck_grace_period: "10ms"\n') as member:
        client = member.client()
        wire = RouteWire.joined(member.route_port, connect=LOGIN)
        assert member.process is not None
        member.process.send_signal(signal.SIGUSR2)
        said = wire.line()
        while not said.startswith(b"INFO"):
            said = wire.line()
        info = json.loads(said.partition(b" ")[2])
        assert (info["server_id"], info["ldm"]) == (wire.info["server_id"], True)
        client.close()
        wire.close()


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL,), (OURS,)))
def test_clients_of_websockets_are_told_where_others_take_websockets(kinds: tuple[str, ...]) -> None:
    port = free_port()
    conf = CONF.replace("no_advertise: true", "") + f'websocket {{ listen: "127.0.0.1:{port}", no_tls: true }}\n'
    with configured(kinds[0], conf) as member:
        urls = {"connect_urls": ["192.0.2.1:4222"], "ws_connect_urls": ["192.0.2.1:8080"]}
        wire = RouteWire.joined(member.route_port, info={**INFO, **urls}, connect=LOGIN)
        assert wire.info["ws_connect_urls"] == [f"127.0.0.1:{port}"]
        assert wire.info["connect_urls"] == [f"127.0.0.1:{member.port}"]
        wait_until(lambda: b"192.0.2.1:8080" in told_over_websocket(port), "what the route says is said")
        heard = told_over_websocket(port)
        assert f"127.0.0.1:{port}".encode() in heard
        assert b"192.0.2.1:4222" not in heard
        plain = member.client()
        assert b"192.0.2.1:4222" in plain.info
        plain.close()
        wire.close()
        # Clients keep the addresses that they have been told until they are told others: so its own is said alone.
        wait_until(lambda: told_to_a_client(member) == [f"127.0.0.1:{member.port}"], "the other is not said any more")


def told_over_websocket(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        heard = b""
        while b"} \r\n" not in heard:
            received = client.recv(4096)
            assert received, heard
            heard += received
    return heard


def told_to_a_client(member: Member) -> list[str]:
    client = member.client()
    client.close()
    urls: list[str] = json.loads(client.info.partition(b" ")[2]).get("connect_urls", [])
    return urls
