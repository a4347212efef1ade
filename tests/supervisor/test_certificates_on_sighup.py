"""Certificates, on every listener: each shows its own, SIGHUP shows the new one to who comes, and nobody is cut off."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import pulsar
import pytest
from cryptography.hazmat.primitives import serialization
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor.options.options import parse

from tests import servers
from tests.nats.websocket_wire import request
from tests.nsq import certificates
from tests.nsq.certificates import Certificates
from tests.servers import Server, Shape, free_port, is_alive, wait_until

HOST: Final = "127.0.0.1"
SHAPE: Final = Shape("shards-2", "mq-shards", ("--workers", "2", "--acceptors", "2"))
# Encrypted from the first byte; one of beanstalkd's has a certificate of its own.
SECURE: Final = ("beanstalks", "https", "nsq-https", "pulsar-https", "nats-https")
OTHERS: Final = ("nsq", "nats", "pulsar", "nats-ws", "nats-leaf")
OWN: Final = "beanstalks with its own"


def heard(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        received = client.recv(count - len(data))
        assert received, data
        data += received
    return data


def until(client: socket.socket, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        data += heard(client, 1)
    return data


def ask_nsq(plain: socket.socket) -> None:
    told = orjson.dumps({"feature_negotiation": True, "tls_v1": True})
    plain.sendall(b"  V2IDENTIFY\n" + struct.pack(">I", len(told)) + told)
    heard(plain, int.from_bytes(heard(plain, 4), "big"))


BEFORE_TLS: Final[dict[str, Callable[[socket.socket], object]]] = {
    "nsq": ask_nsq,
    "nats": lambda plain: until(plain, b"\r\n"),
    "nats-leaf": lambda plain: until(plain, b"\r\n"),
}


@dataclass
class Everywhere:
    server: Server
    place: Path
    ports: dict[str, int]

    def connect(self, kind: str, context: ssl.SSLContext) -> ssl.SSLSocket:
        plain = socket.create_connection((HOST, self.ports[kind]), timeout=60)
        try:
            BEFORE_TLS.get(kind, lambda plain: None)(plain)
            return context.wrap_socket(plain, server_hostname="localhost")
        except BaseException:
            plain.close()
            raise

    def talk(self, kind: str, context: ssl.SSLContext | None) -> socket.socket:
        """Past what is said before anything else."""
        if context is not None:
            return self.connect(kind, context)
        plain = socket.create_connection((HOST, self.ports[kind]), timeout=60)
        BEFORE_TLS.get(kind, lambda plain: None)(plain)
        return plain

    def shown(self, kind: str) -> bytes:
        """Whoever signed it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with self.connect(kind, context) as client:
            return client.getpeercert(binary_form=True) or b""

    def show(self, made: Certificates, name: str = "") -> None:
        shutil.copy(made.server.cert, self.place / f"{name}cert.pem")
        shutil.copy(made.server.key, self.place / f"{name}key.pem")

    def reload(self) -> None:
        self.server.process.send_signal(signal.SIGHUP)


def der(made: Certificates) -> bytes:
    return ssl.PEM_cert_to_DER_cert(made.server.cert.read_text())


def made_in(path: Path) -> Certificates:
    path.mkdir()
    return certificates.make(path)


@contextlib.contextmanager
def running(place: Path, *more: str, own: bool = True, tls: bool = True) -> Iterator[Everywhere]:
    """`own`: NSQ, NATS and Pulsar are told of a certificate each. `tls`: the section tls is."""
    ports = {kind: free_port() for kind in (*SECURE, *OTHERS, OWN)}
    listen = [f"--listen={kind}://{HOST}:{ports[kind]}" for kind in (*SECURE, *OTHERS)]
    behind = f"cert={place / 'own-cert.pem'}&key={place / 'own-key.pem'}"
    listen.append(f"--listen=beanstalks://{HOST}:{ports[OWN]}?{behind}")
    sets = {"tls.cert": "cert", "tls.key": "key"} if tls else {}
    sets |= {} if not own else {
        "nsq.tls-cert": "cert", "nsq.tls-key": "key",
        "nats.tls-cert-file": "cert", "nats.tls-key-file": "key", "pulsar.tls-cert-file": "cert",
        "pulsar.tls-key-file": "key",
    }  # fmt: skip
    options = [*listen, *(f"--set={name}={place / file}.pem" for name, file in sets.items()), *more]
    with servers.running(SHAPE, data_dir=place / "data", options=options) as server:
        yield Everywhere(server, place, ports)


