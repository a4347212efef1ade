"""nsqd's HTTP API, on the real nsqd and on mq-shards: status codes, bodies, headers, and what the calls do."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.nsq.api import Reply, call, channel_stats, post, stats, topic_stats
from tests.nsq.frames import sized
from tests.nsq.servers import HOST, NsqServer, running
from tests.nsq.wire import Wire, consumer, unique_topic
from tests.servers import Shape, wait_until

TEXT = "text/plain; charset=utf-8"
JSON = "application/json; charset=utf-8"
VERSIONED = "nsq; version=1.0"


def error(message: str) -> bytes:
    return json.dumps({"message": message}, separators=(",", ":")).encode()


def is_versioned(reply: Reply) -> bool:
    return reply.headers.get("x-nsq-content-type") == VERSIONED


# What is wrong in itself, without anything being there.
REFUSED = [
    ("GET", "/", 404, "NOT_FOUND"),
    ("GET", "/nope", 404, "NOT_FOUND"),
    ("POST", "/nope", 404, "NOT_FOUND"),
    ("GET", "/config/", 404, "NOT_FOUND"),
    ("GET", "/config/a/b", 404, "NOT_FOUND"),
    ("GET", "/config/nope", 400, "INVALID_OPTION"),
    ("GET", "/stats?topic=%zz", 400, "INVALID_REQUEST"),
    ("GET", "/stats?a;b", 400, "INVALID_REQUEST"),
    ("POST", "/topic/create", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/create?topic=", 400, "INVALID_TOPIC"),
    ("POST", "/topic/create?topic=a%20b", 400, "INVALID_TOPIC"),
    ("POST", "/topic/create?topic=a%23ephemeral.", 400, "INVALID_TOPIC"),
    ("POST", "/topic/create?topic=" + "x" * 65, 400, "INVALID_TOPIC"),
    ("POST", "/topic/create?topic=%", 400, "INVALID_REQUEST"),
    ("POST", "/topic/delete", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/delete?topic=nobody-made-it", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/topic/delete?topic=a%0ab", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/topic/empty", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/empty?topic=a%20b", 400, "INVALID_TOPIC"),
    ("POST", "/topic/empty?topic=nobody-made-it", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/topic/pause", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/pause?topic=nobody-made-it", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/topic/pause?topic=a%0ab", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/topic/unpause?topic=nobody-made-it", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/channel/create?channel=ch", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/channel/create?topic=a%20b&channel=ch", 400, "INVALID_ARG_TOPIC"),
    ("POST", "/channel/create?topic=nobody-made-it", 400, "MISSING_ARG_CHANNEL"),
    ("POST", "/channel/create?topic=nobody-made-it&channel=a%20b", 400, "INVALID_ARG_CHANNEL"),
    ("POST", "/channel/create?topic=nobody-made-it&channel=ch", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/channel/delete?topic=nobody-made-it&channel=ch", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/channel/empty?topic=nobody-made-it&channel=ch", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/channel/pause?topic=nobody-made-it&channel=ch", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/channel/unpause?topic=nobody-made-it&channel=ch", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/pub?topic=nothing-in-it", 400, "MSG_EMPTY"),
    ("POST", "/mpub", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/mpub?topic=a%20b", 400, "INVALID_TOPIC"),
]
METHODS = [
    ("POST", "/ping", "GET, OPTIONS"), ("DELETE", "/info", "GET, OPTIONS"), ("HEAD", "/ping", "GET, OPTIONS"),
    ("GET", "/pub", "OPTIONS, POST"), ("GET", "/mpub", "OPTIONS, POST"), ("PUT", "/stats", "GET, OPTIONS"),
    ("GET", "/topic/create", "OPTIONS, POST"), ("GET", "/channel/unpause", "OPTIONS, POST"),
    ("POST", "/config/log_level", "GET, OPTIONS, PUT"),
]  # fmt: skip
REDIRECTS = [
    ("GET", "/ping/", 301, "/ping"), ("GET", "/PING", 301, "/ping"), ("GET", "//ping", 301, "/ping"),
    ("GET", "/stats/?topic=x", 301, "/stats?topic=x"), ("POST", "/Pub?topic=x", 307, "/pub?topic=x"),
    ("GET", "/config/log_level/", 301, "/config/log_level"),
]  # fmt: skip


ONE = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
CHUNKED = ONE + b"Transfer-Encoding: chunked\r\n\r\n"


class TestRouting:
    @pytest.mark.parametrize(("method", "target", "status", "message"), REFUSED)
    def test_an_error_has_its_status_and_message(
        self, server: NsqServer, method: str, target: str, status: int, message: str
    ) -> None:
        reply = call(server, method, target)
        assert (reply.status, reply.body) == (status, error(message))
        assert is_versioned(reply)
        assert reply.headers["content-type"] == JSON

    @pytest.mark.parametrize(("method", "target", "allowed"), METHODS)
    def test_another_method_is_told_which_are_allowed(
        self, server: NsqServer, method: str, target: str, allowed: str
    ) -> None:
        reply = call(server, method, target)
        assert reply.status == 405
        assert reply.body == (b"" if method == "HEAD" else error("METHOD_NOT_ALLOWED"))
        assert reply.headers["allow"] == allowed
        asked = call(server, "OPTIONS", target)
        assert (asked.status, asked.body, asked.headers["allow"]) == (200, b"", allowed)

    @pytest.mark.parametrize(("method", "target", "status", "location"), REDIRECTS)
    def test_a_path_that_is_nearly_right_is_redirected(
        self, server: NsqServer, method: str, target: str, status: int, location: str
    ) -> None:
        reply = call(server, method, target)
        assert (reply.status, reply.headers["location"]) == (status, location)
        assert reply.body == (b'<a href="%s">Moved Permanently</a>.\n\n' % location.encode() if status == 301 else b"")

    def test_ping(self, server: NsqServer) -> None:
        reply = call(server, "GET", "/ping")
        assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b"OK", TEXT)
        assert not is_versioned(reply)

    def test_info(self, server: NsqServer) -> None:
        reply = call(server, "GET", "/info")
        info = reply.json
        if server.shape.is_shards:
            assert info.pop("mq_shards_version")
        assert list(info) == [
            "version", "broadcast_address", "hostname", "http_port", "tcp_port", "start_time",
            "max_heartbeat_interval", "max_output_buffer_size", "max_output_buffer_timeout", "max_deflate_level",
        ]  # fmt: skip
        assert info["version"] == "1.3.0"
        assert info["hostname"] == socket.gethostname()
        assert (info["http_port"], info["tcp_port"]) == (server.http_port, server.port)
        assert abs(info["start_time"] - time.time()) < 3600
        assert info["max_heartbeat_interval"] == 60_000_000_000
        assert is_versioned(reply)

    def test_requests_on_one_connection_are_answered_in_order(self, server: NsqServer, topic: str) -> None:
        with socket.create_connection((HOST, server.http_port), timeout=60) as sock:
            posted = f"POST /pub?topic={topic} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc".encode()
            sock.sendall(posted * 3 + b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            said = sock.makefile("rb").read()
        assert said.count(b"HTTP/1.1 200 OK\r\n") == 4
        assert said.count(b"\r\n\r\nOK") == 4
        found = topic_stats(server, topic)
        assert found is not None
        assert found["depth"] == 3

    @pytest.mark.parametrize("garbage", [b"\0\1\2\3\r\n\r\n", b"  V2PUB x\n", b"GET /ping HTTP/9\r\n\r\n", b"\r\n" * 9])
    def test_what_is_not_http_ends_its_connection_only(self, server: NsqServer, garbage: bytes) -> None:
        with socket.create_connection((HOST, server.http_port), timeout=60) as sock:
            sock.sendall(garbage)
            sock.shutdown(socket.SHUT_WR)
            said = sock.makefile("rb").read()
        assert not said or re.match(rb"HTTP/1\.[01] [45]\d\d ", said), said
        assert call(server, "GET", "/ping").status == 200


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

    def test_lines_may_end_in_lf_alone(self, server: NsqServer, topic: str) -> None:
        said = said_to(server, f"POST /pub?topic={topic} HTTP/1.1\nHost: x\nContent-Length: 3\n\nabc".encode(), True)
        assert said.startswith(b"HTTP/1.1 200 OK\r\n")
        assert (topic_stats(server, topic) or {})["depth"] == 1

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


class TestPub:
    def test_the_body_is_the_message(self, server: NsqServer, topic: str) -> None:
        bodies = [b"x", b"line\nline\n", bytes(range(256)), b"\r\n0\r\n\r\n"]
        for body in bodies:
            reply = call(server, "POST", f"/pub?topic={topic}", body)
            assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b"OK", TEXT)
            assert is_versioned(reply)
        before = time.time_ns()
        with consumer(server, topic, rdy=10) as wire:
            messages = wire.messages(len(bodies))
            assert sorted(m.body for m in messages) == sorted(bodies)
            assert all(m.attempts == 1 and before - 60e9 < m.timestamp <= before for m in messages)

    def test_a_body_in_chunks(self, server: NsqServer, topic: str) -> None:
        assert call(server, "POST", f"/pub?topic={topic}", iter([b"ab", b"c" * 70_000])).body == b"OK"
        with consumer(server, topic, rdy=1) as wire:
            assert wire.message().body == b"ab" + b"c" * 70_000

    def test_a_client_that_waits_to_be_told_to_go_on(self, server: NsqServer, topic: str) -> None:
        with socket.create_connection((HOST, server.http_port), timeout=60) as sock:
            sock.sendall(
                f"POST /pub?topic={topic} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                "Content-Length: 4\r\nConnection: close\r\n\r\n".encode()
            )
            assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            sock.sendall(b"body")
            assert sock.makefile("rb").read().startswith(b"HTTP/1.1 200 OK\r\n")
        with consumer(server, topic, rdy=1) as wire:
            assert wire.message().body == b"body"

    def test_the_topic_is_looked_at_after_the_body(self, server: NsqServer) -> None:
        for target, status, message in [
            ("/pub", 400, "MISSING_ARG_TOPIC"), ("/pub?topic=a%20b", 400, "INVALID_TOPIC"),
            ("/pub?topic=%zz", 400, "INVALID_REQUEST"),
        ]:  # fmt: skip
            assert call(server, "POST", target, b"x").body == error(message)
            assert call(server, "POST", target, b"x").status == status
            assert call(server, "POST", target).body == error("MSG_EMPTY")

    @pytest.mark.parametrize("defer", ["", "x", "-1", "1.5", "1s", "3600001", "99999999999999999999"])
    def test_a_delay_that_is_none(self, server: NsqServer, topic: str, defer: str) -> None:
        reply = call(server, "POST", f"/pub?topic={topic}&defer={defer}", b"x")
        assert (reply.status, reply.body) == (400, error("INVALID_DEFER"))

    def test_the_longest_message(self, limited: NsqServer, topic: str) -> None:
        for body in (b"x" * 100, iter([b"x" * 99, b"x"])):
            assert call(limited, "POST", f"/pub?topic={topic}", body).status == 200
        for body in (b"x" * 101, iter([b"x" * 100, b"x"]), b"x" * 200_000, iter([b"x" * 200_000])):
            reply = call(limited, "POST", f"/pub?topic={topic}", body)
            assert (reply.status, reply.body) == (413, error("MSG_TOO_BIG"))
        assert call(limited, "POST", f"/pub?topic={topic}&defer=600", b"x").status == 200
        assert call(limited, "POST", f"/pub?topic={topic}&defer=601", b"x").body == error("INVALID_DEFER")


def published(server: NsqServer, topic: str) -> list[bytes]:
    """All that is there, taken out of it: as many as have been counted, and none comes behind them."""
    count = (topic_stats(server, topic) or {})["message_count"]  # first: it may take as long as a message may be out
    with consumer(server, topic, rdy=40) as wire:
        messages = wire.messages(count)
        wire.fin(*messages)
        assert wire.is_quiet(0.02)
        return sorted(message.body for message in messages)


def batch(bodies: Sequence[bytes], count: int | None = None) -> bytes:
    return struct.pack(">i", len(bodies) if count is None else count) + b"".join(sized(body) for body in bodies)


class TestMpub:
    def test_a_message_a_line(self, limited: NsqServer, topic: str) -> None:
        assert call(limited, "POST", f"/mpub?topic={topic}", b"\none\r\n\n\ntwo\n three ").body == b"OK"
        assert published(limited, topic) == [b" three ", b"one\r", b"two"]

    @pytest.mark.parametrize("body", [b"", b"\n", b"\n\n\n"])
    def test_no_message_makes_the_topic_nevertheless(self, server: NsqServer, topic: str, body: bytes) -> None:
        assert call(server, "POST", f"/mpub?topic={topic}", body).body == b"OK"
        found = topic_stats(server, topic)
        assert found is not None
        assert found["message_count"] == 0

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"x" * 101, "MSG_TOO_BIG"),
            (b"one\n" + b"x" * 101 + b"\ntwo\n", "MSG_TOO_BIG"),
            (b"one\n" * 250 + b"x", "BODY_TOO_BIG"),
            (b"\n" * 1001, "BODY_TOO_BIG"),
            (b"one\n" * 60_000, "BODY_TOO_BIG"),
        ],
    )
    def test_too_big_is_refused_whole(self, limited: NsqServer, topic: str, body: bytes, message: str) -> None:
        for sent in (body, iter([body])):
            reply = call(limited, "POST", f"/mpub?topic={topic}", sent)
            assert (reply.status, reply.body) == (413, error(message))
        assert call(limited, "POST", f"/mpub?topic={topic}", b"last").body == b"OK"
        assert published(limited, topic) == [b"last"]

    def test_the_largest_body(self, limited: NsqServer, topic: str) -> None:
        assert call(limited, "POST", f"/mpub?topic={topic}", b"x" * 100 + b"\n" * 900).body == b"OK"
        assert published(limited, topic) == [b"x" * 100]

    @pytest.mark.parametrize("binary", ["true", "1", "yes", ""])
    def test_binary(self, limited: NsqServer, topic: str, binary: str) -> None:
        body = batch([b"one\n", b"\0", b"x" * 100])
        assert call(limited, "POST", f"/mpub?topic={topic}&binary={binary}", body + b"ignored").body == b"OK"
        assert published(limited, topic) == [b"\0", b"one\n", b"x" * 100]

    @pytest.mark.parametrize("binary", ["false", "0"])
    def test_not_binary(self, limited: NsqServer, topic: str, binary: str) -> None:
        assert call(limited, "POST", f"/mpub?topic={topic}&binary={binary}", b"one\ntwo").body == b"OK"
        assert published(limited, topic) == [b"one", b"two"]

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"", "BAD_BODY"),
            (b"\0\0\0", "BAD_BODY"),
            (batch([b"x"], 0), "BAD_BODY"),
            (batch([b"x"], -1), "BAD_BODY"),
            (batch([b"x"], 200), "BAD_BODY"),
            (batch([b"x"], 199), "BAD_MESSAGE"),
            (batch([b"one", b""]), "BAD_MESSAGE"),
            (batch([b"one", b"x" * 101]), "BAD_MESSAGE"),
            (batch([b"one", b"two"])[:-1], "BAD_MESSAGE"),
            (batch([b"one"]) + b"\xff\xff\xff\xff", "OK"),
            (struct.pack(">ii", 1, -5) + b"x", "BAD_MESSAGE"),
        ],
    )
    def test_binary_that_is_damaged_is_refused_whole(
        self, limited: NsqServer, topic: str, body: bytes, message: str
    ) -> None:
        reply = call(limited, "POST", f"/mpub?topic={topic}&binary=true", body)
        if message == "OK":
            assert reply.body == b"OK"
            return
        assert (reply.status, reply.body) == (413, error(message))
        assert call(limited, "POST", f"/mpub?topic={topic}", b"last").body == b"OK"
        assert published(limited, topic) == [b"last"]

    def test_many_small_ones(self, server: NsqServer, topic: str) -> None:
        assert call(server, "POST", f"/mpub?topic={topic}", b"x\n" * 100_000).body == b"OK"
        found = topic_stats(server, topic)
        assert found is not None
        assert (found["depth"], found["message_count"], found["message_bytes"]) == (100_000, 100_000, 100_000)


class TestChanges:
    def test_a_topic_from_its_making_to_its_end(self, server: NsqServer, topic: str) -> None:
        assert topic_stats(server, topic) is None
        reply = call(server, "POST", f"/topic/create?topic={topic}")
        assert (reply.status, reply.body) == (200, b"")
        assert is_versioned(reply)
        assert topic_stats(server, topic) is not None
        post(server, f"/topic/create?topic={topic}")  # it is there already: well
        post(server, f"/pub?topic={topic}", b"x")
        post(server, f"/topic/empty?topic={topic}")
        assert (topic_stats(server, topic) or {})["depth"] == 0
        post(server, f"/topic/delete?topic={topic}")
        assert topic_stats(server, topic) is None
        assert call(server, "POST", f"/topic/delete?topic={topic}").body == error("TOPIC_NOT_FOUND")

    def test_a_channel_from_its_making_to_its_end(self, server: NsqServer, topic: str) -> None:
        names = f"topic={topic}&channel=ch"
        post(server, f"/topic/create?topic={topic}")
        for what in ("delete", "empty", "pause", "unpause"):
            assert call(server, "POST", f"/channel/{what}?{names}").body == error("CHANNEL_NOT_FOUND")
        post(server, f"/channel/create?{names}")
        post(server, f"/channel/create?{names}")
        post(server, f"/pub?topic={topic}", b"x")
        wait_until(lambda: (channel_stats(server, topic, "ch") or {})["depth"] == 1, "the channel has the message")
        post(server, f"/channel/empty?{names}")
        assert (channel_stats(server, topic, "ch") or {})["depth"] == 0
        post(server, f"/channel/delete?{names}")
        assert channel_stats(server, topic, "ch") is None

    def test_a_topic_that_is_paused_keeps_its_messages(self, server: NsqServer, topic: str) -> None:
        post(server, f"/topic/create?topic={topic}")
        with consumer(server, topic, rdy=10) as wire:
            post(server, f"/topic/pause?topic={topic}")
            post(server, f"/pub?topic={topic}", b"held back")
            assert wire.is_quiet(0.2)
            found = topic_stats(server, topic) or {}
            assert (found["paused"], found["depth"]) == (True, 1)
            post(server, f"/topic/unpause?topic={topic}")
            assert wire.message().body == b"held back"
            assert (topic_stats(server, topic) or {})["paused"] is False

    def test_a_channel_that_is_paused_keeps_its_messages(self, server: NsqServer, topic: str) -> None:
        names = f"topic={topic}&channel=ch"
        with consumer(server, topic, rdy=10) as wire, consumer(server, topic, "other", rdy=10) as other:
            post(server, f"/channel/pause?{names}")
            post(server, f"/pub?topic={topic}", b"held back")
            assert other.message().body == b"held back"
            assert wire.is_quiet(0.2)
            found = channel_stats(server, topic, "ch") or {}
            assert (found["paused"], found["depth"]) == (True, 1)
            post(server, f"/channel/unpause?{names}")
            assert wire.message().body == b"held back"

    def test_consumers_of_a_channel_that_is_deleted_are_let_go(self, server: NsqServer, topic: str) -> None:
        with consumer(server, topic, rdy=1) as wire:
            post(server, f"/channel/delete?topic={topic}&channel=ch")
            assert wire.is_closed()

    def test_emptying_takes_what_is_in_flight_and_deferred(self, server: NsqServer, topic: str) -> None:
        with consumer(server, topic, rdy=1) as wire:
            for body in (b"1", b"2", b"3"):
                post(server, f"/pub?topic={topic}", body)
            post(server, f"/pub?topic={topic}&defer=60000", b"4")
            in_flight = wire.message()

            def arrived() -> bool:
                found = channel_stats(server, topic, "ch") or {}
                return (found["depth"], found["in_flight_count"], found["deferred_count"]) == (2, 1, 1)

            wait_until(arrived, "all four are in the channel")
            post(server, f"/channel/empty?topic={topic}&channel=ch")
            found = channel_stats(server, topic, "ch") or {}
            assert (found["depth"], found["in_flight_count"], found["deferred_count"]) == (0, 0, 0)
            assert wire.is_not_in_flight(in_flight)

    def test_ephemeral_names(self, server: NsqServer, topic: str) -> None:
        post(server, f"/topic/create?topic={topic}")
        post(server, f"/channel/create?topic={topic}&channel=ch%23ephemeral")
        assert channel_stats(server, topic, "ch#ephemeral") is not None


CHANNEL_KEYS = [
    "channel_name", "depth", "backend_depth", "in_flight_count", "deferred_count", "message_count", "requeue_count",
    "timeout_count", "client_count", "clients", "paused", "e2e_processing_latency",
]  # fmt: skip
TOPIC_KEYS = [
    "topic_name", "channels", "depth", "backend_depth", "message_count", "message_bytes", "paused",
    "e2e_processing_latency",
]  # fmt: skip
CLIENT_KEYS = {
    "client_id", "hostname", "version", "remote_address", "state", "ready_count", "in_flight_count", "message_count",
    "finish_count", "requeue_count", "connect_ts", "sample_rate", "deflate", "snappy", "user_agent", "tls",
    "tls_cipher_suite", "tls_version", "tls_negotiated_protocol", "tls_negotiated_protocol_is_mutual",
}  # fmt: skip
MEMORY_KEYS = [
    "heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes", "gc_pause_usec_100",
    "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes", "gc_total_runs",
]  # fmt: skip


class TestStats:
    def test_every_key(self, server: NsqServer, topic: str) -> None:
        with consumer(server, topic, rdy=1):
            found = call(server, "GET", f"/stats?format=json&topic={topic}").json
            assert list(found) == ["version", "health", "start_time", "topics", "memory", "producers"]
            assert (found["version"], found["health"]) == ("1.3.0", "OK")
            assert list(found["memory"]) == MEMORY_KEYS
            assert found["memory"]["heap_in_use_bytes"] > 100_000
            (one,) = found["topics"]
            assert list(one) == TOPIC_KEYS
            (channel,) = one["channels"]
            assert list(channel) == CHANNEL_KEYS
            (client,) = channel["clients"]
            assert set(client) - {"pub_counts"} == CLIENT_KEYS
            assert one["e2e_processing_latency"] == {"count": 0, "percentiles": None}

    def test_what_is_counted(self, server: NsqServer, topic: str) -> None:
        agent = "an agent/1.0"
        with consumer(server, topic, rdy=3, client_id="me", hostname="host", user_agent=agent) as wire:
            for body in (b"1", b"22", b"333", b"4444", b"55555"):
                post(server, f"/pub?topic={topic}", body)
            first, second, _ = wire.messages(3)
            wire.fin(first)
            wire.req(second)
            wire.messages(2)

            def seen() -> tuple[int, ...]:
                client = (channel_stats(server, topic, "ch") or {})["clients"][0]
                return client["in_flight_count"], client["finish_count"], client["requeue_count"]

            wait_until(lambda: seen() == (3, 1, 1), "both answers have been counted")
            found = topic_stats(server, topic) or {}
            assert (found["message_count"], found["message_bytes"], found["depth"]) == (5, 15, 0)
            channel = found["channels"][0]
            assert (channel["in_flight_count"], channel["depth"], channel["requeue_count"]) == (3, 1, 1)
            assert (channel["message_count"], channel["timeout_count"], channel["client_count"]) == (5, 0, 1)
            client = channel["clients"][0]
            assert client["message_count"] == 5
            assert (client["client_id"], client["hostname"], client["user_agent"]) == ("me", "host", agent)
            assert (client["version"], client["state"], client["ready_count"]) == ("V2", 3, 3)
            assert client["remote_address"] == "{}:{}".format(*wire.socket.getsockname())
            assert abs(client["connect_ts"] - time.time()) < 60

    def test_topics_and_channels_are_sorted(self, server: NsqServer) -> None:
        topics = [unique_topic(stem) for stem in ("zz", "Aa", "mm")]
        for topic in topics:
            post(server, f"/topic/create?topic={topic}")
            for channel in ("b", "a", "B"):
                post(server, f"/channel/create?topic={topic}&channel={channel}")
        found = [one for one in stats(server)["topics"] if one["topic_name"] in topics]
        assert [one["topic_name"] for one in found] == sorted(topics)
        assert all([c["channel_name"] for c in one["channels"]] == ["B", "a", "b"] for one in found)

    def test_one_topic_one_channel(self, server: NsqServer) -> None:
        one, other = unique_topic(), unique_topic()
        for topic, channel in ((one, "a"), (one, "b"), (other, f"only-in-{other}")):
            post(server, f"/topic/create?topic={topic}")
            post(server, f"/channel/create?topic={topic}&channel={channel}")

        def shown(**fields: str) -> object:
            topics = stats(server, **fields)["topics"]
            return topics and [(t["topic_name"], [c["channel_name"] for c in t["channels"]]) for t in topics]

        assert shown(topic=one) == [(one, ["a", "b"])]
        assert shown(topic=one, channel="b") == [(one, ["b"])]
        assert shown(topic=one, channel="nope") == []
        assert shown(channel=f"only-in-{other}") == [(other, [f"only-in-{other}"])]
        assert shown(topic="nobody-made-it") is None
        assert shown(topic="a%20b") is None

    def test_what_is_published_in_a_topics_pause_counts_in_its_channels_after_it(
        self, server: NsqServer, topic: str
    ) -> None:
        post(server, f"/topic/create?topic={topic}")
        post(server, f"/channel/create?topic={topic}&channel=ch")
        post(server, f"/pub?topic={topic}", b"before")
        wait_until(lambda: (channel_stats(server, topic, "ch") or {})["message_count"] == 1, "it has come")
        post(server, f"/topic/pause?topic={topic}")
        post(server, f"/mpub?topic={topic}", b"in\nthe\npause")
        assert (topic_stats(server, topic) or {})["message_count"] == 4
        assert (channel_stats(server, topic, "ch") or {})["message_count"] == 1
        post(server, f"/topic/unpause?topic={topic}")
        wait_until(lambda: (channel_stats(server, topic, "ch") or {})["message_count"] == 4, "all have come")

    def test_a_client_that_has_said_cls_is_shown_as_closing(self, server: NsqServer, topic: str) -> None:
        with consumer(server, topic, rdy=1) as wire:
            wire.send(b"CLS\n")

            def states() -> list[int]:
                found = channel_stats(server, topic, "ch")
                return [client["state"] for client in (found or {"clients": []})["clients"]]

            wait_until(lambda: states() == [4], "it is closing")

    def test_clients_only_if_asked_for(self, server: NsqServer, topic: str) -> None:
        with consumer(server, topic):
            for given, shown in (("false", False), ("0", False), ("true", True), ("nonsense", True)):
                (found,) = stats(server, topic=topic, include_clients=given)["topics"]
                assert (found["channels"][0]["clients"] is not None) is shown
                assert found["channels"][0]["client_count"] == 1
            assert stats(server, topic=topic, include_clients="false")["producers"] is None
        wait_until(lambda: (channel_stats(server, topic, "ch") or {})["clients"] == [], "the client is forgotten")

    def test_memory_only_if_asked_for(self, server: NsqServer) -> None:
        for given, shown in (("false", False), ("0", False), ("true", True), ("nonsense", True)):
            assert ("memory" in call(server, "GET", f"/stats?format=json&include_mem={given}").json) is shown

    def test_as_text(self, server: NsqServer, topic: str) -> None:
        with consumer(server, topic, rdy=7, hostname="host", user_agent="agent") as wire:
            post(server, f"/topic/pause?topic={topic}")
            port = wire.socket.getsockname()[1]
            wait_until(lambda: b"rdy: 7 " in call(server, "GET", f"/stats?topic={topic}").body, "its RDY has come")
            reply = call(server, "GET", f"/stats?topic={topic}")
        assert reply.headers["content-type"] == TEXT
        assert is_versioned(reply)
        memory = "".join(rf"   {name:<25}\t\d+\n" for name in MEMORY_KEYS)
        client = f"host:{port} agent"
        pattern = (
            r"nsqd v1\.3\.0 \(built w/.+\)\n"
            r"start_time \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)\n"
            r"uptime (\d+h)?(\d+m)?\d+(\.\d+)?(s|ms)\n"
            r"\nHealth: OK\n"
            rf"\nMemory:\n{memory}"
            r"\nTopics:"
            rf"\n\*P \[{topic:<15}\] depth: 0     be-depth: 0     msgs: 0        e2e%: \n"
            rf"      \[{'ch':<25}\] depth: 0     be-depth: 0     inflt: 0    def: 0    re-q: 0     timeout: 0     "
            r"msgs: 0        e2e%: \n"
            rf"        \[V2 {client:<21}\] state: 3 inflt: 0    rdy: 7    fin: 0        re-q: 0        "
            r"msgs: 0        connected: \d+s\n"
            r"\nProducers: None\n"
        )
        assert re.fullmatch(pattern, reply.body.decode()), reply.body.decode()

    def test_as_text_of_nothing(self, server: NsqServer) -> None:
        said = call(server, "GET", "/stats?topic=nobody-made-it&include_mem=0&include_clients=0").body.decode()
        assert said.endswith("\nHealth: OK\n\nTopics: None\n\nProducers: None\n")


@pytest.fixture(scope="module")
def own(shape: Shape) -> Iterator[NsqServer]:
    """A broker whose options may be changed."""
    with running(shape, {"max-msg-size": "1000", "auth-http-address": f"{HOST}:9"}) as server:
        yield server


class TestConfig:
    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("max_msg_size", 1000), ("msg_timeout", 60_000_000_000), ("max_body_size", 5 << 20), ("snappy", True),
            ("auth_http_addresses", [f"{HOST}:9"]), ("nsqlookupd_tcp_addresses", []), ("tls_required", 0),
            ("tls_min_version", 0x301), ("max_deflate_level", 6), ("statsd_interval", 60_000_000_000),
            ("e2e_processing_latency_window_time", 600_000_000_000),
            ("max_rdy_count", 2500), ("statsd_udp_packet_size", 508), ("statsd_exclude_ephemeral", False),
        ],
    )  # fmt: skip
    def test_an_option_is_json(self, own: NsqServer, option: str, value: object) -> None:
        reply = call(own, "GET", f"/config/{option}")
        assert (reply.status, reply.json, reply.headers["content-type"]) == (200, value, JSON)
        assert is_versioned(reply)

    def test_options_that_have_no_meaning_here_are_shown_as_of_an_nsqd_that_does_the_same(self, own: NsqServer) -> None:
        shown = {
            "max_bytes_per_file": 64 << 20, "mem_queue_size": 0, "sync_every": 0, "queue_scan_selection_count": 0,
            "queue_scan_worker_pool_max": 0, "sync_timeout": 50_000_000,
        }  # fmt: skip
        for option, value in shown.items():
            reply = call(own, "GET", f"/config/{option}")
            assert reply.status == 200
            assert type(reply.json) is int
            assert not own.shape.is_shards or reply.json == value
        for option in ("https_address", "data_path", "log_prefix", "e2e_processing_latency_percentiles"):
            assert call(own, "GET", f"/config/{option}").status == 200

    def test_a_text_is_as_it_is(self, own: NsqServer) -> None:
        for option, value in (
            ("http_address", f"{HOST}:{own.http_port}"), ("tcp_address", f"{HOST}:{own.port}"), ("tls_cert", ""),
            ("statsd_address", ""),
        ):  # fmt: skip
            reply = call(own, "GET", f"/config/{option}")
            assert (reply.status, reply.body) == (200, value.encode())

    @pytest.mark.parametrize(("name", "number"), [("debug", 1), ("WARN", 3), ("error", 4), ("fatal", 5), ("info", 2)])
    def test_the_log_level(self, own: NsqServer, name: str, number: int) -> None:
        assert call(own, "PUT", "/config/log_level", name.encode()).json == number
        assert call(own, "GET", "/config/log_level").json == number

    def test_lookupd_addresses(self, own: NsqServer) -> None:
        for given in ([f"{HOST}:1"], [f"{HOST}:1", f"{HOST}:2"], [], None):
            assert call(own, "PUT", "/config/nsqlookupd_tcp_addresses", json.dumps(given).encode()).json == given
            assert call(own, "GET", "/config/nsqlookupd_tcp_addresses").json == given

    @pytest.mark.parametrize(
        ("option", "body", "status", "message"),
        [
            ("log_level", b"", 413, "INVALID_VALUE"),
            ("log_level", b"x" * 1001, 413, "INVALID_VALUE"),
            ("log_level", b"loud", 400, "INVALID_VALUE"),
            ("nsqlookupd_tcp_addresses", b"", 413, "INVALID_VALUE"),
            ("nsqlookupd_tcp_addresses", b"127.0.0.1:1", 400, "INVALID_VALUE"),
            ("nsqlookupd_tcp_addresses", b"[1]", 400, "INVALID_VALUE"),
            ("nsqlookupd_tcp_addresses", b'{"a": 1}', 400, "INVALID_VALUE"),
            ("max_msg_size", b"5", 400, "INVALID_OPTION"),
            ("nope", b"5", 400, "INVALID_OPTION"),
        ],
    )
    def test_what_cannot_be_set(self, own: NsqServer, option: str, body: bytes, status: int, message: str) -> None:
        reply = call(own, "PUT", f"/config/{option}", body)
        assert (reply.status, reply.body) == (status, error(message))


class TestTlsRequired:
    def test_http_is_refused_whole(self, shape: Shape, tls_options: dict[str, str]) -> None:
        with running(shape, {**tls_options, "tls-required": "true"}) as server:
            for method, target in (("GET", "/ping"), ("POST", "/pub?topic=x"), ("GET", "/nope")):
                reply = call(server, method, target, b"x" if method == "POST" else b"")
                assert (reply.status, reply.body) == (403, b'{"message": "TLS_REQUIRED", "https_port": 0}')
                assert is_versioned(reply)
                assert reply.headers["content-type"] == JSON

    def test_or_left_open(self, shape: Shape, tls_options: dict[str, str]) -> None:
        with running(shape, {**tls_options, "tls-required": "tcp-https"}) as server:
            assert call(server, "GET", "/ping").body == b"OK"


def test_a_disk_backed_depth_is_the_whole_depth(shape: Shape, tmp_path: Path, topic: str) -> None:
    """mq-shards only: nsqd's depends on what its memory holds."""
    if not shape.is_shards:
        pytest.skip("nsqd keeps messages in memory first")
    with running(shape, data_dir=tmp_path) as server:
        post(server, f"/pub?topic={topic}", b"x")
        assert (topic_stats(server, topic) or {})["backend_depth"] == 1
        with consumer(server, topic) as wire:
            assert wire.is_quiet(0.01)
            assert (channel_stats(server, topic, "ch") or {})["backend_depth"] == 1


def test_a_producer_over_tcp_and_one_over_http_share_a_topic(server: NsqServer, topic: str) -> None:
    with Wire(server) as wire, consumer(server, topic, rdy=2) as reader:
        wire.publish(topic, b"tcp")
        post(server, f"/pub?topic={topic}", b"http")
        assert sorted(message.body for message in reader.messages(2)) == [b"http", b"tcp"]
