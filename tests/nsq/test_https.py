"""nsq-https://: publishing is an acceptor's there too, and what is the gateway's is relayed to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import servers
from tests.access.broker import SHOP, write_users
from tests.nsq import certificates
from tests.nsq.certificates import Certificates
from tests.servers import Server, Shape, free_port, wait_until

HOST = "127.0.0.1"
SHAPE = Shape("shards-2", "mq-shards", ("--workers", "2", "--acceptors", "2"))
TIMEOUT_S = 60.0


@dataclass
class Https:
    server: Server
    made: Certificates
    port: int
    plain_port: int

    def connect(self) -> Client:
        plain = socket.create_connection((HOST, self.port), timeout=TIMEOUT_S)
        return Client(self.made.context().wrap_socket(plain, server_hostname="localhost"))

    @contextlib.contextmanager
    def without_gateway(self) -> Iterator[None]:
        gateway = self.server.pid_of("mq-gateway")
        os.kill(gateway, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(gateway, signal.SIGCONT)


class Client:
    """One connection; answers are told apart by their lengths."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock = sock
        self._file = sock.makefile("rb")

    def send(self, method: str, target: str, body: bytes = b"", head: bytes = b"") -> None:
        line = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n".encode()
        self.sock.sendall(line + head + b"\r\n" + body)

    def answer(self) -> tuple[int, bytes]:
        status = int(self._file.readline().split()[1])
        length = 0
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return status, self._file.read(length)

    def ask(self, method: str, target: str, body: bytes = b"", head: bytes = b"") -> tuple[int, bytes]:
        self.send(method, target, body, head)
        return self.answer()

    def ends(self) -> bool:
        """Nothing more is said."""
        try:
            return self._file.read(1) == b""
        except (ConnectionError, ssl.SSLError):
            return True

    def close(self) -> None:
        self._file.close()
        self.sock.close()


@contextlib.contextmanager
def running(place: Path, *options: str) -> Iterator[Https]:
    made = certificates.make(place)
    port, plain_port = free_port(), free_port()
    listens = [f"--listen=nsq-https://{HOST}:{port}", f"--listen=nsq-http://{HOST}:{plain_port}"]
    sets = [f"--set=tls.cert={made.server.cert}", f"--set=tls.key={made.server.key}"]
    with servers.running(SHAPE, data_dir=place / "data", options=[*listens, *sets, *options]) as server:
        https = Https(server, made, port, plain_port)
        with contextlib.closing(https.connect()) as first:
            first.ask("GET", "/ping")  # it begins the gateway
        yield https


@pytest.fixture(scope="module")
def https(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Https]:
    with running(tmp_path_factory.mktemp("https")) as one:
        yield one


@pytest.fixture
def client(https: Https) -> Iterator[Client]:
    with contextlib.closing(https.connect()) as one:
        yield one


def depth(client: Client, topic: str) -> int:
    status, body = client.ask("GET", f"/stats?format=json&topic={topic}")
    assert status == 200
    return sum(int(one["depth"]) for one in json.loads(body)["topics"])


def test_publishing_needs_no_gateway(https: Https, client: Client) -> None:
    with https.without_gateway():
        assert client.ask("POST", "/pub?topic=alone", b"1") == (200, b"OK")
        assert client.ask("POST", "/mpub?topic=alone", b"2\n3") == (200, b"OK")
        assert client.ask("POST", "/pub", b"4") == (400, b'{"message":"MISSING_ARG_TOPIC"}')
    assert depth(client, "alone") == 3


def test_a_connection_that_asked_something_else_publishes_without_the_gateway_afterwards(
    https: Https, client: Client
) -> None:
    assert client.ask("GET", "/ping") == (200, b"OK")
    assert client.ask("POST", "/topic/create?topic=back")[0] == 200
    assert client.ask("POST", "/pub?topic=back", b"0") == (200, b"OK")
    with https.without_gateway():
        for number in range(10):
            assert client.ask("POST", "/pub?topic=back", b"%d" % number) == (200, b"OK")
    assert depth(client, "back") == 11