@pytest.fixture
def everywhere(tmp_path: Path) -> Iterator[tuple[Everywhere, Certificates, Certificates]]:
    one, own = made_in(tmp_path / "one"), made_in(tmp_path / "own")
    for made, name in ((one, ""), (own, "own-")):
        Everywhere.show(Everywhere(None, tmp_path, {}), made, name)  # type: ignore[arg-type]
    with running(tmp_path) as broker:
        yield broker, one, own


def test_every_listener_shows_the_new_one_and_keeps_who_is_there(
    everywhere: tuple[Everywhere, Certificates, Certificates], tmp_path: Path
) -> None:
    broker, one, own = everywhere
    kinds = (*SECURE, *OTHERS)
    assert {kind: broker.shown(kind) == der(one) for kind in kinds} == dict.fromkeys(kinds, True)
    assert broker.shown(OWN) == der(own)
    with contextlib.ExitStack() as stack:
        there = {kind: stack.enter_context(broker.connect(kind, one.context())) for kind in (*SECURE, "nats")}
        there[OWN] = stack.enter_context(broker.connect(OWN, own.context()))

        # A key that is another's: one line, and all is as it was.
        two, three = made_in(tmp_path / "two"), made_in(tmp_path / "three")
        shutil.copy(two.server.key, tmp_path / "key.pem")
        broker.reload()
        wait_until(lambda: "cannot reload, nothing is changed" in broker.server.said(), "it is said")
        assert all(broker.shown(kind) == der(one) for kind in kinds)

        broker.show(two)
        broker.show(three, "own-")
        broker.reload()
        for kind in kinds:
            wait_until(lambda kind=kind: broker.shown(kind) == der(two), f"{kind} shows the new one")
        wait_until(lambda: broker.shown(OWN) == der(three), "and the one with its own does")
        for kind in (*SECURE, OWN):
            line = b"use t\r\n" if kind.startswith("b") else b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
            there[kind].sendall(line)
            assert until(there[kind], b"\r\n").startswith((b"USING t", b"HTTP/1.1 ")), kind
        there["nats"].sendall(b"CONNECT {}\r\nPING\r\n")
        assert b"PONG" in until(there["nats"], b"PONG\r\n")
    assert "Traceback" not in broker.server.said()


