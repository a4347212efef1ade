"""Strangers of all kinds, at all listeners of one broker, at the same time: its limits hold over all of them together,
other clients' commands are answered as before, and when they are gone what they took is given back."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from statistics import median

import pytest

from perf.brokers import cpu_ns
from tests.nsq import frames
from tests.nsq.api import call
from tests.nsq.frames import size
from tests.nsq.process_memory import own_bytes
from tests.nsq.servers import HOST, SHARDS, NsqServer, listening, running
from tests.nsq.wire import Wire, consumer
from tests.servers import comm_of, free_port, wait_until
from tests.strangers.test_bombs import deflate_bomb

MIB = 1 << 20
LIMIT = 48 * MIB
OF_A_KIND = 25
BLOCKS = 2 * (32 << 10)  # beside the limit, of each connection (docs/limits.md)
PROCESSES = ("mq-acceptor", "mq-gateway")
ROUNDS = 10
# What all its processes do for others before one is answered, on the median and at most (when all begin): not how long
# that takes, on a machine that is busy with other things too. There they have more from others by the time that they
# run.
BUSY_NS, MOST_BUSY_NS = 60_000_000, 1_000_000_000


class Stranger:
    """Says what it has to say as far as it is taken, and never reads."""

    def __init__(self, port: int, said: bytes, *, greeted: bool = False) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(10)
        self.socket.connect((HOST, port))
        if greeted:
            self.socket.recv(4096)
        self.socket.setblocking(False)
        self.left = said

    def go_on(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for _ in range(4):
                if not self.left:
                    break
                self.left = self.left[self.socket.send(self.left[: 64 << 10]) :]

    def ends_output(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)


class Trickle(Stranger):
    """A byte at a time."""

    def go_on(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self.left = self.left[self.socket.send(self.left[:1]) :]


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {scheme: free_port() for scheme in ("nats", "pulsar", "pulsar-http", "http")}


@pytest.fixture(scope="module")
def server(ports: dict[str, int]) -> Iterator[NsqServer]:
    listen = [f"--listen={scheme}://{HOST}:{port}" for scheme, port in ports.items()]
    options = ["--set", f"broker.max-buffered-bytes={LIMIT}", "--set", f"beanstalk.max-job-size={2 * MIB}"]
    with running(SHARDS, arguments=[*listen, *options]) as server:
        wait_until(lambda: "pulsar" in listening(server), "it listens everywhere")
        assert call(server, "GET", "/ping").body == b"OK"  # it begins the gateway
        yield server


def http(target: str, length: int, body: bytes = b"", more: bytes = b"") -> bytes:
    return f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n".encode() + more + b"\r\n" + body


def strangers(server: NsqServer, ports: dict[str, int]) -> Iterator[Stranger]:
    half_put = b"put 0 0 60 %d\r\n" % (2 * MIB) + b"x" * (3 * MIB // 2)
    half_mpub = b"  V2MPUB room\n" + size(5 * MIB - 4) + size(1) + size(MIB - 1) + b"x" * (MIB - 5)
    publish = b"PUB a.b 1000\r\n%s\r\n" % (b"x" * 1000)
    identify = frames.identify(feature_negotiation=True, deflate=True)
    half_pulsar = struct.pack(">II", 5 * MIB, 40) + b"\x08\x06" + b"x" * MIB
    for n in range(OF_A_KIND):
        nsq = server.port
        yield Stranger(server.beanstalk_port, half_put)
        # Replies that nobody takes, to commands that never end.
        yield Stranger(server.beanstalk_port, b"stats\r\nlist-tubes\r\nuse t\r\nput 0 0 60 1\r\nx\r\n" * 5000)
        yield Stranger(server.beanstalk_port, b"reserve-with-timeout 1\r\n" * 20_000)
        yield Trickle(server.beanstalk_port, b"put 0 0 60 10\r\n0123456789\r\nstats-tube default\r\n" * 100)
        yield Stranger(nsq, half_mpub)
        yield Stranger(nsq, b"  V2" + identify + deflate_bomb(20 * MIB))
        yield Stranger(nsq, b"  V2SUB strangers c%d\nRDY 2500\n" % n)
        yield Stranger(nsq, b"NOP\n" * 100_000)
        yield Stranger(ports["nats"], b"CONNECT {}\r\nSUB > 1\r\n" + b"PING\r\n" * 50_000, greeted=True)
        yield Stranger(ports["nats"], b"CONNECT {}\r\n" + publish * 2000, greeted=True)
        yield Stranger(ports["nats"], b"CONNECT " + b"{" * 100_000, greeted=True)
        yield Stranger(ports["pulsar"], half_pulsar)
        yield Stranger(ports["pulsar"], b"\0" * MIB)
        for api in (server.http_port, ports["pulsar-http"], ports["http"]):
            yield Stranger(api, b"GET / HTTP/1.1\r\nHost: h\r\n" + b"x: y\r\n" * 20_000)
            yield Stranger(api, http("/pub?topic=half", 4 * MIB, b"x" * (2 * MIB)))
        yield Stranger(server.http_port, http("/pub?topic=many", 5, b"hello") * 2000)
        yield Stranger(server.http_port, http("/mpub?topic=many", 5 * MIB, b"x" * 1000, b"Expect: 100-continue\r\n"))
        for port in (server.beanstalk_port, nsq, server.http_port, *ports.values()):
            silent = Stranger(port, b"")
            silent.ends_output()
            yield silent


class Others:
    """A client of each protocol that minds its own business."""

    def __init__(self, server: NsqServer, ports: dict[str, int]) -> None:
        self._tubes = socket.create_connection((HOST, server.beanstalk_port), timeout=60)
        self._tubes.sendall(b"use others\r\n")
        assert self._tubes.recv(100) == b"USING others\r\n"
        self._nsq = Wire(server)
        self._nsq.socket.settimeout(20)
        self._nsq.identify(heartbeat_interval=-1)
        self._nats = socket.create_connection((HOST, ports["nats"]), timeout=60)
        self._nats.recv(4096)
        self._nats.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert self._nats.recv(100) == b"PONG\r\n"
        self._api = socket.create_connection((HOST, server.http_port), timeout=60)

    def close(self) -> None:
        for each in (self._tubes, self._nsq.socket, self._nats, self._api):
            each.close()

    def say(self, sock: socket.socket, said: bytes, expected: bytes) -> None:
        sock.sendall(said)
        while (heard := sock.recv(4096)) == b"PING\r\n":  # of a NATS server, to a client that is new
            pass
        assert heard.startswith(expected), heard

    def waits(self, pids: Iterable[int]) -> dict[str, int]:
        """How long the broker's processes work before each is answered, in nanoseconds."""
        actions: dict[str, Callable[[], object]] = {
            "beanstalk": lambda: self.say(self._tubes, b"put 0 0 60 5\r\nhello\r\n", b"INSERTED "),
            "nsq": lambda: self._nsq.publish("others", b"hello"),
            "nats": lambda: self.say(self._nats, b"PUB others.x 5\r\nhello\r\nPING\r\n", b"PONG\r\n"),
            "api": lambda: self.say(self._api, http("/pub?topic=others", 5, b"hello"), b"HTTP/1.1 200 "),
        }
        found = dict[str, int]()
        for name, action in actions.items():
            since = cpu_ns(pids)
            action()
            found[name] = cpu_ns(pids) - since
        return found