def test_requests_that_come_together_are_answered_in_their_order_whoever_serves_them(client: Client) -> None:
    for round_ in range(20):
        parts = []
        for number in range(10):
            body = b"%d %d" % (round_, number)
            parts.append(b"POST /pub?topic=turns HTTP/1.1\r\nHost:\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            parts.append(b"GET /nothing/%d HTTP/1.1\r\nHost: h\r\n\r\n" % number)
        client.sock.sendall(b"".join(parts))
        for _ in range(10):
            assert client.answer() == (200, b"OK")
            assert client.answer()[0] == 404
    assert depth(client, "turns") == 200


def test_a_connection_goes_over_wherever_in_a_head_that_is(https: Https) -> None:
    """What has come by then is more or less than an acceptor takes at once of what its client is still sending."""
    for size in range(16 << 10, 320 << 10, 16 << 10):
        with contextlib.closing(https.connect()) as client:
            head = b"X-Long: " + b"x" * size + b"\r\n"
            assert client.ask("POST", "/pub?topic=heads", b"y" * size, head) == (200, b"OK"), size


def test_large_requests_and_answers_pass_the_relay(https: Https, client: Client) -> None:
    """A head that is not plainly a publish's: all of it goes to the gateway, in pieces, as it takes them."""
    head = b"X-Long: " + b"x" * (900 << 10) + b"\r\n"
    body = b"y" * (1 << 20)
    assert client.ask("POST", "/pub?topic=large", body, head) == (200, b"OK")
    assert depth(client, "large") == 1
    for number in range(200):
        client.send("POST", f"/topic/create?topic=one-of-many-topics-with-a-name-that-is-long-{number:03}")
    assert [client.answer()[0] for _ in range(200)] == [200] * 200
    for _ in range(100):
        client.send("GET", "/stats?format=json")
    sizes = {len(body) for status, body in (client.answer() for _ in range(100)) if status == 200}
    assert min(sizes) > 40_000


@pytest.mark.parametrize("by", [("tls",), ("tcp",), ("tls", "tcp")], ids="+".join)
@pytest.mark.parametrize("target", ["/pub?topic=hung-up", "/topic/create?topic=hung-up"])
def test_who_ends_his_side_behind_a_request_is_answered(https: Https, target: str, by: tuple[str, ...]) -> None:
    """TLS is looked at from within: an SSLSocket that ends it may drop what comes at that moment."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = https.made.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection((HOST, https.port), timeout=TIMEOUT_S) as sock:

        def go_on(step: Callable[[], object]) -> None:
            while True:
                try:
                    step()
                    break
                except ssl.SSLWantReadError:
                    sock.sendall(outgoing.read())
                    incoming.write(sock.recv(1 << 16))

        go_on(tls.do_handshake)
        tls.write(f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx".encode())
        if "tls" in by:
            with contextlib.suppress(ssl.SSLWantReadError):  # the other side has not said the same yet
                tls.unwrap()
        sock.sendall(outgoing.read())
        if "tcp" in by:
            sock.shutdown(socket.SHUT_WR)
        said = b""
        while received := sock.recv(1 << 16):
            incoming.write(received)
            with contextlib.suppress(ssl.SSLWantReadError):
                said += tls.read(1 << 16)
    assert said.startswith(b"HTTP/1.1 200 OK\r\n")


def test_who_is_gone_leaves_nothing_behind(https: Https, client: Client) -> None:
    """Neither in the acceptor nor in the gateway, whatever was under way."""
    names = ("mq-acceptor-0", "mq-acceptor-1", "mq-gateway")

    def descriptors() -> list[int]:
        return [len(list(Path(f"/proc/{https.server.pid_of(name)}/fd").iterdir())) for name in names]

    assert client.ask("GET", "/ping") == (200, b"OK")  # so that the gateway is all there
    before = descriptors()
    for number in range(10):
        gone = https.connect()
        for _ in range(20):  # more than an answer is under way
            gone.send("GET", "/stats?format=json")
        if number % 2:
            gone.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            gone.answer()
        gone.close()
    wait_until(lambda: max(now - then for now, then in zip(descriptors(), before, strict=True)) <= 0, "all is closed")
    assert client.ask("POST", "/pub?topic=after", b"x") == (200, b"OK")
    assert "Traceback" not in https.server.said()


def test_a_gateway_that_dies_ends_what_it_had_and_others_are_served_by_the_next(https: Https, client: Client) -> None:
    with contextlib.closing(https.connect()) as other:
        assert client.ask("GET", "/ping") == (200, b"OK")
        assert other.ask("POST", "/pub?topic=dies", b"1") == (200, b"OK")
        https.server.replace("mq-gateway")
        assert client.ends()
        assert other.ask("POST", "/pub?topic=dies", b"2") == (200, b"OK")
        assert depth(other, "dies") == 2


def test_where_plain_http_is_refused_this_is_served_and_named(tmp_path: Path) -> None:
    (tmp_path / "tcp").mkdir()
    pair = certificates.make(tmp_path / "tcp").server
    sets = [f"--set=nsq.tls-cert={pair.cert}", f"--set=nsq.tls-key={pair.key}", "--set=nsq.tls-required=true"]
    with running(tmp_path, *sets) as https, contextlib.closing(https.connect()) as one:
        assert one.ask("POST", "/pub?topic=t", b"x") == (200, b"OK")
        assert depth(one, "t") == 1
        with socket.create_connection((HOST, https.plain_port), timeout=TIMEOUT_S) as plain:
            plain.sendall(b"POST /pub?topic=t HTTP/1.0\r\nContent-Length: 1\r\n\r\nx")
            refused = b"".join(iter(lambda: plain.recv(4096), b""))
    assert refused.startswith(b"HTTP/1.0 403 ")
    assert json.loads(refused.partition(b"\r\n\r\n")[2]) == {"message": "TLS_REQUIRED", "https_port": https.port}


def test_who_was_refused_once_publishes_without_the_gateway_afterwards(tmp_path: Path) -> None:
    users = write_users(tmp_path / "users.toml")
    who = f"Authorization: Bearer {SHOP.token}\r\n".encode()
    options = (f"--users={users}", "--insecure=beanstalk")
    with running(tmp_path, *options) as https, contextlib.closing(https.connect()) as client:
        assert client.ask("POST", "/pub?topic=orders", b"1", who) == (200, b"OK")
        assert client.ask("POST", "/pub?topic=mail", b"1", who)[0] == 403
        assert client.ask("POST", "/pub?topic=orders", b"2", who) == (200, b"OK")
        client.sock.settimeout(5)  # before the gateway would be replaced
        with https.without_gateway():
            assert client.ask("POST", "/pub?topic=orders", b"3", who) == (200, b"OK")
        client.sock.settimeout(TIMEOUT_S)
        assert client.ask("POST", "/pub?topic=mail", b"1", who)[0] == 403
