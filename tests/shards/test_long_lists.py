"""Lists that strangers make long: who asks for what walks along one goes on turn by turn and keeps nobody else waiting;
and what is found along them is the same as by a plain look at all."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import GONE, IGNORE, OK, PUBLISH, RESERVE, SECOND, SHARDS, TIMED_OUT, WATCH, Answer
from tests.shards.subscriptions import SUBSCRIBE, TIMEOUT, Channels
from tests.shards.test_attach import FENCE, SHARED
from tests.shards.test_shard_protocol import HEAD, join, told
from tests.shards.turns import roomy

LONG = 4500  # more than WORKER_LONG_WALK, csrc/shards/worker_state.h
ASKED = 30
ATTACH = struct.Struct("<IIQ")


bench = pytest.fixture(roomy)


def one_turn(bench: Channels) -> list[tuple[int, int, int]]:
    """Connection, slot and status of each answer."""
    lib.channel_publish(bench.channels[0])
    lib.worker_turn(bench.worker, bench.now, bench.wall)
    bench.supply()
    answers = []
    while (m := lib.channel_receive(bench.channels[0])) != ffi.NULL:
        answers.append((m.conn, m.slot, m.status))
    lib.channel_release(bench.channels[0])
    return answers


def settle(bench: Channels) -> None:
    """Until all that was asked is done."""
    slot, answers = bench.raw(lib.MSG_BARRIER, 1), one_turn(bench)
    while slot not in {slot for _, slot, _ in answers}:
        answers = one_turn(bench)
    for _ in range(3):
        one_turn(bench)


def keeps_nobody_waiting(bench: Channels, slots: Sequence[int], statuses: Sequence[int] = (OK,)) -> None:
    """Connection 1 has asked for much at once; another that comes behind it is answered in the same turn."""
    bench.raw(lib.MSG_BARRIER, 2)
    answers = one_turn(bench)
    assert [conn for conn, *_ in answers].count(2) == 1
    heard = [(slot, status) for conn, slot, status in answers if conn == 1]
    assert len(heard) <= 2, "one goes on in the next turn"
    for _ in range(3 * len(slots)):
        heard += [(slot, status) for _, slot, status in one_turn(bench)]
    assert [slot for slot, _ in heard] == list(slots), "in their order"
    assert {status for _, status in heard} <= set(statuses)


def test_who_watches_many_tubes(bench: Channels) -> None:
    for n in range(LONG):
        bench.raw(WATCH, 1, topic=bench.topic(f"tube-{n}"))
        if n % 500 == 499:
            bench.turn()
    settle(bench)
    keeps_nobody_waiting(bench, [bench.raw(RESERVE, 1) for _ in range(ASKED)], [TIMED_OUT])


@pytest.mark.parametrize("kind", [WATCH, IGNORE])
def test_watching_and_ignoring_walk_along_no_list(bench: Channels, kind: int) -> None:
    for n in range(LONG):
        bench.raw(WATCH, 1, topic=bench.topic(f"tube-{n}"))
        if n % 500 == 499:
            bench.turn()
    settle(bench)
    for n in range(ASKED):
        bench.raw(kind, 1, topic=bench.topic(f"tube-{n}"))
    barrier = bench.raw(lib.MSG_BARRIER, 1)
    assert barrier in {slot for _, slot, _ in one_turn(bench)}, "all of them took one turn"


def subscribe(bench: Channels, conn: int, channel: str, policy: bytes = b"", number: int = 0) -> int:
    flags = lib.SUBSCRIBE_POLICY if policy else 0
    head = SUBSCRIBE.pack(TIMEOUT, 900 * SECOND, 0, 0, len(channel), flags, 4)
    body = head + channel.encode() + b"{ab}" + policy
    return bench.raw(lib.MSG_SUBSCRIBE, conn, topic=bench.topic("t"), pri=number, body=body)


def test_who_makes_channels_where_there_are_many(bench: Channels) -> None:
    for n in range(LONG):
        subscribe(bench, 3 + n, f"c{n}")
        if n % 500 == 499:
            settle(bench)
    settle(bench)
    keeps_nobody_waiting(bench, [subscribe(bench, 1, f"more{n}", number=n) for n in range(ASKED)])


def attach(bench: Channels, conn: int, number: int, access: int = SHARED) -> int:
    body = ATTACH.pack(access, 0, (1 << 64) - 1) + b"p%d" % number
    return bench.raw(lib.MSG_ATTACH, conn, topic=bench.topic("t"), pri=number, body=body)


def test_who_attaches_producers_where_there_are_many(bench: Channels) -> None:
    for n in range(LONG):
        attach(bench, 3 + n, 1000 + n)
        if n % 500 == 499:
            settle(bench)
    settle(bench)
    keeps_nobody_waiting(bench, [attach(bench, 1, n) for n in range(ASKED)])


def test_who_throws_many_producers_out_goes_on_turn_by_turn_and_is_alone_then(bench: Channels) -> None:
    for n in range(LONG):
        attach(bench, 3 + n, 1000 + n)
        if n % 500 == 499:
            settle(bench)
    settle(bench)
    lib.worker_limit_turn(bench.worker, 100)
    slot = attach(bench, 1, 1, FENCE)
    turns, answers = 0, list[tuple[int, int, int]]()
    while (1, slot, OK) not in answers:
        bench.raw(lib.MSG_BARRIER, 2)
        found = one_turn(bench)
        assert [conn for conn, *_ in found].count(2) == 1, "others are served"
        assert len(found) <= 102
        answers += found
        turns += 1
    assert turns >= LONG // 100
    assert sorted(conn for conn, *_ in answers if conn > 2) == [3 + n for n in range(LONG)]
    late = attach(bench, 2, 2)
    assert (2, late, lib.STATUS_FULL) in one_turn(bench)


def test_what_is_delayed_in_many_channels(bench: Channels) -> None:
    for n in range(400):
        subscribe(bench, 3 + n, f"c{n}")
    bench.turn()
    slots = []
    for _ in range(ASKED):
        topic, id = bench.topic("t"), bench.next_id
        slots.append(bench.raw(PUBLISH, 1, flags=lib.MSG_DURABLE, topic=topic, id=id, delay=SECOND))
        bench.next_id += SHARDS
    keeps_nobody_waiting(bench, slots)
    assert {c.deferred for c in bench.catalog()["t"].channels.values()} == {ASKED}


def test_many_who_ask_for_much_are_served_in_turn(bench: Channels) -> None:
    """More of them than one turn has room for: nobody comes twice before all have come once."""
    count = 150
    for n in range(LONG):
        subscribe(bench, 1000 + n, f"c{n}")
        if n % 500 == 499:
            settle(bench)
    settle(bench)
    for round in range(3):
        for conn in range(count):
            subscribe(bench, 1 + conn, f"of-{conn}-{round}", number=round)
    heard: list[int] = []
    heard += [conn for conn, *_ in one_turn(bench)]
    assert len(heard) < count, "it is too much for one"
    for _ in range(200):
        heard += [conn for conn, *_ in one_turn(bench)]
    assert len(heard) == 3 * count
    for n in range(3 * count):
        most = max(heard[: n + 1].count(1 + conn) for conn in range(count))
        least = min(heard[: n + 1].count(1 + conn) for conn in range(count))
        assert most - least <= 2


# --- who stands by ------------------------------------------------------------------------------------------------


def failover(conn: int, name: str, priority: int, pick: int) -> bytes:
    return struct.pack("<HHIIII", lib.POLICY_FAILOVER, len(name), priority, pick, 0, 0) + name.encode()


@pytest.mark.parametrize("seed", range(6))
def test_the_first_of_those_who_stand_by_is_the_one_that_is_picked(bench: Channels, seed: int) -> None:
    chance = random.Random(seed)
    picks = [0] if seed < 2 else [0, 1, 5, 17, 1000]
    there: list[tuple[int, str, int]] = []  # priority, name, connection
    active = pick = 0
    for conn in range(1, 120):
        gone: int | None = None
        if there and chance.random() < 0.4:
            gone = chance.choice(there)[2] if chance.random() < 0.5 else active
            there = [one for one in there if one[2] != gone]
            bench.raw(GONE, gone)
        else:
            who = (chance.choice([0, 0, 0, 1]), f"n{chance.randrange(50)}-{conn}", conn)
            pick = chance.choice(picks)
            subscribe(bench, conn, "c", failover(conn, who[1], who[0], pick))
            there.append(who)
            picked_by = conn
        answers = bench.turn()
        for who_told, is_active in told(answers):
            if is_active:
                active = who_told
            elif active == who_told:
                active = 0
        if gone == active:
            active = 0
        # Asked for by whoever of them came last.
        if there and max(one[2] for one in there) != picked_by:
            continue
        first = sorted(one for one in there if one[0] == min(p for p, *_ in there)) if there else []
        assert active == (first[pick % len(first)][2] if first else 0)


def test_thousands_who_stand_by_come_and_go_at_once(bench: Channels) -> None:
    """Each who goes is the first, and the one who is picked is far behind the first."""
    for n in range(LONG):
        subscribe(bench, 1 + n, "c", failover(n, f"n{LONG - n:05}", 0, 0 if n < LONG - 50 else LONG // 2))
        if n % 200 == 199:
            bench.turn()
    bench.early = []
    for n in range(LONG, 1, -1):
        bench.raw(GONE, n)
    answers = [a for _ in range(20) for a in bench.turn()]
    assert [conn for conn, active in told(answers) if active][-1:] == [1]


# --- what is given back -------------------------------------------------------------------------------------------


def deliver_all(bench: Channels, conn: int) -> list[int]:
    bench.raw(lib.MSG_CREDIT, conn, id=100_000)
    return [a.id for _ in range(40) for a in bench.turn() if a.kind == lib.MSG_DELIVER]


def given_back(bench: Channels, count: int) -> list[int]:
    """Of a channel whose consumers take turns: in no order."""
    bench.sub(1, "t", "c")
    ids = bench.mpub("t", [b""] * count)
    assert deliver_all(bench, 1) == ids
    for id in random.Random(5).sample(ids, count):
        bench.raw(lib.MSG_REQUEUE, 1, id=id)
    bench.raw(lib.MSG_CREDIT, 1, id=0)
    for id in ids[::100]:  # is given back later than the others
        bench.raw(lib.MSG_EXTEND, 1, id=id)
    bench.turn()
    bench.raw(GONE, 1)
    bench.turn()
    return ids


def test_what_was_given_back_comes_to_be_in_order_in_pieces(bench: Channels) -> None:
    ids = given_back(bench, 2000)
    lib.worker_limit_turn(bench.worker, 100)
    slot = subscribe(bench, 2, "c", struct.pack("<HHIIII", lib.POLICY_EXCLUSIVE, 0, 0, 0, 0, 0))
    turns, answers = 0, one_turn(bench)
    while not answers and turns < 1000:
        turns, answers = turns + 1, one_turn(bench)
        if turns == 10:
            bench.now += 11 * SECOND
    assert turns > 20
    assert answers == [(2, slot, OK)]
    assert deliver_all(bench, 2) == ids


def keyed(bench: Channels, key: int) -> int:
    id = bench.next_id
    bench.next_id += SHARDS
    bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE | lib.MSG_HEADERS, topic=bench.topic("t"), id=id,
              body=HEAD.pack(0, lib.HEADERS_PULSAR, 0, key, 0))  # fmt: skip
    return id


@pytest.mark.parametrize("piece", [4, 5, 8, 16])
def test_by_key_who_takes_nothing_keeps_nothing_from_the_others(bench: Channels, piece: int) -> None:
    """Though a turn looks at no more than what is held back for it."""
    lib.worker_limit_turn(bench.worker, piece)
    assert join(bench, 1, lib.POLICY_KEY, credit=1000) == OK
    assert join(bench, 2, lib.POLICY_KEY, credit=0) == OK
    ids = [keyed(bench, 1 + n) for n in range(100)]
    came = [a for _ in range(300) for a in bench.turn() if a.kind == lib.MSG_DELIVER]
    bench.raw(lib.MSG_CREDIT, 2, id=1000)
    rest = [a for _ in range(100) for a in bench.turn() if a.kind == lib.MSG_DELIVER]
    assert {a.conn for a in came} == {1} and {a.conn for a in rest} == {2}
    assert sorted(a.id for a in came + rest) == ids


def test_by_key_what_is_held_back_for_others_is_not_looked_through_for_each_message(bench: Channels) -> None:
    """One takes a message at a time; in front of its own lie those of a consumer that takes none."""
    count = 3000
    assert join(bench, 1, lib.POLICY_KEY, ranges=[(0, 19)], credit=10 * count) == OK
    ids = [[keyed(bench, key) for _ in range(count)] for key in (5, 15)]
    given: list[int] = []
    while len(given) < 2 * count:
        given += [a.id for a in bench.turn() if a.kind == lib.MSG_DELIVER]
        bench.raw(lib.MSG_SENT, 1, id=1 << 20)
    bench.raw(GONE, 1)
    assert join(bench, 2, lib.POLICY_KEY, ranges=[(0, 9)], credit=0) == OK
    assert join(bench, 3, lib.POLICY_KEY, ranges=[(10, 19)], credit=1) == OK
    came: list[int] = []
    for _ in range(130):
        found = [a.id for a in bench.step() if a.kind == lib.MSG_DELIVER]
        for id in found:
            bench.raw(lib.MSG_FINISH, 3, id=id)
        bench.raw(lib.MSG_SENT, 3, id=1 << 20)
        came += found
    assert came == ids[1][: len(came)]
    assert len(came) > 100


@pytest.mark.parametrize("seed", range(8))
def test_by_key_none_overtakes_however_little_is_looked_at_in_a_turn(seed: int) -> None:
    chance = random.Random(seed)
    bench = Channels(ring_bytes=1 << 20)
    lib.worker_limit_turn(bench.worker, chance.choice([1, 3, 10]))
    key_of: dict[int, int] = {}
    flying: dict[int, set[int]] = {}
    finished: set[int] = set()
    next_conn = 1

    def take(answers: list[Answer]) -> None:
        for a in answers:
            if a.kind == lib.MSG_DELIVER and a.conn in flying:
                earlier = {id for id, key in key_of.items() if key == key_of[a.id] and id < a.id} - finished
                assert earlier <= flying[a.conn], "what comes before it is done, or in flight with the same one"
                flying[a.conn].add(a.id)

    for _ in range(250):
        act = chance.randrange(8)
        conn = chance.choice(list(flying)) if flying else 0
        if act <= 1:
            for _ in range(chance.randrange(1, 30)):
                key = 1 + chance.randrange(12)
                key_of[keyed(bench, key)] = key
        elif act == 2 and len(flying) < 5:
            next_conn += 1
            flying[next_conn] = set()
            assert join(bench, next_conn, lib.POLICY_KEY, credit=chance.choice([1, 3, 50])) == OK
        elif act == 3 and conn and chance.random() < 0.6:
            bench.raw(GONE, conn)
            del flying[conn]
        elif act <= 6 and conn and flying[conn]:
            for id in chance.sample(sorted(flying[conn]), chance.randrange(1, len(flying[conn]) + 1)):
                if any(key_of[other] == key_of[id] and other < id for other in flying[conn]):
                    continue
                flying[conn].discard(id)
                finished.add(id)
                bench.raw(lib.MSG_FINISH, conn, id=id)
        elif act == 7 and conn:
            bench.raw(lib.MSG_CREDIT, conn, id=chance.choice([2, 20, 100]))
        take(bench.turn(chance.choice([0, 0, 0.1])))
    for conn in list(flying):
        bench.raw(GONE, conn)
    next_conn += 1
    flying = {next_conn: set()}
    assert join(bench, next_conn, lib.POLICY_KEY, credit=10_000) == OK
    for _ in range(400):
        take(bench.turn())
        if flying[next_conn] | finished == set(key_of):
            break
    assert flying[next_conn] | finished == set(key_of)
    bench.dispose()
