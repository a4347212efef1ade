"""Several PUBLISHes in one message, by ring messages alone (MSG_PUBLISH_EACH of csrc/ringbuf/message.h)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import (
    CLOSE,
    GONE,
    NO_SPACE,
    OK,
    REQUEST,
    RESERVE,
    SECOND,
    SHARDS,
    TIMED_OUT,
    USE,
    WATCH,
    Answer,
)
from tests.shards.subscriptions import Channels

HEAD = struct.Struct("<QII")
MOST = int(lib.EACH_MOST)
LARGEST = int(lib.EACH_BODY_BYTES)


def entry(id: int, body: bytes, size: int | None = None) -> bytes:
    return HEAD.pack(id, len(body) if size is None else size, 0) + body + bytes(-len(body) % 8)


def send(bench: Channels, name: str, entries: Sequence[bytes], *, several: int | None = None, conn: int = 5,
         flags: int = 0, pri: int = 9, delay: int = 0) -> list[int]:  # fmt: skip
    """The slots that are answered."""
    topic = bench.topic(name)
    count = len(entries) if several is None else several
    body = b"".join(entries)
    id = struct.unpack_from("<Q", body)[0] if len(body) >= 8 else 0
    slots = list(range(bench.next_slot, bench.next_slot + len(entries)))
    bench.next_slot += len(entries)
    head = REQUEST.pack(
        lib.MSG_PUBLISH_EACH, count, flags, conn, slots[0], topic, id, pri, len(body), delay, 60 * SECOND
    )
    message = ffi.new("struct message *")
    ffi.memmove(message, head, len(head))
    lib.channel_send(bench.channels[0], message, body, len(body))
    return slots


def publish(bench: Channels, name: str, bodies: Sequence[bytes], *, conn: int = 5, flags: int = 0, pri: int = 9,
            delay: int = 0) -> tuple[list[int], list[int]]:  # fmt: skip
    """The slots and the ids."""
    ids = [bench.next_id + n * SHARDS for n in range(len(bodies))]
    bench.next_id = ids[-1] + SHARDS
    entries = [entry(id, body) for id, body in zip(ids, bodies, strict=True)]
    return send(bench, name, entries, conn=conn, flags=flags, pri=pri, delay=delay), ids


def answered(answers: list[Answer], conn: int = 5) -> list[tuple[int, int]]:
    """Slot and status of each PUBLISH that was answered, those that are joined one by one."""
    mine = [a for a in answers if a.conn == conn and a.kind == lib.MSG_PUBLISH]
    return [(a.slot + n, a.status) for a in mine for n in range(max(a.pri, 1) if a.status == OK else 1)]


def reserve_all(bench: Channels, name: str, conn: int = 6) -> list[tuple[int, bytes]]:
    bench.raw(WATCH, conn, topic=bench.topic(name))
    found = []
    while True:
        slot = bench.raw(RESERVE, conn)
        (answer,) = [a for a in bench.turn() if a.conn == conn and a.slot == slot]
        if answer.status != OK:
            return found
        found.append((answer.id, answer.body))


BODIES = [bytes([65 + n]) * size for n, size in enumerate([0, 1, 7, 8, 9, 200, LARGEST, 3])]


def test_each_is_a_job_and_all_are_answered_together(bench: Channels) -> None:
    slots, ids = publish(bench, "t", BODIES)
    answers = bench.turn()
    assert [(a.slot, a.pri, a.seq, a.status) for a in answers if a.conn == 5] == [(slots[0], len(BODIES), 0, OK)]
    assert reserve_all(bench, "t") == list(zip(ids, BODIES, strict=True))


def test_each_is_there_after_a_restart(bench: Channels) -> None:
    _, ids = publish(bench, "t", BODIES)
    bench.turn()
    bench.restart()
    assert reserve_all(bench, "t") == list(zip(ids, BODIES, strict=True))


def test_answers_are_joined_with_those_of_neighbours(bench: Channels) -> None:
    slots = publish(bench, "t", [b"x"] * 3)[0] + publish(bench, "t", [b"x"] * 2)[0]
    slots.append(bench.raw(lib.MSG_PUBLISH, 5, flags=lib.MSG_JOINED, topic=bench.topic("t"), id=bench.next_id, pri=9))
    bench.next_id += SHARDS
    answers = [a for a in bench.turn() if a.conn == 5]
    assert [(a.slot, a.pri, a.seq) for a in answers] == [(slots[0], 6, 0)]


def test_no_answer_is_for_more_than_may_be(bench: Channels) -> None:
    slots = [slot for _ in range(6) for slot in publish(bench, "t", [b"x"] * (MOST - 1))[0]]
    answers = [a for a in bench.turn() if a.conn == 5]
    assert answered(answers) == [(slot, OK) for slot in slots]
    assert max(a.pri for a in answers) <= lib.JOINED_MOST < len(slots)
    assert [a.seq for a in answers] == [slots.index(a.slot) for a in answers]


def test_consumers_of_channels_get_each(bench: Channels) -> None:
    assert bench.sub(1, "t", "c", credit=99) == OK
    _, ids = publish(bench, "t", BODIES, flags=lib.MSG_DURABLE)
    delivered = [(a.id, a.body, a.seq) for a in bench.turn() if a.kind == lib.MSG_DELIVER]
    assert delivered == [(id, body, seq) for seq, (id, body) in enumerate(zip(ids, BODIES, strict=True))]


def test_who_waits_gets_them_in_order(bench: Channels) -> None:
    for conn in (6, 7):
        bench.raw(WATCH, conn, topic=bench.topic("t"))
    waiting = [bench.raw(RESERVE, conn, delay=2**64 - 1) for conn in (6, 7)]
    bench.turn()
    _, ids = publish(bench, "t", [b"a", b"b", b"c"])
    answers = bench.turn()
    assert [(a.slot, a.id, a.body) for a in answers if a.kind == RESERVE] == [
        (waiting[0], ids[0], b"a"), (waiting[1], ids[1], b"b")]  # fmt: skip
    assert reserve_all(bench, "t", conn=8) == [(ids[2], b"c")]


def test_the_most_urgent_comes_first_all_the_same(bench: Channels) -> None:
    _, low = publish(bench, "t", [b"low"] * 3, pri=20)
    _, high = publish(bench, "t", [b"high"] * 3, pri=10)
    bench.turn()
    assert [id for id, _ in reserve_all(bench, "t")] == high + low


def test_delayed_ones_come_when_their_time_has_come(bench: Channels) -> None:
    slots, ids = publish(bench, "t", [b"a", b"b"], delay=5 * SECOND)
    assert answered(bench.turn()) == [(slot, OK) for slot in slots]
    assert reserve_all(bench, "t") == []
    bench.turn(6)
    assert [id for id, _ in reserve_all(bench, "t")] == ids


def test_behind_a_reserve_that_waits_they_wait_too(bench: Channels) -> None:
    """And go where they were meant to, whatever the number means by then."""
    bench.raw(WATCH, 5, topic=bench.topic("other"))
    waiting = bench.raw(RESERVE, 5, delay=2**64 - 1)
    slots, ids = publish(bench, "t", BODIES)
    assert [a for a in bench.turn() if a.conn == 5] == []
    bench.raw(CLOSE, 0, topic=bench.numbers.pop("t"))
    bench.open("another", len(bench.numbers) + 1)
    publish(bench, "other", [b"job"], conn=7)
    answers = [a for a in bench.turn() if a.conn == 5]
    assert [a.slot for a in answers] == [waiting, slots[0]]
    assert answered(answers) == [(slot, OK) for slot in slots]
    bench.numbers["t"] = 9
    bench.open("t", 9)
    assert reserve_all(bench, "t") == list(zip(ids, BODIES, strict=True))


def test_of_a_connection_that_goes_they_stay(bench: Channels) -> None:
    bench.raw(USE, 5, topic=bench.topic("t"))
    _, ids = publish(bench, "t", [b"a", b"b"])
    bench.raw(GONE, 5)
    bench.turn()
    assert [id for id, _ in reserve_all(bench, "t")] == ids


def test_they_go_on_in_the_next_segment(bench: Channels) -> None:
    """What has no room in a segment is asked again as a whole, and done once."""
    slots: list[int] = []
    ids: list[int] = []
    found: list[tuple[int, int]] = []
    for _ in range(260):  # 68 MB: more than a segment
        some, given = publish(bench, "t", [b"y" * LARGEST] * MOST)
        slots += some
        ids += given
        found += answered(bench.turn())
    assert found == [(slot, OK) for slot in slots]
    bench.restart()
    bench.raw(WATCH, 6, topic=bench.topic("t"))
    for first in range(0, len(ids), 200):
        for _ in ids[first : first + 200]:
            bench.raw(RESERVE, 6)
        here = [a.id for a in bench.turn() if a.conn == 6 and a.status == OK]
        assert here == ids[first : first + 200]
    bench.raw(RESERVE, 6)
    assert [a.status for a in bench.turn() if a.conn == 6] == [TIMED_OUT]


A = 1 << 20  # n of an id that nobody has
GOOD = [(A + 4) * SHARDS, (A + 5) * SHARDS, (A + 6) * SHARDS]
DAMAGED = {
    "none": [[], 0],
    "none, it says": [[entry(GOOD[0], b"x")], 0],
    "fewer than it says": [[entry(GOOD[0], b"x"), entry(GOOD[1], b"y")], 3],
    "more than it says": [[entry(GOOD[0], b"x"), entry(GOOD[1], b"y")], 1],
    "a body beyond the end": [[entry(GOOD[0], b"x"), entry(GOOD[1], b"y" * 16, 17)], 2],
    "a body as long as can be said": [[entry(GOOD[0], b"x", 2**32 - 1)], 1],
    "a body that is too large": [[entry(GOOD[0], b"x" * (LARGEST + 1))], 1],
    "half a head": [[entry(GOOD[0], b"x"), bytes(8)], 2],
    "no zeros behind": [[entry(GOOD[0], b"x")[:-7]], 1],
    "too many": [[entry(GOOD[0] + n * SHARDS, b"x") for n in range(MOST + 1)], MOST + 1],
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_damaged_is_refused_as_a_whole(bench: Channels, what: str) -> None:
    entries, several = DAMAGED[what]
    assert isinstance(entries, list) and isinstance(several, int)
    bench.topic("t")
    slot = send(bench, "t", entries or [b""], several=several)[0]
    answers = [a for a in bench.turn() if a.conn == 5]
    assert [(a.slot, a.status) for a in answers] == [(slot, lib.STATUS_INVALID)]
    assert reserve_all(bench, "t") == []


WRONG_IDS = {
    "the same twice": [GOOD[0], GOOD[0]],
    "not rising": [GOOD[1], GOOD[0]],
    "of another shard": [GOOD[0], GOOD[1] + 1],
    "none": [0],
}


@pytest.mark.parametrize("what", [*WRONG_IDS, "of a job that is there"])
def test_ids_that_cannot_be_are_refused_as_a_whole(bench: Channels, what: str) -> None:
    _, (there,) = publish(bench, "t", [b"there"])
    bench.turn()
    slots = send(bench, "t", [entry(id, b"x") for id in WRONG_IDS.get(what, [there, GOOD[0]])])
    assert answered(bench.turn()) == [(slot, NO_SPACE) for slot in slots]
    assert [id for id, _ in reserve_all(bench, "t")] == [there]


def test_flags_that_it_does_not_know_mean_nothing(bench: Channels) -> None:
    others = 0xFFFF & ~lib.MSG_DURABLE
    slots, ids = publish(bench, "t", [b"a", b"b"], flags=others)
    assert answered(bench.turn()) == [(slot, OK) for slot in slots]
    assert reserve_all(bench, "t") == list(zip(ids, [b"a", b"b"], strict=True))


def test_to_a_topic_that_is_terminated_each_is_refused(bench: Channels) -> None:
    assert bench.sub(1, "t", "c") == OK
    bench.change(lib.CHANGE_TERMINATE, "t")
    slots, _ = publish(bench, "t", [b"a", b"b"], flags=lib.MSG_DURABLE)
    assert answered(bench.turn()) == [(slot, lib.STATUS_TERMINATED) for slot in slots]


def test_to_a_number_that_means_nothing_each_is_refused(bench: Channels) -> None:
    head = REQUEST.pack(lib.MSG_PUBLISH_EACH, 2, 0, 5, 70, 4000, GOOD[0], 9, 48, 0, 60 * SECOND)
    message = ffi.new("struct message *")
    ffi.memmove(message, head, len(head))
    lib.channel_send(bench.channels[0], message, entry(GOOD[0], b"x") + entry(GOOD[1], b"y"), 48)
    assert answered(bench.turn()) == [(70, lib.STATUS_TOO_MANY), (71, lib.STATUS_TOO_MANY)]


def test_a_disk_without_room_refuses_each_and_nothing_is_half_done(bench: Channels) -> None:
    _, ids = publish(bench, "t", [b"z" * LARGEST] * 8)
    bench.turn()
    bench.supply = lambda: lib.worker_refuse_segment(bench.worker, ids[0] % SHARDS)  # type: ignore[method-assign]
    statuses: list[list[int]] = []
    for _ in range(300):
        slots, given = publish(bench, "t", [b"z" * LARGEST] * MOST)
        found = answered(bench.turn())
        assert [slot for slot, _ in found] == slots
        statuses.append([status for _, status in found])
        if found[0][1] == OK:
            ids += given
        else:
            break
    assert set(statuses[-1]) == {NO_SPACE} and all(set(one) == {OK} for one in statuses[:-1])
    bench.raw(WATCH, 6, topic=bench.topic("t"))
    for _ in range(3):
        bench.raw(RESERVE, 6)
    assert [a.id for a in bench.turn() if a.conn == 6] == ids[:3]
