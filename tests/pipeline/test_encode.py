"""Rows become sections: each body once, those of a topic in their order, whatever batches they come in."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from mq_shards.pipeline.encode import MAX_MESSAGE_BYTES, SECTION_BYTES, EncodeError, Encoder, Section

pytestmark = pytest.mark.usefixtures("either")

Rows = Sequence[tuple[str, bytes]]
KINDS = (pa.binary(), pa.large_binary())
TEXTS = (pa.string(), pa.large_string())
topics = st.sampled_from(["a", "b", "ü/" * 30, "c#ephemeral"])
batches = st.lists(st.lists(st.tuples(topics, st.binary(max_size=60)), max_size=30), max_size=8)


def column(rows: Sequence[object], kind: pa.DataType, skipped: int = 0) -> pa.Array:
    """`skipped`: so many rows of the array lie before those that count."""
    return pa.array([rows[0] if rows else None] * skipped + list(rows), kind)[skipped:]


def messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : at + 4 + size]
        at += 4 + size
    assert at == len(data)


def decode(section: Section) -> list[bytes]:
    name_bytes, zero, count, size = struct.unpack_from("<HHII", section.data)
    assert zero == 0
    assert section.data[12 : 12 + name_bytes].decode() == section.topic
    assert len(section.data) == 12 + name_bytes + size
    found = list(messages(section.data[12 + name_bytes :]))
    assert len(found) == count == section.messages > 0
    assert size <= SECTION_BYTES or count == 1
    return found


def by_topic(sections: Sequence[Section]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = defaultdict(list)
    for section in sections:
        found[section.topic] += decode(section)
    return dict(found)


def expected(rows: Rows) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = defaultdict(list)
    for topic, body in rows:
        found[topic].append(body)
    return dict(found)


@settings(deadline=None)
@given(batches, st.sampled_from(KINDS), st.integers(0, 3), st.integers(1, 20_000), st.integers(0, 3))
def test_bodies_come_out_as_they_went_in(
    given_: list[list[tuple[str, bytes]]], kind: pa.DataType, skipped: int, held_bytes: int, held_sections: int
) -> None:
    encoder, sections = Encoder(held_bytes, held_sections), list[Section]()
    for rows in given_:
        names = column([topic for topic, _ in rows], pa.string(), skipped)
        sections += encoder.add(names, column([body for _, body in rows], kind, skipped))
    sections += encoder.finish()
    assert by_topic(sections) == expected([row for rows in given_ for row in rows])
    assert list(encoder.finish()) == []


@settings(deadline=None)
@given(st.lists(st.lists(st.text(max_size=20), max_size=30), max_size=5), st.sampled_from(TEXTS))
def test_one_topic_for_all_rows_takes_text_too(given_: list[list[str]], kind: pa.DataType) -> None:
    encoder = Encoder()
    sections = [section for texts in given_ for section in encoder.add("t", pa.array(texts, kind))]
    sections += encoder.finish()
    assert by_topic(sections).get("t", []) == [text.encode() for texts in given_ for text in texts]


def test_sections_are_as_full_as_they_may_be_however_small_the_batches_are() -> None:
    encoder, sections = Encoder(), list[Section]()
    names = pa.array([f"t{n % 3}" for n in range(99)])
    for _ in range(1000):
        sections += encoder.add(names, pa.array([b"x" * 96] * 99, pa.binary()))
    # 33,000 messages of 100 bytes for each of three topics: three sections each, and what is left.
    assert [section.messages for section in sections] == [SECTION_BYTES // 100] * 9
    left = list(encoder.finish())
    assert [section.messages for section in left] == [33_000 - 3 * (SECTION_BYTES // 100)] * 3


def test_a_large_message_is_alone_and_in_its_place() -> None:
    bodies = [b"before", b"L" * SECTION_BYTES, b"between", b"M" * (3 * SECTION_BYTES), b"after"]
    encoder = Encoder()
    sections = [*encoder.add("t", pa.array(bodies, pa.binary())), *encoder.finish()]
    assert [section.messages for section in sections] == [1] * 5
    assert by_topic(sections) == {"t": bodies}


def test_what_fills_a_section_exactly_is_not_cut() -> None:
    encoder = Encoder()
    half = b"h" * (SECTION_BYTES // 2 - 4)
    sections = [*encoder.add("t", pa.array([half, half, b""], pa.binary())), *encoder.finish()]
    assert [section.messages for section in sections] == [2, 1]


def test_what_no_broker_takes_is_named() -> None:
    rows = pa.array([b"", b"x" * (MAX_MESSAGE_BYTES + 1)], pa.binary())
    with pytest.raises(EncodeError, match=f"topic big: a message of {MAX_MESSAGE_BYTES + 1} bytes"):
        list(Encoder().add("big", rows))


@pytest.mark.parametrize("offsets", [(0, 5, 3), (0, 9, 5), (0, -4, 5)])
def test_a_column_that_leads_out_of_its_buffers_is_refused(offsets: tuple[int, ...]) -> None:
    buffers = [None, pa.py_buffer(struct.pack("<3i", *offsets)), pa.py_buffer(b"12345")]
    unsound = pa.Array.from_buffers(pa.binary(), 2, buffers)
    with pytest.raises(EncodeError, match="not sound"):
        list(Encoder().add("t", unsound))


def test_many_topics_do_not_take_more_memory_than_is_allowed() -> None:
    encoder = Encoder(held_bytes=1 << 20)
    names = [f"t{n}" for n in range(1000)]
    sections = list(encoder.add(pa.array(names), pa.array([b"x" * 3000] * 1000, pa.binary())))
    held = 1000 - sum(section.messages for section in sections)
    assert 0 <= held <= (1 << 20) // 3000
    sections += encoder.finish()
    assert by_topic(sections) == {name: [b"x" * 3000] for name in names}
