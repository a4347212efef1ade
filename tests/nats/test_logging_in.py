"""Who does not say who it is, or goes beyond a limit, is told so: to the byte what a nats-server says, and when."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.nats.conftest import KINDS
from tests.nats.servers import NatsServer, running
from tests.nats.wire import Wire

VIOLATION: Final = (b"-ERR 'Authorization Violation'\r\n", True)
TOKENS: Final[dict[bytes, tuple[bytes, bool]]] = {
    b'CONNECT {"auth_token":"secret","verbose":false}\r\n': (b"PONG\r\n", False),
    b'CONNECT {"auth_token":"Secret","verbose":false}\r\n': VIOLATION,
    b'CONNECT {"pass":"secret","verbose":false}\r\n': VIOLATION,
    b'CONNECT {"user":"secret","verbose":false}\r\n': VIOLATION,
    b'CONNECT {"auth_token":1}\r\n': (b"", True),
    b'CONNECT {"auth_token":"secret","account":"A"}\r\n': VIOLATION,
    b'CONNECT {"auth_token":"secret","protocol":7}\r\n': (b"-ERR 'invalid client protocol'\r\n", True),
    b'CONNECT {"auth_token":"wrong","protocol":7}\r\n': VIOLATION,
    b"CONNECT {}\r\n": VIOLATION,
    b"CONNECT\r\n": (b"", True),
    b"PING\r\n": VIOLATION,
}


@contextmanager
def serving(kind: int, path: Path, text: str) -> Iterator[NatsServer]:
    conf = path / "nats-server.conf"
    conf.write_text(text)
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(conf)]) as server:
        yield server


def heard(port: int, said: bytes) -> tuple[bytes, bool]:
    client = Wire(port)
    client.send(said)
    client.barrier()
    client.close()
    return client.heard.data, client.heard.closed


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_token(kind: int, tmp_path: Path) -> None:
    with serving(kind, tmp_path, "authorization { token: secret }") as server:
        assert {said: heard(server.port, said) for said in TOKENS} == TOKENS


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_user_and_password_may_have_letters_that_are_not_printed(kind: int) -> None:
    words = ["--user", "u\n\bu", "--pass", "p\t\rp"] if kind == 0 else ["nats.user=u\n\bu", "nats.password=p\t\rp"]
    with running(kind, words) as server:
        assert heard(server.port, b'CONNECT {"user":"u\\n\\bu","pass":"p\\t\\rp"}\r\nPING\r\n')[0].endswith(b"PONG\r\n")
        assert heard(server.port, b'CONNECT {"user":"uu","pass":"pp"}\r\n')[1]


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("said", [b"", b"CONN"], ids=["nothing", "the beginning of a word"])
def test_who_says_nothing_is_told_so_in_time(kind: int, tmp_path: Path, said: bytes) -> None:
    with serving(kind, tmp_path, "authorization { user: a, password: b, timeout: 0.3 }") as server:
        client, began = Wire(server.port), time.monotonic()
        client.send(said)
        while not client.heard.closed:
            client.receive()
        client.close()
        assert client.heard.data == b"-ERR 'Authentication Timeout'\r\n"
        assert time.monotonic() - began > 0.25


@pytest.mark.parametrize("kind", KINDS[:2])
def test_limits_are_said(kind: int, tmp_path: Path) -> None:
    """Of subscriptions, and the connection stays; others end it."""
    with serving(kind, tmp_path, "max_subscriptions: 2\nmax_payload: 10\nmax_control_line: 64\n") as server:
        port, quiet = server.port, b'CONNECT {"verbose":false}\r\n'
        subscribed = b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nUNSUB 1\r\nSUB c 3\r\nPUB c 10\r\n0123456789\r\n"
        assert heard(port, quiet + subscribed) == (
            b"-ERR 'maximum subscriptions exceeded'\r\nMSG c 3 10\r\n0123456789\r\nPONG\r\n",
            False,
        )
        assert heard(port, quiet + b"PUB a 11\r\n") == (b"-ERR 'Maximum Payload Violation'\r\n", True)
        long = b"SUB " + b"a" * 80 + b" 1\r\n"
        assert heard(port, quiet + long) == (b"-ERR 'maximum control line exceeded'\r\n", True)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_payload_that_is_too_large_ends_with_a_reset_if_it_came_with_its_line(kind: int, tmp_path: Path) -> None:
    """A nats-server leaves it unread. What it has read, or who has published as much before, ends as others do."""
    large, small = b"PUB a 1001\r\n" + b"x" * 1001 + b"\r\n", b"PUB a 900\r\n" + b"x" * 900 + b"\r\n"
    with serving(kind, tmp_path, "max_payload: 1000\n") as server:
        assert _end(server.port, b"", large) == "reset"
        assert _end(server.port, b"", large[:112]) == "closed"
        assert _end(server.port, small * 100, large) == "closed"


def _end(port: int, before: bytes, said: bytes) -> str:
    client = Wire(port)
    client.send(b'CONNECT {"verbose":false}\r\n' + before)
    client.barrier()
    client.send(said)
    heard, end = b"", "closed"
    try:
        while received := client.socket.recv(4096):
            heard += received
    except ConnectionResetError:
        end = "reset"
    client.close()
    assert heard == b"-ERR 'Maximum Payload Violation'\r\n"
    return end
