"""Many small ranges of one task: one call for all of them, whatever becomes of it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from mq_shards.pipeline import decoding, task
from mq_shards.pipeline.client import Address
from mq_shards.pipeline.options import ReadOptions
from mq_shards.pipeline.reading import DataLossError, Range

from tests.pipeline.serving import Gateway
from tests.pipeline.test_reading import SCHEMA

TOPICS = 30


def fill(gateway: Gateway) -> dict[str, list[bytes]]:
    rng = random.Random(7)
    bodies = {f"t{n:02}": [rng.randbytes(rng.choice((0, 1, 30, 700))) for _ in range(n % 7)] for n in range(TOPICS)}
    for n, (name, sent) in enumerate(bodies.items()):
        for i, body in enumerate(sent):
            gateway.topic(name, n % 4).add(body, segment=1 + i // 3, identity=i)
    return {name: sent for name, sent in bodies.items() if sent}


def ranges(gateway: Gateway) -> list[Range]:
    address = Address.parse(gateway.address)
    return [
        Range(gateway.broker, address, name, kept.shard, "1", 0, kept.next_seq, 0)
        for name, kept in gateway.topics.items()
    ]  # fmt: skip


def read(gateway: Gateway, *, strict: bool = True, of: list[Range] | None = None) -> pa.Table:
    given = {"brokers": gateway.address, "topicPattern": ".*", "failOnDataLoss": "true" if strict else "false"}
    options = ReadOptions.parse(given | {"pollTimeoutMs": "20000"}, streaming=False)
    batches = list(task.read(task.Task(tuple(of or ranges(gateway))), SCHEMA, options))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, SCHEMA)


def by_topic(table: pa.Table) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    seqs: dict[str, list[int]] = {}
    for row in table.to_pylist():
        found.setdefault(row["topic"], []).append(row["body"])
        seqs.setdefault(row["topic"], []).append(row["seq"])
        assert row["shard"] == int(row["topic"][1:]) % 4
    assert all(of == list(range(len(of))) for of in seqs.values())
    return found


def test_all_are_read_with_one_call_and_into_one_batch(gateway: Gateway) -> None:
    sent = fill(gateway)
    table = read(gateway)
    assert by_topic(table) == sent
    assert gateway.calls == ["POST /v1/records"] and len(table["seq"].chunks) == 1


def test_a_reply_may_hold_only_some_of_them_and_only_a_part_of_the_last(gateway: Gateway) -> None:
    sent = fill(gateway)
    for gateway.reply_bytes in (1, 300, 2000):
        assert by_topic(read(gateway)) == sent


def test_what_broke_off_or_came_wrong_is_asked_for_again(gateway: Gateway) -> None:
    sent = fill(gateway)
    rng = random.Random(3)
    spoilt = 0

    def spoil(topic: str, start: int, reply: bytes) -> bytes:
        nonlocal spoilt
        if spoilt == 40 or rng.random() < 0.7 or not reply:
            return reply
        spoilt += 1
        at = rng.randrange(len(reply))
        return reply[:at] if rng.random() < 0.5 else reply[:at] + bytes([reply[at] ^ 0x40]) + reply[at + 1 :]

    gateway.spoil = spoil
    assert by_topic(read(gateway)) == sent
    assert spoilt > 5


def test_batches_that_are_full_have_rows_of_several_topics(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = fill(gateway)
    monkeypatch.setattr(decoding, "BATCH_MESSAGES", 4)
    table = read(gateway)
    assert by_topic(table) == sent and max(map(len, table["seq"].chunks)) == 4


def test_a_broker_that_does_not_know_the_call_is_asked_one_by_one(gateway: Gateway) -> None:
    sent = fill(gateway)
    gateway.reads_many = False
    assert by_topic(read(gateway)) == sent
    assert gateway.calls.count("POST /v1/records") == 1


def test_what_is_gone_or_corrupt_or_anew_is_told_with_its_topic(gateway: Gateway) -> None:
    sent = fill(gateway)
    planned = ranges(gateway)
    del gateway.topics["t05"]
    with pytest.raises(DataLossError, match=r"topic t05 of .*messages 0 to 4 are gone"):
        read(gateway, of=planned)
    gateway.topics["t13"].drop(2, 4)
    message = gateway.topics["t20"].messages[3]
    message.record = message.record[:30] + bytes([message.record[30] ^ 1]) + message.record[31:]
    found = read(gateway, of=planned, strict=False).to_pylist()
    gone = {("t05", seq) for seq in range(5)} | {("t13", 2), ("t13", 3), ("t20", 3)}
    there = {(topic, seq) for topic, bodies in sent.items() for seq in range(len(bodies))} - gone
    assert sorted((row["topic"], row["seq"]) for row in found) == sorted(there)
    with pytest.raises(DataLossError, match=r"topic t13 of .*messages 2 to 3 are gone"):
        read(gateway, of=[of for of in planned if of.topic not in ("t05", "t20")])
    with pytest.raises(DataLossError, match=r"topic t20 of .*corrupt"):
        read(gateway, of=[of for of in planned if of.topic not in ("t05", "t13")])
    gateway.topics["t01"].incarnation = "2"
    with pytest.raises(DataLossError, match=r"topic t01 of .*begun anew"):
        read(gateway, of=planned, strict=False)
