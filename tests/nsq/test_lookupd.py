"""Registration with nsqlookupd: what it is told, and that consumers find their messages through it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mq_shards.gateway.nsq import lookupd as lookupd_module
from mq_shards.gateway.nsq.lookupd import Peer
from mq_shards.gateway.nsq.registrations import Registration

from perf.nsq.peer import nsq_program
from tests.nsq.api import call, channel_stats, post, topic_stats
from tests.nsq.servers import HOST, SHARDS, NsqServer, running, two_free_ports
from tests.nsq.wire import Wire, consumer, unique_topic
from tests.servers import Shape, children, comm_of, wait_until

NSQLOOKUPD = nsq_program("nsqlookupd")
needs_nsqlookupd = pytest.mark.skipif(NSQLOOKUPD is None, reason="nsqlookupd is not installed")
RECONNECT_SECONDS = 35.0  # two heartbeats of nsqd, and some


class Lookupd:
    """A real nsqlookupd that can be stopped and started again on the same ports."""

    def __init__(self) -> None:
        self.port, self.http_port = two_free_ports()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        assert NSQLOOKUPD is not None
        self._process = subprocess.Popen(
            [
                NSQLOOKUPD, f"-tcp-address={self.address}", f"-http-address={HOST}:{self.http_port}",
                f"-broadcast-address={HOST}",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self._answers, "nsqlookupd answers")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return call(self.http_port, "GET", "/ping").status == 200
        return False

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def get(self, target: str) -> dict[str, Any]:
        reply = call(self.http_port, "GET", target)
        found: dict[str, Any] = reply.json if reply.status == 200 else {}
        return found

    def channels(self, topic: str) -> list[str]:
        return sorted(self.get(f"/channels?topic={topic}").get("channels", []))

    def producers(self, topic: str) -> list[tuple[str, int]]:
        found = self.get(f"/lookup?topic={topic}").get("producers", [])
        return [(one["broadcast_address"], one["tcp_port"]) for one in found]

    def producing_channels(self, topic: str) -> list[str]:
        """nsqlookupd remembers channels that nobody registers any more: those that a node still registers."""
        found = self.get("/debug")
        return sorted(
            parts[2] for key, nodes in found.items() if nodes and (parts := key.split(":"))[:2] == ["channel", topic]
        )


@pytest.fixture(scope="module")
def lookupd(shape: Shape) -> Iterator[Lookupd]:
    """Shared by tests, each with topics of its own."""
    found = Lookupd()
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def registered(shape: Shape, lookupd: Lookupd) -> Iterator[NsqServer]:
    """A broker that registers with `lookupd`."""
    with registering(shape, lookupd) as server:
        yield server


@pytest.fixture
def own_lookupd() -> Iterator[Lookupd]:
    """To be stopped by a test."""
    found = Lookupd()
    try:
        yield found
    finally:
        found.stop()


def registering(
    shape: Shape, lookupd: Lookupd, data_dir: Path | None = None
) -> contextlib.AbstractContextManager[NsqServer]:
    return running(shape, {"lookupd-tcp-address": lookupd.address, "broadcast-address": HOST}, data_dir=data_dir)


@needs_nsqlookupd
class TestRegistration:
    def test_who_we_are(self, registered: NsqServer, lookupd: Lookupd) -> None:
        wait_until(lambda: lookupd.get("/nodes")["producers"], "the node is known")
        (node,) = lookupd.get("/nodes")["producers"]
        assert node["hostname"] == socket.gethostname()
        assert (node["broadcast_address"], node["version"]) == (HOST, "1.3.0")
        assert (node["tcp_port"], node["http_port"]) == (registered.port, registered.http_port)

    def test_topics_and_channels_come_and_go(self, registered: NsqServer, lookupd: Lookupd, topic: str) -> None:
        us = (HOST, registered.port)
        post(registered, f"/topic/create?topic={topic}")
        wait_until(lambda: lookupd.producers(topic) == [us], "the topic is registered")
        assert lookupd.channels(topic) == []
        with consumer(registered, topic, "a"), consumer(registered, topic, "b#ephemeral"):
            wait_until(lambda: lookupd.channels(topic) == ["a", "b#ephemeral"], "the channels are registered")
        wait_until(lambda: lookupd.channels(topic) == ["a"], "an ephemeral channel went with its consumer")
        post(registered, f"/channel/delete?topic={topic}&channel=a")
        wait_until(lambda: lookupd.producing_channels(topic) == [], "the channel is no more")
        assert lookupd.producers(topic) == [us]
        post(registered, f"/topic/delete?topic={topic}")
        wait_until(lambda: lookupd.producers(topic) == [], "the topic is no more")

    def test_a_topic_is_deleted_with_its_channels(self, registered: NsqServer, lookupd: Lookupd, topic: str) -> None:
        post(registered, f"/topic/create?topic={topic}")
        post(registered, f"/channel/create?topic={topic}&channel=a")
        wait_until(lambda: lookupd.producing_channels(topic) == ["a"], "the channel is registered")
        post(registered, f"/topic/delete?topic={topic}")
        wait_until(lambda: lookupd.producers(topic) == [] == lookupd.producing_channels(topic), "both are no more")

    def test_an_ephemeral_topic_goes_with_its_last_channel(
        self, registered: NsqServer, lookupd: Lookupd, topic: str
    ) -> None:
        name = f"{topic}#ephemeral"
        with consumer(registered, name, "ch#ephemeral"):
            wait_until(lambda: name in lookupd.get("/topics")["topics"], "the topic is registered")
        wait_until(lambda: name not in lookupd.get("/topics")["topics"], "the topic is no more")

    def test_a_new_nsqlookupd_is_told_everything(self, shape: Shape, own_lookupd: Lookupd, topic: str) -> None:
        with registering(shape, own_lookupd) as server:
            post(server, f"/topic/create?topic={topic}")
            post(server, f"/channel/create?topic={topic}&channel=a")
            wait_until(lambda: own_lookupd.channels(topic) == ["a"], "the channel is registered")
            own_lookupd.stop()
            own_lookupd.start()
            if not server.shape.is_shards:
                # nsqd notices with its next command, and connects with the one after: else with its heartbeats.
                for _ in range(2):
                    post(server, f"/topic/create?topic={unique_topic()}")
            wait_until(lambda: own_lookupd.channels(topic) == ["a"], "it is registered anew", RECONNECT_SECONDS)
            assert own_lookupd.producers(topic) == [(HOST, server.port)]

    def test_addresses_may_change_at_run_time(self, shape: Shape, own_lookupd: Lookupd, topic: str) -> None:
        second = Lookupd()
        try:
            with registering(shape, own_lookupd) as server:
                us = (HOST, server.port)
                post(server, f"/topic/create?topic={topic}")
                wait_until(lambda: own_lookupd.producers(topic) == [us], "the first has the topic")
                both = json.dumps([own_lookupd.address, second.address]).encode()
                assert call(server, "PUT", "/config/nsqlookupd_tcp_addresses", both).status == 200
                wait_until(lambda: second.producers(topic) == [us], "the second has it too")
                only = json.dumps([second.address]).encode()
                assert call(server, "PUT", "/config/nsqlookupd_tcp_addresses", only).status == 200
                wait_until(lambda: own_lookupd.producers(topic) == [], "the first is let go")
                assert second.producers(topic) == [us]
        finally:
            second.stop()

    def test_a_new_topic_has_the_channels_of_other_nodes(
        self, registered: NsqServer, lookupd: Lookupd, topic: str
    ) -> None:
        wait_until(lambda: lookupd.get("/nodes")["producers"], "the node is known")
        for channel in ("archive", "metrics", "tail%23ephemeral"):
            post(lookupd.http_port, f"/channel/create?topic={topic}&channel={channel}")
        post(registered, f"/pub?topic={topic}", b"before any consumer")
        found = topic_stats(registered, topic) or {}
        assert [channel["channel_name"] for channel in found["channels"]] == ["archive", "metrics"]
        for channel in ("archive", "metrics"):
            with consumer(registered, topic, channel, rdy=1) as wire:
                assert wire.message().body == b"before any consumer"

    def test_so_has_one_that_is_made_over_tcp(self, registered: NsqServer, lookupd: Lookupd, topic: str) -> None:
        wait_until(lambda: lookupd.get("/nodes")["producers"], "the node is known")
        post(lookupd.http_port, f"/channel/create?topic={topic}&channel=archive")
        with Wire(registered) as wire:
            wire.publish(topic, b"before any consumer")
        wait_until(lambda: channel_stats(registered, topic, "archive") is not None, "the channel is made")
        wait_until(lambda: (channel_stats(registered, topic, "archive") or {})["depth"] == 1, "it has the message")


@needs_nsqlookupd
class TestRestarts:
    """mq-shards only: its processes die one by one."""

    @pytest.fixture
    def ours(self, own_lookupd: Lookupd, tmp_path: Path) -> Iterator[NsqServer]:
        with registering(SHARDS, own_lookupd, tmp_path / "data") as server:
            yield server

    def process(self, server: NsqServer, name: str) -> int:
        found = [pid for pid in children(server.process.pid) if comm_of(pid) == name]
        return found[0] if found else 0

    @pytest.mark.parametrize("name", ["mq-gateway", "mq-worker-0", "mq-worker-1"])
    def test_a_process_that_dies_costs_no_registration(
        self, ours: NsqServer, own_lookupd: Lookupd, topic: str, name: str
    ) -> None:
        topics = [topic, *(unique_topic() for _ in range(8))]  # on both workers
        for one in topics:
            post(ours, f"/topic/create?topic={one}")
            post(ours, f"/channel/create?topic={one}&channel=ch")
        us = (HOST, ours.port)
        wait_until(lambda: all(own_lookupd.channels(one) == ["ch"] for one in topics), "all are registered")
        old = self.process(ours, name)
        os.kill(old, 9)
        wait_until(lambda: self.process(ours, name) not in (0, old), f"{name} is back")

        def answers() -> bool:
            with contextlib.suppress(OSError):
                return call(ours, "GET", "/ping").status == 200
            return False

        wait_until(answers, "the gateway serves, with all workers")
        wait_until(lambda: all(own_lookupd.producers(one) == [us] for one in topics), "all are registered again")
        late = unique_topic()
        post(ours, f"/topic/create?topic={late}")
        wait_until(lambda: own_lookupd.producers(late) == [us], "what is made later is registered as well")
        for one in topics:
            assert own_lookupd.producing_channels(one) == ["ch"]

    def test_what_is_recovered_is_registered(self, own_lookupd: Lookupd, tmp_path: Path, topic: str) -> None:
        data = tmp_path / "data"
        with running(SHARDS, data_dir=data) as server:
            post(server, f"/topic/create?topic={topic}")
            post(server, f"/channel/create?topic={topic}&channel=ch")
        assert own_lookupd.channels(topic) == []
        with registering(SHARDS, own_lookupd, data):
            wait_until(lambda: own_lookupd.channels(topic) == ["ch"], "the channel is registered")

    def test_a_tube_with_jobs_is_a_topic_too(self, ours: NsqServer, own_lookupd: Lookupd, topic: str) -> None:
        with socket.create_connection((HOST, ours.beanstalk_port), timeout=60) as sock:
            sock.sendall(f"use {topic}\r\nput 0 0 60 5\r\nhello\r\n".encode())
            wait_until(lambda: own_lookupd.producers(topic) == [(HOST, ours.port)], "the tube is registered", 20)


CONSUME = """
import sys, nsq
def handler(message):
    print(message.body.decode(), flush=True)
    return True
