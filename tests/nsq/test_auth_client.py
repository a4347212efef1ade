"""How an auth server is asked and what is made of its answers, with real servers behind real sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from mq_shards.acceptor.protocols.nsq.auth import (
    MAX_ANSWER_BYTES,
    MAX_WAITING,
    THREADS,
    AuthClient,
    AuthError,
    Authorizations,
    Outcome,
    Question,
    RefusedError,
    read_answer,
)

from tests.nsq.auth_server import AuthServer, grant, permission, running_auth
from tests.nsq.certificates import Certificates
from tests.servers import wait_until

SECOND_NS = 1_000_000_000
EVERYTHING = permission(".*", [".*"], "subscribe", "publish")


def question(secret: bytes = b"secret", conn: int = 1) -> Question:
    return Question(conn, "10.1.2.3", secret, tls=False, common_name="")


class Asker:
    """An AuthClient and whoever it pokes."""

    def __init__(
        self, *addresses: str, request_s: float = 5.0, connect_s: float = 2.0, context: ssl.SSLContext | None = None
    ) -> None:
        self.poked = threading.Event()
        self.client = AuthClient(
            addresses,
            connect_timeout_ns=int(connect_s * SECOND_NS),
            request_timeout_ns=int(request_s * SECOND_NS),
            context=context or ssl.create_default_context(),
            poke=self.poked.set,
        )

    def outcomes(self, count: int) -> list[tuple[Question, Outcome]]:
        found: list[tuple[Question, Outcome]] = []

        def complete() -> bool:
            found.extend(self.client.outcomes())
            return len(found) >= count

        wait_until(complete, f"{count} outcomes")
        assert self.poked.is_set()
        assert len(found) == count
        return found

    def ask(self, asked: Question | None = None) -> Outcome:
        self.client.ask(asked or question())
        return self.outcomes(1)[0][1]

    def fails(self, asked: Question | None = None) -> str:
        outcome = self.ask(asked)
        assert isinstance(outcome, AuthError), outcome
        return str(outcome)

    def succeeds(self, asked: Question | None = None) -> Authorizations:
        outcome = self.ask(asked)
        assert isinstance(outcome, Authorizations), outcome
        return outcome


@pytest.fixture
def auth() -> Iterator[AuthServer]:
    with running_auth() as auth:
        yield auth


@contextlib.contextmanager
def raw_server(serve: Callable[[socket.socket], None], context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Gives each connection to `serve` once it has sent a request; its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def handle(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            tls = context.wrap_socket(sock, server_side=True) if context else sock
            with tls:
                tls.recv(1 << 20)
                serve(tls)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threads.append(threading.Thread(target=handle, args=(listener.accept()[0],)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in (accepting, *threads):
            thread.join(10)
            assert not thread.is_alive()


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


GOOD = json.dumps(grant(EVERYTHING)).encode()


class TestAsking:
    def test_the_question(self, auth: AuthServer) -> None:
        auth.answers["s&x=ü %/"] = grant(EVERYTHING)
        asked = Question(7, "::1", "s&x=ü %/".encode(), tls=True, common_name="a name")
        assert Asker(auth.address).succeeds(asked).identity == "somebody"
        query = {"remote_ip": "::1", "tls": "true", "secret": "s&x=ü %/", "common_name": "a name"}
        assert auth.asked == [("/auth", query)]

    def test_a_whole_url(self, auth: AuthServer) -> None:
        auth.answers["secret"] = grant(EVERYTHING)
        assert Asker(f"http://{auth.address}/who/is").succeeds()
        assert auth.asked[0][0] == "/who/is"

    def test_what_goes_over_the_wire(self) -> None:
        requests = []
        listener = socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            sock, _ = listener.accept()
            with sock:
                requests.append(sock.recv(1 << 16))
                sock.sendall(response(GOOD))

        thread = threading.Thread(target=accept)
        thread.start()
        assert Asker(f"http://me:pass%20word@{address}").succeeds()
        thread.join()
        listener.close()
        head, _, _ = requests[0].partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        assert lines[0] == "GET /?common_name=&remote_ip=10.1.2.3&secret=secret&tls=false HTTP/1.1"
        assert "Accept: application/vnd.nsq; version=1.0" in lines
        assert f"Host: {address}" in lines
        assert "Authorization: Basic bWU6cGFzcyB3b3Jk" in lines

    def test_a_redirection_is_followed_and_not_for_ever(self, auth: AuthServer) -> None:
        auth.answers["elsewhere"] = grant(EVERYTHING)
        target = f"http://{auth.address}/there?secret=elsewhere"
        with raw_server(lambda s: s.sendall(response(b"", "302 Found", f"Location: {target}"))) as address:
            assert Asker(address).succeeds()
        with raw_server(lambda s: s.sendall(response(b"", "302 Found", "Location: /auth"))) as address:
            assert "10 redirections" in Asker(address).fails()

    def test_a_server_that_speaks_only_https_says_where(self, certificates: Certificates) -> None:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificates.server.cert, certificates.server.key)
        client = certificates.context()
        with raw_server(lambda s: s.sendall(response(GOOD)), server) as secure:
            port = int(secure.rpartition(":")[2])
            body = json.dumps({"https_port": port}).encode()
            with raw_server(lambda s: s.sendall(response(body, "403 Forbidden"))) as address:
                assert Asker(address, context=client).succeeds()
            assert Asker(f"https://localhost:{port}/auth", context=client).succeeds()
            assert "certificate verify failed" in Asker(f"https://localhost:{port}/auth").fails()

    def test_of_several_servers_any_that_answers_is_enough(self, auth: AuthServer) -> None:
        auth.answers["secret"] = grant(EVERYTHING)
        with running_auth() as gone:
            pass
        asker = Asker(gone.address, auth.address)
        for _ in range(20):
            assert asker.succeeds()

    def test_if_none_answers_the_failure_names_all(self, auth: AuthServer) -> None:
        with running_auth() as gone:
            pass
        failure = Asker(gone.address, auth.address).fails()
        assert f"{gone.address}: " in failure
        assert f"{auth.address}: got response 404" in failure

    def test_a_client_is_refused_by_what_a_server_answers_not_by_one_that_is_gone_or_fails(
        self, auth: AuthServer
    ) -> None:
        with running_auth() as gone:
            pass
        auth.answers |= {"forbidden": 403, "broken": 500}
        for secret, is_refused in ((b"unknown", True), (b"forbidden", True), (b"broken", False)):
            outcome = Asker(gone.address, auth.address).ask(question(secret))
            assert isinstance(outcome, AuthError) and isinstance(outcome, RefusedError) == is_refused
        assert not isinstance(Asker(gone.address).ask(), RefusedError)


class TestTime:
    def silent(self, sock: socket.socket) -> None:
        sock.recv(1)

    def drip(self, sock: socket.socket) -> None:
        """Never ends, and never stops."""
        sock.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            sock.sendall(b"x")
            time.sleep(0.01)

    def drip_body(self, sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + GOOD)
        while True:
            sock.sendall(b" ")
            time.sleep(0.01)

    @pytest.mark.parametrize("how", ["silent", "drip", "drip_body"])
    def test_an_answer_has_its_time_and_no_more(self, how: str) -> None:
        with raw_server(getattr(self, how)) as address:
            began = time.monotonic()
            assert "timed out" in Asker(address, request_s=0.2).fails()
            assert 0.2 <= time.monotonic() - began < 5

    def test_who_cannot_be_connected_to_fails(self) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
            for _ in range(3):  # until its backlog is full, no more is answered
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            asker = Asker(f"127.0.0.1:{listener.getsockname()[1]}", connect_s=0.2)
            assert "timed out" in asker.fails()


class TestMany:
    def test_all_are_answered_each_its_own(self, auth: AuthServer) -> None:
        for n in range(100):
            auth.answers[f"s{n}"] = {**grant(EVERYTHING), "identity": f"i{n}"}
        asker = Asker(auth.address)
        for n in range(100):
            asker.client.ask(question(f"s{n}".encode(), conn=n))
        found = {q.conn: outcome for q, outcome in asker.outcomes(100)}
        for n in range(100):
            outcome = found[n]
            assert isinstance(outcome, Authorizations)
            assert outcome.identity == f"i{n}"

    def test_slow_answers_wait_for_each_other_only_on_threads_and_there_is_a_limit(self) -> None:
        release = threading.Event()

        def serve(sock: socket.socket) -> None:
            release.wait(10)
            sock.sendall(response(GOOD))

        with raw_server(serve) as address:
            asker = Asker(address)
            try:
                for n in range(THREADS):
                    asker.client.ask(question(conn=n))
                wait_until(asker.client._questions.empty, "every thread has one")
                waiting = [question(conn=n) for n in range(MAX_WAITING)]
                for asked in waiting:
                    asker.client.ask(asked)
                    asked.cancelled = True
                last = question(conn=99_999)
                asker.client.ask(last)
                ((refused, outcome),) = asker.outcomes(1)
                assert refused is last
                assert "wait already" in str(outcome)
            finally:
                release.set()
            # Those that were cancelled meanwhile are not asked for.
            assert {q.conn for q, _ in asker.outcomes(THREADS)} == set(range(THREADS))

    def test_after_close_nobody_is_poked(self, auth: AuthServer) -> None:
        asker = Asker(auth.address)
        asker.client.close()
        asker.client.ask(question())
        wait_until(lambda: list(asker.client.outcomes()), "the outcome is there")
        assert not asker.poked.is_set()


class TestAnswers:
    def read(self, answer: object) -> Authorizations:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return read_answer(body, now_ns=5 * SECOND_NS)

    def test_the_time_that_it_holds(self) -> None:
        found = self.read(grant(EVERYTHING, ttl=60))
        assert found.expires_ns == 65 * SECOND_NS
        assert not found.expired(65 * SECOND_NS)
        assert found.expired(65 * SECOND_NS + 1)
        assert self.read(grant(EVERYTHING, ttl=(1 << 63) - 1)).expires_ns < 1 << 63

    @pytest.mark.parametrize(
        "answer",
        [
            {"TTL": 60, "Authorizations": [{"TOPIC": "t", "Channels": ["c", None], "permissions": ["publish"]}]},
            {"ttl": 60, "authorizations": [{"topic": "t", "channels": [""], "permissions": ["publish"]}], "more": [1]},
            {"ttl": 1, "identity": None, "authorizations": [None, EVERYTHING]},
        ],
    )
    def test_as_loosely_as_go(self, answer: object) -> None:
        assert self.read(answer).allows("t")

    @pytest.mark.parametrize(
        "answer", [{"ttl": 1}, {"ttl": 1, "authorizations": None}, {"ttl": 1, "authorizations": []}]
    )
    def test_without_authorizations(self, answer: object) -> None:
        assert self.read(answer).entries == ()

    @pytest.mark.parametrize(
        "answer",
        [
            b"", b"{", b"[]", b"1", b"null", b"\xff", {"ttl": 0}, {"ttl": -5}, {"ttl": 1.5}, {"ttl": "60"}, {},
            {"ttl": 1, "authorizations": {}}, {"ttl": 1, "authorizations": ["x"]}, {"ttl": 1, "identity": 5},
            grant(permission("t", ["c"], "drop")), grant({"topic": ["t"], "channels": [], "permissions": []}),
            grant(permission("(", [".*"], "publish")), grant(permission(".*", ["["], "publish")),
            grant({"topic": "t", "channels": "c", "permissions": ["publish"]}),
        ],
        ids=str,
    )  # fmt: skip
    def test_what_is_no_answer(self, answer: object) -> None:
        with pytest.raises(AuthError):
            self.read(answer)

    @pytest.mark.parametrize(
        "pattern",
        [r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(?>a)", "a++", "a*+", "a?+", "a{2}+", "a{,3}",
         "[[:alpha:]]", "(?P<n>a)(?P=n)", r"a\Z", "(?#x)", r"\\\1"],
    )  # fmt: skip
    def test_a_pattern_that_go_reads_otherwise_gives_nothing(self, pattern: str) -> None:
        with pytest.raises(AuthError, match="unable to compile topic"):
            self.read(grant(permission(pattern, [".*"], "publish")))

    @pytest.mark.parametrize(
        ("pattern", "topic"),
        [(r"\\+", "a\\b"), (r"^a\.b$", "a.b"), ("(?i)^ORDERS$", "orders"), ("^(?:a|b)+$", "abab"), (r"\(?a", "a"),
         (r"^\w+-\d{2,3}$", "x-12"), ("^[^#]+#ephemeral$", "t#ephemeral"), ("", "any"), (r"(?P<stem>x)$", "axx")],
    )  # fmt: skip
    def test_a_pattern_that_go_reads_alike(self, pattern: str, topic: str) -> None:
        assert self.read(grant(permission(pattern, [".*"], "publish"))).allows(topic)

    def test_an_endless_answer_is_refused(self) -> None:
        with raw_server(lambda s: s.sendall(response(b" " * (MAX_ANSWER_BYTES + 1)))) as address:
            assert "an answer of more than" in Asker(address).fails()
