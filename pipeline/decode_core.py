"""Decodes runs of log records to the columns of an Arrow record batch, without a Python object per message.

The C core (csrc/pipeline/decode.h) checks each record and writes straight into the buffers that become Arrow's; this
module allocates them, hands them over and wraps them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from mq_shards.csrc.decompression import decompress
from mq_shards.pipeline import decoding
from mq_shards.pipeline.core import ffi, lib
from mq_shards.pipeline.decoding import (
    BATCH_BODY_BYTES,
    MAX_BODY_BYTES,
    MAX_OPENED_BYTES,
    SMALL_MESSAGE_BYTES,
    UTC_US,
    Bytes,
    Constant,
    DecodeError,
    Progress,
    fixed,
    id_prefix,
    record_batch,
    texts,
)


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
        # From Arrow's pool, which reuses the memory of freed batches: the kernel would zero new pages for each batch.
        memory_of = pa.allocate_buffer((size if wanted else 0) * np.dtype(dtype).itemsize)
        array: npt.NDArray[Any] = np.frombuffer(memory_of, dtype)
        if wanted:
            array[0] = 0
            memory = ffi.from_buffer(ctype, array)
            self._kept.append(memory)
            setattr(self.c, name, memory)
        return array


class Decoder:
    """Decodes messages of one broker, named by its id: one range after the other, into the same batches."""

    def __init__(self, broker: str, schema: pa.Schema, messages: int) -> None:
        """`messages`: how many all ranges have together."""
        self._schema = schema
        self._wanted = frozenset(schema.names)
        self._most = min(messages, decoding.BATCH_MESSAGES)
        self._constant = Constant(broker)
        self._opened: bytes | None = None
        self._id_prefix = id_prefix(broker)
        self._d = ffi.new("struct decoder *")
        self._used = ffi.new("size_t *")
        # A small range, of which there may be thousands, must not take megabytes.
        self._body_capacity = min(BATCH_BODY_BYTES, self._most * SMALL_MESSAGE_BYTES)
        self._buffers = self._new_buffers(self._body_capacity)

    def _new_buffers(self, body_capacity: int) -> _Buffers:
        return _Buffers(self._wanted, self._most, body_capacity, self._id_prefix)

    def turn_to(self, topic: str, shard: int, start: int, end: int, gaps_from: int) -> None:
        """Turns to messages `start` to `end` - 1 of this topic. Gaps before `gaps_from` are not counted as missing
        messages."""
        self._d.next_seq, self._d.end_seq, self._d.gaps_from = start, end, gaps_from
        self._d.gap_from = self._d.gap_until = self._d.missing = 0
        self._d.within = self._d.next_part = self._d.was_opened = 0
        self._constant.turn_to(topic, shard, int(self._buffers.c.count))

    @property
    def next_seq(self) -> int:
        return int(self._d.next_seq)

    @property
    def missing(self) -> int:
        """How many messages of the range are missing, in all gaps."""
        return int(self._d.missing)

    def take_gap(self) -> tuple[int, int]:
        """Returns the first gap since the last call: [from, until), empty if there is none."""
        gap = int(self._d.gap_from), int(self._d.gap_until)
        self._d.gap_from = self._d.gap_until
        return gap

    @property
    def needs(self) -> int:
        """After Progress.MORE: how many bytes the next piece must have, with what is left over of this one."""
        return int(self._d.needs)

    @property
    def between_runs(self) -> bool:
        return bool(self._d.run.records == 0)

    def skip_to(self, seq: int) -> None:
        self._d.next_seq = seq

    def begin(self) -> None:
        """Begins a new reply: forgets what is left of a run."""
        self._d.run.records = self._d.run.bytes = 0

    def decode(self, data: Bytes) -> tuple[Progress, int]:
        """Decodes `data`; returns how many of its bytes are used up. After FULL, `take` a batch and go on with the
        rest. Raises DecodeError; what was decoded before it can still be taken."""
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
            # A few records, as batches, may hold many rows.
            self._most = max(self._most, min(int(self._d.rows), decoding.BATCH_MESSAGES))
            if self._buffers.c.count == 0:
                self._grow(self.needs)
            return Progress.FULL, used
        where = f"segment {self._d.run.segment}, behind seq {self.next_seq - 1}"
        if result == lib.DECODE_CORRUPT:
            raise DecodeError(f"{where}: the record is corrupt")
        raise DecodeError(f"{where}: there is a record that was not asked for")

    def _open(self, data: Bytes) -> None:
        """Decompresses the compressed part of the next record in `data`."""
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
        """Returns what has been decoded since the last call; None if nothing has."""
        taken, n = self._buffers, int(self._buffers.c.count)
        if n == 0:
            return None
        self._buffers = self._new_buffers(self._body_capacity)
        columns = [self._array(field, taken, n) for field in self._schema]
        self._constant.begin()
        return record_batch(columns, self._schema, n)

    def _array(self, field: pa.Field, b: _Buffers, n: int) -> pa.Array:
        match field.name:
            case "topic":
                return self._constant.topics(n)
            case "shard":
                return self._constant.shards(n)
            case "seq":
                return fixed(pa.int64(), b.seq, n)
            case "timestamp":
                return fixed(UTC_US, b.time_us, n)
            case "body":
                return texts(pa.binary(), b.body_offsets, b.bodies, n)
            case "id":
                return texts(pa.string(), b.id_offsets, b.ids, n)
            case "batch_index":
                return fixed(pa.int32(), b.batch_index, n)
            case "attributes":
                return _maps(field.type, b, n)
            case "broker":
                return self._constant.brokers(n)
            case other:
                raise AssertionError(f"there is no column {other}")


def _maps(kind: pa.MapType, b: _Buffers, n: int) -> pa.Array:
    entries = int(b.attribute_offsets[n])
    names = texts(kind.key_type, b.name_offsets, b.names, entries)
    values = texts(kind.item_type, b.value_offsets, b.values, entries)
    pairs = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(b.attribute_offsets[: n + 1])], children=[pairs])
