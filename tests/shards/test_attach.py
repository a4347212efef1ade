"""Producers that are attached to a topic, by ring messages alone: whose a name is, who is alone, and what is known of
what they have published."""

from __future__ import annotations

import struct

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, SHARDS, Answer
from tests.shards.subscriptions import Channels, delivered, drop_oldest, roll

ATTACH = struct.Struct("<IIQ")
PART = struct.Struct("<QQII")
SHARED, EXCLUSIVE, WAIT, FENCE = range(4)
NONE, FULL, INVALID, FENCED = lib.STATUS_NONE, lib.STATUS_FULL, lib.STATUS_INVALID, lib.STATUS_FENCED
NEVER = lib.NO_PLACE
HOURS_6 = 6 * 3600


def attach(bench: Channels, conn: int, number: int, name: str, access: int = SHARED, *,
           least: int = NEVER, topic: str = "t") -> Answer:  # fmt: skip
    body = ATTACH.pack(access, 0, least) + name.encode()
    slot = bench.raw(lib.MSG_ATTACH, conn, topic=bench.topic(topic), pri=number, body=body)
    answers = bench.turn()
    (answer,) = [a for a in answers if a.kind == lib.MSG_ATTACH and a.slot == slot]
    bench.early += [a for a in answers if a is not answer]
    return answer


def refusal(answer: Answer) -> tuple[int, int]:
    """Why, and whose connection is in the way."""
    assert answer.status == FULL
    return answer.pri, answer.id & 0xFFFFFFFF


def told(bench: Channels) -> list[tuple[int, int, int, int]]:
    """Connection, number, whether it is the one now, epoch."""
    return [(a.conn, a.slot, a.pri, a.id) for a in bench.turn() if a.kind == lib.MSG_ATTACHED]


def detach(bench: Channels, conn: int, number: int) -> int:
    slot = bench.raw(lib.MSG_DETACH, conn, pri=number)
    answers = bench.turn()
    bench.early += [a for a in answers if a.slot != slot or a.kind != lib.MSG_DETACH]
    (status,) = [a.status for a in answers if a.slot == slot and a.kind == lib.MSG_DETACH]
    return status


def publish(bench: Channels, key: int, batch: int, more: int = 0, body: bytes = b"x") -> tuple[int, int]:
    """Status and seq."""
    topic, id = bench.topic("t"), bench.next_id
    bench.next_id += SHARDS
    flags = lib.MSG_DURABLE | lib.MSG_RETAIN | lib.MSG_IDEMPOTENT
    slot = bench.raw(lib.MSG_PUBLISH, 999, flags=flags, topic=topic, id=id, pri=1024,
                     body=PART.pack(key, batch, 0, more) + body)  # fmt: skip
    ((status, seq),) = [(a.status, a.seq) for a in bench.turn() if a.slot == slot and a.kind == lib.MSG_PUBLISH]
    return status, seq


def test_a_name_is_one_producers_in_a_topic(bench: Channels) -> None:
    assert attach(bench, 1, 7, "n").status == OK
    assert refusal(attach(bench, 2, 7, "n")) == (lib.ATTACH_NAME_TAKEN, 1)
    assert attach(bench, 2, 7, "n", topic="other").status == OK
    assert attach(bench, 1, 7, "m").status == INVALID, "the number is taken"
    assert [detach(bench, 1, number) for number in (8, 7, 7)] == [lib.STATUS_NOT_FOUND, OK, lib.STATUS_NOT_FOUND]
    assert attach(bench, 2, 8, "n").status == OK
    bench.raw(GONE, 2)
    assert attach(bench, 1, 7, "n").status == OK


def test_who_waits_is_the_one_in_turn(bench: Channels) -> None:
    assert attach(bench, 1, 1, "a", EXCLUSIVE).status == OK
    assert [attach(bench, conn, 1, name, WAIT).status for conn, name in ((2, "b"), (3, "c"))] == [NONE, NONE]
    assert refusal(attach(bench, 4, 1, "d", EXCLUSIVE)) == (lib.ATTACH_EXCLUDED, 1)
    bench.raw(GONE, 1)
    assert told(bench) == [(2, 1, 1, 1)]
    assert refusal(attach(bench, 4, 1, "d")) == (lib.ATTACH_EXCLUDED, 2)
    assert detach(bench, 2, 1) == OK and told(bench) == [(3, 1, 1, 2)]
    assert detach(bench, 3, 1) == OK and told(bench) == []
    assert attach(bench, 4, 1, "d", WAIT).pri == 3, "nobody is there to wait for"


