"""What nats-server's monitoring port shows: key by key beside a real one, and with true values."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mq_shards.gateway.processes import resident_bytes

from tests.nats.servers import NatsServer, nats_server, running
from tests.nats.test_operating import until, until_true
from tests.nats.wire import Wire
from tests.servers import children, free_port

KINDS = [
    pytest.param(0, id="nats-server", marks=pytest.mark.skipif(nats_server() is None, reason="no nats-server")),
    pytest.param(1, id="shards-1", marks=pytest.mark.long),
    pytest.param(2, id="shards-2"),
]
HELLO = (
    b'CONNECT {"verbose":false,"pedantic":false,"protocol":1,"lang":"raw","version":"1.2.3","name":"me <&>"}\r\n'
    b"SUB a.* 1\r\nSUB a.b q 2\r\nUNSUB 2 9\r\nPUB a.b 5\r\nhello\r\nPING\r\n"
)


class Monitored:
    def __init__(self, server: NatsServer, port: int) -> None:
        self.server = server
        self.port = port

    def get(self, path: str) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Content-Type", ""), answer.read()
        finally:
            connection.close()

    def json(self, path: str) -> dict[str, Any]:
        status, _, body = self.get(path)
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found

    def client(self, hello: bytes = HELLO) -> Wire:
        wire = Wire(self.server.port)
        wire.send(hello)
        until(wire, b"PONG")
        return wire


def cid_of(wire: Wire) -> int:
    return int(json.loads(wire.info[5:])["client_id"])


def start(kind: int) -> Iterator[Monitored]:
    port = free_port()
    arguments = ["-m", str(port)] if kind == 0 else ["--listen", f"nats-http://127.0.0.1:{port}"]
    with running(kind, arguments=arguments) as server:
        yield Monitored(server, port)


@pytest.fixture(scope="module", params=KINDS)
def monitored(request: pytest.FixtureRequest) -> Iterator[Monitored]:
    yield from start(request.param)


@pytest.fixture(scope="module")
def real() -> Iterator[Monitored]:
    if nats_server() is None:
        pytest.skip("no nats-server")
    yield from start(0)


def connections(server: Monitored, query: str, *wires: Wire) -> list[dict[str, Any]]:
    """Of those clients, in the order in which they are shown."""
    wanted = {cid_of(wire) for wire in wires}
    return [row for row in server.json(f"/connz?{query}")["connections"] if row["cid"] in wanted]


# What is of Go, or of JetStream's switches, is not shown; the journal has nothing of the kind.
NOT_SHOWN = {"git_commit", "xkey", "mappings", "exports", "imports", "responses"}


@pytest.mark.parametrize(
    "path",
    [
        "/varz", "/connz", "/connz?subs=1&auth=1", "/connz?subs=detail", "/connz?state=closed", "/connz?state=any",
        "/routez", "/subsz", "/subsz?subs=1&test=a.b&acc=$G", "/subscriptionsz", "/accountz", "/accountz?acc=$G",
        "/accstatz", "/accstatz?unused=1", "/healthz", "/leafz", "/gatewayz", "/jsz", "/ipqueuesz", "/connz?acc=nobody",
        "/connz?mqtt_client=x",
    ],
)  # fmt: skip
def test_keys_and_types_are_those_of_a_nats_server(real: Monitored, monitored: Monitored, path: str) -> None:
    if monitored.server.acceptors == 0:
        pytest.skip("it is itself")
    shapes = []
    for server in (real, monitored):
        gone, client = server.client(), server.client()
        gone.close()
        cid = cid_of(gone)
        until_true(lambda: cid in {row["cid"] for row in server.json("/connz?state=closed")["connections"]})  # noqa: B023
        status, content_type, body = server.get(path)
        shapes.append((status, content_type, shape(json.loads(body))))
        client.close()
    assert shapes[1] == shapes[0]


def shape(value: object) -> object:
    """Keys and kinds of values, without which ones there are by chance."""
    if isinstance(value, dict):
        by_chance = {"http_req_stats", "slow_consumer_stats"}
        return {
            name: "counts" if name in by_chance else shape(one) for name, one in value.items() if name not in NOT_SHOWN
        }
    if isinstance(value, list):
        if not value or not isinstance(value[0], dict):
            return sorted({str(shape(one)) for one in value})
        return [shape({name: one for row in value for name, one in row.items()})]
    if isinstance(value, bool) or value is None:
        return value
    return "number" if isinstance(value, int | float) else type(value).__name__


@pytest.mark.parametrize(
    "path",
    [
        "/connz?state=foo", "/connz?sort=foo", "/connz?auth=maybe", "/connz?limit=x", "/connz?cid=x", "/connz?cid=-1",
        "/connz?sort=stop", "/connz?sort=reason&state=any", "/connz?subs=maybe", "/connz?offset=99999999999999999999",
        "/subsz?test=foo.*", "/subsz?subs=x", "/accountz?acc=nobody", "/nonsense", "/raftz", "/routez?subs=x",
        "/jsz?leader-only=1", "/jsz?streams=x", "/jsz?limit=x&leader-only=1", "/gatewayz?accs=x", "/healthz?details=x",
        "/healthz?consumer=c", "/healthz?stream=s&details=1",
        "/ipqueuesz?all=x", "//varz?a<>", "/x/.././connz/", "//a%20b%3Fc", "/connz?sort=x;y&limit=%zz&auth=x",
    ],
)  # fmt: skip
def test_errors_are_those_of_a_nats_server(real: Monitored, monitored: Monitored, path: str) -> None:
    if monitored.server.acceptors == 0:
        pytest.skip("it is itself")
    assert monitored.get(path) == real.get(path)


def test_a_connection_is_shown_with_true_values(monitored: Monitored) -> None:
    with_closing = monitored.client()
    (row,) = connections(monitored, "subs=detail&auth=1", with_closing)
    assert (row["name"], row["lang"], row["version"], row["kind"], row["type"]) == (
        "me <&>", "raw", "1.2.3", "Client", "nats",
    )  # fmt: skip
    assert (row["in_msgs"], row["in_bytes"], row["out_msgs"], row["out_bytes"]) == (1, 5, 2, 10)
    assert (row["subscriptions"], row["pending_bytes"], row["ip"]) == (2, 0, "127.0.0.1")
    assert row["port"] == with_closing.socket.getsockname()[1]
    subs = sorted(row["subscriptions_list_detail"], key=lambda sub: sub["sid"])
    cid = cid_of(with_closing)
    assert subs == [
        {"subject": "a.*", "sid": "1", "msgs": 1, "cid": cid},
        {"subject": "a.b", "qgroup": "q", "sid": "2", "msgs": 1, "max": 9, "cid": cid},
    ]
    (row,) = connections(monitored, "subs=1", with_closing)
    assert sorted(row["subscriptions_list"]) == ["a.*", "a.b"]
    assert row["uptime"].endswith("s")
    with_closing.close()


def test_connections_that_have_ended_are_remembered(monitored: Monitored) -> None:
    politely, badly = monitored.client(), monitored.client()
    politely.close()
    badly.send(b"NONSENSE\r\n")
    until(badly, b"-ERR 'Unknown Protocol Operation'")
    until_true(lambda: len(connections(monitored, "state=closed", politely, badly)) == 2)
    rows = {row["cid"]: row for row in connections(monitored, "state=closed&subs=detail", politely, badly)}
    assert rows[cid_of(politely)]["reason"] in ("Client Closed", "Read Error")
    assert rows[cid_of(badly)]["reason"] in ("Protocol Violation", "Parse Error")
    assert len(rows[cid_of(politely)]["subscriptions_list_detail"]) == 2
    assert rows[cid_of(politely)]["in_msgs"] == 1
    assert rows[cid_of(politely)]["stop"] >= rows[cid_of(politely)]["start"]


def test_it_is_told_why_a_connection_has_ended(monitored: Monitored) -> None:
    # Without subscriptions: what is sent to one that has reset would be an error of writing.
    reset, wrong, refused = (monitored.client(b"PING\r\n") for _ in range(3))
    reset.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    reset.socket.close()
    wrong.send(b"FOO\r\n")
    refused.send(b"-ERR 'no'\r\n")
    wires = reset, wrong, refused
    until_true(lambda: len(connections(monitored, "state=closed", *wires)) == len(wires))
    rows = {row["cid"]: row["reason"] for row in connections(monitored, "state=closed", *wires)}
    assert [rows[cid_of(wire)] for wire in wires] == ["Read Error", "Protocol Violation", "Parse Error"]


def test_who_has_gone_is_sorted_by_how_long_it_was_there_and_when_it_was_active(monitored: Monitored) -> None:
    gone = monitored.client()
    gone.close()
    until_true(lambda: len(connections(monitored, "state=closed", gone)) == 1)
    stays = monitored.client()

    def order(sort: str) -> list[int]:
        return [row["cid"] for row in connections(monitored, f"state=any&sort={sort}", gone, stays)]

    gone_cid, cid = cid_of(gone), cid_of(stays)
    until_true(lambda: order("uptime") == [gone_cid, cid])
    assert order("last") == [cid, gone_cid]
    assert order("idle") == [gone_cid, cid]
    stays.close()


def test_connections_are_filtered_sorted_and_paged(monitored: Monitored) -> None:
    quiet, busy, busier = (monitored.client(hello) for hello in (b"PING\r\n", HELLO, HELLO))
    busier.send(b"PUB a.c 7\r\n1234567\r\n")
    busier.barrier()
    wires = quiet, busy, busier

    def order(query: str) -> list[int]:
        return [row["cid"] for row in connections(monitored, query, *wires)]

    quiet_cid, busy_cid, busier_cid = map(cid_of, wires)
    if monitored.server.acceptors < 2:
        assert order("sort=cid") == [quiet_cid, busy_cid, busier_cid]
    assert order("sort=bytes_from")[0] == busier_cid
    assert order("sort=msgs_to")[-1] == quiet_cid
    assert order("sort=subs")[-1] == quiet_cid
    assert order("sort=start") == [quiet_cid, busy_cid, busier_cid]
    assert order("sort=uptime") == [busier_cid, busy_cid, quiet_cid]
    (only,) = monitored.json(f"/connz?cid={busy_cid}")["connections"]
    assert only["cid"] == busy_cid
    page = monitored.json("/connz?limit=1&offset=1&sort=start")
    assert (page["num_connections"], page["limit"], page["offset"]) == (1, 1, 1)
    assert page["total"] >= 3
    for wire in wires:
        wire.close()


def test_varz_counts_what_is_sent(monitored: Monitored) -> None:
    before = monitored.json("/varz")
    client = monitored.client()
    after = monitored.json("/varz")
    assert after["in_msgs"] - before["in_msgs"] == 1
    assert after["in_client_bytes"] - before["in_client_bytes"] == 5
    assert after["out_bytes"] - before["out_bytes"] == 10
    assert after["total_connections"] - before["total_connections"] == 1
    assert after["max_payload"] == 1 << 20 and after["port"] == monitored.server.port
    assert after["http_port"] == monitored.port
    assert after["http_req_stats"]["/varz"] >= 2
    assert after["mem"] > 1 << 20
    assert json.loads(client.info[5:])["server_id"] == after["server_id"]
    client.close()


def test_memory_that_processes_share_counts_once(monitored: Monitored) -> None:
    if monitored.server.acceptors == 0:
        pytest.skip("a real one has one process")
    supervisor = monitored.server.process.pid
    resident = [resident_bytes(pid) for pid in (supervisor, *children(supervisor))]
    assert min(resident) < monitored.json("/varz")["mem"] < 0.8 * sum(resident)


def test_subscriptions_are_listed(monitored: Monitored) -> None:
    client = monitored.client(b"SUB listed.> 1\r\nSUB other 2\r\nPING\r\n")
    found = monitored.json("/subsz?subs=1&test=listed.a.b&acc=$G")
    mine = [sub for sub in found["subscriptions_list"] if sub["cid"] == cid_of(client)]
    assert [(sub["subject"], sub["account"], sub["sid"]) for sub in mine] == [("listed.>", "$G", "1")]
    client.close()


def test_what_is_kept_of_matches_is_counted(monitored: Monitored) -> None:
    """A group has a message once; a subject that nobody wants is kept, too."""
    before = monitored.json("/subsz")["num_cache"]
    subscriptions = b"SUB fan.* 1\r\nSUB fan.> 2\r\nSUB fan.out 3\r\nSUB fan.out q 4\r\nSUB fan.* q 5\r\n"
    client = monitored.client(subscriptions + b"PUB fan.out 0\r\n\r\nPUB no.body 0\r\n\r\nPING\r\n")
    shown = monitored.json("/subsz")
    assert shown["num_cache"] >= before + 1 and shown["max_fanout"] == 4
    assert 0 < shown["avg_fanout"] <= 4
    client.close()


@pytest.mark.long
def test_round_trips_are_measured(monitored: Monitored) -> None:
    client = monitored.client()
    until(client, b"PING\r\n")  # after two seconds
    client.send(b"PONG\r\n")
    until_true(lambda: connections(monitored, "", client)[0]["rtt"] not in ("", "0s"))
    client.close()


def test_a_gateway_that_is_gone_is_noticed_by_no_client(monitored: Monitored) -> None:
    if monitored.server.acceptors == 0:
        pytest.skip("a real one has none")
    client = monitored.client()
    pid = gateway_of(monitored.server.process.pid)
    os.kill(pid, signal.SIGKILL)
    client.send(b"PUB a.b 1\r\nx\r\n")
    client.barrier()
    assert not client.heard.closed
    deadline = time.monotonic() + 60
    while True:
        try:
            assert connections(monitored, "", client)
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    client.close()


def gateway_of(supervisor: int) -> int:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = path.read_text()
        except OSError:
            continue
        name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
        if name == "mq-gateway" and int(rest[1]) == supervisor:
            return int(path.parent.name)
    raise AssertionError("there is no gateway")
