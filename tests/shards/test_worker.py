"""A worker by ring messages alone: the test is the acceptor, and time is what the test says."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf import ring
from mq_shards.shards.dump import Record, decode_segment
from mq_shards.shards.segment_header import Header, encode_header
from mq_shards.shards.store import waits

SECOND = 1_000_000_000
FOREVER = 2**64 - 1
SHARDS = 4
REQUEST = struct.Struct("<BBHIIIQIIQQ")

OPEN, CLOSE, USE, WATCH, IGNORE, CANCEL, RETURN, GONE = range(1, 9)
(PUBLISH, RESERVE, PROBE, TAKE, RESERVE_ID, DELETE, RELEASE, BURY, TOUCH, PEEK_ID, PEEK_READY, PEEK_DELAYED,
 PEEK_BURIED, KICK, KICK_ID, PAUSE, STATS_ID, STATS_TOPIC, LIST) = range(32, 51)
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
        self.start()

    def start(self) -> None:
        self.wake = os.eventfd(0, os.EFD_NONBLOCK)
        self.worker = lib.worker_new(0, 1, SHARDS, self.board, self.wake, 12345)
        assert self.worker != ffi.NULL
        if self.piece:
            lib.worker_limit_turn(self.worker, self.piece)
        self.found = ffi.new("struct replay *")
        for shard in range(SHARDS):
            assert lib.worker_own(self.worker, shard)
            # A segment that nothing was written to has no header yet; the store drops such files in the same way.
            there = self.segments.get(shard, [])
            last = max((n for n, _ in there), default=0)
            kept = [(n, fd) for n, fd in there if not waits(fd, is_last=n == last) or self.drop(shard, n, fd)]
            self.segments[shard] = kept
            for number, fd in kept:
                assert lib.worker_add_segment(self.worker, shard, os.dup(fd), number, 64 << 20, False, self.wall)
                if (shard, number) in self.names:
                    assert lib.worker_keep_copies(self.worker, shard, os.dup(self.names[shard, number]), number)
            if self.lost_end:
                lib.worker_lost_end(self.worker, shard)
            assert lib.worker_replay(self.worker, shard, self.found, self.now, self.wall)
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
            os.close(self.wake)

    def dispose(self) -> None:
        self.stop()
        for fd in [self.board, *(fd for kept in self.segments.values() for _, fd in kept), *self.names.values()]:
            os.close(fd)

    def send(self, kind: int, conn: int = 1, *, acceptor: int = 0, topic: int = 0, id: int = 0, pri: int = 0,
             delay: int = 0, ttr: int = 60 * SECOND, body: bytes = b"") -> int:
        slot, self.next_slot = self.next_slot, self.next_slot + 1
        head = REQUEST.pack(kind, 0, 0, conn, slot, topic, id, pri, len(body), delay, ttr)
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

    def open(self, name: str, number: int, shard: int = 0) -> None:
        self.send(OPEN, topic=number, id=shard, body=name.encode())


@pytest.fixture()
def bench() -> Iterator[Bench]:
    b = Bench()
    b.open("a", 1)
    b.open("b", 2, shard=1)
    b.send(WATCH, 1, topic=1)
    b.turn()
    yield b
    b.dispose()


def test_a_published_message_is_reserved_once_and_deleted(bench: Bench) -> None:
    assert bench.ask(PUBLISH, topic=1, id=4, body=b"hello").status == OK
    got = bench.ask(RESERVE)
    assert (got.status, got.id, got.body, got.holds_none) == (OK, 4, b"hello", False)
    assert bench.ask(RESERVE).status == TIMED_OUT
    gone = bench.ask(DELETE, id=4)
    assert (gone.status, gone.holds_none) == (OK, True)
    assert bench.ask(DELETE, id=4).status == NOT_FOUND


def test_priority_then_id_decides_over_all_topics_of_the_worker(bench: Bench) -> None:
    bench.send(WATCH, 1, topic=2)
    for n, (topic, shard, pri) in enumerate([(1, 0, 5), (2, 1, 5), (2, 1, 1), (1, 0, 5)], start=1):
        assert bench.ask(PUBLISH, topic=topic, id=n * SHARDS + shard, pri=pri).status == OK
    assert [bench.ask(RESERVE).id // SHARDS for _ in range(4)] == [3, 1, 2, 4]


def test_requests_behind_a_waiting_reserve_keep_their_place(bench: Bench) -> None:
    waiting = bench.send(RESERVE, 1, delay=FOREVER)
    behind = bench.send(DELETE, 1, id=400)
    assert bench.turn() == []
    put = bench.send(PUBLISH, 2, topic=1, id=8)
    answers = bench.turn()
    assert [a.slot for a in answers if a.conn == 1] == [waiting, behind]
    assert [a.slot for a in answers if a.conn == 2] == [put]


def test_waiting_clients_are_served_first_come_first_served(bench: Bench) -> None:
    slots = []
    for conn in (7, 3, 5):
        bench.send(WATCH, conn, topic=1)
        slots.append(bench.send(RESERVE, conn, delay=FOREVER))
    bench.turn()
    for n in (1, 2, 3):
        bench.send(PUBLISH, 9, topic=1, id=n * SHARDS)
    served = [a.slot for a in bench.turn() if a.kind == RESERVE]
    assert served == slots


def test_a_wait_times_out_and_the_margin_says_deadline_soon(bench: Bench) -> None:
    slot = bench.send(RESERVE, delay=2 * SECOND)
    assert bench.turn(1.9) == []
    assert [(a.slot, a.status) for a in bench.turn(0.2)] == [(slot, TIMED_OUT)]
    bench.ask(PUBLISH, topic=1, id=4, ttr=5 * SECOND)
    bench.ask(RESERVE)
    slot = bench.send(RESERVE, delay=FOREVER)
    assert bench.turn(3.9) == []
    assert [(a.slot, a.status) for a in bench.turn(0.2)] == [(slot, DEADLINE_SOON)]
    assert bench.ask(RESERVE).status == DEADLINE_SOON
    bench.turn(1)
    assert bench.ask(RESERVE).id == 4


def test_a_closed_connection_gives_back_what_it_held(bench: Bench) -> None:
    bench.ask(PUBLISH, topic=1, id=4)
    bench.ask(RESERVE)
    bench.send(WATCH, 2, topic=1)
    slot = bench.send(RESERVE, 2, delay=FOREVER)
    assert bench.turn() == []
    bench.send(GONE, 1)
    assert [(a.conn, a.slot, a.id) for a in bench.turn()] == [(2, slot, 4)]


def test_cancel_and_return_leave_no_trace(bench: Bench) -> None:
    slot = bench.send(RESERVE, delay=FOREVER)
    bench.turn()
    cancel = REQUEST.pack(CANCEL, 0, 0, 1, slot, 0, 0, 0, 0, 0, 0)
    message = ffi.new("struct message *")
    ffi.memmove(message, cancel, len(cancel))
    lib.channel_send(bench.channels[0], message, b"", 0)
    assert [(a.slot, a.status) for a in bench.turn()] == [(slot, CANCELLED)]
    bench.ask(PUBLISH, topic=1, id=4)
    assert bench.ask(RESERVE).id == 4
    bench.send(RETURN, id=4)
    stats = bench.ask(STATS_ID, id=4)
    assert struct.unpack_from("<I", stats.body, 52)[0] == 0  # reserves
    assert bench.ask(RESERVE).id == 4


def test_take_is_bounded_by_the_second_best(bench: Bench) -> None:
    bench.ask(PUBLISH, topic=1, id=8, pri=10)
    assert (bench.ask(PROBE).status, bench.ask(PROBE).id) == (OK, 8)
    assert bench.ask(TAKE, pri=10, id=7).status == NONE
    assert bench.ask(TAKE, pri=10, id=9).status == OK
    assert bench.ask(PROBE).status == NONE


def test_every_state_survives_a_restart(bench: Bench) -> None:
    for n in range(1, 7):
        assert bench.ask(PUBLISH, topic=1, id=n * SHARDS, pri=n, body=b"%d" % n).status == OK
    for _ in range(4):
        bench.ask(RESERVE)
    assert bench.ask(DELETE, id=1 * SHARDS).status == OK
    assert bench.ask(BURY, id=2 * SHARDS, pri=20).status == OK
    assert bench.ask(RELEASE, id=3 * SHARDS, pri=30, delay=10 * SECOND).status == OK
    bench.restart()
    assert (bench.found.jobs, bench.found.damages) == (5, 0)
    bench.open("a", 1)
    bench.send(WATCH, 1, topic=1)
    assert [bench.ask(RESERVE).body for _ in range(3)] == [b"4", b"5", b"6"]
    assert bench.ask(PEEK_BURIED, topic=1).body == b"2"
    slot = bench.send(RESERVE, delay=FOREVER)
    assert bench.turn(9.9) == []
    assert [(a.slot, a.body) for a in bench.turn(0.2)] == [(slot, b"3")]
    assert bench.ask(KICK, topic=1, id=100).id == 1
    assert bench.ask(RESERVE).pri == 20


def test_a_topic_without_jobs_or_interest_is_not_listed_and_keeps_counting(bench: Bench) -> None:
    bench.ask(PUBLISH, topic=2, id=5)
    assert bench.ask(LIST).body.split() == [b"a", b"b"] or bench.ask(LIST).body.split() == [b"b", b"a"]
    bench.ask(DELETE, id=5)
    bench.send(CLOSE, topic=2)
    assert bench.ask(LIST).body.split() == [b"a"]
    assert bench.ask(STATS_TOPIC, body=b"b").status == NOT_FOUND
    bench.restart()
    assert bench.ask(LIST).body == b""


def test_a_million_jobs_cost_what_was_promised_and_are_recovered_quickly(bench: Bench) -> None:
    def resident() -> int:
        with Path("/proc/self/status").open() as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

    count = 200_000
    body = b"x" * 200
    bench.ask(PUBLISH, topic=1, id=SHARDS, body=body)
    before = resident()
    for n in range(2, count + 2):
        bench.send(PUBLISH, topic=1, id=n * SHARDS, body=body)
        if n % 2000 == 0:
            assert all(a.status == OK for a in bench.turn())
    bench.turn()
    assert (resident() - before) / count < 100
    started = time.process_time()
    bench.restart()
    assert bench.found.jobs == count + 1
    assert time.process_time() - started < 2


def fill_a_segment(bench: Bench) -> list[int]:
    """Publishes until the log goes on in a second segment; the ids."""
    body = bytes(60_000)
    ids = []
    while lib.worker_active_segment(bench.worker, 0) < 2:
        ids.append((len(ids) + 1) * SHARDS)
        assert bench.ask(PUBLISH, topic=1, id=ids[-1], pri=len(ids), body=body).status == OK
    return ids


def test_a_publish_that_needs_the_next_segment_waits_for_it(bench: Bench) -> None:
    bench.supply = lambda: None  # type: ignore[method-assign]
    body = bytes(60_000)
    sent = answered = 0
    while sent == answered:
        bench.send(PUBLISH, topic=1, id=(sent + 1) * SHARDS, body=body)
        sent += 1
        answered += len(bench.turn())
        assert sent < 3000
    for _ in range(5):
        bench.send(PUBLISH, topic=1, id=(sent + 1) * SHARDS, body=body)
        sent += 1
    assert bench.turn() == []
    Bench.supply(bench)
    assert [a.status for a in bench.turn()] == [OK] * (sent - answered)


def test_without_a_next_segment_puts_are_refused_and_the_rest_is_served(bench: Bench) -> None:
    bench.supply = lambda: lib.worker_refuse_segment(bench.worker, 0)  # type: ignore[method-assign]
    body = bytes(60_000)
    statuses = [bench.ask(PUBLISH, topic=1, id=n * SHARDS, body=body).status for n in range(1, 1300)]
    stored = statuses.count(OK)
    assert statuses == [OK] * stored + [NO_SPACE] * (len(statuses) - stored)
    assert 1000 < stored < 1200
    for _ in range(stored):
        assert bench.ask(DELETE, id=bench.ask(RESERVE).id).status == OK


def test_live_messages_of_a_dead_segment_move_with_their_state(bench: Bench) -> None:
    ids = fill_a_segment(bench)
    buried, delayed, ready = ids[5], ids[6], ids[7]
    for id in ids[:-1]:
        assert bench.ask(RESERVE_ID, id=id).status == OK
        if id == buried:
            assert bench.ask(BURY, id=id, pri=77).status == OK
        elif id == delayed:
            assert bench.ask(RELEASE, id=id, pri=88, delay=100 * SECOND).status == OK
        elif id == ready:
            assert bench.ask(RELEASE, id=id, pri=99).status == OK
        else:
            assert bench.ask(DELETE, id=id).status == OK
    total = ffi.new("uint64_t *")
    assert lib.worker_live_jobs(bench.worker, 0, 1, total) == 3
    while not lib.worker_compact(bench.worker, 0, 1 << 20):
        bench.turn()
    bench.turn()
    assert lib.worker_dead_segments(bench.worker, 0) == 1
    assert lib.worker_drop_first(bench.worker, 0)
    os.close(bench.segments[0].pop(0)[1])
    bench.restart()
    assert (bench.found.jobs, bench.found.damages) == (4, 0)
    bench.open("a", 1)
    assert bench.ask(PEEK_BURIED, topic=1).id == buried
    assert bench.ask(PEEK_DELAYED, topic=1).id == delayed
    assert (bench.ask(PEEK_READY, topic=1).id, bench.ask(PEEK_READY, topic=1).pri) == (ready, 99)
    assert len(bench.ask(PEEK_READY, topic=1).body) == 60_000
    assert bench.ask(KICK, topic=1, id=1).id == 1
    assert bench.ask(RESERVE_ID, id=buried).pri == 77


def test_an_active_segment_can_be_closed_early(bench: Bench) -> None:
    bench.ask(PUBLISH, topic=1, id=SHARDS)
    bench.ask(DELETE, id=SHARDS)
    lib.worker_roll(bench.worker, 0)  # asks for the next segment
    bench.supply()
    lib.worker_roll(bench.worker, 0)
    bench.turn()
    assert (lib.worker_active_segment(bench.worker, 0), lib.worker_dead_segments(bench.worker, 0)) == (2, 1)
    assert lib.worker_drop_first(bench.worker, 0)
    os.close(bench.segments[0].pop(0)[1])
    assert bench.ask(PUBLISH, topic=1, id=2 * SHARDS).status == OK
    bench.restart()
    assert bench.found.jobs == 1


def test_messages_of_a_topic_whose_name_is_lost_are_served_under_another(bench: Bench) -> None:
    bench.open("precious-name", 3, shard=2)
    assert bench.ask(PUBLISH, topic=3, id=SHARDS + 2, body=b"kept").status == OK
    _, fd = bench.segments[2][0]
    content = os.pread(fd, 4096, 0)
    assert content.count(b"precious-name") == 1
    copies = bench.names[2, 1]
    for damaged in ("segment", "copies too"):
        os.pwrite(fd, b"P", content.index(b"precious-name"))
        if damaged == "copies too":
            size = os.fstat(copies).st_size
            os.pwrite(copies, bytes(size), 0)
        bench.restart()
        assert (bench.found.jobs, bench.found.damages) == (1, 1)
        names = bench.ask(LIST).body.split()
        assert len(names) == 1
        lost = names[0].startswith(b"lost+found/shard-2/topic-1/")
        assert lost if damaged == "copies too" else names[0] == b"precious-name"
        messages = ffi.new("uint64_t *")
        topics = lib.worker_nameless(bench.worker, 2, messages)
        assert (topics, messages[0]) == ((1, 1) if lost else (0, 0))
        assert bench.ask(PEEK_ID, id=SHARDS + 2).body == b"kept"
    bench.open(names[0].decode(), 3, shard=2)
    bench.send(WATCH, 5, topic=3)
    assert bench.ask(RESERVE, 5).body == b"kept"


@pytest.mark.parametrize("seed", range(6))
def test_long_queues_are_served_in_order_whatever_leaves_them(bench: Bench, seed: int) -> None:
    """Hundreds of jobs, most in order and some not, some deleted from the middle, some released to other priorities."""
    draw = random.Random(seed)
    ready: dict[int, int] = {}  # id: priority
    held: dict[int, int] = {}
    count = 0
    for step in range(4000):
        grow = (step // 700) % 2 == 0
        action = draw.random()
        if action < (0.7 if grow else 0.25):
            count += 1
            pri = 100 if draw.random() < 0.9 else draw.randrange(200)
            assert bench.ask(PUBLISH, topic=1, id=count * SHARDS, pri=pri).status == OK
            ready[count * SHARDS] = pri
        elif action < 0.85 and ready:
            best = min(ready, key=lambda id: (ready[id], id))
            assert bench.ask(PROBE).id == best
            got = bench.ask(RESERVE)
            assert (got.id, got.pri) == (best, ready[best])
            held[best] = ready.pop(best)
        elif action < 0.93 and ready:
            gone = draw.choice(list(ready))
            assert bench.ask(DELETE, id=gone).status == OK
            del ready[gone]
        elif held:
            back = draw.choice(list(held))
            del held[back]
            if draw.random() < 0.5:
                assert bench.ask(DELETE, id=back).status == OK
            else:
                ready[back] = 100 if draw.random() < 0.5 else draw.randrange(200)
                assert bench.ask(RELEASE, id=back, pri=ready[back]).status == OK
        if step == 2500:
            bench.restart()
            bench.open("a", 1)
            bench.send(WATCH, 1, topic=1)
            ready |= held
            held.clear()
            assert bench.found.jobs == len(ready)
    while ready:
        best = min(ready, key=lambda id: (ready[id], id))
        assert bench.ask(RESERVE).id == best
        del ready[best]
    assert bench.ask(RESERVE).status == TIMED_OUT
    assert bench.ask(STATS_TOPIC, body=b"a").body[8:16] == bytes(8)


def test_a_backlog_of_many_pages_is_served_in_order_around_its_gaps(bench: Bench) -> None:
    draw = random.Random(1)
    left = [n * SHARDS for n in range(1, 40_001)]
    for id in left:
        bench.send(PUBLISH, topic=1, id=id)
        if id % 4000 == 0:
            bench.turn()
    gone = set(draw.sample(left, 5000)) | set(left[20_000:25_000])
    for n, id in enumerate(gone):
        bench.send(DELETE, id=id)
        if n % 1000 == 0:
            bench.turn()
    bench.turn()
    left = [id for id in left if id not in gone]
    served: list[int] = []
    for n in range(len(left)):
        bench.send(RESERVE)
        if n % 10 == 0:  # what comes meanwhile stands in line behind, or in front
            bench.send(PUBLISH, topic=1, id=(50_000 + n) * SHARDS, pri=0 if n % 20 == 0 else 1)
        if n % 500 == 0:
            served += [a.id for a in bench.turn() if a.kind == RESERVE]
    served += [a.id for a in bench.turn() if a.kind == RESERVE]
    assert [id for id in served if id < 50_000 * SHARDS] == left[: sum(id < 50_000 * SHARDS for id in served)]
    assert len(served) == len(left)


# --- topics of which the log holds nothing any more -------------------------------------------------------------------


def pass_through(bench: Bench, name: str, count: int = 1) -> list[int]:
    """Messages that are published and deleted; then the topic sleeps. Their seqs."""
    bench.open(name, 9)
    ids = [(bench.next_slot + n) * SHARDS for n in range(count)]  # slots are not given twice
    for id in ids:
        assert bench.ask(PUBLISH, topic=9, id=id).status == OK
    for id in ids:
        assert bench.ask(DELETE, id=id).status == OK
    bench.send(CLOSE, topic=9)
    bench.turn()
    records = [r for _, fd in bench.segments[0] for r in decode_segment(Path(f"/proc/self/fd/{fd}"))]
    published = [r for r in records if isinstance(r, Record) and r.kind == 3]
    return [r.seq for r in published[-count:]]


def go_on_in_a_new_segment(bench: Bench) -> None:
    active = lib.worker_active_segment(bench.worker, 0)
    while lib.worker_active_segment(bench.worker, 0) == active:
        lib.worker_roll(bench.worker, 0)
        bench.turn()


def lose_segments(bench: Bench, count: int) -> None:
    """Restarts as if so many segments at the end of shard 0's log had been deleted: as the store then does."""
    bench.stop()
    number = max((n for n, fd in bench.segments[0] if not waits(fd, is_last=True)), default=0) + count
    bench.segments[0] = [(n, fd) for n, fd in bench.segments[0] if not waits(fd, is_last=True) or bench.drop(0, n, fd)]
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


