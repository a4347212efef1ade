"""From runs of log records to the columns of an Arrow record batch, without a Python object per message.

The C core (csrc/pipeline/decode.h) checks each record and writes straight into the buffers that become Arrow's; here
they are made, handed over and wrapped.
"""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from mq_shards.csrc._core import ffi, lib
from mq_shards.csrc.decompression import decompress

BATCH_MESSAGES: Final = 32768
BATCH_BODY_BYTES: Final = 4 << 20
SMALL_MESSAGE_BYTES: Final = 4096
MAX_BODY_BYTES: Final = (1 << 31) - 1  # what an Arrow binary column of 32-bit offsets, and so Spark, can hold
# What a batch says that it takes when it is opened; of one that takes more there is a row, as it lies there.
MAX_OPENED_BYTES: Final = 128 << 20
UTC_US: Final = pa.timestamp("us", tz="UTC")

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]


class DecodeError(Exception):
    """What came is not what the broker's log says, or not what was asked for."""


class Progress(Enum):
    MORE = "more"  # what has come is done with, but for a piece of a record
    FULL = "full"  # a batch is


class _Buffers:
    """The memory of one batch of up to `n` messages. A column that is not wanted has none."""

    def __init__(self, wanted: frozenset[str], n: int, body_capacity: int, id_prefix: bytes) -> None:
        entries = n * lib.DECODE_MAX_ATTRIBUTES + lib.DECODE_HEADERS_ENTRIES
        name_bytes = n * lib.DECODE_ATTRIBUTE_NAME_BYTES + lib.DECODE_HEADERS_NAME_BYTES
        value_bytes = n * lib.DECODE_ATTRIBUTE_VALUE_BYTES + lib.DECODE_HEADERS_VALUE_BYTES
        c = self.c = ffi.new("struct decode_columns *")
        c.capacity = n
        c.id_prefix = id_prefix
        self._kept: list[object] = []
        self.seq = self._column("seq", "int64_t[]", n, np.int64, "seq" in wanted)
        self.time_us = self._column("time_us", "int64_t[]", n, np.int64, "timestamp" in wanted)
        self.batch_index = self._column("batch_index", "int32_t[]", n, np.int32, "batch_index" in wanted)
        self.ids = self._column("ids", "uint8_t[]", n * lib.DECODE_ID_MOST_BYTES, np.uint8, "id" in wanted)
        self.id_offsets = self._column("id_offsets", "int32_t[]", n + 1, np.int32, "id" in wanted)
        self.bodies = self._column("bodies", "uint8_t[]", body_capacity, np.uint8, "body" in wanted)
        self.body_offsets = self._column("body_offsets", "int32_t[]", n + 1, np.int32, "body" in wanted)
        c.body_capacity = body_capacity
        mapped = "attributes" in wanted
        self.attribute_offsets = self._column("attribute_offsets", "int32_t[]", n + 1, np.int32, mapped)
        self.name_offsets = self._column("name_offsets", "int32_t[]", entries + 1, np.int32, mapped)
        self.names = self._column("names", "uint8_t[]", name_bytes, np.uint8, mapped)
        self.value_offsets = self._column("value_offsets", "int32_t[]", entries + 1, np.int32, mapped)
        self.values = self._column("values", "uint8_t[]", value_bytes, np.uint8, mapped)

    def _column(self, name: str, ctype: str, size: int, dtype: type[np.generic], wanted: bool) -> npt.NDArray[Any]:
        array = np.empty(size if wanted else 0, dtype)
        if wanted:
            array[0] = 0
            memory = ffi.from_buffer(ctype, array)
            self._kept.append(memory)
            setattr(self.c, name, memory)
        return array


