"""What the data source is told is understood, or refused with what was meant."""

from __future__ import annotations

import logging
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mq_shards.pipeline import source
from mq_shards.pipeline.options import OptionError, ReadOptions, literal_prefix, names_of
from mq_shards.pipeline.write_options import WriteOptions
from pyspark.sql.types import StructType


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("broker", "did you mean brokers?"),
        ("startingOffset", "did you mean startingOffsets?"),
        ("failondataloss ", "did you mean failOnDataLoss?"),
        ("maxOffsetPerTriger", "did you mean maxOffsetsPerTrigger?"),
        ("kafka.bootstrap.servers", "did you mean brokers?"),
        ("kafka.group.id", "did you mean subscription?"),
        ("fetchOffset.numRetries", "did you mean pollTimeoutMs?"),
        ("includeHeaders", "rows have headers anyway, in attributes"),
        ("path", "there are brokers, topic, "),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(name: str, meant: str) -> None:
    for streaming in (False, True):
        with pytest.raises(OptionError) as refused:
            ReadOptions.parse({"topic": "t", name: "1"}, streaming=streaming)
        assert str(refused.value).startswith(f"{name}: there is no such option; {meant}")


def test_names_count_without_case(caplog: pytest.LogCaptureFixture) -> None:
    assert ReadOptions.parse({"TOPIC": "t", "minpartitions": "3"}, streaming=False).min_partitions == 3


def test_a_list_of_topics_may_be_json_since_names_may_have_commas() -> None:
    assert names_of("topics", "a, b,a") == ("a", "b")
    assert names_of("topics", ' ["a,b", " c"]') == ("a,b", " c")
    for wrong in ("", "a,,b", "[]", '["a", 1]', '["a"', '[""]'):
        with pytest.raises(OptionError, match="topics"):
            names_of("topics", wrong)


def test_what_a_batch_does_without_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ReadOptions.parse({"topic": "t", "subscription": "s"}, streaming=False)
    assert "option subscription is of streams" in caplog.text


def test_writers_refuse_what_they_do_not_know_and_take_what_is_sparks() -> None:
    with pytest.raises(OptionError, match=r"topics: there is no such option; did you mean topic\?"):
        WriteOptions.parse({"topics": "t"}, streaming=False)
    with pytest.raises(OptionError, match=r"kafka\.group\.id: there is no such option; there are brokers, topic"):
        WriteOptions.parse({"kafka.group.id": "t"}, streaming=False)
    told = {"topic": "t", "checkpointLocation": "/tmp/x", "queryName": "q"}
    assert WriteOptions.parse(told, streaming=True).topic == "t"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("assign", "orders", "should be brokers by topic"),
        ("assign", "{}", "should be brokers by topic"),
        ("assign", '{"orders": []}', "should be brokers by topic"),
        ("assign", '{"orders": [0]}', "should be brokers by topic"),
        ("assign", '{"orders": ["a:99999"]}', "is not host:port"),
        ("assign", '{"orders": ["a:4180"]}', "a:4180 is not among brokers, 127.0.0.1:4180"),
        ("maxTriggerDelay", "soon", "is no duration"),
        ("minOffsetsPerTrigger", "0", "no positive number"),
    ],
)
def test_a_malformed_option_is_named(name: str, value: str, said: str) -> None:
    topics = {} if name == "assign" else {"topic": "t"}
    with pytest.raises(OptionError, match=f"{name}: .*{said}"):
        ReadOptions.parse({**topics, name: value}, streaming=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90000", 90), (" 500 ", 0.5), ("250us", 0.00025), ("5ms", 0.005), ("2M", 120), ("3min", 180), ("1h", 3600)],
)
def test_a_delay_is_read_as_the_kafka_source_reads_it(text: str, seconds: float) -> None:
    read = ReadOptions.parse({"topic": "t", "maxTriggerDelay": text}, streaming=True)
    assert read.max_trigger_delay_s == pytest.approx(seconds)


def test_a_micro_batch_that_may_not_have_what_it_waits_for_is_refused() -> None:
    given = {"topic": "t", "minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}
    with pytest.raises(OptionError, match="minOffsetsPerTrigger: 11 is more than maxOffsetsPerTrigger, 10"):
        ReadOptions.parse(given, streaming=True)
    assert ReadOptions.parse(given | {"minOffsetsPerTrigger": "10"}, streaming=True).min_offsets_per_trigger == 10


def test_assign_and_topics_contradict_each_other() -> None:
    with pytest.raises(OptionError, match="topic and assign contradict each other"):
        ReadOptions.parse({"topic": "t", "assign": '{"t": ["a"]}'}, streaming=True)


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        ("orders[.].*", "orders."),
        (r"a\.b.*", "a.b"),
        ("ab?c", "a"),
        ("a|b", ""),
        ("(?i)a", ""),
        ("a{0,2}b", ""),
        (r"\d", ""),
    ],
)
def test_a_pattern_has_a_prefix_as_far_as_it_is_plain(pattern: str, prefix: str) -> None:
    assert literal_prefix(pattern) == prefix


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_whatever_a_pattern_matches_begins_with_its_prefix(data: st.DataObject) -> None:
    pieces = ["a", "b", "[.]", r"\.", ".", ".*", "?", "+", "{2}", "(ab)", "|", "[ab]", r"\w", "^", "$", "-", "/"]
    pattern = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=6)))
    try:
        compiled = re.compile(pattern)
    except re.error:
        return
    name = data.draw(st.from_regex(compiled, fullmatch=True))
    assert name.startswith(literal_prefix(pattern))


def test_a_schema_without_columns_is_refused_where_spark_would_count_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    found = source.Unfiltered({"topic": "t"})
    assert found.reader(StructType()) is not None
    monkeypatch.setattr(source, "COUNTS_NO_COLUMNS", False)
    for reader in (found.reader, found.streamReader):
        with pytest.raises(OptionError, match="counts no rows without columns; name one"):
            reader(StructType())
