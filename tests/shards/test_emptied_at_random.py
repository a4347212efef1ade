"""A channel is emptied while segments are too, and the process is killed at any moment: nothing of it comes again."""

from __future__ import annotations

import random

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, Answer
from tests.shards.subscriptions import Channels, roll


def drain(bench: Channels, channel: str) -> set[int]:
    """The ids of all that it has."""
    assert bench.sub(700, "t", channel) == OK
    bench.turn(2000)
    bench.raw(lib.MSG_CREDIT, 700, id=1 << 30)
    came: set[int] = set()
    quiet = 0
    while quiet < 20:
        found = {a.id for a in bench.turn() if a.kind == lib.MSG_DELIVER and a.conn == 700}
        bench.raw(lib.MSG_SENT, 700, id=1 << 30)
        came |= found
        quiet = 0 if found else quiet + 1
    bench.raw(GONE, 700)
    bench.turn()
    return came


def empty_segments(bench: Channels, chance: random.Random) -> None:
    """As retention does: some of the oldest segment moves, or all, and it goes."""
    roll(bench)
    for _ in range(chance.choice([1, 3, 100])):
        there = lib.worker_first_segment(bench.worker, 0) < lib.worker_active_segment(bench.worker, 0)
        moved = there and lib.worker_compact(bench.worker, 0, chance.choice([300, 3000, 1 << 20]))
        if moved and lib.worker_drop_first(bench.worker, 0):
            bench.drop(0, *bench.segments[0].pop(0))
        bench.supply()
        if not chance.randrange(3):
            bench.step()


@pytest.mark.parametrize("seed", range(24))
def test_what_was_emptied_never_comes_again_and_what_came_after_is_there(seed: int) -> None:
    chance = random.Random(seed)
    bench = Channels(ring_bytes=1 << 22, piece=chance.choice([3, 8, 40]))
    channels = chance.choice([["c"], ["c", "d"]])
    has: dict[str, set[int]] = {channel: set() for channel in channels}
    maybe: dict[str, set[int]] = {channel: set() for channel in channels}  # finished, and not told so by the log yet
    consumers: dict[int, str] = {}
    flying: dict[int, set[int]] = {}
    next_conn = 10
    for n, channel in enumerate(channels):
        assert bench.sub(1 + n, "t", channel) == OK

    def take(answers: list[Answer]) -> None:
        for a in answers:
            if a.kind == lib.MSG_DELIVER and a.conn in consumers:
                assert a.id in has[consumers[a.conn]] | maybe[consumers[a.conn]]
                flying[a.conn].add(a.id)

    for _ in range(50):
        act = chance.randrange(9)
        channel = chance.choice(channels)
        conn = chance.choice(list(consumers)) if consumers else 0
        if act <= 1:
            for _ in range(chance.choice([1, 5, 60])):
                id, pushed = bench.pub("t", b"x" * chance.choice([1, 300]), delay=chance.choice([0, 0, 0, 500]))
                for held in has.values():
                    held.add(id)
                take(pushed)
        elif act == 2 and len(consumers) < 3:
            next_conn += 1
            if bench.sub(next_conn, "t", channel) == OK:
                consumers[next_conn], flying[next_conn] = channel, set()
                bench.raw(lib.MSG_CREDIT, next_conn, id=chance.choice([1, 20, 100]))
        elif act == 3 and conn and flying[conn]:
            for id in chance.sample(sorted(flying[conn]), chance.randrange(1, len(flying[conn]) + 1)):
                bench.raw(lib.MSG_FINISH, conn, id=id)
                flying[conn].discard(id)
                has[consumers[conn]].discard(id)
                maybe[consumers[conn]].add(id)
        elif act == 4 and conn and flying[conn]:
            for id in chance.sample(sorted(flying[conn]), chance.randrange(1, len(flying[conn]) + 1)):
                bench.raw(lib.MSG_REQUEUE, conn, id=id, delay=chance.choice([0, 400 * 10**9]))
                flying[conn].discard(id)
        elif act in (5, 6):
            bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_EMPTY, body=b"t\n" + channel.encode())
            gone = has[channel]
            has[channel] = set()
            for of in consumers:
                if consumers[of] == channel:
                    flying[of].clear()
            for _ in range(chance.choice([1, 1, 2, 5])):
                came = bench.step()
                # What was on its way to a consumer is not called back.
                take([a for a in came if a.id not in gone])
                if not chance.randrange(3):
                    empty_segments(bench, chance)
            if not chance.randrange(3):
                bench.restart()
                consumers.clear()
                flying.clear()
            else:
                behind = bench.raw(lib.MSG_BARRIER, 998)
                for _ in range(300):
                    came = bench.step()
                    take([a for a in came if a.id not in gone])
                    if any(a.slot == behind for a in came):
                        break
                else:
                    raise AssertionError("it is not over")
            for of in maybe:
                maybe[of] -= gone if of == channel else set()
        elif act == 7:
            empty_segments(bench, chance)
        elif act == 8 and not chance.randrange(3):
            bench.restart()
            consumers.clear()
            flying.clear()
        take(bench.turn())
    if chance.randrange(2):
        bench.restart()
    else:
        for conn in list(consumers):
            bench.raw(GONE, conn)
        consumers.clear()
        for _ in range(200):
            bench.turn()
    for channel in channels:
        came = drain(bench, channel)
        assert has[channel] <= came <= has[channel] | maybe[channel]
    bench.dispose()
