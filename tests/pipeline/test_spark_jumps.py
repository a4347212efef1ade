"""Where seqs have jumped by 2^32, as after a power failure: a job reads each message that is there, in as many tasks
and micro-batches as there are messages for, and takes the jump for no loss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.pipeline.command import main
from mq_shards.pipeline.lag import behind
from mq_shards.shards.last_run import NAME
from pyspark.sql import SparkSession

from tests.nsq import api
from tests.pipeline.broker import Broker, broker_in
from tests.pipeline.stream_driver import Checkpoint, Driver
from tests.pipeline.test_checkpoint import write

JUMP = 2**32 - 1
THERE = [*range(10), *range(10 + JUMP, 15 + JUMP)]


def fail_power(data: Path) -> None:
    path = data / NAME
    said = json.loads(path.read_bytes()) | {"boot": "another"}
    path.write_bytes(json.dumps(said).encode().ljust(511) + b"\n")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    data = tmp_path_factory.mktemp("jumps") / "data"
    with broker_in(data, "--shards=2", workers=1) as broker:
        for topic in ("t", "idle"):
            broker.publish(topic, [b"%d" % n for n in range(10)])
        assert api.call(broker.http_port, "PUT", "/v1/readers/r", b'{"t": 4, "idle": 10}').status == 200
        broker.kill()
        fail_power(data)
        broker.start(1)
        broker.publish("t", [b"%d" % n for n in range(10, 15)])
        yield broker


def test_the_listing_says_where_seqs_jump(broker: Broker) -> None:
    said = broker.topic("t")
    assert (said["jumps"], said["records"], said["latest"]) == ([[10, 10 + JUMP]], 15, 15 + JUMP)
    (reader,) = broker.get("/v1/readers")["readers"]
    assert reader["unread"] == {"t": 11, "idle": 0}


@pytest.mark.parametrize("limit", [1, 4, 10, 1000])
def test_a_stream_passes_a_jump_in_one_micro_batch(broker: Broker, limit: int) -> None:
    checkpoint = Checkpoint()
    rows = Driver(checkpoint, {"brokers": broker.address, "maxOffsetsPerTrigger": limit, "topic": "t"}).run()
    assert [seq for _, seq in rows] == THERE
    assert len(checkpoint.offsets) <= 15 // limit + 3


def test_a_query_before_a_jump_is_behind_by_the_messages_that_are_there(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = Checkpoint()
    driver = Driver(checkpoint, {"brokers": broker.address, "maxOffsetsPerTrigger": 4, "topic": "t"})
    assert driver.begin()
    driver.do_begun()
    assert behind({"sources": [driver.progress()]}).total == 11
    write(tmp_path, checkpoint)
    assert main(["offsets", "--brokers", broker.address, "--checkpoint", str(tmp_path), "--json"]) == 0
    assert [(row["next seq"], row["behind"]) for row in json.loads(capsys.readouterr().out)] == [(4, 11)]


def test_a_micro_batch_does_not_take_a_jump_for_messages_that_it_waits_for(broker: Broker) -> None:
    for least in (5, 6):
        options = {"brokers": broker.address, "topic": "t", "maxOffsetsPerTrigger": 10, "minOffsetsPerTrigger": least}
        driver = Driver(Checkpoint(), options)
        assert driver.begin()  # the first one waits for nothing
        driver.do_begun()
        assert driver.begin() == (least == 5)


@pytest.mark.parametrize("options", [{}, {"minPartitions": 6}, {"maxRecordsPerPartition": 4}, {"minPartitions": 100}])
def test_a_batch_job_has_as_many_tasks_as_there_are_messages_for(
    spark: SparkSession, broker: Broker, options: dict[str, int]
) -> None:
    given = {"brokers": broker.address, "topicPattern": "t|idle"} | {name: str(n) for name, n in options.items()}
    frame = spark.read.format("mqshards").options(**given).load().select("topic", "seq")
    found = sorted((row.topic, row.seq) for row in frame.collect())
    assert found == [("idle", n) for n in range(10)] + [("t", n) for n in THERE]
    assert frame.rdd.getNumPartitions() <= 30
