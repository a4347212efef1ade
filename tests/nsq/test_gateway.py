"""The gateway's HTTP server alone: clients that are slow or many, and what they are told of trouble."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest
from mq_shards.acceptor.protocols.nsq.options import OPTIONS as NSQ
from mq_shards.gateway import http_bodies, http_server
from mq_shards.gateway.broker import Broker, DiskError, DrainingError
from mq_shards.gateway.catalog import DURABLE, Topic
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.nsq import http as nsq_http
from mq_shards.gateway.nsq.http import NsqHttp, Surroundings
from mq_shards.gateway.nsq.options import GatewayOptions
from mq_shards.gateway.unread import Unread
from mq_shards.gateway.workers import WorkersError

from tests.nsq.api import call
from tests.nsq.servers import HOST
from tests.servers import wait_until

SETTINGS = {name: kind.default for name, kind in NSQ.items()}


class Elsewhere:
    """A broker that does what a test says."""

    def __init__(self) -> None:
        self.health = "OK"
        self.published: list[bytes] = []
        self.error: Exception | None = None
        self.listed: list[Topic] = []
        self.silent: list[str] = []
        self.hanging: list[str] = []

    def health_beside(self, silent: Sequence[str]) -> str:
        return f"NOK - {', '.join(silent)}" if silent else self.health

    async def publish(self, topic: str, body: bytes, delay_ns: int = 0) -> None:
        if self.error is not None:
            raise self.error
        self.published.append(body)

    async def publish_many(self, topic: str, count: int, bodies: bytes) -> None:
        await self.publish(topic, bodies)

    async def change(self, what: int, topic: str, channel: str | None = None) -> None:
        if self.error is not None:
            raise self.error

    async def topics(self, consumers: bool = False) -> tuple[list[Topic], list[str]]:
        return self.listed, self.silent

    async def topic(self, name: str, consumers: bool = False) -> list[Topic]:
        if self.error is not None:
            raise self.error
        return self.listed


class Serving:
    """The HTTP API alone, in a thread with a loop of its own."""

    def __init__(self, broker: Elsewhere, **settings: object) -> None:
        self.broker = broker
        options = GatewayOptions(
            nsq={**SETTINGS, **{name.replace("_", "-"): value for name, value in settings.items()}},
            hostname="host", tcp_addresses=[(HOST, 4150)], http_addresses=[(HOST, 4151)], started_wall_ns=0,
            data_dir=False,
        )  # fmt: skip
        self._sock = socket.create_server((HOST, 0))
        self.port: int = self._sock.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(options),))
        self._thread.start()

    def give_little_to_kernel(self) -> None:
        """Of an answer, from now on."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)

    async def _run(self, options: GatewayOptions) -> None:
        async def nothing(topic: str) -> None:
            pass

        async def nobody() -> dict[str, list[Unread]]:
            return {}

        async def no_producers() -> list[dict[str, Any]]:
            return []

        around = Surroundings(
            lookupd_addresses=list, set_lookupd_addresses=lambda _: None,
            prepare_topic=nothing, unread=nobody, producers=no_producers, supervisor=os.getpid(),
            version="0",
        )  # fmt: skip
        http = NsqHttp(options, cast(Broker, self.broker), Bodies(options.nsq["max-body-size"]), around)
        await http.server.listen(self._sock, 16)
        await self._stop.wait()
        await http.server.close(0.1)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def measure_turns(self) -> Callable[[], list[float]]:
        """Begins to measure what each turn of the loop takes of the processor; returns what ends that."""
        taken: list[float] = []
        ends = threading.Event()

        async def measure() -> None:
            while not ends.is_set():
                began = time.thread_time()
                await asyncio.sleep(0)
                taken.append(time.thread_time() - began)

        task = asyncio.run_coroutine_threadsafe(measure(), self._loop)

        def end() -> list[float]:
            ends.set()
            task.result(60)
            return taken

        return end

    def connect(self, data: bytes = b"") -> socket.socket:
        sock = socket.create_connection((HOST, self.port), timeout=60)
        sock.sendall(data)
        return sock


@pytest.fixture
def elsewhere() -> Elsewhere:
    return Elsewhere()


@pytest.fixture
def serve(elsewhere: Elsewhere) -> Iterator[Callable[..., Serving]]:
    with contextlib.ExitStack() as stack:

        def begin(**settings: object) -> Serving:
            return stack.enter_context(contextlib.closing(Serving(elsewhere, **settings)))

        yield begin


