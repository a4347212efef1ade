"""What the shard protocol and the log have beyond one consumer of plain bodies on each connection, by ring messages
alone: headers, several consumers on a connection, versions of segments."""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Sequence
from typing import Any

import pytest
from crc32c import crc32c
from mq_shards.csrc._core import ffi, lib
from mq_shards.shards.worker import SYNC_MODES

from tests.shards.bench import CANCEL, CLOSE, GONE, OK, RELEASE, RESERVE, RESERVE_ID, SHARDS, USE, WATCH, Answer
from tests.shards.subscriptions import Channels, drop_oldest, roll

HEAD = struct.Struct("<IHHII")
KEY_HASH = 77
RECORD_PUBLISH = 3


def content(headers: bytes, body: bytes, tag: int = lib.HEADERS_NATS, size: int | None = None) -> bytes:
    return HEAD.pack(len(headers) if size is None else size, tag, 0, KEY_HASH, 0) + headers + body


def publish(bench: Channels, name: str, body: bytes, flags: int = 0) -> tuple[int, int]:
    """The id and the status."""
    topic, id = bench.topic(name), bench.next_id
    bench.next_id += SHARDS
    slot = bench.raw(lib.MSG_PUBLISH, 999, flags=lib.MSG_DURABLE | flags, topic=topic, id=id, pri=1024, body=body)
    (status,) = [a.status for a in bench.turn() if a.slot == slot]
    return id, status


def deliveries(answers: list[Answer]) -> list[tuple[int, int, bytes]]:
    """Consumer, id and body."""
    return [(a.slot, a.id, a.body) for a in answers if a.kind == lib.MSG_DELIVER]


def ask(bench: Channels, kind: int, conn: int = 1, **fields: Any) -> Answer:  # noqa: ANN401
    slot = bench.raw(kind, conn, **fields)
    (answer,) = [a for a in bench.turn() if a.slot == slot and a.kind == kind]
    return answer


def subscribe(
    bench: Channels, conn: int, consumer: int, name: str, channel: str, credit: int = 0, flags: int = 0
) -> int:
    head = struct.pack("<QQIIHHI", 60 * 10**9, 900 * 10**9, 0, 0, len(channel), flags, 4)
    slot = bench.raw(
        lib.MSG_SUBSCRIBE, conn, topic=bench.topic(name), pri=consumer, body=head + channel.encode() + b"{ab}"
    )
    answers = bench.turn()
    bench.early += [a for a in answers if a.slot != slot]
    (status,) = [a.status for a in answers if a.slot == slot]
    if credit:
        bench.raw(lib.MSG_CREDIT, conn, id=credit, consumer=consumer)
    return status


# --- answers together -----------------------------------------------------------------------------------------------


def put(bench: Channels, name: str, conn: int = 5, flags: int | None = None, body: bytes = b"x") -> int:
    """The slot of a PUBLISH whose answer may be joined."""
    topic, id = bench.topic(name), bench.next_id
    bench.next_id += SHARDS
    flags = lib.MSG_JOINED if flags is None else flags
    return bench.raw(lib.MSG_PUBLISH, conn, flags=flags, topic=topic, id=id, pri=9, body=body)


def answered(answers: list[Answer], conn: int = 5) -> list[tuple[int, int, int]]:
    """Of each answer to a PUBLISH: its slot, how many it is, and the first seq."""
    return [(a.slot, a.pri, a.seq) for a in answers if a.kind == lib.MSG_PUBLISH and a.conn == conn and a.status == OK]


def test_publishes_one_behind_the_other_have_one_answer(bench: Channels) -> None:
    bench.topic("t")
    first = put(bench, "t")
    for _ in range(4):
        put(bench, "t")
    assert answered(bench.turn()) == [(first, 5, 0)]
    again = put(bench, "t")
    assert answered(bench.turn()) == [(again, 1, 5)], "what has been let out stays as it is"


def test_what_is_said_to_others_in_between_changes_nothing(bench: Channels) -> None:
    bench.topic("t")
    bench.raw(WATCH, 6, topic=bench.topic("t"))
    waiting = [bench.raw(RESERVE, 6, delay=2**64 - 1) for _ in range(3)]
    bench.turn()
    first = put(bench, "t")
    put(bench, "t")
    put(bench, "t")
    answers = bench.turn()
    assert answered(answers) == [(first, 3, 0)]
    assert [a.slot for a in answers if a.conn == 6] == waiting


