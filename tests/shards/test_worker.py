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

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import (
    BURY,
    CANCEL,
    CANCELLED,
    CLOSE,
    DEADLINE_SOON,
    DELETE,
    FOREVER,
    GONE,
    KICK,
    LIST,
    NO_SPACE,
    NONE,
    NOT_FOUND,
    OK,
    PEEK_BURIED,
    PEEK_DELAYED,
    PEEK_ID,
    PEEK_READY,
    PROBE,
    PUBLISH,
    RELEASE,
    REQUEST,
    RESERVE,
    RESERVE_ID,
    RETURN,
    SECOND,
    SHARDS,
    STATS_ID,
    STATS_TOPIC,
    TAKE,
    TIMED_OUT,
    TOUCH,
    WATCH,
    Bench,
)


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


def test_a_worker_whose_clients_wait_for_a_segment_sleeps_until_it_is_told_of_it(bench: Bench) -> None:
    """Their messages lie in its ring, and it takes none of them: it looked at them all the time."""
    bench.supply = lambda: lib.worker_ask_segment(bench.worker, 0)  # type: ignore[method-assign]
    body = bytes(60_000)
    sent = answered = 0
    while sent < answered + 5:
        bench.send(PUBLISH, topic=1, id=(sent + 1) * SHARDS, body=body)
        sent += 1
        answered += len(bench.turn())
        assert sent < 3000
    told = os.eventfd(0, os.EFD_NONBLOCK)
    began, used = time.monotonic(), time.thread_time()
    assert not lib.worker_run(bench.worker, told, SECOND // 4) & (lib.WORKER_CONTROL | lib.WORKER_WANTS_SEGMENT)
    assert time.thread_time() - used < (time.monotonic() - began) / 4
    os.eventfd_write(told, 1)
    assert lib.worker_run(bench.worker, told, 60 * SECOND) & lib.WORKER_CONTROL
    os.close(told)


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


def test_jobs_whose_time_runs_out_in_any_order_are_reserved_at_no_higher_price(bench: Bench) -> None:
    """The last of many that a connection holds costs what the first did: nothing looks at the others."""
    count, piece = 20_000, 1000
    bench.open("t", 1)
    bench.send(WATCH, topic=1)
    spent = []
    for first in range(0, count, piece):
        for n in range(first, first + piece):
            bench.send(PUBLISH, topic=1, id=(n + 1) * SHARDS, ttr=(2 * count - n) * SECOND)
            bench.send(RESERVE, delay=FOREVER)
            if n % 250 == 249:
                began = time.thread_time()
                bench.turn()
                spent.append(time.thread_time() - began)
    assert sorted(spent[-20:])[0] < 5 * sorted(spent[:20])[0] + 0.002, spent
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


def test_a_sync_that_fails_outside_of_the_syncer_says_why_and_of_which_file(bench: Bench) -> None:
    assert bench.ask(PUBLISH, topic=1, id=SHARDS).status == OK
    there = os.fstat(bench.segments[0][0][1])
    fds = [int(path.name) for path in Path("/proc/self/fd").iterdir() if path.exists()]
    (fd,) = [fd for fd in fds if os.path.samestat(os.fstat(fd), there) and fd != bench.segments[0][0][1]]
    read, write = os.pipe()
    os.dup2(write, fd)  # which cannot be synced
    assert not lib.worker_flush(bench.worker)
    found = ffi.new("int *")
    assert (lib.worker_disk_errno(bench.worker, found), found[0]) == (errno.EINVAL, fd)
    os.close(read)
    os.close(write)


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
