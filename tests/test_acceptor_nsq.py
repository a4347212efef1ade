"""NSQ in the acceptor, with workers made by the test: frames in, requests out, what is pushed and read.

There is no Python half: a test sees the upcalls and answers them itself. Time is what the test says.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Engine, Upcall, protocol_number
from mq_shards.csrc._core import ffi, lib

from tests.test_acceptor import (
    FAILED,
    GONE,
    NO_SPACE,
    NONE,
    NOT_FOUND,
    OK,
    OPEN,
    PUBLISH,
    SECOND,
    SHARDS,
    FakeWorker,
    Request,
)

NSQ: Final = protocol_number("nsq")
# csrc/ringbuf/message.h
CREDIT, FINISH, REQUEUE, EXTEND, SENT = range(9, 14)
PUBLISH_MANY, SUBSCRIBE, CHANGE, CATALOG = range(51, 55)
DELIVER, REFUSED, DISMISSED = range(96, 99)
FULL: Final = 8
DURABLE: Final = 2
WINDOW: Final = 1 << 20
REPORT: Final = WINDOW // 32
MESSAGE_BYTES: Final = 48

RESPONSE, ERROR, MESSAGE = 0, 1, 2
MS: Final = 1_000_000
START_NS: Final = 1000 * SECOND
HEARTBEAT_NS: Final = 30 * SECOND
ID: Final = b"00000000000000ab"
QUOTED: Final = rb'E_BAD_TOPIC PUB topic name "a\"\\\t\xff\x00' + b'\xc3\xa9\\u00a0" is not valid'


def sized(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def many(*bodies: bytes) -> bytes:
    """An MPUB's body, with its size."""
    return sized(struct.pack(">I", len(bodies)) + b"".join(sized(body) for body in bodies))


def pub(topic: bytes, body: bytes) -> bytes:
    return b"PUB %s\n%s" % (topic, sized(body))


class Client:
    def __init__(self, bench: Bench, tcp: bool = False, protocol: int = NSQ) -> None:
        self._bench = bench
        self._data = b""
        self.closed = False
        if tcp:
            with socket.create_server(("127.0.0.1", 0)) as listening:
                self.socket = socket.create_connection(listening.getsockname())
                theirs, _ = listening.accept()
        else:
            self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        self.number = bench.acceptor.adopt(theirs.detach(), protocol)

    def send(self, data: bytes) -> None:
        while data:
            with contextlib.suppress(BlockingIOError):
                data = data[self.socket.send(data) :]
            self._bench.turn()

    def raw(self) -> bytes:
        """What came and was not taken yet."""
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    piece = self.socket.recv(1 << 16)
                except ConnectionResetError:
                    piece = b""
                if not piece:
                    self.closed = True
                    break
                self._data += piece
        data, self._data = self._data, b""
        return data

    def frames(self) -> list[tuple[int, bytes]]:
        """The complete frames that came; the rest is kept."""
        data, frames = self.raw(), []
        while len(data) >= 4 and len(data) >= 4 + (size := struct.unpack_from(">I", data)[0]):
            frames.append((struct.unpack_from(">I", data, 4)[0], data[8 : 4 + size]))
            data = data[4 + size :]
        self._data = data
        return frames

    def talk(self, data: bytes) -> list[tuple[int, bytes]]:
        self.send(data)
        return self.frames()

    @property
    def is_closed(self) -> bool:
        self._data = self.raw()
        return self.closed


@dataclass
class Bench:
    workers: int = 1
    ring_bytes: int = 1 << 20
    attach: bool = True
    clients: list[Client] = field(default_factory=list)
    upcalls: list[Upcall] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._board = os.memfd_create("board")
        assert lib.board_format(self._board)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self.now_ns = START_NS
        self.acceptor = Engine(0, self.workers, SHARDS, self._board, self._wake)
        self.worker = [FakeWorker(self.acceptor, i, self.ring_bytes, self._wake) for i in range(self.workers)]
        if self.attach:
            for worker in self.worker:
                worker.attach()
                worker.take()
        self.turn()

    def turn(self, turns: int = 3) -> None:
        for _ in range(turns):
            self.acceptor.turn(self.now_ns)
            self.upcalls += self.acceptor.upcalls()

    def advance(self, ns: int) -> None:
        self.now_ns += ns
        self.turn()

    def drain(self) -> None:
        """As the operator's switch does."""
        board = os.dup(self._board)
        os.pwrite(board, b"\1", 64)
        os.close(board)

    def take_upcalls(self) -> list[Upcall]:
        taken, self.upcalls = self.upcalls, []
        return taken

    def commands(self) -> list[tuple[int, bytes]]:
        taken = self.take_upcalls()
        assert all(upcall.kind == engine.COMMAND for upcall in taken), taken
        return [(upcall.conn, upcall.line) for upcall in taken]

    def client(self, greet: bool = True, **options: bool) -> Client:
        self.clients.append(Client(self, **options))
        if greet:
            self.clients[-1].send(b"  V2")
        return self.clients[-1]

    def name_at(self, worker: int) -> bytes:
        return next(name for name in (b"t%d" % i for i in range(1000)) if self.acceptor.worker_of_name(name) == worker)

    def consumer(self, topic: bytes = b"t", rdy: int = 10, **options: bool) -> Client:
        client = self.client(**options)
        client.send(b"SUB %s c\n" % topic)
        assert self.commands() == [(client.number, b"SUB %s c" % topic)]
        number = self.acceptor.bind(topic)
        worker = self.acceptor.worker_of_topic(number)
        assert self.acceptor.request(worker, client.number, SUBSCRIBE, topic=number, body=b"subscription") >= 0
        self.turn()
        requests = [request for request in self.take(worker) if request.kind != OPEN]
        assert [(r.kind, r.topic, r.body) for r in requests] == [(SUBSCRIBE, number, b"subscription")]
        self.answer(worker, requests[0])
        (answered,) = self.take_upcalls()
        assert answered.answer is not None and answered.answer.status == OK
        self.acceptor.reply(client.number, b"\0\0\0\6\0\0\0\0OK")
        self.acceptor.resume(client.number)
        self.turn()
        assert client.frames() == [(RESPONSE, b"OK")]
        if rdy:
            assert client.talk(b"RDY %d\n" % rdy) == []
            (credit,) = self.take(worker)
            assert (credit.kind, credit.conn, credit.id) == (CREDIT, client.number, rdy)
        return client

    def take(self, worker: int = 0) -> list[Request]:
        return self.worker[worker].take()

    def one(self, worker: int = 0) -> Request:
        requests = [request for request in self.take(worker) if request.kind != OPEN]
        assert len(requests) == 1, requests
        return requests[0]

    def answer(self, worker: int, request: Request, status: int = OK, **rest: Any) -> None:  # noqa: ANN401
        self.worker[worker].answer(request, status, **rest)
        self.turn()

    def push(self, conn: int, kind: int, *, worker: int = 0, body: bytes = b"", turn: bool = True, **rest: int) -> None:
        message = ffi.new("struct message *", {"kind": kind, "conn": conn, "body_bytes": len(body), **rest})
        self.worker[worker].send_raw(bytes(ffi.buffer(message)) + body)
        if turn:
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


def fails(bench: Bench, client: Client, data: bytes, text: bytes) -> None:
    """The last thing that is heard on a connection."""
    assert client.talk(data) == [(ERROR, text)]
    assert client.is_closed
    assert [upcall for upcall in bench.take_upcalls() if upcall.kind == engine.COMMAND] == []


# --- the beginning ----------------------------------------------------------------------------------------------------


def test_nothing_is_said_to_the_magic_and_its_bytes_may_come_one_by_one(bench: Bench) -> None:
    client = bench.client(greet=False)
    for byte in b"  V2":
        client.send(bytes([byte]))
    assert client.talk(b"NOP\n") == [] and not client.is_closed


