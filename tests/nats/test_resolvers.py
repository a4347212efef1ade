"""Accounts that a resolver elsewhere knows: fetched, told anew, and not waited for."""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import ssl
import threading
from collections.abc import Callable
from typing import Final

import pytest

from tests.nats import test_operator
from tests.nats.jwts import Account
from tests.nats.operators import (
    KINDS,
    OPERATOR,
    SIGNER,
    STRANGER,
    SYSTEM,
    VIOLATION,
    A,
    B,
    C,
    accounts,
    conf,
    connect,
    heard,
    introduce,
    request,
    resolver,
    serving,
    until,
)
from tests.nats.test_mesh import all_children
from tests.nats.wire import Wire
from tests.nsq.certificates import Certificates, make
from tests.servers import comm_of, wait_until


@pytest.mark.parametrize("kind", KINDS)
def test_accounts_are_fetched_from_a_url(kind: int) -> None:
    with resolver(accounts()) as (url, asked), serving(kind, conf(resolver=f"URL({url})", preload={})) as server:
        assert heard(server, B.user("u1")) == b""
        assert heard(server, Account("nobody").user("u2")) == VIOLATION
        assert B.public in asked
        test_operator.test_streams_come_to_those_who_import_them(server)


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("said", ["in the file", "by the operator", "by both"])
def test_where_accounts_are_is_said_in_the_file_or_by_the_operator(kind: int, said: str) -> None:
    """With a slash behind it or without; the file counts for more."""
    with resolver(accounts()) as (url, _):
        server_url = {"by the operator": url.removesuffix("/accounts/"), "by both": "http://127.0.0.1:1"}.get(said, "")
        own = OPERATOR.own(signing_keys=[SIGNER.public], **({"account_server_url": server_url} if server_url else {}))
        content = f"operator: {own}\n"
        if said != "by the operator":
            content += f"resolver: URL({url.removesuffix('/')})\n"
        with serving(kind, content) as server:
            assert heard(server, B.user("u1")) == b""
            assert heard(server, Account("nobody").user("u2")) == VIOLATION


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize(
    ("block", "is_let_in"),
    [
        ("ca_file: '{authority}', cert_file: '{client}', key_file: '{key}'", True),
        ("ca_file: '{authority}'", False),
        ("cert_file: '{client}', key_file: '{key}'", False),
        ("cert_file: '{client}', key_file: '{key}', insecure: true", True),
    ],
    ids=["all", "without a certificate", "of an unknown authority", "whoever it is"],
)
def test_a_resolver_may_be_encrypted(certificates: Certificates, kind: int, block: str, is_let_in: bool) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.authority))
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(certificates.server.cert, certificates.server.key)
    pair = certificates.client
    said = block.format(authority=certificates.authority, client=pair.cert, key=pair.key)
    with resolver(accounts(), tls) as (url, asked), contextlib.ExitStack() as stack:
        content = conf(f"resolver_tls {{ {said} }}", resolver=f"URL({url})", preload={})
        if kind == 0 and not is_let_in:
            stack.enter_context(pytest.raises(RuntimeError, match="could not fetch"))  # and does not start
        server = stack.enter_context(serving(kind, content))
        assert heard(server, B.user("u1")) == (b"" if is_let_in else VIOLATION)
        assert (B.public in asked) == is_let_in


@pytest.mark.parametrize("kind", [1, 2])
def test_an_account_with_very_many_mappings_is_fetched_and_may_be_told_anew(kind: int) -> None:
    """Its JWT is larger than a packet to another process may be."""
    many = Account("many")

    def jwt(to: str) -> str:
        mappings = {f"from.{n}": [{"subject": f"{to}.{n}", "weight": 100}] for n in range(1600)}
        return OPERATOR.account(many, mappings=mappings)

    known = {**accounts(), many.public: jwt("first")}
    with resolver(known) as (url, _), serving(kind, conf(resolver=f"URL({url})", preload={})) as server:
        for to in ("first", "second"):
            if to == "second":
                system = connect(server, SYSTEM.user("s"))
                answer = request(system, f"$SYS.REQ.ACCOUNT.{many.public}.CLAIMS.UPDATE", jwt(to).encode())
                assert answer["data"]["message"] == "jwt updated"
                system.close()
            for number in range(3):  # at one acceptor or another
                listening = connect(server, many.user(f"{to} {number}"))
                listening.send(b"SUB %s.1599 1\r\n" % to.encode())
                listening.barrier()
                talking = connect(server, many.user(f"to {to} {number}"))
                talking.send(b"PUB from.1599 0\r\n\r\n")
                assert until(listening, b"MSG %s.1599 1 0" % to.encode())
                listening.close()
                talking.close()