class Decoder:
    """Messages of topics of one broker, which its id names: of one range after the other, into the same batches."""

    def __init__(self, broker: str, schema: pa.Schema, messages: int) -> None:
        """`messages`: of all ranges together."""
        self._schema = schema
        self._wanted = frozenset(schema.names)
        self._most = min(messages, BATCH_MESSAGES)
        self._constant = _Constant(broker)
        self._opened: bytes | None = None
        self._id_prefix = id_prefix(broker)
        self._d = ffi.new("struct decoder *")
        self._used = ffi.new("size_t *")
        # A range of a few messages, of which there may be thousands, takes no megabytes.
        self._body_capacity = min(BATCH_BODY_BYTES, self._most * SMALL_MESSAGE_BYTES)
        self._buffers = self._new_buffers(self._body_capacity)

    def _new_buffers(self, body_capacity: int) -> _Buffers:
        return _Buffers(self._wanted, self._most, body_capacity, self._id_prefix)

    def turn_to(self, topic: str, shard: int, start: int, end: int, gaps_from: int) -> None:
        """From now on it is messages `start` to `end` - 1 of this topic. Gaps before `gaps_from` are not counted as
        missing messages."""
        self._d.next_seq, self._d.end_seq, self._d.gaps_from = start, end, gaps_from
        self._d.gap_from = self._d.gap_until = self._d.missing = 0
        self._d.within = self._d.next_part = self._d.was_opened = 0
        self._constant.turn_to(topic, shard, int(self._buffers.c.count))

    @property
    def next_seq(self) -> int:
        return int(self._d.next_seq)

    @property
    def missing(self) -> int:
        """So many messages were not there, in all gaps."""
        return int(self._d.missing)

    def take_gap(self) -> tuple[int, int]:
        """The first since this was asked last: [from, until)."""
        gap = int(self._d.gap_from), int(self._d.gap_until)
        self._d.gap_from = self._d.gap_until
        return gap

    @property
    def needs(self) -> int:
        """After Progress.MORE: so many bytes in one piece, what is left over included."""
        return int(self._d.needs)

    @property
    def between_runs(self) -> bool:
        return bool(self._d.run.records == 0)

    def skip_to(self, seq: int) -> None:
        self._d.next_seq = seq

    def begin(self) -> None:
        """A new reply: nothing is left of a run."""
        self._d.run.records = self._d.run.bytes = 0

    def decode(self, data: Bytes) -> tuple[Progress, int]:
        """Goes on with `data`; returns how many of its bytes are done with. After FULL, `take` a batch and go on with
        the rest. Raises DecodeError; what was decoded before it can still be taken."""
        used = 0
        while True:
            rest = data[used:]
            result = lib.decode_runs(self._d, ffi.from_buffer(rest), rest.size, self._used, self._buffers.c)
            used += int(self._used[0])
            if result != lib.DECODE_PACKED:
                break
            self._open(rest)
        if result == lib.DECODE_MORE:
            return Progress.MORE, used
        if result == lib.DECODE_FULL:
            # Of a range of a few records there may be many rows.
            self._most = max(self._most, min(int(self._d.rows), BATCH_MESSAGES))
            if self._buffers.c.count == 0:
                self._grow(self.needs)
            return Progress.FULL, used
        where = f"segment {self._d.run.segment}, behind seq {self.next_seq - 1}"
        if result == lib.DECODE_CORRUPT:
            raise DecodeError(f"{where}: the record is corrupt")
        raise DecodeError(f"{where}: there is a record that was not asked for")

    def _open(self, data: Bytes) -> None:
        """What is compressed, of the record that is next in `data`."""
        at, size = int(self._d.packed_at), int(self._d.opened_size)
        packed = data[at : at + int(self._d.packed_bytes)].tobytes()
        self._opened = decompress(int(self._d.compression), packed, size) if size <= MAX_OPENED_BYTES else None
        self._d.opened = ffi.NULL if self._opened is None else ffi.from_buffer("uint8_t[]", self._opened)
        self._d.was_opened = 1

    def _grow(self, body_bytes: int) -> None:
        if body_bytes > MAX_BODY_BYTES:
            raise DecodeError(f"seq {self.next_seq}: {body_bytes} bytes are more than a Spark column can hold")
        self._buffers = self._new_buffers(body_bytes)

    def take(self) -> pa.RecordBatch | None:
        """What has been decoded since the last time; None if nothing has."""
        taken, n = self._buffers, int(self._buffers.c.count)
        if n == 0:
            return None
        self._buffers = self._new_buffers(self._body_capacity)
        columns = [self._array(field, taken, n) for field in self._schema]
        self._constant.begin()
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _array(self, field: pa.Field, b: _Buffers, n: int) -> pa.Array:
        match field.name:
            case "topic":
                return self._constant.topics(n)
            case "shard":
                return self._constant.shards(n)
            case "seq":
                return _fixed(pa.int64(), b.seq, n)
            case "timestamp":
                return _fixed(UTC_US, b.time_us, n)
            case "body":
                return _texts(pa.binary(), b.body_offsets, b.bodies, n)
            case "id":
                return _texts(pa.string(), b.id_offsets, b.ids, n)
            case "batch_index":
                return _fixed(pa.int32(), b.batch_index, n)
            case "attributes":
                return _maps(field.type, b, n)
            case "broker":
                return self._constant.brokers(n)
            case other:
                raise AssertionError(f"there is no column {other}")


