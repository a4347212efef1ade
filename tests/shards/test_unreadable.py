"""A medium that fails beneath what is held: whatever is asked of it, the worker lives, and what can be read is served.

A segment that is cut short answers who reads there with SIGBUS, as a medium error does.
"""

from __future__ import annotations

import os
import struct
import time
import traceback
from collections.abc import Callable, Iterator

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import (
    BURY,
    DELETE,
    GONE,
    NONE,
    NOT_FOUND,
    OK,
    PEEK_ID,
    PUBLISH,
    RESERVE,
    SECOND,
    SHARDS,
    TIMED_OUT,
    TOUCH,
    WATCH,
    Answer,
)
from tests.shards.positions import EARLIEST, LATEST, TIME, begin, finish, position, publish, read, seek, seqs
from tests.shards.subscriptions import Channels, roll
from tests.shards.test_open_transactions import ABORT, COMMIT, acknowledge, end, open_ones, stage
from tests.shards.test_packed import publish as publish_batch
from tests.shards.test_shard_protocol import ask

PAGE = 4096
IN_TURN = 64  # WORKER_UNREADABLE_IN_TURN, csrc/shards/worker_state.h


@pytest.fixture
def bench() -> Iterator[Channels]:
    bench = Channels(ring_bytes=1 << 22)
    publish(bench, "first", b"f" * PAGE)  # names stand on what stays
    yield bench
    bench.dispose()


def put(bench: Channels, count: int, name: str = "t", body: bytes = b"job" * 40) -> list[int]:
    ids = []
    for n in range(count):
        ids.append(bench.next_id)
        bench.raw(PUBLISH, 999, topic=bench.topic(name), id=bench.next_id, pri=1024, body=body)
        bench.next_id += SHARDS
        if n % 1000 == 999:
            bench.turn()
    bench.turn()
    return ids


def lose(bench: Channels) -> None:
    """All but the first page of what was written so far."""
    roll(bench)
    os.ftruncate(bench.segments[0][-2][1], PAGE)


def lost(bench: Channels) -> int:
    """How many were lost since this was asked last."""
    place, topic = ffi.new("struct damage *"), ffi.new("const char **")
    count = int(lib.worker_unreadable(bench.worker, place, topic))
    while lib.worker_unreadable(bench.worker, place, topic):
        pass
    return count


def turns(bench: Channels, until: int) -> tuple[int, float]:
    """Turns until so many are lost, none of which loses many. How many were, and how long that took."""
    for channel in bench.channels:
        lib.channel_publish(channel)
    total, took = 0, 0.0
    while total < until:
        began = time.thread_time()
        assert lib.worker_turn(bench.worker, bench.now, bench.wall)
        took += time.thread_time() - began
        now = lost(bench)
        assert now <= IN_TURN
        total += now
    return total, took


def take(bench: Channels, conn: int, count: int, name: str = "t") -> list[int]:
    bench.raw(WATCH, conn, topic=bench.topic(name))
    for _ in range(count):
        bench.raw(RESERVE, conn)
    return [a.id for a in bench.turn() if a.kind == RESERVE and a.status == OK]


@pytest.mark.parametrize("waits", [True, False], ids=["who waits", "who does not wait"])
def test_so_many_jobs_that_cannot_be_read_are_passed_over_in_a_turn(bench: Channels, waits: bool) -> None:
    ids = put(bench, 1000)
    assert take(bench, 2, 1000) == ids
    lose(bench)
    (behind,) = put(bench, 1, "other", b"behind") if waits else [0]
    bench.raw(GONE, 2)
    if waits:
        assert take(bench, 3, 1, "other") == [behind]
        bench.raw(WATCH, 1, topic=bench.topic("other"))
    bench.raw(WATCH, 1, topic=bench.topic("t"))
    slots = [bench.raw(RESERVE, 1, delay=60 * SECOND if waits else 0), bench.raw(lib.MSG_BARRIER, 1)]
    turns(bench, 1000)
    bench.raw(GONE, 3)
    answers = [a for a in bench.turn() if a.slot in slots]
    assert [a.slot for a in answers] == slots
    assert (answers[0].status, answers[0].id) == ((OK, behind) if waits else (TIMED_OUT, 0))


