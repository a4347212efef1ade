"""The acceptor with workers made by the test: what it asks of them, and what its clients hear. No process, no clock.

A FakeWorker is the worker's end of a real channel: a test sees every message that the acceptor sends, and answers when
and what it likes, so that every order of events can be had.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Engine, protocol_number
from mq_shards.acceptor.protocol import Broker
from mq_shards.acceptor.protocols.beanstalk.beanstalk import Beanstalk
from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf import Producer, create

BEANSTALK: Final = protocol_number("beanstalk")
# csrc/ringbuf/message.h
OPEN, CLOSE, USE, WATCH, IGNORE, CANCEL, RETURN, GONE = range(1, 9)
PUBLISH, RESERVE, PROBE, TAKE, RESERVE_ID, DELETE, RELEASE, BURY, TOUCH, PEEK_ID = range(32, 42)
PEEK_READY, PEEK_DELAYED, PEEK_BURIED, KICK, KICK_ID, PAUSE, STATS_ID, STATS_TOPIC, LIST = range(42, 51)
OK, NONE, NOT_FOUND, TIMED_OUT, DEADLINE_SOON, CANCELLED, NO_SPACE, FAILED = range(8)
NONE_IN_FLIGHT: Final = 1
FOREVER: Final = (1 << 64) - 1
SECOND: Final = 1_000_000_000

SHARDS: Final = 8
MAX_OUTSTANDING: Final = 256
STARTED_NS: Final = 1_700_000_000 * SECOND


@dataclass(frozen=True)
class Request:
    kind: int
    conn: int
    slot: int
    topic: int
    id: int
    pri: int
    delay_ns: int
    ttr_ns: int
    body: bytes
    flags: int = 0

    @property
    def has_reply(self) -> bool:
        return self.kind >= PUBLISH


class FakeWorker:
    def __init__(self, acceptor: Engine, index: int, ring_bytes: int, acceptor_wake: int) -> None:
        self._acceptor = acceptor
        self._index = index
        self._ring_bytes = ring_bytes
        self._acceptor_wake = acceptor_wake
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._channel: Any = None

    def attach(self) -> None:
        requests, replies = create(self._ring_bytes, 1), create(self._ring_bytes, 1)
        if self._channel is not None:
            lib.channel_close(self._channel)
        self._channel = lib.channel_open(replies, requests, self._acceptor_wake, 1 << 30)
        assert self._channel != ffi.NULL
        self._acceptor.peer(self._index, requests, replies, self._wake)
        os.close(requests)
        os.close(replies)

    def take(self, limit: int = 1 << 30) -> list[Request]:
        """What the acceptor has sent since the last call."""
        requests: list[Request] = []
        while len(requests) < limit and (m := lib.channel_receive(self._channel)) != ffi.NULL:
            body = bytes(ffi.buffer(ffi.cast("char *", m) + ffi.sizeof("struct message"), m.body_bytes))
            requests.append(Request(m.kind, m.conn, m.slot, m.topic, m.id, m.pri, m.delay_ns, m.ttr_ns, body, m.flags))
        lib.channel_release(self._channel)
        lib.channel_publish(self._channel)
        return requests

    def answer(
        self, request: Request, status: int = OK, *, id: int = 0, pri: int = 0, body: bytes = b"", flags: int = 0
    ) -> None:
        reply = {"kind": request.kind, "status": status, "conn": request.conn, "slot": request.slot, "id": id}
        message = ffi.new("struct message *", {**reply, "pri": pri, "flags": flags, "body_bytes": len(body)})
        lib.channel_send(self._channel, message, body, len(body))
        lib.channel_publish(self._channel)

    def send_raw(self, data: bytes) -> None:
        message = ffi.from_buffer("struct message *", data)
        lib.channel_send(self._channel, message, data[48:], len(data) - 48)
        lib.channel_publish(self._channel)

    def close(self) -> None:
        if self._channel is not None:
            lib.channel_close(self._channel)
        os.close(self._wake)


class Client:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        self.number = bench.acceptor.adopt(theirs.detach(), BEANSTALK)

    def send(self, data: bytes) -> None:
        assert self.socket.send(data) == len(data)
        self._bench.turn()

    def flood(self, data: bytes) -> int:
        """Sends as much as is taken, and says how much that was."""
        sent = 0
        for _ in range(20):
            with contextlib.suppress(BlockingIOError):
                while sent < len(data):
                    sent += self.socket.send(data[sent : sent + 65536])
            self._bench.turn()
        return sent

    def received(self) -> bytes:
        data = b""
        with contextlib.suppress(BlockingIOError):
            while piece := self.socket.recv(1 << 16):
                data += piece
        return data

    def talk(self, data: bytes) -> bytes:
        self.send(data)
        return self.received()

    @property
    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True


@dataclass
class Bench:
    """An acceptor, its Python half, its workers."""

    workers: int = 1
    ring_bytes: int = 1 << 20
    attach: bool = True
    clients: list[Client] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._board = os.memfd_create("board")
        assert lib.board_format(self._board)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self.acceptor = Engine(0, self.workers, SHARDS, self._board, self._wake)
        broker = Broker("0123456789abcdef", STARTED_NS)
        self.full: list[int] = []  # why no connection was accepted
        self.beanstalk = Beanstalk(self.acceptor, {"max-job-size": 65535}, broker, lambda: STARTED_NS + 5 * SECOND)
        self.worker = [
            FakeWorker(self.acceptor, i, self.ring_bytes, self._wake) for i in range(self.workers)
        ]  # fmt: skip
        if self.attach:
            for worker in self.worker:
                worker.attach()
                assert all(request.kind == OPEN for request in worker.take())

    def turn(self, turns: int = 3) -> None:
        for _ in range(turns):
            self.acceptor.turn()
            for upcall in self.acceptor.upcalls():
                if upcall.kind == engine.COMMAND:
                    self.beanstalk.command(upcall.conn, upcall.line)
                elif upcall.kind == engine.ANSWER:
                    assert upcall.answer is not None
                    self.beanstalk.answer(upcall.conn, upcall.answer)
                elif upcall.kind == engine.CLOSED:
                    self.beanstalk.closed(upcall.conn)
                elif upcall.kind == engine.CANNOT_ACCEPT:
                    self.full.append(upcall.conn)
                else:
                    raise AssertionError(upcall)

    def client(self) -> Client:
        self.clients.append(Client(self))
        self.turn()
        return self.clients[-1]

    def counters(self) -> dict[str, int]:
        return self.acceptor.counters(BEANSTALK)

    def quiet_client(self, *names: bytes) -> Client:
        """A client that uses the first of these topics and watches them all; how it came to that is not seen."""
        client = self.client()
        if names:
            watches = b"".join(b"watch %s\r\n" % name for name in names)
            client.talk(watches + b"use %s\r\n" % names[0] + (b"" if b"default" in names else b"ignore default\r\n"))
        for worker in self.worker:
            worker.take()
        return client

    def name_at(self, worker: int, nth: int = 0) -> bytes:
        """The nth name of a topic that is this worker's."""
        names = (b"t%d" % i for i in range(1000))
        at = [name for name in names if self.acceptor.worker_of_name(name) == worker]
        return at[nth]

    def id_at(self, worker: int, n: int = 1) -> int:
        """An id that is this worker's."""
        return n * SHARDS + worker

    def take(self, worker: int = 0) -> list[Request]:
        return self.worker[worker].take()

    def one(self, worker: int = 0) -> Request:
        requests = self.take(worker)
        assert len(requests) == 1, requests
        return requests[0]

    def answer(self, worker: int, request: Request, status: int = OK, **rest: Any) -> None:  # noqa: ANN401
        self.worker[worker].answer(request, status, **rest)
        self.turn()

    def close(self) -> None:
        for client in self.clients:
            client.socket.close()
        self.acceptor.close()
        for worker in self.worker:
            worker.close()
        os.close(self._board)
        os.close(self._wake)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture
def duo() -> Iterator[Bench]:
    bench = Bench(workers=2)
    yield bench
    bench.close()


@pytest.fixture
def trio() -> Iterator[Bench]:
    bench = Bench(workers=3)
    yield bench
    bench.close()


# --- connections and topics -------------------------------------------------------------------------------------------


def test_the_default_topic_is_open_without_any_connection() -> None:
    bench = Bench(workers=2, attach=False)
    at = bench.acceptor.worker_of_name(b"default")
    for worker in bench.worker:
        worker.attach()
    (request,) = bench.take(at)
    assert (request.kind, request.body) == (OPEN, b"default")
    assert bench.take(1 - at) == []
    bench.close()


def test_a_new_connection_uses_and_watches_default_and_its_end_is_told(bench: Bench) -> None:
    client = bench.client()
    use, watch = bench.take()
    assert (use.kind, watch.kind) == (USE, WATCH)
    assert use.topic == watch.topic != 0
    assert use.conn == watch.conn == client.number
    client.socket.close()
    bench.turn()
    assert [(r.kind, r.conn) for r in bench.take()] == [(GONE, client.number)]


