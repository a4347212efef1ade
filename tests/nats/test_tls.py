"""TLS before INFO, behind it, or perhaps; with clients' certificates and without: as a nats-server does it."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import nats
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mq_shards.acceptor.protocols.nats import tls
from mq_shards.acceptor.protocols.nats.peer_certs import peer_cert, subject_of

from tests.nats.servers import NatsServer, nats_server, running, settings_of
from tests.nats.websocket_wire import Websocket
from tests.nsq.certificates import CLIENT_NAME, Certificates, make, sign, write
from tests.servers import free_port, wait_until

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"lang":"raw","protocol":1}\r\n'
KINDS = [
    pytest.param(0, id="nats-server", marks=pytest.mark.skipif(nats_server() is None, reason="no nats-server")),
    pytest.param(1, id="shards-1"),
]


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


@dataclass
class Raw:
    """A client as raw bytes, which may be encrypted at any time."""

    sock: socket.socket

    def line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            received = self.sock.recv(1)
            if not received:
                break
            line += received
        return line

    def info(self) -> dict[str, Any]:
        verb, _, body = self.line().partition(b" ")
        assert verb == b"INFO"
        found: dict[str, Any] = json.loads(body)
        return found

    def encrypt(self, context: ssl.SSLContext) -> None:
        self.sock = context.wrap_socket(self.sock, server_hostname="localhost")

    def pings(self) -> None:
        self.sock.sendall(CONNECT + b"PING\r\n")
        assert self.line() == b"PONG\r\n"

    def is_silent_for(self, seconds: float) -> bool:
        self.sock.settimeout(seconds)
        try:
            return self.sock.recv(1, socket.MSG_PEEK) is None
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(5)


@contextmanager
def client(server: NatsServer) -> Iterator[Raw]:
    raw = Raw(socket.create_connection(("127.0.0.1", server.port), timeout=60))
    try:
        yield raw
    finally:
        raw.sock.close()


def is_refused(server: NatsServer, context: ssl.SSLContext) -> bool:
    """With TLS 1.3 a client may believe that its handshake succeeded."""
    with client(server) as raw:
        raw.info()
        try:
            raw.encrypt(context)
            raw.sock.sendall(CONNECT + b"PING\r\n")
            return raw.line() == b""
        except (ssl.SSLError, ConnectionError):
            return True


@contextmanager
def tls_server(kind: int, certificates: Certificates, path: Path, **options: str) -> Iterator[NatsServer]:
    both = {"cert_file": str(certificates.server.cert), "key_file": str(certificates.server.key), **options}
    with running(kind, settings_of(kind, path, **both)) as server:
        yield server


@pytest.fixture(scope="module")
def required(kind: int, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with tls_server(kind, certificates, tmp_path_factory.mktemp("required"), timeout="300ms") as server:
        yield server


@pytest.fixture(scope="module")
def verifying(kind: int, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    path = tmp_path_factory.mktemp("verifying")
    with tls_server(kind, certificates, path, verify="true", ca_file=str(certificates.authority)) as server:
        yield server


@pytest.fixture(scope="module")
def optional(kind: int, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with tls_server(kind, certificates, tmp_path_factory.mktemp("optional"), allow_non_tls="true") as server:
        yield server


def test_info_comes_in_the_clear_and_says_that_tls_is_required(
    required: NatsServer, certificates: Certificates
) -> None:
    with client(required) as raw:
        info = raw.info()
        assert (info.get("tls_required"), info.get("tls_verify"), info.get("tls_available")) == (True, None, None)
        raw.encrypt(certificates.context())
        raw.pings()
        again = raw.info()
        assert again["connect_info"] and again["tls_required"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_messages_of_any_size_go_through(
    required: NatsServer, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    async def run() -> None:
        client = await nats.connect(required.url, tls=certificates.context(most=version), allow_reconnect=False)
        listener = await client.subscribe("large")
        for n in range(5):
            await client.publish("large", bytes([n]) * (1 << 20))
        for n in range(5):
            assert (await listener.next_msg(timeout=30)).data == bytes([n]) * (1 << 20)
        await client.close()

    asyncio.run(run())


def test_what_was_sent_before_hanging_up_counts_though_connect_is_not_judged_yet(
    required: NatsServer, certificates: Certificates
) -> None:
    with client(required) as listener:
        listener.info()
        listener.encrypt(certificates.context())
        listener.sock.sendall(CONNECT + b"SUB parting 1\r\nPING\r\n")
        assert listener.line() == b"PONG\r\n"
        listener.line()  # INFO with the account
        for _ in range(5):
            with client(required) as hasty:
                hasty.info()
                hasty.encrypt(certificates.context())
                hasty.sock.sendall(CONNECT + b"PUB parting 1\r\nx\r\n")
                with suppress(OSError):
                    hasty.sock.unwrap()
        for _ in range(5):
            assert (listener.line(), listener.line()) == (b"MSG parting 1 1\r\n", b"x\r\n")


def test_who_does_not_encrypt_is_cut_off(required: NatsServer) -> None:
    with client(required) as raw:
        raw.info()
        raw.sock.sendall(CONNECT + b"PING\r\n")
        assert b"PONG" not in b"".join(iter(lambda: raw.sock.recv(100), b""))


def test_a_handshake_has_a_limit_in_time(required: NatsServer) -> None:
    with client(required) as raw:
        raw.info()
        assert raw.sock.recv(1) == b""


def test_clients_may_have_to_show_a_certificate(verifying: NatsServer, certificates: Certificates) -> None:
    with client(verifying) as raw:
        info = raw.info()
        assert (info["tls_required"], info["tls_verify"]) == (True, True)
        raw.encrypt(certificates.context(certificates.client))
        raw.pings()
    assert is_refused(verifying, certificates.context())
    assert is_refused(verifying, certificates.context(certificates.stranger))
    why = "unknown authority" if verifying.is_real else "CERTIFICATE_VERIFY_FAILED: self"
    wait_until(lambda: why in verifying.said(), "the journal says what is wrong with it")


def test_a_session_does_not_outlive_the_certificate(
    verifying: NatsServer, certificates: Certificates, tmp_path: Path
) -> None:
    """Who comes back shows the certificate again, and is told why it is refused. In TLS 1.2 the session of a connection
    that goes on may be resumed without that; then the end of the connection may be all that is said."""
    authority = x509.load_pem_x509_certificate(certificates.authority.read_bytes())
    by = serialization.load_pem_private_key(certificates.authority.with_suffix(".key").read_bytes(), None)
    ends = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(seconds=4)
    key = ec.generate_private_key(ec.SECP256R1())
    assert isinstance(by, ec.EllipticCurvePrivateKey)
    pair = write(tmp_path, "soon", sign("soon", key, authority, by, ends), key)
    versions = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    contexts = [certificates.context(pair, most=version) for version in versions]
    with ExitStack() as connections:
        sessions = [_opened(connections, verifying.port, context, None).session for context in contexts]
        for context, session in zip(contexts, sessions, strict=True):
            _opened(connections, verifying.port, context, session)
        time.sleep(max(0.0, ends.timestamp() + 1.1 - time.time()))
        for context, session in zip(contexts, sessions, strict=True):
            with pytest.raises(OSError, match=r"(?i)expired|reset|eof|closed|pipe"):
                _opened(connections, verifying.port, context, session)
    for context, session in zip(contexts, sessions, strict=True):
        with ExitStack() as connections, pytest.raises(ssl.SSLError, match=r"(?i)expired"):
            _opened(connections, verifying.port, context, session)


def _opened(connections: ExitStack, port: int, context: ssl.SSLContext, before: ssl.SSLSession | None) -> ssl.SSLSocket:
    """A connection that is answered. Raises OSError."""
    plain = connections.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
    while plain.recv(1) != b"\n":
        pass
    sock = connections.enter_context(context.wrap_socket(plain, server_hostname="localhost", session=before))
    sock.sendall(CONNECT + b"PING\r\n")
    if not sock.recv(100).startswith(b"PONG"):
        raise ConnectionResetError("closed")
    return sock


def test_encryption_may_be_left_to_the_client(optional: NatsServer, certificates: Certificates) -> None:
    with client(optional) as raw:
        info = raw.info()
        assert (info.get("tls_required"), info["tls_available"]) == (None, True)
        raw.pings()
        assert "tls_required" not in raw.info()
    with client(optional) as raw:
        raw.info()
        raw.encrypt(certificates.context())
        raw.pings()


def test_the_handshake_may_come_first(kind: int, certificates: Certificates, tmp_path: Path) -> None:
    with tls_server_first(kind, certificates, tmp_path, "true") as server, client(server) as raw:
        assert raw.is_silent_for(0.2)
        raw.encrypt(certificates.context())
        assert raw.info()["tls_required"]
        raw.pings()


def test_the_handshake_may_come_first_or_later(kind: int, certificates: Certificates, tmp_path: Path) -> None:
    """How late INFO comes is measured, since a test that is not given the processor can only find it later still."""
    with tls_server_first(kind, certificates, tmp_path, "1s") as server:
        with client(server) as raw:
            raw.encrypt(certificates.context())
            assert raw.info()["tls_required"]
            raw.pings()
        began = time.monotonic()
        with client(server) as raw:
            assert raw.info()["tls_required"]
            assert time.monotonic() - began > 0.9
            raw.encrypt(certificates.context())
            raw.pings()


@contextmanager
def tls_server_first(kind: int, certificates: Certificates, path: Path, first: str) -> Iterator[NatsServer]:
    """A server that says nothing at first cannot be waited for by its INFO."""
    pair = certificates.server
    options = {"cert_file": str(pair.cert), "key_file": str(pair.key), "handshake_first": first}
    with running(kind, settings_of(kind, path, **options), is_silent=True) as server:
        yield server


def test_certificates_may_be_pinned(kind: int, certificates: Certificates, tmp_path: Path) -> None:
    certificate = x509.load_pem_x509_certificate(certificates.client.cert.read_bytes())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    digest = hashlib.sha256(certificate.public_key().public_bytes(serialization.Encoding.DER, form)).hexdigest()
    options = {"verify": "true", "ca_file": str(certificates.authority), "pinned_certs": f'"{digest}"'}
    if kind > 0:
        options["pinned_certs"] = digest
    with tls_server(kind, certificates, tmp_path, **options) as server:
        assert not is_refused(server, certificates.context(certificates.client))
        assert is_refused(server, certificates.context(certificates.server)), "signed, but another's key"


@pytest.mark.parametrize(("curves", "is_let_in"), [("CurveP384", True), ("X25519", False)])
def test_a_curve_may_be_chosen(
    kind: int, certificates: Certificates, tmp_path: Path, curves: str, is_let_in: bool
) -> None:
    """Of those that OpenSSL has none of the others are there."""
    pair, conf = certificates.server, tmp_path / "curves.conf"
    said = f'["SecP384r1MLKEM1024", "{curves}"]'
    conf.write_text(f"tls {{ cert_file: '{pair.cert}', key_file: '{pair.key}', curve_preferences: {said} }}")
    context = certificates.context()
    context.set_ecdh_curve("secp384r1")
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(conf)]) as server:
        assert is_refused(server, context) != is_let_in


CONF = """
{users}
tls {{ cert_file: "{cert}", key_file: "{key}", ca_file: "{ca}", verify_and_map: true }}
"""


@pytest.mark.parametrize(
    ("user", "is_let_in"),
    [("localhost", True), (f"CN={CLIENT_NAME}", True), ("CN=somebody else", False), (CLIENT_NAME, False)],
)
def test_a_certificate_may_say_who_it_is(
    kind: int, certificates: Certificates, tmp_path: Path, user: str, is_let_in: bool
) -> None:
    users = f'authorization {{ users: [ {{ user: "{user}", permissions: {{ publish: "allowed" }} }} ] }}'
    pair = certificates.server
    conf = tmp_path / "map.conf"
    conf.write_text(CONF.format(users=users, cert=pair.cert, key=pair.key, ca=certificates.authority))
    arguments = ["-c" if kind == 0 else "--nats-config", str(conf)]
    with running(kind, arguments=arguments) as server, client(server) as raw:
        raw.info()
        raw.encrypt(certificates.context(certificates.client))
        raw.sock.sendall(CONNECT + b"PUB forbidden 0\r\n\r\nPING\r\n")
        expected = b"Permissions Violation" if is_let_in else b"Authorization Violation"
        assert expected in raw.line()


@pytest.mark.parametrize(
    ("has", "says", "is_let_in"),
    [("x", {"pass": "x"}, True), ("x", {}, False), ("x", {"pass": "y"}, False), ("", {"pass": "x"}, False)],
)
def test_who_a_certificate_says_it_is_needs_that_users_password_too(
    kind: int, certificates: Certificates, tmp_path: Path, has: str, says: dict[str, str], is_let_in: bool
) -> None:
    user = f"user: localhost, password: {has}" if has else "user: localhost"
    conf, pair = tmp_path / "map.conf", certificates.server
    users = f"authorization {{ users: [ {{ {user} }} ] }}"
    conf.write_text(CONF.format(users=users, cert=pair.cert, key=pair.key, ca=certificates.authority))
    arguments = ["-c" if kind == 0 else "--nats-config", str(conf)]
    with running(kind, arguments=arguments) as server, client(server) as raw:
        raw.info()
        raw.encrypt(certificates.context(certificates.client))
        raw.sock.sendall(b"CONNECT " + json.dumps({"verbose": False, **says}).encode() + b"\r\nPING\r\n")
        assert raw.line() == (b"PONG\r\n" if is_let_in else b"-ERR 'Authorization Violation'\r\n")


@pytest.mark.parametrize(("types", "is_let_in"), [("", False), ("allowed_connection_types: [WEBSOCKET]", True)])
def test_the_name_of_a_user_of_certificates_alone_is_no_login_elsewhere(
    kind: int, certificates: Certificates, tmp_path: Path, types: str, is_let_in: bool
) -> None:
    """Unless certificates cannot name that user, as it comes by websocket only."""
    conf, pair, port = tmp_path / "map.conf", certificates.server, free_port()
    users = f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true }}\n"
    users += f"authorization {{ users: [ {{ user: localhost, {types} }} ] }}"
    conf.write_text(CONF.format(users=users, cert=pair.cert, key=pair.key, ca=certificates.authority))
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(conf)]), Websocket(port) as one:
        one.say(b'CONNECT {"verbose":false,"user":"localhost"}\r\nPING\r\n')
        one.until(b"PONG\r\n" if is_let_in else b"-ERR 'Authorization Violation'\r\n")


def test_a_certificate_may_be_trusted_though_not_who_signed_it(
    kind: int, certificates: Certificates, tmp_path: Path
) -> None:
    conf, pair, known = tmp_path / "trust.conf", certificates.server, certificates.client
    tls = f'tls {{ cert_file: "{pair.cert}", key_file: "{pair.key}", ca_file: "{known.cert}", verify: true }}'
    conf.write_text(tls)
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(conf)]) as server:
        with client(server) as raw:
            raw.info()
            raw.encrypt(certificates.context(known))
            raw.pings()
        assert is_refused(server, certificates.context(certificates.server))


def test_a_clients_certificate_is_shown(kind: int, certificates: Certificates, tmp_path: Path) -> None:
    conf, port, pair = tmp_path / "shown.conf", free_port(), certificates.server
    text = CONF.replace("verify_and_map", "verify").format(
        users=f"http: 127.0.0.1:{port}", cert=pair.cert, key=pair.key, ca=certificates.authority
    )
    conf.write_text(text)
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(conf)]) as server, client(server) as raw:
        raw.info()
        raw.encrypt(certificates.context(certificates.client))
        raw.pings()
        files = certificates.client.cert, certificates.authority  # all that the client sends
        expected = [row_of(x509.load_pem_x509_certificate(file.read_bytes())) for file in files]
        assert expected[0]["subject"] == f"CN={CLIENT_NAME}"
        for query, rows in (("auth=1", expected), ("", None)):
            with urlopen(f"http://127.0.0.1:{port}/connz?{query}", timeout=60) as answer:
                (row,) = json.load(answer)["connections"]
            assert row["tls_version"] == "1.3" and row.get("tls_peer_certs") == rows


def test_attributes_that_are_one_part_of_a_subject_are_so_in_a_users_name() -> None:
    names = "commonName", "organizationName", "domainComponent"
    (name, organization, domain) = ((kind, value) for kind, value in zip(names, "abc", strict=True))
    together = tls.subject_of({"subject": ((name, organization), (domain,))})
    apart = tls.subject_of({"subject": ((name,), (organization,), (domain,))})
    assert tls.parse_subject("DC=c,O=b+CN=a") == together != apart == tls.parse_subject("O=b, dc=c, CN=a")


def test_what_is_not_read_as_a_certificate_is_shown_by_its_digest() -> None:
    assert peer_cert(b"0\x00") == {"cert_sha256": hashlib.sha256(b"0\x00").hexdigest()}


def row_of(certificate: x509.Certificate) -> dict[str, str]:
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return {
        "subject": certificate.subject.rfc4514_string(),  # of one name it is as Go's
        "spki_sha256": hashlib.sha256(key).hexdigest(),
        "cert_sha256": hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest(),
    }


@pytest.mark.parametrize(
    ("attributes", "subject"),
    [
        ("2.5.4.6=DE 2.5.4.10=O,Inc. 2.5.4.11=x 2.5.4.11=y+z 2.5.4.3=#c 2.5.4.5=77",
         r"SERIALNUMBER=77,CN=\#c,OU=x+OU=y\+z,O=O\,Inc.,C=DE"),
        ("2.5.4.3=one 2.5.4.3=two", "CN=two"),
        ("2.5.4.8=s 2.5.4.7=l 2.5.4.9=st 2.5.4.17=1", "POSTALCODE=1,STREET=st,L=l,ST=s"),
        ("1.2.840.113549.1.9.1=a@b 2.5.4.42=y", "2.5.4.42=#130179,1.2.840.113549.1.9.1=#0c03614062"),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_go_does(attributes: str, subject: str) -> None:
    pairs = (one.split("=", 1) for one in attributes.split())
    name = x509.Name([x509.NameAttribute(x509.ObjectIdentifier(oid), value) for oid, value in pairs])
    assert subject_of(name) == subject


@pytest.mark.parametrize("first", ["false", "true", "auto"])
def test_handshakes_that_are_too_many_are_refused_in_the_clear(
    kind: int, certificates: Certificates, tmp_path: Path, first: str
) -> None:
    """Whether INFO has been said or not."""
    both = {"cert_file": str(certificates.server.cert), "key_file": str(certificates.server.key)}
    settings = settings_of(kind, tmp_path, **both, handshake_first=first, connection_rate_limit="1")
    refused, until = 0, time.monotonic() + 60
    with running(kind, settings, is_silent=True) as server:
        while refused < 4:
            assert time.monotonic() < until
            with client(server) as raw:
                if first == "false":
                    raw.info()
                raw.sock.sendall(b"\x16\x03\x01\x00")  # the beginning of a handshake
                raw.sock.settimeout(0.2)
                with suppress(TimeoutError, ConnectionResetError):  # it is one of those that may begin
                    assert raw.line() == b"-ERR 'Connection throttling is active. Please try again later.'\r\n"
                    refused += 1
