"""What a statsd daemon is sent, by the real nsqd and by mq-shards."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from mq_shards.gateway.catalog import DURABLE, Channel, Topic
from mq_shards.gateway.nsq.statsd import Statsd, StatsdOptions, figures, packets

from tests.nsq.api import post
from tests.nsq.servers import HOST, NsqServer, running
from tests.nsq.wire import consumer
from tests.servers import Shape

# nsqd spreads packets over all of the interval but a second.
NSQD_INTERVAL, INTERVAL = "1050ms", "250ms"
PACKET_BYTES = 200
MEMORY = {
    "mem.heap_objects", "mem.heap_idle_bytes", "mem.heap_in_use_bytes", "mem.heap_released_bytes",
    "mem.gc_pause_usec_100", "mem.gc_pause_usec_99", "mem.gc_pause_usec_95", "mem.next_gc_bytes", "mem.gc_runs",
}  # fmt: skip


class Daemon:
    """A socket that figures are sent to."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((HOST, 0))
        self.packets: list[bytes] = []

    @property
    def address(self) -> str:
        return f"{HOST}:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        self._socket.close()

    def report(self, first: str, last: str, seconds: float = 60.0) -> dict[str, str]:
        """The next whole report, from the line of one name to that of another: values by name. Without the last it is
        one of before there was all that is asked for."""
        until = time.monotonic() + seconds
        lines: list[str] = []
        while True:
            self._socket.settimeout(max(0.001, until - time.monotonic()))
            packet = self._socket.recv(1 << 16)
            self.packets.append(packet)
            for line in packet.decode().splitlines():
                if line.startswith(first + ":"):
                    lines.clear()
                if lines or line.startswith(first + ":"):
                    lines.append(line)
                if lines and line.startswith(last + ":"):
                    found = [line.split(":", 1) for line in lines]
                    assert len(dict(found)) == len(found), f"a name came twice: {lines}"
                    return dict(found)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    found = Daemon()
    yield found
    found.close()


def pushing(shape: Shape, daemon: Daemon, **more: str) -> Iterator[NsqServer]:
    options = {
        "statsd-address": daemon.address, "statsd-interval": INTERVAL if shape.is_shards else NSQD_INTERVAL,
        "statsd-udp-packet-size": str(PACKET_BYTES), "broadcast-address": HOST,
        **{name.replace("_", "-"): value for name, value in more.items()},
    }  # fmt: skip
    with running(shape, options) as server:
        yield server


@pytest.fixture
def pushed(shape: Shape, daemon: Daemon) -> Iterator[NsqServer]:
    yield from pushing(shape, daemon)


@pytest.fixture
def without_ephemeral(shape: Shape, daemon: Daemon) -> Iterator[NsqServer]:
    yield from pushing(
        shape, daemon, statsd_prefix="mine", statsd_mem_stats="false", statsd_exclude_ephemeral="true"
    )  # fmt: skip


