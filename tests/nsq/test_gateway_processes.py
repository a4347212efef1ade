"""The gateway beside all other processes: what happens when one dies or stops."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nsq.api import call, channel_stats, post, topic_stats
from tests.nsq.servers import HOST, SHARDS, NsqServer, running
from tests.nsq.wire import Wire, consumer, unique_topic
from tests.servers import children, comm_of, wait_until


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[NsqServer]:
    with running(SHARDS, data_dir=tmp_path / "data") as server:
        yield server


def request(method: str, target: str, body: bytes = b"") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """The next one's status and body; nothing behind it is taken."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, f"the connection ends after {head!r}"
        head += byte
    found = re.search(rb"Content-Length: ([0-9]+)", head)
    assert found is not None
    return int(head.split()[1]), connection.recv(int(found[1]), socket.MSG_WAITALL)


def exchange(connection: socket.socket, data: bytes) -> tuple[int, bytes]:
    connection.sendall(data)
    return answer(connection)


def kill(server: NsqServer, name: str) -> None:
    (pid,) = [pid for pid in children(server.process.pid) if comm_of(pid) == name]
    os.kill(pid, signal.SIGKILL)


class TestProcesses:
    def test_the_gateway_may_die_without_a_client_of_tcp_noticing(self, ours: NsqServer, topic: str) -> None:
        with Wire(ours) as producer, consumer(ours, topic, rdy=10) as reader:
            producer.publish(topic, b"before")
            assert call(ours, "GET", "/ping").body == b"OK"  # it begins the gateway
            kill(ours, "mq-gateway")
            producer.publish(topic, b"after")
            assert [reader.message().body, reader.message().body] == [b"before", b"after"]
            # The listening socket is the supervisor's: who connects waits until the gateway is back.
            wait_until(lambda: "is back" in ours.said(), "it has been started again")
            assert call(ours, "GET", "/ping").body == b"OK"
            post(ours, f"/pub?topic={topic}", b"at last")
            assert reader.message().body == b"at last"

    def test_publishing_needs_no_gateway_and_the_rest_waits_for_it(self, ours: NsqServer, topic: str) -> None:
        with socket.create_connection((HOST, ours.http_port), timeout=30) as kept:
            assert exchange(kept, request("GET", "/ping"))[1] == b"OK"
            # It has been handed to the gateway for that; with the next publish it comes back, and stays.
            assert exchange(kept, request("POST", f"/pub?topic={topic}", b"1"))[1] == b"OK"
            gateway = ours.pid_of("mq-gateway")
            os.kill(gateway, signal.SIGSTOP)
            assert exchange(kept, request("POST", f"/pub?topic={topic}", b"2"))[1] == b"OK"
            assert exchange(kept, request("POST", f"/mpub?topic={topic}", b"3\n4"))[1] == b"OK"
            assert exchange(kept, request("POST", "/pub", b"5"))[0] == 400
            # What is not for an acceptor waits, for whatever gateway comes next; and so does what is behind it.
            stats = request("GET", f"/stats?format=json&topic={topic}")
            kept.sendall(stats + request("POST", f"/pub?topic={topic}", b"6"))
            with consumer(ours, topic, rdy=10) as reader:
                assert sorted(message.body for message in reader.messages(4)) == [b"1", b"2", b"3", b"4"]
                os.kill(gateway, signal.SIGKILL)
                status, body = answer(kept)
                assert (status, json.loads(body)["topics"][0]["message_count"]) == (200, 4)
                assert answer(kept)[1] == b"OK"
                assert reader.message().body == b"6"

    def test_requests_outlive_a_worker(self, ours: NsqServer) -> None:
        topics = [unique_topic() for _ in range(8)]  # on both workers
        for name in ("mq-worker-0", "mq-worker-1"):
            kill(ours, name)
            for topic in topics:
                # What was on its way when the worker died may be refused; nothing is lost that was promised.
                wait_until(
                    lambda at=topic: call(ours, "POST", f"/pub?topic={at}", b"x").status == 200,  # type: ignore[misc]
                    "a message is taken",
                )
        for topic in topics:
            assert (topic_stats(ours, topic) or {})["depth"] >= 2

    def test_while_draining_no_message_is_taken(self, ours: NsqServer, topic: str) -> None:
        post(ours, f"/pub?topic={topic}", b"before")
        ours.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: "drain mode" in ours.said(), "drain mode has begun")
        for target, body in ((f"/pub?topic={topic}", b"x"), (f"/mpub?topic={topic}", b"x\ny")):
            reply = call(ours, "POST", target, body)
            assert (reply.status, reply.body) == (503, b'{"message":"EXITING"}')
        with consumer(ours, topic, rdy=1) as reader:
            assert reader.message().body == b"before"

    def test_a_stop_answers_what_is_being_asked(self, tmp_path: Path, topic: str) -> None:
        with running(SHARDS, data_dir=tmp_path / "data") as server:
            posted = 0
            ended = threading.Event()

            def load() -> None:
                nonlocal posted
                with contextlib.suppress(OSError):
                    while call(server, "POST", f"/pub?topic={topic}", b"x").status == 200:
                        posted += 1
                ended.set()

            thread = threading.Thread(target=load)
            thread.start()
            wait_until(lambda: posted > 20, "messages are being taken")
            server.process.terminate()
            assert server.process.wait(20) == 0
            assert ended.wait(10)
            thread.join()
            server.was_killed = True
            assert not re.search(r" (error|warning) ", server.said()), server.said()
        with running(SHARDS, data_dir=tmp_path / "data") as server:
            # The last may have been taken without the answer having been heard.
            assert (topic_stats(server, topic) or {})["depth"] in (posted, posted + 1)

    def test_what_is_published_over_http_outlives_kill_9_of_everything(self, tmp_path: Path, topic: str) -> None:
        with running(SHARDS, data_dir=tmp_path / "data") as server:
            post(server, f"/topic/create?topic={topic}")
            post(server, f"/channel/create?topic={topic}&channel=ch")
            post(server, f"/mpub?topic={topic}", b"1\n2\n3")
            post(server, f"/pub?topic={topic}&defer=3600000", b"4")
            post(server, f"/channel/pause?topic={topic}&channel=ch")
            post(server, f"/topic/pause?topic={topic}")
            server.kill()
        with running(SHARDS, data_dir=tmp_path / "data") as server:
            found = channel_stats(server, topic, "ch") or {}
            assert (found["depth"], found["deferred_count"], found["paused"]) == (3, 1, True)
            assert (topic_stats(server, topic) or {})["paused"] is True
