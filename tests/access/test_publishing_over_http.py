"""POST /pub and /mpub where there are users: acceptors publish for who may, and the gateway is not needed for it."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.access.broker import BOSS, CLERK, HOST, NOBODY, SHOP, TIMEOUT_S, Guarded, Person, guarded
from tests.ready import readable
from tests.servers import free_port

OPEN = "--insecure=nsq-http"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    port = free_port()
    with guarded(
        tmp_path_factory.mktemp("http"), (BOSS, SHOP, CLERK, NOBODY),
        f"--listen=nsq-http://{HOST}:{port}?user=clerk",
    ) as one:  # fmt: skip
        yield replace(one, ports={**one.ports, "clerk": port})


def bearer(person: Person) -> str:
    return f"Bearer {person.token}"


def basic(person: Person, password: str = "") -> str:
    return "Basic " + base64.b64encode(f"{person.name}:{password or person.password}".encode()).decode()


class Kept:
    """A connection that is kept; who is wrong often from one address has to wait."""

    def __init__(self, broker: Guarded, scheme: str = "nsq-http", source: str = HOST) -> None:
        port = broker.ports[scheme]
        self._connection = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT_S, source_address=(source, 0))

    def post(self, target: str, who: str = "", body: bytes = b"one") -> tuple[int, str]:
        self._connection.request("POST", target, body, {"Authorization": who} if who else {})
        return self._answer()

    def get(self, target: str, who: str = "") -> tuple[int, str]:
        self._connection.request("GET", target, headers={"Authorization": who} if who else {})
        return self._answer()

    def _answer(self) -> tuple[int, str]:
        with self._connection.getresponse() as answer:
            self.headers = {name: value for name, value in answer.getheaders() if name != "Date"}
            return answer.status, answer.read().decode()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def kept(broker: Guarded) -> Iterator[Kept]:
    with contextlib.closing(Kept(broker)) as connection:
        yield connection


@contextlib.contextmanager
def without_gateway(broker: Guarded) -> Iterator[None]:
    """It does not go on; for a moment, before it would be replaced."""
    named = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in broker.server.pids()}
    (gateway,) = (pid for pid, name in named.items() if name == "mq-gateway")
    os.kill(gateway, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # on a slow machine it has been replaced
            os.kill(gateway, signal.SIGCONT)


def published(broker: Guarded, topic: str) -> int:
    status, stats = broker.request("GET", f"/stats?format=json&topic={topic}", scheme="nsq-http", token=BOSS.token)
    assert status == 200
    topics: list[dict[str, Any]] = stats["topics"]
    return sum(int(one["message_count"]) for one in topics)


def test_acceptors_publish_for_who_may_by_token_by_password_and_by_listener(broker: Guarded) -> None:
    broker.request("GET", "/ping", scheme="nsq-http")  # the gateway is there, and is not needed:
    with without_gateway(broker):
        for _ in range(2):  # by any acceptor
            for who in (bearer(BOSS), basic(BOSS), bearer(SHOP), basic(SHOP), f"bearer  {SHOP.token}"):
                with contextlib.closing(Kept(broker)) as client:
                    for _ in range(3):
                        assert client.post("/pub?topic=orders", who) == (200, "OK")
                        assert client.post("/mpub?topic=orders", who, b"two\nthree") == (200, "OK")
        with contextlib.closing(Kept(broker)) as client:
            for topic in (f"many{i}" for i in range(100)):
                assert client.post(f"/pub?topic={topic}", bearer(BOSS)) == (200, "OK")
    assert published(broker, "orders") == 2 * 5 * 3 * 3


def test_who_may_not_is_told_so_and_publishes_what_he_may_on_the_same_connection(broker: Guarded, kept: Kept) -> None:
    for _ in range(3):
        assert kept.post("/pub?topic=mail", bearer(SHOP)) == (403, '{"message":"shop may not publish mail"}')
        assert kept.post("/mpub?topic=mail", basic(CLERK)) == (403, '{"message":"clerk may not publish mail"}')
        assert kept.post("/pub?topic=orders", bearer(SHOP)) == (200, "OK")
        assert kept.post("/pub?topic=orders", basic(NOBODY))[0] == 403
        assert kept.post("/pub?topic=mail", bearer(BOSS)) == (200, "OK")
    assert published(broker, "mail") == 3


def test_what_one_may_is_not_what_who_comes_next_may(kept: Kept) -> None:
    """Whoever is in front of several sends their requests on one connection."""
    for _ in range(3):
        assert kept.post("/pub?topic=next", bearer(BOSS)) == (200, "OK")
        assert kept.post("/pub?topic=next", bearer(SHOP))[0] == 403
        assert kept.post("/pub?topic=next")[0] == 401
        assert kept.post("/pub?topic=next", bearer(BOSS)[:-1])[0] == 401
        assert kept.post("/pub?topic=nex", bearer(SHOP))[0] == 403


def test_who_is_nobody_hears_the_same_everywhere(broker: Guarded, kept: Kept) -> None:
    expected = kept.get("/stats")
    headers = dict(kept.headers)
    assert expected[0] == 401
    assert json.loads(expected[1])["message"] == "who are you? A login is needed"
    wrong = ("", "Bearer", "Bearer mqs_of-nobody", basic(BOSS, "wrong"), basic(Person("stranger")), "Basic !", "x")
    for n, who in enumerate(wrong):
        with contextlib.closing(Kept(broker, source=f"127.0.1.{n + 1}")) as client:
            for target in ("/pub?topic=orders", "/mpub?topic=orders"):
                assert client.post(target, who) == expected, who
                assert client.headers == headers, who


def test_requests_that_come_together_are_answered_in_their_order(broker: Guarded) -> None:
    def post(topic: str, who: str, body: bytes = b"x") -> bytes:
        head = f"POST /pub?topic={topic} HTTP/1.1\r\nHost: x\r\nAuthorization: {who}\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body

    wanted = [("orders", bearer(SHOP), 200), ("orders", basic(SHOP), 200), ("other", bearer(SHOP), 403),
              ("orders", bearer(SHOP), 200), ("orders", "Bearer x", 401), ("other", bearer(BOSS), 200)]  # fmt: skip
    address = HOST, broker.ports["nsq-http"]
    with socket.create_connection(address, timeout=TIMEOUT_S, source_address=("127.0.2.1", 0)) as client:
        client.sendall(b"".join(post(topic, who) for topic, who, _ in wanted * 4))
        client.shutdown(socket.SHUT_WR)
        data = b""
        while received := client.recv(1 << 16):
            data += received
    assert [int(part[:3]) for part in data.split(b"HTTP/1.1 ")[1:]] == [status for _, _, status in wanted * 4]


def test_a_listener_is_somebodys_also_for_what_comes_back_from_the_gateway(broker: Guarded) -> None:
    with contextlib.closing(Kept(broker, "clerk")) as client:
        for _ in range(2):
            assert client.post("/pub?topic=orders")[0] == 403
            assert client.post("/pub?topic=orders", bearer(SHOP)) == (200, "OK")
            assert client.get("/stats?format=json")[0] == 200
            assert client.post("/topic/empty?topic=mail")[0] in (200, 404)  # which he may


def test_users_who_change_change_what_open_connections_may(tmp_path: Path) -> None:
    poorer = replace(SHOP, rights={"publish": ["other"]})
    with guarded(tmp_path, (BOSS, SHOP, CLERK), memory=True) as broker, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(contextlib.closing(Kept(broker))) for _ in range(8)]
        for client in clients:
            for who in (bearer(SHOP), basic(SHOP), bearer(CLERK)):
                client.post("/pub?topic=orders", who)
            assert client.post("/pub?topic=orders", bearer(SHOP)) == (200, "OK")
        broker.rewrite(BOSS, poorer)
        for client in clients:
            for who, status in ((bearer(SHOP), 403), (basic(SHOP), 403), (bearer(CLERK), 401)):
                servers.wait_until(
                    lambda client=client, who=who, status=status: client.post("/pub?topic=orders", who)[0] == status,
                    "each acceptor has heard",
                )
            assert client.post("/pub?topic=other", basic(SHOP)) == (200, "OK")


def test_where_it_is_left_open_nobody_is_asked(tmp_path: Path) -> None:
    with guarded(tmp_path, (BOSS,), OPEN, memory=True) as broker, contextlib.closing(Kept(broker)) as client:
        for _ in range(2):
            assert client.post("/pub?topic=any") == (200, "OK")
            assert client.post("/pub?topic=any", "Bearer x") == (200, "OK")
            assert client.post("/topic/empty?topic=any")[0] == 200


def test_who_loses_the_right_in_a_large_body_is_told_and_others_go_on(tmp_path: Path) -> None:
    with guarded(tmp_path, memory=True) as broker, contextlib.closing(Kept(broker)) as other:
        with socket.create_connection((HOST, broker.ports["nsq-http"]), timeout=TIMEOUT_S) as sock:
            head = f"POST /mpub?topic=orders HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer(SHOP)}\r\n"
            assert other.post("/pub?topic=orders", bearer(SHOP)) == (200, "OK")
            for _ in range(2):
                sock.sendall(head.encode() + b"Content-Length: 2\r\n\r\nx\n")
                assert sock.recv(4000).startswith(b"HTTP/1.1 200 ")
            before = set(broker.server.pids())
            sock.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % (5 << 20))
            sock.sendall((b"y" * 1000 + b"\n") * 4600)  # more than may go to the gateway with a connection
            broker.rewrite(BOSS, Person("shop", {"consume": ["mail"]}), CLERK)

            def is_answered() -> bool:
                sock.sendall(b"z")  # with it, it is looked at again who may
                return bool(readable([sock], 0.05))

            servers.wait_until(is_answered, "it is refused", TIMEOUT_S)
            assert sock.recv(4000).startswith(b"HTTP/1.1 403 ")
        assert other.post("/pub?topic=orders", bearer(BOSS)) == (200, "OK")
        assert before <= set(broker.server.pids())
