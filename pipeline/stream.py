"""Reads topics as a stream. An offset says, for each topic, the seq of the next message to read; Spark's checkpoint
keeps them. Where retention had taken messages in the midst of others before the query came to a topic, it also says
up to where that is no loss: [seq, complete], until seq has got there.

A topic that appears later enters the offsets at its first message, and is read from the next micro-batch on: so every
micro-batch is told by its two offsets alone, and reads the same when it is run again.

A broker forgets a topic whose messages have all gone, and counts on from a higher seq when there are new ones. If all
of it had been read its offset becomes [seq, GONE], and it comes back as a topic that appears later does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from mq_shards.pipeline.client import Address
from mq_shards.pipeline.options import AtSeq, ReadOptions
from mq_shards.pipeline.ranges import ends, split
from mq_shards.pipeline.reading import DataLossError, Range, RangeReader
from mq_shards.pipeline.topics import Brokers, Stream, places
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

Seqs = dict[str, int]
Offset = dict[str, int | list[int]]
GONE: Final = 1 << 62

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """At the driver it lives as long as the query. What reads in the tasks is pickled, and must hold no connection."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._brokers: Brokers | None = None
        self._target: Seqs | None = None  # of Trigger.AvailableNow
        self._streams: dict[str, Stream] = {}  # all that have been seen, as they were last
        self._committed: Offset | None = None

    def _connected(self) -> Brokers:
        if self._brokers is None:
            self._brokers = Brokers(self._options)
        return self._brokers

    def _look(self) -> dict[str, Stream]:
        found = self._connected().streams(self._options.selection)
        self._streams |= found
        return found

    # --- what Spark's driver asks, in this order --------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        found = self._look()
        offset = places("starting", self._options.starting, found, self._connected())
        for key, seq in offset.items():
            self._check(found[key], seq)
        explicit = isinstance(self._options.starting, AtSeq) and self._options.starting.by_topic is not None
        begin = _offset(offset, {} if explicit else {key: stream.topic.complete for key, stream in found.items()})
        self.commit(begin)
        return begin

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {key: stream.topic.latest for key, stream in self._look().items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        found = self._look()
        # Spark asks for what comes next when it is done with all before `start`. It says so itself only once it has
        # found something, which after the end of Trigger.AvailableNow may be a day later.
        self.commit(start)
        seqs, complete = _seqs(start), _complete(start)
        for key, seq in seqs.items():
            if complete.get(key) == GONE:
                continue
            if key in found:
                self._check(found[key], seq)
            elif (gone := self._streams.pop(key, None)) is not None:
                if seq < gone.topic.latest:
                    self._lost(f"topic {key} is gone with messages {seq} to {gone.topic.latest - 1}")
                complete[key] = GONE
        there = {key: seq for key, seq in seqs.items() if complete.get(key) != GONE}
        # Where the broker has lost its last messages this goes back: their seqs are given to others.
        latest = {key: self._latest(key, found, seq) for key, seq in there.items()}
        end = seqs | self._limited(there, latest, limit)
        for key, stream in found.items():
            if key not in there and (self._target is None or key in self._target):
                end[key], complete[key] = stream.topic.earliest, stream.topic.complete
        return _offset(end, complete)

    def reportLatestOffset(self) -> Seqs:  # noqa: N802
        return {key: stream.topic.latest for key, stream in self._streams.items()}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        brokers = self._connected()
        seqs, complete = _seqs(start), _complete(start)
        if any(key not in self._streams for key in end):
            self._look()  # a micro-batch that is run again after a restart
        ranges, sizes = [], {}
        for key, until in _seqs(end).items():
            broker, topic = brokers.of_key(key)
            seq = until if complete.get(key) == GONE else seqs.get(key, until)
            if seq >= until:
                continue
            stream = self._streams.get(key)
            if stream is None:
                self._lost(f"topic {topic} of {broker} is gone with messages {seq} to {until - 1}")
                continue
            gaps_from = min(until, max(seq, complete.get(key, seq)))
            ranges.append(Range(broker, topic, stream.topic.shard, seq, until, gaps_from))
            sizes[broker, topic] = stream.topic.message_bytes
        return [*split(ranges, sizes, self._options.min_partitions, self._options.max_records_per_partition)]

    def commit(self, end: Offset) -> None:
        """What lies before `end` need not be kept for this query any more."""
        if self._options.subscription is None or end == self._committed:
            return
        brokers = self._connected()
        by_broker: dict[Address, Seqs] = {}
        for key, seq in _seqs(end).items():
            broker, topic = brokers.of_key(key)
            by_broker.setdefault(broker, {})[topic] = seq
        for broker, offsets in by_broker.items():
            brokers.client(broker).commit(self._options.subscription, offsets)
        self._committed = end

    def stop(self) -> None:
        if self._brokers is not None:
            self._brokers.close()

    # --- in the tasks -----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        return RangeReader(
            partition, schema, fail_on_data_loss=self._options.fail_on_data_loss, patience_s=self._options.patience_s
        ).batches()

    # --- how far ----------------------------------------------------------------------------------------------------

    def _latest(self, key: str, found: dict[str, Stream], start: int) -> int:
        latest = found[key].topic.latest if key in found else start
        return latest if self._target is None else min(latest, self._target.get(key, start))

    def _limited(self, start: Seqs, latest: Seqs, limit: ReadLimit) -> Seqs:
        """Both limits hold if both are given; Spark knows of one."""
        if isinstance(limit, ReadAllAvailable):
            return latest
        if (messages := self._options.max_offsets_per_trigger) is not None:
            latest = ends(start, latest, dict.fromkeys(start, 1.0), messages)
        if (count := self._options.max_bytes_per_trigger) is not None:
            streams = {key: self._streams.get(key) for key in start}
            sizes = {key: s.topic.message_bytes if s else 1.0 for key, s in streams.items()}
            latest = ends(start, latest, sizes, count)
        return latest

    def _check(self, stream: Stream, seq: int) -> None:
        topic = stream.topic
        if seq > topic.latest:
            self._lost(f"topic {stream.key} has lost messages {topic.latest} to {seq - 1}")
        if seq < topic.earliest:
            self._lost(f"topic {stream.key}: messages {seq} to {topic.earliest - 1} are gone")

    def _lost(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{text}; failOnDataLoss is true")
        log.warning("%s", text)


def _seqs(offset: Offset) -> Seqs:
    return {key: value if isinstance(value, int) else value[0] for key, value in offset.items()}


def _complete(offset: Offset) -> Seqs:
    return {key: value[1] for key, value in offset.items() if not isinstance(value, int)}


def _offset(seqs: Seqs, complete: Seqs) -> Offset:
    return {key: [seq, complete[key]] if seq < complete.get(key, seq) else seq for key, seq in seqs.items()}