def test_a_topic_is_opened_before_its_first_use_and_closed_after_its_last(bench: Bench) -> None:
    bench.acceptor.set("idle-topics", 0)
    first, second = bench.client(), bench.client()
    bench.take()
    assert first.talk(b"use a\r\n") == b"USING a\r\n"
    opened, used = bench.take()
    assert (opened.kind, opened.body, opened.topic) == (OPEN, b"a", used.topic)
    assert used.kind == USE
    assert second.talk(b"watch a\r\n") == b"WATCHING 2\r\n"
    assert [(r.kind, r.topic) for r in bench.take()] == [(WATCH, used.topic)]
    first.talk(b"use b\r\n")
    assert [r.kind for r in bench.take()] == [OPEN, USE], "the second client still watches a"
    second.talk(b"ignore a\r\n")
    assert [(r.kind, r.topic) for r in bench.take()] == [(IGNORE, used.topic), (CLOSE, used.topic)]


def test_the_names_that_stay_bound_without_a_use_are_few_and_those_used_last(bench: Bench) -> None:
    bench.acceptor.set("idle-topics", 2)
    client = bench.client()
    for name in (b"a", b"b", b"c", b"a", b"d"):
        client.talk(b"use %s\r\n" % name)
    heard = bench.take()
    opened = {r.topic: r.body for r in heard if r.kind == OPEN}
    assert [opened.get(r.topic) for r in heard if r.kind == CLOSE] == [b"b"]
    client.talk(b"use c\r\n")
    assert [r.kind for r in bench.take()] == [USE], "c is bound still"
    for n in range(1000):
        client.talk(b"use t%d\r\n" % n)
    requests = bench.take()
    assert len([r for r in requests if r.kind == OPEN]) == len([r for r in requests if r.kind == CLOSE]) == 1000


def test_the_worker_of_the_topic_used_before_hears_of_the_change(duo: Bench) -> None:
    here, there = duo.name_at(0), duo.name_at(1)
    client = duo.quiet_client(here)
    client.talk(b"use %s\r\n" % there)
    assert [(r.kind, r.topic) for r in duo.take(0)] == [(USE, 0)]
    assert [r.kind for r in duo.take(1)] == [OPEN, USE]


def test_watch_and_ignore_count_and_order_as_beanstalkd(bench: Bench) -> None:
    client = bench.client()
    assert client.talk(b"ignore default\r\n") == b"NOT_IGNORED\r\n"
    assert client.talk(b"ignore never-watched\r\n") == b"WATCHING 1\r\n"
    for i in range(1, 10):
        assert client.talk(b"watch w%d\r\n" % i) == b"WATCHING %d\r\n" % (i + 1)
    assert client.talk(b"watch w3\r\n") == b"WATCHING 10\r\n"
    # The last of the list takes the place of what is ignored.
    assert client.talk(b"ignore w2\r\n") == b"WATCHING 9\r\n"
    listed = client.talk(b"list-tubes-watched\r\n").decode()
    assert listed.split("\n")[2:-2] == [f"- {n}" for n in ["default", "w1", "w9", "w3", "w4", "w5", "w6", "w7", "w8"]]


def test_ten_thousand_topics_can_be_watched_and_no_more(bench: Bench) -> None:
    client = bench.client()
    for start in range(0, 9999, 100):
        client.send(b"".join(b"watch n%d\r\n" % i for i in range(start, min(start + 100, 9999))))
        client.received()
        bench.take()
    assert client.talk(b"watch one-more\r\n") == b"OUT_OF_MEMORY\r\n"
    assert client.talk(b"watch n5\r\n") == b"WATCHING 10000\r\n"
    assert client.talk(b"ignore n5\r\n") == b"WATCHING 9999\r\n"


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_topics_are_open_at_their_worker_as_long_as_somebody_refers_to_them(data: st.DataObject) -> None:
    bench = Bench(workers=2)
    bench.acceptor.set("idle-topics", 0)
    clients = [bench.client() for _ in range(3)]
    used = [b"default"] * 3
    watched = [{b"default"} for _ in range(3)]
    open_at: list[dict[int, bytes]] = [{}, {}]
    default_at = bench.acceptor.worker_of_name(b"default")
    open_at[default_at][bench.acceptor.call(clients[0].number, "used")] = b"default"
    for worker in range(2):
        bench.take(worker)
    names = [b"n%d" % i for i in range(data.draw(st.sampled_from([10, 200])))]
    for _ in range(data.draw(st.integers(1, 40))):
        which = data.draw(st.integers(0, 2))
        for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=30)):
            command = data.draw(st.sampled_from([b"use", b"watch", b"ignore"]))
            if command == b"use":
                used[which] = name
            elif command == b"watch":
                watched[which].add(name)
            else:
                watched[which].discard(name)
            clients[which].socket.send(b"%s %s\r\n" % (command, name))
        bench.turn(1)
        for worker, bound in enumerate(open_at):
            for request in bench.take(worker):
                if request.kind == OPEN:
                    assert request.topic not in bound
                    assert bench.acceptor.worker_of_name(request.body) == worker
                    bound[request.topic] = request.body
                elif request.kind == CLOSE:
                    del bound[request.topic]
                else:
                    assert request.topic in bound or (request.kind, request.topic) == (USE, 0)
        wanted = {b"default", *used, *watched[0], *watched[1], *watched[2]}
        assert sorted([*open_at[0].values(), *open_at[1].values()]) == sorted(wanted)
        clients[which].received()
    bench.close()


def test_what_comes_for_a_connection_that_is_gone_is_not_given_to_its_successor(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\n")
    request = bench.one()
    client.socket.close()
    bench.turn()
    successors = [bench.quiet_client() for _ in range(5)]
    bench.answer(0, request)
    assert all(successor.received() == b"" for successor in successors)


def test_it_stops_accepting_at_its_limit_and_goes_on_when_there_is_room(bench: Bench) -> None:
    bench.acceptor.set("max-connections", 2)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    address = listener.getsockname()
    bench.acceptor.listen(listener.detach(), BEANSTALK)
    sockets = [socket.create_connection(address) for _ in range(3)]
    bench.turn()
    assert bench.acceptor.totals().connections == 2
    assert bench.full == [0], "it is said"
    sockets[0].close()
    bench.turn()
    totals = bench.acceptor.totals()
    assert (totals.connections, totals.total_connections) == (2, 3)
    sockets[2].sendall(b"use x\r\n")
    bench.turn()
    assert sockets[2].recv(100) == b"USING x\r\n"
    for sock in sockets[1:]:
        sock.close()


# --- what a command becomes -------------------------------------------------------------------------------------------


def test_put_becomes_a_publish_whose_id_tells_its_shard_and_rises(duo: Bench) -> None:
    names = [duo.name_at(0), duo.name_at(1), duo.name_at(0, 1)]
    before = 0
    for name in names:
        client = duo.quiet_client(name)
        worker = duo.acceptor.worker_of_name(name)
        client.send(b"put 7 2 3 5\r\nhello\r\n")
        request = duo.one(worker)
        assert (request.kind, request.pri, request.delay_ns, request.ttr_ns) == (PUBLISH, 7, 2 * SECOND, 3 * SECOND)
        assert request.body == b"hello"
        assert request.id % SHARDS % 2 == worker
        assert request.id > before
        before = request.id
        duo.answer(worker, request)
        assert client.received() == b"INSERTED %d\r\n" % request.id


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (b"reserve", {"kind": RESERVE, "delay_ns": FOREVER}),
        (b"reserve-with-timeout 0", {"kind": RESERVE, "delay_ns": 0}),
        (b"reserve-with-timeout 7 whatever", {"kind": RESERVE, "delay_ns": 7 * SECOND}),
        (b"reserve-with-timeout  2147483647", {"kind": RESERVE, "delay_ns": 2147483647 * SECOND}),
        (b"reserve-with-timeout -1", {"kind": RESERVE, "delay_ns": FOREVER}),
        (b"reserve-with-timeout 4294967297", {"kind": RESERVE, "delay_ns": SECOND}),
        (b"reserve-with-timeout soon", {"kind": RESERVE, "delay_ns": 0}),
        (b"reserve-job 77", {"kind": RESERVE_ID, "id": 77}),
        (b"delete 18446744073709551615", {"kind": DELETE, "id": (1 << 64) - 1}),
        (b"delete   5", {"kind": DELETE, "id": 5}),
        (b"release 9 4294967295 0", {"kind": RELEASE, "id": 9, "pri": (1 << 32) - 1, "delay_ns": 0}),
        (b"release 9 0 4294967295", {"kind": RELEASE, "id": 9, "pri": 0, "delay_ns": 4294967295 * SECOND}),
        (b"release 9 00 1", {"kind": RELEASE, "id": 9, "pri": 0, "delay_ns": SECOND}),
        (b"bury 3 4", {"kind": BURY, "id": 3, "pri": 4}),
        (b"touch 12", {"kind": TOUCH, "id": 12}),
        (b"peek 6", {"kind": PEEK_ID, "id": 6}),
        (b"peek-ready", {"kind": PEEK_READY, "topic": 1}),
        (b"peek-delayed", {"kind": PEEK_DELAYED, "topic": 1}),
        (b"peek-buried", {"kind": PEEK_BURIED, "topic": 1}),
        (b"kick 10", {"kind": KICK, "topic": 1, "id": 10}),
        (b"kick -1 and so on", {"kind": KICK, "topic": 1, "id": (1 << 32) - 1}),
        (b"kick \t+5", {"kind": KICK, "topic": 1, "id": 5}),
        (b"kick-job 8", {"kind": KICK_ID, "id": 8}),
        (b"stats-job 8", {"kind": STATS_ID, "id": 8}),
        (b"stats-tube x(y)", {"kind": STATS_TOPIC, "body": b"x(y)"}),
        (b"pause-tube  x 3", {"kind": PAUSE, "body": b"x", "delay_ns": 3 * SECOND}),
        (b"pause-tubex 0", {"kind": PAUSE, "body": b"x", "delay_ns": 1}),
        (b"list-tubes", {"kind": LIST}),
    ],
)
def test_a_command_becomes_its_request(bench: Bench, line: bytes, wanted: dict[str, object]) -> None:
    client = bench.quiet_client()
    client.send(line + b"\r\n")
    request = bench.one()
    assert {name: getattr(request, name) for name in wanted} == wanted
    assert request.conn == client.number
    assert client.received() == b""


