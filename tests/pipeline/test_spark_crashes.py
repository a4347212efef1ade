"""Exactly once into Parquet while a publisher goes on, whatever is killed -9: the query, the broker, or both."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.broker import Broker, Publisher, broker_in
from tests.pipeline.query import QueryProcess, start_query
from tests.servers import wait_until

TOPICS = [f"events-{n}" for n in range(5)]
# What a micro-batch writes, in this order: what it will read, which files count, that it is done.
MARKS = ("checkpoint/offsets", "out/_spark_metadata", "checkpoint/commits")

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with broker_in(tmp_path / "data", "--shards=8") as broker:
        yield broker


def options(broker: Broker, most: int = 500) -> dict[str, str]:
    return {"brokers": broker.address, "topicPattern": "events-.*", "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(most), "subscription": "parquet"}  # fmt: skip


def done(directory: Path) -> int:
    """The last micro-batch that is, or -1."""
    commits = directory / "checkpoint" / "commits"
    return max((int(path.name) for path in commits.glob("[0-9]*")), default=-1) if commits.exists() else -1


def a_moment(directory: Path, chance: random.Random) -> Path:
    """The file that tells that it has come."""
    return directory / chance.choice(MARKS) / str(done(directory) + chance.randrange(1, 4))


def check(spark: SparkSession, broker: Broker, directory: Path, publisher: Publisher) -> None:
    """Once nothing more is published: every message is there once, in its place."""
    start_query(spark, directory, options(broker, 20_000), available_now=True).awaitTermination(120)
    written = spark.read.parquet(str(directory / "out")).collect()
    places = Counter((row.topic, row.seq) for row in written)
    latest = {topic["topic"]: topic["latest"] for topic in broker.get("/v1/topics")["topics"]}
    assert places == Counter((topic, seq) for topic, end in latest.items() for seq in range(end))
    bodies = Counter(bytes(row.body) for row in written)
    assert set(bodies.values()) == {1}
    assert publisher.acknowledged <= bodies.keys() <= publisher.acknowledged | publisher.uncertain
    assert len(bodies) > 1000


@pytest.mark.long
def test_the_query_is_killed_at_random(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    chance = random.Random(11)
    with Publisher(broker, TOPICS) as publisher:
        for _ in range(2):
            query = QueryProcess("local[2]", tmp_path, options(broker))
            try:
                query.wait_for(a_moment(tmp_path, chance))
                time.sleep(chance.random() * 0.1)
            finally:
                query.kill()
    check(spark, broker, tmp_path, publisher)


def test_the_broker_is_killed_at_random(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """All of it, or only the process that the query speaks with."""
    chance = random.Random(12)
    with Publisher(broker, TOPICS) as publisher:
        query = start_query(spark, tmp_path, options(broker))
        try:
            for victim in ("all", "mq-gateway", "all", "mq-worker-0", "all"):
                mark = a_moment(tmp_path, chance)
                wait_until(mark.exists, f"the query writes {mark}", 60)
                time.sleep(chance.random() * 0.1)
                if victim == "all":
                    broker.kill()
                    broker.start(2)
                else:
                    os.kill(broker.running.pid_of(victim), signal.SIGKILL)
            before = done(tmp_path)
            wait_until(lambda: done(tmp_path) > before + 1, "the query goes on", 60)
            assert query.isActive
        finally:
            query.stop()
    check(spark, broker, tmp_path, publisher)


@pytest.mark.long
def test_both_are_killed_at_random_and_executors_are_other_processes(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    chance = random.Random(13)
    with Publisher(broker, TOPICS) as publisher:
        query = QueryProcess("local-cluster[2,1,1024]", tmp_path, options(broker))
        try:
            query.wait_for(a_moment(tmp_path, chance))
            assert query.executors() == 2
            broker.kill()
            broker.start(2)
            query.wait_for(a_moment(tmp_path, chance))
            broker.kill()
        finally:
            query.kill()
        broker.start(2)
    check(spark, broker, tmp_path, publisher)
