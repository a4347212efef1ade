"""A message that is several to who does not know its headers, by ring messages alone: each of those is delivered,
requeued and finished by itself, and what is left of it outlives restarts and compaction."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, SHARDS, Answer
from tests.shards.subscriptions import Channels, drop_oldest, roll
from tests.shards.test_shard_protocol import join

HEAD = struct.Struct("<IHHII")
RUN = struct.Struct("<QII")
SCRIPTS = 60
MOST = 64 * lib.PARTS_MAX_WORDS
ACTS = 80


def packed(parts: int, body: bytes = b"parts", packed_bytes: int = 5) -> bytes:
    return HEAD.pack(4, lib.HEADERS_PULSAR, parts, 1, packed_bytes) + b"head" + body


def publish(bench: Channels, name: str, parts: int, body: bytes = b"parts") -> int:
    """Its id; those of its parts come behind it."""
    topic, id = bench.topic(name), bench.next_id
    bench.next_id += SHARDS * (parts + 1)
    slot = bench.raw(lib.MSG_PUBLISH, 999, flags=lib.MSG_DURABLE | lib.MSG_HEADERS, topic=topic, id=id, pri=1024,
                     body=packed(parts, body))  # fmt: skip
    answers = bench.turn()
    assert [a.status for a in answers if a.kind == lib.MSG_PUBLISH and a.slot == slot] == [OK]
    bench.early += [a for a in answers if a.kind == lib.MSG_DELIVER]
    return id


def runs(answers: list[Answer]) -> list[tuple[int, int, int, int]]:
    """Of each delivery: the id of the packed message, its first part, their number, and how often they have been."""
    found = []
    for a in answers:
        if a.kind != lib.MSG_DELIVER:
            continue
        id, first, count = RUN.unpack_from(a.body)
        assert a.body[RUN.size :] in (packed(2), packed(3), packed(70), packed(MOST), packed(1), packed(0))
        parts = HEAD.unpack_from(a.body, RUN.size)[2]
        assert a.id == (id + (first + 1) * SHARDS if parts > 1 else id)
        found.append((id, first, count, a.pri))
    return found


def test_parts_come_in_runs_as_far_as_credit_goes(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=2)
    id = publish(bench, "t", 70)
    assert runs(bench.turn()) == [(id, 0, 2, 1)]
    assert runs(bench.fin(1, id + SHARDS)) == [(id, 2, 1, 1)]
    assert runs(bench.credit(1, 100)) == [(id, 3, 67, 1)]
    figures = bench.catalog()["t"].channels["c"]
    assert (figures.in_flight, figures.depth) == (69, 0)
    assert runs(bench.req(1, id + 5 * SHARDS)) == [(id, 4, 1, 2)]


@pytest.mark.parametrize("parts", [0, 1])
def test_one_that_is_alone_keeps_its_id(bench: Channels, parts: int) -> None:
    bench.sub(1, "t", "c", credit=2)
    id = publish(bench, "t", parts)
    assert runs(bench.turn()) == [(id, 0, 1, 1)]
    assert bench.fin(1, id) == [] and bench.catalog()["t"].channels["c"].in_flight == 0


@pytest.mark.parametrize("credit", [100, 0])
def test_by_key_they_come_at_once_and_after_they_were_held_back(bench: Channels, credit: int) -> None:
    assert join(bench, 1, lib.POLICY_KEY, credit=credit) == OK
    ids = [publish(bench, "t", 3) for _ in range(2)]
    came = runs([a for _ in range(4) for a in bench.turn()])
    assert bool(came) == bool(credit)
    bench.raw(lib.MSG_CREDIT, 1, id=100)
    came += runs([a for _ in range(6) for a in bench.turn()])
    assert [(id, first + n) for id, first, count, _ in came for n in range(count)] == [
        (id, n) for id in ids for n in range(3)
    ]


def test_who_knows_headers_gets_it_whole(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=2, flags=lib.SUBSCRIBE_HEADERS)
    id = publish(bench, "t", 3)
    assert [(a.id, a.body) for a in bench.turn()] == [(id, packed(3))]


def test_more_parts_than_can_be_finished_one_by_one_stay_together(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=2)
    id = publish(bench, "t", MOST + 1)
    assert [(a.id, a.body) for a in bench.turn()] == [(id, b"parts")]


def test_each_has_its_own_time(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10, timeout=60)
    id = publish(bench, "t", 3)
    bench.turn(30)
    bench.raw(lib.MSG_EXTEND, 1, id=id + 2 * SHARDS)
    bench.turn()
    assert runs(bench.turn(40)) == [(id, 0, 1, 2), (id, 2, 1, 2)]
    assert runs(bench.turn(30)) == [(id, 1, 1, 2)]


def test_a_requeued_part_waits_and_the_others_do_not(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=1)
    id = publish(bench, "t", 2)
    assert runs(bench.turn()) == [(id, 0, 1, 1)]
    assert runs(bench.req(1, id + SHARDS, 5)) == [(id, 1, 1, 1)]
    assert bench.fin(1, id + 2 * SHARDS) == []
    assert runs(bench.turn(6)) == [(id, 0, 1, 2)]


def test_batches_of_as_many_as_there_may_be_are_split_one_after_the_other(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=MOST + 476)
    first, second, _ = (publish(bench, "t", MOST) for _ in range(3))
    assert runs(bench.turn()) == [(first, 0, MOST, 1), (second, 0, 476, 1)]
    figures = bench.catalog()["t"].channels["c"]
    assert (figures.in_flight, figures.depth) == (MOST + 476, MOST - 476 + 1)


def test_a_seek_brings_a_batch_back_whole(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10)
    bench.change(lib.CHANGE_RETAIN, "t")
    id = publish(bench, "t", 3)
    assert runs(bench.turn()) == [(id, 0, 3, 1)]
    bench.fin(1, id + SHARDS)
    bench.raw(lib.MSG_SEEK, 1, topic=bench.topic("t"), pri=lib.START_EARLIEST, body=b"c")
    assert runs(bench.turn()) == [(id, 0, 3, 1)]


# --- at random --------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """The ids that are not finished, and with whom each is; None: with nobody."""

    parts: dict[int, tuple[int, int]] = field(default_factory=dict)  # by id: its message, and which it is of that
    held: dict[int, int | None] = field(default_factory=dict)

    def publish(self, id: int, count: int) -> None:
        for i in range(count):
            part = id + (i + 1) * SHARDS if count > 1 else id
            self.parts[part], self.held[part] = (id, i), None

    def deliver(self, answers: list[Answer]) -> None:
        for a in answers:
            if a.kind != lib.MSG_DELIVER:
                assert a.kind != lib.MSG_REFUSED, a
                continue
            id, first, count = RUN.unpack_from(a.body)
            for i in range(count):
                part = a.id + i * SHARDS
                assert self.parts[part] == (id, first + i), "it is not what it is said to be"
                assert self.held[part] is None, "it is with two, or has been finished"
                self.held[part] = a.conn

    def leave(self, conn: int | None) -> None:
        for part, holder in self.held.items():
            if conn in (None, holder):
                self.held[part] = None


@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_whatever_is_done_each_part_is_with_one_until_it_is_finished(seed: int) -> None:
    dice, bench, model = random.Random(seed), Channels(), Model()
    there: set[int] = set()

    def settle() -> None:
        while answers := bench.turn():
            model.deliver(answers)

    try:
        bench.sub(50, "t", "c")  # it is there from the beginning
        for _ in range(ACTS):
            held = [part for part, conn in model.held.items() if conn is not None]
            act = dice.choices(
                ("publish", "join", "leave", "finish", "requeue", "credit", "restart", "compact", "time"),
                (4, 2, 1, 8, 4, 3, 0.3, 0.6, 1),
            )[0]
            if act == "publish":
                (count,) = dice.choices((1, 2, 3, 70, 1300), (4, 4, 4, 4, 1))
                model.publish(publish(bench, "t", count), count)
            elif act == "join" and len(there) < 3:
                conn = min({1, 2, 3} - there)
                assert bench.sub(conn, "t", "c", credit=dice.choice((1, 3, 100))) == OK
                there.add(conn)
            elif act == "leave" and there:
                conn = dice.choice(sorted(there))
                there.discard(conn)
                bench.raw(GONE, conn)
                model.leave(conn)
            elif act == "finish" and held:
                for part in dice.sample(held, dice.randint(1, len(held))):
                    bench.raw(lib.MSG_FINISH, model.held.pop(part) or 0, id=part)
            elif act == "requeue" and held:
                part = dice.choice(held)
                delay = dice.choice((0, 5))
                bench.raw(lib.MSG_REQUEUE, model.held[part] or 0, id=part, delay=delay * 10**9)
                model.held[part] = None
            elif act == "credit" and there:
                bench.raw(lib.MSG_CREDIT, dice.choice(sorted(there)), id=dice.choice((1, 5, 100)))
            elif act == "restart":
                settle()
                bench.restart()
                model.leave(None)
                there.clear()
            elif act == "compact":
                settle()
                roll(bench)
                drop_oldest(bench)
            elif act == "time":
                model.deliver(bench.turn(6))
            settle()
        for conn in there:
            bench.raw(GONE, conn)
            model.leave(conn)
        bench.sub(9, "t", "c", credit=100_000)
        settle()
        model.deliver(bench.turn(6))
        settle()
        assert all(conn == 9 for conn in model.held.values())
        figures = bench.catalog()["t"].channels["c"]
        assert (figures.in_flight, figures.depth, figures.deferred) == (len(model.held), 0, 0)
        bench.fin(9, *model.held)
        bench.restart()
        bench.sub(1, "t", "c", credit=100_000)
        assert bench.turn() == []
    finally:
        bench.dispose()