class TestReports:
    def test_every_name(self, pushed: NsqServer, daemon: Daemon) -> None:
        prefix = f"nsq.127_0_0_1_{pushed.http_port}."
        post(pushed, "/topic/create?topic=t")
        post(pushed, "/channel/create?topic=t&channel=ch")
        post(pushed, "/topic/create?topic=u")
        first, last = f"{prefix}topic.t.message_count", f"{prefix}mem.gc_runs"
        of_topic = {"message_count", "message_bytes", "depth", "backend_depth"}
        of_channel = {
            "message_count", "depth", "backend_depth", "in_flight_count", "deferred_count", "requeue_count",
            "timeout_count", "clients",
        }  # fmt: skip
        expected = {f"topic.{topic}.{name}" for topic in "tu" for name in of_topic}
        expected |= {f"topic.t.channel.ch.{name}" for name in of_channel} | MEMORY
        while len(report := daemon.report(first, last)) < len(expected):
            pass  # it began before both topics were there
        assert {name.removeprefix(prefix) for name in report} == expected
        counters = {name for name, value in report.items() if value.endswith("|c")}
        assert {name.rpartition(".")[2] for name in counters} == {
            "message_count", "message_bytes", "requeue_count", "timeout_count", "gc_runs",
        }  # fmt: skip
        assert all(value.endswith(("|c", "|g")) for value in report.values())
        assert int(report[f"{prefix}mem.heap_in_use_bytes"][:-2]) > 100_000

    def test_counters_say_what_was_added(self, pushed: NsqServer, daemon: Daemon) -> None:
        prefix = f"nsq.127_0_0_1_{pushed.http_port}."
        seen = {"message_count": 0, "message_bytes": 0, "requeue_count": 0}
        latest: dict[str, str] = {}

        def add_report() -> None:
            latest.clear()
            latest.update(daemon.report(f"{prefix}topic.t.message_count", f"{prefix}mem.gc_runs"))
            seen["message_count"] += int(latest[f"{prefix}topic.t.channel.ch.message_count"][:-2])
            seen["message_bytes"] += int(latest[f"{prefix}topic.t.message_bytes"][:-2])
            seen["requeue_count"] += int(latest[f"{prefix}topic.t.channel.ch.requeue_count"][:-2])

        with consumer(pushed, "t", rdy=2) as wire:
            for body in (b"1", b"22", b"333"):
                post(pushed, "/pub?topic=t", body)
            first, second = wire.messages(2)
            wire.req(first)
            wire.fin(second)
            wire.messages(2)
            until = time.monotonic() + 60
            while seen != {"message_count": 3, "message_bytes": 6, "requeue_count": 1}:
                assert time.monotonic() < until, seen
                add_report()
            add_report()  # nothing is added any more
            assert seen == {"message_count": 3, "message_bytes": 6, "requeue_count": 1}
            assert latest[f"{prefix}topic.t.channel.ch.in_flight_count"] == "2|g"
            assert latest[f"{prefix}topic.t.channel.ch.clients"] == "1|g"
        assert all(len(packet) <= PACKET_BYTES for packet in daemon.packets)
        assert any(len(packet) > PACKET_BYTES // 2 for packet in daemon.packets), "lines travel together"

    def test_what_is_left_out(self, without_ephemeral: NsqServer, daemon: Daemon) -> None:
        names = "mine.topic.b.message_count", "mine.topic.b.channel.stays.clients"
        with (
            consumer(without_ephemeral, "a#ephemeral"),
            consumer(without_ephemeral, "b", "ch#ephemeral"),
            consumer(without_ephemeral, "b", "stays"),
        ):
            report = daemon.report(*names)
            assert {name.split(".")[1] for name in report} == {"topic"}
            again = daemon.report(*names)
        assert not [name for name in {**report, **again} if "ephemeral" in name]
        assert not [packet for packet in daemon.packets if b"ephemeral" in packet or b"mem." in packet]


class TestLines:
    OPTIONS = StatsdOptions("", "", 1.0, 508, exclude_ephemeral=False, on_disk=True)

    def test_a_count_that_began_anew(self) -> None:
        """As after a worker's restart."""
        channel = Channel("ch", 0, 0, 4, 0, 0, 7, 0, 0)
        before = Topic("t", 0, 2, 10, 100, 0, [channel])
        last: dict[str, int] = {}
        lines = list(figures([before], {}, last, self.OPTIONS))
        assert lines[:4] == [
            "topic.t.message_count:10|c\n", "topic.t.message_bytes:100|c\n", "topic.t.depth:2|g\n",
            "topic.t.backend_depth:2|g\n",
        ]  # fmt: skip
        lines = list(figures([Topic("t", 0, 2, 3, 130, 0, [channel])], last, {}, self.OPTIONS))
        assert lines[:2] == ["topic.t.message_count:3|c\n", "topic.t.message_bytes:30|c\n"]
        assert "topic.t.channel.ch.message_count:0|c\n" in lines

    def test_a_line_is_never_cut(self) -> None:
        assert list(packets(["aaa\n", "bbb\n", "c\n", "d" * 20 + "\n", "e\n"], 8)) == [
            b"aaa\nbbb\n", b"c\n", b"d" * 20 + b"\n", b"e\n",
        ]  # fmt: skip
        assert list(packets([], 8)) == []


def test_topics_of_a_worker_that_hangs_are_counted_on_when_it_is_back() -> None:
    class Broker:
        silent: tuple[str, ...] = ()
        messages = 5

        async def topics(self, consumers: bool) -> tuple[list[Topic], list[str]]:
            there = ("here",) if self.silent else ("here", "there")
            return [Topic(name, DURABLE, 0, self.messages, 0, 0) for name in there], list(self.silent)

    async def reports() -> list[bytes]:
        broker: Any = Broker()
        statsd = Statsd(StatsdOptions("", "", 1.0, 508, exclude_ephemeral=True, on_disk=True), broker, None)
        found = [b"".join(await statsd.report())]
        broker.silent, broker.messages = ("mq-worker-1",), 6
        found.append(b"".join(await statsd.report()))
        broker.silent, broker.messages = (), 7
        return [*found, b"".join(await statsd.report())]

    first, without, last = asyncio.run(reports())
    assert b"topic.there.message_count:5|c" in first
    assert b"topic.here.message_count:1|c" in without and b"there" not in without
    assert b"topic.there.message_count:2|c" in last, "not all 7 again"
