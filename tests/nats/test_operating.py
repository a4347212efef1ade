"""A broker that runs and is operated: lame duck, reload, limits on clients, INFO that comes again, files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from mq_shards.acceptor.protocols.nats.addresses import own_urls
from mq_shards.acceptor.protocols.nats.lame_duck import LameDuck

from tests.nats.route_wire import INFO, RouteWire
from tests.nats.servers import NatsServer, nats_server, running
from tests.nats.wire import Wire
from tests.nsq.certificates import make
from tests.servers import ROOT, free_port

HELLO = b'CONNECT {"verbose":false,"pedantic":false,"protocol":1,"lang":"raw"}\r\nPING\r\n'
KINDS = [
    pytest.param(0, id="nats-server", marks=pytest.mark.skipif(nats_server() is None, reason="no nats-server")),
    pytest.param(1, id="shards-1", marks=pytest.mark.long),
    pytest.param(2, id="shards-2"),
]
SECOND_NS = 1_000_000_000


class Operated:
    """A server with a configuration file that both kinds read."""

    def __init__(self, server: NatsServer, conf: Path) -> None:
        self.server = server
        self.conf = conf

    def reload(self, text: str) -> None:
        self.conf.write_text(text)
        os.kill(self.server.process.pid, signal.SIGHUP)

    def client(self, hello: bytes = HELLO) -> Wire:
        wire = Wire(self.server.port)
        wire.send(hello)
        return wire


@pytest.fixture(params=KINDS)
def operated(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Operated]]:
    """Given the file's text."""
    stack = []

    def start(text: str) -> Operated:
        conf = tmp_path / "nats.conf"
        conf.write_text(text)
        option = "-c" if request.param == 0 else "--nats-config"
        context = running(request.param, arguments=[option, str(conf)])
        stack.append(context)
        return Operated(context.__enter__(), conf)

    yield start
    for context in stack:
        context.__exit__(None, None, None)


def until(wire: Wire, wanted: bytes) -> bytes:
    """What came, up to that; or until the connection ended."""
    while wanted not in wire.heard.data and not wire.heard.closed:
        wire.receive()
    assert wanted in wire.heard.data, wire.heard
    return wire.heard.data


def infos(wire: Wire) -> list[dict[str, Any]]:
    return [json.loads(line[5:]) for line in wire.heard.data.split(b"\r\n") if line.startswith(b"INFO")]


@pytest.mark.parametrize("kind", KINDS)
def test_clients_are_told_the_name_of_the_host_that_was_asked_for(kind: int) -> None:
    """A certificate may be for the name, and not for the address."""
    with running(kind, host="localhost") as server, contextlib.closing(Wire(server.port)) as wire:
        assert json.loads(wire.info[5:])["host"] == "localhost"


def test_a_client_too_many_is_told_so(operated: Callable[[str], Operated]) -> None:
    server = operated("max_connections: 2")
    # The one that looked whether it serves may still be counted, by another acceptor.
    first = second = None
    while first is None or second is None:
        first, second = _let_in(server), _let_in(server)
        for one in (first, second):
            if one is not None and None in (first, second):
                one.close()
    third = server.client(b"")
    assert until(third, b"'maximum connections exceeded'\r\n") == b"-ERR 'maximum connections exceeded'\r\n"
    first.close()
    until_true(lambda: _is_let_in(server))


def _let_in(server: Operated) -> Wire | None:
    wire = server.client()
    while b"PONG" not in wire.heard.data:
        if wire.heard.closed:
            wire.close()
            return None
        wire.receive()
    return wire


def _is_let_in(server: Operated, hello: bytes = HELLO) -> bool:
    wire = server.client(hello)
    while not wire.heard.closed and b"PONG" not in wire.heard.data:
        wire.receive()
    wire.close()
    return b"PONG" in wire.heard.data