def keep(bench: Bench, names: bytes | None) -> None:
    lib.worker_keep_topics(bench.worker, 0, ffi.NULL if names is None else names, len(names or b""))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("names", [b"t", b"not here\nt", b"t\nt\n", b"\nt\nother", None])
def test_a_topic_that_is_kept_counts_on_from_its_own_seq(bench: Bench, names: bytes | None, restarted: bool) -> None:
    assert pass_through(bench, "t", 3) == [0, 1, 2]
    assert pass_through(bench, "forgotten", 7)[-1] == 6
    go_on_in_a_new_segment(bench)
    keep(bench, names)
    drop_all_but_the_active(bench)
    assert (b"t" in names_in_log(bench), b"forgotten" in names_in_log(bench)) == (True, names is None)
    assert pass_through(bench, "t") == [3]
    for seq in (4, 5, 6):
        go_on_in_a_new_segment(bench)
        if restarted:
            bench.restart()
            keep(bench, names)
        drop_all_but_the_active(bench)
        go_on_in_a_new_segment(bench)  # of t there is its name
        drop_all_but_the_active(bench)
        assert b"t" in names_in_log(bench)
        assert pass_through(bench, "t") == [seq]


def test_what_is_said_last_of_topics_to_keep_holds(bench: Bench) -> None:
    pass_through(bench, "t", 3)
    pass_through(bench, "tt", 2)
    pass_through(bench, "high", 7)
    keep(bench, b"t\nhigh")
    keep(bench, b"tt")
    go_on_in_a_new_segment(bench)
    drop_all_but_the_active(bench)
    assert names_in_log(bench) == {b"tt"}
    assert pass_through(bench, "tt") == [2]
    assert pass_through(bench, "new") == [7]
    keep(bench, b"")
    for _ in range(2):
        go_on_in_a_new_segment(bench)
        drop_all_but_the_active(bench)
    assert names_in_log(bench) == set()
    assert pass_through(bench, "tt") == [3]


