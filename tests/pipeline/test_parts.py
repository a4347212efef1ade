"""Sums of messages: whatever is summed up first, and however often, the same comes out."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from mq_shards.pipeline.parts import grouped

SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("minute", pa.timestamp("us", tz="UTC")), ("delay_class", pa.float64()),
        ("source", pa.string()), ("messages", pa.int64()), ("bytes", pa.int64()), ("max_bytes", pa.int64()),
        ("delay_ms", pa.float64()),
    ]
)  # fmt: skip
Row = dict[str, object]
KEYS = ("topic", "minute", "delay_class", "source")


@st.composite
def messages(draw: st.DrawFn) -> Row:
    size = draw(st.integers(0, 1 << 40))
    delay = draw(st.none() | st.integers(-1000, 1000).map(float))
    return {
        "topic": draw(st.sampled_from("ab")), "minute": draw(st.sampled_from([0, 60_000_000])), "delay_class": delay,
        "source": draw(st.none() | st.sampled_from("xy")), "messages": 1, "bytes": size, "max_bytes": size,
        "delay_ms": delay,
    }  # fmt: skip


def expected(rows: list[Row]) -> set[tuple[object, ...]]:
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((row["topic"], row["minute"], row["delay_class"], None), []).append(row)
        if row["source"] is not None:
            found.setdefault((row["topic"], None, None, row["source"]), []).append(row | {"delay_ms": None})
    return {
        (*key, len(of), sum(row["bytes"] for row in of), max(row["bytes"] for row in of),  # type: ignore
         None if all(row["delay_ms"] is None for row in of) else sum(row["delay_ms"] for row in of))  # type: ignore
        for key, of in found.items()
    }  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.lists(messages(), max_size=12), min_size=1, max_size=5))
def test_sums_of_sums_are_the_sums_of_all(files: list[list[Row]]) -> None:
    so_far = SCHEMA.empty_table()
    for file in files:
        so_far = grouped(pa.concat_tables([so_far, pa.Table.from_pylist(file, SCHEMA)]))
    rows = so_far.set_column(1, "minute", so_far["minute"].cast(pa.int64())).to_pylist()
    assert len(rows) == len({tuple(row[name] for name in KEYS) for row in rows})
    assert {tuple(row.values()) for row in rows} == expected([row for file in files for row in file])


def test_what_was_read_is_counted_by_topic() -> None:
    rows = pa.table({"topic": ["a", "b", "a"], "messages": [1, 5, 2]})
    assert sorted(map(tuple, (row.values() for row in grouped(rows).to_pylist()))) == [("a", 3), ("b", 5)]
