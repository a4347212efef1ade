"""Entries of Pulsar's clients as rows: a batch is so many, each with its own payload and attributes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mq_shards.csrc import decompression
from mq_shards.pipeline import decode, decoding

from tests.pipeline.serving import Message, record, run, runs
from tests.pulsar.test_batches import COMPRESSIONS
from tests.pulsar.wire import batch_of, batch_with, entry_of, metadata

pytestmark = pytest.mark.usefixtures("either")

SCHEMA = pa.schema(
    [
        ("seq", pa.int64()), ("batch_index", pa.int32()), ("body", pa.binary()), ("id", pa.string()),
        ("attributes", pa.map_(pa.string(), pa.string())), ("topic", pa.string()),
    ]
)  # fmt: skip
PULSAR, HEADERS = 2, 8
EVERY_MESSAGES = ("pri", "ttr_ms", "delay_ms")
IDENTITY = 0x40
ID = "0123456789abcdef-0000000000000040"


def content(payload: bytes, *, packed: int = 1, head: bytes | None = None, **fields: object) -> bytes:
    """What a record of it holds."""
    head = metadata(**fields) if head is None else head
    written = entry_of(head, payload)[: 10 + len(head)]
    return struct.pack("<IHHII", len(written), PULSAR, 0, 0, packed) + written + payload


def batch(*messages: tuple[bytes, dict[str, object]], how: str = "none", **fields: object) -> bytes:
    kind, compress = COMPRESSIONS[how]
    whole = batch_with(*messages)
    if kind:
        fields = {"compression": kind, "uncompressed_size": len(whole), **fields}
    return content(compress(whole), num_messages_in_batch=len(messages), **fields)


def encoded(contents: list[bytes]) -> bytes:
    records = [record(1, n, one, identity=IDENTITY + n, flags=HEADERS) for n, one in enumerate(contents)]
    return runs([Message(1, n, 0, one) for n, one in enumerate(records)], 3)


def rows_of(*contents: bytes, piece: int = 1 << 30, schema: pa.Schema = SCHEMA) -> list[dict[str, Any]]:
    """All that comes of such records, which come in pieces."""
    decoder = decode.Decoder("0123456789abcdef", schema, len(contents))
    decoder.turn_to("t", 7, 0, len(contents), 0)
    whole, left, rows = encoded(list(contents)), b"", []
    while whole or left:
        left, whole = left + whole[:piece], whole[piece:]
        progress, used = decoder.decode(np.frombuffer(left, np.uint8).copy())
        assert used or progress is decoding.Progress.FULL or whole, "it goes on"
        left = left[used:]
        if (batch := decoder.take()) is not None:
            batch.validate(full=True)
            rows += batch.to_pylist()
    assert decoder.between_runs and decoder.next_seq == len(contents)
    for row in rows:
        if "attributes" in row:
            row["attributes"] = {k: v for k, v in row["attributes"] if k not in ("pri", "ttr_ms")}
    return rows


def property_of(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": value}


MESSAGES: list[tuple[bytes, dict[str, object]]] = [
    (b"first", {"partition_key": "k", "properties": [property_of("a", "1"), property_of("b", "")], "event_time": 17}),
    (b"", {"null_value": True, "partition_key": "aw==", "partition_key_b64_encoded": True, "ordering_key": b"o"}),
    (b"third" * 100, {}),
]
ATTRIBUTES = [
    {"key": "k", "event_time_ms": "17", "a": "1", "b": ""},
    {"key": "aw==", "key_encoding": "base64", "ordering_key": "o", "null_value": "true"},
    {},
]


@pytest.mark.parametrize("how", COMPRESSIONS)
@pytest.mark.parametrize("piece", [1 << 30, 40])
def test_each_message_of_a_batch_is_a_row_with_what_is_its_own(how: str, piece: int) -> None:
    alone = content(b"alone", partition_key="x", properties=[property_of("p", "q")], event_time=18)
    kind, compress = COMPRESSIONS[how]
    packed = {"compression": kind, "uncompressed_size": 6} if kind else {}
    single = content(compress(b"single"), properties=[property_of("s", "t")], **packed)
    empty = content(compress(b""), **({"compression": kind} if kind else {}))
    rows = rows_of(alone, batch(*MESSAGES, how=how), single, batch((b"one", {}), how=how), empty, piece=piece)
    places = [(0, -1), (1, 0), (1, 1), (1, 2), (2, -1), (3, 0), (4, -1)]
    assert [(row["seq"], row["batch_index"]) for row in rows] == places
    assert [row["body"] for row in rows] == [b"alone", *(body for body, _ in MESSAGES), b"single", b"one", b""]
    assert [row["attributes"] for row in rows] == [
        {"key": "x", "event_time_ms": "18", "p": "q"}, *ATTRIBUTES, {"s": "t"}, {}, {},
    ]  # fmt: skip
    ids = [row["id"] for row in rows]
    assert ids[:4] == [ID, f"{ID[:-1]}1.0", f"{ID[:-1]}1.1", f"{ID[:-1]}1.2"] and len(set(ids)) == len(ids)


def test_a_property_with_a_name_of_ours_has_a_prefix_and_the_last_of_one_name_counts() -> None:
    properties = [property_of(name, name) for name in ("key", "pri", "event_time_ms", "twice")]
    fields = {"partition_key": "k", "properties": [*properties, property_of("twice", "2")]}
    expected = {"key": "k", "property.key": "key", "property.pri": "pri"}
    expected |= {"event_time_ms": "event_time_ms", "twice": "2"}
    assert [row["attributes"] for row in rows_of(content(b"", **fields), batch((b"", fields)))] == [expected] * 2


ENCRYPTED = b"\x6a\x06\x0a\x01k\x12\x01v"  # encryption_keys


@pytest.mark.parametrize(
    ("payload", "head", "readable"),
    [
        (batch_of(b"a", b"b") + b"x", metadata(num_messages_in_batch=2), {}),
        (batch_of(b"a", b"b"), metadata(num_messages_in_batch=3), {}),
        (b"secret", metadata(num_messages_in_batch=3, properties=[property_of("a", "1")]) + ENCRYPTED, {"a": "1"}),
        (b"part", metadata(uuid="u", num_chunks_from_msg=2, chunk_id=0, partition_key="k"), {"key": "k"}),
        (b"no lz4", metadata(compression=decompression.LZ4, uncompressed_size=9), {}),
        (b"bomb", metadata(compression=decompression.ZSTD, uncompressed_size=1 << 31), {}),
        (b"unknown", metadata(compression=77, uncompressed_size=9), {}),
        (b"binary", metadata(properties=[property_of("a", "1")], ordering_key=b"\xff"), {"a": "1"}),
    ],
)
def test_what_cannot_be_opened_is_one_row_with_all_its_metadata(
    payload: bytes, head: bytes, readable: dict[str, str]
) -> None:
    (row, behind) = rows_of(content(payload, head=head), batch((b"behind", {})))
    assert (row["body"], row["batch_index"], behind["body"]) == (payload, -1, b"behind")
    assert row["attributes"] == {**readable, "headers.2": entry_of(head, payload)[: 10 + len(head)].hex()}


def test_metadata_of_one_message_that_is_no_text_is_given_as_it_is() -> None:
    odd: tuple[bytes, dict[str, object]] = (b"x", {"ordering_key": b"\xff", "partition_key": "k"})
    rows = rows_of(batch((b"w", {}), odd))
    assert rows[0]["attributes"] == {} and set(rows[1]["attributes"]) == {"key", "headers.2"}


def test_a_batch_of_more_rows_than_fit_goes_on_where_it_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than a batch of Arrow's holds, or more bodies and attributes."""
    monkeypatch.setattr(decoding, "BATCH_MESSAGES", 1000)
    count = 3 * decoding.BATCH_MESSAGES + 5
    rows = rows_of(batch(*((b"%d" % n, {}) for n in range(count)), how="zstd"))
    assert [row["body"] for row in rows] == [b"%d" % n for n in range(count)]
    assert [row["batch_index"] for row in rows] == list(range(count))
    large: list[tuple[bytes, dict[str, object]]] = [
        (b"%d" % n * 500_000, {"properties": [property_of("p", "v" * 60_000)]}) for n in range(30)
    ]
    rows = rows_of(batch(*large))
    assert [row["body"] for row in rows] == [body for body, _ in large]
    assert {row["attributes"]["p"] for row in rows} == {"v" * 60_000}