@pytest.mark.parametrize("magic", [b"  V1", b"PUB ", b"\0\0\0\0", b"  V3NOP\n"])
def test_another_protocol_is_refused(bench: Bench, magic: bytes) -> None:
    fails(bench, bench.client(greet=False), magic, b"E_BAD_PROTOCOL")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (b"\n", b"E_INVALID invalid command "),
        (b"\r\n", b"E_INVALID invalid command "),
        (b"nop\n", b"E_INVALID invalid command nop"),
        (b"NOPE\n", b"E_INVALID invalid command NOPE"),
        (b" NOP\n", b"E_INVALID invalid command "),
        (b"FOO\xff\0 bar\n", b"E_INVALID invalid command FOO\xff\0"),
        (b"X" * 16383 + b"\n", b"E_INVALID invalid command " + b"X" * 16383),
    ],
)
def test_an_unknown_command_ends_the_connection(bench: Bench, command: bytes, text: bytes) -> None:
    fails(bench, bench.client(), command, text)


def test_a_line_longer_than_nsqds_buffer_ends_the_connection_without_a_word(bench: Bench) -> None:
    client = bench.client()
    client.send(b"N" * 16383)
    assert not client.is_closed
    client.send(b"N")
    assert client.is_closed and client.raw() == b""


def test_a_carriage_return_before_the_end_and_parameters_too_many_do_not_matter(bench: Bench) -> None:
    client = bench.client()
    assert client.talk(b"NOP\r\nNOP a b  c\n") == []
    client.send(b"PUB t more\r\n" + sized(b"x"))
    assert bench.one().body == b"x"


# --- publishing -------------------------------------------------------------------------------------------------------


def test_a_pub_is_a_lasting_publish_and_ok_when_the_worker_says_so(bench: Bench) -> None:
    bench.acceptor.set("nsq.msg-timeout-ns", 7 * SECOND)
    client = bench.client()
    assert client.talk(pub(b"t", b"hello")) == []
    opened, request = bench.take()
    assert (opened.kind, opened.body, opened.topic) == (OPEN, b"t", request.topic)
    assert (request.kind, request.body, request.pri, request.delay_ns) == (PUBLISH, b"hello", 1024, 0)
    assert (request.conn, request.ttr_ns, request.flags) == (client.number, 7 * SECOND, DURABLE)
    assert request.id % SHARDS == opened.id
    bench.answer(0, request)
    assert client.frames() == [(RESPONSE, b"OK")]
    client.send(pub(b"t", b"more"))
    again = bench.one()
    assert again.topic == request.topic and again.id == request.id + SHARDS


def test_a_topic_stays_bound_when_its_publisher_is_gone(bench: Bench) -> None:
    client = bench.client()
    client.send(pub(b"t", b"x"))
    topic = bench.one().topic
    client.socket.close()
    bench.turn()
    assert [request.kind for request in bench.take()] == [GONE]
    assert bench.acceptor.bind(b"t") == topic
    assert bench.take() == []


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_however_the_bytes_come_the_messages_are_the_same(data: st.DataObject) -> None:
    bench = Bench(workers=2)
    client = bench.client()
    names = [bench.name_at(0), bench.name_at(1), b"with-dots.and_" + b"x" * 40, b"e#ephemeral"]
    script, expected = b"", []
    for _ in range(data.draw(st.integers(1, 12))):
        topic = data.draw(st.sampled_from(names))
        bodies = data.draw(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5))
        match data.draw(st.integers(0, 2)):
            case 0:
                script += pub(topic, bodies[0])
                expected.append((PUBLISH, bodies[0], 0))
            case 1:
                script += b"DPUB %s 1500\r\n%s" % (topic, sized(bodies[0]))
                expected.append((PUBLISH, bodies[0], 1500 * MS))
            case _:
                script += b"MPUB %s\n%s" % (topic, many(*bodies))
                expected.append((PUBLISH_MANY, b"".join(map(sized, bodies)), 0))
    got: dict[int, tuple[int, bytes, int]] = {}
    while script:
        n = data.draw(st.integers(1, len(script)))
        client.send(script[:n])
        script = script[n:]
        # The slots tell the order, whichever worker it went to.
        for worker in (0, 1):
            for r in bench.take(worker):
                if r.kind != OPEN:
                    got[r.slot] = (r.kind, r.body, r.delay_ns)
    assert [got[slot] for slot in sorted(got)] == expected
    bench.close()


def test_replies_leave_in_the_order_of_commands_whatever_workers_say_first(duo: Bench) -> None:
    client = duo.client()
    client.send(pub(duo.name_at(0), b"a") + pub(duo.name_at(1), b"b") + b"MPUB %s\n%s" % (duo.name_at(1), many(b"c")))
    slow, (fast, last) = duo.one(0), [r for r in duo.take(1) if r.kind != OPEN]
    duo.answer(1, fast)
    duo.answer(1, last)
    assert client.frames() == []
    duo.answer(0, slow)
    assert client.frames() == [(RESPONSE, b"OK")] * 3


def test_an_mpub_is_one_request_with_a_range_of_ids_of_its_own(bench: Bench) -> None:
    client = bench.client()
    client.send(b"MPUB t\n" + many(b"a", b"bb", b"ccc") + pub(b"t", b"d"))
    batch, single = [r for r in bench.take() if r.kind != OPEN]
    assert (batch.kind, batch.pri, batch.body) == (PUBLISH_MANY, 3, sized(b"a") + sized(b"bb") + sized(b"ccc"))
    assert batch.ttr_ns == 60 * SECOND
    assert single.id == batch.id + 3 * SHARDS
    bench.answer(0, batch)
    bench.answer(0, single)
    assert client.frames() == [(RESPONSE, b"OK")] * 2


def test_a_body_much_larger_than_what_is_received_at_once_comes_through(bench: Bench) -> None:
    bench.acceptor.set("nsq.max-body-size", 20 << 20)
    client = bench.client()
    big = random.Random(1).randbytes(1 << 20)
    data = pub(b"t", big) + b"MPUB t\n" + many(*[big[i::7] for i in range(7)] * 4) + pub(b"t", b"last")
    bodies: list[bytes] = []
    while data:
        with contextlib.suppress(BlockingIOError):
            data = data[client.socket.send(data) :]
        bench.turn(1)
        bodies += [request.body for request in bench.take() if request.kind != OPEN]
    for _ in range(1000):
        bench.turn(1)
        bodies += [request.body for request in bench.take() if request.kind != OPEN]
    assert bodies == [big, b"".join(map(sized, [big[i::7] for i in range(7)] * 4)), b"last"]


