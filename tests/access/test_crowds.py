"""A crowd of wrong logins keeps nobody else out: neither of a server's connections, nor of the logins that may wait."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Any

from mq_shards.acceptor.access.attempts import MAX_WAIT_S, Attempts
from mq_shards.acceptor.access.hashes import password_hash
from mq_shards.acceptor.access.logins import MAX_DELAYED, MAX_WAITING, Logins, Said
from mq_shards.acceptor.access.rights import Login, User, Users
from mq_shards.csrc._core import ffi, lib
from mq_shards.gateway.pipeline.http import MAX_CONNECTIONS

from tests.access.broker import BOSS, HOST, TIMEOUT_S, guarded

STRANGER = "127.0.0.5"
WRONG = b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n"


def test_a_connection_whose_wrong_login_waits_gives_its_place_to_who_comes(tmp_path: Path) -> None:
    with guarded(tmp_path, (BOSS,)) as broker, contextlib.ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS + 10):
            client = socket.create_connection((HOST, broker.ports["http"]), TIMEOUT_S, (STRANGER, 0))
            stack.enter_context(contextlib.closing(client)).sendall(WRONG)
        for _ in range(5):
            assert broker.request("GET", "/v1/topics", token=BOSS.token)[0] == 200


def test_who_was_refused_gives_its_place_before_who_has_not_asked_yet(tmp_path: Path) -> None:
    with guarded(tmp_path, (BOSS,)) as broker, contextlib.ExitStack() as stack:

        def connected(address: str) -> socket.socket:
            client = socket.create_connection((HOST, broker.ports["http"]), TIMEOUT_S, (address, 0))
            return stack.enter_context(contextlib.closing(client))

        for n in range(MAX_CONNECTIONS):
            client = connected(f"127.1.0.{1 + n // 5}")  # five of an address are answered at once
            client.sendall(WRONG)
            assert client.recv(100).startswith(b"HTTP/1.1 401")
        first = connected(HOST)
        for _ in range(20):
            connected(HOST)
        assert broker.request("GET", "/v1/topics", token=BOSS.token)[0] == 200
        first.sendall(WRONG.replace(b"wrong", BOSS.token.encode()))
        assert first.recv(100).startswith(b"HTTP/1.1 200")


def test_wrong_tokens_of_one_address_refuse_no_password_of_another() -> None:
    user = User("boss", password_hash("right", 4))
    table: Any = ffi.new("struct login_attempts *")
    lib.login_attempts_format(table, 7)
    later: list[float] = []
    compared = threading.Event()
    logins = Logins(lambda: Users([user]), compared.set, lambda wait_s, work: later.append(wait_s), Attempts(table))
    for _ in range(2 * MAX_WAITING):
        logins.prove(Said(token="wrong"), f"{STRANGER}:1", lambda login: None)
    found: list[Login | None] = []
    logins.prove(Said("boss", "right"), "127.0.0.6:1", found.append)
    assert compared.wait(TIMEOUT_S)
    logins.settle()
    logins.close()
    assert [login is not None and login.user.name for login in found] == ["boss"]
    assert len(later) == MAX_DELAYED and max(later) <= MAX_WAIT_S


def test_a_password_that_nobody_looks_at_is_refused_late() -> None:
    """Who is told at once comes again at once: thousands of times a second."""
    table: Any = ffi.new("struct login_attempts *")
    lib.login_attempts_format(table, 7)
    later: list[float] = []
    logins = Logins(Users, lambda: None, lambda wait_s, work: later.append(wait_s), Attempts(table))
    refused: list[Login | None] = []
    for _ in range(100):
        logins.prove(Said("boss", "wrong"), f"{STRANGER}:1", refused.append)
    logins.close()
    assert refused == []
    assert later.count(MAX_WAIT_S) > 80
