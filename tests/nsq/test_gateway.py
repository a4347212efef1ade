"""The gateway's limits and failures: clients that are slow or many, workers that do not answer, processes that die."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mq_shards.acceptor import engine as engine_module
from mq_shards.acceptor.engine import Answer, Engine, Upcall
from mq_shards.acceptor.protocols.nsq.options import OPTIONS as NSQ
from mq_shards.gateway import http_bodies, http_server
from mq_shards.gateway.broker import Broker, DiskError, DrainingError
from mq_shards.gateway.catalog import DURABLE, Channel, Consumer, Topic, decode
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.nsq import http as nsq_http
from mq_shards.gateway.nsq import mpub
from mq_shards.gateway.nsq import stats as nsq_stats
from mq_shards.gateway.nsq.http import NsqHttp
from mq_shards.gateway.nsq.mpub import MpubError
from mq_shards.gateway.nsq.names import is_valid_name
from mq_shards.gateway.nsq.options import GatewayOptions
from mq_shards.gateway.nsq.topics import is_visible
from mq_shards.gateway.pipeline.http_readers import Unread
from mq_shards.gateway.workers import CONNECTION_REQUESTS, WORKER_CONNECTIONS, Workers, WorkersError

from tests.nsq.api import call, channel_stats, post, topic_stats
from tests.nsq.servers import HOST, SHARDS, NsqServer, running
from tests.nsq.wire import Wire, consumer, unique_topic
from tests.servers import children, comm_of, wait_until

SETTINGS = {name: kind.default for name, kind in NSQ.items()}


class Elsewhere:
    """A broker that does what a test says."""

    def __init__(self) -> None:
        self.health = "OK"
        self.published: list[bytes] = []
        self.error: Exception | None = None
        self.listed: list[Topic] = []

    async def publish(self, topic: str, body: bytes, delay_ns: int = 0) -> None:
        if self.error is not None:
            raise self.error
        self.published.append(body)

    async def publish_many(self, topic: str, count: int, bodies: bytes) -> None:
        await self.publish(topic, bodies)

    async def change(self, what: int, topic: str, channel: str | None = None) -> None:
        if self.error is not None:
            raise self.error

    async def topics(self, topic: str = "", consumers: bool = False) -> list[Topic]:
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

        http = NsqHttp(
            options, cast(Broker, self.broker), Bodies(options.nsq["max-body-size"]),
            lookupd_addresses=list, set_lookupd_addresses=lambda _: None,
            prepare_topic=nothing, unread=nobody, producers=no_producers, supervisor=os.getpid(),
            version="0",
        )  # fmt: skip
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
            assert call(server.port, "GET", "/stats").body == b'{"message":"BUSY"}'

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


# --- asking workers --------------------------------------------------------------------------------------------------


class FakeEngine:
    """One worker; what is asked is answered when a test says so."""

    workers = 1

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, bytes]] = []  # connection, slot, body
        self.answers: list[Upcall] = []
        self._next_slot: dict[int, int] = {}
        self._poll_fd = os.eventfd(0)

    def fileno(self) -> int:
        return self._poll_fd

    def local(self) -> int:
        conn = len(self._next_slot) + 1
        self._next_slot[conn] = 0
        return conn

    def request(self, worker: int, conn: int, kind: int, *, body: bytes = b"", **_: int) -> int:
        slot = self._next_slot[conn]
        self._next_slot[conn] += 1
        self.asked.append((conn, slot, body))
        return slot

    def poll(self) -> int:
        return len(self.answers)

    def upcalls(self) -> Iterator[Upcall]:
        while self.answers:
            yield self.answers.pop(0)

    def close_connection(self, conn: int) -> None:
        pass

    def answer(self, conn: int, slot: int, status: int = engine_module.OK, body: bytes = b"") -> None:
        self.answers.append(Upcall(engine_module.ANSWER, conn, 0, b"", Answer(0, status, slot, 0, body)))

    def close(self) -> None:
        os.close(self._poll_fd)


def with_workers(play: Callable[[FakeEngine, Workers], Awaitable[None]], **limits: float) -> None:
    async def run() -> None:
        engine = FakeEngine()
        workers = Workers(cast(Engine, engine), **limits)  # type: ignore[arg-type]
        try:
            await play(engine, workers)
        finally:
            workers.close()
            engine.close()

    asyncio.run(run())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class TestWorkers:
    def test_each_has_its_own_answer(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            tasks = [asyncio.create_task(workers.ask(0, 1, body=b"%d" % i)) for i in range(CONNECTION_REQUESTS + 10)]
            await settle()
            assert len({conn for conn, _, _ in engine.asked}) == 2
            for conn, slot, body in reversed(engine.asked):
                engine.answer(conn, slot, body=b"to " + body)
            workers.turn()
            assert [(await task).body for task in tasks] == [b"to %d" % i for i in range(len(tasks))]

        with_workers(play)

    def test_there_is_a_limit(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            limit = CONNECTION_REQUESTS * WORKER_CONNECTIONS
            tasks = [asyncio.create_task(workers.ask(0, 1)) for _ in range(limit)]
            await settle()
            with pytest.raises(WorkersError):
                await workers.ask(0, 1)
            engine.answer(*engine.asked[0][:2])
            workers.turn()
            tasks.append(asyncio.create_task(workers.ask(0, 1)))
            await settle()
            assert len(engine.asked) == limit + 1

        with_workers(play)

    def test_bytes_have_one_too(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            first = asyncio.create_task(workers.ask(0, 1, body=b"x" * 150))  # alone it may be larger
            await settle()
            with pytest.raises(WorkersError):
                await workers.ask(0, 1, body=b"x")
            engine.answer(*engine.asked[0][:2])
            workers.turn()
            await first
            asyncio.create_task(workers.ask(0, 1, body=b"x" * 100))  # noqa: RUF006
            await settle()
            assert len(engine.asked) == 2

        with_workers(play, bytes_under_way=100)

    def test_a_task_that_is_cancelled_ends_though_it_is_answered_at_the_same_moment(self) -> None:
        """Otherwise a stop waits for a task that goes on for ever."""

        async def play(engine: FakeEngine, workers: Workers) -> None:
            task = asyncio.create_task(workers.ask(0, 1))
            await settle()
            engine.answer(*engine.asked[0][:2])
            workers.turn()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        with_workers(play)

    def test_whoever_gives_up_is_not_missed(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            with pytest.raises(WorkersError, match="has not answered"):
                await workers.ask(0, 1, body=b"x" * 100)
            with pytest.raises(WorkersError, match="bytes"):  # a worker may yet come back and take it
                await workers.ask(0, 1, body=b"x")
            engine.answer(*engine.asked[0][:2])
            workers.turn()
            task = asyncio.create_task(workers.ask(0, 1, body=b"x"))
            await settle()
            engine.answer(*engine.asked[1][:2], body=b"late is not for me")
            workers.turn()
            assert (await task).body == b"late is not for me"

        with_workers(play, request_s=0.02, bytes_under_way=100)

    def test_requests_in_order_share_a_connection_whatever_else_is_under_way(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            for n in range(100):
                for order in (None, 7, 8):
                    asyncio.create_task(workers.ask(0, 1, order=order, body=f"{order} {n}".encode()))  # noqa: RUF006
            await settle()
            for order in (b"7", b"8"):
                asked = [(conn, slot) for conn, slot, body in engine.asked if body.split()[0] == order]
                assert asked == [(asked[0][0], slot) for slot in range(100)]
            assert len({conn for conn, _, _ in engine.asked}) == 3

        with_workers(play)

    def test_behind_what_was_given_up_nothing_is_asked_for_in_order(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            with pytest.raises(WorkersError, match="has not answered"):
                await workers.ask(0, 1, order=7)
            for order in (7, 8):
                with pytest.raises(WorkersError, match="does not answer"):
                    await workers.ask(0, 1, order=order)
            assert len(engine.asked) == 1
            engine.answer(*engine.asked[0][:2])
            workers.turn()
            task = asyncio.create_task(workers.ask(0, 1, order=7))
            await settle()
            engine.answer(*engine.asked[1][:2])
            workers.turn()
            assert (await task).status == engine_module.OK

        with_workers(play, request_s=0.02)

    def test_a_broken_ring_ends_the_process(self) -> None:
        async def play(engine: FakeEngine, workers: Workers) -> None:
            engine.answers.append(Upcall(engine_module.BROKEN, 0, 0, b"", None))
            workers.turn()
            with pytest.raises(RuntimeError, match="broken"):
                await workers.broken

        with_workers(play)


# --- bytes in, bytes out ---------------------------------------------------------------------------------------------

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=64)
NUMBERS = st.integers(0, 2**32 - 1)
LONG_NUMBERS = st.integers(0, 2**64 - 1)
CONSUMERS = st.builds(
    Consumer,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    LONG_NUMBERS,
    LONG_NUMBERS,
    LONG_NUMBERS,
    st.integers(0, 99),
    st.booleans(),
    NUMBERS,
    st.binary(max_size=9),
)
CHANNELS = st.builds(
    Channel, NAMES, st.integers(0, 7), NUMBERS, *[LONG_NUMBERS] * 9, consumers=st.lists(CONSUMERS, max_size=2)
)
TOPICS = st.builds(
    Topic, NAMES, st.integers(0, 7), *[LONG_NUMBERS] * 4,
    channels=st.lists(CHANNELS, max_size=3, unique_by=lambda channel: channel.name),
    read_back=LONG_NUMBERS, read_back_bytes=LONG_NUMBERS, reserves=LONG_NUMBERS, deletes=LONG_NUMBERS,
    reserved=LONG_NUMBERS, delayed=LONG_NUMBERS, buried=LONG_NUMBERS, releases=LONG_NUMBERS, timeouts=LONG_NUMBERS,
    header_bytes=LONG_NUMBERS, more_parts=LONG_NUMBERS,
)  # fmt: skip


def encode(topics: Sequence[Topic]) -> bytes:
    """As csrc/ringbuf/message.h lays it out."""
    out = b""
    for t in topics:
        sizes = len(t.name), t.flags, len(t.channels), 5
        numbers = t.depth, t.messages, t.message_bytes, t.jobs, t.read_back, t.read_back_bytes, t.reserves, t.deletes
        numbers += t.reserved, t.delayed, t.buried, t.releases, t.timeouts, t.header_bytes, t.more_parts
        out += struct.pack("=IIII15Q", *sizes, *numbers) + t.name.encode()
        for c in t.channels:
            sizes = len(c.name), c.flags, c.consumer_count, len(c.consumers)
            figures = c.depth, c.in_flight, c.deferred, c.messages, c.requeues, c.timeouts
            figures += c.read_back, c.delivered, c.finished
            out += struct.pack("=IIIIQQQQQQQQQ", *sizes, *figures) + c.name.encode()
            for one in c.consumers:
                out += struct.pack(
                    "=IIIIQQQIHHII", one.acceptor, one.conn, one.credit, one.in_flight, one.messages, one.finishes,
                    one.requeues, len(one.description), one.sample_percent, one.is_leaving,
                    one.number, 0,
                ) + one.description  # fmt: skip
    return out


class TestCatalog:
    @given(st.lists(TOPICS, max_size=3))
    def test_everything_comes_through(self, topics: list[Topic]) -> None:
        found = decode(encode(topics))
        for topic in topics:
            topic.channels.sort(key=lambda channel: channel.name)
        assert found == topics

    @given(st.lists(TOPICS, min_size=1, max_size=2), st.data())
    def test_half_of_one_is_none(self, topics: list[Topic], data: st.DataObject) -> None:
        whole = encode(topics)
        ends = {len(encode(topics[:count])) for count in range(len(topics) + 1)}
        cut = data.draw(st.integers(0, len(whole) - 1))
        if cut in ends:
            assert len(decode(whole[:cut])) < len(topics)
        else:
            with pytest.raises(ValueError, match="middle"):
                decode(whole[:cut])

    def test_what_is_shown(self) -> None:
        channel = Channel("c", 0, 0, 0, 0, 0, 0, 0, 0)
        assert is_visible(Topic("t", DURABLE, 0, 0, 0, 0))
        assert is_visible(Topic("t", 0, 0, 0, 0, 1))
        assert is_visible(Topic("t", 0, 0, 0, 0, 0, [channel]))
        assert not is_visible(Topic("t", 0, 0, 9, 9, 0)), "an empty tube is nothing of NSQ's"
        assert not is_visible(Topic("not/nsq", 0, 1, 1, 1, 1))


def lines_of(body: bytes) -> list[bytes]:
    return [line for line in body.split(b"\n") if line]


def unpacked(packed: bytes) -> list[bytes]:
    found = []
    while packed:
        (size,) = struct.unpack_from(">I", packed)
        found.append(packed[4 : 4 + size])
        packed = packed[4 + size :]
    return found


class TestMpubBodies:
    @given(st.lists(st.binary(max_size=5)))
    def test_lines(self, parts: list[bytes]) -> None:
        body = b"\n".join(parts)
        count, packed = asyncio.run(mpub.from_lines(body, 1000, 10_000))
        assert unpacked(packed) == lines_of(body)
        assert count == len(lines_of(body))

    @given(st.lists(st.binary(min_size=1, max_size=5), min_size=1), st.binary(max_size=3))
    def test_binary(self, bodies: list[bytes], behind: bytes) -> None:
        packed = b"".join(struct.pack(">I", len(body)) + body for body in bodies)
        given_body = struct.pack(">I", len(bodies)) + packed
        assert asyncio.run(mpub.from_binary(given_body + behind, 5, 100_000)) == (len(bodies), packed)

    @given(st.binary(max_size=40))
    def test_anything(self, body: bytes) -> None:
        with contextlib.suppress(MpubError):
            count, packed = asyncio.run(mpub.from_binary(body, 10, 100))
            assert len(unpacked(packed)) == count > 0
            assert all(1 <= len(one) <= 10 for one in unpacked(packed))

    def test_others_are_served_meanwhile(self) -> None:
        async def play() -> int:
            turns = 0
            task = asyncio.create_task(mpub.from_lines(b"x\n" * 100_000, 10, 10**6))
            while not task.done():
                await asyncio.sleep(0)
                turns += 1
            return turns

        assert asyncio.run(play()) > 20


class TestTexts:
    @pytest.mark.parametrize(
        ("duration_ns", "text"),
        [
            (0, "0s"), (1, "1ns"), (999, "999ns"), (1000, "1µs"), (1_500_000, "1.5ms"), (999_999_999, "999.999999ms"),
            (10**9, "1s"), (61 * 10**9 + 50_000_000, "1m1.05s"), (3600 * 10**9, "1h0m0s"), (-(10**9), "-1s"),
            (100 * 3600 * 10**9 + 1, "100h0m0.000000001s"),
        ],
    )  # fmt: skip
    def test_durations_are_written_as_go_writes_them(self, duration_ns: int, text: str) -> None:
        assert nsq_stats.go_duration(duration_ns) == text

    @pytest.mark.parametrize("description", [b"", b"no json", b"[]", b'{"hostname": 5, "tls": "yes", "more": {}}'])
    def test_a_description_that_is_none_shows_as_nothing(self, description: bytes) -> None:
        consumer = Consumer(0, 1, 5, 1, 10, 8, 1, 0, False, 1, description)
        client = nsq_stats.client_json(consumer)
        assert (client["hostname"], client["tls"], client["version"]) == ("", False, "V2")
        assert (client["ready_count"], client["in_flight_count"], client["message_count"]) == (5, 1, 10)
        assert "more" not in client
        assert "authed" not in client

    @pytest.mark.parametrize(
        ("name", "valid"),
        [
            ("a", True), ("a.B-_9#ephemeral", True), ("x" * 64, True), ("x" * 54 + "#ephemeral", True), ("", False),
            ("x" * 65, False), ("#ephemeral", False), ("a\n", False), ("a#ephemeral\n", False), ("ä", False),
            ("a/b", False),
        ],
    )  # fmt: skip
    def test_names(self, name: str, valid: bool) -> None:
        assert is_valid_name(name) is valid


# --- with all processes ----------------------------------------------------------------------------------------------


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