def test_an_mpub_ends_where_its_messages_end_whatever_size_its_body_claims(bench: Bench) -> None:
    client = bench.client()
    messages = struct.pack(">I", 2) + sized(b"a") + sized(b"b")
    for claimed in (1, 5000):
        client.send(b"MPUB t\n" + struct.pack(">I", claimed) + messages + b"NOP\n")
        assert bench.one().body == sized(b"a") + sized(b"b")
    assert not client.is_closed


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PUB\n", b"E_INVALID PUB insufficient number of parameters"),
        (b"MPUB\n", b"E_INVALID MPUB insufficient number of parameters"),
        (b"DPUB t\n", b"E_INVALID DPUB insufficient number of parameters"),
        (b"PUB a$b\n", b'E_BAD_TOPIC PUB topic name "a$b" is not valid'),
        (b"PUB  t\n", b'E_BAD_TOPIC PUB topic name "" is not valid'),
        (b"PUB " + b"x" * 65 + b"\n", b'E_BAD_TOPIC PUB topic name "' + b"x" * 65 + b'" is not valid'),
        (b"PUB #ephemeral\n", b'E_BAD_TOPIC PUB topic name "#ephemeral" is not valid'),
        (b"PUB a#ephemeral2\n", b'E_BAD_TOPIC PUB topic name "a#ephemeral2" is not valid'),
        (b'PUB a"\\\t\xff\x00\xc3\xa9\xc2\xa0\n', QUOTED),
        (b"MPUB a$\n", b'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "a$" is not valid'),
        (b"DPUB a$ x\n", b'E_BAD_TOPIC DPUB topic name "a$" is not valid'),
        (b"DPUB t 1x\n", b"E_INVALID DPUB could not parse timeout 1x"),
        (b"DPUB t -1\n", b"E_INVALID DPUB could not parse timeout -1"),
        (b"DPUB t 3600001\n", b"E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
        # Durations of Go's are signed: this one is below 0.
        (b"DPUB t 9223372036855\n", b"E_INVALID DPUB timeout 9223372036855 out of range 0-3600000"),
        (b"PUB t\n\0\0\0\0", b"E_BAD_MESSAGE PUB invalid message body size 0"),
        (b"PUB t\n\xff\xff\xff\xff", b"E_BAD_MESSAGE PUB invalid message body size -1"),
        (b"PUB t\n\x00\x10\x00\x01", b"E_BAD_MESSAGE PUB message too big 1048577 > 1048576"),
        (b"DPUB t 1\n\0\0\0\0", b"E_BAD_MESSAGE DPUB invalid message body size 0"),
        (b"DPUB t 1\n\x00\x10\x00\x01", b"E_BAD_MESSAGE DPUB message too big 1048577 > 1048576"),
        (b"MPUB t\n\0\0\0\0", b"E_BAD_BODY MPUB invalid body size 0"),
        (b"MPUB t\n\x80\0\0\0", b"E_BAD_BODY MPUB invalid body size -2147483648"),
        (b"MPUB t\n\x00\x50\x00\x01", b"E_BAD_BODY MPUB body too big 5242881 > 5242880"),
        (b"MPUB t\n\0\0\0\x08\0\0\0\0", b"E_BAD_BODY MPUB invalid message count 0"),
        (b"MPUB t\n\0\0\0\x08\xff\xff\xff\xff", b"E_BAD_BODY MPUB invalid message count -1"),
        (b"MPUB t\n\0\0\0\x08" + struct.pack(">I", 1048576), b"E_BAD_BODY MPUB invalid message count 1048576"),
        (b"MPUB t\n\0\0\1\0\0\0\0\2" + sized(b"a") + b"\0\0\0\0", b"E_BAD_MESSAGE MPUB invalid message(1) body size 0"),
        (b"MPUB t\n\0\0\1\0\0\0\0\1\x00\x10\x00\x01", b"E_BAD_MESSAGE MPUB message too big 1048577 > 1048576"),
        (b"RDY 1\n", b"E_INVALID cannot RDY in current state"),
        (b"FIN " + ID + b"\n", b"E_INVALID cannot FIN in current state"),
        (b"REQ " + ID + b" 0\n", b"E_INVALID cannot REQ in current state"),
        (b"TOUCH " + ID + b"\n", b"E_INVALID cannot TOUCH in current state"),
        (b"CLS\n", b"E_INVALID cannot CLS in current state"),
        (b"IDENTIFY\n\0\0\0\0", b"E_BAD_BODY IDENTIFY invalid body size 0"),
        (b"IDENTIFY\n\x00\x50\x00\x01", b"E_BAD_BODY IDENTIFY body too big 5242881 > 5242880"),
        (b"AUTH x\n", b"E_INVALID AUTH invalid number of parameters"),
        (b"AUTH\n\xff\xff\xff\xff", b"E_BAD_BODY AUTH invalid body size -1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_as_nsqd_does_and_ends_the_connection(bench: Bench, data: bytes, text: bytes) -> None:
    fails(bench, bench.client(), data, text)
    assert [request for request in bench.take() if request.kind == PUBLISH] == []


def test_an_mpub_may_not_be_larger_than_max_body_size_by_lying_about_it(bench: Bench) -> None:
    bench.acceptor.set("nsq.max-body-size", 1000)
    client = bench.client()
    data = b"MPUB t\n\0\0\0\x08" + struct.pack(">I", 3) + sized(b"x" * 400) * 3
    fails(bench, client, data, b"E_BAD_BODY MPUB body too big 1216 > 1000")


def test_a_fatal_error_comes_behind_the_replies_before_it_and_nothing_after_it_is_done(bench: Bench) -> None:
    client = bench.client()
    assert client.talk(pub(b"t", b"a") + b"BAD\n" + pub(b"t", b"b")) == []
    bench.answer(0, bench.one())
    assert client.frames() == [(RESPONSE, b"OK"), (ERROR, b"E_INVALID invalid command BAD")]
    assert client.is_closed


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PUB t\n" + sized(b"a"), b"E_PUB_FAILED PUB failed no space"),
        (b"DPUB t 1\n" + sized(b"a"), b"E_DPUB_FAILED DPUB failed no space"),
        (b"MPUB t\n" + many(b"a"), b"E_MPUB_FAILED MPUB failed no space"),
    ],
)
def test_a_publish_that_fails_is_the_last_that_is_answered(bench: Bench, data: bytes, text: bytes) -> None:
    client = bench.client()
    client.send(data + data)
    first, second = [r for r in bench.take() if r.kind != OPEN]
    bench.worker[0].answer(second)
    bench.answer(0, first, NO_SPACE)
    assert client.frames() == [(ERROR, text)] and client.is_closed


def test_a_publish_whose_outcome_is_unknown_fails(bench: Bench) -> None:
    client = bench.client()
    client.send(pub(b"t", b"a"))
    bench.acceptor.peer_gone(0)
    bench.turn()
    assert client.frames() == [(ERROR, b"E_PUB_FAILED PUB failed outcome unknown")] and client.is_closed
    client = bench.client()
    bench.worker[0].attach()
    client.send(pub(b"t", b"a"))
    bench.answer(0, bench.one(), FAILED)
    assert client.frames() == [(ERROR, b"E_PUB_FAILED PUB failed outcome unknown")]


def test_a_publish_waits_for_a_worker_that_is_gone(bench: Bench) -> None:
    client = bench.client()
    bench.acceptor.peer_gone(0)
    assert client.talk(pub(b"t", b"a") + b"MPUB t\n" + many(b"b")) == []
    bench.worker[0].attach()
    bench.turn()
    assert [r.kind for r in bench.take() if r.kind != OPEN] == [PUBLISH, PUBLISH_MANY]


@pytest.mark.parametrize("name", [b"PUB", b"MPUB", b"DPUB"])
def test_nothing_is_published_while_the_broker_drains(bench: Bench, name: bytes) -> None:
    bench.drain()
    data = {b"PUB": pub(b"t", b"a"), b"MPUB": b"MPUB t\n" + many(b"a"), b"DPUB": b"DPUB t 0\n" + sized(b"a")}[name]
    fails(bench, bench.client(), data, b"E_%s_FAILED %s failed exiting" % (name, name))


def test_a_client_whose_worker_does_not_keep_up_waits_and_loses_nothing() -> None:
    bench = Bench(workers=2, ring_bytes=1 << 16)
    client, other = bench.client(), bench.client()
    bodies = [b"%04d" % i * 250 for i in range(3000)]
    data = b"".join(b"MPUB %s\n%s" % (bench.name_at(0), many(body)) for body in bodies)
    sent, got = 0, []
    for i in range(20000):
        with contextlib.suppress(BlockingIOError):
            sent += client.socket.send(data[sent : sent + 65536]) if sent < len(data) else 0
        bench.turn(1)
        if i == 200:
            assert sent < len(data) / 2, "it was told to wait"
            other.send(pub(bench.name_at(1), b"x"))
            assert bench.one(1).body == b"x", "others are served"
        if i > 200:
            requests = bench.worker[0].take(20)
            for request in requests:
                bench.worker[0].answer(request) if request.kind != OPEN else None
            got += [request.body[4:] for request in requests if request.kind != OPEN]
            client.frames()
        if len(got) == len(bodies):
            break
    assert got == bodies
    bench.close()


