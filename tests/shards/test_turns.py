"""No turn is long: what grows with a backlog or a catalog is done in pieces. What is touched is counted, not time."""

from __future__ import annotations

import random
import time

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import (
    GONE,
    OK,
    PUBLISH,
    RESERVE,
    SECOND,
    SHARDS,
    WATCH,
)  # fmt: skip
from tests.shards.subscriptions import Channels
from tests.shards.test_shard_protocol import ask, join
from tests.shards.turns import (
    MANY,
    PIECE,
    deliver,
    put,
    roomy,
    turns,
    was_short,
)

bench = pytest.fixture(roomy)


def test_a_consumer_that_goes_gives_much_back_in_pieces(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    ids = bench.mpub("t", [b""] * MANY)
    assert deliver(bench, 1) == ids
    bench.raw(GONE, 1)
    turns(bench)
    assert bench.catalog()["t"].channels["c"].depth == MANY
    bench.sub(1, "t", "c")
    assert deliver(bench, 1) == ids


def test_what_a_consumer_that_goes_has_not_given_back_goes_with_its_channel(bench: Channels) -> None:
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
    slots = [bench.raw(lib.MSG_CATALOG, 1), bench.raw(lib.MSG_BARRIER, 1)]
    gone = bench.raw(lib.MSG_CATALOG, 2)
    bench.raw(GONE, 2)
    answers = turns(bench)
    assert [a.slot for a in answers] == slots
    assert gone not in {a.slot for a in answers}
    assert len(bench.catalog()) == MANY


def test_many_names_are_asked_for_in_pieces(bench: Channels) -> None:
    names = [b"%03d/" % n * 50 if n < 500 else b"topic-%d" % n for n in range(MANY)]
    for n, name in enumerate(names):
        bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_MAKE, body=name)
        if n % 1000 == 999:
            bench.turn()
    lib.worker_longest_turn(bench.worker)
    listed: list[bytes] = []
    at, pieces = 0, 0
    while at or not pieces:
        piece = ask(bench, lib.MSG_LIST, id=at)
        at, pieces = piece.id, pieces + 1
        listed += piece.body.split(b"\n")[:-1]
        assert len(piece.body) < (24 << 10) + 201
        if pieces == 2:  # a number that is free by now, and one that is taken again
            bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_DELETE, body=names[0])
            bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_DELETE, body=names[-1])
            bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_MAKE, body=b"late")
            bench.turn()
    assert was_short(bench)
    assert sorted(set(listed) - {names[0], names[-1], b"late"}) == sorted(names[1:-1])
    assert len(listed) == len(set(listed))
    assert pieces > MANY // PIECE + 1, "names are long: fewer than a piece"
    for odd in (1 << 63, (1 << 64) - 1, MANY + 1000):
        assert (ask(bench, lib.MSG_LIST, id=odd).body, ask(bench, lib.MSG_LIST, id=odd).id) == (b"", 0)


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