@pytest.mark.parametrize("between", ["topic", "request", "refused", "plain", "slot", "connection"])
def test_an_answer_is_not_joined_across(bench: Channels, between: str) -> None:
    """Nor are the answers of one connection in another order than its requests."""
    for name in ("t", "other"):
        bench.topic(name)
    slots = [put(bench, "t"), put(bench, "t")]
    if between == "topic":
        slots.append(put(bench, "other"))
    elif between == "request":
        slots.append(bench.raw(RESERVE_ID, 5, id=1))
    elif between == "refused":
        slots.append(put(bench, "t", flags=lib.MSG_JOINED | lib.MSG_HEADERS))
    elif between == "plain":
        slots.append(put(bench, "t", flags=0))
    elif between == "slot":
        bench.next_slot += 1
    else:
        put(bench, "t", conn=8)
    slots += [put(bench, "t"), put(bench, "t")]
    answers = [a for a in bench.turn() if a.conn == 5]
    assert [slot for a in answers for slot in range(a.slot, a.slot + max(a.pri, 1))] == slots
    joined = [a.pri for a in answers if a.kind == lib.MSG_PUBLISH and a.status == OK and a.pri]
    assert sum(joined) == len(slots) - (between in ("request", "refused", "plain"))
    assert joined[0] == joined[-1] == 2


def test_who_comes_in_the_place_of_one_that_has_gone_is_answered_itself(bench: Channels) -> None:
    bench.topic("t")
    first = put(bench, "t")
    bench.raw(GONE, 5)
    bench.next_slot = first + 1
    assert put(bench, "t", conn=6) == first + 1
    answers = bench.turn()
    assert answered(answers) == [(first, 1, 0)]
    assert answered(answers, 6) == [(first + 1, 1, 1)]


def test_an_answer_is_not_joined_to_one_that_is_let_out_by_an_earlier_sync(bench: Channels) -> None:
    assert lib.worker_sync_mode(bench.worker, SYNC_MODES["always"], 0)
    bench.topic("t")
    slots = []
    for _ in range(3):
        slots.append(put(bench, "t"))
        lib.channel_publish(bench.channels[0])
        lib.worker_turn(bench.worker, bench.now, bench.wall)  # a round of syncs begins, or is under way
    found: list[tuple[int, int, int]] = []
    until = time.monotonic() + 60
    while sum(count for _, count, _ in found) < len(slots) and time.monotonic() < until:
        found += answered(bench.turn())
    assert [slot for slot, count, _ in found for slot in range(slot, slot + count)] == slots
    assert found[0] == (slots[0], 1, 0), "the first round covers one"


def test_so_many_answers_are_one_and_no_more(bench: Channels) -> None:
    bench.topic("t")
    first = put(bench, "t")
    for _ in range(lib.JOINED_MOST + 9):
        put(bench, "t")
    most = lib.JOINED_MOST
    assert answered(bench.turn()) == [(first, most, 0), (first + most, 10, most)]


def test_a_transaction_and_many_messages_are_answered_each(bench: Channels) -> None:
    bench.topic("t")
    body = struct.pack(">I", 1) + b"x"
    slots = []
    for _ in range(2):
        id, bench.next_id = bench.next_id, bench.next_id + SHARDS
        slots.append(bench.raw(lib.MSG_PUBLISH_MANY, 5, flags=lib.MSG_JOINED, topic=1, id=id, pri=1, body=body))
    answers = bench.turn()
    assert [(a.slot, a.pri) for a in answers] == [(slot, 0) for slot in slots]


# --- headers --------------------------------------------------------------------------------------------------------


def test_headers_come_to_those_who_want_them_and_are_hidden_from_others(bench: Channels) -> None:
    assert bench.sub(1, "t", "plain", credit=9) == OK
    assert bench.sub(2, "t", "whole", credit=9, flags=lib.SUBSCRIBE_HEADERS) == OK
    whole = content(b"a: 1", b"body")
    bench.raw(
        lib.MSG_PUBLISH, 999, flags=lib.MSG_DURABLE | lib.MSG_HEADERS, topic=bench.topic("t"), id=SHARDS, body=whole
    )
    bench.next_id = 2 * SHARDS
    answers = [a for a in bench.turn() if a.kind == lib.MSG_DELIVER]
    assert {a.conn: a.body for a in answers} == {1: b"body", 2: whole}
    bench.restart()
    bench.sub(1, "t", "plain", credit=9)
    bench.sub(2, "t", "whole", credit=9, flags=lib.SUBSCRIBE_HEADERS)
    answers = [a for a in bench.turn() if a.kind == lib.MSG_DELIVER]
    assert {a.conn: a.body for a in answers} == {1: b"body", 2: whole}