def test_a_topic_that_came_back_can_be_forgotten_again_after_a_restart(bench: Bench) -> None:
    assert pass_through(bench, "t", 2) == [0, 1]
    go_on_in_a_new_segment(bench)
    go_on_in_a_new_segment(bench)
    assert lib.worker_drop_first(bench.worker, 0)  # segments that name it are left
    os.close(bench.segments[0].pop(0)[1])
    assert pass_through(bench, "t") == [2]
    bench.restart()
    go_on_in_a_new_segment(bench)
    drop_all_but_the_active(bench)
    assert pass_through(bench, "u") == [3]
    assert pass_through(bench, "t") == [3]
    bench.restart()
    assert pass_through(bench, "t") == [4]


def read_back_at(bench: Bench, *, wall: int) -> None:
    """Another process, whose monotonic clock has nothing to do with the one before, when the wall clock says so."""
    bench.stop()
    bench.now, bench.wall = 5 * SECOND, wall
    bench.start()
    bench.open("a", 1)
    bench.turn()


@pytest.mark.parametrize("how", ["published", "released"])
@pytest.mark.parametrize("set_back", [0, 3600 * SECOND])
def test_a_clock_that_was_set_back_makes_no_delay_longer(bench: Bench, how: str, set_back: int) -> None:
    """Not by what the delay was at first either: what passed since then, as far as the log saw it, has passed."""
    if how == "published":
        bench.ask(PUBLISH, topic=1, id=4, delay=8 * SECOND)
    else:
        bench.ask(PUBLISH, topic=1, id=4)
        bench.ask(RESERVE)
        bench.ask(RELEASE, id=4, delay=8 * SECOND)
    bench.turn(3)
    bench.ask(PUBLISH, topic=2, id=5)
    bench.ask(PUBLISH, topic=1, id=8, delay=100 * SECOND)  # the log of its shard sees how late it is
    for _ in range(2):
        read_back_at(bench, wall=bench.wall - set_back)
        bench.send(WATCH, 1, topic=1)
        bench.turn(4.9)
        assert bench.ask(RESERVE).status == TIMED_OUT
        bench.now -= int(4.9 * SECOND)
        bench.wall -= int(4.9 * SECOND)
    read_back_at(bench, wall=bench.wall)
    bench.send(WATCH, 1, topic=1)
    bench.turn(5.1)
    assert bench.ask(RESERVE).id == 4


