"""A large body on its way through a ring: all that has moved is seen, and what comes behind it is limited."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import OK, PEEK_ID, PUBLISH, RESERVE, SHARDS, WATCH, Answer
from tests.shards.subscriptions import Channels
from tests.shards.turns import roomy

MIB = 1 << 20
LARGE = 9 * MIB
RING_FIGURES = struct.Struct("<IIQQQQQQ")
FEW_MIB = 5 * MIB
FEW_MIB_CONSUMERS = 50
NEARLY_A_MIB = 900_000  # a smaller one is not lent
BEHIND = 24
LENT_MOST = 256


bench = pytest.fixture(roomy)


def until(bench: Channels, count: int) -> list[Answer]:
    answers: list[Answer] = []
    for _ in range(10_000):
        answers += bench.step()
        if len(answers) >= count:
            break
    return answers


def put(bench: Channels, body: bytes, flags: int = 0) -> int:
    topic, id = bench.topic("t"), bench.next_id
    bench.next_id += SHARDS
    slot = bench.raw(PUBLISH, 9, flags=flags, topic=topic, id=id, pri=1024, body=body)
    assert [(a.slot, a.status) for a in until(bench, 1)] == [(slot, OK)]
    return id


def test_what_has_moved_in_a_turn_is_seen_after_it(bench: Channels) -> None:
    """The next turn may be long after the last piece."""
    bench.stop()
    bench.ring_bytes = 1 << 26
    bench.start()
    id = put(bench, bytes(LARGE))
    bench.raw(PEEK_ID, 5, id=id)
    seen = []
    for _ in range(2 * LARGE // MIB):
        bench.pass_turn()
        seen.append(lib.channel_counters(bench.channels[0]).in_bytes)
        bench.raw(lib.MSG_RINGS, 6)
    answers = until(bench, len(seen) + 1)
    moved = [RING_FIGURES.unpack(a.body)[4] for a in answers if a.kind == lib.MSG_RINGS]
    assert seen[-1] > LARGE
    assert moved == seen


def test_what_comes_behind_it_is_taken_in_as_it_moves(bench: Channels) -> None:
    large, small = put(bench, bytes(LARGE)), put(bench, b"s" * NEARLY_A_MIB)
    bench.raw(PEEK_ID, 5, id=large)
    slots = [bench.raw(PEEK_ID, 6, id=small) for _ in range(BEHIND)]
    bench.pass_turn()
    # A record of a PEEK_ID takes 32 bytes of the ring.
    assert lib.channel_counters(bench.channels[0]).out_bytes >= (BEHIND - 2) * 32
    answers = until(bench, BEHIND + 1)
    assert [(a.slot, len(a.body)) for a in answers if a.conn == 6] == [(slot, NEARLY_A_MIB) for slot in slots]
    assert [len(a.body) for a in answers if a.conn == 5] == [LARGE]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_so_many_are_lent_at_once_and_no_more(bench: Channels) -> None:
    large = put(bench, bytes(LARGE))
    for conn in range(2 * LENT_MOST):
        bench.raw(PEEK_ID, 10 + conn, id=large)
    before = resident()
    for _ in range(8):  # it is looked at in three
        bench.pass_turn()
    # More would be copied, 9 MiB each.
    assert resident() - before < 64 * MIB
    for conn in range(2 * LENT_MOST):
        bench.raw(lib.MSG_GONE, 10 + conn)


def test_whoever_asks_for_nothing_large_overtakes_whatever_others_are_sent(bench: Channels) -> None:
    """Of many connections, each of which has something large before what else it is answered."""
    large = put(bench, bytes(LARGE))
    own = [bench.raw(PEEK_ID, conn, id=large) for conn in range(10, 50)]
    behind = [bench.raw(lib.MSG_BARRIER, conn) for conn in range(10, 50)]
    others = [bench.raw(lib.MSG_BARRIER, conn) for conn in (*range(130, 200), 1 << 20, (1 << 22) - 1)]
    answers = [a.slot for _ in range(4) for a in bench.step()]
    assert [slot for slot in answers if slot in others] == others
    assert not set(answers) & {*own, *behind}
    pairs = [a.slot for a in until(bench, 2 * len(own))]
    assert len(pairs) == len(set(pairs)) == 2 * len(own)
    assert all(pairs.index(first) < pairs.index(second) for first, second in zip(own, behind, strict=True))


def test_what_is_small_overtakes_what_many_consumers_of_others_are_sent_of_a_few_mib(bench: Channels) -> None:
    """Each of them at once: a small message, and an answer, come before all but a few of those."""
    channels = [f"c{n}" for n in range(FEW_MIB_CONSUMERS)]
    for n, channel in enumerate(channels):
        assert bench.sub(100 + n, "t", channel) == OK
    assert bench.sub(1, "small", "c", credit=9) == OK
    put(bench, bytes(FEW_MIB), lib.MSG_DURABLE)
    for n in range(len(channels)):
        bench.raw(lib.MSG_CREDIT, 100 + n, id=9)
    bench.pass_turn()
    small = bench.topic("small")
    slot = bench.raw(PUBLISH, 2, flags=lib.MSG_DURABLE, topic=small, id=bench.next_id, pri=1024, body=b"s")
    bench.next_id += SHARDS
    answers: list[Answer] = []
    for _ in range(4):
        answers += bench.step()
    assert [a.slot for a in answers if a.conn == 2] == [slot]
    assert [a.body for a in answers if a.conn == 1] == [b"s"]
    others = [a for a in answers if a.conn >= 100]
    others += until(bench, FEW_MIB_CONSUMERS - len(others))
    assert sorted((a.conn, len(a.body)) for a in others) == [(100 + n, FEW_MIB) for n in range(len(channels))]


HELD_MOST = 64 * MIB


def taken_in(bench: Channels) -> int:
    """Of what was sent, what the worker has and is not in its log."""
    counters = lib.channel_counters(bench.channels[0])
    return bench.sent - int(counters.out_bytes + counters.overflow_bytes) - int(lib.worker_appended(bench.worker, 0))


class Publisher(Channels):
    """Counts what it sends."""

    sent = 0

    def publish(self, conn: int, body_bytes: int) -> int:
        topic, id = self.topic("t"), self.next_id
        self.next_id += SHARDS
        self.sent += body_bytes
        return self.raw(PUBLISH, conn, topic=topic, id=id, pri=1024, body=bytes(body_bytes))


@pytest.fixture()
def publisher() -> Iterator[Publisher]:
    p = Publisher(ring_bytes=1 << 22)
    yield p
    p.dispose()


@pytest.mark.parametrize("one_connection", [False, True], ids=["many connections", "one connection"])
def test_what_stands_in_line_has_a_limit_over_all_and_comes_in_when_there_is_room(
    publisher: Publisher, one_connection: bool
) -> None:
    slots = [publisher.publish(1, LARGE)]
    for n in range(14):
        slots.append(publisher.publish(1 if one_connection else 2 + n, LARGE - (n % 2) * 2 * MIB))
    answers: list[Answer] = []
    most = 0
    for _ in range(1000):
        publisher.pass_turn()
        most = max(most, taken_in(publisher))
        answers += publisher.receive()
        if len(answers) == len(slots):
            break
    assert sorted((a.slot, a.status) for a in answers) == [(slot, OK) for slot in slots]
    # One more has been put together when it is looked at; and some of it lies in the ring.
    assert 4 * LARGE < most <= HELD_MOST + LARGE + publisher.ring_bytes


def test_who_waits_for_long_keeps_nobody_elses_large_bodies_waiting(publisher: Publisher) -> None:
    """An acceptor sends none behind a reserve that waits; should one do so, no ring stands still for that."""
    publisher.raw(WATCH, 1, topic=publisher.topic("elsewhere"))
    reserve = publisher.raw(RESERVE, 1, delay=1 << 62)
    for _ in range(HELD_MOST // LARGE + 1):
        publisher.publish(1, LARGE)
    slots = [publisher.publish(2, LARGE), publisher.publish(3, LARGE)]
    answers = until(publisher, 2)
    assert [(a.slot, a.status) for a in answers] == [(slot, OK) for slot in slots]
    assert reserve not in [a.slot for a in answers]