def test_a_message_with_more_metadata_than_there_is_room_for_leaves_its_batch_whole() -> None:
    large = {"properties": [property_of("p", "v" * 70_000)]}
    (row,) = rows_of(batch((b"a", large), (b"b", {})))
    assert row["batch_index"] == -1 and row["body"] == batch_with((b"a", large), (b"b", {}))


def test_rows_are_counted_without_any_column() -> None:
    schema = pa.schema([("batch_index", pa.int32())])
    assert [row["batch_index"] for row in rows_of(batch(*MESSAGES, how="lz4"), schema=schema)] == [0, 1, 2]


def test_a_reply_that_is_cut_within_a_batch_repeats_and_leaves_out_nothing() -> None:
    schema = pa.schema([("batch_index", pa.int32()), ("body", pa.binary())])
    bodies = [b"%d" % n * 300_000 for n in range(40)]  # more than a batch of Arrow's holds
    one = encoded([batch(*((body, {}) for body in bodies), how="snappy")])
    decoder = decode.Decoder("0123456789abcdef", schema, 1)
    decoder.turn_to("t", 7, 0, 1, 0)
    rows: list[dict[str, Any]] = []
    while decoder.next_seq == 0:
        decoder.begin()  # it is asked for again, and comes from its beginning
        decoder.decode(np.frombuffer(one, np.uint8).copy())
        if (batch_ := decoder.take()) is not None:
            rows += batch_.to_pylist()
    assert [row["body"] for row in rows] == bodies


