"""Topics of which acceptors say that they are not persistent, by ring messages alone: a message is for consumers that
can take it at once, and in no log."""

from __future__ import annotations

import struct

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, Answer
from tests.shards.positions import finish, position, publish
from tests.shards.subscriptions import Channels
from tests.shards.test_naming import records
from tests.shards.test_open_transactions import MSG_TXN, of_transaction
from tests.shards.test_shard_protocol import ask

TOPIC = "non-persistent://public/default/t"
RETAINED = lib.MSG_DURABLE | lib.MSG_RETAIN
READER = lib.SUBSCRIBE_START | lib.SUBSCRIBE_EPHEMERAL | lib.SUBSCRIBE_POLICY
PULSAR = 2
PUBLISH, PRODUCER = 3, 16  # csrc/log/records.h


@pytest.fixture
def bench(bench: Channels) -> Channels:
    bench.said[TOPIC] = lib.MSG_TOPIC_NON_PERSISTENT
    return bench


def join(bench: Channels, conn: int, policy: int = lib.POLICY_TURNS, *, permits: int = 100, channel: str = "s",
         ranges: tuple[int, int] | None = None) -> None:  # fmt: skip
    head = struct.pack("<QQIIHHI", 60 * 10**9, 900 * 10**9, 0, 0, len(channel), READER | lib.SUBSCRIBE_HEADERS, 4)
    body = head + channel.encode() + b"{ab}" + struct.pack("<IIQ", lib.START_LATEST, 0, 0)
    body += struct.pack("<HHIIII", policy, 0, 0, int(ranges is not None), 0, 0)
    body += b"" if ranges is None else struct.pack("<HH", *ranges)
    assert ask(bench, lib.MSG_SUBSCRIBE, conn, topic=bench.topic(TOPIC), body=body).status == OK
    bench.raw(lib.MSG_CREDIT, conn, flags=lib.MSG_PERMITS, id=permits)
    bench.turn()


def say(bench: Channels, *, key: int = 0, parts: int = 0, flags: int = 0, body: bytes = b"x") -> list[Answer]:
    """What comes of a message beside its answer."""
    headers = struct.pack("<IHHII", 0, PULSAR, parts, key, 0)
    id, bench.next_id = bench.next_id, bench.next_id + 64
    slot = bench.raw(lib.MSG_PUBLISH, 999, flags=RETAINED | lib.MSG_HEADERS | flags, topic=bench.topic(TOPIC), id=id,
                     pri=1024, delay=0, body=headers + body)  # fmt: skip
    answers = bench.turn()
    (answer,) = [a for a in answers if a.slot == slot and a.kind == lib.MSG_PUBLISH]
    assert (answer.status, answer.seq) == (OK, 0)
    return [a for a in answers if a is not answer]


def to(answers: list[Answer]) -> list[int]:
    return [a.conn for a in answers if a.kind == lib.MSG_DELIVER]


def test_a_message_goes_to_those_who_can_take_it_and_is_in_no_log(bench: Channels) -> None:
    assert to(say(bench, body=b"nobody is there")) == []
    join(bench, 1, permits=2)
    join(bench, 2, channel="other", permits=1)
    assert sorted(to(say(bench))) == [1, 2]
    (only,) = [a for a in say(bench, body=b"second") if a.kind == lib.MSG_DELIVER]
    assert (only.conn, only.seq, only.body[-6:]) == (1, 0, b"second")
    assert to(say(bench, body=b"nobody has permits")) == []
    bench.raw(lib.MSG_CREDIT, 1, flags=lib.MSG_PERMITS, id=5)
    assert to(bench.turn()) == [], "what was dropped does not come later"
    assert to(say(bench)) == [1]
    # Nothing is in flight, so nothing is to be finished, or comes again.
    assert finish(bench, 1, 0) == []
    bench.raw(lib.MSG_REQUEUE, 1, flags=lib.MSG_ALL)
    bench.raw(GONE, 1)
    join(bench, 3)
    assert to(bench.turn(61)) == []
    topic = bench.catalog()[TOPIC]
    assert (topic.messages, topic.depth, topic.channels["s"].depth, topic.channels["s"].in_flight) == (5, 0, 0, 0)
    assert (position(bench, name=TOPIC).next, position(bench, name=TOPIC).incarnation) == (0, 0)
    assert PUBLISH not in {r.kind for r in records(bench)}


