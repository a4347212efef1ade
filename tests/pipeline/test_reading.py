"""Ranges read without Spark: what comes out of the decoder for whatever a broker sends."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mq_shards.pipeline import decode, decoding, task
from mq_shards.pipeline.client import Address, BrokerError
from mq_shards.pipeline.options import ReadOptions
from mq_shards.pipeline.reading import PIECE_BYTES, DataLossError, Range

from tests.pipeline.serving import Gateway, Kept, Message, record, run, runs, serving

SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("shard", pa.int32()), ("seq", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC")),
        ("body", pa.binary()), ("id", pa.string()), ("attributes", pa.map_(pa.string(), pa.string())),
        ("broker", pa.string()),
    ]
)  # fmt: skip
BROKER = "0123456789abcdef" + "f" * 16
MS = 10**6


def read_range(
    of: Range, schema: pa.Schema = SCHEMA, *, strict: bool = True, timeout_s: float = 2.0
) -> list[pa.RecordBatch]:
    given = {"brokers": str(of.address), "topic": of.topic, "pollTimeoutMs": str(round(timeout_s * 1000))}
    options = ReadOptions.parse(given | ({} if strict else {"failOnDataLoss": "false"}), streaming=False)
    return list(task.read(task.Task((of,)), schema, options))


def read(gateway: Gateway, topic: str, start: int, end: int, *, gaps_from: int = 0, strict: bool = True,
         timeout_s: float = 2.0, schema: pa.Schema = SCHEMA) -> pa.Table:  # fmt: skip
    of = Range(gateway.broker, Address.parse(gateway.address), topic, 7, "1", start, end, gaps_from)
    batches = read_range(of, schema, strict=strict, timeout_s=timeout_s)
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema)


def expected_attributes(pri: int, ttr_ns: int, delay_ns: int) -> dict[str, str]:
    def ms(ns: int) -> str:
        whole, rest = divmod(ns, MS)
        return f"{whole}.{rest:06}".rstrip("0") if rest else str(whole)

    delay = {"delay_ms": ms(delay_ns)} if delay_ns else {}
    return {"pri": str(pri), "ttr_ms": ms(ttr_ns), **delay}


def encoded(pri: int, ttr_ns: int, delay_ns: int, *, moved: bool) -> bytes:
    long = struct.pack("<IIQQ", pri, 0, delay_ns, ttr_ns)
    if moved:
        return long + bytes(48)
    if ttr_ns % MS or delay_ns % MS or max(ttr_ns, delay_ns) // MS >= 1 << 32:
        return long
    return struct.pack("<II", pri, ttr_ns // MS) + (struct.pack("<I", delay_ns // MS) if delay_ns else b"")


u64 = st.integers(0, (1 << 64) - 1)
durations = st.one_of(st.sampled_from([0, 60_000 * MS, 1, MS, 1_500_000, (1 << 64) - 1]), u64)
messages = st.tuples(
    st.binary(max_size=40), st.integers(0, 1 << 62), u64, st.integers(0, (1 << 32) - 1), durations, durations,
    st.booleans(), st.integers(1, 3),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(messages, min_size=1, max_size=40), st.integers(1, 9), st.integers(16, 200))
def test_columns_are_what_the_records_say_however_they_are_cut(
    sent: list[tuple[Any, ...]], most: int, piece: int
) -> None:
    whole = runs(
        [
            Message(s, seq, t, record(s, seq, body, time_ns=t, identity=i, kind=6 if moved else 3,
                                      attributes=encoded(pri, ttr, delay, moved=moved)))
            for seq, (body, t, i, pri, ttr, delay, moved, s) in enumerate(sent)
        ],
        most,
    )  # fmt: skip
    decoder = decode.Decoder(BROKER, SCHEMA, len(sent))
    decoder.turn_to("orders", 7, 0, len(sent), 0)
    import numpy as np

    batches, left, pos = [], b"", 0
    while pos < len(whole):
        left += whole[pos : pos + piece]
        pos += piece
        progress, used = decoder.decode(np.frombuffer(left, np.uint8).copy())
        assert progress is decoding.Progress.MORE
        left = left[used:]
        if random.Random(pos).random() < 0.3 and (batch := decoder.take()) is not None:
            batches.append(batch)
    if (batch := decoder.take()) is not None:
        batches.append(batch)
    assert not left and decoder.between_runs and decoder.missing == 0
    for batch in batches:
        batch.validate(full=True)
    table = pa.Table.from_batches(batches)
    assert table["seq"].to_pylist() == list(range(len(sent)))
    assert table["body"].to_pylist() == [m[0] for m in sent]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [m[1] // 1000 for m in sent]
    assert table["id"].to_pylist() == [f"0123456789abcdef-{m[2]:016x}" for m in sent]
    assert [dict(pairs) for pairs in table["attributes"].to_pylist()] == [
        expected_attributes(m[3], m[4], m[5]) for m in sent
    ]
    constant = {name: set(table[name].to_pylist()) for name in ("topic", "shard", "broker")}
    assert constant == {"topic": {"orders"}, "shard": {7}, "broker": {BROKER}}


NATS, PULSAR, SPARK, HEADERS = 1, 2, 3, 8


def with_headers(tag: int, headers: bytes, body: bytes) -> bytes:
    """As struct headers, csrc/ringbuf/message.h, has them."""
    return struct.pack("<IHHII", len(headers), tag, 0, 0, 0) + headers + body


def spark_headers(entries: dict[bytes, bytes]) -> bytes:
    return b"".join(struct.pack("<II", len(k), len(v)) + k + v for k, v in entries.items())


def attributes_of(*sent: tuple[int, bytes]) -> tuple[list[dict[str, str]], list[bytes]]:
    """Of messages with such headers, each with its number as body; those every message has are left out."""
    import numpy as np

    usual = encoded(5, MS, 0, moved=False)
    contents = [with_headers(tag, headers, b"%d" % n) for n, (tag, headers) in enumerate(sent)]
    records = [record(1, n, content, attributes=usual, flags=HEADERS) for n, content in enumerate(contents)]
    whole = runs([Message(1, n, 0, one) for n, one in enumerate(records)])
    decoder = decode.Decoder(BROKER, SCHEMA, len(sent))
    decoder.turn_to("orders", 7, 0, len(sent), 0)
    batches = []
    while whole:
        _, used = decoder.decode(np.frombuffer(whole, np.uint8).copy())
        whole = whole[used:]
        batch = decoder.take()
        assert batch is not None
        batch.validate(full=True)
        batches.append(batch)
    table = pa.Table.from_batches(batches)
    maps = [dict(pairs) for pairs in table["attributes"].to_pylist()]
    assert all((m.pop("pri"), m.pop("ttr_ms")) == ("5", "1") for m in maps)
    return maps, table["body"].to_pylist()


def test_headers_are_attributes_and_no_part_of_the_body() -> None:
    nats = b"NATS/1.0\r\nA: 1\r\nempty:\r\nA: again\r\nUml\xc3\xa4ut:  x y \r\npri: 9\r\n\r\n"
    maps, bodies = attributes_of(
        (NATS, nats), (SPARK, spark_headers({b"k": b"v", "ключ".encode(): b""})), (SPARK, b""), (PULSAR, b"\0\xff")
    )
    assert maps == [
        {"A": "1", "empty": "", "Umläut": "x y"}, {"k": "v", "ключ": ""}, {}, {"headers.2": "00ff"},
    ]  # fmt: skip
    assert bodies == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("tag", "headers"),
    [
        (NATS, b"NATS/1.0\r\nno colon\r\n\r\n"),
        (NATS, b"NATS/1.0\r\na: b"),
        (NATS, b"NATS/1.0\r\na: \xff\r\n\r\n"),
        (NATS, b"NATS/1.0\r\na: \xed\xa0\x80\r\n\r\n"),
        (NATS, b""),
        (NATS, b"NATS/1.0\r\n" + b"".join(b"k%d: v\r\n" % n for n in range(65)) + b"\r\n"),
        (SPARK, b"\1\0\0\0\xff\xff\xff\xffk"),
        (SPARK, b"\0\0\0\0\0\0\0\0"),
        (SPARK, b"\1\0\0"),
        (60000, b"whatever"),
    ],
)
def test_headers_that_are_no_text_are_one_attribute(tag: int, headers: bytes) -> None:
    assert attributes_of((tag, headers))[0] == [{f"headers.{tag}": headers.hex()}]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=60)), min_size=1, max_size=20))
def test_any_bytes_may_be_headers(sent: list[tuple[int, bytes]]) -> None:
    assert attributes_of(*sent)[1] == [b"%d" % n for n in range(len(sent))]


def test_large_headers_take_more_than_one_batch() -> None:
    maps, bodies = attributes_of(*[(PULSAR, bytes([n]) * 65536) for n in range(100)])
    assert [m["headers.2"] for m in maps] == [bytes([n]).hex() * 65536 for n in range(100)] and len(bodies) == 100


def test_batches_end_where_they_are_full(gateway: Gateway) -> None:
    kept = gateway.topic("a")
    many = decoding.BATCH_MESSAGES + 5
    for i in range(many):
        kept.add(b"%d" % i)
    assert [len(c) for c in read(gateway, "a", 0, many)["seq"].chunks] == [decoding.BATCH_MESSAGES, 5]
    for size in (1, decoding.BATCH_BODY_BYTES - 1, 2, decoding.BATCH_BODY_BYTES + 1, PIECE_BYTES, 3):
        gateway.topic("b").add(bytes([size % 251]) * size)
    bodies = read(gateway, "b", 0, 6)["body"].to_pylist()
    most = decoding.BATCH_BODY_BYTES
    assert [len(b) for b in bodies] == [1, most - 1, 2, most + 1, PIECE_BYTES, 3]
    assert all(set(b) == {len(b) % 251} for b in bodies)


def test_replies_may_be_smaller_than_the_range(gateway: Gateway) -> None:
    for i in range(100):
        gateway.topic("a").add(b"%d" % i, segment=1 + i // 30)
    gateway.reply_bytes = 1
    assert read(gateway, "a", 10, 90)["seq"].to_pylist() == list(range(10, 90))
    assert len(gateway.calls) == 80


def test_reading_goes_on_where_a_reply_broke_off(gateway: Gateway) -> None:
    for i in range(50):
        gateway.topic("a").add(b"%d" % i * i)
    cuts = iter(range(0, 3000, 7))
    gateway.spoil = lambda topic, start, reply: reply[: next(cuts)]
    assert read(gateway, "a", 0, 50, timeout_s=20)["seq"].to_pylist() == list(range(50))


def test_a_byte_that_went_wrong_on_the_way_is_asked_for_again(gateway: Gateway) -> None:
    for _ in range(20):
        gateway.topic("a").add(b"x" * 8)
    places = iter([16 + 56 * 3 + 50, 16 + 56 * 2 + 4, 16 + 0, 16 + 56 * 5 + 20])

    def spoil(topic: str, start: int, reply: bytes) -> bytes:
        at = next(places, None)
        return reply if at is None else reply[:at] + bytes([reply[at] ^ 0x40]) + reply[at + 1 :]

    gateway.spoil = spoil
    assert read(gateway, "a", 0, 20)["seq"].to_pylist() == list(range(20))


@pytest.mark.parametrize("at", [0, 1, 3, 4, 8, 9, 13, 16, 20, 24, 32, 39, 40, 47])
def test_each_byte_of_a_record_is_covered(gateway: Gateway, at: int) -> None:
    for _ in range(3):
        gateway.topic("a").add(b"12345678")
    message = gateway.topics["a"].messages[1]
    message.record = message.record[:at] + bytes([message.record[at] ^ 0x10]) + message.record[at + 1 :]
    with pytest.raises(DataLossError, match="segment 1, behind seq 0"):
        read(gateway, "a", 0, 3)
    assert read(gateway, "a", 0, 3, strict=False)["seq"].to_pylist() == [0, 2]


def test_a_record_of_another_segment_is_not_taken_for_one(gateway: Gateway) -> None:
    gateway.topic("a").messages[0] = Message(2, 0, 0, record(1, 0, b"stale"))
    gateway.topic("a").next_seq = 1
    with pytest.raises(DataLossError, match="segment 2, behind seq -1: the record is corrupt"):
        read(gateway, "a", 0, 1)


@pytest.mark.parametrize(
    "reply",
    [
        run(1, [record(1, 9, b"")]),  # beyond what was asked for
        run(1, [record(1, 0, b""), record(1, 0, b"")]),
        run(1, [record(1, 0, b"", kind=4)]),
        struct.pack("<IIQ", 1, 1, 96) + record(1, 0, b"") + bytes(56),  # says that it is longer
        struct.pack("<IIQ", 1, 0, 48) + record(1, 0, b""),
    ],
)
def test_what_was_not_asked_for_is_refused(gateway: Gateway, reply: bytes) -> None:
    gateway.topic("a").add(b"")
    gateway.spoil = lambda topic, start, _: reply
    with pytest.raises(DataLossError, match="not asked for"):
        read(gateway, "a", 0, 3)


def test_gaps_are_told_from_where_they_matter(gateway: Gateway) -> None:
    for _ in range(10):
        gateway.topic("a").add(b"")
    gateway.topic("a").drop(2, 4)
    assert read(gateway, "a", 0, 10, gaps_from=4)["seq"].to_pylist() == [0, 1, 4, 5, 6, 7, 8, 9]
    for gaps_from, told in ((3, "message"), (0, "messages 2 to 3")):
        with pytest.raises(DataLossError, match=told):
            read(gateway, "a", 0, 10, gaps_from=gaps_from)
    gateway.topic("a").drop(8, 10)
    told = "messages 8 to 9 are gone; failOnDataLoss is true; with false the query goes on"
    with pytest.raises(DataLossError, match=told):
        read(gateway, "a", 5, 10)
    assert read(gateway, "a", 5, 10, gaps_from=10)["seq"].to_pylist() == [5, 6, 7]


def test_what_retention_took_since_the_query_was_planned_is_lost(gateway: Gateway) -> None:
    for _ in range(10):
        gateway.topic("a").add(b"")
    gateway.topic("a").drop(0, 4)
    with pytest.raises(DataLossError, match="messages 2 to 3 are gone"):
        read(gateway, "a", 2, 10, gaps_from=10)


def test_a_broker_that_is_gone_is_named(gateway: Gateway) -> None:
    with serving() as other:
        address = Address.parse(other.address)
    of = Range("b", address, "a", 0, "1", 0, 1, 0)
    with pytest.raises(BrokerError, match=str(address.port)):
        read_range(of, timeout_s=0.2)
    gateway.topics["a"] = Kept(0)
    gateway.topics["a"].add(b"1")
    gateway.spoil = lambda topic, start, reply: b""
    with pytest.raises(BrokerError, match="topic a"):
        read(gateway, "a", 0, 1, timeout_s=0.2)


def test_another_broker_that_answers_at_the_address_is_not_read(gateway: Gateway) -> None:
    gateway.topic("a").add(b"1")
    of = Range("of another data directory", Address.parse(gateway.address), "a", 7, "1", 0, 1, 0)
    with pytest.raises(BrokerError, match="412 another broker"):
        read_range(of, strict=False)


def test_a_log_that_was_begun_anew_since_the_range_was_planned_is_not_read(gateway: Gateway) -> None:
    gateway.topic("a").add(b"1")
    gateway.topic("a").incarnation = "2"
    with pytest.raises(DataLossError, match="its log was begun anew while it was read"):
        read(gateway, "a", 0, 1, strict=False)
