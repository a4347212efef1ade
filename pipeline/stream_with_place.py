"""Streams with PySpark 4.2 and later, which says where a query is when it asks how far the next micro-batch goes."""

from __future__ import annotations

from mq_shards.pipeline.offsets import Json, Offset
from mq_shards.pipeline.stream import StreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)


class StreamReaderWithPlace(StreamReader, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {key: stream.topic.latest for key, stream in self._look().items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        # When Spark asks for what comes next it is done with all before `start`. It says so itself only once it has
        # found something, which after the end of Trigger.AvailableNow may be a day later.
        return self._end(start, limited=not isinstance(limit, ReadAllAvailable), done=True)

    def reportLatestOffset(self) -> Json:  # noqa: N802
        latest = {key: stream.topic.latest for key, stream in self._streams.items()}
        return Offset(latest, jumps={key: stream.topic.jumps for key, stream in self._streams.items()}).encode()