# --- what is Python's -------------------------------------------------------------------------------------------------


def test_identify_auth_and_sub_are_handed_over_whole_and_the_rest_waits(bench: Bench) -> None:
    client = bench.client()
    client.send(b"IDENTIFY\r\n" + sized(b'{"a":1}')[:5])
    assert bench.commands() == []
    client.send(b'"a":1}' + b"AUTH\n" + sized(b"se\ncret") + b"SUB t c\r\nNOP\n")
    for expected in (b'IDENTIFY\n{"a":1}', b"AUTH\nse\ncret", b"SUB t c"):
        assert bench.commands() == [(client.number, expected)]
        bench.acceptor.resume(client.number)
        bench.turn()
    client.socket.close()
    bench.turn()
    assert [(u.kind, u.conn) for u in bench.take_upcalls()] == [(engine.CLOSED, client.number)]


def test_python_is_not_told_the_end_of_connections_that_it_never_heard_of(bench: Bench) -> None:
    client = bench.client()
    client.send(b"NOP\n")
    client.socket.close()
    bench.turn()
    assert bench.take_upcalls() == []


def test_a_subscription_ends_the_time_for_identify_auth_and_sub(bench: Bench) -> None:
    for data, name in ((b"SUB t c\n", b"SUB"), (b"IDENTIFY\n", b"IDENTIFY"), (b"AUTH\n", b"AUTH")):
        fails(bench, bench.consumer(), data, b"E_INVALID cannot %s in current state" % name)
        bench.take()


def test_who_has_no_heartbeats_cannot_subscribe(bench: Bench) -> None:
    client = bench.client()
    assert bench.acceptor.call(client.number, "heartbeat-ns", 0)
    fails(bench, client, b"SUB t c\n", b"E_INVALID cannot SUB with heartbeats disabled")


def test_what_python_says_of_a_connection_is_checked(bench: Bench) -> None:
    client = bench.client()
    with pytest.raises(ValueError):
        bench.acceptor.call(client.number, "tls", 2)
    with pytest.raises(ValueError):
        bench.acceptor.call(client.number, "colour", 1)
    assert not bench.acceptor.call(12345, "tls", 1)


def test_without_tls_nothing_but_identify_is_allowed_when_it_is_required(bench: Bench) -> None:
    bench.acceptor.set("nsq.tls-required", 1)
    for data in (b"NOP\n", b"SUB t c\n", b"FIN " + ID + b"\n", b"XX y\n"):
        text = b"E_INVALID cannot %s in current state (TLS required)" % data.split(b" ")[0].strip()
        fails(bench, bench.client(), data, text)
    client = bench.client()
    client.send(b"IDENTIFY\n" + sized(b"{}"))
    assert bench.commands() == [(client.number, b"IDENTIFY\n{}")]
    bench.acceptor.call(client.number, "tls", 1)
    bench.acceptor.resume(client.number)
    assert client.talk(b"NOP\n") == [] and not client.is_closed


# --- authorization ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "body", "early"),
    [
        (b"PUB t", sized(b"x"), False),
        (b"DPUB t 5", sized(b"x"), False),
        (b"MPUB t", many(b"x"), True),
    ],
)
def test_python_is_asked_whether_a_client_may_publish_until_it_has_said_so(
    bench: Bench, line: bytes, body: bytes, early: bool
) -> None:
    bench.acceptor.set("nsq.auth", 1)
    client = bench.client()
    client.send(line + b"\n")
    # nsqd looks at a body first, but for MPUB's.
    assert len(bench.upcalls) == early
    client.send(body)
    assert bench.commands() == [(client.number, line)]
    assert bench.take() == []
    bench.acceptor.call(client.number, "authorize", START_NS + 10 * SECOND, b"t")
    bench.acceptor.resume(client.number)
    bench.turn()
    client.send(line + b"\n" + body)
    assert bench.commands() == [], "it is remembered"
    requests = [request for request in bench.take() if request.kind != OPEN]
    assert len(requests) == 2
    client.send(pub(b"other", b"x"))
    assert bench.commands() == [], "everything before it is answered first"
    for request in requests:
        bench.answer(0, request)
    assert bench.commands() == [(client.number, b"PUB other")]


def test_authorizations_end_and_are_the_topics_own(bench: Bench) -> None:
    bench.acceptor.set("nsq.auth", 1)
    client = bench.client()

    def asked(topic: bytes) -> bool:
        client.send(pub(topic, b"x"))
        asked = bench.commands() == [(client.number, b"PUB " + topic)]
        if asked:
            bench.acceptor.call(client.number, "authorize", bench.now_ns + 10 * SECOND, topic)
            bench.acceptor.resume(client.number)
            bench.turn()
        bench.answer(0, bench.one())
        assert client.frames() == [(RESPONSE, b"OK")]
        return asked

    assert asked(b"a") and not asked(b"a") and asked(b"b") and not asked(b"a")
    bench.advance(9 * SECOND)
    assert not asked(b"a")
    bench.advance(SECOND)
    assert asked(b"a") and not asked(b"a")
    topics = [b"n%d" % i for i in range(17)]
    assert all(asked(topic) for topic in topics)
    assert not asked(topics[16]) and asked(topics[0]), "sixteen are remembered"
    bench.acceptor.call(client.number, "authorized-until-ns", bench.now_ns)
    assert asked(topics[16])


def test_an_authorization_that_is_over_at_once_serves_one_command(bench: Bench) -> None:
    bench.acceptor.set("nsq.auth", 1)
    client = bench.client()
    for _ in range(3):
        client.send(b"MPUB t\n" + many(b"x"))
        assert bench.commands() == [(client.number, b"MPUB t")]
        bench.acceptor.call(client.number, "authorize", 0, b"t")
        bench.acceptor.resume(client.number)
        bench.turn()
        bench.answer(0, bench.one())


# --- consuming --------------------------------------------------------------------------------------------------------


def test_rdy_is_credit_and_has_a_range(bench: Bench) -> None:
    client = bench.consumer(rdy=0)
    for data, credit in ((b"RDY 2500\n", 2500), (b"RDY\n", 1), (b"RDY 0\n", 0), (b"RDY \n", 0), (b"RDY 7 x\n", 7)):
        assert client.talk(data) == []
        assert (request := bench.one()).kind == CREDIT and request.id == credit
    fails(bench, client, b"RDY 2501\n", b"E_INVALID RDY count 2501 out of range 0-2500")
    bench.take()
    fails(bench, bench.consumer(), b"RDY -1\n", b"E_INVALID RDY could not parse count -1")
    bench.take()
    text = b"E_INVALID RDY count -1 out of range 0-2500"
    fails(bench, bench.consumer(), b"RDY 18446744073709551615\n", text)


def test_a_delivery_is_a_message_frame(bench: Bench) -> None:
    client = bench.consumer()
    bench.push(client.number, DELIVER, id=0x0123456789ABCDEF, pri=3, delay_ns=1_700_000_000_123_456_789, body=b"hello")
    head = struct.pack(">qH", 1_700_000_000_123_456_789, 3) + b"0123456789abcdef"
    assert client.frames() == [(MESSAGE, head + b"hello")]
    bench.push(client.number, DELIVER, id=1, pri=70000, delay_ns=0, body=b"")
    assert client.frames() == [(MESSAGE, struct.pack(">qH", 0, 65535) + b"0000000000000001")]


