"""Routes that are encrypted, as nats-server does it: before INFO, with certificates of both."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.nats.clusters import (
    NEW_REAL,
    OLD_REAL,
    OURS,
    OURS_3,
    Member,
    bodies,
    configured,
    meshed,
    mixtures,
    settled,
    started,
)
from tests.nats.route_wire import CONNECT, INFO, line
from tests.nsq.certificates import Certificates, Pair, make
from tests.servers import wait_until

CONF = """
host: 127.0.0.1
port: $PORT
cluster {
    name: xyz
    listen: "127.0.0.1:$ROUTE_PORT"
    tls { cert_file: "%s", key_file: "%s", ca_file: "%s", timeout: 1 %s }
    %s
}
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


def conf(certificates: Certificates, of: Pair | None = None, tls: str = "", more: str = "") -> str:
    pair = of or certificates.server
    return CONF % (pair.cert, pair.key, certificates.authority, tls, more)


@contextlib.contextmanager
def encrypted(kinds: Sequence[str], certificates: Certificates, tls: str = "") -> Iterator[list[Member]]:
    """Each with a route to the first: the others find each other through that one."""

    def make(kind: str, directory: Path, before: list[Member]) -> Member:
        routes = f'routes: ["{before[0].route_url}"]' if before else ""
        pair = certificates.client if before else certificates.server
        return Member(kind, directory, conf=conf(certificates, pair, tls, routes))

    with started([partial(make, kind) for kind in kinds]) as members:
        yield members


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS), (OURS, OURS)))
def test_where_all_have_one_certificate_routes_show_that(kinds: tuple[str, str], certificates: Certificates) -> None:
    pair = certificates.server
    options = [
        f"--set=tls.cert={pair.cert}", f"--set=tls.key={pair.key}",
        f"--set=nats.cluster-tls-ca-file={certificates.authority}",
    ]  # fmt: skip
    plain = 'listen: "127.0.0.1:$PORT"\ncluster { name: xyz, listen: "127.0.0.1:$ROUTE_PORT" %s }'
    first = conf(certificates) if kinds[0] == NEW_REAL else plain % ""
    with configured(kinds[0], first, options) as one:
        routes = f', routes: ["{one.route_url}"]'
        with configured(kinds[1], plain % routes, options) as other:
            meshed([one, other])


@pytest.mark.parametrize(
    "kinds", mixtures((NEW_REAL, OURS), (OLD_REAL, OURS), (OURS, NEW_REAL, OURS_3), (OURS, OLD_REAL, OURS))
)
def test_servers_that_encrypt_are_one_cluster(kinds: tuple[str, ...], certificates: Certificates) -> None:
    with encrypted(kinds, certificates) as members:
        meshed(members)
        listeners = [member.client(b"SUB a.* 1\r\nSUB a.b q 2\r\n") for member in members]
        meshed(members)
        payload = b"x" * 300_000  # of many records
        for member in members:
            member.client(b"PUB a.b %d\r\n%s\r\n" % (len(payload), payload)).close()
        settled(members, listeners, len(members) * (len(members) + 1))
        assert all(body == payload for wire in listeners for body in bodies(wire))
        for wire in listeners:
            wire.close()


@pytest.fixture(params=mixtures((NEW_REAL,), (OURS,)), scope="module")
def member(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Member]:
    with configured(request.param[0], conf(certificates)) as member:
        yield member


def test_nothing_is_said_before_the_handshake_and_info_says_that_it_was_due(
    member: Member, certificates: Certificates
) -> None:
    with socket.create_connection(("127.0.0.1", member.route_port), timeout=60) as plain:
        plain.settimeout(0.2)
        with pytest.raises(TimeoutError):
            plain.recv(1)
        plain.settimeout(5)
        context = certificates.context(certificates.client)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as wire:
            info = json.loads(wire.recv(4096).partition(b" ")[2])
            assert (info["tls_required"], info["tls_verify"]) == (True, True)
            wire.sendall(line("CONNECT", CONNECT) + line("INFO", INFO) + b"PING\r\n")
            heard = b""
            while b"PONG\r\n" not in heard:
                received = wire.recv(4096)
                assert received, member.said()
                heard += received


