"""Reads topics in one go: plans the ranges at the driver, reads them in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from mq_shards.pipeline.arriving import Arrives
from mq_shards.pipeline.columns import to_arrow
from mq_shards.pipeline.filters import UNBOUNDED, Pushed
from mq_shards.pipeline.options import AtSeq, OptionError, ReadOptions
from mq_shards.pipeline.reading import DataLossError, Range
from mq_shards.pipeline.task import Task, read, tasks
from mq_shards.pipeline.topics import Brokers, Key, Stream, or_hidden, places
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

US_NS = 1000

log = logging.getLogger(__name__)


class PlainBatchReader(Arrives, DataSourceReader):
    """Holds no connection, because Spark pickles it and sends it to the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """Raises OptionError, DataLossError, BrokerError."""
        options = self._options
        brokers = Brokers(options)
        try:
            streams = brokers.streams()
            _complain_of_missing(options, streams)
            streams = {key: s for key, s in streams.items() if self._pushed.has(s.topic.topic)}
            ranges = [r for s in streams.values() if (r := self._range(s, brokers)) is not None]
        finally:
            brokers.close()
        sizes = {key: s.topic.message_bytes for key, s in streams.items()}
        found = tasks(ranges, sizes, options.min_partitions, options.max_records_per_partition)
        # Spark would make a partition of its own from an empty list.
        return [*found] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Task):
            return iter(())
        return read(partition, to_arrow(self._schema), self._options)

    def _range(self, stream: Stream, brokers: Brokers) -> Range | None:
        options, topic, one = self._options, stream.topic, {stream.key: stream}
        start = places("starting", options.starting, one, brokers)[stream.key]
        end = places("ending", options.ending, one, brokers)[stream.key]
        if start < topic.earliest or max(start, end) > topic.latest:
            text = f"{stream} has messages {topic.earliest} to {topic.latest - 1}"
            text = f"{text}, not all of {start} to {end - 1}"
            if options.fail_on_data_loss:
                raise DataLossError(f"{text}; failOnDataLoss is true")
            log.warning("%s", text)
        start, end = max(start, topic.earliest), min(end, topic.latest)
        # Unfinished messages may outlive those around them: gaps below `complete` are no loss, unless seqs were given.
        explicit = isinstance(options.starting, AtSeq) and options.starting.by_topic is not None
        gaps_from = start if explicit else topic.complete
        start, end = max(start, self._pushed.seqs.start), min(end, self._pushed.seqs.end)
        start, end = self._within_times(stream, brokers, start, end)
        return Range.of(stream, start, end, gaps_from) if start < end else None

    def _within_times(self, stream: Stream, brokers: Brokers, start: int, end: int) -> tuple[int, int]:
        times, client = self._pushed.times_us, brokers.client(stream.broker)
        if times.start > -UNBOUNDED:
            start = max(start, client.place_of(stream.topic.topic, times.start * US_NS).seq)
        if times.end < UNBOUNDED:
            until = client.place_of(stream.topic.topic, times.end * US_NS).until
            end = end if until is None else min(end, until)
        return start, end


class BatchReader(PlainBatchReader):
    """Also takes the filters of a query, where Spark is told to push them down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        return list(self._pushed.push(filters))


def _complain_of_missing(options: ReadOptions, streams: dict[Key, Stream]) -> None:
    missing = set(options.selection.names) - {key.topic for key in streams}
    if missing:
        raise OptionError(f"topic: the brokers have no {', '.join(sorted(missing))}{or_hidden(options)}")