def test_fin_req_and_touch_go_to_the_consumers_worker(duo: Bench) -> None:
    client = duo.consumer(duo.name_at(1))
    name = b"00000000000000f0"
    requests = [
        (b"FIN %s\n", FINISH, 0), (b"FIN %s\r\n", FINISH, 0), (b"FIN %s more\n", FINISH, 0), (b"TOUCH %s\n", EXTEND, 0),
        (b"REQ %s 0\n", REQUEUE, 0), (b"REQ %s 1500\n", REQUEUE, 1500 * MS), (b"REQ %s \n", REQUEUE, 0),
        (b"REQ %s 99999999\n", REQUEUE, 3600 * SECOND), (b"REQ %s 9223372036855\n", REQUEUE, 0),
    ]  # fmt: skip
    assert client.talk(b"".join(form % name for form, _, _ in requests)) == []
    heard = [(r.kind, r.id, r.delay_ns, r.conn) for r in duo.take(1)]
    assert heard == [(kind, 0xF0, delay, client.number) for _, kind, delay in requests]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"FIN\n", b"E_INVALID FIN insufficient number of params"),
        (b"TOUCH\n", b"E_INVALID TOUCH insufficient number of params"),
        (b"REQ " + ID + b"\n", b"E_INVALID REQ insufficient number of params"),
        (b"FIN 1\n", b"E_INVALID invalid message ID"),
        (b"FIN " + ID + b"0\n", b"E_INVALID invalid message ID"),
        (b"TOUCH \n", b"E_INVALID invalid message ID"),
        (b"REQ x y\n", b"E_INVALID invalid message ID"),
        (b"REQ " + ID + b" 1s\n", b"E_INVALID REQ could not parse timeout 1s"),
    ],
)
def test_what_is_wrong_with_a_message_command_ends_the_connection(bench: Bench, data: bytes, text: bytes) -> None:
    fails(bench, bench.consumer(), data, text)


@pytest.mark.parametrize("name", [b"0123456789ABCDEF", b"not-hexadecimal!", b"\xff\0\x80aaaaaaaaaaaaa"])
def test_an_id_that_is_none_of_ours_is_not_in_flight(bench: Bench, name: bytes) -> None:
    client = bench.consumer()
    assert client.talk(b"FIN %s\nTOUCH %s\nREQ %s 1\n" % (name, name, name)) == [
        (ERROR, b"E_FIN_FAILED FIN %s failed ID not in flight" % name),
        (ERROR, b"E_TOUCH_FAILED TOUCH %s failed ID not in flight" % name),
        (ERROR, b"E_REQ_FAILED REQ %s failed ID not in flight" % name),
    ]
    assert not client.is_closed and bench.take() == []


@pytest.mark.parametrize(("kind", "name"), [(FINISH, b"FIN"), (REQUEUE, b"REQ"), (EXTEND, b"TOUCH")])
def test_what_a_worker_refuses_is_an_error_that_does_not_end_the_connection(
    bench: Bench, kind: int, name: bytes
) -> None:
    client = bench.consumer()
    bench.push(client.number, REFUSED, id=0xAB, pri=kind, status=NOT_FOUND)
    bench.push(client.number, REFUSED, id=0xAB, pri=kind, status=NONE)
    assert client.frames() == [
        (ERROR, b"E_%s_FAILED %s 00000000000000ab failed ID not in flight" % (name, name)),
        (ERROR, b"E_%s_FAILED %s 00000000000000ab failed client does not own message" % (name, name)),
    ]
    assert not client.is_closed


def test_after_cls_nothing_new_comes_and_what_is_in_flight_can_be_finished(bench: Bench) -> None:
    client = bench.consumer()
    assert client.talk(b"CLS\n") == [(RESPONSE, b"CLOSE_WAIT")]
    assert (credit := bench.one()).kind == CREDIT and credit.id == 0
    assert client.talk(b"RDY 5\nRDY x\nFIN " + ID + b"\n") == []
    assert [r.kind for r in bench.take()] == [FINISH]
    assert client.talk(b"CLS\n") == []
    barrier = bench.one()
    assert barrier.kind == lib.MSG_BARRIER
    bench.push(client.number, REFUSED, id=0xAB, pri=FINISH, status=NOT_FOUND)
    bench.answer(0, barrier)
    assert client.frames() == [
        (ERROR, b"E_FIN_FAILED FIN 00000000000000ab failed ID not in flight"),
        (ERROR, b"E_INVALID cannot CLS in current state"),
    ]
    assert client.is_closed


def test_a_refusal_stands_between_the_replies_as_its_command_did_between_the_commands(duo: Bench) -> None:
    here, there = duo.name_at(0), duo.name_at(1)
    client = duo.consumer(topic=here)
    one = struct.pack(">I", 1) + b"x"
    assert client.talk(b"PUB %s\n%sFIN %s\nPUB %s\n%s" % (there, one, ID, there, one)) == []
    first, second = [r for r in duo.take(1) if r.kind == PUBLISH]
    finish, barrier = duo.take(0)
    assert (finish.kind, barrier.kind) == (FINISH, lib.MSG_BARRIER)
    duo.push(client.number, REFUSED, id=0xAB, pri=FINISH, status=NOT_FOUND)
    duo.answer(0, barrier)
    duo.answer(1, second)
    assert client.frames() == []
    duo.answer(1, first)
    assert client.frames() == [
        (RESPONSE, b"OK"),
        (ERROR, b"E_FIN_FAILED FIN 00000000000000ab failed ID not in flight"),
        (RESPONSE, b"OK"),
    ]


def test_a_consumer_of_what_is_deleted_is_cut(bench: Bench) -> None:
    client = bench.consumer()
    bench.push(client.number, DISMISSED)
    assert client.is_closed and client.raw() == b""
    assert [r.kind for r in bench.take()] == [GONE]


def test_nothing_is_pushed_to_who_has_not_subscribed(bench: Bench) -> None:
    client = bench.client()
    bench.push(client.number, DELIVER, id=1, pri=1, body=b"x")
    bench.push(client.number, DISMISSED)
    assert client.frames() == [] and not client.is_closed


@pytest.mark.parametrize("status", [FULL, NO_SPACE, FAILED])
def test_a_subscription_that_was_refused_is_none(bench: Bench, status: int) -> None:
    client = bench.client()
    client.send(b"SUB t c\n")
    topic = bench.acceptor.bind(b"t")
    bench.acceptor.request(0, client.number, SUBSCRIBE, topic=topic, body=b"s")
    bench.turn()
    bench.answer(0, bench.one(), status)
    bench.take_upcalls()
    bench.acceptor.resume(client.number)
    fails(bench, client, b"RDY 1\n", b"E_INVALID cannot RDY in current state")


def test_a_subscription_is_made_anew_when_its_worker_is_back(duo: Bench) -> None:
    client = duo.consumer(duo.name_at(1), rdy=42)
    duo.acceptor.peer_gone(1)
    assert client.talk(b"RDY 43\nFIN " + ID + b"\n") == []
    duo.worker[1].attach()
    duo.turn()
    subscribed, credit, finish = [r for r in duo.take(1) if r.kind != OPEN]
    assert (subscribed.kind, subscribed.conn, subscribed.body) == (SUBSCRIBE, client.number, b"subscription")
    assert (credit.kind, credit.id) == (CREDIT, 43)
    assert finish.kind == FINISH
    duo.answer(1, subscribed)
    assert duo.take_upcalls() == [] and client.frames() == []
    duo.push(client.number, DELIVER, worker=1, id=5, pri=1, body=b"x")
    assert [kind for kind, _ in client.frames()] == [MESSAGE]


LOST = [(b"FIN %s", b"FIN"), (b"REQ %s 1000", b"REQ"), (b"TOUCH %s", b"TOUCH")]


def lost(name: bytes) -> tuple[int, bytes]:
    return (ERROR, b"E_%s_FAILED %s %s failed ID not in flight" % (name, name, ID))


