"""`mq-pipeline explain`: which messages of which topics a query reads, in how many tasks, and what Spark pushed down.

Spark's own plan shows the filters that were pushed down, but a source in Python can add nothing to it. So Spark plans
the query once more on a second source, which takes the same filters, notes what it would read, and reads nothing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
from mq_shards.pipeline import PUSHDOWN
from mq_shards.pipeline.batch import BatchReader, PlainBatchReader
from mq_shards.pipeline.client import check_brokers
from mq_shards.pipeline.options import ReadOptions
from mq_shards.pipeline.session import open_session
from mq_shards.pipeline.source import MqShards
from mq_shards.pipeline.tables import text_table
from mq_shards.pipeline.task import Task
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

ROWS_SHOWN: Final = 40
_TO: Final = "plannedto"
_COLUMNS: Final = ("topic", "broker", "at", "from", "to", "messages", "task")


@dataclass(frozen=True)
class Planned:
    """Messages `start` to `end` - 1 of a topic, as a part of a task."""

    task: int
    topic: str
    broker: str
    address: str
    start: int
    end: int


class PlannedReader(BatchReader):
    def __init__(self, options: ReadOptions, schema: StructType, to: Path) -> None:
        super().__init__(options, schema)
        self._to = to

    def partitions(self) -> list[InputPartition]:
        """Notes what the query would read; runs at the driver, like all planning."""
        found = super().partitions()
        rows = [
            (number, of.topic, of.broker, str(of.address), of.start, of.end)
            for number, task in enumerate(found)
            if isinstance(task, Task)
            for of in task.ranges
        ]
        self._to.write_bytes(orjson.dumps(rows))
        return found


class Explained(MqShards):
    @classmethod
    def name(cls) -> str:
        return "mqshards_explained"

    def reader(self, schema: StructType) -> PlainBatchReader:
        given = {name: value for name, value in self.options.items() if name.lower() != _TO}
        return PlannedReader(ReadOptions.parse(given, streaming=False), schema, Path(self.options[_TO]))


def run(options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
    source = {**connection, **dict(options.option)}
    source |= {"topics": options.topics} if options.topics else {"topicPattern": options.topic_pattern}
    check_brokers(ReadOptions.parse(source, streaming=False).brokers)
    spark = open_session(master, "mq-pipeline explain", nice=options.nice)
    if not options.json:
        _query(spark, MqShards.name(), source, options.where).explain("formatted")
    planned = ranges(spark, source, options.where)
    spark.stop()
    print(orjson.dumps([vars(of) for of in planned]).decode() if options.json else _text(planned))
    return 0


def ranges(spark: SparkSession, source: Mapping[str, str], where: str | None = None) -> list[Planned]:
    """Returns what a batch with these options reads, in the order of its tasks. Raises what planning raises."""
    spark.dataSource.register(Explained)
    before = spark.conf.get(PUSHDOWN, "false")
    with tempfile.TemporaryDirectory() as directory:
        to = Path(directory) / "planned"
        spark.conf.set(PUSHDOWN, "true")
        try:
            _query(spark, Explained.name(), {**source, _TO: str(to)}, where).rdd.getNumPartitions()
        finally:
            spark.conf.set(PUSHDOWN, before or "false")
        # If a filter excludes all rows, Spark does not ask the source.
        return [Planned(*row) for row in orjson.loads(to.read_bytes())] if to.exists() else []


def _query(spark: SparkSession, name: str, source: Mapping[str, str], where: str | None) -> DataFrame:
    frame = spark.read.format(name).options(**source).load()
    return frame if where is None else frame.where(where)


def _text(planned: Sequence[Planned]) -> str:
    shown = [
        (of.topic, of.broker, of.address, of.start, of.end, of.end - of.start, of.task) for of in planned[:ROWS_SHOWN]
    ]
    messages, tasks = sum(of.end - of.start for of in planned), len({of.task for of in planned})
    topics = len({(of.broker, of.topic) for of in planned})
    left = len(planned) - len(shown)
    more = f"\nand {left} more" if left > 0 else ""
    return f"{text_table(_COLUMNS, shown)}{more}\n{topics} topics, {messages} messages at most, {tasks} tasks"