def test_who_was_fenced_off_may_wait_and_is_refused_where_nobody_is_there_to_wait_for(bench: Channels) -> None:
    first = attach(bench, 1, 1, "a", EXCLUSIVE)
    assert attach(bench, 2, 1, "b", FENCE).status == OK
    assert told(bench) == [(1, 1, 0, 0)]
    back = {"access": WAIT, "least": first.pri}
    assert attach(bench, 1, 2, "a", **back).status == NONE
    assert detach(bench, 2, 1) == OK and told(bench) == [(1, 2, 1, 2)]
    assert detach(bench, 1, 2) == OK
    assert refusal(attach(bench, 1, 3, "a", **back))[0] == lib.ATTACH_OUTDATED


def test_who_waits_for_several_gets_in_behind_the_last(bench: Channels) -> None:
    for conn in (1, 2):
        attach(bench, conn, 1, f"shared-{conn}")
    assert refusal(attach(bench, 3, 1, "x", EXCLUSIVE))[0] == lib.ATTACH_OTHERS
    assert attach(bench, 3, 1, "w", WAIT).status == NONE
    assert refusal(attach(bench, 4, 1, "late"))[0] == lib.ATTACH_EXCLUDED
    assert refusal(attach(bench, 4, 1, "late", EXCLUSIVE))[0] == lib.ATTACH_EXCLUDED
    assert detach(bench, 1, 1) == OK and told(bench) == []
    bench.raw(GONE, 2)
    assert told(bench) == [(3, 1, 1, 0)]


def test_who_fences_is_alone_at_once(bench: Channels) -> None:
    attach(bench, 1, 1, "a")
    attach(bench, 2, 1, "b", WAIT)
    assert attach(bench, 3, 1, "c", FENCE).status == OK
    assert sorted(told(bench)) == [(1, 1, 0, 0), (2, 1, 0, 0)]
    assert refusal(attach(bench, 4, 1, "d")) == (lib.ATTACH_EXCLUDED, 3)


def sent_by(bench: Channels, who: Answer, body: bytes, conn: int = 999, flags: int = 0) -> int:
    """The slot of a message with the arrival of who publishes it."""
    bench.next_id += SHARDS
    flags |= lib.MSG_DURABLE | lib.MSG_RETAIN | lib.MSG_OF_PRODUCER
    return bench.raw(lib.MSG_PUBLISH, conn, flags=flags, topic=bench.topic("t"), id=bench.next_id, pri=1024,
                     body=who.delay.to_bytes(8, "little") + body)  # fmt: skip


def test_nothing_is_stored_of_who_was_fenced_off(bench: Channels) -> None:
    """Its acceptor may not know yet. What came before the one that fenced it off counts."""
    bench.sub(1, "t", "c", credit=100)
    old, waits = attach(bench, 2, 1, "old"), attach(bench, 3, 1, "waits", WAIT)
    assert waits.status == NONE
    slots = [sent_by(bench, old, b"before")]
    new = attach(bench, 4, 1, "new", FENCE)
    slots.append(sent_by(bench, old, PART.pack(old.id, 1, 0, 0) + b"named", flags=lib.MSG_IDEMPOTENT))
    slots += [sent_by(bench, who, b"behind") for who in (old, new, waits)]
    answers = bench.turn()
    status = {a.slot: a.status for a in answers if a.kind == lib.MSG_PUBLISH}
    assert [status[slot] for slot in slots] == [OK, FENCED, FENCED, OK, FENCED]
    assert len(delivered(answers)) == 2


def test_who_comes_behind_an_exclusive_producer_publishes_beside_what_that_has_sent(bench: Channels) -> None:
    """It has left, but some of it may still be under way. Who was before it is out for good."""
    old = attach(bench, 2, 1, "old")
    new = attach(bench, 3, 1, "new", FENCE)
    assert detach(bench, 3, 1) == OK
    again = attach(bench, 2, 2, "old")
    slots = [sent_by(bench, who, b"x") for who in (old, new, again)]
    status = {a.slot: a.status for a in bench.turn() if a.kind == lib.MSG_PUBLISH}
    assert [status[slot] for slot in slots] == [FENCED, OK, OK]


