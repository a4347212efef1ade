"""The whole message path in one process: an acceptor, workers and the rings between them, with time passed in.

Nothing runs by itself: `send` and `advance` turn the engines until nothing happens any more, so a script has one
outcome. The processes' own loops, signals and control sockets are not here; tests with real processes have those.
"""

from __future__ import annotations

import os
import socket
from typing import Any, Final

from csrc._core import ffi, lib

from acceptor import engine as acceptor_engine
from acceptor.engine import BEANSTALK
from acceptor.engine import Engine as AcceptorEngine
from acceptor.protocols.beanstalk import Beanstalk, Broker
from ringbuf import ring

SECOND: Final = 1_000_000_000
SEGMENT_BYTES: Final = 64 << 20
MAX_JOB_BYTES: Final = 65535
# Turns without any sign of life after which there is none to come: a reserve over several workers takes a few.
QUIET_TURNS: Final = 3


class Engine:
    """`workers` workers that share `shards` shards, and one acceptor."""

    def __init__(self, workers: int = 1, shards: int = 8, ring_bytes: int = 1 << 20) -> None:
        self.now_ns = 1000 * SECOND
        self.wall_ns = 1_700_000_000 * SECOND
        self._shards = shards
        self._count = workers
        self._ring_bytes = ring_bytes
        self._board = os.memfd_create("board")
        assert lib.board_format(self._board)
        self._segments: dict[int, list[tuple[int, int]]] = {shard: [] for shard in range(shards)}
        self._sockets: dict[int, socket.socket] = {}
        self._received: dict[int, bytearray] = {}
        self._next = 0
        self._start()

    # --- what a test calls ------------------------------------------------------------------------------------------

    def connect(self) -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._acceptor.adopt(theirs.detach(), BEANSTALK)
        self._next += 1
        self._sockets[self._next] = ours
        self._received[self._next] = bytearray()
        self._run_until_quiet()
        return self._next

    def send(self, conn: int, data: bytes) -> None:
        while data:
            try:
                data = data[self._sockets[conn].send(data) :]
            except BlockingIOError:
                self._run_until_quiet()
        self._run_until_quiet()

    def received(self, conn: int) -> bytes:
        """Everything that came since the last call."""
        data = bytes(self._received[conn])
        self._received[conn].clear()
        return data

    def half_close(self, conn: int) -> None:
        self._sockets[conn].shutdown(socket.SHUT_WR)
        self._run_until_quiet()

    def close(self, conn: int) -> None:
        self._sockets.pop(conn).close()
        self._run_until_quiet()

    def advance(self, seconds: float) -> None:
        """Lets time pass, stopping at each moment at which something is due."""
        until = self.now_ns + int(seconds * SECOND)
        while (due := min(lib.worker_next_ns(w) for w in self._workers)) < until:
            self._set_time(max(due, self.now_ns))
            self._run_until_quiet()
        self._set_time(until)
        self._run_until_quiet()

    def restart(self) -> None:
        """As kill -9 of all processes, and a start from the logs."""
        self._stop()
        self._start()

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
        self._acceptor_wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._acceptor = AcceptorEngine(0, self._count, self._shards, self._board, self._acceptor_wake)
        broker = Broker("0123456789abcdef", self.wall_ns, MAX_JOB_BYTES)
        self._beanstalk = Beanstalk(self._acceptor, broker, lambda: self.wall_ns)
        self._workers: list[Any] = [None] * self._count
        self._wakes = [0] * self._count
        for index in range(self._count):
            self._start_worker(index)

    def _start_worker(self, index: int) -> None:
        wake = self._wakes[index] = os.eventfd(0, os.EFD_NONBLOCK)
        worker = lib.worker_new(index, self._count, self._shards, self._board, wake, 42)
        assert worker != ffi.NULL
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
        requests, replies = (ring.create(self._ring_bytes, 1) for _ in range(2))
        assert lib.worker_peer(worker, 0, replies, requests, self._acceptor_wake)
        self._acceptor.peer(index, requests, replies, wake)
        os.close(requests)
        os.close(replies)

    def _stop(self) -> None:
        for conn in list(self._sockets):
            self._sockets.pop(conn).close()
        self._acceptor.close()
        os.close(self._acceptor_wake)
        for worker, wake in zip(self._workers, self._wakes, strict=True):
            lib.worker_free(worker)
            os.close(wake)

    def _supply(self, worker: Any) -> None:  # noqa: ANN401
        size, number = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        while (shard := lib.worker_wanting_shard(worker, size, number)) >= 0:
            fd = os.memfd_create("segment")
            self._segments[shard].append((number[0], fd))
            assert lib.worker_add_segment(worker, shard, os.dup(fd), number[0], size[0], True, self.wall_ns)

    def _run_until_quiet(self) -> None:
        quiet = 0
        while quiet < QUIET_TURNS:
            alive = self._acceptor.turn() > 0
            for upcall in self._acceptor.upcalls():
                alive = True
                if upcall.kind == acceptor_engine.COMMAND:
                    self._beanstalk.command(upcall.conn, upcall.line)
                elif upcall.kind == acceptor_engine.ANSWER:
                    assert upcall.answer is not None
                    self._beanstalk.answer(upcall.conn, upcall.answer)
                elif upcall.kind == acceptor_engine.CLOSED:
                    self._beanstalk.closed(upcall.conn)
                else:
                    raise AssertionError(upcall)
            for worker in self._workers:
                alive |= lib.worker_turn(worker, self.now_ns, self.wall_ns)
                self._supply(worker)
            alive |= self._drain_sockets()
            quiet = 0 if alive else quiet + 1

    def _drain_sockets(self) -> bool:
        alive = False
        for conn, sock in self._sockets.items():
            while True:
                try:
                    data = sock.recv(1 << 16)
                except BlockingIOError:
                    break
                except ConnectionResetError:
                    data = b""
                if not data:
                    break
                alive = True
                self._received[conn] += data
        return alive
