"""/stats and /config, at the real nsqd and at mq-shards: every key, every figure, as JSON and as text."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from tests.nsq.api import JSON, TEXT, call, channel_stats, error, is_versioned, post, stats, topic_stats
from tests.nsq.servers import HOST, NsqServer, running
from tests.nsq.wire import consumer, unique_topic
from tests.servers import Shape, wait_until

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
