"""No turn is long: what grows with a backlog or a catalog is done in pieces. What is touched is counted, not time."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.subscriptions import SUBSCRIBE, Channels
from tests.test_shard_protocol import ask, join
from tests.test_worker import (
    BURY,
    CLOSE,
    DELETE,
    GONE,
    NOT_FOUND,
    OK,
    PEEK_ID,
    PUBLISH,
    RESERVE,
    SECOND,
    SHARDS,
    STATS_TOPIC,
    TOUCH,
    WATCH,
    Answer,
)  # fmt: skip

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


def take(bench: Channels, conn: int, count: int) -> list[int]:
    """Jobs of tube t that it reserves."""
    bench.raw(WATCH, conn, topic=bench.topic("t"))
    taken: list[int] = []
    for n in range(count):
        bench.raw(RESERVE, conn)
        if n % 500 == 499 or n == count - 1:
            taken += [a.id for a in bench.turn() if a.kind == RESERVE and a.status == OK]
    return taken


def jobs_in_every_state(bench: Channels) -> tuple[list[int], list[int]]:
    """Of tube t, a quarter each ready, delayed, buried and reserved by conn 1: all, and those that are reserved."""
    first, quarter = bench.next_id, MANY // 4
    put(bench, quarter)
    for n, job in enumerate(take(bench, 1, quarter)):
        bench.raw(BURY, 1, id=job, pri=1024)
        if n % 500 == 499:
            bench.turn()
    put(bench, quarter)
    reserved = take(bench, 1, quarter)
    put(bench, quarter)
    put(bench, quarter, delay=1000)
    return list(range(first, bench.next_id, SHARDS)), reserved


def live(bench: Channels) -> int:
    return int(lib.worker_live_jobs(bench.worker, 0, 1, ffi.new("uint64_t *")))


@pytest.mark.parametrize("channel", [False, True], ids=["alone", "beside a channel"])
def test_a_topic_of_many_jobs_is_deleted_in_pieces_and_has_none_at_once(bench: Channels, channel: bool) -> None:
    if channel:
        bench.sub(9, "t", "c")
    jobs, reserved = jobs_in_every_state(bench)
    lib.worker_longest_turn(bench.worker)
    slots = [bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_DELETE, body=b"t")]
    slots += [bench.raw(PEEK_ID, 998, id=job) for job in jobs[:: MANY // 8]]
    slots += [bench.raw(DELETE, 1, id=reserved[0]), bench.raw(TOUCH, 1, id=reserved[1])]
    bench.next_id += SHARDS
    new = bench.next_id - SHARDS
    bench.raw(PUBLISH, 998, topic=bench.topic("t"), id=new, pri=1024)
    slots.append(bench.raw(RESERVE, 1))
    answers = {a.slot: a for a in bench.turn()}
    assert [answers[slot].status for slot in slots] == [OK] + [NOT_FOUND] * (len(slots) - 2) + [OK]
    assert answers[slots[-1]].id == new
    assert was_short(bench)
    bench.turn()
    assert live(bench) == 1
    assert ask(bench, STATS_TOPIC, body=b"t").body[:40] == struct.pack("<5Q", 0, 0, 1, 0, 0)
    bench.restart()
    assert take(bench, 1, 2) == [new]
    assert live(bench) == 1


def test_reserved_jobs_of_a_deleted_topic_end_with_their_client_or_their_time(bench: Channels) -> None:
    put(bench, 3)
    lib.worker_limit_turn(bench.worker, 1)
    (of_one,), (of_two,) = take(bench, 1, 1), take(bench, 2, 1)
    bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_DELETE, body=b"t")
    bench.raw(GONE, 1)
    bench.turn(61)
    bench.turn()
    assert take(bench, 3, 1) == []
    assert live(bench) == 0
    assert [ask(bench, PEEK_ID, id=job).status for job in (of_one, of_two)] == [NOT_FOUND] * 2


def test_a_topic_that_is_deleted_twice_before_its_jobs_are_gone_has_none_of_either_time(bench: Channels) -> None:
    lib.worker_limit_turn(bench.worker, 1)
    for _ in range(3):
        put(bench, 20)
        assert bench.change(lib.CHANGE_DELETE, "t") == OK
    assert live(bench) > 0
    put(bench, 1)
    assert take(bench, 1, 5) == [bench.next_id - SHARDS]
    for _ in range(60):
        bench.turn()
    assert live(bench) == 1
    bench.raw(GONE, 1)
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    bench.turn()
    bench.raw(CLOSE, topic=bench.topic("t"))
    bench.turn()
    assert live(bench) == 0


# --- what lets go of much: the request waits, and after a crash half way there is what it had not got rid of ---------


def change(bench: Channels, what: int, name: str, channel: str = "") -> Any:  # noqa: ANN401
    body = f"{name}\n{channel}" if channel else name
    return lambda: bench.raw(lib.MSG_CHANGE, 998, id=0, pri=what, body=body.encode())


def seek_to(bench: Channels, channel: str, start: int, at: int = 0) -> Any:  # noqa: ANN401
    return lambda: bench.raw(lib.MSG_SEEK, 998, topic=bench.topic("t"), pri=start, ttr=at, body=channel.encode())


def goes_on(bench: Channels, ask_for: Any) -> None:  # noqa: ANN401
    """It is answered after some turns, of which none was long, and what is asked behind it after that."""
    lib.worker_longest_turn(bench.worker)
    slots = [ask_for(), bench.raw(lib.MSG_BARRIER, 998)]
    answers = [a for _ in range(20) for a in bench.turn() if a.slot in slots and a.kind != lib.MSG_DELIVER]
    assert [(a.slot, a.status) for a in answers] == [(slot, OK) for slot in slots]
    assert was_short(bench)


def begins_and_dies(bench: Channels, ask_for: Any) -> None:  # noqa: ANN401
    """A turn after it was asked for, the process is killed."""
    slot = ask_for()
    lib.channel_publish(bench.channels[0])
    assert lib.worker_turn(bench.worker, bench.now, bench.wall)
    assert lib.channel_receive(bench.channels[0]) == ffi.NULL, slot
    bench.restart()


def depths(bench: Channels) -> dict[str, tuple[int, int, int]]:
    figures = bench.catalog()["t"].channels
    return {name: (c.depth, c.in_flight, c.deferred) for name, c in figures.items()}


@pytest.mark.parametrize("dies", [False, True], ids=["to its end", "after a crash"])
@pytest.mark.parametrize("what", ["empty", "delete", "seek"])
def test_one_channel_of_several_lets_go_in_pieces(bench: Channels, what: str, dies: bool) -> None:
    """Of what lies ahead of it, what it has in flight, and what is deferred."""
    bench.sub(1, "t", "c")
    bench.sub(2, "t", "other")
    bench.mpub("t", [b""] * MANY)
    deliver(bench, 1)
    for n in range(MANY):
        bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=bench.topic("t"), id=bench.next_id, delay=1000 * SECOND)
        bench.next_id += SHARDS
        if n % 2000 == 1999:
            bench.turn()
    bench.raw(lib.MSG_CREDIT, 1)
    bench.turn()
    bench.mpub("t", [b""] * MANY)
    ask_for = {
        "empty": change(bench, lib.CHANGE_EMPTY, "t", "c"),
        "delete": change(bench, lib.CHANGE_DELETE, "t", "c"),
        "seek": seek_to(bench, "c", lib.START_LATEST),
    }[what]
    if dies:
        begins_and_dies(bench, ask_for)
        assert depths(bench) == {"c": (2 * MANY, 0, MANY), "other": (2 * MANY, 0, MANY)}
    goes_on(bench, ask_for)
    for _ in range(2):
        left = {"empty": {"c": (0, 0, 0)}, "delete": {}, "seek": {"c": (0, 0, 0)}}[what]
        assert depths(bench) == left | {"other": (2 * MANY, 0, MANY)}
        bench.restart()
    new = bench.mpub("t", [b"new"])
    if what != "delete":
        bench.sub(3, "t", "c")
        assert deliver(bench, 3) == new
    bench.sub(4, "t", "other")
    assert len(deliver(bench, 4)) == 2 * MANY + 1


def test_what_waits_for_a_first_channel_is_emptied_in_pieces(bench: Channels) -> None:
    bench.mpub("t", [b""] * MANY)
    begins_and_dies(bench, change(bench, lib.CHANGE_EMPTY, "t"))
    assert MANY - 2 * PIECE <= bench.catalog()["t"].depth < MANY, "each piece is written"
    goes_on(bench, change(bench, lib.CHANGE_EMPTY, "t"))
    assert (bench.catalog()["t"].depth, live(bench)) == (0, 0)
    new = bench.mpub("t", [b"x"])
    bench.restart()
    bench.sub(1, "t", "c")
    assert deliver(bench, 1) == new


def test_what_its_channels_have_deferred_or_in_flight_goes_in_pieces_with_a_topic(bench: Channels) -> None:
    for n in range(4):
        bench.sub(n + 1, "t", f"c{n}")
    bench.mpub("t", [b""] * (MANY // 4))
    for n in range(4):
        assert len(deliver(bench, n + 1)) == MANY // 4
    bench.raw(GONE, 4)
    goes_on(bench, change(bench, lib.CHANGE_DELETE, "t"))
    assert (bench.catalog(), live(bench)) == ({}, 0)


def test_much_is_finished_at_once_in_pieces(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    bench.mpub("t", [b""] * MANY)
    deliver(bench, 1)
    finish = lambda: bench.raw(lib.MSG_FINISH, 1, flags=lib.MSG_UPTO, ttr=MANY - 2)  # noqa: E731
    lib.worker_longest_turn(bench.worker)
    finish()
    slot = bench.raw(lib.MSG_BARRIER, 1)
    assert slot in [a.slot for _ in range(4) for a in bench.turn()]
    assert was_short(bench)
    assert depths(bench) == {"c": (0, 1, 0)}
    bench.restart()
    assert depths(bench) == {"c": (1, 0, 0)}


def test_an_ephemeral_channel_that_is_far_behind_comes_nearer_with_each_message(bench: Channels) -> None:
    bench.sub(1, "t", "kept")
    bench.mpub("t", [b""] * 100)
    bench.sub(2, "t", "e#ephemeral", flags=lib.SUBSCRIBE_EPHEMERAL)
    bench.mpub("t", [b""] * (10_000 + MANY))
    for _ in range(3):
        bench.mpub("t", [b""])
    assert bench.catalog()["t"].channels["e#ephemeral"].depth == 10_000
    assert was_short(bench)


# --- a backlog that comes to others ---------------------------------------------------------------------------------


def subscribe(bench: Channels, conn: int, channel: str, flags: int = 0) -> int:
    head = SUBSCRIBE.pack(60 * SECOND, 900 * SECOND, 0, 0, len(channel), flags, 4)
    body = head + channel.encode() + b"{ab}"
    return bench.raw(lib.MSG_SUBSCRIBE, conn, topic=bench.topic("t"), body=body)


@pytest.mark.parametrize("dies", [False, True], ids=["to its end", "after a crash"])
@pytest.mark.parametrize("channel", ["c", "c#ephemeral"])
def test_a_first_channel_has_a_tubes_jobs_in_pieces(bench: Channels, channel: str, dies: bool) -> None:
    """In every state they may be in, and what comes meanwhile; deleted meanwhile, a job is not to come."""
    flags = lib.SUBSCRIBE_EPHEMERAL if "#" in channel else 0
    jobs, reserved = jobs_in_every_state(bench)
    if dies:
        subscribe(bench, 2, channel, flags)
        lib.channel_publish(bench.channels[0])
        assert lib.worker_turn(bench.worker, bench.now, bench.wall)
        bench.restart()
        assert bench.catalog()["t"].channels == {}
        assert take(bench, 1, 1) == [reserved[0]]
    lib.worker_longest_turn(bench.worker)
    slots = [subscribe(bench, 2, channel, flags), subscribe(bench, 3, channel, flags)]
    lib.channel_publish(bench.channels[0])
    assert lib.worker_turn(bench.worker, bench.now, bench.wall)
    last = jobs[3 * MANY // 4 - 1]
    bench.raw(DELETE, 998, id=last)
    slots.append(bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_PAUSE, body=f"t\n{channel}".encode()))
    slots.append(bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_UNPAUSE, body=f"t\n{channel}".encode()))
    new, bench.next_id = bench.next_id, bench.next_id + SHARDS
    bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=bench.topic("t"), id=new, pri=1024)
    answers = {a.slot: a.status for a in turns(bench)}
    assert [answers[slot] for slot in slots] == [OK] * 4
    delayed = jobs[-MANY // 4 :]
    expected = [*(job for job in jobs[: -MANY // 4] if job != last), new]
    assert deliver(bench, 2) == expected
    assert bench.catalog()["t"].channels[channel].deferred == len(delayed)
    if flags:
        return
    bench.restart()
    bench.sub(4, "t", channel)
    assert deliver(bench, 4) == expected
    assert bench.catalog()["t"].jobs == MANY


def test_a_first_channel_that_nobody_waits_for_any_more_is_there_or_gone_if_it_is_ephemeral(bench: Channels) -> None:
    put(bench)
    subscribe(bench, 2, "c#ephemeral", lib.SUBSCRIBE_EPHEMERAL)
    lib.channel_publish(bench.channels[0])
    assert lib.worker_turn(bench.worker, bench.now, bench.wall)
    bench.raw(GONE, 2)
    turns(bench)
    assert bench.catalog()["t"].channels == {}
    subscribe(bench, 2, "c")
    lib.channel_publish(bench.channels[0])
    assert lib.worker_turn(bench.worker, bench.now, bench.wall)
    bench.raw(GONE, 2)
    turns(bench)
    assert bench.catalog()["t"].channels["c"].depth == MANY


@pytest.mark.parametrize("dies", [False, True], ids=["to its end", "after a crash"])
def test_what_waited_for_a_channel_becomes_jobs_in_pieces_oldest_first(bench: Channels, dies: bool) -> None:
    waited = bench.mpub("t", [b""] * MANY)
    bench.raw(WATCH, 1, topic=bench.topic("t"))
    slots = [bench.raw(RESERVE, 1), subscribe(bench, 2, "c")]
    lib.worker_longest_turn(bench.worker)
    lib.channel_publish(bench.channels[0])
    assert lib.worker_turn(bench.worker, bench.now, bench.wall)
    new, bench.next_id = bench.next_id, bench.next_id + SHARDS
    bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=bench.topic("t"), id=new, pri=1024)
    if dies:
        bench.restart()
        assert take(bench, 1, MANY) == waited
        return
    answers = {a.slot: (a.status, a.id) for a in bench.turn() + turns(bench)}
    assert [answers[slot] for slot in slots] == [(OK, waited[0]), (OK, 0)]
    assert take(bench, 1, MANY) == [*waited[1:], new]
    assert deliver(bench, 2) == [*waited, new]


def test_what_is_oldest_is_looked_for_in_a_short_turn(bench: Channels) -> None:
    """Exactly, unless more is in flight than a turn touches: then it is of what was sent first."""

    def oldest(name: bytes) -> tuple[int, int]:
        lib.worker_longest_turn(bench.worker)
        answer = ask(bench, lib.MSG_OLDEST, body=name)
        assert lib.worker_longest_turn(bench.worker) <= MOST
        return answer.status, answer.delay if answer.status == OK else 0

    bench.sub(1, "t", "c")
    assert oldest(b"t\nc") == oldest(b"t") == (lib.STATUS_NONE, 0)
    assert oldest(b"t\nd") == oldest(b"u") == oldest(b"u\nc") == (NOT_FOUND, 0)
    began = bench.wall
    ids = bench.mpub("t", [b""] * MANY)
    bench.turn(5)
    ids += bench.mpub("t", [b""])
    assert oldest(b"t\nc") == (OK, began)
    assert deliver(bench, 1) == ids
    assert oldest(b"t\nc") == (OK, began)
    bench.fin(1, *ids[:-1])
    assert oldest(b"t\nc") == (OK, began + 5 * SECOND)
    bench.fin(1, ids[-1])
    assert oldest(b"t\nc") == (lib.STATUS_NONE, 0)
    put(bench, 2)
    bench.restart()
    assert oldest(b"t\nc") == (OK, began + 5 * SECOND), "what was read back has the time that it had"


def defer(bench: Channels, count: int = MANY) -> list[int]:
    """So many with a delay; their ids."""
    first = bench.next_id
    for n in range(count):
        bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=bench.topic("t"), id=bench.next_id, delay=1000 * SECOND)
        bench.next_id += SHARDS
        if n % 2000 == 1999:
            bench.turn()
    bench.turn()
    return list(range(first, bench.next_id, SHARDS))


def finish(bench: Channels, conn: int, ids: list[int]) -> None:
    for start in range(0, len(ids), 2000):
        bench.fin(conn, *ids[start : start + 2000])
    assert bench.catalog()["t"].channels["next"].in_flight == 0


@pytest.mark.parametrize(("channels", "moved"), [(0, False), (1, False), (40, False), (20, True)])
def test_what_a_paused_topic_has_kept_is_given_in_pieces(bench: Channels, channels: int, moved: bool) -> None:
    """`moved`: one channel has been moved past some of it."""
    assert bench.change(lib.CHANGE_MAKE, "t") == OK
    for n in range(channels):
        assert bench.change(lib.CHANGE_MAKE, "t", f"c{n}") == OK
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    bench.mpub("t", [b"before"])
    if moved:
        assert ask(bench, lib.MSG_SEEK, topic=bench.topic("t"), pri=lib.START_LATEST, body=b"c0").status == OK
    bench.mpub("t", [b""] * MANY)
    late = len(defer(bench, 500))
    slot = bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_UNPAUSE, body=b"t")
    answers = turns(bench, 20 + 5 * channels)
    assert [a.status for a in answers if a.slot == slot] == [OK]
    topic = bench.catalog()["t"]
    assert topic.depth == (0 if channels else 1 + MANY + late)
    for name, channel in topic.channels.items():
        assert (channel.depth, channel.deferred) == (MANY + (not moved or name != "c0"), late)


@pytest.mark.parametrize("tube", [False, True], ids=["no tube", "a tube"])
@pytest.mark.parametrize("channel", ["c", "c#ephemeral"])
def test_the_last_channel_of_a_paused_topic_leaves_what_the_pause_keeps(channel: str, tube: bool) -> None:
    """As one does that is read back from the log, where that is done at once."""

    def play(dies: bool) -> tuple[object, ...]:
        bench = Channels(ring_bytes=1 << 22)
        if tube:
            bench.raw(WATCH, 5, topic=bench.topic("t"))
        bench.sub(1, "t", channel, flags=lib.SUBSCRIBE_EPHEMERAL if channel != "c" else 0)
        bench.mpub("t", [b"before"] * MANY)
        assert bench.change(lib.CHANGE_PAUSE, "t") == OK
        deferred = defer(bench)
        after = bench.mpub("t", [b"after"] * MANY)
        if channel == "c":
            bench.raw(GONE, 1)
            bench.turn()
            assert bench.change(lib.CHANGE_DELETE, "t", channel) == OK
        else:
            bench.raw(GONE, 1)
        new = bench.mpub("t", [b"new"])
        slot = bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_MAKE, body=b"t\nnext")
        for _ in range(40):
            assert "c" not in bench.catalog()["t"].channels
        assert [a.status for a in bench.early if a.slot == slot] in ([], [OK])
        if dies:
            bench.restart()
        assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
        bench.sub(2, "t", "next")
        got = deliver(bench, 2)
        assert set(got) >= {*after, *new}
        finish(bench, 2, got)
        due = [a.id for a in bench.turn(1001) if a.kind == lib.MSG_DELIVER] + deliver(bench, 2)
        assert sorted(due) == deferred
        jobs = bench.catalog()["t"].jobs
        finish(bench, 2, due)
        left = live(bench)
        bench.dispose()
        return sorted(got), jobs, left

    assert play(dies=False) == play(dies=True)


@pytest.mark.parametrize("beside", ["nothing", "a channel", "a tube", "retention", "one like it"])
def test_an_ephemeral_channel_with_much_deferred_goes_in_pieces(bench: Channels, beside: str) -> None:
    """And with much in flight; what comes meanwhile waits for the next."""
    bench.sub(1, "t", "c", flags=lib.SUBSCRIBE_EPHEMERAL)
    if beside == "a channel":
        bench.sub(2, "t", "other")
    elif beside == "one like it":
        bench.sub(2, "t", "d", flags=lib.SUBSCRIBE_EPHEMERAL)
    elif beside == "a tube":
        bench.raw(WATCH, 5, topic=bench.topic("t"))
    elif beside == "retention":
        assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    of = [*bench.mpub("t", [b""] * MANY), *defer(bench)]
    deliver(bench, 1)
    lib.worker_longest_turn(bench.worker)
    bench.raw(GONE, 1)
    if beside == "one like it":
        bench.raw(GONE, 2)
    new = bench.mpub("t", [b"new"])
    asked = bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_MAKE, body=b"t\nnext")
    answers = [a for _ in range(40) for a in bench.turn()]
    assert [a.status for a in answers if a.slot == asked] == [OK]
    assert was_short(bench)
    bench.sub(3, "t", "next")
    got = deliver(bench, 3)
    if beside in ("nothing", "retention", "one like it"):
        assert got == new
    if beside == "a channel":
        bench.sub(2, "t", "other")
        assert sorted(deliver(bench, 2)) == sorted([*of[:MANY], *new])
        assert bench.catalog()["t"].channels["other"].deferred == MANY
    if beside == "a tube":
        assert bench.catalog()["t"].jobs == 2 * MANY + 1
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    for _ in range(20):
        bench.turn()
    assert live(bench) == 0
    bench.restart()
    assert "t" not in bench.catalog()