@pytest.mark.parametrize("kind", [2, 3])
def test_an_account_that_one_acceptor_has_fetched_is_known_to_all(kind: int) -> None:
    """Publishers are there already, at all acceptors: each message comes to who imports it, from the first on."""
    takers = [Account(f"taker {number}") for number in range(12)]
    imports = [{"name": "open", "subject": "open.>", "account": A.public, "type": "stream"}]
    known = {**accounts(), **{one.public: OPERATOR.account(one, imports=imports) for one in takers}}
    with resolver(known) as (url, _), serving(kind, conf(resolver=f"URL({url})", preload={})) as server:
        givers = [connect(server, A.user("giver")) for _ in range(8)]
        for giver in givers:
            giver.barrier()
        for account in takers:
            taker = connect(server, account.user("taker"))
            taker.send(b"SUB open.> 1\r\n")
            taker.barrier()
            for number, giver in enumerate(givers):
                giver.send(b"PUB open.%d 0\r\n\r\n" % number)
            for number in range(len(givers)):
                until(taker, b"MSG open.%d 1 0\r\n" % number)
            taker.close()
        server.process.send_signal(signal.SIGHUP)
        assert heard(server, takers[0].user("taker")) == b""
        for giver in givers:
            giver.barrier()
            assert not giver.heard.closed
            giver.close()


def test_nobody_waits_for_an_acceptor_that_is_dead() -> None:
    content = conf("authorization: {timeout: 60}", resolver="URL(%s)", preload={})
    with resolver(accounts()) as (url, asked), serving(2, content % url) as server:
        waiting = [Wire(server.port) for _ in range(16)]
        victim = next(pid for pid in all_children(server.process.pid) if comm_of(pid) == "mq-acceptor-1")
        os.kill(victim, signal.SIGSTOP)
        for wire in waiting:
            introduce(wire, B.user("u1"))
        wait_until(lambda: B.public in asked, "it is fetched")
        os.kill(victim, signal.SIGKILL)
        for wire in waiting:
            wire.barrier()
        there = [wire.heard.data for wire in waiting if not wire.heard.closed]
        assert set(there) == {b"PONG\r\n"}
        assert heard(server, B.user("u2")) == b""
        for wire in waiting:
            wire.close()


def test_a_resolver_that_is_gone_keeps_nobody_waiting() -> None:
    with resolver(accounts()) as (url, _):
        pass
    with serving(1, conf(resolver=f"URL({url})", preload={A.public: accounts()[A.public]})) as server:
        assert heard(server, A.user("u1")) == b""
        assert heard(server, B.user("u2")) == VIOLATION
        assert heard(server, A.user("u3")) == b""


Ill = Callable[[http.server.BaseHTTPRequestHandler, threading.Event], None]


def _says_nothing(asked: http.server.BaseHTTPRequestHandler, over: threading.Event) -> None:
    over.wait()


def _never_ends(asked: http.server.BaseHTTPRequestHandler, over: threading.Event) -> None:
    """A byte now and then, of what claims to be a JWT."""
    with contextlib.suppress(OSError):
        asked.send_response(200)
        asked.send_header("Content-Length", "1000")
        asked.end_headers()
        while not over.wait(0.05):
            asked.wfile.write(b"e")


def _is_endless(asked: http.server.BaseHTTPRequestHandler, over: threading.Event) -> None:
    with contextlib.suppress(OSError):
        asked.send_response(200)
        asked.end_headers()
        while not over.is_set():
            asked.wfile.write(bytes(1 << 16))


def _of(content: bytes, status: int = 200, **headers: str) -> Ill:
    def answer(asked: http.server.BaseHTTPRequestHandler, over: threading.Event) -> None:
        asked.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            asked.send_header(name, value)
        asked.end_headers()
        asked.wfile.write(content)

    return answer


ILL: Final[dict[str, Ill]] = {
    "that says nothing": _says_nothing,
    "that never ends": _never_ends,
    "that sends too much": _is_endless,
    "that sends garbage": _of(b"\xff\x00 garbage"),
    "that sends a page": _of(b"<html>an account</html>"),
    "that has another's": _of(OPERATOR.account(A).encode()),
    "whose operator is a stranger": _of(STRANGER.account(Account("whose operator is a stranger")).encode()),
    "that fails": _of(b"", 500),
    "that leads elsewhere for ever": _of(b"", 302, Location="again"),
    "that hangs up": lambda asked, over: asked.connection.close(),
}


def test_a_resolver_that_is_ill_lets_nobody_in_and_keeps_nobody_out() -> None:
    """Neither those of accounts that are known, nor those that it has, while others are being asked for."""
    over, known = threading.Event(), accounts()
    sick = {name: Account(name) for name in ILL}
    by_key = {account.public: ILL[name] for name, account in sick.items()}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            by_key.get(name, _of(known.get(name, "").encode()))(self, over)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 256
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass

    found = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{found.server_port}/accounts/"
    try:
        with serving(1, conf("authorization: {timeout: 30}", f"URL({url})", {A.public: known[A.public]})) as server:
            waiting = [(name, connect(server, account.user("u"))) for name, account in sick.items()]
            assert heard(server, A.user("u")) == b""
            assert heard(server, C.user("u")) == b""
            for name, wire in waiting:
                wire.barrier()
                assert wire.heard.data == VIOLATION, name
                wire.close()
            assert heard(server, B.user("u")) == b""
    finally:
        over.set()
        found.shutdown()
        thread.join()
        found.server_close()