@pytest.mark.parametrize(
    ("line", "status", "reply"),
    [
        (b"put 0 0 1 1\r\nx", NO_SPACE, b"OUT_OF_MEMORY\r\n"),
        (b"put 0 0 1 1\r\nx", FAILED, b"INTERNAL_ERROR\r\n"),
        (b"reserve", OK, b"RESERVED 42 3\r\na\r\n\r\n"),
        (b"reserve", TIMED_OUT, b"TIMED_OUT\r\n"),
        (b"reserve", CANCELLED, b"TIMED_OUT\r\n"),
        (b"reserve", DEADLINE_SOON, b"DEADLINE_SOON\r\n"),
        (b"reserve-job 42", OK, b"RESERVED 42 3\r\na\r\n\r\n"),
        (b"reserve-job 42", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"delete 42", OK, b"DELETED\r\n"),
        (b"delete 42", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"delete 42", FAILED, b"INTERNAL_ERROR\r\n"),
        (b"release 42 1 1", OK, b"RELEASED\r\n"),
        (b"release 42 1 1", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"release 42 1 1", NO_SPACE, b"OUT_OF_MEMORY\r\n"),
        (b"bury 42 1", OK, b"BURIED\r\n"),
        (b"bury 42 1", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"bury 42 1", FAILED, b"INTERNAL_ERROR\r\n"),
        (b"touch 42", OK, b"TOUCHED\r\n"),
        (b"touch 42", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"peek 42", OK, b"FOUND 42 3\r\na\r\n\r\n"),
        (b"peek 42", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"peek-ready", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"kick 1", OK, b"KICKED 42\r\n"),
        (b"kick-job 42", OK, b"KICKED\r\n"),
        (b"kick-job 42", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"kick-job 42", NO_SPACE, b"OUT_OF_MEMORY\r\n"),
        (b"pause-tube x 1", OK, b"PAUSED\r\n"),
        (b"pause-tube x 1", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"stats-tube x", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"stats-job 1", NOT_FOUND, b"NOT_FOUND\r\n"),
        (b"list-tubes", FAILED, b"INTERNAL_ERROR\r\n"),
    ],
)
def test_a_status_becomes_its_reply(bench: Bench, line: bytes, status: int, reply: bytes) -> None:
    client = bench.quiet_client()
    client.send(line + b"\r\n")
    request = bench.one()
    delivers = status == OK and request.kind in (RESERVE, RESERVE_ID, PEEK_ID)
    bench.answer(0, request, status, id=42, body=b"a\r\n" if delivers else b"")
    assert client.received() == reply


LONG_NAME = b"n" * 200


@pytest.mark.parametrize(
    ("sent", "reply"),
    [
        (b"\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b"PUT 0 0 0 0\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b"put\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b" reserve\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b"delete\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b"peek\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b"put 1 2 3\r\n", b"BAD_FORMAT\r\n"),
        (b"put a 2 3 4\r\n", b"BAD_FORMAT\r\n"),
        (b"put -1 2 3 4\r\n", b"BAD_FORMAT\r\n"),
        (b"put 4294967296 2 3 4\r\n", b"BAD_FORMAT\r\n"),
        (b"put 1 4294967296 3 4\r\n", b"BAD_FORMAT\r\n"),
        (b"put 1 2 3 4294967296\r\n", b"BAD_FORMAT\r\n"),
        (b"put 1 2 3 4 \r\n", b"BAD_FORMAT\r\n"),
        (b"put 1 2 3 4x\r\n", b"BAD_FORMAT\r\n"),
        (b"put 1\t2 3 4\r\n", b"BAD_FORMAT\r\n"),
        (b"put 1 2 3 65536\r\n" + b"b" * 65536 + b"\r\n", b"JOB_TOO_BIG\r\n"),
        (b"put 1 2 3 65536 junk\r\n" + b"b" * 65536 + b"XX", b"JOB_TOO_BIG\r\n"),
        (b"put 1 2 3 2\r\nabcd", b"EXPECTED_CRLF\r\n"),
        (b"put 1 2 3 0\r\nab", b"EXPECTED_CRLF\r\n"),
        (b"reserve \r\n", b"BAD_FORMAT\r\n"),
        (b"reserved\r\n", b"BAD_FORMAT\r\n"),
        (b"reserve-with-timeout\r\n", b"BAD_FORMAT\r\n"),
        (b"reserve-with-timeout 9223372036854775808\r\n", b"BAD_FORMAT\r\n"),
        (b"reserve-job \r\n", b"BAD_FORMAT\r\n"),
        (b"reserve-job 1 \r\n", b"BAD_FORMAT\r\n"),
        (b"delete 18446744073709551616\r\n", b"BAD_FORMAT\r\n"),
        (b"delete 1a\r\n", b"BAD_FORMAT\r\n"),
        (b"delete 1\0\r\n", b"BAD_FORMAT\r\n"),
        (b"release 1 2\r\n", b"BAD_FORMAT\r\n"),
        (b"release 1 2 3 \r\n", b"BAD_FORMAT\r\n"),
        (b"bury 1\r\n", b"BAD_FORMAT\r\n"),
        (b"bury 1 2 3\r\n", b"BAD_FORMAT\r\n"),
        (b"touch x\r\n", b"BAD_FORMAT\r\n"),
        (b"use \r\n", b"BAD_FORMAT\r\n"),
        (b"use -a\r\n", b"BAD_FORMAT\r\n"),
        (b"use a b\r\n", b"BAD_FORMAT\r\n"),
        (b"use  a\r\n", b"BAD_FORMAT\r\n"),
        (b"use a*\r\n", b"BAD_FORMAT\r\n"),
        (b"use \xc3\xa4\r\n", b"BAD_FORMAT\r\n"),
        (b"use %sn\r\n" % LONG_NAME, b"BAD_FORMAT\r\n"),
        (b"use %s\r\n" % LONG_NAME, b"USING %s\r\n" % LONG_NAME),
        (b"watch %sn\r\n" % LONG_NAME, b"BAD_FORMAT\r\n"),
        (b"ignore %sn\r\n" % LONG_NAME, b"BAD_FORMAT\r\n"),
        (b"watch \r\n", b"BAD_FORMAT\r\n"),
        (b"ignore -x\r\n", b"BAD_FORMAT\r\n"),
        (b"peek 1x\r\n", b"BAD_FORMAT\r\n"),
        (b"peek-ready \r\n", b"BAD_FORMAT\r\n"),
        (b"peek-buriedx\r\n", b"BAD_FORMAT\r\n"),
        (b"kick \r\n", b"BAD_FORMAT\r\n"),
        (b"kick x\r\n", b"BAD_FORMAT\r\n"),
        (b"kick 18446744073709551616\r\n", b"BAD_FORMAT\r\n"),
        (b"kick-job \r\n", b"BAD_FORMAT\r\n"),
        (b"stats \r\n", b"BAD_FORMAT\r\n"),
        (b"stats-job\r\n", b"BAD_FORMAT\r\n"),
        (b"stats-tube\r\n", b"BAD_FORMAT\r\n"),
        (b"stats-tube -x\r\n", b"BAD_FORMAT\r\n"),
        (b"list-tubes \r\n", b"BAD_FORMAT\r\n"),
        (b"list-tube-used x\r\n", b"BAD_FORMAT\r\n"),
        (b"list-tubes-watched x\r\n", b"BAD_FORMAT\r\n"),
        (b"pause-tube\r\n", b"BAD_FORMAT\r\n"),
        (b"pause-tube x\r\n", b"BAD_FORMAT\r\n"),
        (b"pause-tube x5\r\n", b"BAD_FORMAT\r\n"),
        (b"pause-tube x 4294967296\r\n", b"BAD_FORMAT\r\n"),
        (b"pause-tube -x 1\r\n", b"BAD_FORMAT\r\n"),
        (b"pause-tube x 1 \r\n", b"BAD_FORMAT\r\n"),
        (b"x" * 222 + b"\r\n", b"UNKNOWN_COMMAND\r\n"),
        (b"x" * 224 + b"\r\n", b"BAD_FORMAT\r\n"),
        (b"y" * 100_000 + b"\r\n", b"BAD_FORMAT\r\n"),
        (b"a\rb" + b"z" * 300 + b"\r\n", b"BAD_FORMAT\r\n"),
        (b"use a\nuse b\r\n", b"BAD_FORMAT\r\n"),
    ],
)
def test_what_is_no_command_is_refused_and_the_next_is_served(bench: Bench, sent: bytes, reply: bytes) -> None:
    client = bench.quiet_client()
    client.send(sent)
    bench.turn()
    assert client.received() == reply
    assert all(not request.has_reply for request in bench.take())
    assert client.talk(b"list-tube-used\r\n").startswith(b"USING ")