def test_so_many_are_passed_over_in_a_turn_whatever_the_number_of_topics_that_have_them(bench: Channels) -> None:
    names = [f"t{n}" for n in range(3 * IN_TURN)]
    ids = [put(bench, 1, name) for name in names]
    assert [take(bench, 2, 1, name) for name in names] == ids
    lose(bench)
    slots = {}
    for conn, name in enumerate(names, start=10):
        bench.raw(WATCH, conn, topic=bench.topic(name))
        slots[name] = bench.raw(RESERVE, conn, delay=60 * SECOND)
    bench.turn()
    bench.raw(GONE, 2)
    turns(bench, len(names))
    for name in names:
        bench.raw(PUBLISH, 999, topic=bench.topic(name), id=bench.next_id, pri=1024, body=name.encode())
        bench.next_id += SHARDS
    assert {a.slot: a.body for a in bench.turn() if a.status == OK and a.kind == RESERVE} == {
        slots[name]: name.encode() for name in names
    }


@pytest.mark.parametrize("channel", [True, False])
def test_to_lose_a_job_takes_no_longer_the_more_there_are(bench: Channels, channel: bool) -> None:
    def each(count: int) -> float:
        publish(bench, "first", b"f" * PAGE)
        name = f"of-{count}"
        if channel:
            bench.sub(2, name, "c")
        bench.raw(WATCH, 1, topic=bench.topic(name))
        put(bench, count, name)
        lose(bench)
        bench.raw(RESERVE, 1, delay=SECOND)
        _, took = turns(bench, count)
        bench.turn(2)
        return took / count

    few = each(500)
    assert each(8000) < 5 * few


def lives(act: Callable[[], object]) -> None:
    """In a process of its own: who reads there unasked is ended."""
    child = os.fork()
    if not child:
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def peeked(bench: Channels) -> None:
    assert ask(bench, lib.MSG_PEEK_SEQ, topic=bench.topic("t"), ttr=0).status == NOT_FOUND


def told(bench: Channels) -> None:
    figures = position(bench)
    assert (figures.next, figures.last_time, figures.tag, figures.parts) == (20, 0, 0, 0)


def aged(bench: Channels) -> None:
    for name in (b"t", b"t\nc"):
        assert ask(bench, lib.MSG_OLDEST, body=name).status == NONE


def sought_by_time(bench: Channels) -> None:
    assert seek(bench, TIME, bench.wall - SECOND).status == OK
    assert seek(bench, TIME, bench.wall + SECOND).status == OK


def scanned(bench: Channels) -> None:
    answer = ask(bench, lib.MSG_SCAN, topic=bench.topic("t"), ttr=0)
    assert (answer.status, answer.body, answer.seq) == (OK, b"", 20)


def compacted(bench: Channels) -> None:
    (new,) = publish(bench)
    body = b"".join(struct.pack("=QII", seq, 0, 0) for seq in range(5))
    assert ask(bench, lib.MSG_COMPACT, topic=bench.topic("t"), ttr=new + 1, body=body).status == OK
    for at in (0, new):
        begin(bench, 5, EARLIEST, at, channel="view", flags=lib.SUBSCRIBE_EPHEMERAL | lib.SUBSCRIBE_COMPACTED)
        assert seqs(bench.turn(), 5) == [new]
        bench.raw(GONE, 5)
        bench.turn()
    position(bench)


def delivered_by_seq(bench: Channels) -> None:
    """What was delivered can be finished, though nobody can read it any more."""
    finish(bench, 1, *range(20))
    assert bench.catalog()["t"].channels["c"].depth == bench.catalog()["t"].channels["c"].in_flight == 0


def acknowledged(bench: Channels) -> None:
    for how in (ABORT, COMMIT):
        for seq in range(20):
            assert acknowledge(bench, seq) in (OK, NONE)
        end(bench, how)
    assert not open_ones(bench)