def test_what_a_worker_that_dies_had_not_come_to_is_refused_and_what_it_had_is_not(bench: Bench) -> None:
    client = bench.consumer()
    assert client.talk(b"FIN %s\n" % (b"c" * 16)) == []
    assert bench.one().kind == FINISH
    assert client.talk(b"".join(command % ID + b"\n" for command, _ in LOST)) == []
    bench.acceptor.peer_gone(0)
    bench.turn()
    assert client.frames() == [lost(name) for _, name in LOST]
    assert not client.is_closed


def test_what_is_refused_when_a_worker_dies_is_heard_before_what_came_later_is_answered(duo: Bench) -> None:
    here, there = duo.name_at(0), duo.name_at(1)
    client = duo.consumer(topic=here)
    one = struct.pack(">I", 1) + b"x"
    taken = b"FIN %s\nPUB %s\n%s" % (b"c" * 16, there, one)
    assert client.talk(taken) == []
    assert [r.kind for r in duo.take(0)] == [FINISH, lib.MSG_BARRIER]
    assert client.talk((b"FIN %s\nPUB %s\n%s" % (ID, there, one)) * 2 + b"REQ %s 0\n" % ID) == []
    for request in [r for r in duo.take(1) if r.kind == PUBLISH]:
        duo.answer(1, request)
    assert client.frames() == []
    duo.acceptor.peer_gone(0)
    duo.turn()
    ok = (RESPONSE, b"OK")
    assert client.frames() == [ok, lost(b"FIN"), ok, lost(b"FIN"), ok, lost(b"REQ")]
    assert client.talk(b"PUB %s\n%s" % (there, one)) == []
    duo.answer(1, duo.one(1))
    assert client.frames() == [ok]


def test_what_waited_for_room_in_the_ring_of_a_worker_that_dies_is_refused_too(duo: Bench) -> None:
    client = duo.consumer(topic=duo.name_at(0))
    sent = 0
    for _ in range(100):  # the ring takes 18,000 of them, and then nothing more is read
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += client.socket.send(b"FIN %s\n" % ID * 1000)
        duo.turn()
    duo.acceptor.peer_gone(0)
    heard: list[tuple[int, bytes]] = []
    for _ in range(100):
        heard += client.frames()
        duo.turn()
    assert 18_000 < len(heard) <= sent // 21
    assert set(heard) == {lost(b"FIN")}


def test_a_subscription_that_cannot_be_made_anew_ends_the_connection(bench: Bench) -> None:
    client = bench.consumer()
    bench.acceptor.peer_gone(0)
    bench.worker[0].attach()
    bench.answer(0, next(r for r in bench.take() if r.kind == SUBSCRIBE), FULL)
    assert client.is_closed


# --- the window -------------------------------------------------------------------------------------------------------


def test_what_has_left_is_reported_in_large_pieces_and_never_too_much(bench: Bench) -> None:
    client = bench.consumer()
    delivered = reported = 0
    for i in range(400):
        bench.push(client.number, DELIVER, id=i, pri=1, body=b"x" * 2000)
        delivered += MESSAGE_BYTES + 2000
        client.frames()
        sent = [r for r in bench.take() if r.kind == SENT]
        assert all(r.id >= REPORT and r.conn == client.number for r in sent)
        reported += sum(r.id for r in sent)
        assert reported <= delivered
        assert delivered - reported < 2 * REPORT
    assert reported > 0


def test_what_a_client_does_not_read_is_not_reported(bench: Bench) -> None:
    client = bench.consumer()
    delivered = reported = received = 0
    while delivered < WINDOW - 5000:
        bench.push(client.number, DELIVER, id=1, pri=1, body=b"x" * 4000)
        delivered += MESSAGE_BYTES + 4000
        reported += sum(r.id for r in bench.take() if r.kind == SENT)
    assert reported < WINDOW * 3 // 4
    while received < delivered // 4048 * 4034:
        received += len(client.raw())
        bench.turn()
        reported += sum(r.id for r in bench.take() if r.kind == SENT)
    assert delivered - 2 * REPORT <= reported <= delivered


def test_many_deliveries_in_one_turn_arrive_whole_and_in_order(bench: Bench) -> None:
    client = bench.consumer(tcp=True)
    rng = random.Random(2)
    bodies = [rng.randbytes(rng.choice([1, 100, 1000, 20000, 60000])) for _ in range(60)]
    for i, body in enumerate(bodies):
        bench.push(client.number, DELIVER, id=i, pri=1, body=body, turn=False)
    frames: list[tuple[int, bytes]] = []
    for _ in range(1000):
        bench.turn(1)
        frames += client.frames()
        if len(frames) == len(bodies):
            break
    assert [(kind, int(data[10:26], 16), data[26:]) for kind, data in frames] == [
        (MESSAGE, i, body) for i, body in enumerate(bodies)
    ]


# --- heartbeats -------------------------------------------------------------------------------------------------------

BEAT: Final = (RESPONSE, b"_heartbeat_")


def test_heartbeats_come_each_interval_from_the_magic_on(bench: Bench) -> None:
    silent, client = bench.client(greet=False), bench.client()
    bench.advance(HEARTBEAT_NS - 1)
    assert client.frames() == []
    bench.advance(1)
    assert client.frames() == [BEAT] and silent.frames() == []
    client.send(b"NOP\n")
    bench.advance(HEARTBEAT_NS)
    assert client.frames() == [BEAT]


def test_the_interval_is_half_the_client_timeout_until_identify_changes_it(bench: Bench) -> None:
    bench.acceptor.set("nsq.client-timeout-ns", 10 * SECOND)
    client = bench.client()
    bench.advance(5 * SECOND)
    assert client.frames() == [BEAT]
    bench.acceptor.call(client.number, "heartbeat-ns", SECOND)
    for _ in range(10):
        bench.advance(SECOND)
        assert client.talk(b"NOP\n") == [BEAT]
    bench.acceptor.call(client.number, "heartbeat-ns", 0)
    bench.advance(1000 * SECOND)
    assert client.frames() == [] and not client.is_closed


def test_who_sends_no_whole_command_for_two_intervals_is_cut(bench: Bench) -> None:
    client = bench.client()
    bench.advance(10 * SECOND)
    client.send(b"NOP\n")
    bench.advance(30 * SECOND)
    client.send(b"NO")
    bench.advance(30 * SECOND - 1)
    assert not client.is_closed and client.frames() == [BEAT, BEAT]
    bench.advance(1)
    assert client.is_closed


def test_a_body_that_does_not_come_in_time_is_an_error(bench: Bench) -> None:
    client = bench.client()
    client.send(b"PUB t\n\0\0\0\5ab")
    bench.advance(2 * HEARTBEAT_NS)
    assert client.frames() == [(ERROR, b"E_BAD_MESSAGE PUB failed to read message body")] and client.is_closed


def test_silence_while_we_are_busy_with_a_command_is_ours(bench: Bench) -> None:
    client, waiting = bench.client(), bench.client()
    client.send(b"SUB t c\n")
    waiting.send(pub(b"t", b"x"))
    for _ in range(10):
        bench.advance(HEARTBEAT_NS)
    assert not client.is_closed and not waiting.is_closed
    # It may be about to be encrypted: nothing that it has not asked for.
    assert client.frames() == [] and waiting.frames() == [BEAT] * 10


def test_who_takes_nothing_for_an_interval_is_cut(bench: Bench) -> None:
    client = bench.consumer()
    for _ in range(200):
        bench.push(client.number, DELIVER, id=1, pri=1, body=b"x" * 5000)
    for _ in range(2):
        client.socket.send(b"NOP\n")
        bench.turn()
        bench.advance(HEARTBEAT_NS)
    assert [u.kind for u in bench.take_upcalls()] == [engine.CLOSED]