def test_an_end_of_line_across_the_edge_of_what_is_thrown_away_is_not_seen(bench: Bench) -> None:
    """So it is in beanstalkd: of a line that is too long 224 bytes go at a time, here with the carriage return."""
    client = bench.quiet_client()
    assert client.talk(b"x" * 223 + b"\r\n") == b""
    assert client.talk(b"list-tube-used\r\n") == b"BAD_FORMAT\r\n"
    assert client.talk(b"list-tube-used\r\n") == b"USING default\r\n"


def test_a_put_without_time_to_run_gets_a_second(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"put 0 0 0 0\r\n\r\n")
    assert bench.one().ttr_ns == SECOND


def test_a_broker_that_drains_refuses_a_put_once_its_body_is_there(bench: Bench) -> None:
    client = bench.quiet_client()
    os.pwrite(bench._board, struct.pack("=I", 1), 64)
    assert client.talk(b"put 0 0 1 1\r\n") == b""
    assert client.talk(b"x\r\n") == b"DRAINING\r\n"
    assert client.talk(b"put 0 0 1 1\r\nxyz") == b"EXPECTED_CRLF\r\n"
    assert bench.take() == []


def test_the_limit_of_a_body_can_be_set(bench: Bench) -> None:
    bench.acceptor.set("beanstalk.max-job-size", 3)
    client = bench.quiet_client()
    client.send(b"put 0 0 1 3\r\nabc\r\n")
    assert bench.one().body == b"abc"
    assert client.talk(b"put 0 0 1 4\r\nabcd\r\nuse x\r\n") == b"", "the first is not answered yet"
    with pytest.raises(ValueError, match="out of range"):
        bench.acceptor.set("beanstalk.max-job-size", (1 << 30) + 1)


def test_commands_are_counted_when_beanstalkd_counts_them(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(
        b"use a\r\nuse -\r\nwatch a\r\nignore a\r\nput 1 1 1 1 \r\nput 1 1 1 x\r\nput 1 1 1 70000\r\n" + b"x" * 70002
    )
    client.send(b"stats-tube -\r\nlist-tube-used\r\npause-tube -x 1\r\n")
    counted = bench.counters()
    shown = {name: counted[name] for name in ("use", "watch", "ignore", "put", "pause-tube")}
    assert shown == {"use": 1, "watch": 1, "ignore": 1, "put": 2, "pause-tube": 1}
    assert counted["stats-tube"] == 0
    assert counted["producers"] == 0, "none of the puts got as far as that"
    client.send(b"put 1 1 1 1\r\n")
    assert bench.counters()["producers"] == 1
    client.send(b"x\r\ndelete 1\r\ntouch 1\r\nreserve\r\n")
    counted = bench.counters()
    assert (counted["workers"], counted["waiting"]) == (1, 1)
    assert [counted[name] for name in ("delete", "touch", "reserve")] == [1, 1, 1]
    client.socket.close()
    bench.turn()
    counted = bench.counters()
    assert (counted["producers"], counted["workers"], counted["waiting"]) == (0, 0, 0)
    totals = bench.acceptor.totals()
    assert (totals.connections, totals.total_connections) == (0, 1)


# --- input in pieces --------------------------------------------------------------------------------------------------


def test_a_body_larger_than_the_ring_arrives_whole() -> None:
    bench = Bench(ring_bytes=1 << 16)
    bench.acceptor.set("beanstalk.max-job-size", 1 << 30)
    client = bench.quiet_client()
    body = os.urandom(1 << 20) * 3
    data = b"put 0 0 1 %d\r\n%s\r\n" % (len(body), body)
    sent = 0
    got: list[Request] = []
    for _ in range(10_000):
        if sent < len(data):
            with contextlib.suppress(BlockingIOError):
                sent += client.socket.send(data[sent : sent + 100_000])
        bench.turn()
        got += bench.take()
        if got:
            break
    assert [request.body == body for request in got] == [True]
    bench.answer(0, got[0])
    assert client.received() == b"INSERTED %d\r\n" % got[0].id
    client.send(b"reserve\r\n")
    request = bench.one()
    bench.worker[0].answer(request, OK, id=8, body=body)
    reply = b""
    for _ in range(10_000):
        bench.turn()
        bench.take()
        reply += client.received()
        if len(reply) >= len(body) + 24:
            break
    assert reply == b"RESERVED 8 %d\r\n%s\r\n" % (len(body), body)
    bench.close()


SeenRequest = tuple[object, ...]


def automatic(worker: FakeWorker, seen: list[SeenRequest]) -> bool:
    """Answers everything at once, always the same way."""
    requests = worker.take()
    for request in requests:
        seen.append((request.kind, request.topic, request.pri, request.delay_ns, request.ttr_ns, request.body))
        if request.has_reply:
            status = {PUBLISH: OK, RESERVE: TIMED_OUT, PROBE: NONE, LIST: OK}.get(request.kind, NOT_FOUND)
            worker.answer(request, status)
    return bool(requests)


def replay(pieces: list[bytes], workers: int) -> tuple[bytes, list[list[SeenRequest]]]:
    bench = Bench(workers=workers)
    client = bench.client()
    seen: list[list[SeenRequest]] = [[] for _ in range(workers)]
    replies = b""
    for piece in pieces:
        if client.is_closed:
            break  # some junk was a quit
        client.send(piece)
        quiet = 0
        while quiet < 3:
            bench.turn(1)
            alive = sum(automatic(worker, seen[i]) for i, worker in enumerate(bench.worker)) > 0
            got = client.received()
            replies += got
            quiet = 0 if alive or got else quiet + 1
    bench.close()
    return replies, seen


SCRIPTS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"reserve\r\n", b"reserve-with-timeout 0\r\n", b"delete 1\r\n", b"release 2 3 4\r\n", b"bury 3 1\r\n",
                b"use a\r\n", b"use b\r\n", b"watch a\r\n", b"watch b\r\n", b"ignore a\r\n", b"touch 4\r\n",
                b"reserve-job 6\r\n", b"put 0 0 1 70000\r\n" + b"y" * 70002, b"put 1 2 3 4\r\nabcdef", b"nonsense\r\n",
                b"list-tube-used\r\n", b"list-tubes-watched\r\n", b"peek 1\r\n", b"\r\n",
                b"q\rr\r\n" + b"s" * 230 + b"\r\n",
                b"w" * 500 + b"\r\n", b"delete \0\r\n", b"list-tubes\r\n", b"put 1 2 3 4z\r\n",
            ]
        ),
        st.binary(max_size=40).map(lambda body: b"put 1 0 10 %d\r\n%s\r\n" % (len(body), body)),
        st.binary(max_size=12).map(lambda junk: junk + b"\r\n"),
        st.just(b"quit\r\n"),
    ),
    max_size=25,
).map(b"".join)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=SCRIPTS, workers=st.sampled_from([1, 3]), data=st.data())
def test_how_input_is_cut_makes_no_difference(script: bytes, workers: int, data: st.DataObject) -> None:
    whole = [script[i : i + 60_000] for i in range(0, len(script), 60_000)]
    if len(script) < 3000:
        pieces = [script[i : i + 1] for i in range(len(script))]
    else:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(script)), max_size=20)))
        pieces = [script[i:j] for i, j in zip([0, *cuts], [*cuts, len(script)], strict=True)]
        pieces = [piece[i : i + 60_000] for piece in pieces for i in range(0, len(piece), 60_000)]
    replies, seen = replay(whole, workers)
    assert replay(pieces, workers) == (replies, seen)


# --- order ------------------------------------------------------------------------------------------------------------