def held(server: NsqServer) -> dict[str, int]:
    return {kind: own_bytes(server, kind) for kind in PROCESSES}


@pytest.mark.timeout(240)
def test_limits_hold_over_all_of_them_and_others_are_served_as_before(server: NsqServer, ports: dict[str, int]) -> None:
    consumer(server, "strangers", "c0").close()
    with Wire(server) as wire:
        for _ in range(60):
            wire.publish_many("strangers", [b"x" * 10_000] * 50)
    others = Others(server, ports)
    pids = {pid: comm_of(pid) for pid in server.pids()}
    others.waits(pids)
    free = held(server)
    there = list(strangers(server, ports))
    most, waits = dict.fromkeys(PROCESSES, 0), []
    for _ in range(ROUNDS):
        for stranger in there:
            stranger.go_on()
        waits.append(others.waits(pids))
        most = {kind: max(most[kind], now - free[kind]) for kind, now in held(server).items()}
    for name in waits[0]:
        of_one = [each[name] for each in waits]
        assert median(of_one) < BUSY_NS and max(of_one) < MOST_BUSY_NS, (name, of_one)
    assert most["mq-acceptor"] < LIMIT * 3 // 2 + len(there) * BLOCKS, most
    assert most["mq-gateway"] < LIMIT // 2 + 24 * MIB, most
    for stranger in there:
        stranger.socket.close()
    wait_until(lambda: held(server)["mq-acceptor"] - free["mq-acceptor"] < 24 * MIB, "the memory is given back", 30)
    wait_until(lambda: held(server)["mq-gateway"] - free["mq-gateway"] < 24 * MIB, "the gateway's too", 30)
    others.waits(pids)
    others.close()
    assert {pid: comm_of(pid) for pid in server.pids()} == pids, "no process had to be replaced"
    assert "Traceback" not in server.said()
