"""nsqd's HTTP API, on the real nsqd and on mq-shards: status codes, bodies, headers, and what the calls do."""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.nsq.api import JSON, TEXT, call, channel_stats, error, is_versioned, post, topic_stats
from tests.nsq.frames import sized
from tests.nsq.servers import HOST, NsqServer, running
from tests.nsq.wire import Wire, consumer
from tests.servers import Shape, wait_until

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
