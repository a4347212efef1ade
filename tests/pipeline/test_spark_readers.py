"""The subscription of a query holds retention back until Spark commits, or until it is dropped by name."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import crc32c
import pytest
from mq_shards.pipeline import readers_command
from mq_shards.pipeline.arguments import of_readers
from pyspark.sql import SparkSession

from tests.nsq.wire import Wire
from tests.pipeline.broker import Broker, broker_in
from tests.pipeline.query import start_query
from tests.servers import wait_until

MIB = 1 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    options = ("--shards=2", "--set", "log.retention-hours=0")
    with broker_in(tmp_path / "data", *options, workers=1) as broker:
        yield broker


def readers(broker: Broker, *arguments: str) -> int:
    """The exit status of mq-pipeline readers."""
    parser = argparse.ArgumentParser()
    of_readers(parser)
    return readers_command.run(parser.parse_args(arguments), "local", {"brokers": broker.address})


def fill(broker: Broker, topic: str) -> None:
    """More than a segment, all of it finished."""
    with Wire(broker.nsq_port) as wire:
        for _ in range(18):
            wire.publish_many(topic, [b"x" * (MIB - 64)] * 4)
    broker.finish_all(topic)


def on_shard(shard: int) -> str:
    return next(name for name in map(str, range(100)) if crc32c.crc32c(name.encode()) % 2 == shard)


@pytest.mark.parametrize("by", ["commit", "name"])
def test_retention_waits(
    spark: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str
) -> None:
    held, free = on_shard(0), on_shard(1)
    broker.publish(held, [b"first"])
    options = {"brokers": broker.address, "topic": held, "startingOffsets": "earliest", "subscription": "nightly"}

    def run() -> int:
        start_query(spark, tmp_path, options, available_now=True).awaitTermination(60)
        return spark.read.parquet(str(tmp_path / "out")).count()

    assert run() == 1
    fill(broker, held)
    fill(broker, free)
    wait_until(lambda: broker.topic(free)["earliest"] > 0, "retention drops what nobody reads", 30)
    assert broker.topic(held)["earliest"] == 0
    [reader] = broker.get("/v1/readers")["readers"]
    assert (reader["name"], set(reader["topics"])) == ("nightly", {held})
    assert reader["unread"][held] >= 72
    assert readers(broker) == 0
    assert "nightly" in capsys.readouterr().out
    if by == "commit":
        assert run() == 73
        assert broker.get("/v1/readers/nightly")["unread"] == {held: 0}
    else:
        assert readers(broker, "--drop", "nightly") == 0
        assert broker.get("/v1/readers") == {"readers": []}
        assert readers(broker, "--drop", "nightly") == 1
        assert "no reader nightly" in capsys.readouterr().err
    wait_until(lambda: broker.topic(held)["earliest"] > 0, "retention drops what has been waiting", 30)
