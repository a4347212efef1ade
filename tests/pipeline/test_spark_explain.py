"""What a query reads is told as Spark plans it, and nothing is read for it."""

from __future__ import annotations

import json

import pytest
from mq_shards.pipeline import explain
from mq_shards.pipeline.command import main
from pyspark.sql import SparkSession

from tests.pipeline.conftest import Shared
from tests.pipeline.serving import Gateway


def fill(gateway: Gateway) -> None:
    for name, count in (("a1", 5), ("a2", 7), ("b1", 3)):
        topic = gateway.topic(name, 0)
        for number in range(count):
            topic.add(b"%d" % number)


def places(planned: list[explain.Planned]) -> list[tuple[str, int, int]]:
    return sorted((of.topic, of.start, of.end) for of in planned)


def test_filters_narrow_what_is_planned_as_they_narrow_what_is_read(spark: SparkSession, gateway: Gateway) -> None:
    fill(gateway)
    source = {"brokers": gateway.address, "topicPattern": "a."}
    assert places(explain.ranges(spark, source)) == [("a1", 0, 5), ("a2", 0, 7)]
    # Of these Spark pushes down what it can; the rest it would apply to rows.
    where = "topic like 'a%' and seq >= 3 and seq < 100 and length(body) > 1000"
    assert places(explain.ranges(spark, source, where)) == [("a1", 3, 5), ("a2", 3, 7)]
    assert places(explain.ranges(spark, source, "topic = 'b1'")) == []
    assert places(explain.ranges(spark, source, "1 = 0")) == []
    (of, *_) = explain.ranges(spark, {**source, "minPartitions": "4"}, "topic = 'a2'")
    assert (of.task, of.broker, of.address) == (0, gateway.broker, gateway.address)
    assert not [call for call in gateway.calls if "/v1/records" in call]


def test_the_command_shows_filters_ranges_and_tasks(
    spark: SparkSession, gateway: Gateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(gateway)
    monkeypatch.setattr(explain, "open_session", lambda *_, **__: Shared(spark))
    words = ["--brokers", gateway.address, "explain", "--topics", "a1,a2"]
    assert main([*words, "--where", "topic = 'a2' and seq > 2", "--option", "maxRecordsPerPartition=3"]) == 0
    said = capsys.readouterr().out
    assert "PushedFilters: " in said and "EqualTo" in said
    assert said.splitlines()[-1] == "1 topics, 4 messages at most, 2 tasks"
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(of["topic"], of["start"], of["end"], of["task"]) for of in told] == [("a1", 0, 5, 0), ("a2", 0, 7, 0)]
    assert main([*words, "--option", "minPartition=3"]) == 1 and "did you mean minPartitions" in capsys.readouterr().err
    assert main([*words, "--where", "nothing = 1"]) == 1 and "nothing" in capsys.readouterr().err
    assert main([*words, "--where", "seq >>> nonsense("]) == 1
    assert capsys.readouterr().err.startswith("mq-pipeline: [PARSE_SYNTAX_ERROR] ")