@pytest.mark.parametrize("shown", ["nothing", "a stranger's", "no handshake at all", "something else"])
def test_who_shows_no_certificate_of_the_authority_hears_nothing(
    member: Member, certificates: Certificates, shown: str
) -> None:
    pair = certificates.stranger if shown == "a stranger's" else None
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", member.route_port), timeout=60) as plain:
        if shown == "no handshake at all":
            assert plain.recv(1) == b""
            assert 0.5 < time.monotonic() - began < 4
            return
        if shown == "something else":
            plain.sendall(line("CONNECT", CONNECT) + line("INFO", INFO))
            heard = b""
            with contextlib.suppress(ConnectionError):
                while received := plain.recv(4096):
                    heard += received
            assert b"INFO" not in heard
            return
        with (
            pytest.raises((ssl.SSLError, ConnectionError, AssertionError)),
            certificates.context(pair).wrap_socket(plain, server_hostname="127.0.0.1") as wire,
        ):
            assert wire.recv(4096)


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL,), (OURS,)))
def test_a_certificate_may_say_who_a_server_is(kinds: tuple[str], certificates: Certificates) -> None:
    """Both have the name "localhost", one of them is to be known by it."""
    for tls, more, joins in (
        (", verify_and_map: true", "authorization {user: localhost, password: x}", True),
        (", verify_and_map: true", "authorization {user: localhost}", True),
        (", verify_and_map: true", "authorization {user: other, password: x}", False),
        (", verify_cert_and_check_known_urls: true", 'routes: ["nats-route://localhost:1"]', True),
        (", verify_cert_and_check_known_urls: true", 'routes: ["nats-route://127.0.0.1:1"]', False),
    ):
        with (
            configured(kinds[0], conf(certificates, tls=tls, more=more)) as member,
            socket.create_connection(("127.0.0.1", member.route_port), timeout=60) as plain,
            certificates.context(certificates.client).wrap_socket(plain, server_hostname="127.0.0.1") as wire,
        ):
            # What is not read before it closes would cost us its last words.
            wire.sendall(line("CONNECT", CONNECT) + (line("INFO", INFO) + b"PING\r\n" if joins else b""))
            heard = b""
            while not re.search(rb"(PONG|-ERR .*)\r\n", heard) and (received := wire.recv(4096)):
                heard += received
            assert (b"PONG" in heard) is joins, (tls, more, heard, member.said())
            assert joins or b"-ERR 'Authorization Violation'\r\n" in heard


@pytest.mark.parametrize("pins", [False, True], ids=["any key", "another key"])
def test_a_key_that_is_not_pinned_is_refused(pins: bool, certificates: Certificates) -> None:
    tls = f', pinned_certs: ["{"0" * 64}"]' if pins else ""
    with configured(OURS, conf(certificates, tls=tls)) as first:
        routes = f'routes: ["{first.route_url}"]'
        with configured(OURS, conf(certificates, certificates.client, more=routes)) as second:
            if not pins:
                meshed([first, second])
                return
            wait_until(lambda: "certificate not pinned" in first.said(), "it is said why")
            assert "there is a route" not in first.said()


def test_a_server_that_is_not_who_it_should_be_is_not_spoken_to_unless_that_is_asked_for(
    certificates: Certificates,
) -> None:
    """Its certificate is for localhost and 127.0.0.1; 127.0.0.2 leads there too."""
    with configured(OURS, conf(certificates).replace('"127.0.0.1:$ROUTE_PORT"', '"0.0.0.0:$ROUTE_PORT"')) as first:
        routes = f'routes: ["nats-route://127.0.0.2:{first.route_port}"]'
        with configured(OURS, conf(certificates, certificates.client, more=routes)) as second:
            wait_until(lambda: "CERTIFICATE_VERIFY_FAILED" in second.said(), "it is said why")
            assert "there is a route" not in second.said()
        with configured(OURS, conf(certificates, certificates.client, ", insecure: true", routes)) as second:
            meshed([first, second])