def channel_begun(bench: Channels) -> None:
    for start, channel in ((EARLIEST, "new"), (LATEST, "newer")):
        begin(bench, 4, start, channel=channel)
        assert seqs(bench.turn(100), 4) == []
        bench.raw(GONE, 4)
        bench.turn()
    read(bench, 5, EARLIEST)
    assert seqs(bench.turn(), 5) == []


def moved_back(bench: Channels) -> None:
    for start in (EARLIEST, LATEST, EARLIEST):
        assert seek(bench, start).status == OK
        assert seqs(bench.turn(100)) == []


def emptied(bench: Channels) -> None:
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    assert bench.change(lib.CHANGE_EMPTY, "t") == OK
    assert bench.change(lib.CHANGE_EMPTY, "t", "c") == OK
    assert bench.change(lib.CHANGE_DELETE, "t", "c") == OK
    assert bench.change(lib.CHANGE_EMPTY, "t") == OK


def deleted(bench: Channels) -> None:
    assert bench.change(lib.CHANGE_DELETE, "t") == OK


def wanted(bench: Channels) -> None:
    """As a tube too."""
    take(bench, 6, 1)
    assert bench.change(lib.CHANGE_DELETE, "t", "c") == OK
    begin(bench, 7, EARLIEST, channel="d")
    assert seqs(bench.turn(), 7) == []


@pytest.mark.parametrize(
    "act",
    [
        peeked, told, aged, sought_by_time, scanned, compacted, delivered_by_seq, acknowledged, channel_begun,
        moved_back, emptied, deleted, wanted,
    ],
)  # fmt: skip
@pytest.mark.parametrize("delay", [0, 50])
@pytest.mark.parametrize("in_flight", [True, False])
def test_a_worker_lives_whatever_is_asked_of_messages_that_cannot_be_read(
    bench: Channels, act: Callable[[Channels], None], delay: int, in_flight: bool
) -> None:
    begin(bench, 1, EARLIEST, channel="c", credit=100 if in_flight else 0)
    assert publish(bench, body=b"m" * 100, count=20, delay=delay) == list(range(20))
    if in_flight:
        bench.turn(2 * delay)
    lose(bench)

    def play() -> None:
        if in_flight or act not in (delivered_by_seq, acknowledged):
            act(bench)
        for _ in range(3):
            bench.turn(100)
        assert bench.change(lib.CHANGE_DELETE, "t") in (OK, NOT_FOUND)
        bench.turn()
        (seq,) = publish(bench, "t", b"new")
        begin(bench, 9, EARLIEST, channel="new")
        assert seqs(bench.turn(), 9) == [seq]

    lives(play)


def test_what_is_staged_and_cannot_be_read_is_left_out_when_it_is_committed(bench: Channels) -> None:
    begin(bench, 1, EARLIEST, channel="c")
    for _ in range(5):
        stage(bench, b"s" * 100)
    lose(bench)
    last = stage(bench)

    def play() -> None:
        end(bench, COMMIT)
        assert seqs(bench.turn(), 1) == [last]
        assert lost(bench) == 5
        assert not open_ones(bench)

    lives(play)


@pytest.mark.parametrize("parts", [1, 3, 64 * lib.PARTS_MAX_WORDS])
@pytest.mark.parametrize("channel", [True, False])
def test_jobs_out_of_a_batch_that_cannot_be_read_are_none_any_more(bench: Channels, parts: int, channel: bool) -> None:
    """But for one that a client has, whose it is until it is done with it."""
    bench.raw(WATCH, 1, topic=bench.topic("t"))
    if channel:
        bench.sub(2, "t", "c")
    for _ in range(3):
        publish_batch(bench, "t", parts)
    bench.raw(RESERVE, 1)
    (held,) = [a.id for a in bench.turn() if a.kind == RESERVE]
    lose(bench)
    (behind,) = put(bench, 1)

    def status(kind: int, id: int) -> int:
        return ask(bench, kind, id=id).status

    def play() -> None:
        for id in (held, held + SHARDS, behind - SHARDS):
            assert status(PEEK_ID, id) in (OK, NOT_FOUND)
        bench.raw(RESERVE, 1)
        answers: list[Answer] = []
        for _ in range(10):
            answers += bench.turn()
        assert [a.id for a in answers if a.kind == RESERVE] == [behind]
        assert lost(bench) == (3 if parts > 1 else 2)
        assert status(TOUCH, held) == OK
        assert status(BURY, held) == OK
        assert status(DELETE, held) == OK
        assert status(DELETE, behind) == OK
        assert bench.catalog()["t"].jobs == 0
        assert bench.change(lib.CHANGE_DELETE, "t") == OK
        for _ in range(3):
            bench.turn()
        assert live(bench) == 0, "nothing keeps its segment"

    lives(play)


