"""No turn is long: what grows with a backlog or a catalog is done in pieces. What is touched is counted, not time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.test_shard_protocol import ask
from tests.test_subscriptions import Channels
from tests.test_worker import GONE, OK, PUBLISH, RESERVE, SECOND, SHARDS, WATCH, Answer

MANY = 12_000
PIECE = 4096  # WORKER_TURN_STEPS, csrc/shards/worker.h
# What a piece may touch twice (out of one state, let go of), and what a turn does beside it.
MOST = 3 * PIECE


@pytest.fixture()
def bench() -> Iterator[Channels]:
    b = Channels(ring_bytes=1 << 22)
    yield b
    b.dispose()


def was_short(bench: Channels) -> bool:
    """Each turn since this, or `turns`, was called last; and something was done in them."""
    return 0 < lib.worker_longest_turn(bench.worker) <= MOST


def turns(bench: Channels, count: int = 12, seconds: float = 0) -> list[Answer]:
    """What comes in so many, and that none was long."""
    lib.worker_longest_turn(bench.worker)
    answers = bench.turn(seconds)
    for _ in range(count):
        answers += bench.turn()
    assert was_short(bench)
    return answers


def put(bench: Channels, count: int = MANY, delay: float = 0) -> None:
    for n in range(count):
        bench.raw(PUBLISH, 999, topic=bench.topic("t"), id=bench.next_id, pri=1024, delay=int(delay * SECOND))
        bench.next_id += SHARDS
        if n % 2000 == 1999:
            bench.turn()
    bench.turn()


def deliver(bench: Channels, conn: int) -> list[int]:
    """All that there is, to a consumer that is never full; the ids."""
    bench.raw(lib.MSG_CREDIT, conn, id=10 * MANY)
    ids: list[int] = []
    while True:
        came = [a.id for a in bench.turn() if a.kind == lib.MSG_DELIVER]
        bench.raw(lib.MSG_SENT, conn, id=1 << 20)
        if not came:
            return ids
        ids += came


def test_a_consumer_that_goes_gives_much_back_in_pieces(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    ids = bench.mpub("t", [b""] * MANY)
    assert deliver(bench, 1) == ids
    bench.raw(GONE, 1)
    turns(bench)
    assert bench.catalog()["t"].channels["c"].depth == MANY
    bench.sub(1, "t", "c")
    assert deliver(bench, 1) == ids


def test_what_a_consumer_that_goes_has_not_given_back_is_the_channels_at_once(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    bench.mpub("t", [b""] * MANY)
    deliver(bench, 1)
    bench.raw(GONE, 1)
    assert bench.change(lib.CHANGE_EMPTY, "t", "c") == OK
    figures = bench.catalog()["t"].channels["c"]
    assert (figures.depth, figures.in_flight) == (0, 0)
    bench.sub(2, "t", "c")
    bench.mpub("t", [b""] * MANY)
    deliver(bench, 2)
    bench.raw(GONE, 2)
    assert bench.change(lib.CHANGE_DELETE, "t", "c") == OK
    assert bench.sub(3, "t", "c") == OK
    assert deliver(bench, 3) == []


def test_a_client_that_goes_gives_many_jobs_back_in_pieces(bench: Channels) -> None:
    put(bench)
    bench.raw(WATCH, 1, topic=bench.topic("t"))
    for n in range(MANY):
        bench.raw(RESERVE, 1)
        if n % 1000 == 999:
            bench.turn()
    bench.raw(GONE, 1)
    bench.raw(WATCH, 1, topic=bench.topic("t"))
    slot = bench.raw(RESERVE, 1)
    answers = turns(bench)
    assert [a.status for a in answers if a.slot == slot] == [OK]
    assert bench.catalog()["t"].jobs == MANY


def test_many_jobs_are_kicked_in_pieces_and_what_follows_on_the_connection_waits(bench: Channels) -> None:
    put(bench, delay=1000)
    slots = [bench.raw(lib.MSG_KICK, 1, topic=bench.topic("t"), id=10 * MANY), bench.raw(lib.MSG_BARRIER, 1)]
    answers = turns(bench, 16)
    assert [(a.slot, a.id) for a in answers][:1] == [(slots[0], MANY)]
    assert [a.slot for a in answers] == slots
    assert ask(bench, lib.MSG_KICK, topic=bench.topic("t"), id=10 * MANY).id == 0


def test_many_delays_end_in_pieces(bench: Channels) -> None:
    put(bench, delay=10)
    bench.sub(1, "other", "c")
    for _ in range(MANY // 2000):
        for _ in range(2000):
            bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=bench.topic("other"), id=bench.next_id,
                      delay=10 * SECOND)  # fmt: skip
            bench.next_id += SHARDS
        bench.turn()
    turns(bench, seconds=11)
    assert bench.catalog()["other"].channels["c"].depth == MANY
    assert ask(bench, lib.MSG_KICK, topic=bench.topic("t"), id=1).id == 0


def test_many_topics_are_listed_in_pieces(bench: Channels) -> None:
    for n in range(MANY):
        bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_MAKE, body=b"topic-%d" % n)
        if n % 1000 == 999:
            bench.turn()
    slots = [bench.raw(lib.MSG_LIST, 1), bench.raw(lib.MSG_CATALOG, 1), bench.raw(lib.MSG_BARRIER, 1)]
    gone = bench.raw(lib.MSG_LIST, 2)
    bench.raw(GONE, 2)
    answers = turns(bench)
    assert [a.slot for a in answers] == slots
    assert sorted(answers[0].body.split()) == sorted(b"topic-%d" % n for n in range(MANY))
    assert gone not in {a.slot for a in answers}
    assert len(bench.catalog()) == MANY


def test_a_topic_of_many_messages_is_deleted_in_pieces_and_made_again_meanwhile(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    bench.sub(1, "u", "kept")
    bench.mpub("t", [b""] * MANY)
    held = bench.mpub("u", [b"u"])
    lib.worker_longest_turn(bench.worker)
    bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_DELETE, body=b"t")
    assert bench.sub(2, "t", "c") == OK
    again = bench.mpub("t", [b"x"])
    bench.turn()
    assert was_short(bench)
    assert lib.worker_live_jobs(bench.worker, 0, 1, ffi.new("uint64_t *")) == 2
    assert deliver(bench, 2) == again
    bench.restart()
    bench.sub(2, "t", "c")
    assert deliver(bench, 2) == again
    bench.sub(3, "u", "kept")
    assert deliver(bench, 3) == held


def test_a_channel_is_emptied_in_pieces_and_goes_on_at_once(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    bench.mpub("t", [b""] * MANY)
    lib.worker_longest_turn(bench.worker)
    bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_EMPTY, body=b"t\nc")
    ids = bench.mpub("t", [b"x"] * 3)
    assert bench.catalog()["t"].channels["c"].depth == 3
    bench.turn()
    assert was_short(bench)
    assert lib.worker_live_jobs(bench.worker, 0, 1, ffi.new("uint64_t *")) == 3
    bench.restart()
    bench.sub(1, "t", "c")
    assert deliver(bench, 1) == ids