def test_a_reserve_gets_headers_if_it_asks_for_them(bench: Channels) -> None:
    whole = content(bytes(range(256)) * 256, b"job", lib.HEADERS_PULSAR)
    bench.raw(WATCH, 1, topic=bench.topic("t"))
    slot = bench.raw(RESERVE, 1, delay=10, flags=lib.MSG_HEADERS)
    topic = bench.topic("t")
    bench.raw(lib.MSG_PUBLISH, 999, flags=lib.MSG_HEADERS, topic=topic, id=bench.next_id, pri=1, body=whole)
    answers = bench.turn()
    (reserved,) = [a for a in answers if a.slot == slot]
    assert reserved.body == whole
    id = reserved.id
    assert ask(bench, RELEASE, id=id, pri=1).status == OK
    assert ask(bench, RESERVE_ID, id=id).body == b"job"
    assert ask(bench, RELEASE, id=id, pri=1).status == OK
    assert ask(bench, lib.MSG_PEEK_ID, id=id, flags=lib.MSG_HEADERS).body == whole
    assert ask(bench, lib.MSG_PEEK_ID, id=id).body == b"job"


def test_many_messages_each_have_their_headers(bench: Channels) -> None:
    bench.sub(1, "t", "plain", credit=9)
    bench.sub(2, "t", "whole", credit=9, flags=lib.SUBSCRIBE_HEADERS)
    each = [content(b"h" * n, b"b" * n) for n in (3, 0, 500)]
    body = b"".join(struct.pack(">I", len(one)) + one for one in each)
    topic = bench.topic("t")
    slot = bench.raw(lib.MSG_PUBLISH_MANY, 999, flags=lib.MSG_HEADERS, topic=topic, id=SHARDS, pri=3, body=body)
    answers = bench.turn()
    assert [a.status for a in answers if a.slot == slot] == [OK]
    assert [a.body for a in answers if a.kind == lib.MSG_DELIVER and a.conn == 1] == [b"bbb", b"", b"b" * 500]
    assert [a.body for a in answers if a.kind == lib.MSG_DELIVER and a.conn == 2] == each


@pytest.mark.parametrize(
    "body",
    [b"", bytes(15), content(b"", b"", size=1), content(b"xxxx", b"", size=2**32 - 1), content(bytes(65537), b"")],
)
def test_headers_that_are_none_are_refused(bench: Channels, body: bytes) -> None:
    assert publish(bench, "t", body, lib.MSG_HEADERS)[1] == lib.STATUS_INVALID
    one = struct.pack(">I", len(body)) + body
    topic = bench.topic("t")
    assert ask(bench, lib.MSG_PUBLISH_MANY, 999, flags=lib.MSG_HEADERS, topic=topic, id=bench.next_id, pri=1,
               body=one).status == lib.STATUS_INVALID  # fmt: skip
    assert publish(bench, "t", content(bytes(65536), b"x"), lib.MSG_HEADERS)[1] == OK


