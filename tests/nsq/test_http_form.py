"""HTTP itself, at the real nsqd and at mq-shards: requests that are odd, long, in chunks, or none."""

from __future__ import annotations

import socket

import pytest

from tests.nsq.api import error, topic_stats
from tests.nsq.servers import HOST, NsqServer

ONE = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
CHUNKED = ONE + b"Transfer-Encoding: chunked\r\n\r\n"


def said_to(server: NsqServer, data: bytes, ends: bool = False) -> bytes:
    """All that is answered until the connection ends."""
    with socket.create_connection((HOST, server.http_port), timeout=60) as sock:
        sock.sendall(data)
        if ends:
            sock.shutdown(socket.SHUT_WR)
        return sock.makefile("rb").read()


class TestForm:
    def test_a_client_that_ends_its_side_has_its_answer(self, server: NsqServer, topic: str) -> None:
        """As nc -N does."""
        posted = f"POST /pub?topic={topic} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc".encode()
        said = said_to(server, posted * 2, ends=True)
        assert said.count(b"HTTP/1.1 200 OK\r\n") == 2
        assert said.endswith(b"\r\n\r\nOK")
        assert (topic_stats(server, topic) or {})["depth"] == 2

    @pytest.mark.parametrize("path", ["/stats?format=json", "/info", "/config/nsqlookupd_tcp_addresses"])
    def test_so_has_one_that_asks_what_no_acceptor_knows(self, server: NsqServer, path: str) -> None:
        said = said_to(server, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 2, ends=True)
        assert said.count(b"HTTP/1.1 200 OK\r\n") == 2

    def test_lines_may_end_in_lf_alone(self, server: NsqServer, topic: str) -> None:
        said = said_to(server, f"POST /pub?topic={topic} HTTP/1.1\nHost: x\nContent-Length: 3\n\nabc".encode(), True)
        assert said.startswith(b"HTTP/1.1 200 OK\r\n")
        assert (topic_stats(server, topic) or {})["depth"] == 1
        said = said_to(server, b"GET /stats?format=json HTTP/1.1\nHost: x\n\n", True)
        assert said.startswith(b"HTTP/1.1 200 OK\r\n"), "nor is that for an acceptor"

    @pytest.mark.parametrize("size", [8_000, 60_000, 1_000_000])
    def test_a_request_line_and_a_header_may_be_long(self, server: NsqServer, topic: str, size: int) -> None:
        filler = "x" * size
        line = f"GET /ping?{filler} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        header = f"GET /ping HTTP/1.1\r\nHost: x\r\nX-Long: {filler}\r\nConnection: close\r\n\r\n"
        for request in (line, header):
            said = said_to(server, request.encode())
            assert said.startswith(b"HTTP/1.1 200 OK\r\n"), said[:200]
            assert said.endswith(b"\r\n\r\nOK")

    def test_but_not_longer_than_1_mb(self, server: NsqServer) -> None:
        said = said_to(server, b"GET /ping HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * (1 << 20) * 2)
        assert said.startswith(b"HTTP/1.1 431 ")

    @pytest.mark.parametrize("method", ["PATCH", "BREW", "x", "M-SEARCH", "pub"])
    def test_a_method_that_nobody_knows_is_told_which_are_allowed(self, server: NsqServer, method: str) -> None:
        said = said_to(server, f"{method} /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert said.startswith(b"HTTP/1.1 405 ")
        assert b"\r\nAllow: GET, OPTIONS\r\n" in said
        assert said.endswith(error("METHOD_NOT_ALLOWED"))

    @pytest.mark.parametrize("published", [False, True])
    def test_http_1_0_ends_the_connection_unless_it_says_otherwise(
        self, server: NsqServer, topic: str, published: bool
    ) -> None:
        """It is answered in that version."""
        line = f"POST /pub?topic={topic} HTTP/1.0".encode() if published else b"GET /ping HTTP/1.0"
        length, body = (b"Content-Length: 1\r\n", b"x") if published else (b"", b"")
        once = line + b"\r\n" + length + b"\r\n" + body
        assert said_to(server, once).startswith(b"HTTP/1.0 200 OK\r\n")
        kept = said_to(server, line + b"\r\nConnection: keep-alive\r\n" + length + b"\r\n" + body + once)
        assert kept.count(b"HTTP/1.0 200 OK\r\n") == 2
        assert kept.count(b"Connection: keep-alive\r\n") == 1

    @pytest.mark.parametrize(
        ("request_", "status"),
        [
            (b"GET /ping\r\n\r\n", 400),
            (b"GET /ping HTTP/2.0\r\nHost: x\r\n\r\n", 505),
            (b"G[T /ping HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            (b"GET /ping HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400),
            (b"GET /ping HTTP/1.1\r\nHost: x\r\na b: c\r\n\r\n", 400),
            (b"GET /pi\x01ng HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            (b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
            (b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
            (b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\na", 400),
            (ONE + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 200),
            (CHUNKED + b"1\r\nx\r\n0\r\nno colon\r\n\r\n", 500),
            (CHUNKED + b"1\r\nx\r\n0\r\nSaid: so\r\n\r\n", 200),
            (b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
            (b"GET /ping HTTP/1.1\r\nHost: x\r\nExpect: a miracle\r\n\r\n", 417),
            (b"GET ping HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ],
    )
    def test_what_is_not_http_is_refused(self, server: NsqServer, request_: bytes, status: int) -> None:
        assert said_to(server, request_).startswith(b"HTTP/1.1 %d " % status)

    @pytest.mark.parametrize("line", [b"  V2IDENTIFY\n", b"\n", b'CONNECT {"verbose":false}\r\n', b"put 0 0 60 1\r\n"])
    def test_a_client_of_another_protocol_is_refused_at_its_first_line(self, server: NsqServer, line: bytes) -> None:
        """It says no more before it has an answer."""
        with socket.create_connection((HOST, server.http_port), timeout=30) as sock:
            sock.sendall(line)
            assert sock.recv(1 << 16).startswith(b"HTTP/1.1 400 ")


WITHOUT_HOST = b"400 Bad Request: missing required Host header"
ODD_HOST = b"400 Bad Request: malformed Host header"


class TestHost:
    @pytest.mark.parametrize("line", [b"GET /ping", b"POST /pub?topic=host", b"POST http://x/pub?topic=host"])
    @pytest.mark.parametrize(
        ("hosts", "said"),
        [
            (b"", WITHOUT_HOST),
            (b"Host: a\r\nHost: a\r\n", b"400 Bad Request"),
            (b"Host: a\r\nhost: b\r\n", b"400 Bad Request"),
            (b"Host: a b\r\n", ODD_HOST),
            (b"Host: a/b\r\n", ODD_HOST),
            (b"Host: \xc3\xa4\r\n", ODD_HOST),
            (b"Host: a#b\r\n", ODD_HOST),
        ],
    )
    def test_a_request_without_one_host_is_refused(
        self, server: NsqServer, line: bytes, hosts: bytes, said: bytes
    ) -> None:
        answer = said_to(server, line + b" HTTP/1.1\r\n" + hosts + b"Content-Length: 1\r\n\r\nx", ends=True)
        assert answer.startswith(b"HTTP/1.1 400 ") and answer.endswith(b"\r\n\r\n" + said), answer
        assert b"\r\nConnection: close\r\n" in answer

    @pytest.mark.parametrize("host", [b"", b"x", b"[::1%25lo]:4151", b"a_b.example:1", b"x,y;z=(1)"])
    @pytest.mark.parametrize("to_url", [False, True])
    def test_a_host_may_be_anything_that_is_one(self, server: NsqServer, topic: str, host: bytes, to_url: bool) -> None:
        """Clients of a proxy send a whole URL."""
        at = b"http://x" if to_url else b""
        for line in (b"GET %s/ping" % at, b"POST %s/pub?topic=%s" % (at, topic.encode())):
            asked = line + b" HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: 1\r\n\r\nx"
            assert said_to(server, asked, ends=True).startswith(b"HTTP/1.1 200 OK\r\n")

    @pytest.mark.parametrize("line", [b"GET /ping", b"POST /pub?topic=host"])
    def test_http_1_0_wants_none(self, server: NsqServer, line: bytes) -> None:
        said = said_to(server, line + b" HTTP/1.0\r\nContent-Length: 1\r\n\r\nx")
        assert said.startswith(b"HTTP/1.0 200 OK\r\n")


class TestChunks:
    @pytest.mark.parametrize("size", [b"1", b"01", b"1 ", b"1;a=b"])
    def test_a_size_is_digits(self, server: NsqServer, topic: str, size: bytes) -> None:
        said = said_to(server, in_chunks(topic, size + b"\r\na\r\n0\r\n\r\n"), ends=True)
        assert said.startswith(b"HTTP/1.1 200 OK\r\n")

    @pytest.mark.parametrize("path", ["pub", "mpub"])
    @pytest.mark.parametrize(
        "chunks",
        [
            b" 1\r\na\r\n", b"\t1\r\na\r\n", b"+1\r\na\r\n", b"-1\r\na\r\n", b"0x1\r\na\r\n", b"\r\na\r\n",
            b"1;a\rb\r\na\r\n", b"1\na\n", b"1\r\nab\r\n", b"fffffffffffffffff\r\na\r\n", b"1_0\r\na\r\n",
        ],
    )  # fmt: skip
    def test_what_is_read_in_two_ways_is_refused(self, server: NsqServer, topic: str, chunks: bytes, path: str) -> None:
        """What follows is not taken for a request."""
        ping = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
        said = said_to(server, in_chunks(topic, chunks + b"0\r\n\r\n" + ping, path), ends=True)
        assert said.startswith(b"HTTP/1.1 500 ") and said.count(b"HTTP/1.1 ") == 1, said
        assert (topic_stats(server, topic) or {"depth": 0})["depth"] == 0


def in_chunks(topic: str, chunks: bytes, path: str = "pub") -> bytes:
    return f"POST /{path}?topic={topic} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + chunks