texts = st.text(max_size=6)
properties = st.lists(st.builds(property_of, texts, texts), max_size=4)
singles = st.tuples(
    st.binary(max_size=20),
    st.fixed_dictionaries(
        {"properties": properties}, optional={"partition_key": texts, "event_time": st.integers(1, 99)}
    ),
)


@given(st.lists(st.lists(singles, min_size=1, max_size=6), min_size=1, max_size=6), st.integers(16, 300),
       st.sampled_from(list(COMPRESSIONS)))  # fmt: skip
def test_any_batches_are_their_messages(
    sent: list[list[tuple[bytes, dict[str, object]]]], piece: int, how: str
) -> None:
    rows = rows_of(*(batch(*messages, how=how) for messages in sent), piece=piece)
    assert [(row["seq"], row["batch_index"], row["body"]) for row in rows] == [
        (seq, at, body) for seq, messages in enumerate(sent) for at, (body, _) in enumerate(messages)
    ]
    fields = [one for messages in sent for _, one in messages]
    for row, one in zip(rows, fields, strict=True):
        given_ = {p["key"]: p["value"] for p in one["properties"]}  # type: ignore[attr-defined]
        ours = {"key": one.get("partition_key"), "event_time_ms": one.get("event_time")}
        ours = {name: str(value) for name, value in ours.items() if value is not None}
        assert row["attributes"] == {
            **{f"property.{k}" if k in (*ours, *EVERY_MESSAGES) else k: v for k, v in given_.items()}, **ours,
        }  # fmt: skip


@given(st.binary(max_size=200), st.integers(0, 3), st.integers(0, 4))
def test_whatever_a_stranger_sends_is_rows(payload: bytes, messages: int, compression: int) -> None:
    fields: dict[str, Any] = {"num_messages_in_batch": messages} if messages else {}
    if compression:
        fields |= {"compression": compression, "uncompressed_size": len(payload)}
    rows = rows_of(content(payload, **fields), content(payload, head=payload))
    assert {row["seq"] for row in rows} == {0, 1} and rows[-1]["body"] == payload


def test_a_run_that_ends_within_a_record_is_seen() -> None:
    one = record(1, 0, batch(*MESSAGES), flags=HEADERS)
    damaged = bytearray(run(1, [one]))
    damaged[80] ^= 1
    decoder = decode.Decoder("b", SCHEMA, 1)
    decoder.turn_to("t", 7, 0, 1, 0)
    with pytest.raises(decoding.DecodeError):
        decoder.decode(np.frombuffer(bytes(damaged), np.uint8).copy())
    assert decoder.take() is None