def test_a_clock_that_went_forward_makes_what_is_delayed_due(bench: Bench) -> None:
    bench.ask(PUBLISH, topic=1, id=4, delay=8 * SECOND)
    read_back_at(bench, wall=bench.wall + 9 * SECOND)
    bench.send(WATCH, 1, topic=1)
    bench.turn()
    assert bench.ask(RESERVE).id == 4


def test_no_message_is_dated_before_it_was_sent(bench: Bench) -> None:
    """A turn that began before it came in does not lend it its time."""
    lib.worker_read_clock(bench.worker, True)
    sent = time.time_ns()
    bench.wall = sent - 60 * SECOND
    assert bench.ask(PUBLISH, topic=1, id=4).status == OK
    content = Path(f"/proc/self/fd/{bench.segments[0][0][1]}").read_bytes()
    dated = [entry.time_ns for entry in decode_segment(content) if isinstance(entry, Record) and entry.id == 4]
    assert dated and sent <= dated[0] <= time.time_ns()


# --- what one connection holds ----------------------------------------------------------------------------------------


def test_jobs_whose_time_runs_out_in_any_order_are_reserved_at_no_higher_price(bench: Bench) -> None:
    """Where each new one is looked for among all that the connection holds, this takes a minute."""
    count = 20_000
    bench.open("t", 1)
    bench.send(WATCH, topic=1)
    began = time.monotonic()
    for n in range(count):
        bench.send(PUBLISH, topic=1, id=(n + 1) * SHARDS, ttr=(2 * count - n) * SECOND)
        bench.send(RESERVE, delay=FOREVER)
        if n % 500 == 0:
            bench.turn()
    bench.turn()
    assert time.monotonic() - began < 20
    bench.turn(count)
    assert bench.ask(RESERVE).status == DEADLINE_SOON
    bench.turn(2)
    assert bench.ask(STATS_TOPIC, body=b"t").body[8:24] == struct.pack("<QQ", 2, count - 2)