def until_true(what: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_server_that_is_left_alone_says_so(operated: Callable[[str], Operated]) -> None:
    """Else clients would go on to look for the others."""
    port = free_port()
    server = operated(f'cluster {{ name: xyz, listen: "127.0.0.1:{port}" }}\nclient_advertise: "192.0.2.9:1"')
    client = server.client()
    until(client, b"connect_info")
    assert all("connect_urls" not in info for info in infos(client))
    for number in (1, 2):
        other = f"192.0.2.{number}:4222"
        route = RouteWire.joined(port, info={**INFO, "connect_urls": [other]})
        until(client, other.encode())
        route.close()
        client.heard.data = b""
        until(client, b'"connect_urls":["192.0.2.9:1"]')


def test_messages_without_headers_and_subjects_with_few_tokens(operated: Callable[[str], Operated]) -> None:
    server = operated("no_header_support: true\nmax_sub_tokens: 3")
    client = server.client(b'CONNECT {"verbose":true,"headers":true}\r\nSUB a.b.c 1\r\nSUB a.b.c.d 2\r\nPING\r\n')
    assert json.loads(client.info[5:]).get("headers", False) is False
    until(client, b"PONG")
    error = b"-ERR 'Permissions Violation for Subscription to \"a.b.c.d\", too many tokens'\r\n"
    assert client.heard.data == b"+OK\r\n+OK\r\n" + error + b"PONG\r\n"
    client.send(b"PUB a.b.c.d 1\r\nx\r\nHPUB a.b.c 12 12\r\nNATS/1.0\r\n\r\n\r\n")
    while not client.heard.closed:
        client.receive()
    assert client.heard.data.endswith(b"PONG\r\n+OK\r\n")
    asker = server.client(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nPING\r\n')
    until(asker, b"-ERR 'no responders requires headers support'\r\n")


class TestReload:
    def test_a_new_limit_holds_for_those_who_are_there(self, operated: Callable[[str], Operated]) -> None:
        server = operated("max_payload: 1000")
        client = server.client()
        until(client, b"connect_info")
        server.reload("max_payload: 10")

        def is_refused(by: Wire) -> bool:
            by.send(b"PUB a 11\r\nelevenbytes\r\n")
            by.barrier()
            return b"-ERR 'Maximum Payload Violation'\r\n" in by.heard.data

        # Each acceptor hears of it by itself.
        until_true(lambda: is_refused(client))
        until_true(lambda: is_refused(server.client()))

    def test_of_an_account_that_may_have_fewer_the_rest_is_cut_off(self, operated: Callable[[str], Operated]) -> None:
        conf = "accounts { A { users [ {user: a, password: p} ], limits { max_connections: %d } } }"
        hello = b'CONNECT {"verbose":false,"user":"a","pass":"p"}\r\nPING\r\n'
        server = operated(conf % 5)
        clients = [server.client(hello) for _ in range(5)]
        for client in clients:
            until(client, b"PONG")
        server.reload(conf % 2)
        said = b"-ERR 'maximum account active connections exceeded'\r\n"

        def closed() -> list[Wire]:
            for client in clients:
                client.receive_what_is_there()
            return [client for client in clients if client.heard.closed]

        # Of two acceptors that look at one moment, each may leave the last place to the other.
        until_true(lambda: len(closed()) >= 3)
        assert all(client.heard.data.endswith(said) for client in closed())
        left = [client for client in clients if client not in closed()]
        for client in left:
            client.barrier()
        server.reload(conf % 5)
        until_true(lambda: _is_let_in(server, hello))

    def test_who_may_not_be_there_any_more_is_cut_off(self, operated: Callable[[str], Operated]) -> None:
        one = b'CONNECT {"verbose":false,"user":"one","pass":"1"}\r\nPING\r\n'
        server = operated('authorization { user: one, password: "1" }')
        client = server.client(one)
        until(client, b"PONG")
        server.reload('authorization { user: one, password: "2" }')
        while not client.heard.closed:
            client.receive()
        assert b"-ERR" not in client.heard.data  # test_reloaded_users.py
        # Each acceptor hears of it by itself.
        until_true(lambda: not _is_let_in(server, one))
        until_true(lambda: _is_let_in(server, one.replace(b'"1"', b'"2"')))

    def test_too_many_clients_are_cut_off(self, operated: Callable[[str], Operated]) -> None:
        server = operated("max_connections: 10")
        clients = [server.client() for _ in range(4)]
        for client in clients:
            until(client, b"PONG")
        server.reload("max_connections: 3")
        deadline = time.monotonic() + 60
        while not (cut := [client for client in clients if client.heard.closed]):
            assert time.monotonic() < deadline
            for client in clients:
                client.socket.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    client.receive()
        assert all(b"-ERR 'maximum connections exceeded'\r\n" in client.heard.data for client in cut)

    def test_nobody_may_connect_with_a_limit_of_0_and_messages_may_have_none(
        self, operated: Callable[[str], Operated]
    ) -> None:
        server = operated("max_payload: -1")
        client = server.client()
        client.send(b"SUB a 1\r\nPUB a 2000000\r\n" + bytes(2_000_000) + b"\r\n")
        while b"MSG a 1 2000000\r\n" not in client.heard.data or len(client.heard.data) < 2_000_000:
            client.receive()
        server.reload("max_connections: 0")
        until(client, b"-ERR 'maximum connections exceeded'\r\n")

        def is_refused() -> bool:  # by its acceptor, which hears of the new limit by itself
            other = server.client()
            while not other.heard.closed and b"PONG" not in other.heard.data:
                other.receive()
            other.close()
            return b"-ERR 'maximum connections exceeded'\r\n" in other.heard.data

        until_true(is_refused)

    def test_a_message_may_not_be_larger_than_what_may_wait(self, operated: Callable[[str], Operated]) -> None:
        server = operated("max_payload: 2000\nmax_pending: 4000")
        server.reload("max_payload: 5000\nmax_pending: 4000")
        until_true(lambda: "max_payload (5000) cannot be higher than max_pending (4000)" in server.server.said())
        client = server.client()
        until(client, b"PONG")
        assert json.loads(client.info[5:])["max_payload"] == 2000

    def test_what_cannot_be_read_changes_nothing(self, operated: Callable[[str], Operated]) -> None:
        server = operated("max_payload: 1000")
        client = server.client()
        until(client, b"PONG")
        server.reload("max_payload: nonsense")
        refusal = "cannot reload" if server.server.acceptors else "Failed to reload"
        until_true(lambda: refusal in server.server.said())
        client.send(b"PUB a 20\r\n" + b"x" * 20 + b"\r\nPING\r\n")
        client.barrier()
        assert not client.heard.closed

    def test_what_only_a_restart_can_change_is_said(self, operated: Callable[[str], Operated]) -> None:
        server = operated("server_name: one\nmax_payload: 1000")
        server.reload("server_name: two\nmax_payload: 10")
        ours = server.server.acceptors > 0
        text = "only a restart can change nats.server-name" if ours else "not supported for ServerName"
        until_true(lambda: text in server.server.said())
        wire = server.client()
        assert json.loads(wire.info[5:])["max_payload"] == 1000


class TestLameDuck:
    def test_clients_are_told_and_then_cut_off(self, operated: Callable[[str], Operated]) -> None:
        server = operated("")
        if server.server.acceptors == 0:
            pytest.skip("a real one takes half a minute")
        clients = [server.client() for _ in range(5)]
        for client in clients:
            until(client, b"connect_info")
        server.reload("")
        os.kill(server.server.process.pid, signal.SIGUSR2)
        for client in clients:
            until(client, b'"ldm":true')
            assert not client.heard.closed
        until_true(lambda: _is_refused(server.server.port))

    def test_the_broker_stops_when_all_are_gone(self, tmp_path: Path) -> None:
        settings = ["nats.lame-duck-grace-period=50ms", "nats.lame-duck-duration=300ms"]
        with running(2, settings) as server:
            clients = [Wire(server.port) for _ in range(5)]
            for client in clients:
                client.send(HELLO)
                until(client, b"connect_info")
            os.kill(server.process.pid, signal.SIGUSR2)
            for client in clients:
                while not client.heard.closed:
                    client.receive()
                assert infos(client)[-1]["ldm"] is True
            assert server.process.wait(5) == 0

    def test_the_broker_stops_at_once_when_nobody_is_there(self, operated: Callable[[str], Operated]) -> None:
        server = operated("").server
        time.sleep(0.05 if server.acceptors == 0 else 0)  # the connection that has waited for it is noticed as gone
        os.kill(server.process.pid, signal.SIGUSR2)
        assert server.process.wait(5) == 0

    def test_the_broker_does_not_wait_when_all_have_gone_by_themselves(self) -> None:
        with running(2) as server:
            clients = [Wire(server.port) for _ in range(3)]
            for client in clients:
                client.send(HELLO)
                until(client, b"connect_info")
            os.kill(server.process.pid, signal.SIGUSR2)
            for client in clients:
                until(client, b'"ldm":true')
                client.close()
            assert server.process.wait(8) == 0  # before the ten seconds that clients are given

    def test_clients_go_one_after_the_other(self) -> None:
        now = 0
        cut: list[tuple[int, int]] = []
        ends: list[int] = []
        retired: dict[int, int] = {}
        duck = LameDuck(
            range(100), lambda conn: retired.setdefault(conn, now), lambda conn: cut.append((conn, now)),
            lambda: ends.append(now), 10 * SECOND_NS, 20 * SECOND_NS, lambda: now, seed=1,
        )  # fmt: skip
        duck.expire()
        assert not retired and duck.wait_ns() == 9 * SECOND_NS
        while not ends:
            now += duck.wait_ns()
            before = len(retired), len(cut)
            duck.expire()
            assert len(retired) - before[0] + len(cut) - before[1] == 1
        assert [conn for conn, _ in cut] == list(retired) and sorted(retired) == list(range(100))
        assert cut[0][1] == 10 * SECOND_NS
        assert {at - retired[conn] for conn, at in cut} == {SECOND_NS}
        assert 14 * SECOND_NS < ends[0] <= 20 * SECOND_NS

    def test_very_many_go_in_little_time(self) -> None:
        now = 0
        cut: list[int] = []
        ends: list[int] = []
        duck = LameDuck(range(60_000), id, cut.append, lambda: ends.append(now), 0, SECOND_NS, lambda: now, seed=1)
        while not ends:
            now += duck.wait_ns()
            duck.expire()
        assert len(cut) == 60_000 and ends[0] <= 1.1 * SECOND_NS


def _is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


def test_files_say_where_it_is(operated: Callable[[str], Operated], tmp_path: Path) -> None:
    ports = tmp_path / "ports"
    ports.mkdir()
    server = operated(f'pid_file: "{tmp_path}/pid"\nports_file_dir: "{ports}"').server
    until_true(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() == str(server.process.pid))
    file = ports / f"nats-server_{server.process.pid}.ports"
    until_true(lambda: file.exists() and file.stat().st_size > 0)
    assert json.loads(file.read_text()) == {"nats": [f"nats://127.0.0.1:{server.port}"]}
    # Programs that start a server wait for these lines.
    listening, ready = f"Listening for client connections on 127.0.0.1:{server.port}\n", "Server is ready\n"
    until_true(lambda: ready in server.said())
    assert server.said().index(listening) < server.said().index(ready)


LISTENERS: Final = """
http: "127.0.0.1:-1"
websocket { host: "0.0.0.0", port: -1, no_tls: true }
cluster { listen: "[::1]:-1" }
leafnodes { listen: "127.0.0.1:-1" }
"""


@pytest.mark.skipif(nats_server() is None, reason="no nats-server to compare with")
@pytest.mark.parametrize("tls", ["", "tls {TLS}", "tls {TLS}\nallow_non_tls: true"])
def test_the_ports_file_is_a_nats_servers(tls: str, tmp_path: Path) -> None:
    pair = make(tmp_path).server
    block = f'{{ cert_file: "{pair.cert}", key_file: "{pair.key}" }}'
    (tmp_path / "conf").write_text(f'ports_file_dir: "{tmp_path}"\n' + tls.replace("{TLS}", block) + LISTENERS)
    found = []
    for kind in (0, 1):
        option = "-c" if kind == 0 else "--nats-config"
        with running(kind, arguments=[option, str(tmp_path / "conf")], is_silent=True) as server:
            file = tmp_path / f"nats-server_{server.process.pid}.ports"
            until_true(lambda file=file: file.exists() and file.stat().st_size > 0)
            ports = json.loads(file.read_text())
            found.append({name: sorted(url.rpartition(":")[0] for url in urls) for name, urls in ports.items()})
        until_true(lambda file=file: not file.exists())
    assert found[1] == found[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("words", "why"), {
    ("-P", "/nosuch/pid"): "Could not write pidfile: open /nosuch/pid: no such file or directory",
    ("--routes", "nats://127.0.0.1:1"): "solicited routes require cluster capabilities, e.g. --cluster",
}.items())  # fmt: skip
def test_what_a_nats_server_does_not_start_with(kind: int, words: tuple[str, str], why: str) -> None:
    ours = [sys.executable, "-m", "mq_shards.supervisor.command", "as", "nats-server"]
    command = [*([str(nats_server())] if kind == 0 else ours), "-a", "127.0.0.1", "-p", "-1", *words]
    found = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, cwd=ROOT)
    assert found.returncode > 0 and why in found.stderr


class TestOwnAddresses:
    def test_what_is_advertised_is_said(self) -> None:
        assert own_urls("127.0.0.1", 4222, "") == ["127.0.0.1:4222"]
        assert own_urls("127.0.0.1", 4222, "example.org") == ["example.org:4222"]
        assert own_urls("127.0.0.1", 4222, "example.org:5") == ["example.org:5"]
        assert own_urls("127.0.0.1", 4222, "[::1]:5") == ["[::1]:5"]
        assert own_urls("::1", 4222, "") == ["[::1]:4222"]

    def test_all_addresses_are_said_when_it_listens_on_all(self) -> None:
        found = own_urls("0.0.0.0", 4222, "")
        assert found and "127.0.0.1:4222" not in found
