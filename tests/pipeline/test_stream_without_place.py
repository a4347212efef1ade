"""Streams with PySpark 4.0 and 4.1, in the order in which those call a source: each message once. Without Spark;
test_spark_wheel.py has Spark itself."""

from __future__ import annotations

import json
import random

import pytest
from mq_shards.pipeline.options import OptionError, ReadOptions
from mq_shards.pipeline.source import SCHEMA
from mq_shards.pipeline.stream_without_place import StreamReaderWithoutPlace

from tests.pipeline.serving import Gateway
from tests.pipeline.stream_driver import Checkpoint, Rows


class Driver:
    """`available_now`: asks for the end once, before it looks at the checkpoint, as these versions do."""

    def __init__(self, checkpoint: Checkpoint, *, available_now: bool = False, **options: object) -> None:
        given = {"startingOffsets": "earliest", "pollTimeoutMs": "2000", "topicPattern": ".*"}
        given |= {name: str(value) for name, value in options.items()}
        self.reader = StreamReaderWithoutPlace(ReadOptions.parse(given, streaming=True), SCHEMA)
        self._checkpoint = checkpoint
        if available_now:
            self.reader.latestOffset()
        if checkpoint.offsets:
            assert self.reader.partitions(checkpoint.last, checkpoint.last) == []

    def begin(self) -> bool:
        end = json.dumps(self.reader.latestOffset())
        if self._checkpoint.offsets[-1:] == [end]:
            return False
        self._checkpoint.offsets.append(end)
        return True

    def do_begun(self) -> Rows:
        checkpoint, rows = self._checkpoint, list[tuple[str, int]]()
        while checkpoint.done < len(checkpoint.offsets):
            end = json.loads(checkpoint.offsets[checkpoint.done])
            before = checkpoint.offsets[checkpoint.done - 1] if checkpoint.done else None
            start = json.loads(before) if before is not None else self.reader.initialOffset()
            for partition in self.reader.partitions(start, end):
                for batch in self.reader.read(partition):
                    rows += zip(batch["topic"].to_pylist(), batch["seq"].to_pylist(), strict=True)
            checkpoint.done += 1
            self.reader.commit(end)
        return rows


def fill(gateway: Gateway, topic: str, count: int) -> None:
    for _ in range(count):
        gateway.topic(topic).add(topic.encode())


@pytest.mark.parametrize("seed", range(6))
def test_a_query_that_dies_anywhere_reads_each_message_once(gateway: Gateway, seed: int) -> None:
    chance, checkpoint = random.Random(seed), Checkpoint()
    rows: Rows = []
    for _ in range(30):
        fill(gateway, chance.choice("abc"), chance.randrange(12))
        driver = Driver(checkpoint, brokers=gateway.address, subscription="s", maxOffsetsPerTrigger=7)
        for _ in range(chance.randrange(4)):
            rows += (batch := driver.do_begun())
            assert len(batch) <= 7
            if not driver.begin():
                break
        if chance.random() < 0.3:  # in the midst of a micro-batch, so that nobody sees what came of it
            done = checkpoint.done
            driver.do_begun()
            checkpoint.done = done
    driver = Driver(checkpoint, brokers=gateway.address, subscription="s")
    rows += driver.do_begun()
    while driver.begin():
        rows += driver.do_begun()
    assert sorted(rows) == sorted((t, s) for t, kept in gateway.topics.items() for s in range(kept.next_seq))
    assert gateway.readers["s"] == {topic: kept.next_seq for topic, kept in gateway.topics.items()}


def test_the_first_micro_batch_reads_the_same_when_it_is_done_again(gateway: Gateway) -> None:
    """Though `latest` has moved on; and the named reader stays where that micro-batch begins."""
    fill(gateway, "a", 5)
    checkpoint = Checkpoint()
    options = {"brokers": gateway.address, "subscription": "s"}
    assert Driver(checkpoint, startingOffsets='{"a": 2}', **options).begin()
    fill(gateway, "a", 4)
    again = Driver(checkpoint, startingOffsets="latest", **options)
    again.reader.initialOffset()
    assert gateway.readers["s"] == {"a": 2}
    assert again.do_begun() == [("a", 2), ("a", 3), ("a", 4)]
    assert again.begin() and again.do_begun() == [("a", seq) for seq in range(5, 9)]


def test_an_end_that_was_asked_for_too_early_is_refused_before_anything_is_done(gateway: Gateway) -> None:
    options = {"brokers": gateway.address, "startingOffsets": "latest", "subscription": "s"}
    fill(gateway, "a", 5)
    checkpoint = Checkpoint()
    assert Driver(checkpoint, **options).begin()
    Driver(checkpoint, **options).do_begun()
    fill(gateway, "a", 3)
    said = [*checkpoint.offsets]
    with pytest.raises(OptionError, match="triggerAvailableNowWrapper"):
        Driver(checkpoint, available_now=True, **options)
    assert (checkpoint.offsets, gateway.readers["s"]) == (said, {"a": 5})
    driver = Driver(checkpoint, **options)
    assert driver.begin() and driver.do_begun() == [("a", 5), ("a", 6), ("a", 7)]