class _Constant:
    """What is the same for all messages of a topic, and which rows of a batch are of which."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._ranges: list[tuple[int, str, int]] = []  # the first row of each, its topic and shard
        # For the largest batch so far; the first two of one topic alone.
        self._shards: tuple[int, pa.Array] | None = None
        self._topics: tuple[str, pa.Array] | None = None
        self._brokers: pa.Array = pa.array([], pa.string())

    def turn_to(self, topic: str, shard: int, row: int) -> None:
        if self._ranges and self._ranges[-1][0] == row:
            self._ranges.pop()
        self._ranges.append((row, topic, shard))

    def begin(self) -> None:
        """A new batch, of the last topic so far."""
        _, topic, shard = self._ranges[-1]
        self._ranges = [(0, topic, shard)]

    def brokers(self, n: int) -> pa.Array:
        if len(self._brokers) < n:
            self._brokers = _repeated(self._broker, n)
        return self._brokers[:n]

    def topics(self, n: int) -> pa.Array:
        if len(self._ranges) > 1:
            names = pa.array([topic for _, topic, _ in self._ranges], pa.string())
            places = np.repeat(np.arange(len(names), dtype=np.int32), self._counts(n))
            return pa.DictionaryArray.from_arrays(pa.array(places), names).dictionary_decode()
        topic = self._ranges[0][1]
        if self._topics is None or self._topics[0] != topic or len(self._topics[1]) < n:
            self._topics = topic, _repeated(topic, n)
        return self._topics[1][:n]

    def shards(self, n: int) -> pa.Array:
        if len(self._ranges) > 1:
            shards = np.array([shard for _, _, shard in self._ranges], np.int32)
            return _fixed(pa.int32(), np.repeat(shards, self._counts(n)), n)
        shard = self._ranges[0][2]
        if self._shards is None or self._shards[0] != shard or len(self._shards[1]) < n:
            self._shards = shard, _fixed(pa.int32(), np.full(n, shard, np.int32), n)
        return self._shards[1][:n]

    def _counts(self, n: int) -> npt.NDArray[np.int64]:
        begins = [*(row for row, _, _ in self._ranges), n]
        return np.array([end - begin for begin, end in pairwise(begins)], np.int64)


def id_prefix(broker: str) -> bytes:
    """With which all ids of a broker's messages begin: half of its own."""
    return f"{broker[: lib.DECODE_ID_PREFIX_BYTES - 1]:0>{lib.DECODE_ID_PREFIX_BYTES - 1}}-".encode("ascii")


def _repeated(text: str, n: int) -> pa.Array:
    encoded = text.encode()
    offsets = np.arange(n + 1, dtype=np.int32) * np.int32(len(encoded))
    return _texts(pa.string(), offsets, np.frombuffer(encoded * n, np.uint8), n)


def _fixed(kind: pa.DataType, values: npt.NDArray[Any], n: int) -> pa.Array:
    return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(values[:n])])


def _texts(kind: pa.DataType, offsets: Offsets, data: Bytes, n: int) -> pa.Array:
    return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(offsets[: n + 1]), pa.py_buffer(data[: offsets[n]])])


def _maps(kind: pa.MapType, b: _Buffers, n: int) -> pa.Array:
    entries = int(b.attribute_offsets[n])
    names = _texts(kind.key_type, b.name_offsets, b.names, entries)
    values = _texts(kind.item_type, b.value_offsets, b.values, entries)
    pairs = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(b.attribute_offsets[: n + 1])], children=[pairs])
