"""What is decoded of a body."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from mq_shards.pipeline.events import decoded, delay_ms
from mq_shards.pipeline.fields import FieldError, Fields

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

PUBLISHED = datetime(2026, 1, 31, 12, 0, 10, tzinfo=UTC)
T = 1769860800  # 12:00:00


def rows(
    spark: SparkSession, bodies: list[bytes], topic: str = "t", formats: dict[str, str] | None = None
) -> list[Row]:
    made = [(number, topic, PUBLISHED, body) for number, body in enumerate(bodies)]
    messages = spark.createDataFrame(made, "seq int, topic string, timestamp timestamp, body binary")
    found = decoded(messages, Fields(), formats, keep=("seq", "timestamp"))
    return found.select("*", delay_ms().alias("delay")).orderBy("seq").collect()


def test_a_body_is_json_text_or_binary(spark: SparkSession) -> None:
    bodies = [b'{"id": 7}', b" [1]", b"hello", b"12", b"", b"\xff\xfe", b'{"a": 1', b"null"]
    found = [(row.kind, row.text, row.reason) for row in rows(spark, bodies)]
    assert found == [
        ("json", None, None), ("json", None, None), ("text", "hello", None), ("text", "12", None), ("text", "", None),
        ("binary", None, None), ("text", '{"a": 1', "begins like JSON, but is none"), ("text", "null", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "reasons"),
    [
        ("json", [None, None, "not JSON", "empty, but JSON is wanted", "not UTF-8"]),
        ("text", [None, None, None, None, "not UTF-8"]),
        ("binary", [None] * 5),
    ],
)
def test_what_is_not_of_its_topics_format_is_bad(spark: SparkSession, wanted: str, reasons: list[str | None]) -> None:
    bodies = [b'{"id": 7}', b"12", b"{x", b" ", b"\xff"]
    assert [row.reason for row in rows(spark, bodies, "orders-1", {"orders-.": wanted, ".*": "binary"})] == reasons
    # A pattern is for the whole name.
    assert [row.reason for row in rows(spark, bodies[:2], "orders-12", {"orders-.": wanted})] == [None, None]


def test_an_events_time_may_be_text_or_a_number_of_any_unit(spark: SparkSession) -> None:
    times = ['"2026-01-31T12:00:00Z"', '"2026-01-31 13:00:00+01:00"', f"{T}", f"{T}.5", f'"{T}"', f"{T}000",
             f"{T}000000", f"{T}000000000"]  # fmt: skip
    bodies = [b'{"time": %b}' % time.encode() for time in times]
    assert [row.delay for row in rows(spark, bodies)] == [10_000, 10_000, 10_000, 9_500, 10_000, 10_000, 10_000, 10_000]


def test_a_time_that_is_none_is_no_error(spark: SparkSession) -> None:
    times = ['"soon"', "-5", "1e30", "null", "{}", '"NaN"', '"Infinity"', '"-290308-12-21T00:00:00Z"']
    found = rows(spark, [b'{"time": %b}' % time.encode() for time in times])
    assert [row.reason for row in found] == [None] * len(times)
    assert [row.delay for row in found[:-1]] == [None] * (len(times) - 1)


def test_the_first_field_that_is_there_counts(spark: SparkSession) -> None:
    bodies = [b'{"ts": %d, "user": "u", "source": "s", "id": 5}' % T, b'{"user": "u"}', b'[{"id": 5}]']
    found = [(row.event_id, row.source, row.event_time is None) for row in rows(spark, bodies)]
    assert found == [("5", "s", False), (None, "u", True), (None, None, True)]


def test_a_fields_name_cannot_break_out_of_its_path() -> None:
    with pytest.raises(FieldError):
        Fields(id=["a'] || $['b"])
