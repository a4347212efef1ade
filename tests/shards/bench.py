"""A worker whose acceptor the test is: it says by ring messages what clients want, and time is what it says."""

from __future__ import annotations

import errno
import os
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf import ring
from mq_shards.shards.dump import Record, decode_segment
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.segment_header import Header, decode_header, encode_header, lacks_header

SECOND = 1_000_000_000
FOREVER = 2**64 - 1
SHARDS = 4
REQUEST = struct.Struct("<BBHIIIQIIQQ")

OPEN, CLOSE, USE, WATCH, IGNORE, CANCEL, RETURN, GONE = range(1, 9)
(
    PUBLISH,
    RESERVE,
    PROBE,
    TAKE,
    RESERVE_ID,
    DELETE,
    RELEASE,
    BURY,
    TOUCH,
    PEEK_ID,
    PEEK_READY,
    PEEK_DELAYED,
    PEEK_BURIED,
    KICK,
    KICK_ID,
    PAUSE,
    STATS_ID,
    STATS_TOPIC,
    LIST,
) = range(32, 51)
OK, NONE, NOT_FOUND, TIMED_OUT, DEADLINE_SOON, CANCELLED, NO_SPACE, FAILED = range(8)


class Answer(NamedTuple):
    conn: int
    slot: int
    kind: int
    status: int
    id: int
    pri: int
    body: bytes
    holds_none: bool
    topic: int = 0
    seq: int = 0  # of a delivery, and of what tells of a place
    delay: int = 0  # or a time, or an incarnation


class Bench:
    """A worker that owns all shards, in memory, with channels to `acceptors` of which the test plays all."""

    def __init__(self, acceptors: int = 1, ring_bytes: int = 1 << 20, piece: int = 0) -> None:
        """`piece`: what a turn touches at most (worker_limit_turn); 0: as many as usual."""
        self.now = 1000 * SECOND
        self.wall = 1_700_000_000 * SECOND
        self.board = os.memfd_create("board")
        assert lib.board_format(self.board)
        self.segments: dict[int, list[tuple[int, int]]] = {}
        self.names: dict[tuple[int, int], int] = {}  # by shard and segment: where copies of names are kept
        self.acceptors = acceptors
        self.ring_bytes = ring_bytes
        self.piece = piece
        self.worker: Any = None
        self.channels: list[Any] = []
        self.next_slot = 1
        self.lost_end = False  # whether the next start is one after a power failure
        self.read_from: dict[int, int] = {}  # by shard: the first segment that the next start reads
        self.began_anew = 0  # how often a start could not pass over what it was told to
        self.uses_heads = False  # whether starts read the heads of sealed segments
        self.kept_heads: dict[tuple[int, int], bytes] = {}  # those that were written before
        self.headed = 0  # of how many the last one did
        self.heads: list[int] = []  # the files of these
        self.start()

    def start(self) -> None:
        self.wake = os.eventfd(0, os.EFD_NONBLOCK)
        self.worker = lib.worker_new(0, 1, SHARDS, self.board, self.wake, 12345)
        assert self.worker != ffi.NULL
        if self.piece:
            lib.worker_limit_turn(self.worker, self.piece)
        self.found = ffi.new("struct replay *")
        self.headed = 0
        for shard in range(SHARDS):
            assert lib.worker_own(self.worker, shard)
            # A segment that nothing was written to has no header yet; the store drops such files in the same way.
            there = self.segments.get(shard, [])
            last = max((n for n, _ in there), default=0)
            kept = [(n, fd) for n, fd in there if not lacks_header(fd, is_last=n == last) or self.drop(shard, n, fd)]
            self.segments[shard] = kept
            for number, fd in kept:
                assert lib.worker_add_segment(self.worker, shard, os.dup(fd), number, 64 << 20, False, self.wall)
                if (shard, number) in self.names:
                    assert lib.worker_keep_copies(self.worker, shard, os.dup(self.names[shard, number]), number)
            self.headed += self.use_heads(shard, kept) if self.uses_heads else 0
            lib.worker_read_from(self.worker, shard, self.read_from.get(shard, 0))
            if self.lost_end:
                lib.worker_lost_end(self.worker, shard)
            if not lib.worker_replay(self.worker, shard, self.found, self.now, self.wall):
                self.begin_anew(ffi.errno)
                return
        lib.worker_recovered(self.worker)
        self.supply()
        self.noted = bool(lib.worker_note_ends(self.worker) and (not self.lost_end or lib.worker_flush(self.worker)))
        self.lost_end = False
        self.channels = []
        for acceptor in range(self.acceptors):
            there, back = ring.create(self.ring_bytes, 1), ring.create(self.ring_bytes, 1)
            self.channels.append(lib.channel_open(there, back, -1, 1 << 30))
            assert lib.worker_peer(self.worker, acceptor, back, there, -1)
            os.close(there)
            os.close(back)

    def begin_anew(self, why: int) -> None:
        """A start that passes something over has found damage: the next reads all there is."""
        assert why == errno.EAGAIN and self.read_from
        self.stop()
        read_from, self.read_from, self.began_anew = self.read_from, {}, self.began_anew + 1
        self.start()
        self.read_from = read_from

    def use_heads(self, shard: int, kept: list[tuple[int, int]]) -> int:
        used = 0
        for (number, fd), (_, next_fd) in pairwise(kept):
            heads = os.memfd_create("heads")
            os.write(heads, self.kept_heads.get((shard, number), b""))
            if not self.kept_heads:
                write_heads(fd, next_fd, heads)
            if number >= self.read_from.get(shard, 0):
                used += lib.worker_use_heads(self.worker, shard, heads, number) == lib.HEADS_FOUND
            self.heads.append(heads)
        return used

    def drop(self, shard: int, number: int, fd: int) -> None:
        os.close(fd)
        if (shard, number) in self.names:
            os.close(self.names.pop((shard, number)))

    def supply(self) -> None:
        size, number = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        while (shard := lib.worker_wanting_shard(self.worker, size, number)) >= 0:
            fd = os.memfd_create("segment")
            self.segments[shard].append((number[0], fd))
            assert lib.worker_add_segment(self.worker, shard, os.dup(fd), number[0], size[0], True, self.wall)
            self.names[shard, number[0]] = os.memfd_create("names")
            assert lib.worker_keep_copies(self.worker, shard, os.dup(self.names[shard, number[0]]), number[0])

    def restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        for channel in self.channels:
            lib.channel_close(channel)
        self.channels = []
        if self.worker:
            lib.worker_free(self.worker)
            self.worker = None
            for fd in (self.wake, *self.heads):
                os.close(fd)
            self.heads = []

    def dispose(self) -> None:
        self.stop()
        for fd in [self.board, *(fd for kept in self.segments.values() for _, fd in kept), *self.names.values()]:
            os.close(fd)

    def send(
        self,
        kind: int,
        conn: int = 1,
        *,
        acceptor: int = 0,
        topic: int = 0,
        id: int = 0,
        pri: int = 0,
        delay: int = 0,
        ttr: int = 60 * SECOND,
        body: bytes = b"",
        flags: int = 0,
    ) -> int:
        slot, self.next_slot = self.next_slot, self.next_slot + 1
        head = REQUEST.pack(kind, 0, flags, conn, slot, topic, id, pri, len(body), delay, ttr)
        message = ffi.new("struct message *")
        ffi.memmove(message, head, len(head))
        lib.channel_send(self.channels[acceptor], message, body, len(body))
        return slot

    def turn(self, seconds: float = 0, acceptor: int = 0) -> list[Answer]:
        for channel in self.channels:
            lib.channel_publish(channel)
        lib.worker_turn(self.worker, self.now, self.wall)
        self.now += int(seconds * SECOND)
        self.wall += int(seconds * SECOND)
        turns, busy = 0, True
        while turns < 3 or (self.piece and busy and turns < 100):
            busy = lib.worker_turn(self.worker, self.now, self.wall)
            self.supply()
            turns += 1
        return self.receive(acceptor)

    def receive(self, acceptor: int = 0) -> list[Answer]:
        answers, channel = [], self.channels[acceptor]
        while m := lib.channel_receive(channel):
            whole = ffi.buffer(m, REQUEST.size + m.body_bytes)
            kind, status, flags, conn, slot, topic, id, pri, _, delay, seq = REQUEST.unpack_from(whole)
            body = whole[REQUEST.size :]
            answers.append(Answer(conn, slot, kind, status, id, pri, body, bool(flags & 1), topic, seq, delay))
        lib.channel_release(channel)
        return answers

    def ask(self, kind: int, conn: int = 1, **fields: Any) -> Answer:  # noqa: ANN401
        slot = self.send(kind, conn, **fields)
        answers = self.turn(acceptor=fields.get("acceptor", 0))
        assert [a.slot for a in answers] == [slot]
        return answers[0]

    def open(self, name: str, number: int, shard: int = 0, flags: int = 0) -> None:
        self.send(OPEN, topic=number, id=shard, body=name.encode(), flags=flags)