def test_an_epoch_is_never_given_twice(bench: Channels) -> None:
    for epoch in range(3):
        answer = attach(bench, 1, 1, "a", EXCLUSIVE)
        assert (answer.status, answer.pri) == (OK, epoch)
        if epoch == 1:
            bench.restart()
        else:
            roll(bench)
            drop_oldest(bench)
            detach(bench, 1, 1)
    assert refusal(attach(bench, 1, 1, "a", EXCLUSIVE, least=1))[0] == lib.ATTACH_OUTDATED
    assert attach(bench, 1, 1, "a", EXCLUSIVE, least=2).pri == 3


@pytest.mark.parametrize(
    "body", [b"", ATTACH.pack(0, 0, 0), ATTACH.pack(4, 0, 0) + b"n", ATTACH.pack(0, 0, 0) + b"n" * 1025]
)
def test_what_is_no_attach_is_refused(bench: Channels, body: bytes) -> None:
    slot = bench.raw(lib.MSG_ATTACH, 1, topic=bench.topic("t"), pri=1, body=body)
    assert [a.status for a in bench.turn() if a.slot == slot] == [INVALID]


# --- what they have published -----------------------------------------------------------------------------------------


def test_a_batch_is_published_once_whatever_happens_to_the_log(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=100)
    first = attach(bench, 9, 1, "n")
    assert first.seq == NEVER
    key = first.id
    assert [publish(bench, key, batch) for batch in (4, 5)] == [(OK, 0), (OK, 1)]
    for what in ("nothing", "restart", "compact", "restart"):
        if what == "restart":
            bench.restart()
        elif what == "compact":
            roll(bench)
            drop_oldest(bench)
        assert [publish(bench, key, batch) for batch in (5, 4, 0)] == [(OK, NEVER)] * 3
        name = attach(bench, 9, 2, "n") if what == "restart" else None
        assert name is None or (name.id, name.seq) == (key, 5)
    assert publish(bench, key, 6, more=3) == (OK, 2)
    assert [publish(bench, key, batch)[1] for batch in (9, 10)] == [NEVER, 3]
    assert publish(bench, key + 1, 0) == (OK, 4), "another's"
    bench.sub(1, "t", "c", credit=100)
    assert len(delivered(bench.turn())) == 5


def test_who_has_been_silent_for_long_is_forgotten(bench: Channels) -> None:
    key = attach(bench, 9, 1, "n").id
    assert publish(bench, key, 5) == (OK, 0)
    bench.turn(HOURS_6 - 10)
    roll(bench)  # it is not younger for that
    drop_oldest(bench)
    bench.restart()
    assert publish(bench, key, 5) == (OK, NEVER)
    bench.turn(20)
    assert publish(bench, key, 5) == (OK, 1)


def test_only_so_many_are_remembered_and_those_heard_of_last(bench: Channels) -> None:
    most = 4096
    for key in range(1, most + 1):
        assert publish(bench, key, 0) == (OK, key - 1)
    assert publish(bench, 1, 1)[1] == most
    assert publish(bench, most + 1, 0)[1] == most + 1
    assert [publish(bench, key, 0)[1] for key in (1, 3, most, most + 1)] == [NEVER] * 4
    assert publish(bench, 2, 0)[1] == most + 2
    roll(bench)
    drop_oldest(bench)
    bench.restart()
    assert [publish(bench, key, 0)[1] for key in (1, 2, most, most + 1)] == [NEVER] * 4
    assert publish(bench, 3, 0)[1] == most + 3


def test_a_part_that_is_none_is_refused(bench: Channels) -> None:
    named = lib.MSG_DURABLE | lib.MSG_IDEMPOTENT
    wrong = [(named, body) for body in (b"", PART.pack(1, 1, 0, 0)[:-1], PART.pack(1, 1, 1, 0))]
    wrong += [(lib.MSG_DURABLE | lib.MSG_OF_PRODUCER, b"1234567"), (named | lib.MSG_OF_PRODUCER, bytes(8 + 23))]
    for flags, body in wrong:
        slot = bench.raw(lib.MSG_PUBLISH, 1, flags=flags, topic=bench.topic("t"), id=bench.next_id, body=body)
        assert [a.status for a in bench.turn() if a.slot == slot] == [INVALID]
