"""Tokens, and pulsar+ssl://."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.gateway.pulsar.http_tenants import Urls
from mq_shards.supervisor.options.options import parse

from tests.nsq.certificates import make
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import MAX, Wire

pulsar = pytest.importorskip("pulsar")

SECRET = b"a secret of thirty-two bytes, or more than that"


def token(**claims: object) -> bytes:
    return jwt.encode({"sub": "somebody", **claims}, SECRET, algorithm="HS256").encode()


def say_connect(wire: Wire, data: bytes, method: str = "token", *, refreshes: bool = True) -> None:
    wire.say(
        "connect", client_version="x", protocol_version=21, auth_method_name=method, auth_data=data,
        feature_flags={"supports_auth_refresh": refreshes},
    )  # fmt: skip


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> object:
    key = tmp_path_factory.mktemp("keys") / "secret"
    key.write_bytes(SECRET)
    with running(settings=[f"pulsar.token-secret-key-file={key}"]) as server:
        yield server


def test_who_has_a_token_gets_in(guarded: PulsarServer, topic: str) -> None:
    with Wire(guarded.port) as wire:
        say_connect(wire, token(exp=time.time() + 100))
        wire.expect("connected")
        wire.producer(topic)
    with Wire(guarded.port) as wire:
        say_connect(wire, token().replace(b".", b" . ") + b"\n")  # a real broker lets them in
        wire.expect("connected")
    client = pulsar.Client(guarded.url, authentication=pulsar.AuthenticationToken(token().decode()))
    client.create_producer(topic).send(b"m")
    client.close()


@pytest.mark.parametrize("secret", [b"", b"k" * 31])
def test_a_key_that_can_be_guessed_is_refused(tmp_path: Path, secret: bytes) -> None:
    """A file that is being written is empty at first. After a reload nobody could log in any more."""
    key = tmp_path / "secret"
    key.write_bytes(SECRET)
    options = ["--listen=pulsar://127.0.0.1:0", f"--set=pulsar.token-secret-key-file={key}"]
    parse(options)
    key.write_bytes(secret)
    with pytest.raises(OptionsError, match=f"it has {len(secret)} bytes, and needs 32 at least"):
        parse(options)


FOREIGN = jwt.encode({"sub": "x"}, b"y" * 32, algorithm="HS256").encode()
UNSIGNED = jwt.encode({"sub": "x"}, None, algorithm="none").encode()


@pytest.mark.parametrize(
    ("data", "method"),
    [
        (b"", "token"), (b"x", "token"), (FOREIGN, "token"), (UNSIGNED, "token"), (token(exp=5), "token"),
        (token(exp=10**400), "token"),
        (token(sub=""), "token"), (token(), ""), (token(), "basic"), (b"\xff\xfe", "token"),
    ],
)  # fmt: skip
def test_who_has_none_is_told_and_cut_off(guarded: PulsarServer, data: bytes, method: str) -> None:
    with Wire(guarded.port) as wire:
        say_connect(wire, data, method)
        error = wire.expect("error")
        assert (error.request_id, error.error) == (MAX, 3)
        assert wire.is_closed()


def test_a_token_that_expires_is_asked_for_anew(guarded: PulsarServer, topic: str) -> None:
    with Wire(guarded.port) as wire:
        say_connect(wire, token(exp=int(time.time()) + 2))
        assert wire.expect("authChallenge").challenge.auth_method_name == "token"
        wire.say("authResponse", response={"auth_method_name": "token", "auth_data": token()})
        wire.producer(topic)
        wire.say("authResponse", response={"auth_method_name": "token", "auth_data": token(sub="another")})
        assert wire.is_closed()
    with Wire(guarded.port) as wire:
        say_connect(wire, token(exp=int(time.time()) + 2), refreshes=False)
        assert wire.is_closed()


def test_a_public_key_verifies_tokens(tmp_path: Path, topic: str) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (tmp_path / "key").write_bytes(public)
    settings = [f"pulsar.token-public-key-file={tmp_path / 'key'}", "pulsar.token-public-alg=es256"]
    with running(settings=settings) as server, Wire(server.port) as wire:
        say_connect(wire, jwt.encode({"sub": "x"}, private, algorithm="ES256").encode())
        wire.expect("connected")
        with Wire(server.port) as other:
            # A public key is no secret.
            say_connect(other, token())
            assert other.expect("error").error == 3


def test_clients_may_be_encrypted(tmp_path: Path, topic: str) -> None:
    found = make(tmp_path)
    settings = [f"pulsar.tls-cert-file={found.server.cert}", f"pulsar.tls-key-file={found.server.key}"]
    with running(settings=settings) as server:
        url = server.url.replace("pulsar://127.0.0.1", "pulsar+ssl://localhost")
        client = pulsar.Client(url, tls_trust_certs_file_path=str(found.authority), tls_validate_hostname=False)
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "s")
        for i in range(100):
            producer.send_async(str(i).encode() * 1000, lambda _result, _id: None)
        producer.flush()
        for i in range(100):
            message = consumer.receive(8000)
            assert message.data() == str(i).encode() * 1000
            consumer.acknowledge(message)
        client.close()
        with Wire(server.port) as wire:
            wire.connect().producer(topic)  # without, too


def test_a_lookup_by_rest_names_addresses_that_its_client_can_reach(tmp_path: Path) -> None:
    found = make(tmp_path)
    settings = [f"tls.cert={found.server.cert}", f"tls.key={found.server.key}"]
    with running(settings=settings) as server:
        said = looked_up(server.http_port)
        assert said["brokerUrl"] == server.url
        assert said["brokerUrlTls"] == said["brokerUrlSsl"] == server.url.replace("pulsar://", "pulsar+ssl://")
        with pytest.raises(urllib.error.HTTPError, match="500"):
            looked_up(server.http_port, "?listenerName=outside")
    with running(settings=["pulsar.advertised-url=pulsar://broker.example:6650"]) as server:
        said = looked_up(server.http_port)
        assert (said["brokerUrl"], said["brokerUrlSsl"]) == ("pulsar://broker.example:6650", "")
        assert "brokerUrlTls" not in said


@pytest.mark.parametrize(
    ("asked", "host"),
    [("b.example:8080", "b.example"), ("b.example", "b.example"), ("[::1]:8080", "[::1]"), ("", "0.0.0.0"),
     ('a"b', "0.0.0.0")],
)  # fmt: skip
def test_where_all_addresses_are_listened_on_a_lookup_names_the_one_that_was_asked(asked: str, host: str) -> None:
    urls = Urls("pulsar://0.0.0.0:1", "", "http://[::]:2", "https://127.0.0.1:3").as_asked(asked)
    web = "[::]" if host == "0.0.0.0" else host
    assert urls == Urls(f"pulsar://{host}:1", "", f"http://{web}:2", "https://127.0.0.1:3")


def looked_up(http_port: int, more: str = "") -> dict[str, str]:
    address = f"http://127.0.0.1:{http_port}/lookup/v2/topic/persistent/public/default/t{more}"
    with urllib.request.urlopen(address) as answer:
        found: dict[str, str] = json.load(answer)
        return found


def test_tls_without_a_certificate_is_no_conversation(server: PulsarServer) -> None:
    with Wire(server.port) as wire:
        wire.raw(b"\x16\x03\x01\x00\x05hello")
        assert wire.is_closed()