def test_thousands_of_connections_beat_when_each_is_due(bench: Bench) -> None:
    rng = random.Random(3)
    clients = [bench.client() for _ in range(200)]
    due = {}
    for client in clients:
        interval = rng.randrange(1000, 60000) * MS
        bench.acceptor.call(client.number, "heartbeat-ns", interval)
        due[client] = bench.now_ns + interval, interval
    for client in rng.sample(clients, 50):
        client.socket.close()
        del due[client]
    for _ in range(300):
        bench.now_ns += rng.randrange(1, 1000) * MS
        for client in due:
            client.socket.send(b"NOP\n")
        bench.turn(2)
        for client, (at, interval) in due.items():
            beats = 0
            if bench.now_ns >= at:
                beats = 1
                due[client] = at + interval, interval
            assert client.frames() == [BEAT] * beats


def test_run_wakes_for_a_heartbeat(bench: Bench) -> None:
    bench.acceptor.run(0)
    bench.now_ns = 0  # it is told no other time than what it reads
    client = bench.client()
    bench.acceptor.call(client.number, "heartbeat-ns", 20 * MS)
    timer = threading.Timer(0.03, client.socket.send, [b"NOP\n"])
    timer.start()
    bench.acceptor.run(SECOND // 10)
    timer.join()
    beats = client.frames()
    assert 1 <= len(beats) <= 5 and set(beats) == {BEAT}


# --- the end ----------------------------------------------------------------------------------------------------------


def test_a_client_that_hangs_up_is_answered_what_it_asked(bench: Bench) -> None:
    client = bench.client()
    client.send(pub(b"t", b"x"))
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert not client.is_closed
    bench.answer(0, bench.one())
    assert client.frames() == [(RESPONSE, b"OK")] and client.is_closed


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PUB t\n\0\0", b"E_BAD_MESSAGE PUB failed to read message body size"),
        (b"PUB t\n\0\0\0\2a", b"E_BAD_MESSAGE PUB failed to read message body"),
        (b"DPUB t 1\n", b"E_BAD_MESSAGE DPUB failed to read message body size"),
        (b"MPUB t\n\0", b"E_BAD_BODY MPUB failed to read body size"),
        (b"MPUB t\n\0\0\1\0\0\0", b"E_BAD_BODY MPUB failed to read message count"),
        (
            b"MPUB t\n\0\0\1\0\0\0\0\2" + sized(b"a") + b"\0\0",
            b"E_BAD_MESSAGE MPUB failed to read message(1) body size",
        ),
        (b"MPUB t\n\0\0\1\0\0\0\0\2" + sized(b"a") + b"\0\0\0\5b", b"E_BAD_MESSAGE MPUB failed to read message body"),
        (b"IDENTIFY\n\0\0\0\5{", b"E_BAD_BODY IDENTIFY failed to read body"),
        (b"AUTH\n\0\0", b"E_BAD_BODY AUTH failed to read body size"),
    ],
)
def test_half_a_command_at_the_end_is_an_error(bench: Bench, data: bytes, text: bytes) -> None:
    client = bench.client()
    client.send(data)
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert client.frames() == [(ERROR, text)] and client.is_closed


def test_half_a_line_at_the_end_is_none(bench: Bench) -> None:
    client = bench.client()
    client.send(b"PUB t")
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert client.is_closed and client.raw() == b""


# --- filters ----------------------------------------------------------------------------------------------------------


def flip(data: bytes) -> bytes:
    return bytes(byte ^ 0x55 for byte in data)


class Filtered:
    """Plays Python's part for one connection: each byte is another one outside."""

    def __init__(self, bench: Bench, client: Client) -> None:
        self.bench, self.client = bench, client
        self.inputs: list[bytes] = []

    def serve(self) -> None:
        while True:
            self.bench.turn(1)
            mine = [
                u
                for u in self.bench.upcalls
                if u.conn == self.client.number and u.kind in (engine.INPUT, engine.OUTPUT)
            ]
            self.bench.upcalls = [u for u in self.bench.upcalls if u not in mine]
            if not mine:
                return
            for upcall in mine:
                if upcall.kind == engine.INPUT:
                    self.inputs.append(upcall.line)
                    self.bench.acceptor.feed(upcall.conn, flip(upcall.line))
                else:
                    assert len(upcall.line) <= 65536
                    self.bench.acceptor.send(upcall.conn, flip(upcall.line))

    def talk(self, data: bytes) -> bytes:
        data = flip(data)
        while data:
            with contextlib.suppress(BlockingIOError):
                data = data[self.client.socket.send(data[: 1 << 16]) :]
            self.serve()
        self.serve()
        return flip(self.client.raw())


def filtered(bench: Bench, early: bytes = b"") -> tuple[Client, Filtered]:
    client = bench.client()
    client.send(b"IDENTIFY\n" + sized(b"{}") + flip(early))
    assert bench.commands() == [(client.number, b"IDENTIFY\n{}")]
    bench.acceptor.reply(client.number, b"plain")
    bench.acceptor.filter(client.number)
    bench.acceptor.send(client.number, b" and wired")
    bench.acceptor.resume(client.number)
    served = Filtered(bench, client)
    served.serve()
    return client, served


def test_input_and_output_pass_through_python_both_ways(bench: Bench) -> None:
    client, served = filtered(bench, early=pub(b"t", b"early")[:7])
    assert client.raw() == b"plain and wired", "what was said before is not filtered"
    assert served.inputs == [flip(pub(b"t", b"early")[:7])], "what had come already is"
    assert served.talk(pub(b"t", b"early")[7:] + b"NOP\n" + pub(b"t", b"x")) == b""
    first, second = [r for r in bench.take() if r.kind != OPEN]
    assert (first.body, second.body) == (b"early", b"x")
    bench.worker[0].answer(first)
    bench.worker[0].answer(second)
    served.serve()
    assert flip(client.raw()) == b"\0\0\0\6\0\0\0\0OK" * 2
    client.socket.close()
    served.serve()
    assert [(u.kind, u.conn) for u in bench.take_upcalls()] == [(engine.CLOSED, client.number)]


def test_one_input_is_answered_before_there_is_another(bench: Bench) -> None:
    client, _ = filtered(bench)
    client.send(flip(b"NOP\n"))
    client.send(flip(b"NOP\n"))
    (first,) = bench.take_upcalls()
    assert (first.kind, first.line) == (engine.INPUT, flip(b"NOP\n"))
    bench.acceptor.feed(client.number, b"")
    bench.turn()
    (second,) = bench.take_upcalls()
    assert (second.kind, second.line) == (engine.INPUT, flip(b"NOP\n"))


def test_filtered_bytes_flow_while_python_has_the_command(bench: Bench) -> None:
    client = bench.client()
    client.send(b"IDENTIFY\n" + sized(b"{}"))
    bench.commands()
    bench.acceptor.filter(client.number)
    client.send(b"hand")
    (upcall,) = bench.take_upcalls()
    assert (upcall.kind, upcall.line) == (engine.INPUT, b"hand")
    bench.acceptor.feed(client.number, b"")
    bench.acceptor.send(client.number, b"shake")
    bench.turn()
    assert client.raw() == b"shake"
    client.send(b"more")
    assert [u.line for u in bench.take_upcalls()] == [b"more"]
    bench.acceptor.feed(client.number, b"BAD\n")
    bench.turn()
    assert bench.take_upcalls() == [], "its input waits for the command to be done"
    bench.acceptor.resume(client.number)
    bench.turn()
    assert [u.line[8:] for u in bench.take_upcalls() if u.kind == engine.OUTPUT] == [b"E_INVALID invalid command BAD"]


