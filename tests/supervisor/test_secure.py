"""Listeners that are encrypted from the first byte: beanstalks://, https://, nsq-https://."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor.options.options import parse

from tests import servers
from tests.nsq import certificates
from tests.nsq.certificates import Certificates
from tests.servers import Server, Shape, free_port, wait_until

HOST = "127.0.0.1"
SHAPE = Shape("shards-2", "mq-shards", ("--workers", "2", "--acceptors", "2"))
LARGE = 3 << 20


@dataclass
class Secure:
    server: Server
    made: Certificates
    place: Path
    beanstalks: int
    https: int
    nsq_https: int

    def connect(self, port: int, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        plain = socket.create_connection((HOST, port), timeout=60)
        return (context or self.made.context()).wrap_socket(plain, server_hostname="localhost")

    def request(self, port: int, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=self.made.context())
        connection.request(method, target, body)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, data


@contextlib.contextmanager
def secure(place: Path, *more: str) -> Iterator[Secure]:
    made = certificates.make(place)
    shutil.copy(made.server.cert, place / "cert.pem")
    shutil.copy(made.server.key, place / "key.pem")
    ports = [free_port() for _ in range(3)]
    schemes = ("beanstalks", "https", "nsq-https")
    options = [f"--listen={scheme}://{HOST}:{port}" for scheme, port in zip(schemes, ports, strict=True)]
    options += [f"--set=tls.cert={place / 'cert.pem'}", f"--set=tls.key={place / 'key.pem'}", *more]
    with servers.running(SHAPE, data_dir=place / "data", max_job_bytes=LARGE, options=options) as server:
        yield Secure(server, made, place, *ports)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    with secure(tmp_path_factory.mktemp("secure")) as one:
        yield one


def heard(client: socket.socket, until: bytes) -> bytes:
    data = b""
    while not data.endswith(until):
        received = client.recv(1 << 16)
        if not received:
            break
        data += received
    return data


def test_beanstalkd_over_tls_takes_and_gives_jobs_of_any_size(broker: Secure) -> None:
    with broker.connect(broker.beanstalks) as client:
        body = bytes(range(256)) * (LARGE // 256)
        client.sendall(b"use large\r\nwatch large\r\nput 0 0 60 %d\r\n%s\r\nreserve\r\n" % (len(body), body))
        assert heard(client, body + b"\r\n").endswith(body + b"\r\n")
        client.sendall(b"stats\r\n")
        assert heard(client, b"\n\r\n").startswith(b"OK ")


def test_many_commands_in_one_record_and_one_in_many(broker: Secure) -> None:
    with broker.connect(broker.beanstalks) as client:
        client.sendall(b"use t\r\n" * 500)
        assert heard(client, b"USING t\r\n" * 500).count(b"USING t") == 500
        for byte in b"use slowly\r\n":
            client.sendall(bytes([byte]))
        assert heard(client, b"\r\n") == b"USING slowly\r\n"


def test_the_http_apis_over_tls(broker: Secure) -> None:
    assert broker.request(broker.nsq_https, "POST", "/pub?topic=seen", b"hello") == (200, b"OK")
    assert broker.request(broker.nsq_https, "GET", "/ping") == (200, b"OK")
    status, body = broker.request(broker.https, "GET", "/v1/topics")
    assert status == 200 and b"seen" in body
    status, body = broker.request(broker.https, "GET", "/metrics")
    assert status == 200 and b"mq_shards_worker_up" in body


def test_who_is_not_encrypted_is_refused_and_others_are_served(broker: Secure) -> None:
    for port in (broker.beanstalks, broker.https):
        with socket.create_connection((HOST, port), timeout=60) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n" * 3)
            assert b"HTTP" not in heard(client, b"never")
    with socket.create_connection((HOST, broker.beanstalks)) as silent, broker.connect(broker.beanstalks) as client:
        silent.sendall(b"\x16")  # and no more of a handshake
        client.sendall(b"use t\r\n")
        assert heard(client, b"\r\n") == b"USING t\r\n"
    assert "Traceback" not in broker.server.said()


@pytest.mark.parametrize("listener", ["beanstalks", "nsq_https", "https"])
def test_a_handshake_that_fails_says_why_to_both_sides(broker: Secure, listener: str) -> None:
    """By an acceptor, and by the gateway."""
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with socket.create_connection((HOST, getattr(broker, listener)), timeout=60) as client:
        said = f"{HOST}:{client.getsockname()[1]}: the TLS handshake failed: tls: UNSUPPORTED_PROTOCOL"
        with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
            old.wrap_socket(client)
    wait_until(lambda: said in broker.server.said(), "it is in the journal")


def test_a_job_of_who_goes_away_is_ready_again(broker: Secure) -> None:
    client = broker.connect(broker.beanstalks)
    client.sendall(b"use gone\r\nwatch gone\r\nignore default\r\nput 0 0 60 1\r\nx\r\nreserve\r\n")
    heard(client, b"\r\nx\r\n")
    client.close()
    with broker.connect(broker.beanstalks) as other:
        other.sendall(b"watch gone\r\nreserve-with-timeout 10\r\n")
        assert heard(other, b"\r\nx\r\n").endswith(b"\r\nx\r\n")


def test_a_certificate_that_was_renewed_is_shown_after_sighup(broker: Secure, tmp_path: Path) -> None:
    before = broker.connect(broker.beanstalks)
    shown = before.getpeercert(binary_form=True)
    new = certificates.make(tmp_path)
    shutil.copy(new.server.cert, broker.place / "cert.pem")
    shutil.copy(new.server.key, broker.place / "key.pem")
    broker.server.process.send_signal(signal.SIGHUP)

    def renewed(port: int) -> bool:
        try:
            with broker.connect(port, new.context()) as client:
                return client.getpeercert(binary_form=True) != shown
        except ssl.SSLError:
            return False

    wait_until(lambda: renewed(broker.beanstalks), "the new one is shown by the acceptor")
    wait_until(lambda: renewed(broker.https), "the new one is shown by the gateway")
    before.sendall(b"use t\r\n")
    assert heard(before, b"\r\n") == b"USING t\r\n"
    before.close()
    broker.made = new


def test_clients_show_certificates_where_they_have_to(tmp_path: Path) -> None:
    authority = certificates.make(tmp_path).authority
    with secure(tmp_path, f"--set=tls.client-ca={authority}") as broker:
        # made anew by secure(), over the same files
        with broker.connect(broker.beanstalks, broker.made.context(broker.made.client)) as client:
            client.sendall(b"use t\r\n")
            assert heard(client, b"\r\n") == b"USING t\r\n"
        for context in (broker.made.context(), broker.made.context(broker.made.stranger)):
            for port in (broker.beanstalks, broker.https):
                with pytest.raises((ssl.SSLError, ConnectionError)), broker.connect(port, context) as client:
                    client.sendall(b"use t\r\n")
                    assert client.recv(100) == b""
                    raise ConnectionError


@pytest.mark.parametrize("sets", [[], ["tls.cert=/nowhere.pem"], ["tls.cert=/nowhere.pem", "tls.key=/nowhere.pem"]])
def test_without_a_certificate_that_can_be_used_nothing_starts(sets: list[str]) -> None:
    with pytest.raises(OptionsError, match=r"tls\."):
        parse(["--listen", "https://127.0.0.1:1", *(word for one in sets for word in ("--set", one))])


def test_who_is_busy_keeps_nobody_elses_time_from_running(tmp_path: Path) -> None:
    port = free_port()
    pair = [f"--set=nats.tls-{name}-file={tmp_path / name}.pem" for name in ("cert", "key")]
    with secure(tmp_path, f"--listen=nats://{HOST}:{port}", "--set=nats.tls-timeout=300ms", *pair) as one:
        connection = http.client.HTTPSConnection("localhost", one.nsq_https, timeout=60, context=one.made.context())
        with socket.create_connection((HOST, port)) as silent:
            silent.setblocking(False)
            until, ended = time.monotonic() + 60, False
            while not ended and time.monotonic() < until:
                connection.request("POST", "/pub?topic=busy", b"hello")
                assert connection.getresponse().read() == b"OK"
                with contextlib.suppress(BlockingIOError):  # it is told of TLS first, and takes no part
                    ended = silent.recv(1 << 16) == b""
            assert ended
        connection.close()
