"""NSQ's own programs at work on the real nsqd and on mq-shards: nsq_stat, nsq_tail, to_nsq, nsq_to_file, nsqadmin."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.nsq.peer import nsq_program
from tests.nsq.api import Reply, call, channel_stats, post, topic_stats
from tests.nsq.servers import HOST, NsqServer, running, two_free_ports
from tests.nsq.test_lookupd import Lookupd, needs_nsqlookupd
from tests.nsq.wire import consumer
from tests.servers import Shape, wait_until

SECONDS = 30.0


def program(name: str) -> str:
    """Its path; else the test is skipped."""
    path = nsq_program(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run(name: str, *arguments: str, stdin: bytes = b"") -> list[str]:
    """What it prints, when it ends by itself and well."""
    done = subprocess.run([program(name), *arguments], input=stdin, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


@contextlib.contextmanager
def started(name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Until the end of the block."""
    command = [program(name), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class TestStat:
    def test_through_nsqd(self, server: NsqServer, topic: str) -> None:
        post(server, f"/topic/create?topic={topic}")
        post(server, f"/channel/create?topic={topic}&channel=ch")
        post(server, f"/mpub?topic={topic}", b"1\n2\n3")
        with consumer(server, topic, rdy=1) as wire:
            wire.message()
            wait_until(lambda: (channel_stats(server, topic, "ch") or {})["depth"] == 2, "one is in flight")
            lines = run(
                "nsq_stat", f"-nsqd-http-address={HOST}:{server.http_port}", f"-topic={topic}", "-channel=ch",
                "-interval=10ms", "-count=2",
            )  # fmt: skip
        rates, depths, counts = (part.split() for part in lines[-1].split("|"))
        assert rates == ["0", "0"]
        total, _, _, in_flight, deferred = depths
        assert (total, in_flight, deferred) == ("2", "1", "0")
        assert counts == ["0", "0", "3", "1"]


class TestProducersAndConsumers:
    def test_to_nsq_publishes_every_line(self, server: NsqServer, topic: str) -> None:
        run("to_nsq", f"-topic={topic}", f"-nsqd-tcp-address={HOST}:{server.port}", stdin=b"one\ntwo\nthree\n")
        with consumer(server, topic, rdy=5) as wire:
            assert sorted(message.body for message in wire.messages(3)) == [b"one", b"three", b"two"]

    def test_nsq_tail_prints_what_comes(self, server: NsqServer, topic: str) -> None:
        address = f"{HOST}:{server.port}"
        with started("nsq_tail", f"-nsqd-tcp-address={address}", f"-topic={topic}", "-n=2") as tail:
            wait_until(lambda: (topic_stats(server, topic) or {"channels": []})["channels"], "it has subscribed")
            found = (topic_stats(server, topic) or {})["channels"][0]
            assert found["channel_name"].startswith("tail")
            assert found["channel_name"].endswith("#ephemeral")
            post(server, f"/mpub?topic={topic}", b"first\nsecond")
            printed = tail.communicate(timeout=SECONDS)[0]
        assert sorted(printed.splitlines()) == [b"first", b"second"]
        wait_until(lambda: (topic_stats(server, topic) or {})["channels"] == [], "its channel went with it")

    def test_nsq_to_file_keeps_every_message(self, server: NsqServer, topic: str, tmp_path: Path) -> None:
        post(server, f"/mpub?topic={topic}", b"".join(b"line %d\n" % i for i in range(1000)))
        arguments = [
            f"-nsqd-tcp-address={HOST}:{server.port}", f"-topic={topic}", "-channel=archive", f"-output-dir={tmp_path}",
            "-max-in-flight=100", "-sync-interval=1s",
        ]  # fmt: skip
        with started("nsq_to_file", *arguments) as archiver:
            wait_until(lambda: (channel_stats(server, topic, "archive") or {}).get("message_count") == 1000, "all came")

            def finished() -> bool:
                found = channel_stats(server, topic, "archive") or {}
                return found["depth"] == 0 == found["in_flight_count"]

            wait_until(finished, "all are in the file", SECONDS)
            archiver.terminate()
            archiver.wait(SECONDS)
        (file,) = tmp_path.glob("*.log")
        assert sorted(file.read_text().splitlines()) == sorted(f"line {i}" for i in range(1000))


@needs_nsqlookupd
class TestThroughNsqlookupd:
    @pytest.fixture
    def registered(self, shape: Shape) -> Iterator[tuple[NsqServer, Lookupd]]:
        lookupd = Lookupd()
        try:
            options = {"lookupd-tcp-address": lookupd.address, "broadcast-address": HOST}
            with running(shape, options) as server:
                yield server, lookupd
        finally:
            lookupd.stop()

    def test_nsq_stat_and_nsq_tail(self, registered: tuple[NsqServer, Lookupd], topic: str) -> None:
        server, lookupd = registered
        post(server, f"/topic/create?topic={topic}")
        post(server, f"/channel/create?topic={topic}&channel=ch")
        wait_until(lambda: lookupd.channels(topic) == ["ch"], "both are registered")
        at = f"-lookupd-http-address={HOST}:{lookupd.http_port}"
        with started("nsq_tail", at, f"-topic={topic}", "-n=1") as tail:
            wait_until(lambda: len((topic_stats(server, topic) or {})["channels"]) == 2, "nsq_tail has subscribed")
            post(server, f"/pub?topic={topic}", b"found")
            assert tail.communicate(timeout=SECONDS)[0] == b"found\n"
        lines = run("nsq_stat", at, f"-topic={topic}", "-channel=ch", "-interval=10ms", "-count=2")
        assert lines[-1].split("|")[1].split()[0] == "1"


class TestAdmin:
    """nsqadmin's own calls, through its HTTP API."""

    @pytest.fixture
    def admin(self, server: NsqServer) -> Iterator[int]:
        port, _ = two_free_ports()
        arguments = [f"-nsqd-http-address={HOST}:{server.http_port}", f"-http-address={HOST}:{port}"]
        with started("nsqadmin", *arguments):

            def answers() -> bool:
                with contextlib.suppress(OSError):
                    return call(port, "GET", "/ping").status == 200
                return False

            wait_until(answers, "nsqadmin answers")
            yield port

    def act(self, admin: int, target: str, action: str, method: str = "POST", **names: str) -> None:
        body = json.dumps({"action": action, **names}).encode() if method == "POST" else b""
        reply = call(admin, method, target, body)
        assert reply.status == 200, reply

    def get(self, admin: int, target: str) -> Reply:
        reply = call(admin, "GET", target)
        assert reply.status == 200, reply
        assert not reply.json.get("message"), reply.json  # what it could not find out
        return reply

    def test_what_it_shows(self, server: NsqServer, admin: int, topic: str) -> None:
        with consumer(server, topic, rdy=1, client_id="me", hostname="host") as wire:
            post(server, f"/mpub?topic={topic}", b"1\n2")
            wire.message()
            assert topic in self.get(admin, "/api/topics").json["topics"]
            shown = self.get(admin, f"/api/topics/{topic}").json
            assert (shown["topic_name"], shown["message_count"]) == (topic, 2)
            assert [channel["channel_name"] for channel in shown["channels"]] == ["ch"]
            channel = self.get(admin, f"/api/topics/{topic}/ch").json
            assert (channel["in_flight_count"], channel["client_count"]) == (1, 1)
            assert [(client["client_id"], client["hostname"]) for client in channel["clients"]] == [("me", "host")]
            (node,) = self.get(admin, "/api/nodes").json["nodes"]
            assert (node["tcp_port"], node["http_port"], node["version"]) == (server.port, server.http_port, "1.3.0")
            shown = self.get(admin, f"/api/nodes/{node['broadcast_address']}:{server.http_port}").json
            assert topic in [one["topic_name"] for one in shown["topics"]]
            assert self.get(admin, "/api/counter").json["stats"]

    def test_what_it_does(self, server: NsqServer, admin: int, topic: str) -> None:
        post(server, f"/topic/create?topic={topic}")
        post(server, f"/channel/create?topic={topic}&channel=ch")
        at, at_channel = f"/api/topics/{topic}", f"/api/topics/{topic}/ch"
        self.act(admin, at, "pause")
        assert (topic_stats(server, topic) or {})["paused"] is True
        self.act(admin, at, "unpause")
        assert (topic_stats(server, topic) or {})["paused"] is False
        self.act(admin, at_channel, "pause")
        assert (channel_stats(server, topic, "ch") or {})["paused"] is True
        self.act(admin, at_channel, "unpause")
        assert (channel_stats(server, topic, "ch") or {})["paused"] is False
        post(server, f"/mpub?topic={topic}", b"1\n2")
        wait_until(lambda: (channel_stats(server, topic, "ch") or {})["depth"] == 2, "both are in the channel")
        self.act(admin, at_channel, "empty")
        assert (channel_stats(server, topic, "ch") or {})["depth"] == 0
        self.act(admin, at, "empty")
        self.act(admin, at_channel, "", method="DELETE")
        assert channel_stats(server, topic, "ch") is None
        self.act(admin, at, "", method="DELETE")
        assert topic_stats(server, topic) is None
