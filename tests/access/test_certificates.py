"""A client's certificate says who it is, where everything is encrypted."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator

import pytest
from mq_shards.acceptor.access.hashes import token_hash

from tests.access.broker import HOST, TIMEOUT_S, running, wire_auth
from tests.nsq import certificates, frames
from tests.nsq.certificates import CLIENT_NAME, Certificates
from tests.nsq.wire import Wire
from tests.servers import Server, free_port
from tests.terminal.commands import done, run

USERS = f"""
[users.shop]
certificates = ["{CLIENT_NAME}"]
publish = ["orders"]
consume = ["mail"]
[users.other]
tokens = ["{token_hash("of-other")}"]
publish = ["other"]
"""


class Encrypted:
    def __init__(self, server: Server, made: Certificates, ports: dict[str, int]) -> None:
        self.server, self.made, self.ports = server, made, ports

    @property
    def context(self) -> ssl.SSLContext:
        return self.made.context(self.made.client)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    place = tmp_path_factory.mktemp("certificates")
    made = certificates.make(place)
    (place / "users.toml").write_text(USERS)
    ports = {scheme: free_port() for scheme in ("beanstalks", "https", "nsq", "nsq-https", "pulsar")}
    options = [f"--listen={scheme}://{HOST}:{port}" for scheme, port in ports.items()]
    sets = {
        "tls.cert": made.server.cert, "tls.key": made.server.key, "tls.client-ca": made.authority,
        "nsq.tls-cert": made.server.cert, "nsq.tls-key": made.server.key, "nsq.tls-root-ca-file": made.authority,
        "nsq.tls-client-auth-policy": "require-verify",
        "pulsar.tls-trust-certs-file": made.authority, "pulsar.tls-auth": "true",
    }  # fmt: skip
    options += [f"--set={name}={value}" for name, value in sets.items()] + [f"--users={place / 'users.toml'}"]
    with running(place, options, ports, memory=True) as server:
        yield Encrypted(server, made, ports)


def test_beanstalkds_clients_are_who_their_certificates_say(broker: Encrypted) -> None:
    import socket

    with socket.create_connection((HOST, broker.ports["beanstalks"]), timeout=TIMEOUT_S) as plain:
        client = broker.context.wrap_socket(plain, server_hostname="localhost")
        client.sendall(b"use orders\r\nput 0 0 60 1\r\nx\r\nuse other\r\nput 0 0 60 1\r\nx\r\nwatch mail\r\n")
        data = b""
        while not data.endswith(b"WATCHING 1\r\n"):
            received = client.recv(1000)
            assert received, data
            data += received
    words = [line.split()[0] for line in data.splitlines()]
    assert words == [b"USING", b"INSERTED", b"USING", b"UNKNOWN_COMMAND", b"WATCHING"]


def test_nsqs_http_clients_are_who_their_certificates_say_whoever_answers(broker: Encrypted) -> None:
    """An acceptor, or the gateway, to which it relays; on one connection, to and fro."""
    connection = http.client.HTTPSConnection(
        "localhost", broker.ports["nsq-https"], context=broker.context, timeout=TIMEOUT_S
    )

    def asks(method: str, target: str, token: str = "") -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, target, b"x" if method == "POST" else None, headers)
        with connection.getresponse() as answer:
            answer.read()
            return answer.status

    for _ in range(2):
        assert asks("POST", "/pub?topic=orders") == 200
        assert asks("POST", "/pub?topic=other") == 403
        assert asks("GET", "/ping") == 200
        assert asks("POST", "/pub?topic=other", "of-other") == 200
        assert asks("POST", "/pub?topic=orders", "of-other") == 403
        assert asks("POST", "/pub?topic=orders", "of-nobody") == 401
    connection.close()


def test_browsers_and_programs_are_who_their_certificates_say_or_their_token(broker: Encrypted) -> None:
    def asks(headers: dict[str, str]) -> object:
        connection = http.client.HTTPSConnection("localhost", broker.ports["https"], context=broker.context)
        connection.request("GET", "/v1/login", headers=headers)
        return json.loads(connection.getresponse().read())["user"]

    assert asks({}) == "shop"
    assert asks({"Authorization": "Bearer of-other"}) == "other"


def test_nsqs_own_tls_says_who_somebody_is_and_auth_says_otherwise(broker: Encrypted) -> None:
    for secret, topic, wrong in (("", "orders", "other"), ("of-other", "other", "orders")):
        with Wire(broker.ports["nsq"]) as wire:
            wire.identify(tls_v1=True)
            wire.start_tls(broker.context)
            assert wire.frame() == frames.OK
            if secret:
                assert b'"identity":"other"' in wire.ask(wire_auth(secret)).data
            wire.publish(topic, b"x")
            assert wire.ask(frames.pub(wrong, b"x")).data.startswith(b"E_UNAUTHORIZED")


def test_pulsars_clients_are_who_their_certificates_say(broker: Encrypted) -> None:
    made = broker.made
    at = (f"--at=pulsar+ssl://localhost:{broker.ports['pulsar']}", f"--ca={made.authority}",
          f"--cert={made.client.cert}", f"--key={made.client.key}")  # fmt: skip
    done("publish", "orders", "x", *at)
    assert b"not authorized to Produce" in run("publish", "other", "x", *at).stderr