def read_all(sock: socket.socket) -> bytes:
    with contextlib.suppress(ConnectionError):
        return sock.makefile("rb").read()
    return b""


def head(size: int, target: str = "/pub?topic=t") -> bytes:
    return f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()


class TestSlowClients:
    @pytest.mark.parametrize("sent", [b"", b"GET", b"GET /ping HTTP/1.1\r\nHost: x\r\nX-Half: "])
    def test_a_request_that_does_not_come(
        self, serve: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch, sent: bytes
    ) -> None:
        monkeypatch.setattr(http_server, "IDLE_S", 0.1)
        with serve().connect(sent) as sock:
            assert read_all(sock) == b""

    def test_the_next_request_that_does_not_come(
        self, serve: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http_server, "IDLE_S", 0.1)
        with serve().connect(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\nGET") as sock:
            assert read_all(sock).endswith(b"\r\n\r\nOK")

    @pytest.mark.parametrize("limit", ["BODY_PAUSE_S", "BODY_S"])
    @pytest.mark.parametrize("target", ["/pub?topic=t", "/mpub?topic=t", "/topic/delete?topic=t"])
    def test_a_body_that_does_not_come(
        self, serve: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch, limit: str, target: str
    ) -> None:
        monkeypatch.setattr(http_bodies, limit, 0.1)
        monkeypatch.setattr(http_server, "LINGER_S", 0.1)
        server = serve()
        with server.connect(head(10, target) + b"half") as sock:
            said = read_all(sock)
        assert said.startswith(b"HTTP/1.1 408 ")
        assert said.endswith(b'{"message":"TIMEOUT"}')
        assert server.broker.published == []

    def test_a_client_that_hangs_up_within_its_body(self, serve: Callable[..., Serving]) -> None:
        server = serve()
        with server.connect(head(10) + b"half") as sock:
            sock.shutdown(socket.SHUT_WR)
            read_all(sock)
        assert call(server.port, "POST", "/pub?topic=t", b"next").body == b"OK"
        assert server.broker.published == [b"next"]

    def test_a_reply_that_is_not_taken(self, serve: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_server, "SEND_S", 0.2)
        server = serve()
        server.broker.listed = [Topic(f"{i:064}", DURABLE, 0, 0, 0, 0) for i in range(50_000)]
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(10)
            sock.connect((HOST, server.port))
            sock.sendall(b"GET /stats HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_until(lambda: call(server.port, "GET", "/ping").body == b"OK", "others are served meanwhile")

            def is_reset() -> bool:
                return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

            wait_until(is_reset, "the connection is given up")

    @pytest.mark.parametrize("form", ["json", "text"])
    def test_stats_of_many_topics(self, serve: Callable[..., Serving], form: str) -> None:
        """Others have their turn while they are made."""
        server = serve()
        server.broker.listed = [Topic(f"{i:064}", DURABLE, 0, 0, 0, 0) for i in range(20_000)]
        path = f"/stats?format={form}&include_mem=false"
        call(server.port, "GET", path)
        gc.disable()  # that of the tests' process takes long
        end = server.measure_turns()
        body = call(server.port, "GET", path).body
        taken = end()
        gc.enable()
        assert body.count(b"0" * 50) == 20_000
        if form == "json":
            names = [topic["topic_name"] for topic in json.loads(body)["topics"]]
            assert names == [topic.name for topic in server.broker.listed]
        assert max(taken) < sum(turn for turn in taken if turn > 0.0001) / 4

    def test_a_reply_that_is_taken_late_and_whole(
        self, serve: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(http_server, "SEND_S", 0.3)
        server = serve()
        server.give_little_to_kernel()
        for topics in range(200, 800, 100):  # of some the kernel leaves little
            server.broker.listed = [Topic(f"{i:064}", DURABLE, 0, 0, 0, 0) for i in range(topics)]
            with socket.socket() as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.settimeout(10)
                sock.connect((HOST, server.port))
                sock.sendall(b"GET /stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                taken = 0
                while data := sock.recv(4096):
                    taken += len(data)
                assert taken > topics * 64
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() > begun + 0.4, "those that are not there any more are not given up")
        assert call(server.port, "GET", "/ping").body == b"OK"
        assert not [record for record in caplog.records if record.name == "asyncio"]


class TestManyClients:
    def test_a_connection_too_many_has_the_place_of_who_is_waited_for(
        self, serve: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nsq_http, "MAX_CONNECTIONS", 3)
        server = serve()
        ping = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
        with contextlib.ExitStack() as stack:
            kept = [stack.enter_context(server.connect(ping)) for _ in range(3)]
            assert all(sock.recv(1000).endswith(b"OK") for sock in kept)
            with server.connect(ping) as sock:
                assert sock.recv(1000).endswith(b"OK")
            assert read_all(kept[0]) == b""
            kept[1].sendall(ping)
            assert kept[1].recv(1000).endswith(b"OK")

    def test_bodies_have_a_limit_together(self, serve: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_bodies, "BODIES_BYTES", 10_000)
        server = serve(max_body_size=1000, max_msg_size=8000)
        with server.connect(head(8000) + b"x" * 7999) as held:
            big = b"x" * 7000

            def is_refused() -> bool:
                reply = call(server.port, "POST", "/pub?topic=t", big)
                assert (reply.status, reply.body) in ((200, b"OK"), (503, b'{"message":"BUSY"}'))
                return reply.status == 503

            wait_until(is_refused, "the first body is there, and both are too much")
            assert call(server.port, "POST", "/pub?topic=t", b"small").body == b"OK"
            held.sendall(b"x")
            assert held.recv(1000).endswith(b"OK")
            assert call(server.port, "POST", "/pub?topic=t", big).body == b"OK"


class TestTrouble:
    @pytest.mark.parametrize("trouble", [WorkersError("gone"), DiskError("full"), DrainingError()])
    def test_what_a_client_is_told(self, serve: Callable[..., Serving], trouble: Exception) -> None:
        server = serve()
        server.broker.error = trouble
        for target in ("/pub?topic=t", "/mpub?topic=t"):
            reply = call(server.port, "POST", target, b"x")
            assert (reply.status, reply.body) == (503, b'{"message":"EXITING"}')
        for target in ("/topic/create?topic=t", "/topic/pause?topic=t", "/channel/delete?topic=t&channel=c"):
            reply = call(server.port, "POST", target)
            assert (reply.status, reply.body) == (500, b'{"message":"INTERNAL_ERROR"}')
        if isinstance(trouble, WorkersError):
            assert call(server.port, "GET", "/stats?topic=t").body == b'{"message":"BUSY"}'

    @pytest.mark.parametrize("form", ["json", "text"])
    def test_stats_say_whose_topics_are_missing(self, serve: Callable[..., Serving], form: str) -> None:
        server = serve()
        server.broker.listed, server.broker.silent = [Topic("there", DURABLE, 0, 0, 0, 0)], ["mq-worker-1"]
        reply = call(server.port, "GET", f"/stats?format={form}")
        assert reply.status == 200 and b"NOK - mq-worker-1" in reply.body and b"there" in reply.body
        if form == "json":
            assert json.loads(reply.body)["mq_shards_silent"] == ["mq-worker-1"]

    def test_a_defect_costs_one_answer(self, serve: Callable[..., Serving], caplog: pytest.LogCaptureFixture) -> None:
        server = serve()
        server.broker.error = ZeroDivisionError("a defect")
        with server.connect(head(1) + b"x" + b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as sock:
            said = read_all(sock)
        assert said.startswith(b"HTTP/1.1 500 ")
        assert b'{"message":"INTERNAL_ERROR"}HTTP/1.1 200 OK' in said
        assert "a defect" in caplog.text

    def test_ping_says_what_is_wrong(self, serve: Callable[..., Serving]) -> None:
        server = serve()
        server.broker.health = "NOK - worker 1 refuses writes"
        reply = call(server.port, "GET", "/ping")
        assert (reply.status, reply.body) == (500, b"NOK - worker 1 refuses writes")

    def test_strangers_do_not_fill_the_log(
        self, serve: Callable[..., Serving], caplog: pytest.LogCaptureFixture
    ) -> None:
        server = serve()
        for sent in (
            b"\x16\x03\x01\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n",
            b"A" * 20_000 + b"\r\n\r\n",
        ):
            with server.connect(sent) as sock:
                read_all(sock)
        with server.connect(b"POST /pub HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n") as sock:
            read_all(sock)
        call(server.port, "GET", "/" + "x" * 5000)
        call(server.port, "POST", "/config/" + "%0d%0a" * 10)
        call(server.port, "GET", "//%0d%0aX-Bad:1")
        assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR", "CRITICAL")]

    def test_no_header_can_be_smuggled_into_a_redirect(self, serve: Callable[..., Serving]) -> None:
        reply = call(serve().port, "GET", "//config/%0d%0aX-Bad:1")
        assert "x-bad" not in reply.headers
        assert reply.headers["location"] == "/config/%0D%0AX-Bad:1"
