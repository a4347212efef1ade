"""The options of a cluster are changed while it runs (SIGHUP), as nats-server lets them be."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nats.clusters import NEW_REAL, OURS, Member, meshed, mixtures
from tests.nats.route_wire import CONNECT, INFO, RouteWire
from tests.nats.test_cluster_failures import has_responder
from tests.nats.test_cluster_options import LOGIN
from tests.nats.wire import Wire
from tests.nsq.certificates import make
from tests.servers import free_port, wait_until

CONF = """
host: 127.0.0.1
port: $PORT
http: "127.0.0.1:%d"
cluster {
    name: xyz
    listen: "127.0.0.1:$ROUTE_PORT"
    %s
}
"""


class Reloaded(Member):
    def __init__(self, kind: str, directory: Path, block: str = "") -> None:
        self.http = free_port()
        super().__init__(kind, directory, conf=CONF % (self.http, block))

    def reload(self, block: str) -> None:
        text = CONF % (self.http, block)
        path = self.conf_path
        path.write_text(text.replace("$ROUTE_PORT", str(self.route_port)).replace("$PORT", str(self.port)))
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def routez(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/routez", timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer)["routes"]
        return found


Start = Callable[..., Reloaded]


@pytest.fixture
def start() -> Iterator[Start]:
    directory = Path(tempfile.mkdtemp(prefix="nats-cluster-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)

        def start(kind: str, block: str = "") -> Reloaded:
            member = Reloaded(kind, directory, block)
            stack.callback(member.stop)
            member.start()
            member.wait()
            return member

        yield start


KINDS = mixtures((NEW_REAL,), (OURS,))
PERMISSIONS = "permissions {{ import: {{allow: [{}]}}, export: {{allow: [{}]}} }}"


def heard_of(wire: RouteWire, wanted: Callable[[list[bytes]], bool]) -> list[bytes]:
    heard: list[bytes] = []

    def look() -> bool:
        heard.extend(wire.barrier())
        return wanted(heard)

    wait_until(look, "it is told")
    return heard


@pytest.mark.parametrize("kinds", KINDS)
def test_what_may_pass_is_what_it_is_now(kinds: tuple[str], start: Start) -> None:
    member = start(kinds[0], PERMISSIONS.format('"in.>"', '"out.>"'))
    client = member.client(b"SUB in.a 1\r\nSUB in.q q 2\r\nSUB other 3\r\nSUB other q 4\r\n")
    # A server of a time when INFO may come again.
    wire = RouteWire.joined(member.route_port, info={**INFO, "proto": 1})
    assert sorted(said for said in wire.told if b" $G " in said) == [b"RS+ $G in.a", b"RS+ $G in.q q 1"]
    wire.send(b"RS+ $G out.a\r\nRS+ $G else\r\n")
    wire.barrier()
    member.reload(PERMISSIONS.format('"other"', '"else"'))
    heard = heard_of(wire, lambda heard: sum(b" $G " in said for said in heard) >= 4)
    # The real one forgets how many members there are.
    assert sorted(said.replace(b" q 1", b" q ") for said in heard if b" $G " in said) == [
        b"RS+ $G other", b"RS+ $G other q ", b"RS- $G in.a", b"RS- $G in.q q",
    ]  # fmt: skip
    info = json.loads(next(said for said in heard if said.startswith(b"INFO")).partition(b" ")[2])
    assert (info["import"], info["export"]) == ({"allow": ["other"]}, {"allow": ["else"]})
    # What it wants and may have now it says again; what it may not have any more is forgotten.
    wire.send(b"RS+ $G else\r\n")
    wire.barrier()
    client.send(b"PUB out.a 1\r\nx\r\nPUB else 1\r\ny\r\n")
    client.barrier()
    assert wire.barrier() == [b"RMSG $G else 1", b"y"]
    client.close()
    wire.close()


@pytest.mark.parametrize("kinds", KINDS)
def test_a_server_that_takes_more_now_is_told_what_it_has_not_heard_of(kinds: tuple[str], start: Start) -> None:
    member = start(kinds[0])
    client = member.client(b"SUB a 1\r\nSUB b q 2\r\n")
    info = {**INFO, "proto": 1, "export": {"allow": ["a"]}}
    wire = RouteWire.joined(member.route_port, info=info)
    wire.send(b"INFO %s\r\n" % json.dumps({**info, "server_id": wire.server_id, "export": {"allow": [">"]}}).encode())
    assert any(said.startswith(b"RS+ $G b q ") for said in wire.barrier())
    client.close()
    wire.close()


@pytest.mark.parametrize("kinds", mixtures((OURS, NEW_REAL), (NEW_REAL, OURS)))
def test_routes_come_and_go(kinds: tuple[str, str], start: Start) -> None:
    first, second = (start(kind) for kind in kinds)
    listener = first.client(b"SUB there 1\r\n")
    asking = second.client()
    assert not has_responder(asking, b"there")
    second.reload(f'routes: ["{first.route_url}"]')
    meshed([first, second])
    assert has_responder(asking, b"there")
    second.reload("")
    wait_until(lambda: not has_responder(asking, b"there"), "it is forgotten")
    wait_until(lambda: first.routez() == [], "it is gone")
    second.reload(f'routes: ["{first.route_url}"]')
    meshed([first, second])
    for wire in (listener, asking):
        wire.close()


@pytest.mark.parametrize("kinds", KINDS)
def test_who_does_not_know_the_new_password_is_sent_away(kinds: tuple[str], start: Start) -> None:
    old, new = "authorization {user: route, password: secret}", "authorization {user: route, password: other}"
    member = start(kinds[0], old)
    wire = RouteWire.joined(member.route_port, connect=LOGIN)
    member.reload(new)
    assert b"-ERR 'Authorization Violation'\r\n" in wire.rest()
    again = RouteWire.joined(member.route_port, connect={**LOGIN, "pass": "other"})
    assert not again.closed
    wire.close()
    again.close()


@pytest.mark.parametrize("kinds", KINDS)
def test_clients_are_told_of_other_servers_or_not(kinds: tuple[str], start: Start) -> None:
    member = start(kinds[0], "no_advertise: true")
    info = {**INFO, "connect_urls": ["192.0.2.1:4222"]}
    wire = RouteWire.joined(member.route_port, info=info)
    client = member.client()
    assert b"connect_urls" not in client.info
    member.reload("")
    # The real one says so to who comes next, and of servers that come then.
    wire.close()

    def is_told() -> bool:
        # It may not have read its file yet.
        again = RouteWire.joined(member.route_port, info=info)
        late = Wire(member.port)
        late.close()
        again.close()
        return b"192.0.2.1:4222" in late.info

    wait_until(is_told, "clients are told")
    client.close()


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS), (OURS, OURS)))
def test_how_much_is_compressed_changes_on_routes_that_are_there(kinds: tuple[str, str], start: Start) -> None:
    first = start(kinds[0], "compression: s2_fast")
    route = f'routes: ["{first.route_url}"]'
    second = start(kinds[1], f"compression: s2_fast, {route}")
    meshed([first, second])
    wait_until(lambda: len(second.routez()) == 4, "all are there")
    before = {one["rid"] for one in second.routez()}
    for block in ("s2_best", "{mode: s2_auto, rtt_thresholds: [1h, 2h]}", "s2_fast"):
        mode = block if block.startswith("s2") else "s2_uncompressed"
        second.reload(f"compression: {block}, {route}")
        wait_until(lambda mode=mode: {one["compression"] for one in second.routez()} == {mode}, block)
        meshed([first, second])
    assert {one["rid"] for one in second.routez()} == before


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS), (OURS, OURS)))
def test_pools_and_compression_change_and_the_cluster_is_one_again(kinds: tuple[str, str], start: Start) -> None:
    first = start(kinds[0])
    route = f'routes: ["{first.route_url}"]'
    second = start(kinds[1], route)
    meshed([first, second])
    for block, count, mode in (
        ("pool_size: 5", 6, "off"),
        ("compression: s2_fast", 4, "s2_fast"),
        ("pool_size: 1, compression: off", 4, "off"),
    ):
        second.reload(f"{block}\n{route}")
        wait_until(lambda count=count, mode=mode: [r["compression"] for r in second.routez()] == [mode] * count, block)
        meshed([first, second])


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS)))
def test_routes_are_encrypted_from_then_on_and_certificates_may_be_renewed(
    kinds: tuple[str, str], start: Start, tmp_path: Path
) -> None:
    certificates = make(tmp_path)
    tls = [
        f'tls {{cert_file: "{pair.cert}", key_file: "{pair.key}", ca_file: "{certificates.authority}"}}'
        for pair in (certificates.server, certificates.client)
    ]
    first = start(kinds[0])
    route = f'routes: ["{first.route_url}"]'
    second = start(kinds[1], route)
    meshed([first, second])
    first.reload(tls[0])
    second.reload(f"{tls[1]}\n{route}")
    wait_until(lambda: second.said().count("there is a route") > 1, "it is made anew")
    meshed([first, second])
    # The same files, with another certificate of an authority that the other does not know: it is used at once.
    make(tmp_path)
    second.reload(f"{tls[1]}\n{route}")
    second.reload(f"{tls[1]}\npool_size: 2\n{route}")
    wait_until(lambda: "TLS handshake failed" in second.said(), "the new one is shown")
    first.reload(f"{tls[0]}\nping_max: 3")
    meshed([first, second])


def test_the_file_that_cannot_be_is_refused_and_nothing_changes(start: Start) -> None:
    member = start(OURS)
    wire = RouteWire.joined(member.route_port, connect=CONNECT)
    member.reload('tls {cert_file: "/nowhere", key_file: "/nowhere"}')
    wait_until(lambda: "/nowhere" in member.said(), "it is said")
    assert wire.barrier() == [] and not wire.closed
    wire.close()