def test_one_certificate_is_enough_and_nobody_has_to_be_encrypted(tmp_path: Path) -> None:
    one, two = made_in(tmp_path / "one"), made_in(tmp_path / "two")
    for made, name in ((one, ""), (one, "own-"), (two, "new-")):
        Everywhere.show(Everywhere(None, tmp_path, {}), made, name)  # type: ignore[arg-type]
    config = tmp_path / "mq.toml"
    config.write_text(f'[tls]\ncert = "{tmp_path}/cert.pem"\nkey = "{tmp_path}/key.pem"\n')
    with running(tmp_path, "--config", str(config), own=False, tls=False) as broker:
        kinds = (*SECURE, *OTHERS)
        assert {kind: broker.shown(kind) == der(one) for kind in kinds} == dict.fromkeys(kinds, True)
        nats = socket.create_connection((HOST, broker.ports["nats"]), timeout=60)
        nsq = socket.create_connection((HOST, broker.ports["nsq"]), timeout=60)
        with nats, nsq:
            info = orjson.loads(until(nats, b"\r\n").removeprefix(b"INFO "))
            assert info["tls_available"] and not info.get("tls_required")
            nats.sendall(b"CONNECT {}\r\nPING\r\n")
            assert until(nats, b"PONG\r\n")
            nsq.sendall(b"  V2PUB seen\n\0\0\0\5hello")
            assert heard(nsq, 10).endswith(b"OK")
            for secure in (False, True):
                with broker.talk("nats-ws", one.context() if secure else None) as client:
                    client.sendall(request())
                    assert b" 101 " in until(client, b"\r\n\r\n")
                    info = orjson.loads(until(client, b"\r\n").partition(b"INFO ")[2])
                    assert info.get("tls_required", False) == secure
                with broker.talk("nats-leaf", one.context() if secure else None) as client:
                    client.sendall(b'CONNECT {"name":"leaf"}\r\nPING\r\n')
                    assert until(client, b"PONG\r\n")
            plain = pulsar.Client(f"pulsar://{HOST}:{broker.ports['pulsar']}")
            plain.create_producer("seen").send(b"hello")
            plain.close()

            # Another file for all of them, and those that are connected stay so.
            config.write_text(f'[tls]\ncert = "{tmp_path}/new-cert.pem"\nkey = "{tmp_path}/new-key.pem"\n')
            broker.reload()
            for kind in kinds:
                wait_until(lambda kind=kind: broker.shown(kind) == der(two), f"{kind} shows the new one")
            nats.sendall(b"PING\r\n")
            assert until(nats, b"PONG\r\n")
            nsq.sendall(b"PUB seen\n\0\0\0\5hello")
            assert heard(nsq, 10).endswith(b"OK")
        assert "Traceback" not in broker.server.said()


def test_a_process_comes_back_though_its_files_are_gone_or_damaged(
    everywhere: tuple[Everywhere, Certificates, Certificates], tmp_path: Path
) -> None:
    broker, one, own = everywhere
    (tmp_path / "cert.pem").write_text(one.server.cert.read_text()[:100])  # half of it is written
    for gone in ("key.pem", "own-key.pem"):
        (tmp_path / gone).unlink()
    assert broker.shown("https") == der(one)  # it begins the gateway
    for pid in [broker.server.pid_of(title) for title in ("mq-acceptor-0", "mq-acceptor-1", "mq-gateway")]:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: not is_alive(pid), "it is gone")
    kinds = (*SECURE, *OTHERS)
    assert {kind: broker.shown(kind) == der(one) for kind in kinds} == dict.fromkeys(kinds, True)
    assert broker.shown(OWN) == der(own)

    broker.reload()
    wait_until(lambda: "cannot reload, nothing is changed" in broker.server.said(), "it is said")
    assert {kind: broker.shown(kind) == der(one) for kind in kinds} == dict.fromkeys(kinds, True)

    # What is there again is shown, also by who starts later.
    two = made_in(tmp_path / "two")
    broker.show(two)
    broker.show(own, "own-")
    broker.reload()
    for kind in kinds:
        wait_until(lambda kind=kind: broker.shown(kind) == der(two), f"{kind} shows the new one")
    (tmp_path / "cert.pem").unlink()
    os.kill(broker.server.pid_of("mq-gateway"), signal.SIGKILL)
    os.kill(broker.server.pid_of("mq-acceptor-0"), signal.SIGKILL)
    for _ in range(4):  # of two acceptors
        assert {kind: broker.shown(kind) == der(two) for kind in kinds} == dict.fromkeys(kinds, True)
    assert "Traceback" not in broker.server.said()


