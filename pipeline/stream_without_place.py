"""Streams with PySpark 4.0 and 4.1, which asks how far the next micro-batch goes and does not say where the query is.

The reader knows that nevertheless. Before a query goes on from a checkpoint, Spark asks for the tasks between the end
of the last micro-batch that was begun and that end itself (MicroBatchExecution.initializeExecution, which calls
PythonMicroBatchStream.setLatestSeenOffset). From then on the query is at the end that was returned last: Spark begins
a micro-batch with each end that differs from the one before, and where it cannot, the query ends, and its reader.

One setting leaves no way to know: with triggerAvailableNowWrapper these versions ask for the end once, before they read
the checkpoint, and keep to it. Such an end would be computed from `startingOffsets`. It is refused when the
checkpoint's place arrives, which is before Spark writes anything down.
"""

from __future__ import annotations

from typing import Final

from mq_shards.pipeline.offsets import Json, Offset
from mq_shards.pipeline.options import OptionError, ReadOptions
from mq_shards.pipeline.stream import StreamReader
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

WRAPPER: Final = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class StreamReaderWithoutPlace(StreamReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._begin: Offset | None = None  # of a query that began with this reader: where
        self._place: Json | None = None  # where the last micro-batch ends that was begun

    def initialOffset(self) -> Json:  # noqa: N802
        if self._place is not None and self._begin is None:
            # The first micro-batch was begun by another process and is not done: it begins where it began there.
            place = self._decode(self._place)
            return self._begin_at(place.begin or place)
        return self._begin_at(self._begun())

    def _begin_at(self, begin: Offset) -> Json:
        self._commit(begin, begin=True)
        self._first.append(begin.encode())
        return self._first[-1]

    def latestOffset(self) -> Json:  # type: ignore[override]  # noqa: N802
        # As long as the place is not known, the query may be one that goes on from a checkpoint: nothing is committed.
        known = self._place is not None
        start = self._place if self._place is not None else self._begun().encode()
        self._place = self._end(start, limited=True, done=known)
        return self._place

    def _begun(self) -> Offset:
        if self._begin is None:
            self._begin = self._initial()
            self._first.append(self._begin.encode())
        return self._begin

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        if start != end:
            return super().partitions(start, end)
        if self._place is None:
            self._place = end
        elif end != self._place:
            raise OptionError(
                f"{WRAPPER} is on: with this version of PySpark it has a query that goes on from a checkpoint read up "
                "to an end that was asked for before anybody knew where the query is. Nothing was read; switch it off"
            )
        return []