def live(bench: Channels) -> int:
    """Messages of the first segment that may not go."""
    return int(lib.worker_live_jobs(bench.worker, 0, 1, ffi.new("uint64_t *")))


def test_of_many_that_are_lost_at_once_each_topics_first_are_named(bench: Channels) -> None:
    put(bench, 60, "many")
    put(bench, 2, "few")
    lose(bench)
    for name in ("many", "few"):
        bench.raw(WATCH, 1, topic=bench.topic(name))
    bench.raw(RESERVE, 1)
    bench.turn()
    place, topic = ffi.new("struct damage *"), ffi.new("const char **")
    named, left = [], []
    while count := lib.worker_unreadable(bench.worker, place, topic):
        left.append(count)
        named.append(ffi.string(topic[0]))
    assert left[0] == 62 and len(named) == left[0] - left[-1] + 1
    assert {b"many", b"few"} == set(named)


# --- in a segment that is emptied -----------------------------------------------------------------------------------


def spoil(bench: Channels, how: str, size: int) -> None:
    """The end of the first segment, or what lies in its midst."""
    roll(bench)
    fd = bench.segments[0][0][1]
    if how == "the end":
        os.ftruncate(fd, size - size // 3)
    else:
        os.pwrite(fd, bytes(size // 3), size // 3 // PAGE * PAGE)


def empty_first(bench: Channels) -> None:
    for _ in range(200):
        bench.supply()
        bench.turn()
        if lib.worker_compact(bench.worker, 0, 1 << 14):
            break
    assert lib.worker_dead_segments(bench.worker, 0) == 1, "nothing keeps it"
    assert lib.worker_drop_first(bench.worker, 0)


@pytest.mark.parametrize("how", ["the end", "the midst"])
@pytest.mark.parametrize("size", [100, 3000, 40_000])
def test_a_segment_that_cannot_be_read_throughout_is_emptied_of_what_can(how: str, size: int) -> None:
    bench = Channels(ring_bytes=1 << 22)
    bench.sub(1, "t", "c")
    bench.sub(2, "t", "d", credit=50)
    ids = bench.mpub("t", [b"m" * size] * 60)
    bench.turn()
    jobs = put(bench, 60, "jobs", b"j" * size)
    bench.mpub("waits", [b"w" * size] * 60)
    spoil(bench, how, int(lib.worker_segment_bytes(bench.worker, 0, 1)))

    def play() -> None:
        empty_first(bench)
        gone = lost(bench)
        assert 0 < gone < 180
        came = set(take(bench, 5, 60, "jobs"))
        bench.raw(GONE, 2)
        bench.turn()
        for conn, name, channel in ((3, "t", "d"), (6, "waits", "w")):
            assert bench.sub(conn, name, channel, credit=100) == OK
        bench.raw(lib.MSG_CREDIT, 1, id=100)
        got: dict[int, set[int]] = {1: set(), 3: set(), 6: set()}
        for _ in range(20):
            for a in bench.turn():
                if a.kind == lib.MSG_DELIVER:
                    got[a.conn].add(a.id)
                    bench.raw(lib.MSG_SENT, a.conn, id=1 << 20)
        assert got[1] == got[3] <= set(ids) and came <= set(jobs)
        assert len(came) + len(got[6]) + len(got[1]) == 180 - gone
        figures = bench.catalog()
        assert figures["t"].channels["c"].depth == figures["t"].channels["d"].depth == 0
        assert figures["jobs"].jobs == len(came)

    lives(play)
    bench.dispose()
