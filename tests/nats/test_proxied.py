"""A proxy in front says for whom it connects (PROXY protocol, versions 1 and 2): as a nats-server takes it."""

from __future__ import annotations

import ipaddress
import json
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from mq_shards.acceptor.remarks import SAME

from tests.nats.servers import NatsServer, running
from tests.nats.test_operating import HELLO, KINDS
from tests.nats.test_tls import Raw, client
from tests.nsq.certificates import Certificates, make

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
LOCAL, PROXY, STREAM, DATAGRAM = 0x20, 0x21, 1, 2
OURS = "127.0.0.1"


def binary(what: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + struct.pack(">BBH", what, family, len(rest)) + rest


def addresses(source: str, port: int = 4242) -> bytes:
    packed = ipaddress.ip_address(source).packed
    return packed * 2 + struct.pack(">HH", port, 4222)


V4, V6 = addresses("192.0.2.1"), addresses("2001:db8::1")
# What is said first, and what client_ip is then; None: the connection is closed.
SAID: dict[str, tuple[bytes, str | None]] = {
    "nothing": (b"", OURS),
    "a line": (b"PROXY TCP4 192.0.2.1 192.0.2.2 4242 4222\r\n", "192.0.2.1"),
    "a line of version 6": (b"PROXY TCP6 2001:DB8:0:0::1 ::1 4242 4222\r\n", "2001:db8::1"),
    "a mapped address": (b"PROXY TCP6 ::ffff:192.0.2.1 ::1 4242 4222\r\n", "192.0.2.1"),
    "many blanks": (b"PROXY  TCP4\t192.0.2.1  192.0.2.2 4242 4222 \r\n", "192.0.2.1"),
    "an unknown one": (b"PROXY UNKNOWN\r\n", OURS),
    "an unknown one with words": (b"PROXY UNKNOWN and more words\r\n", OURS),
    "an empty line": (b"PROXY \r\n", None),
    "of another kind": (b"PROXY UDP4 192.0.2.1 192.0.2.2 4242 4222\r\n", None),
    "addresses of the other kind": (b"PROXY TCP4 ::1 ::1 4242 4222\r\n", None),
    "addresses of the other kind, too": (b"PROXY TCP6 192.0.2.1 ::1 4242 4222\r\n", None),
    "no address": (b"PROXY TCP4 192.0.2.256 192.0.2.2 4242 4222\r\n", None),
    "an address with zeros": (b"PROXY TCP4 192.0.02.1 192.0.2.2 4242 4222\r\n", None),
    "an address with a zone": (b"PROXY TCP6 fe80::1%lo ::1 4242 4222\r\n", None),
    "a large port": (b"PROXY TCP4 192.0.2.1 192.0.2.2 65536 4222\r\n", None),
    "a signed port": (b"PROXY TCP4 192.0.2.1 192.0.2.2 +1 4222\r\n", None),
    "a port too few": (b"PROXY TCP4 192.0.2.1 192.0.2.2 4242\r\n", None),
    "a long line": (b"PROXY UNKNOWN " + b"x" * 91 + b"\r\n", OURS),
    "a line that is too long": (b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n", None),
    "in small letters": (b"proxy TCP4 192.0.2.1 192.0.2.2 4242 4222\r\n", None),
    "binary": (binary(PROXY, 0x10 | STREAM, V4), "192.0.2.1"),
    "binary of version 6": (binary(PROXY, 0x20 | STREAM, V6), "2001:db8::1"),
    "binary and mapped": (binary(PROXY, 0x20 | STREAM, addresses("::ffff:192.0.2.1")), "192.0.2.1"),
    "binary with more behind it": (binary(PROXY, 0x10 | STREAM, V4 + b"\x04" * 5000), "192.0.2.1"),
    "for itself": (binary(LOCAL, 0, b""), OURS),
    "for itself with addresses": (binary(LOCAL, 0x10 | STREAM, V4), OURS),
    "for nobody": (binary(PROXY, STREAM, b"xyz"), OURS),
    "for nobody, of no kind": (binary(PROXY, 0, b""), None),
    "a datagram": (binary(PROXY, 0x10 | DATAGRAM, V4), None),
    "of a socket file": (binary(PROXY, 0x30 | STREAM, b"x" * 216), None),
    "too few addresses": (binary(PROXY, 0x10 | STREAM, V4[:-1]), None),
    "too few of version 6": (binary(PROXY, 0x20 | STREAM, V4), None),
    "another version": (binary(0x31, 0x10 | STREAM, V4), None),
    "an unknown command": (binary(0x22, 0x10 | STREAM, V4), None),
    "another signature": (SIGNATURE[:-1] + b"x" + binary(PROXY, 0x10 | STREAM, V4)[12:], None),
}


@dataclass
class Proxied:
    server: NatsServer
    secure: NatsServer
    certificates: Certificates


@pytest.fixture(scope="module", params=KINDS)
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    directory = tmp_path_factory.mktemp("proxied")
    certificates = make(directory)
    option = "-c" if request.param == 0 else "--nats-config"
    plain, secure = directory / "plain.conf", directory / "secure.conf"
    plain.write_text("proxy_protocol: true\n")
    tls = f"cert_file: '{certificates.server.cert}', key_file: '{certificates.server.key}', handshake_first: 10s"
    secure.write_text(f"proxy_protocol: true\ntls {{ {tls} }}\nallow_non_tls: true\n")
    with (
        running(request.param, arguments=[option, str(plain)]) as server,
        running(request.param, arguments=[option, str(secure)], is_silent=True) as encrypted,
    ):
        yield Proxied(server, encrypted, certificates)


def info_of(raw: Raw) -> dict[str, Any] | None:
    """That comes behind PONG; None if the connection is closed."""
    try:
        while line := raw.line():
            if line.startswith(b"INFO"):
                info: dict[str, Any] = json.loads(line[5:])
                if info.get("connect_info"):
                    return info
    except ConnectionError:
        pass
    return None


@pytest.mark.parametrize("name", SAID)
def test_who_somebody_is(proxied: Proxied, name: str) -> None:
    said, wanted = SAID[name]
    with client(proxied.server) as raw:
        assert "client_ip" not in raw.info()
        raw.sock.sendall(said + HELLO)
        info = info_of(raw)
        assert (info["client_ip"] if info is not None else None) == wanted


@pytest.mark.parametrize("name", ["nothing", "a line", "binary with more behind it", "a port too few", "for itself"])
def test_it_may_come_in_any_pieces(proxied: Proxied, name: str) -> None:
    said, wanted = SAID[name]
    with client(proxied.server) as raw:
        raw.info()
        raw.sock.setsockopt(6, 1, 1)
        for at in range(0, len(said), 1 if len(said) < 100 else 700):
            raw.sock.sendall(said[at : at + (1 if len(said) < 100 else 700)])
        try:
            raw.sock.sendall(HELLO)
            info = info_of(raw)
        except ConnectionError:
            info = None
        assert (info["client_ip"] if info is not None else None) == wanted


def test_who_comes_with_wrong_headers_again_and_again_is_few_lines(proxied: Proxied) -> None:
    for _ in range(30):
        with client(proxied.server) as raw:
            raw.info()
            raw.sock.sendall(b"PROXY TCP4 it is none\r\n")
            assert raw.line() == b""
    lines = proxied.server.said().count("a header of the PROXY protocol: ")
    assert proxied.server.is_real or SAME <= lines <= SAME * proxied.server.acceptors


@pytest.mark.parametrize("name", ["nothing", "a line", "binary", "for itself"])
def test_a_handshake_comes_behind_it(proxied: Proxied, name: str) -> None:
    said, wanted = SAID[name]
    context = ssl.create_default_context(cafile=str(proxied.certificates.authority))
    context.check_hostname = False
    with client(proxied.secure) as raw:
        raw.sock.sendall(said)
        raw.encrypt(context)
        assert raw.info()["client_ip"] == wanted
        raw.sock.sendall(HELLO)
        info = info_of(raw)
        assert info is not None and info["client_ip"] == wanted
