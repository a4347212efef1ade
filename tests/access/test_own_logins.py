"""Logins that NATS's own users, its cluster, NSQ's auth server or Pulsar's own credentials refuse wait and are counted,
without users of ours too."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Final

import jwt
import pytest
from mq_shards.acceptor.protocols.pulsar.messages import encode

from tests.access.broker import HOST, TIMEOUT_S, running
from tests.nats import route_wire
from tests.nsq import frames
from tests.nsq.auth_server import grant, permission, running_auth
from tests.servers import Server, free_port, wait_until

SECRET: Final = b"a secret of thirty-two bytes, or more than that"
KEY: Final = "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK"
CONF: Final = f"""
authorization {{ users: [{{user: anna, password: right}}, {{nkey: {KEY}}}] }}
cluster {{ name: xyz, listen: "{HOST}:$ROUTE", authorization {{ user: other, password: right }} }}
leafnodes {{ listen: "{HOST}:$LEAF", authorization {{ user: leafy, password: right }} }}
"""
GUESSES: Final = 12
PING: Final = b"PING\r\n"
FREE: Final = 5  # wrong ones that are answered at once


def nats(**said: str) -> bytes:
    return b"CONNECT " + json.dumps(said).encode() + b"\r\n" + PING


def route(password: str) -> bytes:
    login = {"user": "other", "pass": password}
    return route_wire.line("CONNECT", {**route_wire.CONNECT, **login}) + route_wire.line("INFO", route_wire.INFO) + PING


def leaf(password: str) -> bytes:
    return route_wire.line("CONNECT", {"name": "l", "user": "leafy", "pass": password}) + PING


def nsq(secret: bytes) -> bytes:
    return b"  V2AUTH\n" + frames.sized(secret)


def pulsar(method: str, data: bytes) -> bytes:
    return encode("connect", client_version="x", protocol_version=21, auth_method_name=method, auth_data=data)


def rest(token: str) -> bytes:
    return f"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def token(key: bytes) -> str:
    return jwt.encode({"sub": "somebody"}, key, algorithm="HS256")


STRANGERS: Final = b"y" * 32
# By what is guessed: the listener, a wrong login and a right one.
LOGINS: Final = {
    "password": ("nats", nats(user="anna", **{"pass": "wrong"}), nats(user="anna", **{"pass": "right"})),
    "nkey": ("nats", nats(nkey=KEY, sig="AAAA"), nats(user="anna", **{"pass": "right"})),
    "route": ("nats-route", route("wrong"), route("right")),
    "leaf": ("nats-leaf", leaf("wrong"), leaf("right")),
    "secret": ("nsq", nsq(b"wrong"), nsq(b"right")),
    "secret without rights": ("nsq", nsq(b"powerless"), nsq(b"right")),
    "token": ("pulsar", pulsar("token", token(STRANGERS).encode()), pulsar("token", token(SECRET).encode())),
    "rest": ("pulsar-http", rest(token(STRANGERS)), rest(token(SECRET))),
}
NAMES: Final = {"password": "anna", "nkey": KEY, "route": "other", "leaf": "leafy"}
SCHEMES: Final = ("nats", "nats-route", "nats-leaf", "nsq", "pulsar", "pulsar-http", "http")
OF_CONF: Final = ("nats-route", "nats-leaf")  # NATS's configuration file says where
COUNTED_AS: Final = {"nats-leaf": "nats"}
NUMBERS: Final = {kind: n for n, kind in enumerate(LOGINS, 20)}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, int]]]:
    place = tmp_path_factory.mktemp("broker")
    (place / "secret").write_bytes(SECRET)
    ports = {scheme: free_port() for scheme in SCHEMES}
    conf = CONF.replace("$ROUTE", str(ports["nats-route"])).replace("$LEAF", str(ports["nats-leaf"]))
    (place / "nats.conf").write_text(conf)
    options = [f"--listen={scheme}://{HOST}:{ports[scheme]}" for scheme in SCHEMES if scheme not in OF_CONF]
    options += [f"--nats-config={place / 'nats.conf'}", f"--set=pulsar.token-secret-key-file={place / 'secret'}"]
    with running_auth() as auth:
        auth.answers = {"right": grant(permission(".*", [".*"], "publish")), "powerless": grant()}
        options += [f"--set=nsq.auth-http-address={auth.address}", "--insecure=http"]
        with running(place, options, ports, memory=True) as server:
            yield server, ports


def say(port: int, said: bytes, address: str) -> socket.socket:
    client = socket.create_connection((HOST, port), TIMEOUT_S, (address, 0))
    client.sendall(said)
    return client


# What only the answer to a right login has, or to a wrong one: a Pulsar frame begins with sizes, then its type.
RIGHT: Final = (b"PONG", b'"identity"', b"\x08\x03\x1a", b"HTTP/1.1 200")
WRONG: Final = (
    b"-ERR 'Authorization Violation'", b"E_AUTH_FAILED AUTH failed", b"E_UNAUTHORIZED AUTH no authorizations found",
    b"\x08\x0e", b"HTTP/1.1 401",
)  # fmt: skip


def answer(client: socket.socket, timeout_s: float = TIMEOUT_S) -> str:
    """What a login turned out to be; "": it is not answered yet."""
    heard = b""
    client.settimeout(timeout_s)
    with contextlib.suppress(BlockingIOError, TimeoutError):
        while data := client.recv(1 << 16):
            heard += data
            for signs, said in ((RIGHT, "right"), (WRONG, "wrong")):
                if any(sign in heard for sign in signs):
                    return said
    return ""


def figures(port: int) -> str:
    connection = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()


def counted(text: str, scheme: str) -> int:
    lines = [line for line in text.splitlines() if line.startswith("mq_shards_refused_logins_total")]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines if f'protocol="{scheme}"' in line))


@pytest.mark.parametrize("kind", LOGINS)
def test_wrong_ones_wait_and_are_counted_and_right_ones_do_not_wait(
    broker: tuple[Server, dict[str, int]], kind: str
) -> None:  # fmt: skip
    server, ports = broker
    scheme, wrong, right = LOGINS[kind]
    address, port = f"127.0.0.{NUMBERS[kind]}", ports[scheme]
    scheme = COUNTED_AS.get(scheme, scheme)
    before = counted(figures(ports["http"]), scheme)
    with contextlib.ExitStack() as stack:

        def said(what: bytes, by: str = address) -> socket.socket:
            return stack.enter_context(contextlib.closing(say(port, what, by)))

        assert [answer(said(wrong)) for _ in range(FREE)] == ["wrong"] * FREE
        guesses = [said(wrong) for _ in range(GUESSES)]
        assert answer(said(right)) == "right"
        assert answer(said(wrong, f"127.0.1.{NUMBERS[kind]}")) == "wrong", "who comes from elsewhere does not wait"
        assert sum(answer(client, 0) == "" for client in guesses) >= GUESSES - 4
        all_are = before + FREE + GUESSES + 1
        wait_until(lambda: counted(figures(ports["http"]), scheme) == all_are, "all are counted", 10)
    assert f"{scheme}: a login was refused ({NAMES.get(kind, 'no user')})" in server.said()
