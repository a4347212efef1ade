"""Batches of very many messages, by ring messages alone: whatever is finished of them, in whatever order, stays so over
restarts and segments that go, and to finish one of their messages costs the log no more than with a small batch."""

from __future__ import annotations

import random
import struct

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, SHARDS
from tests.shards.subscriptions import Channels, drop_oldest, roll
from tests.shards.test_open_transactions import ABORT, COMMIT, TXN, end, open_ones
from tests.shards.test_packed import packed, publish, runs
from tests.shards.test_shard_protocol import ask, join, keyed

MOST = 64 * lib.PARTS_MAX_WORDS
PARTS = 5000
HEADERS = lib.SUBSCRIBE_HEADERS
RECORD_BYTES = 250  # of the log, for a message that is finished alone


def words(left: int) -> bytes:
    return left.to_bytes(max((left.bit_length() + 63) // 64, 1) * 8, "little")


def finish(bench: Channels, id: int, left: int, conn: int = 1) -> list[int]:
    """Leaves the parts whose bits are set. The statuses of refusals."""
    bench.raw(lib.MSG_FINISH, conn, flags=lib.MSG_PARTS, id=id, body=words(left))
    return [a.status for a in bench.turn()]


def delivered(bench: Channels, conn: int = 1, parts: int = PARTS) -> int | None:
    """The parts of the one message that comes, as bits; None: none comes."""
    bench.sub(conn, "t", "c", credit=1, flags=HEADERS)
    found = [a for a in bench.turn() if a.kind == lib.MSG_DELIVER]
    if not found:
        return None
    (one,) = found
    if one.body == packed(parts):
        return (1 << parts) - 1
    (count,) = struct.unpack_from("<I4x", one.body)
    return int.from_bytes(one.body[8 : 8 + 8 * count], "little")


def written(bench: Channels) -> int:
    return int(lib.worker_appended(bench.worker, 0))


@pytest.mark.parametrize("order", ["forward", "back", "any"])
def test_each_part_that_is_finished_stays_so(bench: Channels, order: str) -> None:
    dice, left = random.Random(order), (1 << PARTS) - 1
    todo = list(range(PARTS))
    if order == "back":
        todo.reverse()
    elif order == "any":
        dice.shuffle(todo)
    id = publish(bench, "t", PARTS)
    assert delivered(bench) == left
    restarts = set(dice.sample(range(PARTS), 5))
    moves = set(dice.sample(range(PARTS), 3))
    for n, part in enumerate(todo[:-1]):
        left &= ~(1 << part)
        # A client says what is left of those that it has, which may be all but the one, or all that are left.
        assert finish(bench, id, left if n % 2 else (1 << PARTS) - 1 & ~(1 << part)) == []
        if n in moves:
            roll(bench)
            drop_oldest(bench)
        if n in restarts:
            bench.restart()
            assert delivered(bench) == left
    bench.raw(GONE, 1)
    bench.turn()
    assert delivered(bench) == left and left.bit_count() == 1
    assert finish(bench, id, 0) == []
    bench.restart()
    assert delivered(bench) is None


@pytest.mark.parametrize("parts", [1000, MOST])
@pytest.mark.parametrize("flags", [HEADERS, 0])
def test_one_that_is_finished_alone_costs_the_log_little(bench: Channels, parts: int, flags: int) -> None:
    id = publish(bench, "t", parts)
    bench.sub(1, "t", "c", credit=parts, flags=flags)
    bench.turn()
    left, many = (1 << parts) - 1, 300
    for part in range(7, 7 + many):
        if part == 8:
            before = written(bench)
        left &= ~(1 << part)
        if flags:
            bench.raw(lib.MSG_FINISH, 1, flags=lib.MSG_PARTS, id=id, body=words(left))
        else:
            bench.raw(lib.MSG_FINISH, 1, id=id + (part + 1) * SHARDS)
    assert bench.turn() == []
    assert written(bench) - before < many * RECORD_BYTES
    bench.restart()
    assert delivered(bench, parts=parts) == left


def test_parts_that_one_has_had_by_one_protocol_are_left_by_another(bench: Channels) -> None:
    id = publish(bench, "t", MOST)
    bench.sub(2, "t", "c", credit=MOST)
    assert runs(bench.turn()) == [(id, 0, MOST, 1)]
    had = random.Random(1).sample(range(MOST), 700)
    bench.fin(2, *[id + (part + 1) * SHARDS for part in had])
    bench.restart()
    left = (1 << MOST) - 1
    for part in had:
        left &= ~(1 << part)
    assert delivered(bench, parts=MOST) == left
    bench.raw(GONE, 1)
    bench.turn()
    bench.sub(2, "t", "c", credit=MOST)  # as much as is on its way to one consumer at once
    came = [first + n for _, first, count, _ in runs(bench.turn()) for n in range(count)]
    assert came == [part for part in range(MOST) if left >> part & 1][: len(came)] and len(came) > MOST / 4


def test_there_is_room_for_few_of_them_that_are_finished_in_part(bench: Channels) -> None:
    lib.worker_limit_parts(bench.worker, 16)
    ids = [publish(bench, "t", PARTS) for _ in range(3)]
    small = publish(bench, "t", 3)
    bench.sub(1, "t", "c", credit=10, flags=HEADERS)
    assert len(bench.turn()) == 4
    assert finish(bench, ids[0], 1 << 4000) == []
    assert finish(bench, ids[1], 1 << 4000) == [lib.STATUS_NO_SPACE]
    assert finish(bench, ids[2], 1 << 3) == [], "little is left of it"
    assert finish(bench, small, 1) == []
    assert finish(bench, ids[0], 0) == []
    assert finish(bench, ids[1], 1 << 4000) == []


def test_parts_that_a_transaction_finishes_are_as_many(bench: Channels) -> None:
    id = publish(bench, "t", PARTS)
    bench.sub(1, "t", "c", credit=1, flags=HEADERS)
    (seq,) = [a.seq for a in bench.turn() if a.kind == lib.MSG_DELIVER]

    def acknowledge(left: int, txn: int) -> int:
        return ask(bench, lib.MSG_TXN_ACK, 1, topic=bench.topic("t"), id=txn, ttr=seq, body=words(left)).status

    left, all = (1 << PARTS) - 1, (1 << PARTS) - 1
    assert acknowledge(all & ~(1 << 4000), TXN) == OK
    assert acknowledge(all & ~(1 << 4000 | 1 << 3), TXN + 1) == lib.STATUS_FULL, "another has acknowledged it"
    assert acknowledge(all & ~(1 << 3), TXN + 1) == OK
    assert finish(bench, id, all & ~(1 << 100)) == []
    roll(bench)
    drop_oldest(bench)
    bench.restart()
    left &= ~(1 << 4000 | 1 << 3 | 1 << 100)
    assert delivered(bench) == left, "what is acknowledged in transactions waits for their end"
    end(bench, COMMIT)
    end(bench, 0, TXN + 1)
    left |= 1 << 3
    bench.early.clear()
    bench.restart()
    assert delivered(bench) == left


@pytest.mark.parametrize("how", [ABORT, COMMIT])
def test_parts_that_a_transaction_finishes_one_by_one_are_one_acknowledgement(bench: Channels, how: int) -> None:
    """Else to acknowledge each of a batch would cost as much as its number squared."""
    publish(bench, "t", MOST)
    bench.sub(1, "t", "c", credit=1, flags=HEADERS)
    (seq,) = [a.seq for a in bench.turn() if a.kind == lib.MSG_DELIVER]
    all = left = (1 << MOST) - 1

    def acknowledge(part: int, txn: int = TXN) -> int:
        body = words(all & ~(1 << part))
        return ask(bench, lib.MSG_TXN_ACK, 1, topic=bench.topic("t"), id=txn, ttr=seq, body=body).status

    for n, part in enumerate(random.Random(1).sample(range(MOST), 200)):
        assert acknowledge(part) == OK
        assert acknowledge(part) == acknowledge(part, TXN + 1) == lib.STATUS_FULL, "it is acknowledged"
        left &= ~(1 << part)
        if n in (20, 80, 150):
            roll(bench)
            drop_oldest(bench)
        if n in (60, 80, 199):
            bench.restart()
            assert delivered(bench, parts=MOST) == left
    number, items = struct.unpack_from("<QQ", open_ones(bench))
    assert (number, items) == (TXN, 1)
    end(bench, how)
    bench.early.clear()
    bench.restart()
    assert delivered(bench, parts=MOST) == (left if how == COMMIT else all)
    bench.restart()
    assert not open_ones(bench)


def test_by_key_who_takes_few_of_its_messages_keeps_nothing_from_the_others(bench: Channels) -> None:
    """More are held back for one consumer than a turn looks at; the worker does not look at them for ever."""
    assert join(bench, 1, lib.POLICY_KEY, ranges=[(0, 9)], credit=0) == OK
    assert join(bench, 2, lib.POLICY_KEY, ranges=[(10, 19)]) == OK
    id = publish(bench, "t", MOST)
    other, came = keyed(bench, 15)
    assert [(a.conn, a.id) for a in came] == [(2, other)]
    assert runs(bench.credit(1, 1)) == [(id, 0, 1, 1)]
    came = bench.req(2, other) + [a for _ in range(20) for a in bench.turn()]
    assert [(a.conn, a.id) for a in came] == [(2, other)]
    assert not any(bench.pass_turn() for _ in range(10)), "there is nothing to do"
    assert runs(bench.fin(1, id + SHARDS)) == [(id, 1, 1, 1)]
