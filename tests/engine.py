"""The whole message path in one process: an acceptor, workers and the rings between them, with time passed in.

Nothing runs by itself: `send` and `advance` turn the engines until nothing happens any more, so a script has one
outcome. The processes' own loops, signals and control sockets are not here; tests with real processes have those.

Connections are beanstalkd's unless they are said to be NSQ's. What nsqd's HTTP does is asked of the workers directly.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
from typing import Any, Final

from mq_shards.acceptor import engine as acceptor_engine
from mq_shards.acceptor.engine import LOCAL, Answer, Upcall, WorkerRequest, protocol_number
from mq_shards.acceptor.engine import Engine as AcceptorEngine
from mq_shards.acceptor.protocol import Broker
from mq_shards.acceptor.protocols.beanstalk.serving import BeanstalkServing
from mq_shards.acceptor.protocols.nsq.serving import NsqServing
from mq_shards.csrc._core import ffi, lib
from mq_shards.gateway.catalog import Topic, decode
from mq_shards.ringbuf import ring
from mq_shards.supervisor.options.options import default_settings

BEANSTALK: Final = protocol_number("beanstalk")
NSQ: Final = protocol_number("nsq")
SECOND: Final = 1_000_000_000
SEGMENT_BYTES: Final = 64 << 20
MAX_JOB_BYTES: Final = 65535
# Where a ring has its two indices (struct ring_shared, csrc/ringbuf/ring.h), in 64-bit words.
TAIL, HEAD = 128 // 8, 256 // 8
# Turns without any sign of life after which there is none to come: of a long command input is taken bit by bit.
QUIET_TURNS: Final = 3


class Engine:
    """`workers` workers that share `shards` shards, and one acceptor."""

    def __init__(self, workers: int = 1, shards: int = 8, ring_bytes: int = 1 << 20, piece: int = 0) -> None:
        """`piece`: what a turn touches at most (worker_limit_turn); 0: as many as usual."""
        self.now_ns = 1000 * SECOND
        self.wall_ns = 1_700_000_000 * SECOND
        self._shards = shards
        self._count = workers
        self._ring_bytes = ring_bytes
        self._piece = piece
        self._board = os.memfd_create("board")
        assert lib.board_format(self._board)
        self._segments: dict[int, list[tuple[int, int]]] = {shard: [] for shard in range(shards)}
        self._sockets: dict[int, socket.socket] = {}
        self._by_fd: dict[int, int] = {}
        self._readable = select.poll()
        self._rings: list[tuple[memoryview, memoryview]] = []
        self._size, self._number = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        self._received: dict[int, bytearray] = {}
        self._numbers: dict[int, int] = {}
        self._ended: set[int] = set()
        self._next = 0
        self._start()

    # --- what a test calls ------------------------------------------------------------------------------------------

    def connect(self, protocol: int = BEANSTALK) -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._next += 1
        self._numbers[self._next] = self._acceptor.adopt(theirs.detach(), protocol)
        self._sockets[self._next] = ours
        self._by_fd[ours.fileno()] = self._next
        self._readable.register(ours, select.POLLIN)
        self._received[self._next] = bytearray()
        self._run_until_quiet()
        return self._next

    def number(self, conn: int) -> int:
        """What the acceptor, and so a worker, calls it."""
        return self._numbers[conn]

    def send(self, conn: int, data: bytes) -> None:
        self.write(conn, data)
        self._run_until_quiet()

    def write(self, conn: int, data: bytes) -> None:
        """Sends without a turn, if the socket takes that much: what several write arrives at once."""
        while data:
            try:
                data = data[self._sockets[conn].send(data) :]
            except BlockingIOError:
                self._run_until_quiet()

    def settle(self) -> None:
        self._run_until_quiet()

    def is_ended(self, conn: int) -> bool:
        """The broker has closed it."""
        return conn in self._ended

    def received(self, conn: int) -> bytes:
        """Everything that came since the last call."""
        data = bytes(self._received[conn])
        self._received[conn].clear()
        return data

    def half_close(self, conn: int) -> None:
        self._sockets[conn].shutdown(socket.SHUT_WR)
        self._run_until_quiet()

    def close(self, conn: int) -> None:
        self._close_socket(conn)
        self._run_until_quiet()

    def advance(self, seconds: float) -> None:
        """Lets time pass, stopping at each moment at which something is due."""
        until = self.now_ns + int(seconds * SECOND)
        while (due := self.next_ns()) < until:
            self.advance_to(due)
        self.advance_to(until)

    def next_ns(self) -> int:
        """When a worker has something to do. Of an acceptor's heartbeats nobody is told."""
        return min(lib.worker_next_ns(w) for w in self._workers)

    def advance_to(self, now_ns: int) -> None:
        self._set_time(max(now_ns, self.now_ns))
        self._run_until_quiet()

    def change(self, what: int, topic: bytes, channel: bytes = b"") -> int:
        """The status of a MSG_CHANGE."""
        shard = self._acceptor.shard_of_name(topic)
        body = topic + b"\n" + channel if channel else topic
        flags = lib.MSG_CHANNEL_EPHEMERAL if channel.endswith(b"#ephemeral") else 0
        request = self._request(shard % self._count, lib.MSG_CHANGE, id=shard, pri=what, body=body, flags=flags)
        return self._answer(request).status

    def catalog(self) -> dict[str, Topic]:
        """With consumers, of all workers."""
        slots = [self._request(worker, lib.MSG_CATALOG, pri=1) for worker in range(self._count)]
        return {topic.name: topic for slot in slots for topic in decode(self._answer(slot).body)}

    def catalog_versions(self) -> tuple[int, ...]:
        return self._acceptor.catalog_versions()

    def names_versions(self) -> tuple[int, ...]:
        return self._acceptor.names_versions()

    def oldest(self, topic: bytes, channel: bytes = b"") -> int | None:
        """When it was published, by the wall clock."""
        body = topic + b"\n" + channel if channel else topic
        answer = self._answer(self._request(self.worker_of(topic), lib.MSG_OLDEST, body=body))
        return answer.incarnation if answer.status == lib.STATUS_OK else None

    def shard_of(self, topic: bytes) -> int:
        return self._acceptor.shard_of_name(topic)

    def worker_of(self, topic: bytes) -> int:
        return self._acceptor.worker_of_name(topic)

    def rewrite_log(self, shard: int) -> None:
        """Goes on in a new segment, moves what is alive in the others there, and drops them."""
        worker = self._workers[shard % self._count]
        if not lib.worker_active_segment(worker, shard):
            return
        for _ in range(2):
            lib.worker_roll(worker, shard)
            self._supply(worker)
        for _ in range(100):
            if lib.worker_compact(worker, shard, 1 << 20):
                break
            self._supply(worker)
        self._run_until_quiet()
        while lib.worker_dead_segments(worker, shard):
            assert lib.worker_drop_first(worker, shard)
            _, fd = self._segments[shard].pop(0)
            os.close(fd)

    def restart(self) -> None:
        """As kill -9 of all processes, and a start from the logs."""
        self._stop()
        self._start()

    def restart_acceptor(self) -> None:
        """As kill -9 of the acceptor; the workers go on."""
        self._close_acceptor()
        self._start_acceptor()
        for index in range(self._count):
            self._attach(index)
        self._run_until_quiet()

    def restart_worker(self, index: int) -> None:
        """As kill -9 of one worker; connections stay open."""
        self._acceptor.peer_gone(index)
        lib.worker_free(self._workers[index])
        os.close(self._wakes[index])
        self._start_worker(index)
        self._run_until_quiet()

    def dispose(self) -> None:
        self._stop()
        os.close(self._board)
        for kept in self._segments.values():
            for _, fd in kept:
                os.close(fd)

    # --- how it runs ------------------------------------------------------------------------------------------------

    def _set_time(self, now_ns: int) -> None:
        self.wall_ns += now_ns - self.now_ns
        self.now_ns = now_ns

    def _start(self) -> None:
        self._start_acceptor()
        self._workers: list[Any] = [None] * self._count
        self._wakes = [0] * self._count
        for index in range(self._count):
            self._start_worker(index)

    def _start_acceptor(self) -> None:
        self._acceptor_wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._acceptor = AcceptorEngine(0, self._count, self._shards, self._board, self._acceptor_wake)
        broker = Broker("0123456789abcdef", self.wall_ns)
        tubes = {"max-job-size": MAX_JOB_BYTES}
        self._beanstalk = BeanstalkServing(self._acceptor, tubes, broker, lambda: self.wall_ns)
        settings = default_settings()["nsq"]
        self._nsq = NsqServing(
            self._acceptor, settings, broker, now_ns=lambda: self.now_ns, wall_ns=lambda: self.wall_ns
        )
        self._acceptor.turn(self.now_ns)
        self._local = self._acceptor.local()
        self._answers: dict[int, Answer] = {}

    def _close_acceptor(self) -> None:
        for conn in list(self._sockets):
            self._close_socket(conn)
        self._nsq.close()
        self._acceptor.close()
        os.close(self._acceptor_wake)

    def _start_worker(self, index: int) -> None:
        wake = self._wakes[index] = os.eventfd(0, os.EFD_NONBLOCK)
        worker = lib.worker_new(index, self._count, self._shards, self._board, wake, 42)
        assert worker != ffi.NULL
        if self._piece:
            lib.worker_limit_turn(worker, self._piece)
        self._workers[index] = worker
        found = ffi.new("struct replay *")
        for shard in range(index, self._shards, self._count):
            assert lib.worker_own(worker, shard)
            # What was never written to has no header; shards/store.py drops such segments as well.
            kept = [(n, fd) for n, fd in self._segments[shard] if os.fstat(fd).st_size or os.close(fd)]
            self._segments[shard] = kept
            for number, fd in kept:
                assert lib.worker_add_segment(worker, shard, os.dup(fd), number, SEGMENT_BYTES, False, self.wall_ns)
            assert lib.worker_replay(worker, shard, found, self.now_ns, self.wall_ns)
        assert found.damages == 0
        lib.worker_recovered(worker)
        self._supply(worker)
        self._attach(index)

    def _attach(self, index: int) -> None:
        """New rings between a worker and the acceptor."""
        requests, replies = (ring.create(self._ring_bytes, 1) for _ in range(2))
        assert lib.worker_peer(self._workers[index], 0, replies, requests, self._acceptor_wake)
        self._acceptor.peer(index, requests, replies, self._wakes[index])
        self._rings[index : index + 1] = [(_indices(requests), _indices(replies))]
        os.close(requests)
        os.close(replies)

    def _stop(self) -> None:
        self._close_acceptor()
        for worker, wake in zip(self._workers, self._wakes, strict=True):
            lib.worker_free(worker)
            os.close(wake)

    def _close_socket(self, conn: int) -> None:
        sock = self._sockets.pop(conn)
        del self._by_fd[sock.fileno()]
        if conn not in self._ended:
            self._readable.unregister(sock)
        sock.close()

    def _supply(self, worker: Any) -> None:  # noqa: ANN401
        size, number = self._size, self._number
        while (shard := lib.worker_wanting_shard(worker, size, number)) >= 0:
            fd = os.memfd_create("segment")
            self._segments[shard].append((number[0], fd))
            assert lib.worker_add_segment(worker, shard, os.dup(fd), number[0], size[0], True, self.wall_ns)

    def _run_until_quiet(self) -> None:
        quiet = 0
        places: list[int] = []
        while quiet < QUIET_TURNS:
            alive = self._acceptor.turn(self.now_ns) > 0
            self._nsq.expire()
            for upcall in self._acceptor.upcalls():
                alive = True
                self._serve(upcall)
            for worker in self._workers:
                alive |= lib.worker_turn(worker, self.now_ns, self.wall_ns)
                self._supply(worker)
            alive |= self._drain_sockets()
            before, places = places, [ring[at] for pair in self._rings for ring in pair for at in (TAIL, HEAD)]
            alive |= before != places
            quiet = 0 if alive else quiet + 1

    def _serve(self, upcall: Upcall) -> None:
        assert upcall.kind != acceptor_engine.BROKEN, upcall
        if upcall.protocol == LOCAL:
            assert upcall.answer is not None
            self._answers[upcall.answer.slot] = upcall.answer
            return
        protocol = self._nsq if upcall.protocol == NSQ else self._beanstalk
        if upcall.kind == acceptor_engine.COMMAND:
            protocol.command(upcall.conn, upcall.line)
        elif upcall.kind == acceptor_engine.ANSWER:
            assert upcall.answer is not None
            protocol.answer(upcall.conn, upcall.answer)
        elif upcall.kind == acceptor_engine.CLOSED:
            protocol.closed(upcall.conn)
        elif upcall.kind == acceptor_engine.INPUT:
            self._nsq.input(upcall.conn, upcall.line)
        elif upcall.kind == acceptor_engine.OUTPUT:
            self._nsq.output(upcall.conn, upcall.line)
        else:
            raise AssertionError(upcall)

    def _request(self, worker: int, kind: int, *, id: int = 0, pri: int = 0, flags: int = 0, body: bytes = b"") -> int:
        request = WorkerRequest(kind, id=id, pri=pri, flags=flags, body=body)
        slot = self._acceptor.request(worker, self._local, request)
        assert slot >= 0
        return slot

    def _answer(self, slot: int) -> Answer:
        if slot not in self._answers:
            self._run_until_quiet()
        return self._answers.pop(slot)

    def _drain_sockets(self) -> bool:
        alive = False
        for fd, _ in self._readable.poll(0):
            conn = self._by_fd[fd]
            sock = self._sockets[conn]
            while True:
                try:
                    data = sock.recv(1 << 16)
                except BlockingIOError:
                    break
                except ConnectionResetError:
                    data = b""
                if not data:
                    self._ended.add(conn)
                    self._readable.unregister(sock)
                    break
                alive = True
                self._received[conn] += data
        return alive


def _indices(ring_fd: int) -> memoryview:
    """The words of a ring's header: whether anything moves in it."""
    return memoryview(mmap.mmap(ring_fd, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ)).cast("Q")