nsq.Reader(
    topic=sys.argv[1], channel="ch", message_handler=handler, lookupd_http_addresses=["http://" + sys.argv[2]],
    lookupd_poll_interval=1,
)
nsq.run()
"""


@needs_nsqlookupd
def test_a_pynsq_reader_finds_its_messages_through_nsqlookupd(
    registered: NsqServer, lookupd: Lookupd, topic: str
) -> None:
    pytest.importorskip("nsq")
    post(registered, f"/pub?topic={topic}", b"first")
    wait_until(lambda: lookupd.producers(topic) != [], "the topic is registered")
    reader = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CONSUME, topic, f"{HOST}:{lookupd.http_port}"], stdout=subprocess.PIPE
    )
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"first\n"
        post(registered, f"/mpub?topic={topic}", b"second\nthird")
        assert sorted([reader.stdout.readline(), reader.stdout.readline()]) == [b"second\n", b"third\n"]

        def all_finished() -> bool:
            clients = (channel_stats(registered, topic, "ch") or {"clients": []})["clients"]
            return [client["finish_count"] for client in clients] == [3]

        wait_until(all_finished, "all three have been finished")
    finally:
        reader.kill()
        reader.wait()
        if reader.stdout is not None:
            reader.stdout.close()


# --- the protocol, with a daemon that writes down what it hears -------------------------------------------------------


@dataclass
class Heard:
    """All that came on one connection; replies as they are given out."""

    replies: dict[bytes, bytes] = field(default_factory=dict)  # by command; else OK
    identities: list[dict[str, Any]] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    connections: int = 0
    raw_reply: bytes | None = None  # sent as it is, instead of a reply to IDENTIFY


class ListeningDaemon:
    def __init__(self, heard: Heard) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                heard.connections += 1
                assert self.rfile.read(4) == b"  V1"
                while line := self.rfile.readline():
                    heard.times.append(time.monotonic())
                    heard.lines.append(line)
                    command = line.split()[0]
                    reply = heard.replies.get(command, b"OK")
                    if command == b"IDENTIFY":
                        (size,) = struct.unpack(">i", self.rfile.read(4))
                        heard.identities.append(json.loads(self.rfile.read(size)))
                        if heard.raw_reply is not None:
                            self.wfile.write(heard.raw_reply)
                            continue
                        reply = heard.replies.get(b"IDENTIFY", b'{"broadcast_address":"x","http_port":1}')
                    if command == b"PING" and reply == b"hang up":
                        return
                    self.wfile.write(struct.pack(">i", len(reply)) + reply)

        self.server = socketserver.ThreadingTCPServer((HOST, 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def daemon(heard: Heard) -> Iterator[ListeningDaemon]:
    found = ListeningDaemon(heard)
    yield found
    found.close()


IDENTITY: dict[str, object] = {
    "version": "1.3.0", "tcp_port": 1, "http_port": 2, "hostname": "h", "broadcast_address": "b",
}  # fmt: skip


class Wishes(Peer):
    """A Peer with a set of its own of what the daemon should know."""

    def __init__(self, address: str, identity: dict[str, object], heartbeat_s: float) -> None:
        self.wanted: set[Registration] = set()
        super().__init__(address, identity, self.wanted, heartbeat_s)

    def announce(self, wanted: set[Registration]) -> None:
        changed = self.wanted ^ wanted
        self.wanted ^= changed
        for registration in changed:
            self.compare(registration)


@contextlib.asynccontextmanager
async def told(daemon: ListeningDaemon, heartbeat_s: float = 60.0) -> Any:  # noqa: ANN401
    peer = Wishes(daemon.address, IDENTITY, heartbeat_s)
    task = asyncio.create_task(peer.run())
    try:
        yield peer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: object, what: str, seconds: float = 60.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s in vain until {what}"
        await asyncio.sleep(0.002)


class TestPeer:
    @pytest.fixture(autouse=True)
    def no_long_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lookupd_module, "RETRY_S", (0.01,))

    def test_what_it_says(self, daemon: ListeningDaemon, heard: Heard) -> None:
        async def play() -> None:
            async with told(daemon) as peer:
                peer.announce({("t", ""), ("t", "b"), ("t", "a"), ("s#ephemeral", "")})
                await until(lambda: len(heard.lines) == 5, "all is registered")
                peer.announce({("t", "b"), ("t", "")})
                await until(lambda: len(heard.lines) == 7, "two are unregistered")
                peer.announce(set())
                await until(lambda: len(heard.lines) == 9, "all is unregistered")

        asyncio.run(play())
        assert heard.identities == [IDENTITY]
        assert heard.lines == [
            b"IDENTIFY\n", b"REGISTER s#ephemeral\n", b"REGISTER t\n", b"REGISTER t a\n", b"REGISTER t b\n",
            b"UNREGISTER s#ephemeral\n", b"UNREGISTER t a\n", b"UNREGISTER t b\n", b"UNREGISTER t\n",
        ]  # fmt: skip

    def test_it_pings_as_often_as_it_should(self, daemon: ListeningDaemon, heard: Heard) -> None:
        async def play() -> None:
            async with told(daemon, heartbeat_s=0.1):
                await until(lambda: heard.lines.count(b"PING\n") >= 4, "four heartbeats came")

        asyncio.run(play())
        pings = [at for at, line in zip(heard.times, heard.lines, strict=True) if line == b"PING\n"]
        gaps = [later - earlier for earlier, later in itertools.pairwise(pings)]
        assert all(gap > 0.09 for gap in gaps), gaps

    def test_it_comes_back_and_says_all_again(self, daemon: ListeningDaemon, heard: Heard) -> None:
        heard.replies[b"PING"] = b"hang up"

        async def play() -> None:
            async with told(daemon, heartbeat_s=0.05) as peer:
                peer.announce({("t", "")})
                await until(lambda: heard.connections >= 3, "it has come back twice")
                await until(lambda: heard.lines.count(b"REGISTER t\n") >= 3, "and said it each time")

        asyncio.run(play())

    @pytest.mark.parametrize(
        "reply",
        [
            struct.pack(">i", -1), struct.pack(">i", 1 << 30), struct.pack(">i", 9) + b"E_INVALID",
            struct.pack(">i", 2) + b"[]", struct.pack(">i", 4) + b"null",
            struct.pack(">i", 2) + b"{}" + (struct.pack(">i", 2) + b"OK") * 100, b"",
        ],
    )  # fmt: skip
    def test_a_daemon_that_says_nonsense_is_left_and_tried_again(
        self, daemon: ListeningDaemon, heard: Heard, monkeypatch: pytest.MonkeyPatch, reply: bytes
    ) -> None:
        """Or says nothing."""
        heard.raw_reply = reply
        if not reply:
            monkeypatch.setattr(lookupd_module, "REPLY_S", 0.1)

        async def play() -> None:
            async with told(daemon) as peer:
                peer.announce({("t", "")})
                await until(lambda: heard.connections >= 3, "it is tried again and again")
                heard.raw_reply = None
                await until(lambda: b"REGISTER t\n" in heard.lines, "it is told when it talks sense")

        asyncio.run(play())

    def test_a_daemon_that_hangs_up_is_not_waited_for(
        self, daemon: ListeningDaemon, heard: Heard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither for the reply that is due."""
        heard.replies[b"PING"] = b"hang up"
        monkeypatch.setattr(lookupd_module, "REPLY_S", 3600.0)

        async def play() -> None:
            async with told(daemon, heartbeat_s=0.01):
                await until(lambda: heard.connections >= 3, "it has come back twice")

        asyncio.run(play())

    def test_a_refused_registration_begins_anew(self, daemon: ListeningDaemon, heard: Heard) -> None:
        heard.replies[b"REGISTER"] = b"E_BAD_TOPIC"

        async def play() -> None:
            async with told(daemon) as peer:
                peer.announce({("t", "")})
                await until(lambda: heard.connections >= 2, "it is tried again")
                heard.replies.clear()
                before = len(heard.lines)
                await until(lambda: b"REGISTER t\n" in heard.lines[before:], "it is registered")

        asyncio.run(play())

    @pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:x", "127.0.0.1:99999", "a\0b:1", "\xff..:1"])
    def test_an_address_that_is_none_harms_nobody(self, caplog: pytest.LogCaptureFixture, address: str) -> None:
        caplog.set_level("DEBUG", "mq_shards.gateway.nsq.lookupd")

        async def play() -> None:
            task = asyncio.create_task(Peer(address, IDENTITY, set()).run())
            await until(lambda: len(caplog.records) >= 3 or task.done(), "it has tried three times")
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(play())
        levels = [record.levelname for record in caplog.records]
        assert levels[:3] == ["ERROR", "DEBUG", "DEBUG"], "said once, and not at every attempt"
