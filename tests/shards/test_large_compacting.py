"""A large message moves to the log's head a piece a turn, and is whole there whatever happens meanwhile."""

from __future__ import annotations

import os
import random
import struct

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import DELETE, OK, PEEK_ID, PUBLISH, SHARDS
from tests.shards.positions import EARLIEST, begin
from tests.shards.subscriptions import Channels, delivered, drop_oldest, roll
from tests.shards.turns import roomy

MIB = 1 << 20
LARGE = 9 * MIB
PUBLISHED, MOVED = 3, 6  # enum record_kind, csrc/log/records.h

bench = pytest.fixture(roomy)


def body_of(seed: int) -> bytes:
    return random.Random(seed).randbytes(LARGE)


def put(bench: Channels, body: bytes, name: str = "t", flags: int = 0) -> int:
    id, bench.next_id = bench.next_id, bench.next_id + SHARDS
    slot = bench.raw(PUBLISH, 9, flags=flags, topic=bench.topic(name), id=id, pri=1024, body=body)
    assert [(a.slot, a.status) for a in until(bench, 1)] == [(slot, OK)]
    return id


def put_in_the_oldest(bench: Channels) -> int:
    id = put(bench, body_of(1))
    roll(bench)
    drop_oldest(bench)  # a large one begins a segment
    return id


def until(bench: Channels, count: int) -> list:  # type: ignore[type-arg]
    answers = []
    for _ in range(2000):
        answers += [a for a in bench.turn() if a.kind != lib.MSG_DELIVER]
        if len(answers) >= count:
            break
    return answers


def peek(bench: Channels, id: int) -> bytes:
    slot = bench.raw(PEEK_ID, 5, id=id)
    (answer,) = until(bench, 1)
    assert (answer.slot, answer.status) == (slot, OK)
    return bytes(answer.body)


def one_turn(bench: Channels) -> None:
    lib.channel_publish(bench.channels[0])
    lib.worker_turn(bench.worker, bench.now, bench.wall)
    bench.supply()


def test_it_moves_a_piece_a_turn_and_others_are_served(bench: Channels) -> None:
    id = put_in_the_oldest(bench)
    first = lib.worker_first_segment(bench.worker, 0)
    turns = small = 0
    while not lib.worker_compact(bench.worker, 0, 1 << 17):
        slot = bench.raw(PUBLISH, 7, topic=bench.topic("u"), id=bench.next_id, pri=1)
        bench.next_id += SHARDS
        one_turn(bench)
        small += [(a.slot, a.status) for a in bench.receive()] == [(slot, OK)]
        turns += 1
    # It is checked first, and copied then.
    assert 2 * LARGE // MIB <= turns <= 3 * LARGE // MIB
    assert small == turns
    drop_oldest(bench)
    assert lib.worker_first_segment(bench.worker, 0) > first
    for _ in range(2):
        assert peek(bench, id) == body_of(1)
        bench.restart()


def test_what_is_done_with_meanwhile_moves_no_further(bench: Channels) -> None:
    id = put_in_the_oldest(bench)
    for _ in range(LARGE // MIB + 3):
        assert not lib.worker_compact(bench.worker, 0, 1 << 17)
        one_turn(bench)
    bench.receive()
    slot = bench.raw(DELETE, 5, id=id)
    assert [(a.slot, a.status) for a in until(bench, 1)] == [(slot, OK)]
    # The segment that it was being moved to is free again.
    other = put(bench, body_of(2))
    bench.restart()
    assert peek(bench, other) == body_of(2)


@pytest.mark.parametrize("retained", [False, True], ids=["held", "retained"])
def test_a_topic_that_begins_to_retain_writes_a_large_message_again_in_pieces(bench: Channels, retained: bool) -> None:
    """An ephemeral channel has it, or has finished it: the log knows nobody who holds it."""
    if retained:
        assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    assert bench.sub(1, "t", "c#ephemeral", flags=lib.SUBSCRIBE_EPHEMERAL) == OK
    put(bench, body_of(1), flags=lib.MSG_DURABLE)
    slot = bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_RETAIN, body=b"t")
    lib.channel_publish(bench.channels[0])
    turns, answers = 0, []
    while not [a for a in answers if a.slot == slot]:
        one_turn(bench)
        answers = bench.receive()
        turns += 1
    assert retained or LARGE // MIB <= turns <= 2 * LARGE // MIB
    bench.restart()
    begin(bench, 2, EARLIEST)
    assert [a.body for a in consume(bench, 2)] == [body_of(1)]