def write_heads(fd: int, next_fd: int, heads: int) -> int:
    """Writes the heads of a sealed segment, however much they take."""
    end = decode_header(os.pread(next_fd, SEGMENT_HEADER_BYTES, 0)).previous_end
    return int(lib.heads_write(fd, heads, end, 1 << 30))


def go_on_in_a_new_segment(bench: Bench) -> None:
    active = lib.worker_active_segment(bench.worker, 0)
    while lib.worker_active_segment(bench.worker, 0) == active:
        lib.worker_roll(bench.worker, 0)
        bench.turn()


def lose_segments(bench: Bench, count: int) -> None:
    """Restarts as if so many segments at the end of shard 0's log had been deleted: as the store then does."""
    bench.stop()
    number = max((n for n, fd in bench.segments[0] if not lacks_header(fd, is_last=True)), default=0) + count
    bench.segments[0] = [
        (n, fd) for n, fd in bench.segments[0] if not lacks_header(fd, is_last=True) or bench.drop(0, n, fd)
    ]
    for at in range(bench.segments[0][-1][0] + 1 if bench.segments[0] else number, number + 1):
        fd = os.memfd_create("segment")
        os.write(fd, encode_header(Header(0, SHARDS, at, bench.wall, missing=1)))
        bench.segments[0].append((at, fd))
    bench.start()


def drop_all_but_the_active(bench: Bench) -> None:
    for _ in range(lib.worker_dead_segments(bench.worker, 0)):
        assert lib.worker_drop_first(bench.worker, 0)
        os.close(bench.segments[0].pop(0)[1])
    assert bench.segments[0][0][0] == lib.worker_active_segment(bench.worker, 0)


def names_in_log(bench: Bench) -> set[bytes]:
    records = [r for _, fd in bench.segments[0] for r in decode_segment(Path(f"/proc/self/fd/{fd}"))]
    return {bytes(r.body) for r in records if isinstance(r, Record) and r.kind == 1}
