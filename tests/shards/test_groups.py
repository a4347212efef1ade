"""A PUBLISH_MANY that is too much for one turn is written, and then taken in, in pieces: all of it, or nothing."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator, Sequence

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import GONE, NO_SPACE, OK, PEEK_ID, PUBLISH, RESERVE, SECOND, SHARDS, WATCH, Answer
from tests.shards.subscriptions import Channels
from tests.shards.turns import PIECE as USUAL
from tests.shards.turns import was_short

MIB = 1 << 20
COUNT = 6_400
MANY = [b"%08d" % n * 130 for n in range(COUNT)]
PIECE = 400
SMALL = [b"%d" % n for n in range(100_000)]
ODD = random.Random(1).randbytes(300_000)
BULKY = [b"first", bytes(9 * MIB), b"", ODD, *(bytes([n]) * 5000 for n in range(200)), b"last"]
PRODUCER_PART = struct.Struct("<QQII")
TURNS = 6 * (2 * COUNT // PIECE)
OTHER = 99  # a topic of another shard


@pytest.fixture()
def bench() -> Iterator[Channels]:
    b = Channels(ring_bytes=1 << 26, piece=PIECE)
    b.open("elsewhere", OTHER, 1)
    yield b
    b.dispose()


def send(bench: Channels, bodies: Sequence[bytes] = MANY, conn: int = 1, name: str = "t", before: bytes = b"",
         flags: int = 0, delay: int = 0) -> tuple[int, int]:  # fmt: skip
    """The slot, and the id of the first."""
    topic, first = bench.topic(name), bench.next_id
    bench.next_id += SHARDS * len(bodies)
    body = before + b"".join(struct.pack(">I", len(b)) + b for b in bodies)
    slot = bench.raw(lib.MSG_PUBLISH_MANY, conn, flags=flags, topic=topic, id=first, pri=len(bodies), body=body,
                     delay=delay * SECOND)  # fmt: skip
    return slot, first


def publish(bench: Channels, conn: int = 2, name: str = "t", body: bytes = b"other") -> int:
    topic, id = bench.topic(name), bench.next_id
    bench.next_id += SHARDS
    return bench.raw(PUBLISH, conn, flags=lib.MSG_DURABLE, topic=topic, id=id, pri=1024, body=body)


def until(bench: Channels, *slots: int) -> list[Answer]:
    """What comes until all of these are answered."""
    answers: list[Answer] = []
    for _ in range(TURNS):
        answers += bench.step()
        if set(slots) <= {a.slot for a in answers if a.kind != lib.MSG_DELIVER}:
            return answers
    raise AssertionError("nothing came")


def status(bench: Channels, slot: int) -> int:
    return next(a.status for a in until(bench, slot) if a.slot == slot)


def bodies(bench: Channels, name: str = "t", channel: str = "c", conn: int = 70) -> list[bytes]:
    """What is in a channel; it is finished."""
    assert bench.sub(conn, name, channel) == OK
    bench.raw(lib.MSG_CREDIT, conn, id=1 << 30)
    came: list[Answer] = []
    idle = 0
    for _ in range(4 * COUNT // 64):
        found = [a for a in bench.step() if a.kind == lib.MSG_DELIVER]
        bench.raw(lib.MSG_SENT, conn, id=1 << 30)
        came += found
        idle = 0 if found else idle + 1
        if came and idle > 4:  # a large one is looked at in some turns before it comes
            break
    for answer in came:
        bench.raw(lib.MSG_FINISH, conn, id=answer.id)
    bench.raw(GONE, conn)
    bench.step()
    return [a.body for a in came]


def restart(bench: Channels) -> None:
    bench.restart()
    bench.open("elsewhere", OTHER, 1)
    assert bench.found.damages == 0


def test_no_turn_is_long_and_others_are_served_in_each(bench: Channels) -> None:
    lib.worker_limit_turn(bench.worker, USUAL)
    lib.worker_longest_turn(bench.worker)
    slot, first = send(bench, SMALL)
    answers: list[Answer] = []
    turns = 0
    while slot not in {a.slot for a in answers}:
        other = bench.raw(PUBLISH, 5, topic=OTHER, id=1 + SHARDS * (turns + 1), pri=1, body=b"x")
        answers = bench.step()
        assert other in {a.slot for a in answers}
        turns += 1
        assert turns < TURNS
    assert was_short(bench)
    assert turns > 2 * (len(SMALL) // USUAL), "it was written, and taken in, in pieces"
    assert [(a.id, a.status, a.seq) for a in answers if a.slot == slot] == [(first, OK, 0)]
    assert bench.catalog()["t"].depth == len(SMALL)


def test_all_come_in_their_order_before_and_after_a_restart(bench: Channels) -> None:
    bench.sub(3, "t", "c")
    for restarted in (False, True):
        slot, _ = send(bench)
        assert status(bench, slot) == OK
        if restarted:
            restart(bench)
        assert bodies(bench) == MANY


def test_large_ones_among_them_are_whole_and_take_turns_too(bench: Channels) -> None:
    bench.sub(3, "t", "c")
    slot, _ = send(bench, BULKY)
    assert bench.step() == bench.step() == bench.step() == []
    assert status(bench, slot) == OK
    assert bodies(bench) == BULKY
    slot, _ = send(bench, BULKY)
    assert status(bench, slot) == OK
    restart(bench)
    assert bodies(bench) == BULKY


def test_what_else_is_published_to_the_topic_and_asked_of_it_comes_behind_them(bench: Channels) -> None:
    bench.sub(3, "t", "c")
    many, _ = send(bench)
    bench.step()
    slots = [many, publish(bench), publish(bench), bench.raw(lib.MSG_CHANGE, 5, pri=lib.CHANGE_MAKE, body=b"t\nlate")]
    again, _ = send(bench, conn=4)
    answers = until(bench, *slots, again)
    assert [(a.slot, a.seq) for a in answers if a.kind in (PUBLISH, lib.MSG_PUBLISH_MANY)] == [
        (many, 0), (slots[1], COUNT), (slots[2], COUNT + 1), (again, COUNT + 2)]  # fmt: skip
    restart(bench)
    assert bodies(bench) == [*MANY, b"other", b"other", *MANY]
    assert bench.catalog()["t"].channels["late"].depth == COUNT, "it was made behind the first"


@pytest.mark.parametrize("turns", [1, 3, COUNT // PIECE, COUNT // PIECE + 3, 3 * COUNT // PIECE // 2])
def test_after_a_crash_all_of_it_is_there_or_nothing_and_a_producer_publishes_it_once(
    bench: Channels, turns: int
) -> None:
    bench.sub(3, "t", "c")
    assert status(bench, publish(bench, body=b"before")) == OK
    part = PRODUCER_PART.pack(7, 1, 0, 0)
    slot, _ = send(bench, before=part, flags=lib.MSG_IDEMPOTENT)
    for _ in range(turns):
        assert slot not in {a.slot for a in bench.step()}
    meanwhile = bench.raw(PUBLISH, 5, topic=OTHER, id=1, pri=1, body=b"x")
    assert [a.status for a in bench.step() if a.slot == meanwhile] == [OK]
    restart(bench)
    depth = bench.catalog()["t"].channels["c"].depth
    assert depth in (1, COUNT + 1)
    assert (depth > 1) == (turns > COUNT // PIECE + 2), "it counts once it is written, not once it is taken in"
    again, _ = send(bench, before=part, flags=lib.MSG_IDEMPOTENT)
    assert status(bench, again) == OK
    assert bodies(bench) == [b"before", *MANY]
    peek = bench.raw(PEEK_ID, 5, id=1)
    assert [a.body for a in bench.step() if a.slot == peek] == [b"x"]


def test_a_client_that_goes_meanwhile_has_published_it(bench: Channels) -> None:
    bench.sub(3, "t", "c")
    send(bench)
    bench.step()
    publish(bench, conn=1, body=b"behind it: gone with its client")
    bench.raw(GONE, 1)
    assert status(bench, publish(bench, body=b"after")) == OK
    assert bodies(bench) == [*MANY, b"after"]


def test_an_acceptor_that_dies_meanwhile_has_published_it(bench: Channels) -> None:
    bench.sub(3, "t", "c")
    send(bench)
    for _ in range(3):
        bench.step()
    lib.worker_peer_gone(bench.worker, 0)
    for _ in range(TURNS):
        lib.worker_turn(bench.worker, bench.now, bench.wall)
    restart(bench)
    assert bodies(bench) == MANY


def test_a_part_that_has_been_published_meanwhile_is_so_once(bench: Channels) -> None:
    bench.sub(3, "t", "c")
    bench.sub(3, "u", "c")
    part = PRODUCER_PART.pack(7, 1, 0, 0)
    many, _ = send(bench, before=part, flags=lib.MSG_IDEMPOTENT)
    bench.step()
    other, _ = send(bench, [b"x"], conn=2, name="u", before=part, flags=lib.MSG_IDEMPOTENT)
    answers = until(bench, many, other)
    assert [(a.slot, a.status) for a in answers] == [(other, OK), (many, OK)]
    assert bench.catalog()["t"].channels["c"].depth == 0
    assert bodies(bench, "u") == [b"x"]
    restart(bench)
    assert bench.catalog()["t"].channels["c"].depth == 0
    slot, _ = send(bench)
    assert status(bench, slot) == OK


def test_jobs_come_of_it(bench: Channels) -> None:
    bench.raw(WATCH, 3, topic=bench.topic("t"))
    reserve = bench.raw(RESERVE, 3, delay=100)
    many, first = send(bench)
    answers = until(bench, reserve)
    assert [a.id for a in answers if a.slot == reserve] == [first]
    until(bench, many)
    assert bench.catalog()["t"].jobs == COUNT
    restart(bench)
    assert bench.catalog()["t"].jobs == COUNT


def test_who_watches_its_topic_first_meanwhile_gets_all_of_it(bench: Channels) -> None:
    many, first = send(bench)
    bench.step()
    bench.raw(WATCH, 3, topic=bench.topic("t"))
    reserve = bench.raw(RESERVE, 3, delay=100)
    answers = until(bench, many, reserve)
    assert [a.id for a in answers if a.slot == reserve] == [first]
    for _ in range(COUNT // PIECE + 2):
        bench.step()
    assert bench.catalog()["t"].jobs == COUNT


@pytest.mark.parametrize("turns", [2, COUNT // PIECE + 6])
@pytest.mark.parametrize("name", ["t", "t#ephemeral"])
def test_ephemeral_channels_may_go_meanwhile_and_so_may_their_topic(bench: Channels, turns: int, name: str) -> None:
    bench.said["t#ephemeral"] = lib.MSG_TOPIC_EPHEMERAL
    topic = bench.topic(name)
    flags = lib.SUBSCRIBE_EPHEMERAL
    assert bench.sub(3, name, "c#ephemeral", flags=flags) == OK
    if name != "t":
        assert bench.change(lib.CHANGE_MAKE, name) == OK
    many, _ = send(bench, name=name)
    for _ in range(turns):
        bench.step()
    bench.raw(GONE, 3)
    assert status(bench, many) == OK
    for _ in range(TURNS):
        bench.step()
    live = lib.worker_live_jobs(bench.worker, 0, lib.worker_active_segment(bench.worker, 0), ffi.new("uint64_t *"))
    figures = bench.catalog().get(name)
    assert live == (figures.depth if figures else 0)
    assert status(bench, publish(bench, name=name)) == OK
    assert topic
    restart(bench)


def test_without_room_for_it_that_is_said_and_nothing_of_it_is_left(bench: Channels) -> None:
    bench.sub(3, "t", "c")
    lib.worker_refuse_segment(bench.worker, 0)
    slot, _ = send(bench)
    answers: list[Answer] = []
    for _ in range(5):
        lib.channel_publish(bench.channels[0])
        lib.worker_turn(bench.worker, bench.now, bench.wall)
        lib.worker_refuse_segment(bench.worker, 0)
    answers = bench.step()
    assert [(a.slot, a.status) for a in answers] == [(slot, NO_SPACE)]
    lib.worker_retry_segments(bench.worker)
    bench.supply()
    slot, _ = send(bench)
    assert status(bench, slot) == OK
    assert bodies(bench) == MANY


def test_the_segment_with_it_is_not_emptied_before_all_is_taken_in(bench: Channels) -> None:
    bench.sub(3, "t", "c")
    many, _ = send(bench)
    for _ in range(COUNT // PIECE + 6):
        bench.step()
    segment = lib.worker_active_segment(bench.worker, 0)
    for _ in range(2):
        lib.worker_roll(bench.worker, 0)
        bench.supply()
    assert lib.worker_active_segment(bench.worker, 0) > segment
    while lib.worker_first_segment(bench.worker, 0) < segment and lib.worker_dead_segments(bench.worker, 0):
        assert lib.worker_drop_first(bench.worker, 0)
    assert not any(lib.worker_compact(bench.worker, 0, 1 << 30) for _ in range(3))
    assert status(bench, many) == OK
    restart(bench)
    assert bodies(bench) == MANY


def test_while_it_is_written_its_segment_has_no_header(bench: Channels) -> None:
    send(bench)
    for _ in range(5):
        bench.step()
    _, waiting = bench.segments[0][-1]
    assert os.pread(waiting, 64, 0) == bytes(64)
    assert os.fstat(waiting).st_size > MIB


@pytest.mark.parametrize("seed", range(12))
def test_in_random_scripts_with_crashes_each_is_there_whole_and_once_or_not_at_all(seed: int) -> None:
    """Of producers' parts, which are sent again until they are answered, each is there once."""
    chance = random.Random(seed)
    bench = Channels(ring_bytes=1 << 22, piece=chance.choice([5, 20, 60]))
    names = {"t": 0, "u": 0}
    sent: dict[int, tuple[str, list[bytes]]] = {}  # by slot, since the worker was killed last
    unanswered: list[tuple[str, list[bytes]]] = []
    published: dict[str, list[list[bytes]]] = {name: [] for name in names}
    part: tuple[str, bytes, list[bytes]] | None = None
    batches = 0
    for conn, name in enumerate(names, 3):
        assert bench.sub(conn, name, "c") == OK

    def take(answers: list[Answer]) -> None:
        nonlocal part
        for answer in answers:
            if answer.slot in sent:
                assert answer.status == OK
                name, messages = sent.pop(answer.slot)
                if part and part[2] == messages:
                    part = None
                published[name].append(messages)

    def make(name: str, count: int) -> list[bytes]:
        names[name] += 1
        return [b"%s %d %d;" % (name.encode(), names[name], n) * chance.choice([1, 20, 200]) for n in range(count)]

    for _ in range(60):
        name, conn = chance.choice(list(names)), 10 + chance.randrange(4)
        action = chance.randrange(10)
        if action < 3:
            messages = make(name, chance.choice([1, 50, 300]))
            sent[send(bench, messages, conn, name)[0]] = name, messages
        elif action == 3:
            messages = make(name, 1)
            sent[publish(bench, conn, name, messages[0])] = name, messages
        elif action == 4:
            if part is None:
                batches += 1
                part = name, PRODUCER_PART.pack(7, batches, 0, 0), make(name, chance.choice([3, 300]))
            topic, before, messages = part
            if not any(messages is of for _, of in sent.values()):
                sent[send(bench, messages, 20, topic, before, lib.MSG_IDEMPOTENT)[0]] = topic, messages
        elif action == 5:
            bench.raw(lib.MSG_CHANGE, 30, pri=lib.CHANGE_MAKE, body=name.encode() + b"\nlate")
        elif action == 6 and not chance.randrange(3):
            unanswered += [(topic, messages) for topic, messages in sent.values() if not part or messages != part[2]]
            sent.clear()
            restart(bench)
        for _ in range(chance.choice([0, 1, 2, 30])):
            take(bench.step())
    while sent or part:
        if part and not sent:
            sent[send(bench, part[2], 20, part[0], part[1], lib.MSG_IDEMPOTENT)[0]] = part[0], part[2]
        take(bench.step())
    if chance.randrange(2):
        restart(bench)
    for name in names:
        there = bodies(bench, name)
        wanted = sum((len(messages) for messages in published[name]), 0)
        at = {body: n for n, body in enumerate(there)}
        assert len(at) == len(there), "nothing comes twice"
        maybe = [messages for topic, messages in unanswered if topic == name]
        for messages in [*published[name], *(messages for messages in maybe if messages[0] in at)]:
            first = at[messages[0]]
            assert there[first : first + len(messages)] == messages
        assert len(there) - wanted == sum(len(messages) for messages in maybe if messages[0] in at)
    bench.dispose()


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("is_tube", [False, True])
def test_delayed_ones_take_turns_and_come_when_they_are_due(bench: Channels, is_tube: bool, restarted: bool) -> None:
    lib.worker_limit_turn(bench.worker, USUAL)
    name = "jobs" if is_tube else "t"
    if is_tube:
        bench.raw(WATCH, 3, topic=bench.topic(name))
        bench.step()
    else:
        bench.sub(3, name, "c")
        bench.sub(4, name, "d")
    lib.worker_longest_turn(bench.worker)
    slot, first = send(bench, SMALL, name=name, delay=60)
    answers: list[Answer] = []
    turns = 0
    while slot not in {a.slot for a in answers}:
        answers = bench.step()
        turns += 1
        assert turns < TURNS
    assert was_short(bench)
    assert turns > 2 * (len(SMALL) // USUAL), "it was written, and taken in, in pieces"
    assert [(a.id, a.status) for a in answers if a.slot == slot] == [(first, OK)]
    if restarted:
        restart(bench)
    figures = bench.catalog()[name]
    if is_tube:
        assert figures.jobs == len(SMALL)
        bench.raw(WATCH, 5, topic=bench.topic(name))
        reserve = bench.raw(RESERVE, 5, delay=100 * SECOND)
        assert not [a for a in bench.turn(59) if a.slot == reserve]
        assert [a.id for a in bench.turn(2) if a.slot == reserve] == [first]
        return
    assert [c.deferred for c in figures.channels.values()] == [len(SMALL)] * 2
    bench.turn(59)
    assert [c.deferred for c in bench.catalog()[name].channels.values()] == [len(SMALL)] * 2
    for _ in range(2 * len(SMALL) // USUAL + 2):
        bench.turn(2)
    assert [(c.deferred, c.depth) for c in bench.catalog()[name].channels.values()] == [(0, len(SMALL))] * 2