def test_a_batch_takes_as_many_permits_as_it_has_parts(bench: Channels) -> None:
    join(bench, 1, permits=11)
    assert [to(say(bench, parts=10)) for _ in range(3)] == [[1], [1], []]
    bench.raw(lib.MSG_CREDIT, 1, flags=lib.MSG_PERMITS, id=9)
    assert to(say(bench)) == [], "9 were taken too many"
    bench.raw(lib.MSG_CREDIT, 1, flags=lib.MSG_PERMITS, id=1)
    assert to(say(bench)) == [1]
    topic = bench.catalog()[TOPIC]
    assert (topic.messages, topic.channels["s"].messages) == (32, 32)


def test_no_more_is_on_its_way_to_a_consumer_than_its_window(bench: Channels) -> None:
    join(bench, 1)
    large = bytes(400_000)
    assert [to(say(bench, body=large)) for _ in range(4)] == [[1], [1], [1], []]
    bench.raw(lib.MSG_SENT, 1, id=1_200_000)
    bench.turn()
    assert to(say(bench)) == [1]


def test_consumers_of_a_shared_subscription_take_turns(bench: Channels) -> None:
    join(bench, 1)
    join(bench, 2)
    assert sorted(to([a for _ in range(4) for a in say(bench)])) == [1, 1, 2, 2]


def test_the_active_consumer_gets_all_until_it_leaves(bench: Channels) -> None:
    join(bench, 1, lib.POLICY_FAILOVER)
    join(bench, 2, lib.POLICY_FAILOVER)
    (active,) = {conn for _ in range(4) for conn in to(say(bench))}
    bench.raw(GONE, active)
    assert to(say(bench)) == [3 - active]


def test_a_key_is_its_owners_and_dropped_when_that_has_no_permits(bench: Channels) -> None:
    join(bench, 1, lib.POLICY_KEY, ranges=(0, 9))
    join(bench, 2, lib.POLICY_KEY, ranges=(10, 65535), permits=1)
    assert [to(say(bench, key=key)) for key in (5, 10, 11, 6)] == [[1], [2], [], [1]]


def test_the_topic_is_gone_after_a_restart(bench: Channels) -> None:
    join(bench, 1)
    say(bench)
    bench.restart()
    assert TOPIC not in bench.catalog()
    join(bench, 1)
    assert len(to(say(bench))) == 1


def test_many_at_once_go_on_a_piece_a_turn(bench: Channels) -> None:
    join(bench, 1, permits=10**6)
    lib.worker_limit_turn(bench.worker, 16)
    body = b"".join(struct.pack(">I", 2) + b"%02d" % n for n in range(40))
    slot = bench.raw(lib.MSG_PUBLISH_MANY, 999, topic=bench.topic(TOPIC), id=bench.next_id, pri=40, body=body)
    counts, answers = [], []
    for _ in range(3):
        assert not any(a.slot == slot and a.conn == 999 for a in answers)
        came = bench.step()
        answers += came
        counts.append(len(to(came)))
    assert counts == [16, 16, 8]
    assert [a.body for a in answers if a.kind == lib.MSG_DELIVER] == [b"%02d" % n for n in range(40)]
    assert [a.status for a in answers if a.slot == slot and a.conn == 999] == [OK]


def test_no_transaction_takes_part(bench: Channels) -> None:
    join(bench, 1)
    answer = ask(bench, lib.MSG_PUBLISH, 999, flags=RETAINED | MSG_TXN, topic=bench.topic(TOPIC),
                 id=bench.next_id, body=of_transaction(7, b"x"))  # fmt: skip
    assert answer.status == lib.STATUS_INVALID


def test_idempotent_producers_are_not_remembered(bench: Channels) -> None:
    join(bench, 1)
    part = struct.pack("<QQII", 5, 1, 0, 0)
    for _ in range(2):
        slot = bench.raw(lib.MSG_PUBLISH, 999, flags=RETAINED | lib.MSG_IDEMPOTENT, topic=bench.topic(TOPIC),
                         id=bench.next_id, delay=0, body=part + b"x")  # fmt: skip
        answers = bench.turn()
        assert [a.status for a in answers if a.slot == slot and a.kind == lib.MSG_PUBLISH] == [OK]
        assert [a.body for a in answers if a.kind == lib.MSG_DELIVER] == [b"x"]
    assert PRODUCER not in {r.kind for r in records(bench)}


def test_others_are_stored_as_ever(bench: Channels) -> None:
    assert publish(bench, "non-persistent:/t", count=2) == [0, 1]
    assert PUBLISH in {r.kind for r in records(bench)}