def test_a_protocol_may_have_one_of_its_own_or_none_or_demand_more(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path)
    one = [f"--set=tls.cert={pair.server.cert}", f"--set=tls.key={pair.server.key}"]
    other = (str(pair.client.cert), str(pair.client.key))

    settings = parse(one).settings
    for section, cert, key in (
        ("nsq", "tls-cert", "tls-key"),
        ("nats", "tls-cert-file", "tls-key-file"),
        ("pulsar", "tls-cert-file", "tls-key-file"),
    ):
        assert (settings[section][cert], settings[section][key]) == (str(pair.server.cert), str(pair.server.key))
        own = parse([*one, f"--set={section}.{cert}={other[0]}", f"--set={section}.{key}={other[1]}"]).settings
        assert (own[section][cert], own[section][key]) == other
        assert not own["nats"]["allow-non-tls"] or section != "nats"
        assert not parse([*one, f"--set={section}.{cert}="]).settings[section][key]
    assert settings["nsq"]["tls-required"] == "false"
    assert settings["nats"]["allow-non-tls"]
    assert not settings["nats"]["cluster-tls-cert-file"]
    assert parse([*one, "--set=nats.tls-timeout=1s"]).settings["nats"]["allow-non-tls"]
    assert not parse([*one, "--set=nats.tls-verify=true"]).settings["nats"]["allow-non-tls"]
    assert parse([*one, "--set=nsq.tls-client-auth-policy=require"]).settings["nsq"]["tls-required"] == "true"


def test_routes_show_the_certificate_of_all_when_something_is_said_of_how_they_encrypt(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path)
    one = [f"--set=tls.cert={pair.server.cert}", f"--set=tls.key={pair.server.key}"]
    name = "cluster-tls-cert-file"
    assert not parse([*one, "--set=nats.cluster-tls-timeout=3s"]).settings["nats"][name]
    ca = f"--set=nats.cluster-tls-ca-file={pair.authority}"
    assert parse([*one, ca]).settings["nats"][name] == str(pair.server.cert)
    with pytest.raises(OptionsError, match=r"needs nats\.cluster-tls-cert-file"):
        parse([ca])
    for part in ("websocket", "leaf"):
        assert parse(one).settings["nats"][f"{part}-allow-non-tls"]
        settings = parse([*one, f"--set=nats.{part}-tls-verify=true"]).settings["nats"]
        assert settings[f"{part}-tls-cert-file"] and not settings[f"{part}-allow-non-tls"]
        assert not parse([*one, f"--set=nats.{part}-tls-cert-file="]).settings["nats"][f"{part}-tls-cert-file"]


def test_a_default_that_cannot_be_used_is_named_as_what_it_is(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path)
    with pytest.raises(OptionsError, match=r"tls\.cert .*key values mismatch"):
        parse([f"--set=tls.cert={pair.server.cert}", f"--set=tls.key={pair.client.key}"])


