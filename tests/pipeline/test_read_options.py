"""What the data source is told is understood, or refused with what was meant."""

from __future__ import annotations

import logging

import pytest
from mq_shards.pipeline.options import OptionError, ReadOptions
from mq_shards.pipeline.write_options import WriteOptions


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("broker", "did you mean brokers?"),
        ("startingOffset", "did you mean startingOffsets?"),
        ("failondataloss ", "did you mean failOnDataLoss?"),
        ("maxOffsetPerTriger", "did you mean maxOffsetsPerTrigger?"),
        ("path", "there are brokers, topic, "),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(given: str, meant: str) -> None:
    for streaming in (False, True):
        with pytest.raises(OptionError) as refused:
            ReadOptions.parse({"topic": "t", given: "1"}, streaming=streaming)
        assert str(refused.value).startswith(f"{given}: there is no such option; {meant}")


def test_names_count_without_case(caplog: pytest.LogCaptureFixture) -> None:
    assert ReadOptions.parse({"TOPIC": "t", "minpartitions": "3"}, streaming=False).min_partitions == 3


def test_what_a_batch_does_without_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ReadOptions.parse({"topic": "t", "subscription": "s"}, streaming=False)
    assert "option subscription is of streams" in caplog.text


def test_writers_refuse_what_they_do_not_know_and_take_what_is_sparks() -> None:
    with pytest.raises(OptionError, match=r"topics: there is no such option; did you mean topic\?"):
        WriteOptions.parse({"topics": "t"}, streaming=False)
    told = {"topic": "t", "checkpointLocation": "/tmp/x", "queryName": "q"}
    assert WriteOptions.parse(told, streaming=True).topic == "t"