def test_headers_are_kept_when_a_segment_is_compacted(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    whole = content(b"kept", b"body", lib.HEADERS_SPARK)
    publish(bench, "t", whole, lib.MSG_HEADERS)
    roll(bench)
    drop_oldest(bench)
    for _ in range(2):
        bench.sub(2, "t", "c", credit=1, flags=lib.SUBSCRIBE_HEADERS)
        assert [body for _, _, body in deliveries(bench.turn())] == [whole]
        bench.restart()


# --- several consumers on one connection ----------------------------------------------------------------------------


def test_consumers_of_one_connection_have_their_own_credit_and_messages(bench: Channels) -> None:
    assert [subscribe(bench, 1, 4000000000, "a", "c", 1), subscribe(bench, 1, 0, "b", "c", 2)] == [OK, OK]
    assert subscribe(bench, 1, 5, "a", "c", 9) == OK
    a = [bench.pub("a", b"a%d" % n) for n in range(3)]
    b = [bench.pub("b", b"b%d" % n) for n in range(3)]
    came = [one for _, answers in a + b for one in answers]
    numbers = {name: [id for id, _ in all] for name, all in (("a", a), ("b", b))}
    got = deliveries(came)
    assert [id for number, id, _ in got if number == 0] == numbers["b"][:2]
    assert sorted(id for number, id, _ in got if number != 0) == numbers["a"]
    assert len([id for number, id, _ in got if number == 4000000000]) == 1
    # The topic's number as its SUBSCRIBE had it, and the place in its sequence.
    places = {id: (bench.topic(name), seq) for name in "ab" for seq, id in enumerate(numbers[name])}
    assert all((x.topic, x.seq) == places[x.id] for x in came)
    # Of another consumer of the same connection, though of the same channel.
    (mine,) = [id for number, id, _ in got if number == 4000000000]
    bench.raw(lib.MSG_FINISH, 1, id=mine, consumer=5)
    assert [(x.kind, x.slot, x.status) for x in bench.turn()] == [(lib.MSG_REFUSED, 5, lib.STATUS_NONE)]
    bench.raw(lib.MSG_FINISH, 1, id=mine, consumer=4000000000)
    bench.raw(lib.MSG_FINISH, 1, id=numbers["b"][0], consumer=0)
    assert deliveries(bench.turn()) == [(0, numbers["b"][2], b"b2")]
    bench.raw(lib.MSG_FINISH, 1, id=numbers["b"][1], consumer=7)
    assert [(x.kind, x.slot, x.status) for x in bench.turn()] == [(lib.MSG_REFUSED, 7, lib.STATUS_NOT_FOUND)]


def test_one_consumer_ends_and_the_others_of_its_connection_go_on(bench: Channels) -> None:
    subscribe(bench, 1, 1, "t", "c", 1)
    subscribe(bench, 1, 2, "t", "d", 9)
    id, answers = bench.pub("t")
    assert sorted(deliveries(answers)) == [(1, id, b"x"), (2, id, b"x")]
    assert ask(bench, lib.MSG_UNSUBSCRIBE, pri=1).status == OK
    assert ask(bench, lib.MSG_UNSUBSCRIBE, pri=1).status == lib.STATUS_NOT_FOUND
    assert bench.catalog()["t"].channels["c"].depth == 1
    assert subscribe(bench, 2, 1, "t", "c", 1) == OK
    assert deliveries(bench.turn()) == [(1, id, b"x")]
    bench.raw(lib.MSG_FINISH, 1, id=id, consumer=2)
    assert bench.turn() == []
    bench.raw(GONE, 1)
    bench.turn()
    assert bench.catalog()["t"].channels["d"].consumers == 0


def test_a_number_is_one_consumers(bench: Channels) -> None:
    assert subscribe(bench, 1, 3, "t", "c") == OK
    assert subscribe(bench, 1, 3, "t", "d") == lib.STATUS_NO_SPACE
    assert subscribe(bench, 2, 3, "t", "d") == OK


def test_each_consumer_of_a_connection_has_a_window(bench: Channels) -> None:
    subscribe(bench, 1, 1, "big", "c", 100)
    subscribe(bench, 1, 2, "small", "c", 100)
    for _ in range(5):
        bench.pub("big", bytes(400_000))
    _, answers = bench.pub("small")
    assert [a.slot for a in answers if a.kind == lib.MSG_DELIVER] == [2]
    bench.raw(lib.MSG_SENT, 1, id=1 << 20, consumer=2)
    assert bench.turn() == []
    bench.raw(lib.MSG_SENT, 1, id=1 << 20, consumer=1)
    assert {a.slot for a in bench.turn()} == {1}


def test_a_connection_has_only_so_many_consumers(bench: Channels) -> None:
    head = struct.pack("<QQIIHHI", 1 << 40, 1 << 40, 0, 0, 1, 0, 0)
    for number in range(16385):
        bench.raw(lib.MSG_SUBSCRIBE, 1, topic=bench.topic("t"), pri=number, body=head + b"c")
        answers = bench.turn() if number % 1000 == 999 or number == 16384 else []
    assert [a.status for a in answers][-2:] == [OK, lib.STATUS_TOO_MANY]
    bench.raw(GONE, 1)
    bench.turn()
    assert subscribe(bench, 1, 0, "t", "c") == OK


# --- finishing more than a message, and less ------------------------------------------------------------------------


def finish_upto(bench: Channels, seq: int, conn: int = 1) -> list[Answer]:
    bench.raw(lib.MSG_FINISH, conn, flags=lib.MSG_UPTO, ttr=seq)
    return bench.turn()


def test_all_that_was_delivered_up_to_a_place_is_finished_at_once(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=4)
    bench.sub(2, "t", "c")
    ids = [bench.pub("t")[0] for _ in range(8)]
    bench.req(1, ids[1])
    assert finish_upto(bench, 2) != []  # there is credit again
    figures = bench.catalog()["t"].channels["c"]
    assert (figures.in_flight, figures.depth) == (4, 1)
    bench.restart()
    bench.sub(1, "t", "c", credit=100)
    assert sorted(id for _, id, _ in deliveries(bench.turn())) == ids[3:]
    for beyond in (8, 2**64 - 1):  # a seq that there is not yet
        assert finish_upto(bench, beyond) == []
    assert bench.catalog()["t"].channels["c"].in_flight == 5
    assert finish_upto(bench, 7) == []
    later, answers = bench.pub("t")
    assert deliveries(answers) == [(0, later, b"x")]
    bench.restart()
    bench.sub(1, "t", "c", credit=100)
    assert deliveries(bench.turn()) == [(0, later, b"x")]


def test_nobody_finishes_what_nobody_consumes(bench: Channels) -> None:
    bench.pub("t")
    assert [(a.kind, a.status) for a in finish_upto(bench, 5)] == [(lib.MSG_REFUSED, lib.STATUS_NOT_FOUND)]
    bench.sub(1, "empty", "c")
    assert finish_upto(bench, 5) == []


def finish_parts(bench: Channels, id: int, *words: int) -> list[Answer]:
    bench.raw(lib.MSG_FINISH, 1, flags=lib.MSG_PARTS, id=id, body=b"".join(w.to_bytes(8, "little") for w in words))
    return bench.turn()


def test_a_message_is_finished_part_by_part_and_comes_again_with_what_is_left(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=1, flags=lib.SUBSCRIBE_HEADERS)
    id, _ = bench.pub("t", b"batch")
    assert finish_parts(bench, id, 0b1110, 1) == [] and finish_parts(bench, id, 0b0111, 2**64 - 1, 7) == []
    left = struct.pack("<IIQQ", 2, 0, 0b0110, 1)
    bench.raw(GONE, 1)
    bench.turn()
    bench.sub(2, "t", "c", credit=1, flags=lib.SUBSCRIBE_HEADERS)
    assert [a.body for a in bench.turn()] == [left + b"batch"]
    for _ in range(2):
        bench.restart()
        bench.sub(1, "t", "c", credit=1, flags=lib.SUBSCRIBE_HEADERS)
        assert [a.body for a in bench.turn()] == [left + b"batch"]
        roll(bench)
        drop_oldest(bench)
    assert finish_parts(bench, id, 1) == []
    assert bench.catalog()["t"].channels["c"].in_flight == 0
    bench.restart()
    bench.sub(3, "t", "c", credit=1)
    assert bench.turn() == []


def test_who_knows_no_parts_gets_the_whole_message(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=1)
    id, _ = bench.pub("t", b"batch")
    assert finish_parts(bench, id, 1) == []
    assert [a.body for a in bench.req(1, id)] == [b"batch"]
    assert bench.fin(1, id) == []
    assert bench.catalog()["t"].channels["c"].in_flight == 0


@pytest.mark.parametrize("body", [b"", bytes(7), bytes(9), bytes(8 * (lib.PARTS_MAX_WORDS + 1))])
def test_parts_that_are_none_are_refused(bench: Channels, body: bytes) -> None:
    bench.sub(1, "t", "c", credit=1)
    id, _ = bench.pub("t")
    bench.raw(lib.MSG_FINISH, 1, flags=lib.MSG_PARTS, id=id, body=body)
    assert [(a.kind, a.status) for a in bench.turn()] == [(lib.MSG_REFUSED, lib.STATUS_INVALID)]
    assert bench.fin(1, id) == []


# --- who gets the next message --------------------------------------------------------------------------------------


def join(
    bench: Channels, conn: int, policy: int, *, name: str = "", priority: int = 0, credit: int = 100,
    ranges: Sequence[tuple[int, int]] = (), channel: str = "c", spoil: bytes = b"", timeout: float = 60,
) -> int:  # fmt: skip
    head = struct.pack("<QQIIHHI", int(timeout * 10**9), 900 * 10**9, 0, 0, len(channel), lib.SUBSCRIBE_POLICY, 4)
    rank = struct.pack("<HHIIII", policy, len(name), priority, len(ranges), 0, 0) + name.encode()
    body = head + channel.encode() + b"{ab}" + rank + b"".join(struct.pack("<HH", *r) for r in ranges) + spoil
    slot = bench.raw(lib.MSG_SUBSCRIBE, conn, topic=bench.topic("t"), body=body)
    answers = bench.turn()
    (status,) = [a.status for a in answers if a.slot == slot]
    bench.early += [a for a in answers if a.slot != slot]
    if credit and status == OK:
        bench.raw(lib.MSG_CREDIT, conn, id=credit)
    return status


def told(answers: list[Answer]) -> list[tuple[int, int]]:
    return [(a.conn, a.pri) for a in answers if a.kind == lib.MSG_ACTIVE]


def got(answers: list[Answer], conn: int) -> list[int]:
    return [a.id for a in answers if a.kind == lib.MSG_DELIVER and a.conn == conn]


def test_an_exclusive_consumer_is_alone_and_gets_all_in_order(bench: Channels) -> None:
    assert join(bench, 1, lib.POLICY_EXCLUSIVE, credit=3) == OK
    assert [join(bench, 2, p) for p in range(4)] == [lib.STATUS_FULL] * 4
    ids = [bench.pub("t")[0] for _ in range(5)]
    bench.req(1, ids[1])
    bench.raw(GONE, 1)
    bench.turn()
    # Also what was given back by turns, and after a restart.
    assert join(bench, 2, lib.POLICY_TURNS, credit=4) == OK
    bench.turn()
    bench.req(2, ids[0])
    bench.restart()
    assert join(bench, 3, lib.POLICY_EXCLUSIVE) == OK
    assert got(bench.turn(), 3) == ids


def test_the_first_gets_all_and_the_next_what_it_leaves(bench: Channels) -> None:
    assert join(bench, 1, lib.POLICY_FAILOVER, name="b", priority=1) == OK
    assert told(bench.turn()) == [(1, 1)]
    first = [bench.pub("t") for _ in range(3)]
    ids = [id for id, _ in first]
    assert [got(answers, 1) for _, answers in first] == [[id] for id in ids]
    bench.fin(1, ids[0])
    # One that is behind it stands by; one that is before it takes over what is not finished.
    assert join(bench, 2, lib.POLICY_FAILOVER, name="c", priority=1) == OK
    assert told(bench.turn()) == [(2, 0)]
    assert join(bench, 3, lib.POLICY_FAILOVER, name="a", priority=1) == OK
    answers = bench.turn()
    assert sorted(told(answers)) == [(1, 0), (3, 1)]
    assert got(answers, 3) == ids[1:]
    assert [(a.kind, a.status) for a in bench.fin(1, ids[1])] == [(lib.MSG_REFUSED, lib.STATUS_NONE)]
    assert join(bench, 4, lib.POLICY_FAILOVER, name="z", priority=0) == OK
    answers = bench.turn()
    assert sorted(told(answers)) == [(3, 0), (4, 1)] and got(answers, 4) == ids[1:]
    for conn, then in ((4, 3), (1, None), (3, 2)):
        bench.raw(GONE, conn)
        answers = bench.turn()
        assert told(answers) == ([(then, 1)] if then else [])
        assert then is None or got(answers, then) == ids[1:]
    assert join(bench, 5, lib.POLICY_TURNS) == lib.STATUS_FULL


def keyed(bench: Channels, hash: int) -> tuple[int, list[Answer]]:
    topic, id = bench.topic("t"), bench.next_id
    bench.next_id += SHARDS
    body = HEAD.pack(0, lib.HEADERS_PULSAR, 0, hash, 0)
    slot = bench.raw(lib.MSG_PUBLISH, 999, flags=lib.MSG_DURABLE | lib.MSG_HEADERS, topic=topic, id=id, body=body)
    return id, [a for a in bench.turn() if a.slot != slot]


@pytest.mark.parametrize("most", [5, 12])
def test_each_key_is_one_consumers_and_keeps_its_order_when_consumers_come_and_go(bench: Channels, most: int) -> None:
    chance = random.Random(5)
    key_of: dict[int, int] = {}
    in_flight: dict[int, list[int]] = {1: []}
    last: dict[int, int] = {}
    assert join(bench, 1, lib.POLICY_KEY) == OK

    def take(answers: list[Answer]) -> None:
        for a in answers:
            if a.kind != lib.MSG_DELIVER:
                continue
            key = key_of[a.id]
            others = [id for conn, ids in in_flight.items() if conn != a.conn for id in ids]
            assert key not in {key_of[id] for id in others}, "one consumer has a key's messages"
            if a.pri == 1:
                assert a.id > last.get(key, 0), "in order"
                last[key] = a.id
            in_flight[a.conn].append(a.id)

    for step in range(600):
        choice = chance.random()
        if choice < 0.5:
            key = 1 + chance.randrange(12)
            key_of[bench.next_id] = key
            take(keyed(bench, key)[1])
        elif choice < 0.9:
            conn = chance.choice(list(in_flight))
            if in_flight[conn]:
                take(bench.fin(conn, in_flight[conn].pop(0)))
        elif len(in_flight) < most:
            conn = step + 10
            in_flight[conn] = []
            assert join(bench, conn, lib.POLICY_KEY, name=f"n{step}", credit=chance.choice((1, 3, 50))) == OK
            take(bench.turn())
        else:
            conn = chance.choice(list(in_flight))
            del in_flight[conn]
            bench.raw(GONE, conn)
            take(bench.turn())
    assert len(last) == 12


def test_a_consumer_that_comes_or_goes_moves_no_key_but_its_own(bench: Channels) -> None:
    def owners() -> dict[int, int]:
        found = {}
        for key in range(1, 200):
            answers = keyed(bench, key)[1]
            (a,) = [a for a in answers if a.kind == lib.MSG_DELIVER]
            found[key] = a.conn
            bench.fin(a.conn, a.id)
        return found

    for conn in range(1, 13):
        assert join(bench, conn, lib.POLICY_KEY, name=f"n{conn}") == OK
    before = owners()
    assert set(before.values()) == set(range(1, 13)) and owners() == before
    assert join(bench, 13, lib.POLICY_KEY, name="n13") == OK
    beside = owners()
    assert {beside[key] for key in before if beside[key] != before[key]} == {13}
    bench.raw(GONE, 13)
    assert owners() == before
    bench.raw(GONE, 1)
    without = owners()
    assert {before[key] for key in before if without[key] != before[key]} == {1} and 1 not in without.values()


def test_a_key_whose_consumer_is_busy_holds_up_no_other(bench: Channels) -> None:
    assert join(bench, 1, lib.POLICY_KEY, ranges=[(0, 9), (20, 29)], credit=1) == OK
    assert join(bench, 2, lib.POLICY_KEY, ranges=[(10, 19)]) == OK
    ids = [keyed(bench, hash)[0] for hash in (5, 25, 65536 + 5, 15, 11, 40)]
    figures = bench.catalog()["t"].channels["c"]
    assert (figures.in_flight, figures.depth) == (3, 3)
    assert got(bench.fin(1, ids[0]), 1) == [ids[1]]
    bench.restart()
    assert join(bench, 3, lib.POLICY_KEY, ranges=[(0, 65535)]) == OK
    assert got(bench.turn(), 3) == ids[1:]


def test_ranges_do_not_overlap_and_are_not_mixed_with_shares(bench: Channels) -> None:
    assert join(bench, 1, lib.POLICY_KEY, ranges=[(0, 9), (20, 29)]) == OK
    for ranges in ([(9, 10)], [(10, 19), (0, 0)], [(15, 12)], [(25, 25)]):
        assert join(bench, 2, lib.POLICY_KEY, ranges=ranges) == lib.STATUS_INVALID
    assert join(bench, 2, lib.POLICY_KEY) == lib.STATUS_FULL
    assert join(bench, 2, lib.POLICY_KEY, ranges=[(10, 19)]) == OK


def test_a_policy_that_is_none_is_refused(bench: Channels) -> None:
    assert join(bench, 1, 4) == lib.STATUS_NO_SPACE
    assert join(bench, 1, lib.POLICY_KEY, ranges=[(1, 1)] * 65) == lib.STATUS_NO_SPACE
    assert join(bench, 1, lib.POLICY_TURNS, name="n" * 1025) == lib.STATUS_NO_SPACE
    assert join(bench, 1, lib.POLICY_TURNS, spoil=b"x") == lib.STATUS_NO_SPACE
    assert join(bench, 1, lib.POLICY_TURNS) == OK


# --- what a ring may hold -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bit", range(16))
def test_flags_from_the_ring_are_not_believed(bench: Channels, bit: int) -> None:
    bench.topic("t")
    for kind in (CLOSE, USE, WATCH, CANCEL, RESERVE, lib.MSG_SUBSCRIBE, lib.MSG_FINISH, lib.MSG_UNSUBSCRIBE):
        for topic in (0, 1, 99, 2**20 - 1, 2**32 - 1):
            bench.raw(kind, 1, flags=1 << bit, topic=topic, pri=1)
            bench.turn()
    bench.raw(GONE, 1)
    bench.turn()
    bench.open("t", 1)
    assert bench.sub(1, "t", "c", credit=1) == OK
    assert len(deliveries(bench.pub("t")[1])) == 1


# --- versions of segments -------------------------------------------------------------------------------------------


def make_version(fd: int, version: int) -> None:
    header = bytearray(os.pread(fd, 64, 0))
    header[8:12] = version.to_bytes(4, "little")
    header[60:64] = crc32c(bytes(header[:60])).to_bytes(4, "little")
    os.pwrite(fd, header, 0)


def test_a_segment_of_version_1_is_read_and_the_log_goes_on_in_the_next(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    first, _ = bench.pub("t", b"old")
    (number, fd), *_ = bench.segments[0]
    make_version(fd, 1)
    size = os.fstat(fd).st_size
    bench.restart()
    second, _ = bench.pub("t", b"new")
    assert lib.worker_active_segment(bench.worker, 0) == number + 1
    assert os.fstat(fd).st_size <= size
    bench.restart()
    bench.sub(1, "t", "c", credit=9)
    assert deliveries(bench.turn()) == [(0, first, b"old"), (0, second, b"new")]


@pytest.mark.parametrize("version", [0, 3, 2**32 - 1])
def test_a_segment_of_an_unknown_version_is_refused(bench: Channels, version: int) -> None:
    bench.pub("t")
    number, fd = bench.segments[0][0]
    make_version(fd, version)
    before = os.pread(fd, 1 << 20, 0)
    worker = lib.worker_new(0, 1, SHARDS, bench.board, bench.wake, 1)
    assert lib.worker_own(worker, 0)
    assert not lib.worker_add_segment(worker, 0, fd, number, 64 << 20, False, bench.wall)
    assert os.strerror(ffi.errno) == "Protocol error"
    assert os.pread(fd, 1 << 20, 0) == before
    lib.worker_free(worker)


def test_a_record_of_an_unknown_kind_is_refused_and_nothing_is_cut(bench: Channels) -> None:
    bench.pub("t")
    bench.pub("t")
    number, fd = bench.segments[0][0]
    content, at = bytearray(os.pread(fd, 1 << 16, 0)), 64
    while content[at + 8] != RECORD_PUBLISH:
        at += (int.from_bytes(content[at : at + 4], "little") + 7) // 8 * 8
    size = int.from_bytes(content[at : at + 4], "little")
    content[at + 8] = 200
    start = crc32c(bytes(content[at : at + 4]) + number.to_bytes(4, "little"))
    content[at + 4 : at + 8] = crc32c(bytes(content[at + 8 : at + size]), start).to_bytes(4, "little")
    os.pwrite(fd, content, 0)
    whole = os.fstat(fd).st_size
    worker = lib.worker_new(0, 1, SHARDS, bench.board, bench.wake, 1)
    found = ffi.new("struct replay *")
    assert lib.worker_own(worker, 0)
    assert lib.worker_add_segment(worker, 0, os.dup(fd), number, 64 << 20, False, bench.wall)
    assert not lib.worker_replay(worker, 0, found, bench.now, bench.wall)
    unknown = found.unknown
    assert (unknown.shard, unknown.segment, unknown.offset, unknown.kind) == (0, number, at, 200)
    assert os.fstat(fd).st_size == whole
    lib.worker_free(worker)