@pytest.mark.parametrize(
    ("section", "cert", "key", "trust"),
    [
        ("tls", "cert", "key", "client-ca"),
        ("nsq", "tls-cert", "tls-key", "tls-root-ca-file"),
        ("nats", "tls-cert-file", "tls-key-file", "tls-ca-file"),
        ("pulsar", "tls-cert-file", "tls-key-file", "tls-trust-certs-file"),
    ],
)
def test_a_file_that_cannot_be_used_is_said_to_be_what_it_is(
    tmp_path: Path, section: str, cert: str, key: str, trust: str
) -> None:
    pair = certificates.make(tmp_path)
    bad = tmp_path / "bad.pem"
    loaded = serialization.load_pem_private_key(pair.server.key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    files = {cert: pair.server.cert, key: pair.server.key, trust: pair.authority}

    def refused(name: str, content: bytes) -> str:
        bad.write_bytes(content)
        policy = [] if section != "nsq" else ["--set=nsq.tls-client-auth-policy=require-verify"]
        policy += [] if section != "nats" else ["--set=nats.tls-verify=true"]
        with pytest.raises(OptionsError) as error:
            parse([f"--set={section}.{option}={file}" for option, file in {**files, name: bad}.items()] + policy)
        assert f"{section}.{name}" in str(error.value)
        return str(error.value).rpartition(": ")[2]

    for form in (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL):
        encrypted = loaded.private_bytes(serialization.Encoding.PEM, form, locked)
        assert refused(key, encrypted) == "the key has a password"
    assert refused(key, b"") == "no key can be read from the second file"
    assert refused(key, pair.server.key.read_bytes()[:100]) == "no key can be read from the second file"
    assert refused(cert, pair.server.cert.read_bytes()[:300]) == "no certificate can be read from the first file"
    assert refused(trust, pair.authority.read_bytes()[:300]) == "the certificate in it is damaged"
    assert refused(trust, b"nothing\n") == "no certificate or crl found"


@pytest.mark.parametrize("kind", ["https", "beanstalks"])
def test_who_comes_while_it_reloads_is_served(
    everywhere: tuple[Everywhere, Certificates, Certificates], kind: str
) -> None:
    broker, one, _ = everywhere
    for _ in range(40):
        broker.reload()
        with broker.connect(kind, one.context()) as client:
            client.sendall(b"use t\r\n" if kind == "beanstalks" else b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert until(client, b"\r\n").startswith((b"USING t", b"HTTP/1.1 "))


def test_an_authority_that_is_replaced_lets_nobody_in_any_more(tmp_path: Path) -> None:
    one, two = made_in(tmp_path / "one"), made_in(tmp_path / "two")
    for name in ("", "own-"):
        Everywhere.show(Everywhere(None, tmp_path, {}), one, name)  # type: ignore[arg-type]
    shutil.copy(one.authority, tmp_path / "clients.pem")
    with running(tmp_path, f"--set=tls.client-ca={tmp_path / 'clients.pem'}") as broker:

        def is_let_in(kind: str, who: Certificates) -> bool:
            context = one.context(who.client)
            try:
                with broker.connect(kind, context) as client:
                    line = b"use t\r\n" if kind.startswith("b") else b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    client.sendall(line)
                    return client.recv(1) != b""
            except (ssl.SSLError, ConnectionError):
                return False

        kinds = (*SECURE, OWN)
        assert {kind: (is_let_in(kind, one), is_let_in(kind, two)) for kind in kinds} == dict.fromkeys(
            kinds, (True, False)
        )
        shutil.copy(two.authority, tmp_path / "clients.pem")
        broker.reload()
        for kind in kinds:
            wait_until(lambda kind=kind: is_let_in(kind, two), f"{kind} takes those of the new one")
            assert not is_let_in(kind, one), kind


@pytest.mark.parametrize(
    "behind",
    ["cert=/a", "key=/a", "cert=/a&key=", "cert=/a&key=/b&cert=/a", "cert=/a&key=/b&more=1", "user=&cert=/a&key=/b"],
)
def test_what_stands_behind_an_address_is_said_whole(behind: str) -> None:
    with pytest.raises(OptionsError, match=r"stands \?user=NAME, \?both, \?cert=FILE&key=FILE or nothing"):
        parse(["--listen", f"https://127.0.0.1:0?{behind}"])


def test_only_what_is_encrypted_from_the_first_byte_has_one_of_its_own(tmp_path: Path) -> None:
    pair = certificates.make(tmp_path).server
    behind = f"cert={pair.cert}&key={pair.key}"
    (listen,) = parse(["--listen", f"https://127.0.0.1:0?{behind}"]).listen
    assert (listen.cert, listen.key) == (str(pair.cert), str(pair.key))
    (listen,) = parse(["--listen", f"nsq-https://0.0.0.0:0?both&{behind}"]).listen
    assert listen.both and listen.cert == str(pair.cert)
    with pytest.raises(OptionsError, match="or nothing"):
        parse(["--listen", f"http://127.0.0.1:0?{behind}"])
    with pytest.raises(OptionsError, match="cert=/nowhere, key=/nowhere"):
        parse(["--listen", "https://127.0.0.1:0?cert=/nowhere&key=/nowhere"])
