"""What both decoders (decode_core.py, decode_python.py) share: how batches are cut, the columns that are the same for
all rows of a topic, and how memory becomes Arrow arrays.

pyarrow loads pandas, where that is installed, for pa.array(), pa.scalar() and Array.to_numpy(): 0.3 to 0.5 s of
processor in each Python process of an executor. Reading needs none of these.
"""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BATCH_MESSAGES: Final = 32768
BATCH_BODY_BYTES: Final = 4 << 20
SMALL_MESSAGE_BYTES: Final = 4096
MAX_BODY_BYTES: Final = (1 << 31) - 1  # most that an Arrow binary column with 32-bit offsets, and so Spark, can hold
# Most bytes that a compressed batch may say it opens to. A larger one becomes one row, still compressed.
MAX_OPENED_BYTES: Final = 128 << 20
ID_PREFIX_BYTES: Final = 17  # half of the broker's id, and a dash: makes ids unique over all brokers
UTC_US: Final = pa.timestamp("us", tz="UTC")

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]


class DecodeError(Exception):
    """The bytes received are not what a broker's log holds, or not what was asked for."""


class Progress(Enum):
    MORE = "more"  # all data is used up, but for a piece of a record
    FULL = "full"  # a batch is full


class Constant:
    """The columns that are the same for all messages of a topic, and which rows of a batch are of which topic."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._ranges: list[tuple[int, str, int]] = []  # first row, topic and shard of each range
        # Cached columns, as long as the largest batch so far. The first two are of one topic only.
        self._shards: tuple[int, pa.Array] | None = None
        self._topics: tuple[str, pa.Array] | None = None
        self._brokers: pa.Array = pa.nulls(0, pa.string())

    def turn_to(self, topic: str, shard: int, row: int) -> None:
        if self._ranges and self._ranges[-1][0] == row:
            self._ranges.pop()
        self._ranges.append((row, topic, shard))

    def begin(self) -> None:
        """Begins a new batch, with the current topic."""
        _, topic, shard = self._ranges[-1]
        self._ranges = [(0, topic, shard)]

    def brokers(self, n: int) -> pa.Array:
        if len(self._brokers) < n:
            self._brokers = repeated(self._broker, n)
        return self._brokers[:n]

    def topics(self, n: int) -> pa.Array:
        if len(self._ranges) > 1:
            names = [topic.encode() for _, topic, _ in self._ranges]
            offsets = np.cumsum([0, *map(len, names)], dtype=np.int32)
            places = np.repeat(np.arange(len(names), dtype=np.int32), self._counts(n))
            of_ranges = texts(pa.string(), offsets, np.frombuffer(b"".join(names), np.uint8), len(names))
            return of_ranges.take(fixed(pa.int32(), places, n))
        topic = self._ranges[0][1]
        if self._topics is None or self._topics[0] != topic or len(self._topics[1]) < n:
            self._topics = topic, repeated(topic, n)
        return self._topics[1][:n]

    def shards(self, n: int) -> pa.Array:
        if len(self._ranges) > 1:
            shards = np.array([shard for _, _, shard in self._ranges], np.int32)
            return fixed(pa.int32(), np.repeat(shards, self._counts(n)), n)
        shard = self._ranges[0][2]
        if self._shards is None or self._shards[0] != shard or len(self._shards[1]) < n:
            self._shards = shard, fixed(pa.int32(), np.full(n, shard, np.int32), n)
        return self._shards[1][:n]

    def _counts(self, n: int) -> npt.NDArray[np.int64]:
        begins = [*(row for row, _, _ in self._ranges), n]
        return np.array([end - begin for begin, end in pairwise(begins)], np.int64)


def id_prefix(broker: str) -> bytes:
    """Returns the beginning of all ids of a broker's messages: half of the broker's own id, and a dash."""
    return f"{broker[: ID_PREFIX_BYTES - 1]:0>{ID_PREFIX_BYTES - 1}}-".encode("ascii")


def repeated(text: str, n: int) -> pa.Array:
    encoded = text.encode()
    offsets = np.arange(n + 1, dtype=np.int32) * np.int32(len(encoded))
    return texts(pa.string(), offsets, np.frombuffer(encoded * n, np.uint8), n)


def record_batch(columns: list[pa.Array], schema: pa.Schema, n: int) -> pa.RecordBatch:
    """Without columns it has `n` rows too, which `count()` counts."""
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), n, [None]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def fixed(kind: pa.DataType, values: npt.NDArray[Any], n: int) -> pa.Array:
    return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(values[:n])])


def texts(kind: pa.DataType, offsets: Offsets, data: Bytes, n: int) -> pa.Array:
    return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(offsets[: n + 1]), pa.py_buffer(data[: offsets[n]])])