def test_all_that_a_consumer_has_in_flight_is_requeued_in_pieces_and_once(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    ids = bench.mpub("t", [b""] * MANY)
    assert deliver(bench, 1) == ids
    slot = (bench.raw(lib.MSG_REQUEUE, 1, flags=lib.MSG_ALL), bench.raw(lib.MSG_BARRIER, 1))[1]
    answers = turns(bench, 16)
    assert [a.slot for a in answers if a.kind == lib.MSG_BARRIER] == [slot]
    came = [a.id for a in answers if a.kind == lib.MSG_DELIVER]
    bench.raw(lib.MSG_SENT, 1, id=1 << 20)
    assert came + deliver(bench, 1) == ids
    assert bench.catalog()["t"].channels["c"].requeues == MANY


def test_what_a_consumer_had_in_flight_is_its_stand_bys_in_pieces_and_in_order(bench: Channels) -> None:
    assert join(bench, 1, lib.POLICY_FAILOVER, name="b", credit=0) == OK
    ids = bench.mpub("t", [b""] * MANY)
    assert deliver(bench, 1) == ids
    lib.worker_longest_turn(bench.worker)
    assert join(bench, 2, lib.POLICY_FAILOVER, name="a", credit=0) == OK
    assert deliver(bench, 2) == ids
    assert was_short(bench)


def test_a_touch_that_is_cut_short_ends_in_its_time(bench: Channels) -> None:
    """Each is touched when nearly all of the longest time is over: what is left is less than what the others have."""
    bench.sub(1, "t", "c", timeout=600)
    first, *rest = bench.mpub("t", [b""] * 4)
    bench.raw(lib.MSG_CREDIT, 1, id=4)
    assert len(bench.turn()) == 4
    bench.turn(500)
    for id in (first, *rest):
        bench.raw(lib.MSG_EXTEND, 1, id=id)
    bench.fin(1, rest[0])
    bench.mpub("t", [b"late"])
    assert bench.turn(399) == []
    bench.raw(lib.MSG_EXTEND, 1, id=rest[2])
    assert [a.id for a in bench.turn(2) if a.kind == lib.MSG_DELIVER] == [first, *rest[1:]]
    assert bench.catalog()["t"].channels["c"].timeouts == 3


def test_a_touch_that_is_cut_short_looks_at_no_other(bench: Channels) -> None:
    bench.sub(1, "t", "c", timeout=600)
    old = bench.mpub("t", [b""] * 2000)
    deliver(bench, 1)
    bench.turn(500)
    bench.mpub("t", [b""] * MANY)
    new = deliver(bench, 1)

    def touch(ids: list[int]) -> float:
        for id in ids:
            bench.raw(lib.MSG_EXTEND, 1, id=id)
        began = time.thread_time()
        bench.turn()
        return time.thread_time() - began

    assert touch(old) < 10 * touch(new[:2000])


def test_what_is_given_back_in_any_order_comes_in_rising_order_and_as_quickly(bench: Channels) -> None:
    assert join(bench, 1, lib.POLICY_FAILOVER, name="a", credit=0) == OK
    ids = bench.mpub("t", [b""] * MANY)
    chance = random.Random(17)

    def give_back(order: list[int]) -> float:
        assert deliver(bench, 1) == ids
        bench.raw(lib.MSG_CREDIT, 1)
        bench.turn()
        took = 0.0
        for start in range(0, MANY, 2000):
            for id in order[start : start + 2000]:
                bench.raw(lib.MSG_REQUEUE, 1, id=id)
            began = time.thread_time()
            bench.turn()
            took += time.thread_time() - began
        return took

    halves = [id for pair in zip(ids, ids[MANY // 2 :], strict=False) for id in pair]
    rising = min(give_back(ids) for _ in range(2))
    for order in (ids[::-1], halves, chance.sample(ids, MANY)):
        assert sorted(order) == ids
        assert min(give_back(order) for _ in range(2)) < 25 * rising  # 9 times; along a list it were 60
    assert deliver(bench, 1) == ids


def test_what_was_given_back_in_turn_comes_in_order_to_who_keeps_one(bench: Channels) -> None:
    """A channel's next consumers may want another policy than those who left."""
    bench.sub(1, "t", "c")
    ids = bench.mpub("t", [b""] * 300)
    chance = random.Random(3)
    for _ in range(3):
        assert sorted(deliver(bench, 1)) == ids
        for id in chance.sample(ids, len(ids)):
            bench.raw(lib.MSG_REQUEUE, 1, id=id)
        bench.raw(GONE, 1)
        bench.turn()
        assert join(bench, 2, lib.POLICY_FAILOVER, name="a", credit=0) == OK
        assert deliver(bench, 2) == ids
        for id in chance.sample(ids, len(ids)):
            bench.raw(lib.MSG_REQUEUE, 2, id=id)
        bench.raw(lib.MSG_CREDIT, 2)
        bench.turn()
        bench.raw(GONE, 2)
        bench.turn()
        bench.sub(1, "t", "c")


def test_all_before_a_message_is_acknowledged_whatever_else_is_in_flight_and_as_quickly(bench: Channels) -> None:
    topic, half = bench.topic("t"), MANY // 2
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    bench.sub(1, "t", "c")
    bench.mpub("t", [b""] * MANY)

    def acknowledge(txn: int) -> float:
        """The first half of all: how long it takes."""
        bench.raw(lib.MSG_TXN_ACK, 1, topic=topic, id=txn, ttr=half - 1, flags=lib.MSG_UPTO)
        began = time.thread_time()
        turns(bench, 16)
        took = time.thread_time() - began
        figures = bench.catalog()["t"].channels["c"]
        assert (figures.in_flight, figures.deferred) == (MANY - half, half)
        bench.raw(lib.MSG_TXN_END, 996, topic=topic, id=txn, pri=0)
        turns(bench, 16)
        deliver(bench, 1)
        assert bench.catalog()["t"].channels["c"].in_flight == MANY
        return took

    deliver(bench, 1)
    in_order = acknowledge(7)  # they stand behind the others then
    assert acknowledge(8) < 10 * in_order