def test_replies_leave_in_the_order_of_commands_whatever_worker_is_first(duo: Bench) -> None:
    client = duo.quiet_client()
    client.send(b"delete %d\r\ndelete %d\r\nnonsense \0\r\ntouch %d\r\n" % (duo.id_at(0), duo.id_at(1), duo.id_at(0)))
    delete_here, touch = duo.take(0)
    delete_there = duo.one(1)
    duo.answer(1, delete_there)
    duo.answer(0, touch, NOT_FOUND)
    assert client.received() == b""
    duo.answer(0, delete_here)
    assert client.received() == b"DELETED\r\nDELETED\r\nBAD_FORMAT\r\nNOT_FOUND\r\n"


def test_a_body_whose_turn_has_not_come_is_kept(duo: Bench) -> None:
    client = duo.quiet_client()
    client.send(b"touch %d\r\nreserve-job %d\r\n" % (duo.id_at(0), duo.id_at(1)))
    duo.answer(1, duo.one(1), OK, id=duo.id_at(1), body=b"kept")
    assert client.received() == b""
    duo.answer(0, duo.one(0))
    assert client.received() == b"TOUCHED\r\nRESERVED %d 4\r\nkept\r\n" % duo.id_at(1)


def test_the_id_of_a_put_whose_turn_has_not_come_is_kept(duo: Bench) -> None:
    client = duo.quiet_client(duo.name_at(1))
    client.send(b"touch %d\r\nput 0 0 1 0\r\n\r\n" % duo.id_at(0))
    publish = duo.one(1)
    duo.answer(1, publish)
    duo.answer(0, duo.one(0))
    assert client.received() == b"TOUCHED\r\nINSERTED %d\r\n" % publish.id


def test_nothing_overtakes_a_reserve_at_another_worker(duo: Bench) -> None:
    client = duo.quiet_client(duo.name_at(0))
    client.send(b"reserve\r\ndelete %d\r\ndelete %d\r\ntouch %d\r\n" % (duo.id_at(0), duo.id_at(1), duo.id_at(0)))
    reserve, delete = duo.take(0)
    assert (reserve.kind, delete.kind) == (RESERVE, DELETE)
    assert duo.take(1) == []
    duo.answer(0, reserve, TIMED_OUT)
    assert duo.one(1).kind == DELETE
    assert duo.one(0).kind == TOUCH


@pytest.mark.parametrize("command", [b"use x\r\n", b"watch x\r\n", b"ignore x\r\n"])
def test_what_is_watched_does_not_change_under_a_reserve(bench: Bench, command: bytes) -> None:
    client = bench.quiet_client()
    client.send(b"reserve\r\n" + command)
    reserve = bench.one()
    bench.answer(0, reserve, TIMED_OUT)
    assert client.received().startswith(b"TIMED_OUT\r\n")
    assert len(client.received()) == 0


def test_a_large_put_is_not_parked_behind_a_reserve(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"reserve\r\nput 0 0 1 4096\r\n%s\r\nput 0 0 1 4097\r\n%s\r\n" % (b"s" * 4096, b"l" * 4097))
    reserve, small = bench.take()
    assert len(small.body) == 4096
    bench.answer(0, reserve, TIMED_OUT)
    assert len(bench.one().body) == 4097