def consume(bench: Channels, conn: int) -> list:  # type: ignore[type-arg]
    found = [a for a in bench.early if a.kind == lib.MSG_DELIVER]
    bench.early = []
    bench.raw(lib.MSG_CREDIT, conn, id=100)
    for _ in range(60):
        came = [a for a in bench.turn() if a.kind == lib.MSG_DELIVER]
        for a in came:
            bench.raw(lib.MSG_SENT, conn, id=48 + len(a.body))
        found += came
    return found


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_meanwhile_each_message_is_there_once(seed: int) -> None:
    dice = random.Random(seed)
    bench = Channels(ring_bytes=1 << 22)
    bench.sub(1, "t", "c")
    bodies: dict[int, bytes] = {}
    for _ in range(60):
        match dice.randrange(12):
            case 0 | 1 if len(bodies) < 4:
                body = body_of(dice.randrange(1 << 20))
                bodies[put(bench, body, dice.choice("ut"), flags=0)] = body
            case 2 if bodies:
                id = dice.choice(list(bodies))
                bench.raw(DELETE, 5, id=id)
                assert [a.status for a in until(bench, 1)] == [OK]
                del bodies[id]
            case 3:
                bench.restart()
                bench.sub(1, "t", "c")
            case 4:
                roll(bench)
            case 5:
                bench.sub(20 + dice.randrange(100), "u", f"d{dice.randrange(4)}")
            case _:
                there = lib.worker_first_segment(bench.worker, 0) < lib.worker_active_segment(bench.worker, 0)
                for _ in range(dice.randrange(40) if there else 0):
                    if lib.worker_compact(bench.worker, 0, 1 << 20):
                        if lib.worker_dead_segments(bench.worker, 0) and lib.worker_drop_first(bench.worker, 0):
                            bench.drop(0, *bench.segments[0].pop(0))
                        break
                    one_turn(bench)
        bench.receive()
    bench.restart()
    assert bench.found.damages == 0
    for id, body in bodies.items():
        assert peek(bench, id) == body
    bench.dispose()


def test_a_move_that_a_crash_cuts_off_behind_the_message_does_not_count(bench: Channels) -> None:
    """Its REFERENCES, which says who holds it, is written apart from a large message."""
    assert bench.sub(1, "t", "c") == OK
    id, _ = bench.pub("t", b"a")
    roll(bench)
    assert lib.worker_compact(bench.worker, 0, 1 << 20)
    bench.turn()
    bench.stop()
    fd = [fd for _, fd in bench.segments[0] if is_written(fd)][-1]
    os.ftruncate(fd, end_of_moved(fd))
    bench.start()
    drop_oldest(bench)
    bench.restart()
    bench.sub(2, "t", "c", credit=1)
    assert delivered(bench.turn()) == [(id, 1)]


def is_written(fd: int) -> bool:
    return any(os.pread(fd, 8, 0))


def end_of_moved(fd: int) -> int:
    at = 64
    while True:
        count, _, kind = struct.unpack("<IIB", os.pread(fd, 9, at))
        assert count, "there is no MOVED"
        at += (count + 7) & ~7
        if kind == MOVED:
            return at


MARK = b"here a body begins"


def lookalikes() -> bytes:
    """Heads of records of a MiB that are none, one in 4 KiB, at each alignment."""
    head = struct.pack("<IIBBHI", MIB, 0xBAD, PUBLISHED, 0, 0, 1)
    return (head + bytes(4097 - len(head))) * (2 * LARGE // 4096)


@pytest.mark.parametrize(
    "body", [random.Random(5).randbytes(2 * LARGE), bytes(2 * LARGE), lookalikes()], ids=["any", "zeros", "heads"]
)
def test_what_is_behind_damage_is_searched_for_a_piece_at_a_time(bench: Channels, body: bytes) -> None:
    """Where the heads of records are damaged nobody knows how long these are."""
    body = MARK + body
    put(bench, body)
    small = [put(bench, b"small %d" % n) for n in range(3)]
    roll(bench)
    drop_oldest(bench)
    fd = bench.segments[0][0][1]
    at = os.pread(fd, MIB, 0).index(MARK)
    (head,) = (at - 40 - n for n in range(60) if os.pread(fd, 4, at - 40 - n) == struct.pack("<I", 40 + n + len(body)))
    os.pwrite(fd, bytes(16), head)
    turns = 1
    while not lib.worker_compact(bench.worker, 0, 1 << 17):
        one_turn(bench)
        turns += 1
    assert turns >= 2 * LARGE // MIB
    assert lib.worker_dead_segments(bench.worker, 0) == 1
    drop_oldest(bench)
    for n, id in enumerate(small):
        assert peek(bench, id) == b"small %d" % n