def test_a_client_that_hangs_up_in_a_handshake_is_gone(bench: Bench) -> None:
    client = bench.client()
    client.send(b"IDENTIFY\n" + sized(b"{}"))
    bench.acceptor.filter(client.number)
    client.send(b"ha")
    client.socket.shutdown(socket.SHUT_WR)
    bench.turn()
    assert [u.kind for u in bench.take_upcalls()] == [engine.COMMAND, engine.INPUT]
    bench.acceptor.feed(client.number, b"")
    bench.turn()
    assert [u.kind for u in bench.take_upcalls()] == [engine.CLOSED]


def test_a_filtered_connection_ends_when_both_sides_are_out(bench: Bench) -> None:
    client, served = filtered(bench)
    client.raw()
    reply = served.talk(pub(b"t", b"x") + b"BAD\n")
    bench.worker[0].answer(bench.one())
    served.serve()
    reply += flip(client.raw())
    assert reply.endswith(b"E_INVALID invalid command BAD") and reply.startswith(b"\0\0\0\6\0\0\0\0OK")
    assert client.is_closed


def test_much_passes_through_a_filter_without_piling_up(bench: Bench) -> None:
    client, served = filtered(bench)
    client.raw()
    bodies = [random.Random(i).randbytes(100_000) for i in range(20)]
    got: list[bytes] = []
    data = flip(b"".join(pub(b"t", body) for body in bodies))
    replies = b""
    for _ in range(20_000):
        with contextlib.suppress(BlockingIOError):
            data = data[client.socket.send(data[:65536]) :] if data else data
        served.serve()
        for request in bench.take():
            if request.kind != OPEN:
                got.append(request.body)
                bench.worker[0].answer(request)
        replies += flip(client.raw())
        if len(replies) == 200:
            break
    assert got == bodies and replies == b"\0\0\0\6\0\0\0\0OK" * 20


def test_what_a_filtered_client_does_not_read_waits_before_python(bench: Bench) -> None:
    client, served = filtered(bench)
    client.raw()
    served.talk(b"SUB t c\n")
    bench.take_upcalls()
    topic = bench.acceptor.bind(b"t")
    bench.acceptor.request(0, client.number, SUBSCRIBE, topic=topic, body=b"")
    bench.turn()
    bench.answer(0, bench.one())
    bench.acceptor.resume(client.number)
    bench.take_upcalls()
    for i in range(150):
        bench.push(client.number, DELIVER, id=i, pri=1, body=b"x" * 6000, turn=False)
    for _ in range(5):
        bench.acceptor.turn()
    outputs = [u.line for u in bench.acceptor.upcalls() if u.kind == engine.OUTPUT]
    assert 256 << 10 <= sum(map(len, outputs)) <= 320 << 10
    for output in outputs:
        bench.acceptor.send(client.number, flip(output))
    received = b""
    for _ in range(200):
        served.serve()
        received += flip(client.raw())
    assert len(received) == 150 * 6034


# --- other things that Python can do ----------------------------------------------------------------------------------


def test_the_clients_address_is_as_nsqd_writes_it(bench: Bench) -> None:
    client = bench.client(tcp=True)
    assert bench.acceptor.remote(client.number) == f"127.0.0.1:{client.socket.getsockname()[1]}"
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listening:
        ours = socket.create_connection(listening.getsockname()[:2])
        theirs, _ = listening.accept()
    conn = bench.acceptor.adopt(theirs.detach(), NSQ)
    assert bench.acceptor.remote(conn) == f"[::1]:{ours.getsockname()[1]}"
    ours.close()
    bench.turn()
    assert bench.acceptor.remote(conn) == ""


def test_a_local_connection_asks_as_much_as_it_likes_and_is_answered_in_any_order(duo: Bench) -> None:
    conn = duo.acceptor.local()
    assert duo.acceptor.busy() == 0
    slots = [
        duo.acceptor.request(i % 2, conn, PUBLISH, topic=0, id=i, pri=2, delay_ns=3, ttr_ns=4, flags=2, body=b"%d" % i)
        for i in range(256)
    ]
    assert len(set(slots)) == 256 and duo.acceptor.request(0, conn, PUBLISH) == -1
    assert duo.acceptor.busy() == 1
    duo.turn()
    requests = duo.take(0)
    assert [(r.id, r.pri, r.delay_ns, r.ttr_ns, r.flags) for r in requests] == [
        (i, 2, 3, 4, 2) for i in range(0, 256, 2)
    ]
    for request in reversed(requests):
        duo.worker[0].answer(request, id=request.id + 1000, body=request.body)
    duo.turn()
    answers = [u.answer for u in duo.take_upcalls() if u.kind == engine.ANSWER and u.conn == conn and u.answer]
    assert {answer.slot: answer.id for answer in answers} == {slots[i]: i + 1000 for i in range(0, 256, 2)}
    duo.acceptor.peer_gone(1)
    failed = {u.answer.slot for u in duo.acceptor.upcalls() if u.answer and u.answer.status == FAILED}
    assert failed == {slots[i] for i in range(1, 256, 2)}
    later = duo.acceptor.request(1, conn, CATALOG, body=b"t")
    duo.worker[1].attach()
    duo.turn()
    request = duo.one(1)
    assert request.kind == CATALOG
    duo.answer(1, request)
    assert [u.answer.slot for u in duo.take_upcalls() if u.answer] == [later]
    duo.acceptor.reply(conn, b"nobody reads this")
    duo.acceptor.resume(conn)
    duo.turn()
    assert duo.acceptor.request(0, conn, SUBSCRIBE) == -1
    duo.acceptor.close_connection(conn)
    duo.turn()
    assert duo.acceptor.request(0, conn, PUBLISH) == -1 and duo.take_upcalls() == []
    assert GONE in [r.kind for r in duo.take(0)]


def test_ids_are_taken_in_runs_of_the_topics_shard(bench: Bench) -> None:
    topic = bench.acceptor.bind(b"t")
    first, second = bench.acceptor.take_ids(topic, 10), bench.acceptor.take_ids(topic, 1)
    assert second == first + 10 * SHARDS
    assert first % SHARDS == bench.acceptor.shard_of_name(b"t")
    assert bench.acceptor.take_ids(999, 1) == 0


def test_an_event_loop_of_another_kind_is_told_when_a_turn_is_due(bench: Bench) -> None:
    acceptor = bench.acceptor
    conn = acceptor.local()
    waiting = select.poll()
    waiting.register(acceptor.fileno(), select.POLLIN)

    def until_due() -> int:
        assert waiting.poll(5000), "nobody woke us"
        return acceptor.poll()

    while waiting.poll(0):
        acceptor.poll()
    assert acceptor.poll() == 0 and not waiting.poll(0), "there is nothing to do"
    for _ in range(50):
        slot = acceptor.request(0, conn, CATALOG)
        until_due()
        timer = threading.Timer(0.001, bench.worker[0].answer, [bench.one()])
        timer.start()
        while until_due() == 0:
            pass
        assert [u.answer.slot for u in acceptor.upcalls() if u.answer] == [slot]
        timer.join()
        while waiting.poll(0):
            acceptor.poll()


def test_another_thread_can_make_run_come_back(bench: Bench) -> None:
    for _ in range(3):
        timer = threading.Timer(0.02, bench.acceptor.poke)
        timer.start()
        assert bench.acceptor.run(5 * SECOND) == 1
        assert [u.kind for u in bench.acceptor.upcalls()] == [engine.POKED]
        timer.join()
    bench.acceptor.poke()
    bench.acceptor.poke()
    bench.turn()
    assert [u.kind for u in bench.take_upcalls()] == [engine.POKED]


@pytest.mark.parametrize("option", ["max-msg-size", "max-body-size"])
def test_options_are_checked(bench: Bench, option: str) -> None:
    bench.acceptor.set(f"nsq.{option}", 1 << 30)
    for value in (0, (1 << 30) + 1):
        with pytest.raises(ValueError):
            bench.acceptor.set(f"nsq.{option}", value)
    with pytest.raises(ValueError):
        bench.acceptor.set("nsq.max-colour", 1)
