"""NSQ in the acceptor, with workers made by the test: frames in, requests out, what is pushed and read.

There is no Python half: a test sees the upcalls and answers them itself. Time is what the test says.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from dataclasses import dataclass, field
from typing import Any, Final

from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Engine, Upcall, WorkerRequest, protocol_number
from mq_shards.csrc._core import ffi, lib

from tests.acceptor.bench import OK, OPEN, SECOND, SHARDS, FakeWorker, Request

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
        asked = WorkerRequest(SUBSCRIBE, topic=number, body=b"subscription")
        assert self.acceptor.request(worker, client.number, asked) >= 0
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


def fails(bench: Bench, client: Client, data: bytes, text: bytes) -> None:
    """The last thing that is heard on a connection."""
    assert client.talk(data) == [(ERROR, text)]
    assert client.is_closed
    assert [upcall for upcall in bench.take_upcalls() if upcall.kind == engine.COMMAND] == []