def test_a_command_of_pythons_waits_for_all_before_it_and_holds_up_all_behind(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\npeek 2\r\ndelete 3\r\n")
    first = bench.one()
    assert first.kind == DELETE
    bench.answer(0, first)
    peek = bench.one()
    assert peek.kind == PEEK_ID
    bench.answer(0, peek, OK, id=2, body=b"two")
    assert client.received() == b"DELETED\r\nFOUND 2 3\r\ntwo\r\n"
    assert bench.one().kind == DELETE


def test_no_more_than_the_limit_is_outstanding(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\n" * 1000)
    total = 0
    while requests := bench.take():
        assert len(requests) <= MAX_OUTSTANDING
        for request in requests:
            bench.worker[0].answer(request)
        total += len(requests)
        bench.turn()
    assert total == 1000
    assert client.received() == b"DELETED\r\n" * 1000


@pytest.mark.parametrize("command", [b"use %s\r\n", b"watch %s\r\n", b"ignore %s\r\n"])
def test_with_other_acceptors_an_answer_waits_until_the_worker_has_heard(duo: Bench, command: bytes) -> None:
    """Whoever is answered may tell a client of another acceptor, who asks that worker."""
    name = duo.name_at(1)
    client = duo.quiet_client(duo.name_at(0), name)
    duo.acceptor.set("acceptors", 2)
    client.send(command % name + b"touch %d\r\n" % duo.id_at(0))
    told = [request for request in duo.take(1) if request.kind != CLOSE]
    assert [request.has_reply for request in told][-1]
    assert client.received() == b""
    duo.answer(0, duo.take(0)[-1], NOT_FOUND)
    duo.answer(1, told[-1])
    answer, rest = client.received().split(b"\r\n", 1)
    assert answer in (b"USING " + name, b"WATCHING 2", b"WATCHING 1")
    assert rest == b"NOT_FOUND\r\n"


def test_with_other_acceptors_an_answer_does_not_wait_for_a_worker_that_is_gone(duo: Bench) -> None:
    name = duo.name_at(1)
    client = duo.quiet_client(duo.name_at(0))
    duo.acceptor.set("acceptors", 2)
    client.send(b"use %s\r\n" % name)
    duo.acceptor.peer_gone(1)
    duo.turn()
    assert client.talk(b"watch %s\r\n" % name) == b"USING %s\r\nWATCHING 2\r\n" % name


# --- a reserve over several workers -----------------------------------------------------------------------------------


@pytest.fixture
def watcher(trio: Bench) -> Client:
    return trio.quiet_client(trio.name_at(0), trio.name_at(1))


def probes(bench: Bench, *workers: int) -> list[Request]:
    found = [bench.one(worker) for worker in workers]
    assert all(request.kind == PROBE for request in found)
    return found


def test_a_gather_takes_the_most_urgent_and_bounds_it_by_the_second(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve\r\ndelete 1\r\n")
    here, there = probes(trio, 0, 1)
    assert trio.take(2) == []
    trio.answer(0, here, OK, pri=5, id=80)
    trio.answer(1, there, OK, pri=5, id=73)
    take = trio.one(1)
    assert (take.kind, take.pri, take.id) == (TAKE, 5, 80)
    assert trio.take(0) == [], "nothing goes on before the reserve is over"
    trio.answer(1, take, OK, id=73, body=b"b")
    assert watcher.received() == b"RESERVED 73 1\r\nb\r\n"
    assert trio.one(1).kind == DELETE


def test_a_gather_without_a_second_takes_whatever_there_is(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve-with-timeout 0\r\n")
    here, there = probes(trio, 0, 1)
    trio.answer(0, here, NONE)
    trio.answer(1, there, OK, pri=9, id=73)
    take = trio.one(1)
    assert (take.kind, take.pri, take.id) == (TAKE, (1 << 32) - 1, (1 << 64) - 1)


def test_a_gather_begins_anew_when_somebody_was_faster(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve-with-timeout 0\r\n")
    for _ in range(3):
        here, there = probes(trio, 0, 1)
        trio.answer(1, there, OK, pri=1, id=73)
        trio.answer(0, here, OK, pri=2, id=80)
        take = trio.one(1)
        assert (take.pri, take.id) == (2, 80)
        trio.answer(1, take, NONE)
    here, there = probes(trio, 0, 1)
    trio.answer(0, here, NONE)
    trio.answer(1, there, NONE)
    assert watcher.received() == b"TIMED_OUT\r\n"
    assert trio.counters()["waiting"] == 0


def start_waiting(bench: Bench, *workers: int) -> list[Request]:
    for worker, probe in zip(workers, probes(bench, *workers), strict=True):
        bench.worker[worker].answer(probe, NONE, flags=NONE_IN_FLIGHT)
    bench.turn()
    found = [bench.one(worker) for worker in workers]
    assert all(request.kind == RESERVE for request in found)
    return found


def test_of_two_deliveries_the_second_is_returned(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve-with-timeout 9\r\ndelete 1\r\n")
    here, there = start_waiting(trio, 0, 1)
    assert here.delay_ns == there.delay_ns == 9 * SECOND
    assert trio.counters()["waiting"] == 1
    trio.worker[0].answer(here, OK, id=80, body=b"first")
    trio.worker[1].answer(there, OK, id=73, body=b"second")
    trio.turn()
    assert watcher.received() == b"RESERVED 80 5\r\nfirst\r\n"
    # Heard of in one turn, so it was cancelled in vain.
    cancel, returned, delete = trio.take(1)
    assert (cancel.kind, cancel.slot) == (CANCEL, there.slot)
    assert (returned.kind, returned.id, returned.conn) == (RETURN, 73, watcher.number)
    assert delete.kind == DELETE
    assert trio.take(0) == []


def test_the_losers_are_cancelled_and_waited_for(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve\r\ndelete %d\r\n" % trio.id_at(0))
    here, there = start_waiting(trio, 0, 1)
    trio.answer(1, there, OK, id=73, body=b"x")
    assert watcher.received() == b"RESERVED 73 1\r\nx\r\n", "at once"
    assert trio.one(0).kind == CANCEL
    trio.answer(0, here, CANCELLED, flags=NONE_IN_FLIGHT)
    assert trio.one(0).kind == DELETE


@pytest.mark.parametrize(("status", "reply"), [(TIMED_OUT, b"TIMED_OUT\r\n"), (DEADLINE_SOON, b"DEADLINE_SOON\r\n")])
def test_the_end_of_the_wait_at_one_worker_ends_it_at_all(
    trio: Bench, watcher: Client, status: int, reply: bytes
) -> None:
    watcher.send(b"reserve-with-timeout 1\r\n")
    here, there = start_waiting(trio, 0, 1)
    trio.answer(0, here, status)
    assert watcher.received() == b""
    assert trio.one(1).kind == CANCEL
    trio.answer(1, there, CANCELLED)
    assert watcher.received() == reply


def test_a_delivery_wins_over_the_end_of_the_wait(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve-with-timeout 1\r\n")
    here, there = start_waiting(trio, 0, 1)
    trio.answer(0, here, TIMED_OUT)
    trio.answer(1, there, OK, id=73, body=b"late")
    assert watcher.received() == b"RESERVED 73 4\r\nlate\r\n"
    assert [request.kind for request in trio.take(1)] == [CANCEL], "and nothing is returned"


def test_a_worker_that_holds_something_is_asked_about_deadlines(trio: Bench) -> None:
    client = trio.quiet_client(trio.name_at(0))
    held = trio.id_at(2)
    client.send(b"reserve-job %d\r\n" % held)
    trio.answer(2, trio.one(2), OK, id=held, body=b"")
    client.received()
    client.send(b"reserve\r\n")
    here, there = probes(trio, 0, 2)
    trio.answer(0, here, NONE)
    trio.answer(2, there, DEADLINE_SOON)
    assert client.received() == b"DEADLINE_SOON\r\n"
    client.send(b"delete %d\r\n" % held)
    trio.answer(2, trio.one(2), OK, flags=NONE_IN_FLIGHT)
    client.send(b"reserve\r\n")
    assert trio.one(0).kind == RESERVE, "it holds nothing any more, so one worker is enough"
    assert trio.take(2) == []


def test_a_reserve_behind_a_reserve_job_knows_what_that_brought(trio: Bench) -> None:
    """In one packet: which workers hold something is known when the reserve-job is answered."""
    client = trio.quiet_client(trio.name_at(0))
    held = trio.id_at(2)
    client.send(b"reserve-job %d\r\nreserve\r\n" % held)
    assert trio.take(0) == [], "where to reserve is not decided yet"
    trio.answer(2, trio.one(2), OK, id=held, body=b"x")
    here, there = probes(trio, 0, 2)
    trio.answer(0, here, NONE)
    trio.answer(2, there, DEADLINE_SOON)
    assert client.received() == b"RESERVED %d 1\r\nx\r\nDEADLINE_SOON\r\n" % held


def test_a_reserve_behind_a_reserve_job_whose_worker_dies_goes_on(trio: Bench) -> None:
    client = trio.quiet_client(trio.name_at(0))
    client.send(b"reserve-job %d\r\nreserve-with-timeout 0\r\n" % trio.id_at(2))
    trio.one(2)
    trio.acceptor.peer_gone(2)
    trio.turn()
    assert trio.one(0).kind == RESERVE


def test_a_job_that_is_ready_is_better_than_a_deadline(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve\r\n")
    here, there = probes(trio, 0, 1)
    trio.answer(0, here, DEADLINE_SOON)
    trio.answer(1, there, OK, pri=1, id=73)
    assert trio.one(1).kind == TAKE


def test_a_client_that_leaves_in_a_gather_is_gone_everywhere(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve\r\n")
    start_waiting(trio, 0, 1)
    watcher.socket.shutdown(socket.SHUT_RDWR)
    watcher.socket.close()
    trio.turn()
    for worker in (0, 1):
        kinds = [request.kind for request in trio.take(worker)]
        assert CANCEL in kinds or GONE in kinds


@dataclass
class SimulatedWorker:
    """A queue, and clients that wait: just enough of a worker for reserves. Acts on one message at a time."""

    fake: FakeWorker
    ready: list[tuple[int, int]]
    inbox: deque[Request] = field(default_factory=deque)
    waiting: list[Request] = field(default_factory=list)
    given: dict[int, tuple[int, int]] = field(default_factory=dict)
    returned: int = 0

    def collect(self) -> None:
        self.inbox.extend(self.fake.take())

    def step(self) -> bool:
        if not self.inbox:
            return False
        request = self.inbox.popleft()
        if request.kind == PROBE:
            if self.ready:
                pri, id = min(self.ready)
                self.fake.answer(request, OK, pri=pri, id=id)
            else:
                self.fake.answer(request, NONE, flags=NONE_IN_FLIGHT)
        elif request.kind == TAKE:
            if self.ready and min(self.ready) <= (request.pri, request.id):
                self.give(request)
            else:
                self.fake.answer(request, NONE)
        elif request.kind == RESERVE:
            if self.ready:
                self.give(request)
            elif request.delay_ns == 0:
                self.fake.answer(request, TIMED_OUT)
            else:
                self.waiting.append(request)
        elif request.kind == CANCEL:
            for waiter in [w for w in self.waiting if (w.conn, w.slot) == (request.conn, request.slot)]:
                self.waiting.remove(waiter)
                self.fake.answer(waiter, CANCELLED)
        elif request.kind == RETURN:
            self.returned += 1
            self.add(self.given.pop(request.id))
        return True

    def give(self, request: Request) -> None:
        job = min(self.ready)
        self.ready.remove(job)
        self.given[job[1]] = job
        self.fake.answer(request, OK, pri=job[0], id=job[1], body=b"%d" % job[1])

    def add(self, job: tuple[int, int]) -> None:
        self.ready.append(job)
        if self.waiting:
            self.give(self.waiting.pop(0))

    def time_out(self) -> None:
        if self.waiting:
            self.fake.answer(self.waiting.pop(0), TIMED_OUT)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_job_goes_to_one_client_and_every_reserve_has_one_reply(data: st.DataObject) -> None:
    bench = Bench(workers=3)
    names = [bench.name_at(worker) for worker in range(3)]
    clients = [bench.quiet_client(*data.draw(st.sampled_from([names, names[:2], names[1:]]))) for _ in range(3)]
    workers = [SimulatedWorker(fake, []) for fake in bench.worker]
    asked = [0] * len(clients)
    heard: list[list[bytes]] = [[] for _ in clients]
    added = 0

    def settle(turns: int) -> None:
        for _ in range(turns):
            bench.turn(1)
            for worker in workers:
                worker.collect()
        for i, client in enumerate(clients):
            heard[i] += [line for line in client.received().split(b"\r\n") if line and not line.isdigit()]

    for _ in range(data.draw(st.integers(1, 60))):
        action = data.draw(st.integers(0, 9))
        which = data.draw(st.integers(0, 2))
        if action == 0 and asked[which] < 8:
            asked[which] += 1
            clients[which].socket.send(b"reserve-with-timeout %d\r\n" % data.draw(st.integers(0, 1)))
        elif action == 1:
            added += 1
            workers[which].add((data.draw(st.integers(0, 2)), added * SHARDS + which))
        elif action == 2:
            workers[which].time_out()
        elif action < 6:
            settle(1)
        else:
            workers[which].step()
    for _ in range(1000):
        settle(1)
        if sum(worker.step() for worker in workers) == 0:
            for worker in workers:
                worker.time_out()
            if not any(worker.waiting or worker.inbox for worker in workers) and [len(h) for h in heard] == asked:
                break
    assert [len(lines) for lines in heard] == asked
    delivered = [int(line.split()[1]) for lines in heard for line in lines if line.startswith(b"RESERVED")]
    assert sorted(delivered) == sorted(id for worker in workers for id in worker.given)
    assert len(delivered) == len(set(delivered))
    assert len(delivered) + sum(len(worker.ready) for worker in workers) == added
    bench.close()


# --- the client hangs up ----------------------------------------------------------------------------------------------


def test_a_reserve_of_a_client_that_will_say_no_more_ends_and_what_it_said_is_done(bench: Bench) -> None:
    bench.acceptor.set("idle-topics", 0)
    client = bench.quiet_client()
    client.send(b"reserve\r\nreserve\r\ndelete 5\r\nwatch x\r\nreserve-with-timeout 3\r\n")
    first, second, delete = bench.take()
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert [(r.kind, r.slot) for r in bench.take()] == [(CANCEL, first.slot)]
    bench.answer(0, first, CANCELLED)
    assert [(r.kind, r.slot) for r in bench.take()] == [(CANCEL, second.slot)]
    bench.answer(0, second, CANCELLED)
    bench.answer(0, delete)
    opened, watch, third, cancel = bench.take()
    assert (opened.kind, watch.kind, third.kind, cancel.kind) == (OPEN, WATCH, RESERVE, CANCEL)
    assert cancel.slot == third.slot
    assert not client.is_closed
    bench.answer(0, third, CANCELLED)
    assert [r.kind for r in bench.take()] == [GONE, CLOSE]
    assert client.received() == b"TIMED_OUT\r\nTIMED_OUT\r\nDELETED\r\nWATCHING 2\r\nTIMED_OUT\r\n"
    assert client.is_closed


def test_a_gather_of_a_client_that_will_say_no_more_ends(trio: Bench, watcher: Client) -> None:
    watcher.send(b"reserve\r\n")
    here, there = start_waiting(trio, 0, 1)
    watcher.socket.shutdown(socket.SHUT_WR)
    trio.turn()
    assert trio.one(0).kind == trio.one(1).kind == CANCEL
    trio.answer(0, here, CANCELLED)
    trio.answer(1, there, CANCELLED)
    assert watcher.received() == b"TIMED_OUT\r\n"
    assert watcher.is_closed


def test_a_client_that_will_say_no_more_does_not_wait_for_a_worker_that_is_back(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"reserve\r\n")
    bench.take()
    bench.acceptor.peer_gone(0)
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    bench.worker[0].attach()
    reserve, cancel = bench.take()[-2:]
    assert (reserve.kind, cancel.kind, cancel.slot) == (RESERVE, CANCEL, reserve.slot)
    bench.answer(0, reserve, CANCELLED)
    assert client.received() == b"TIMED_OUT\r\n"


def test_what_is_half_said_at_the_end_is_dropped(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\nput 0 0 1 10\r\nhalf")
    delete = bench.one()
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert not client.is_closed
    bench.answer(0, delete)
    assert client.received() == b"DELETED\r\n"
    assert client.is_closed
    assert [request.kind for request in bench.take()] == [GONE]


def test_quit_ends_a_connection_after_what_came_before_it(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\nquit and so on\r\ndelete 2\r\n")
    bench.answer(0, bench.one())
    assert client.received() == b"DELETED\r\n"
    assert client.is_closed
    assert [request.kind for request in bench.take()] == [GONE]


def test_a_client_that_has_gone_does_not_keep_the_loop_busy(bench: Bench) -> None:
    """It is hung up while its input is not wanted, which epoll reports whatever is asked for."""
    client = bench.quiet_client()
    client.send(b"peek 1\r\n" + b"delete 1\r\n" * 10)
    peek = bench.one()
    client.socket.close()
    bench.turn()
    before = time.process_time()
    bench.acceptor.run(SECOND // 10)
    assert time.process_time() - before < 0.05, "it slept"
    bench.answer(0, peek, NOT_FOUND)
    bench.turn()
    assert GONE in [request.kind for request in bench.take()]


# --- a worker dies ----------------------------------------------------------------------------------------------------


def test_a_worker_that_is_back_is_told_everything_first_and_asked_again_what_waits(duo: Bench) -> None:
    name, other = duo.name_at(0), duo.name_at(1)
    client = duo.quiet_client(name)
    client.talk(b"watch %s\r\nignore %s\r\n" % (other, other))
    bystander = duo.quiet_client(other)
    duo.take(0)
    client.send(b"reserve-with-timeout 8\r\ndelete %d\r\n" % duo.id_at(0))
    duo.take(0)
    duo.acceptor.peer_gone(0)
    duo.turn()
    assert client.received() == b"", "the delete's error waits for the reserve's reply"
    duo.worker[0].attach()
    duo.turn()
    told = duo.take(0)
    opens = [request for request in told if request.kind == OPEN]
    assert told[: len(opens)] == opens
    assert name in [request.body for request in opens]
    assert other not in [request.body for request in opens]
    rest = told[len(opens) :]
    assert [request.kind for request in rest] == [USE, WATCH, RESERVE]
    assert {request.conn for request in rest} == {client.number}
    assert rest[2].delay_ns == 8 * SECOND
    duo.answer(0, rest[2], TIMED_OUT)
    assert client.received() == b"TIMED_OUT\r\nINTERNAL_ERROR\r\n"
    assert bystander.received() == b""


def test_what_a_dead_worker_replied_counts(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\ndelete 2\r\n")
    first, _ = bench.take()
    bench.worker[0].answer(first)
    bench.acceptor.peer_gone(0)
    bench.turn()
    assert client.received() == b"DELETED\r\nINTERNAL_ERROR\r\n"


def test_requests_for_a_worker_that_is_gone_wait_and_others_do_not(duo: Bench) -> None:
    here, there = duo.quiet_client(duo.name_at(0)), duo.quiet_client(duo.name_at(1))
    duo.acceptor.peer_gone(0)
    here.send(b"put 0 0 1 1\r\nx\r\nuse %s\r\n" % duo.name_at(1))
    there.send(b"put 0 0 1 1\r\ny\r\n")
    duo.answer(1, duo.one(1))
    assert there.received().startswith(b"INSERTED")
    assert here.received() == b""
    newcomer = duo.client()
    assert newcomer.talk(b"use %s\r\n" % duo.name_at(0, 5)).startswith(b"USING")
    duo.worker[0].attach()
    duo.turn()
    published = [request for request in duo.take(0) if request.kind == PUBLISH]
    assert [request.body for request in published] == [b"x"]
    duo.answer(0, published[0])
    assert here.received() == b"INSERTED %d\r\nUSING %s\r\n" % (published[0].id, duo.name_at(1))


def test_requests_of_python_fail_with_the_worker_or_wait_for_it(duo: Bench) -> None:
    client = duo.quiet_client()
    client.send(b"list-tubes\r\n")
    duo.answer(1, duo.one(1), OK, body=b"b\n")
    duo.take(0)
    duo.acceptor.peer_gone(0)
    duo.turn()
    assert client.received() == b"INTERNAL_ERROR\r\n"
    client.send(b"list-tubes\r\n")
    duo.answer(1, duo.one(1), OK, body=b"b\n")
    assert client.received() == b""
    duo.worker[0].attach()
    duo.turn()
    request = next(request for request in duo.take(0) if request.kind == LIST)
    duo.answer(0, request, OK, body=b"z\ndefault\na\n")
    assert client.received() == b"OK 26\r\n---\n- default\n- b\n- z\n- a\n\r\n"


@pytest.mark.parametrize("phase", ["probing", "taking", "waiting", "cancelling"])
def test_a_gather_survives_a_worker(trio: Bench, watcher: Client, phase: str) -> None:
    watcher.send(b"reserve\r\n")
    if phase in ("probing", "taking"):
        here, there = probes(trio, 0, 1)
        trio.answer(1, there, NONE)
        if phase == "taking":
            trio.answer(0, here, OK, pri=1, id=80)
            assert trio.one(0).kind == TAKE
    else:
        here, there = start_waiting(trio, 0, 1)
        if phase == "cancelling":
            trio.answer(1, there, OK, id=73, body=b"x")
    trio.acceptor.peer_gone(0)
    trio.turn()
    if phase == "cancelling":
        assert watcher.received() == b"RESERVED 73 1\r\nx\r\n"
        assert watcher.talk(b"use default\r\n") == b"USING default\r\n", "nothing is waited for any more"
        return
    if phase == "taking":
        trio.answer(1, trio.one(1), NONE)
    trio.worker[0].attach()
    trio.turn()
    again = trio.take(0)[-1]
    assert again.kind == (RESERVE if phase == "waiting" else PROBE)
    if phase != "waiting":
        trio.answer(0, again, OK, pri=1, id=80)
        again = trio.one(0)
        assert again.kind == TAKE
    trio.answer(0, again, OK, id=80, body=b"y")
    assert watcher.received() == b"RESERVED 80 1\r\ny\r\n"


def test_a_ring_that_makes_no_sense_is_reported_and_its_worker_is_gone() -> None:
    bench = Bench(attach=False)
    requests, replies = create(1 << 16, 1), create(1 << 16, 1)
    bench.acceptor.peer(0, requests, replies, -1)
    with Producer(replies) as producer:
        producer.produce(b"no message is as short as this", flags=3)
        producer.publish()
    assert bench.acceptor.turn() == 1
    (upcall,) = bench.acceptor.upcalls()
    assert (upcall.kind, upcall.conn) == (engine.BROKEN, 0)
    assert bench.acceptor.turn() == 0
    bench.worker[0].attach()
    client = bench.quiet_client()
    client.send(b"delete 1\r\n")
    bench.answer(0, bench.one())
    assert client.received() == b"DELETED\r\n"
    os.close(requests)
    os.close(replies)
    bench.close()


# --- too much ---------------------------------------------------------------------------------------------------------


def test_a_worker_that_does_not_keep_up_stops_its_clients_and_loses_nothing() -> None:
    bench = Bench(workers=2, ring_bytes=1 << 16)
    slow, fast = bench.quiet_client(bench.name_at(0)), bench.quiet_client(bench.name_at(1))
    put = b"put 0 0 1 1000\r\n%s\r\n"
    bodies = [b"%04d" % i * 250 for i in range(4000)]
    data = b"".join(put % body for body in bodies)
    sent = slow.flood(data)
    assert sent < len(data) / 2, "it was told to wait"
    fast.send(put % bodies[0])
    bench.answer(1, bench.one(1))
    assert fast.received().startswith(b"INSERTED"), "others are served"
    got: list[bytes] = []
    for _ in range(20_000):
        if sent < len(data):
            with contextlib.suppress(BlockingIOError):
                sent += slow.socket.send(data[sent : sent + 65536])
        requests = bench.worker[0].take(20)
        for request in requests:
            bench.worker[0].answer(request)
        got += [request.body for request in requests]
        bench.turn(1)
        slow.received()
        if len(got) == len(bodies):
            break
    assert got == bodies
    bench.close()


def test_a_client_that_does_not_read_is_not_read_from(bench: Bench) -> None:
    bench.acceptor.set("max-outstanding-output", 10_000)
    client = bench.quiet_client()
    asked = 0
    for _ in range(200):
        with contextlib.suppress(BlockingIOError):
            asked += client.socket.send(b"reserve-with-timeout 0\r\n" * 10)
        bench.turn(1)
        for request in bench.take():
            bench.worker[0].answer(request, OK, id=8, body=b"o" * 5000)
    # A few thousand bytes are on the way in either direction; the rest has not been asked for.
    bench.turn()
    assert bench.take() == []
    replies = 0
    for _ in range(2000):
        replies += client.received().count(b"RESERVED")
        bench.turn(1)
        for request in bench.take():
            bench.worker[0].answer(request, OK, id=8, body=b"o" * 5000)
        if replies * 24 >= asked:
            break
    assert replies == asked // 24


MIB: Final = 1 << 20
BODIES_AHEAD_BYTES: Final = 16 * MIB  # csrc/acceptor/bounds.h


def reserve_jobs(bench: Bench, client: Client, count: int) -> list[Request]:
    client.send(b"".join(b"reserve-job %d\r\nrelease %d 0 0\r\n" % (n, n) for n in range(1, count + 1)))
    return [request for request in bench.take() if request.kind == RESERVE_ID]


def test_as_many_bodies_are_asked_for_as_would_do_if_each_were_as_large_as_it_may_be(bench: Bench) -> None:
    bench.acceptor.set("beanstalk.max-job-size", 4 * MIB)
    assert len(reserve_jobs(bench, bench.quiet_client(), 100)) == 4
    bench.acceptor.set("beanstalk.max-job-size", 20 * MIB)
    client = bench.quiet_client()
    (only,) = reserve_jobs(bench, client, 100)
    bench.worker[0].answer(only, OK, id=only.id, body=b"x" * 20 * MIB)
    asked: list[Request] = []
    for _ in range(40):
        bench.turn()
        asked += bench.take()
    assert asked == [], "what has come has not left"
    received = 0
    for _ in range(1000):
        received += len(client.received())
        bench.turn()
        asked += bench.take()
    assert received > 20 * MIB, "what is larger than the limit passes"
    assert [request.kind for request in asked] == [RESERVE_ID, RELEASE], "and then it goes on, one by one"


def test_a_body_larger_than_a_job_may_be_makes_those_after_it_wait_for_one_another(bench: Bench) -> None:
    """Put by another protocol, or before the limit was lowered."""
    client = bench.quiet_client()
    client.send(b"reserve\r\n")
    bench.answer(0, bench.one(), OK, id=8, body=b"x" * 8 * MIB)
    received = 0
    while received < 8 * MIB:
        bench.turn()
        assert bench.take() == []
        received += len(client.received())
    client.send(b"reserve\r\n" * 100)
    assert len(bench.take()) == 2


def test_replies_whose_turn_has_not_come_count_as_unsent(duo: Bench) -> None:
    """One worker does not answer, and the other brings body after body behind it."""
    client = duo.quiet_client()
    client.send(b"touch %d\r\n" % duo.id_at(0))
    body = b"x" * 60_000
    brought = 0
    for n in range(1, 200):
        client.send(b"reserve-job %d\r\n" % duo.id_at(1, n))
        for request in duo.take(1):
            duo.answer(1, request, OK, id=request.id, body=body)
            brought += 1
    assert brought == MIB // len(body) + 1
    duo.answer(0, duo.one(0))
    replies = 0
    for _ in range(1000):
        replies += client.received().count(b"RESERVED")
        for request in duo.take(1):
            duo.answer(1, request, OK, id=request.id, body=body)
        duo.turn()
    assert replies == 199


def test_at_the_end_no_more_input_is_taken_and_what_is_under_way_is_waited_for(bench: Bench) -> None:
    client, waiter = bench.quiet_client(), bench.quiet_client()
    waiter.send(b"reserve\r\n")
    client.send(b"delete 1\r\n")
    _, delete = bench.take()
    bench.acceptor.quiesce()
    assert bench.acceptor.busy() == 1, "a reserve that waits may wait for ever"
    client.send(b"delete 2\r\n")
    assert bench.take() == []
    bench.answer(0, delete)
    assert client.received() == b"DELETED\r\n"
    assert bench.acceptor.busy() == 0


# --- run --------------------------------------------------------------------------------------------------------------


def test_run_comes_back_for_an_upcall_for_control_and_when_the_wait_is_over(bench: Bench) -> None:
    assert bench.acceptor.run(1_000_000) == 0
    client = bench.client()
    client.socket.send(b"stats\r\n")
    assert bench.acceptor.run(5 * SECOND) == 1
    (upcall,) = bench.acceptor.upcalls()
    assert (upcall.kind, upcall.conn, upcall.line) == (engine.COMMAND, client.number, b"stats")
    client.socket.close()
    bench.acceptor.reply(client.number, b"nobody is there")
    assert bench.acceptor.run(5 * SECOND) == 1
    (upcall,) = bench.acceptor.upcalls()
    assert (upcall.kind, upcall.conn) == (engine.CLOSED, client.number)
    ours, theirs = socket.socketpair()
    bench.acceptor.control(theirs.fileno())
    ours.send(b"x")
    assert bench.acceptor.run(5 * SECOND) == 1
    assert [upcall.kind for upcall in bench.acceptor.upcalls()] == [engine.CONTROL]
    theirs.recv(1)
    assert bench.acceptor.run(1_000_000) == 0
    ours.close()
    theirs.close()


def test_before_run_sleeps_the_workers_have_heard_of_connections_that_are_gone(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"reserve\r\n")
    reserve = bench.one()
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert bench.one().kind == CANCEL
    assert bench.acceptor.run(1_000_000) == 0
    bench.worker[0].answer(reserve, CANCELLED)
    heard: list[Request] = []
    thread = threading.Timer(0.1, lambda: heard.extend(bench.take()))
    thread.start()
    bench.acceptor.run(SECOND // 5)
    thread.join()
    assert [request.kind for request in heard] == [GONE]


def test_run_wakes_for_a_reply(bench: Bench) -> None:
    client = bench.quiet_client()
    client.send(b"delete 1\r\n")
    request = bench.one()
    thread = threading.Timer(0.05, lambda: bench.worker[0].answer(request))
    thread.start()
    bench.acceptor.run(SECOND // 5)
    thread.join()
    assert client.received() == b"DELETED\r\n"


def test_stats_adds_up_the_board(bench: Bench) -> None:
    client = bench.quiet_client()
    assert client.talk(b"put 0 0 1 1 \r\nuse a\r\nstats\r\n") == b"BAD_FORMAT\r\nUSING a\r\n"
    # It waits until the worker has done all that this connection told it.
    bench.answer(0, bench.take(0)[-1], NOT_FOUND)
    reply = client.received().decode().split("\n")
    fields = dict(line.split(": ", 1) for line in reply if ": " in line)
    assert fields["cmd-put"] == fields["cmd-use"] == fields["cmd-stats"] == "1"
    assert fields["current-connections"] == fields["total-connections"] == "1"
    assert fields["uptime"] == "5"
    assert fields["id"] == "0123456789abcdef"
    assert fields["max-job-size"] == "65535"
    assert fields["draining"] == "false"
    assert fields["pid"] == str(os.getppid())


def test_watches_of_all_connections_together_have_a_limit(bench: Bench) -> None:
    bench.acceptor.set("beanstalk.max-watches", 4)
    first, second = bench.client(), bench.client()  # each watches the default topic
    assert first.talk(b"watch a\r\nwatch b\r\nwatch c\r\n") == b"WATCHING 2\r\nWATCHING 3\r\nOUT_OF_MEMORY\r\n"
    assert second.talk(b"watch a\r\n") == b"OUT_OF_MEMORY\r\n"
    assert first.talk(b"watch a\r\nignore b\r\n") == b"WATCHING 3\r\nWATCHING 2\r\n"
    assert second.talk(b"watch d\r\nwatch e\r\n") == b"WATCHING 2\r\nOUT_OF_MEMORY\r\n"
    first.socket.close()
    bench.turn()
    assert second.talk(b"watch e\r\nwatch f\r\nwatch g\r\n") == b"WATCHING 3\r\nWATCHING 4\r\nOUT_OF_MEMORY\r\n"
