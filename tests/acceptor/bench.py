"""The acceptor with workers made by the test: what it asks of them, and what its clients hear. No process, no clock.

A FakeWorker is the worker's end of a real channel: a test sees every message that the acceptor sends, and answers when
and what it likes, so that every order of events can be had.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Engine, protocol_number
from mq_shards.acceptor.protocol import Broker
from mq_shards.acceptor.protocols.beanstalk.serving import BeanstalkServing
from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf import create

BEANSTALK: Final = protocol_number("beanstalk")
# csrc/ringbuf/message.h
OPEN, CLOSE, USE, WATCH, IGNORE, CANCEL, RETURN, GONE = range(1, 9)
PUBLISH, RESERVE, PROBE, TAKE, RESERVE_ID, DELETE, RELEASE, BURY, TOUCH, PEEK_ID = range(32, 42)
PEEK_READY, PEEK_DELAYED, PEEK_BURIED, KICK, KICK_ID, PAUSE, STATS_ID, STATS_TOPIC, LIST = range(42, 51)
OK, NONE, NOT_FOUND, TIMED_OUT, DEADLINE_SOON, CANCELLED, NO_SPACE, FAILED = range(8)
NONE_IN_FLIGHT: Final = 1
FOREVER: Final = (1 << 64) - 1
SECOND: Final = 1_000_000_000

EACH: Final = struct.Struct("<QII")  # struct publish_each
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
    several: int = 0

    @property
    def has_reply(self) -> bool:
        return self.kind >= PUBLISH


def each_of(several: Request) -> list[Request]:
    """The PUBLISHes that a PUBLISH_EACH stands for."""
    requests, at = [], 0
    while at < len(several.body):
        id, size, unused = EACH.unpack_from(several.body, at)
        body = several.body[at + EACH.size : at + EACH.size + size]
        at += EACH.size + (size + 7) // 8 * 8
        assert unused == 0 and len(body) == size and several.body[at - (-size % 8) : at] == bytes(-size % 8)
        slot, flags = several.slot + len(requests), several.flags | lib.MSG_JOINED
        requests.append(replace(several, kind=PUBLISH, slot=slot, id=id, body=body, flags=flags))
    assert at == len(several.body) and requests[0].id == several.id
    return requests


ONE: Final = struct.Struct("<BBHIQ")  # struct request_each


def each_request_of(several: Request) -> list[Request]:
    """The requests that a REQUEST_EACH stands for."""
    requests = []
    assert len(several.body) == (several.several + 7) // 8 * 8 * ONE.size
    for kind, unused, flags, slot, value in list(ONE.iter_unpack(several.body))[: several.several]:
        says = {"delay_ns": value} if kind == RESERVE else {"id": value}
        if kind == lib.MSG_FINISH and flags & (lib.MSG_UPTO | lib.MSG_BY_SEQ):
            says = {"ttr_ns": value}
        assert unused == 0
        requests.append(replace(several, kind=kind, flags=flags, slot=slot, body=b"", **{"id": 0, **says}))
    return requests


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

    def receive(self) -> Any:  # noqa: ANN401
        """The next message as it lies in the ring, or NULL."""
        return lib.channel_receive(self._channel)

    def messages(self, limit: int = 1 << 30) -> list[list[Request]]:
        """What the acceptor has sent since the last call, so many requests or a few more, message by message."""
        messages: list[list[Request]] = []
        while sum(map(len, messages)) < limit and (m := self.receive()) != ffi.NULL:
            body = bytes(ffi.buffer(ffi.cast("char *", m) + ffi.sizeof("struct message"), m.body_bytes))
            one = Request(m.kind, m.conn, m.slot, m.topic, m.id, m.pri, m.delay_ns, m.ttr_ns, body, m.flags, m.several)
            if m.kind == lib.MSG_PUBLISH_EACH:
                messages.append(each_of(one))
            else:
                messages.append(each_request_of(one) if m.kind == lib.MSG_REQUEST_EACH else [one])
        lib.channel_release(self._channel)
        lib.channel_publish(self._channel)
        return messages

    def begin(self, messages: int, parts: int) -> None:
        """Receives so many, and does all of them but the last, of which it does so many parts."""
        for _ in range(messages):
            assert self.receive() != ffi.NULL
        lib.channel_note(self._channel, True, parts)
        lib.channel_release_noted(self._channel)

    def refuse(self) -> None:
        """Receives a message, refuses it and notes that; it neither publishes the answer nor gives the message back."""
        m = self.receive()
        told = {"kind": lib.MSG_REFUSED, "status": lib.STATUS_NOT_FOUND, "conn": m.conn, "id": m.id, "refused": m.kind}
        lib.channel_send(self._channel, ffi.new("struct message *", told), ffi.NULL, 0)
        lib.channel_note(self._channel, False, 0)

    def take(self, limit: int = 1 << 30) -> list[Request]:
        return [request for message in self.messages(limit) for request in message]

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
        self.gave_way = 0
        self.beanstalk = BeanstalkServing(
            self.acceptor, {"max-job-size": 65535}, broker, lambda: STARTED_NS + 5 * SECOND
        )
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
                elif upcall.kind == engine.GAVE_WAY:
                    self.gave_way += upcall.conn
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