def test_the_last_second_of_a_job_ends_a_wait_that_began_before_it(bench: Bench) -> None:
    bench.open("t", 1)
    bench.send(WATCH, topic=1)
    assert bench.ask(PUBLISH, topic=1, id=SHARDS, ttr=10 * SECOND).status == OK
    assert bench.ask(RESERVE).id == SHARDS
    slot = bench.send(RESERVE, delay=FOREVER)
    assert bench.turn(8.9) == []
    (answer,) = bench.turn(0.2)
    assert (answer.slot, answer.status) == (slot, DEADLINE_SOON)
    assert bench.ask(TOUCH, id=SHARDS).status == OK
    assert bench.ask(RESERVE).status == TIMED_OUT


def test_a_segment_that_cannot_be_cut_where_it_ends_is_overwritten_and_the_log_goes_on(bench: Bench) -> None:
    """As a file system may answer whose last block cannot be read."""
    first = bench.ask(PUBLISH, topic=1, id=4, body=b"whole")
    assert first.status == OK
    bench.stop()
    (number, fd), *others = bench.segments[0]
    content = os.pread(fd, 1 << 20, 0).rstrip(b"\0")
    uncut = os.memfd_create("uncut", os.MFD_ALLOW_SEALING)
    os.write(uncut, content.ljust(-(-len(content) // 8) * 8, b"\0") + b"torn" * 30_000)
    fcntl.fcntl(uncut, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    os.close(fd)
    bench.segments[0] = [(number, uncut), *others]
    for n in range(2):
        bench.start()
        assert (bench.found.uncut, bench.found.uncut_errno) == (number, errno.EPERM)
        assert bench.found.damages == (n == 0), "it is torn once"
        bench.open("a", 1)
        bench.send(WATCH, 1, topic=1)
        assert bench.ask(PUBLISH, topic=1, id=8 + 4 * n, body=b"behind").status == OK
        assert lib.worker_active_segment(bench.worker, 0) == number + 1
        assert [bench.ask(RESERVE).body for _ in range(2 + n)] == [b"whole"] + [b"behind"] * (1 + n)
        bench.stop()
    bench.start()
