"""Strangers who hold all connections of an acceptor and say nothing, or never end what they begin to say: those of them
that wait longest give their places to newcomers, whichever listener these come to."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.acceptor.engine import protocol_number

from tests import servers
from tests.acceptor.bench import BEANSTALK, SECOND, Bench
from tests.nsq import certificates
from tests.pulsar import wire as pulsar
from tests.servers import SINGLE, Server

HOST = "127.0.0.1"
MOST = 24
WAIT_S = 60.0
# What strangers send and then wait: nothing, a greeting, half of a command, of a head, of a handshake.
SAID = (b"", b"  V2", b"put 0 0 60 ", b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\n", b"\x16\x03\x01\x02\x00\x01", b"PIN")


class Bound(Bench):
    """Its clients connect, since only those that were accepted may have to give way."""

    def __init__(self) -> None:
        super().__init__()
        self.acceptor.set("max-connections", 3)
        self.now_ns = SECOND
        self.acceptor.turn(self.now_ns)
        self.listen(BEANSTALK)

    def listen(self, protocol: int) -> None:
        """From now on the clients speak that protocol."""
        self.listener = socket.create_server((HOST, 0), backlog=64)
        self.listener.setblocking(False)
        self.acceptor.listen(self.listener.dup().detach(), protocol)

    def stranger(self, said: bytes = b"") -> socket.socket:
        sock = socket.create_connection(self.listener.getsockname(), 10)
        sock.setblocking(False)
        if said:
            sock.sendall(said)
        self.turn()
        return sock

    def later(self, ns: int) -> None:
        self.now_ns += ns
        self.acceptor.turn(self.now_ns)
        self.turn()


@pytest.fixture
def bound() -> Iterator[Bound]:
    bench = Bound()
    yield bench
    bench.listener.close()
    bench.close()


def is_open(sock: socket.socket) -> bool:
    try:
        return sock.recv(100) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_who_is_silent_longest_gives_way_after_a_second(bound: Bound) -> None:
    known = bound.stranger(b"use a\r\n")
    assert known.recv(100) == b"USING a\r\n"
    first, second = bound.stranger(), bound.stranger(b"put 0 0")
    third = bound.stranger(b"use b\r\n")
    assert is_open(first) and bound.full == [0] and bound.acceptor.totals().connections == 3
    bound.later(SECOND)
    assert not is_open(first) and third.recv(100) == b"USING b\r\n"
    fourth = bound.stranger(b"use c\r\n")
    assert not is_open(second) and fourth.recv(100) == b"USING c\r\n"
    # Nobody is silent any more: the next one waits, however long.
    fifth = bound.stranger(b"use d\r\n")
    bound.later(100 * SECOND)
    with pytest.raises(BlockingIOError):
        fifth.recv(100)
    assert bound.acceptor.totals().gave_way == 2
    assert bound.gave_way == 1, "Python is told once a second"
    for sock in (known, third, fourth):
        sock.sendall(b"use e\r\n")
        bound.turn()
        assert sock.recv(100) == b"USING e\r\n"


def test_who_goes_on_sending_a_long_command_is_not_silent(bound: Bound) -> None:
    bound.listen(protocol_number("nsq-http"))
    sender = bound.stranger(b"POST /pub?topic=t HTTP/1.1\r\nCookie: ")
    first, second = bound.stranger(), bound.stranger()
    bound.later(SECOND // 2)
    sender.sendall(5000 * b"c")
    bound.later(SECOND // 2)
    newcomers = [bound.stranger()]
    assert is_open(sender) and not is_open(first) and is_open(second)
    newcomers.append(bound.stranger())
    assert is_open(sender) and not is_open(second)
    bound.later(SECOND)
    newcomers.append(bound.stranger())
    assert not is_open(sender) and all(map(is_open, newcomers))


def test_what_has_come_while_the_acceptor_stood_still_counts(bound: Bound) -> None:
    """The newcomer may be looked at before what the others have sent."""
    socks = [bound.stranger() for _ in range(3)]
    for sock in socks:
        sock.sendall(b"use a\r\n")
    newcomer = socket.create_connection(bound.listener.getsockname(), 10)
    bound.later(100 * SECOND)
    assert [sock.recv(100) for sock in socks] == [b"USING a\r\n"] * 3
    assert bound.gave_way == 0
    newcomer.close()


# --- a broker with all listeners --------------------------------------------------------------------------------------


class Listening:
    def __init__(self, tmp_path: Path, *options: str) -> None:
        made = certificates.make(tmp_path)
        self.context = made.context()
        self.unix = str(tmp_path / "socket")
        schemes = ("beanstalks", "nsq", "nsq-http", "nsq-https", "nats", "pulsar")
        self.ports = {scheme: servers.free_port() for scheme in schemes}
        listen = [f"--listen={scheme}://{HOST}:{port}" for scheme, port in self.ports.items()]
        tls = [f"--set=tls.cert={made.server.cert}", f"--set=tls.key={made.server.key}"]
        tls += [f"--set=pulsar.tls-cert-file={made.server.cert}", f"--set=pulsar.tls-key-file={made.server.key}"]
        unix = f"--listen=beanstalk://unix:{self.unix}"
        self.server: Server = servers.start(SINGLE, options=(*listen, unix, *tls, *options))
        self.ports["beanstalk"] = self.server.port

    def connect(self, scheme: str) -> socket.socket:
        if scheme == "unix":
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(WAIT_S)
            sock.connect(self.unix)
            return sock
        return socket.create_connection((HOST, self.ports[scheme]), WAIT_S)

    def encrypted(self, scheme: str) -> ssl.SSLSocket:
        return self.context.wrap_socket(self.connect(scheme), server_hostname="localhost")


def exchange(sock: socket.socket, said: bytes, expected: bytes) -> socket.socket:
    sock.sendall(said)
    answer = b""
    while expected not in answer and (more := sock.recv(4096)):
        answer += more
    assert expected in answer, answer
    return sock


USE, USING = b"use x\r\n", b"USING x\r\n"
PUB, PUBLISHED = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", b"\r\n\r\nOK"
NSQ = b"  V2PUB t\n\0\0\0\5hello"


def newcomers(at: Listening) -> list[socket.socket]:
    return [
        exchange(at.connect("beanstalk"), USE, USING),
        exchange(at.connect("unix"), USE, USING),
        exchange(at.encrypted("beanstalks"), USE, USING),
        exchange(at.connect("nsq"), NSQ, b"OK"),
        exchange(at.connect("nsq-http"), PUB, PUBLISHED),
        exchange(at.encrypted("nsq-https"), PUB, PUBLISHED),
        exchange(at.connect("nats"), b"CONNECT {}\r\nPING\r\n", b"PONG"),
        exchange(at.connect("pulsar"), pulsar.encode("connect", client_version="t", protocol_version=21), b"\x08"),
        exchange(at.encrypted("pulsar"), pulsar.encode("connect", client_version="t", protocol_version=21), b"\x08"),
    ]


@pytest.mark.parametrize("limit", ["max-connections", "descriptors"])
def test_strangers_at_all_listeners_keep_no_client_out(tmp_path: Path, limit: str) -> None:
    at = Listening(tmp_path, *([f"--set=broker.max-connections={MOST}"] if limit == "max-connections" else []))
    with contextlib.ExitStack() as stack:
        stack.callback(at.server.dispose)
        for early in newcomers(at):  # what is loaded for a protocol's first client takes descriptors, too
            early.close()
        if limit == "descriptors":
            pid = at.server.pid_of("mq-acceptor-0")
            used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + MOST, used + MOST))
        schemes = [*at.ports, "unix"]
        strangers = [at.connect(schemes[n % len(schemes)]) for n in range(4 * MOST)]
        for n, sock in enumerate(strangers):
            stack.callback(sock.close)
            with contextlib.suppress(ConnectionError):
                sock.sendall(SAID[n % len(SAID)])
        there = newcomers(at)
        for sock in there:
            stack.callback(sock.close)
        assert "made room for new ones" in at.server.said()
        # Those that have said something have stayed.
        exchange(there[0], USE, USING)
        exchange(there[3], NSQ[4:], b"OK")
        exchange(there[6], b"PING\r\n", b"PONG")
