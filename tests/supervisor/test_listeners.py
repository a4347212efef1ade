"""Where a broker listens besides ports of its own: socket files, and sockets that systemd has bound."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mq_shards.gateway.http_answers import Answer, json_answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_server import HttpServer, Request
from mq_shards.ringbuf import listening
from mq_shards.supervisor import inherited
from mq_shards.supervisor.listeners import Listener, ListenError, listen_on
from mq_shards.supervisor.options.listen import Listen, parse_listen
from mq_shards.supervisor.unix_sockets import Access

from tests.servers import ROOT, free_port, wait_until

COMMAND = (sys.executable, "-m", "mq_shards.supervisor.command", "--memory", "--workers", "1", "--acceptors", "2")
PUT = b"put 0 0 60 1\r\na\r\n"
PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
PUB = b"  V2PUB t\n\0\0\0\1x"
CLUSTERS = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\n\r\n"
# Of a client "t" with protocol version 19.
PULSAR_CONNECT = bytes.fromhex("0000000d 00000009 0802 1205 0a0174 2013".replace(" ", ""))


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.fixture
def said(tmp_path: Path) -> Path:
    return tmp_path / "stderr"


def start(
    said: Path, *options: str, passed: tuple[socket.socket, ...] = (), names: str = ""
) -> subprocess.Popen[bytes]:
    """`passed` as systemd would: from descriptor 3 on."""
    fds = [sock.fileno() for sock in passed]
    # In two steps: a descriptor may stand where another is to go.
    moved = " ".join(f"{100 + n}<&{fd}" for n, fd in enumerate(fds))
    moved += " " + " ".join(f"{3 + n}<&{100 + n}" for n in range(len(fds)))
    script = f'exec {moved}; LISTEN_PID=$$ LISTEN_FDS={len(fds)} LISTEN_FDNAMES={names} exec "$@"'
    command = [*COMMAND, *options] if not fds else ["bash", "-c", script, "x", *COMMAND, *options]
    with said.open("wb") as sink:
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=sink, pass_fds=fds)


@pytest.fixture
def brokers() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def connected(where: Path | tuple[str, int]) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX if isinstance(where, Path) else socket.AF_INET)
    sock.settimeout(20)
    sock.connect(str(where) if isinstance(where, Path) else where)
    return sock


def ask(where: Path | tuple[str, int], data: bytes) -> bytes:
    with connected(where) as sock:
        sock.sendall(data)
        return sock.recv(4096)


def talk(where: Path | tuple[str, int], data: bytes, until: bytes) -> bytes:
    said = b""
    with connected(where) as sock:
        sock.sendall(data)
        while until not in said and (more := sock.recv(4096)):
            said += more
    return said


def test_every_protocol_is_served_on_socket_files_which_go_at_the_stop(
    tmp_path: Path, said: Path, brokers: list[subprocess.Popen[bytes]]
) -> None:
    names = ("beanstalk", "nsq", "nsq-http", "nats", "nats-http", "pulsar", "pulsar-http", "http")
    options = [f"--listen={name}://unix:{tmp_path}/{name}" for name in names]
    process = start(said, *options, "--set=broker.unix-mode=600")
    brokers.append(process)
    wait_until(lambda: "listening on http://unix:" in said.read_text(), "it listens", 60)
    for _ in range(8):  # whichever acceptor takes it
        assert ask(tmp_path / "beanstalk", PUT).startswith(b"INSERTED")
    assert ask(tmp_path / "nsq", PUB)[8:] == b"OK"
    assert ask(tmp_path / "nsq-http", PING).endswith(b"OK")
    assert ask(tmp_path / "http", PING).startswith(b"HTTP/1.1 404 ")
    assert b"PONG" in talk(tmp_path / "nats", b"CONNECT {}\r\nPING\r\n", b"PONG")
    assert b'"server_id"' in talk(tmp_path / "nats-http", b"GET /varz HTTP/1.1\r\nHost: x\r\n\r\n", b"server_id")
    assert b"standalone" in talk(tmp_path / "pulsar-http", CLUSTERS, b"standalone")
    assert b"mq-shards" in talk(tmp_path / "pulsar", PULSAR_CONNECT, b"mq-shards")
    assert all(stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600 for name in names)
    process.terminate()
    assert process.wait(20) == 0
    assert not any((tmp_path / name).exists() for name in names)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_socket_file_is_its_owners(tmp_path: Path) -> None:
    (listener,) = listen_on([parse_listen(f"nsq://unix:{tmp_path}/s")], 1, Access(0o620, 12345, 23456))
    found = (tmp_path / "s").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o620, 12345, 23456)
    listener.close()


def test_what_a_killed_broker_has_left_is_taken_over_but_nobody_elses(tmp_path: Path) -> None:
    wanted = [parse_listen(f"nsq://unix:{tmp_path}/s")]
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    (listener,) = listen_on(wanted, 1, Access(0o640))
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o640
    with pytest.raises(ListenError, match="Address already in use"):
        listen_on(wanted, 1)
    connected(tmp_path / "s").close()
    (tmp_path / "s").unlink()
    (tmp_path / "s").write_text("another's")
    with pytest.raises(ListenError, match="File exists"):
        listen_on(wanted, 1)
    listener.close()
    assert (tmp_path / "s").read_text() == "another's", "it is not removed by who did not make it"


def taken(wanted: list[Listen], acceptors: int) -> list[Listener]:
    try:
        return listen_on(wanted, acceptors)
    except ListenError as error:
        assert "Address already in use" in str(error)
        return []


def close(listeners: list[Listener]) -> None:
    for listener in listeners:
        listener.close()


def with_closed_connections() -> int:
    """A port that has connections of an earlier broker in TIME_WAIT."""
    (listener,) = listen_on([parse_listen("nats://127.0.0.1:0")], 1)
    served(listener)
    with connected(("127.0.0.1", listener.address.port)) as client:
        listener.sockets[0].accept()[0].close()
        assert client.recv(1) == b""
    listener.close()
    return listener.address.port


def served(listener: Listener) -> Listener:
    for sock in listener.sockets:
        listening.begin(sock, 200)
    return listener


@pytest.mark.parametrize("step", ["bind", "listen", "setsockopt", "shutdown"])
@pytest.mark.parametrize("is_restart", [False, True], ids=["new port", "closed connections"])
@pytest.mark.parametrize("acceptors", [1, 3])
def test_of_two_brokers_that_begin_at_one_moment_one_has_the_port(
    acceptors: int, is_restart: bool, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [parse_listen(f"nats://127.0.0.1:{with_closed_connections() if is_restart else free_port()}")]
    others: list[Listener] = []

    class Interrupted(socket.socket):
        """After `step` another broker comes, and takes all its own steps."""

    def interrupted(self: socket.socket, *arguments: Any) -> None:  # noqa: ANN401
        getattr(super(Interrupted, self), step)(*arguments)
        if socket.socket is Interrupted:
            monkeypatch.undo()
            others.extend(taken(wanted, acceptors))

    setattr(Interrupted, step, interrupted)
    monkeypatch.setattr(socket, "socket", Interrupted)
    ours = taken(wanted, acceptors)
    monkeypatch.undo()
    others.extend(taken(wanted, acceptors))  # nobody after them, though neither listens yet
    try:
        assert len(ours) + len(others) == 1
        (listener,) = ours or others
        assert len(listener.sockets) == acceptors
        served(listener)
        connected(("127.0.0.1", listener.address.port)).close()
    finally:
        close(ours + others)


@pytest.mark.parametrize("is_restart", [False, True], ids=["new port", "closed connections"])
@pytest.mark.parametrize("acceptors", [1, 3])
@pytest.mark.parametrize("other", ["127.0.0.1", "0.0.0.0"])
def test_a_port_is_taken_at_once_and_refuses_clients_until_it_is_served(
    other: str, acceptors: int, is_restart: bool
) -> None:
    port = with_closed_connections() if is_restart else free_port()
    (listener,) = listen_on([parse_listen(f"nats://127.0.0.1:{port}")], acceptors)
    try:
        # Sockets of several acceptors are shared with a program of the same user that asks for that.
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT)[: 2 if acceptors == 1 else 1]:
            with socket.socket() as program, pytest.raises(OSError, match="Address already in use"):
                program.setsockopt(socket.SOL_SOCKET, option, 1)
                program.bind((other, port))
        with pytest.raises(ConnectionRefusedError):
            connected(("127.0.0.1", port))
        served(listener)
        connected(("127.0.0.1", port)).close()
    finally:
        listener.close()


@pytest.mark.parametrize("scheme", ["beanstalk", "nsq", "nsq-http"])
@pytest.mark.parametrize("acceptors", [1, 3])
def test_clients_of_beanstalkd_and_nsq_wait_until_they_are_served(scheme: str, acceptors: int) -> None:
    (listener,) = listen_on([parse_listen(f"{scheme}://127.0.0.1:0")], acceptors)
    try:
        connected(("127.0.0.1", listener.address.port)).close()
        with pytest.raises(ListenError, match="Address already in use"):
            listen_on([parse_listen(f"{scheme}://127.0.0.1:{listener.address.port}")], acceptors)
    finally:
        listener.close()


def test_one_acceptor_that_serves_gets_all_clients_until_the_others_do() -> None:
    (listener,) = listen_on([parse_listen("nats://127.0.0.1:0")], 3)
    listening.begin(listener.sockets[1], 200)
    try:
        for _ in range(20):
            with connected(("127.0.0.1", listener.address.port)):
                listener.sockets[1].accept()[0].close()
    finally:
        listener.close()


def test_connections_are_spread_over_the_sockets_of_all_acceptors() -> None:
    (listener,) = listen_on([parse_listen("nsq://127.0.0.1:0")], 3)
    served(listener)
    clients = [connected(listener.sockets[0].getsockname()) for _ in range(120)]
    try:
        for sock in listener.sockets:
            sock.accept()[0].close()  # none has had nothing: there would be BlockingIOError
    finally:
        for client in clients:
            client.close()
        listener.close()


def test_no_host_means_all_addresses() -> None:
    listeners = listen_on([parse_listen("nsq://:0")], 2)
    try:
        assert {listener.address.host for listener in listeners} <= {"0.0.0.0", "::"}
        found = next(listener for listener in listeners if listener.address.host == "0.0.0.0")
        port = served(found).address.port
        connected(("127.0.0.1", port)).close()
    finally:
        for listener in listeners:
            listener.close()


def over(port: int, host: str) -> socket.socket:
    return socket.create_connection((host, port), 20)


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="there is no IPv6 here")


@needs_ipv6
@pytest.mark.parametrize("host", ["0.0.0.0", "", "[::]"])
def test_a_socket_of_both_kinds_takes_both_and_is_called_as_it_was_named(host: str) -> None:
    (listener,) = listen_on([parse_listen(f"nsq://{host}:0?both")], 2)
    port = served(listener).address.port
    try:
        assert listener.address.host == ("::" if "::" in host else "0.0.0.0") and len(listener.sockets) == 2
        assert {sock.getsockname()[:2] for sock in listener.sockets} == {("::", port)}
        over(port, "::1").close()
        over(port, "127.0.0.1").close()
        # No other broker comes in beside it, by either kind.
        for other in (f"0.0.0.0:{port}?both", f"0.0.0.0:{port}", f"[::]:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
            with pytest.raises(ListenError, match="Address already in use"):
                listen_on([parse_listen(f"nsq://{other}")], 1)
    finally:
        listener.close()


@needs_ipv6
@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "[::]", "[::1]"])
def test_a_port_that_is_taken_by_one_kind_is_refused_to_both(host: str) -> None:
    (taken,) = listen_on([parse_listen(f"nsq://{host}:0")], 1)
    try:
        with pytest.raises(ListenError, match=r"nsq://0\.0\.0\.0:\d+: Address already in use"):
            listen_on([parse_listen(f"nsq://0.0.0.0:{taken.address.port}?both")], 1)
    finally:
        taken.close()


@needs_ipv6
def test_what_is_named_for_one_kind_takes_only_that() -> None:
    (four,) = listen_on([parse_listen("nsq://0.0.0.0:0")], 1)
    port = four.address.port
    (six,) = listen_on([parse_listen(f"nsq://[::]:{port}")], 1)
    four.close()
    served(six)
    try:
        over(port, "::1").close()
        with pytest.raises(ConnectionRefusedError):
            over(port, "127.0.0.1")
    finally:
        six.close()


@needs_ipv6
@pytest.mark.parametrize("host", ["::", "::1"])
def test_an_address_of_ipv6_on_the_same_port_has_it(host: str) -> None:
    port = free_port()
    listeners = listen_on([parse_listen(f"nsq://0.0.0.0:{port}?both"), parse_listen(f"nsq://[{host}]:{port}")], 1)
    try:
        assert [listener.address.host for listener in listeners] == ["0.0.0.0", host]
        assert listeners[0].sockets[0].family == socket.AF_INET
        for listener in listeners:
            served(listener)
        over(port, "::1").close()
        over(port, "127.0.0.1").close()
    finally:
        for listener in listeners:
            listener.close()


@pytest.mark.parametrize("missing", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EACCES])
def test_without_ipv6_both_is_ipv4(monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    def without(family: int, *arguments: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(missing, os.strerror(missing))
        return real(family, *arguments)

    real = socket.socket
    monkeypatch.setattr("mq_shards.supervisor.listeners.socket.socket", without)
    (listener,) = listen_on([parse_listen("nsq://0.0.0.0:0?both")], 2)
    monkeypatch.undo()
    try:
        assert {sock.family for sock in listener.sockets} == {socket.AF_INET}
        assert listener.address.host == "0.0.0.0"
        served(listener)
        connected(("127.0.0.1", listener.address.port)).close()
    finally:
        listener.close()


def test_the_service_managers_sockets_of_either_kind_are_taken_for_both() -> None:
    with socket.create_server(("0.0.0.0", 0)) as four:
        port = four.getsockname()[1]
        passed = [inherited.Inherited("a", four)]
        (listener,) = listen_on([parse_listen(f"nsq://0.0.0.0:{port}?both")], 2, passed=passed)
        assert listener.inherited and passed[0].taken and listener.address.host == "0.0.0.0"


@needs_ipv6
def test_clients_of_ipv4_are_shown_as_such_behind_a_socket_of_both_kinds(
    said: Path, brokers: list[subprocess.Popen[bytes]]
) -> None:
    nats, nats_http, nsq, nsq_http = (free_port() for _ in range(4))
    options = (
        f"--listen=nats://0.0.0.0:{nats}?both", f"--listen=nats-http://0.0.0.0:{nats_http}?both",
        f"--listen=nsq://0.0.0.0:{nsq}?both", f"--listen=nsq-http://0.0.0.0:{nsq_http}?both",
    )  # fmt: skip
    brokers.append(start(said, *options))
    wait_until(lambda: "listening on nsq-http://0.0.0.0:" in said.read_text(), "it listens", 60)
    with over(nats, "127.0.0.1") as four, over(nats, "::1") as six:
        for sock, address in ((four, "127.0.0.1"), (six, "::1")):
            sock.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            info = b""
            while b"PONG" not in info:
                info += sock.recv(4096)
            assert f'"client_ip":"{address}"'.encode() in info and b'"host":"0.0.0.0"' in info
        for host in ("127.0.0.1", "[::1]"):
            with urllib.request.urlopen(f"http://{host}:{nats_http}/connz", timeout=20) as answer:
                assert {one["ip"] for one in json.load(answer)["connections"]} == {"127.0.0.1", "::1"}
        with urllib.request.urlopen(f"http://127.0.0.1:{nats_http}/varz", timeout=20) as answer:
            varz = json.load(answer)
            assert (varz["host"], varz["http_host"]) == ("0.0.0.0", "0.0.0.0")
    with over(nsq, "127.0.0.1") as four, over(nsq, "::1") as six:
        for sock in (four, six):
            sock.sendall(b"  V2SUB t c\n")
            assert sock.recv(100).endswith(b"OK")
        with urllib.request.urlopen(f"http://127.0.0.1:{nsq_http}/stats?format=json", timeout=20) as answer:
            clients = json.load(answer)["topics"][0]["channels"][0]["clients"]
        ports = {four.getsockname()[1]: "127.0.0.1", six.getsockname()[1]: "[::1]"}
        assert {one["remote_address"] for one in clients} == {f"{host}:{port}" for port, host in ports.items()}
    assert "::ffff:" not in said.read_text()


@needs_ipv6
def test_over_http_a_client_of_ipv4_is_known_as_such() -> None:
    async def peers() -> list[str]:
        server = HttpServer(serve, Bodies(), 8)
        (listener,) = listen_on([parse_listen("http://0.0.0.0:0?both")], 1)
        await server.listen(listener.sockets[0], 8)
        for host in ("127.0.0.1", "::1"):
            reader, writer = await asyncio.open_connection(host, listener.address.port)
            writer.write(PING)
            found.append((await reader.read(4096)).partition(b"\r\n\r\n")[2].decode())
            writer.close()
        await server.close(1)
        return found

    async def serve(request: Request) -> Answer:
        return json_answer(request.peer)

    found: list[str] = []
    assert asyncio.run(peers()) == ['"127.0.0.1"', '"::1"']


def test_sockets_of_the_service_manager_are_served_by_address_by_name_and_in_turn(
    said: Path, brokers: list[subprocess.Popen[bytes]]
) -> None:
    passed = tuple(socket.create_server(("127.0.0.1", 0)) for _ in range(4))
    where = [sock.getsockname() for sock in passed]
    options = (
        f"--listen=beanstalk://127.0.0.1:{where[2][1]}", "--listen=nsq://systemd", "--listen=nsq-http://systemd:web",
    )  # fmt: skip
    process = start(said, *options, passed=passed, names="a:web:c:d")
    brokers.append(process)
    assert ask(where[2], PUT).startswith(b"INSERTED")
    assert ask(where[1], PING).endswith(b"OK")
    assert ask(where[0], PUB)[8:] == b"OK"
    wait_until(lambda: "socket 3 of the service manager (d) is not used" in said.read_text(), "it says so")
    process.terminate()
    assert process.wait(20) == 0
    for sock in passed:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), "they stay the service manager's"
        sock.close()


def test_a_socket_that_was_not_handed_over_is_one_clear_line(said: Path) -> None:
    process = start(said, "--listen=nsq://systemd:nobody")
    assert process.wait(20) == 1
    assert "the service manager has handed over no such socket" in said.read_text()
    assert len(said.read_text().splitlines()) == 1


def test_what_is_for_another_process_is_left_alone_and_forgotten() -> None:
    environment = {"LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x"}
    assert inherited.take(environment) == []
    assert environment == {}
