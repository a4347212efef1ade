"""The same as decode_core.py, but without C: for executors on machines that no wheel was built for.

It finds the records, checks some hundred at once (checksum.py), and takes them apart one by one: 100,000 messages a
second, where C does forty times as many.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from mq_shards.csrc.decompression import decompress
from mq_shards.pipeline import decoding, headers_python
from mq_shards.pipeline.checksum import crcs
from mq_shards.pipeline.decoding import (
    BATCH_BODY_BYTES,
    MAX_BODY_BYTES,
    MAX_OPENED_BYTES,
    UTC_US,
    Bytes,
    Constant,
    DecodeError,
    Progress,
    id_prefix,
    record_batch,
)
from mq_shards.pipeline.headers_python import Entries

# Without the core nobody can be asked where fields are: a test compares these with struct run, record, headers and
# publish_attributes.
_RUN: Final = struct.Struct("<IIQ")
_RECORD: Final = struct.Struct("<IIBBHIQQQ")
_HEADERS: Final = struct.Struct("<IHHII")
_BRIEF: Final = struct.Struct("<III")
_LONG: Final = struct.Struct("<IIQQ")
_PUBLISH, _MOVED, _STAGED = 3, 6, 18
_HAS_HEADERS: Final = 8
_HEADERS_MOST: Final = 65536
_HEADERS_VALUE_BYTES: Final = 4 << 20  # of headers, of all messages of a batch
_CHECKED: Final = 256  # most records that are checked at once
_CHECKED_BYTES: Final = 1 << 20
_MS_NS: Final = 1_000_000


class _Record(NamedTuple):
    at: int
    bytes: int
    crc: int
    kind: int
    attribute_bytes: int
    flags: int
    seq: int
    time_ns: int
    identity: int

    @property
    def stride(self) -> int:
        return self.bytes + 7 & ~7


class _Row(NamedTuple):
    body: bytes
    batch_index: int = -1
    tag: int = 0
    entries: Entries | None = None
    opaque: bytes | None = None


class _Rows:
    """The columns of one batch."""

    def __init__(self) -> None:
        self.seq: list[int] = []
        self.time_us: list[int] = []
        self.batch_index: list[int] = []
        self.ids: list[str] = []
        self.bodies: list[bytes] = []
        self.body_bytes = 0
        self.header_bytes = 0
        self.attribute_ends: list[int] = [0]
        self.names: list[str] = []
        self.values: list[str] = []


class Decoder:
    """The same as the Decoder of decode_core.py."""

    def __init__(self, broker: str, schema: pa.Schema, messages: int) -> None:
        self._schema = schema
        self._wanted = frozenset(schema.names)
        self._most = max(1, min(messages, decoding.BATCH_MESSAGES))
        self._constant = Constant(broker)
        self._id_prefix = id_prefix(broker).decode()
        self._rows = _Rows()
        self._segment = self._run_records = self._run_bytes = 0
        self._needs = _RUN.size
        self._attributes: tuple[bytes, list[tuple[str, str]]] = (b"", [])

    def turn_to(self, topic: str, shard: int, start: int, end: int, gaps_from: int) -> None:
        self._next_seq, self._end_seq, self._gaps_from = start, end, gaps_from
        self._gap = (0, 0)
        self._missing = 0
        self._within: list[_Row] | None = None  # rows of the next record that no batch has yet, the last first
        self._constant.turn_to(topic, shard, len(self._rows.seq))

    @property
    def next_seq(self) -> int:
        return self._next_seq

    @property
    def missing(self) -> int:
        return self._missing

    def take_gap(self) -> tuple[int, int]:
        gap, self._gap = self._gap, (0, 0)
        return gap

    @property
    def needs(self) -> int:
        return self._needs

    @property
    def between_runs(self) -> bool:
        return self._run_records == 0

    def skip_to(self, seq: int) -> None:
        self._next_seq = seq

    def begin(self) -> None:
        self._run_records = self._run_bytes = 0

    def decode(self, data: Bytes) -> tuple[Progress, int]:
        view, at = data.data, 0
        while True:
            if self._run_records == 0:
                self._needs = _RUN.size
                if self._run_bytes > 0:
                    raise self._error("there is a record that was not asked for")
                if len(view) - at < _RUN.size:
                    return Progress.MORE, at
                self._segment, self._run_records, self._run_bytes = _RUN.unpack_from(view, at)
                at += _RUN.size
                continue
            records, corrupt = self._whole(view, at)
            for record in records:
                if not self._is_wanted(record):
                    raise self._error("there is a record that was not asked for")
                if not self._put(record, view):
                    return Progress.FULL, at
                at += record.stride
            if corrupt:
                raise self._error("the record is corrupt")
            if not records:
                return Progress.MORE, at

    def _error(self, what: str) -> DecodeError:
        return DecodeError(f"segment {self._segment}, behind seq {self._next_seq - 1}: {what}")

    def _whole(self, view: memoryview, at: int) -> tuple[list[_Record], bool]:
        """Returns the next complete records, some hundred at most, and whether what follows them is corrupt."""
        found: list[_Record] = []
        pieces: list[bytearray] = []
        left, size, corrupt = self._run_bytes, 0, False
        while len(found) < min(self._run_records, _CHECKED) and size < _CHECKED_BYTES:
            self._needs = _RECORD.size
            if len(view) - at < _RECORD.size:
                break
            total, crc, kind, attribute_bytes, flags, _, seq, time_ns, identity = _RECORD.unpack_from(view, at)
            record = _Record(at, total, crc, kind, attribute_bytes, flags, seq, time_ns, identity)
            if total < _RECORD.size + attribute_bytes or record.stride > left:
                corrupt = True
                break
            self._needs = record.stride
            if len(view) - at < record.stride:
                break
            piece = bytearray(view[at : at + total])
            piece[4:8] = self._segment.to_bytes(4, "little")  # the CRC was made with the segment in its own place
            found.append(record)
            pieces.append(piece)
            at, left, size = at + record.stride, left - record.stride, size + total
        for place, crc in enumerate(crcs(pieces) if pieces else ()):
            if crc != found[place].crc:
                return found[:place], True
        return found, corrupt

    def _is_wanted(self, record: _Record) -> bool:
        last_ends_run = self._run_records != 1 or record.stride == self._run_bytes
        known = record.kind in (_PUBLISH, _MOVED, _STAGED)
        return known and last_ends_run and self._next_seq <= record.seq < self._end_seq

    def _put(self, record: _Record, view: memoryview) -> bool:
        """Adds a record's rows. False if the batch is full: the next one begins with the rows that did not fit."""
        if record.kind != _STAGED:
            if self._within is None:
                self._within = list(reversed(list(self._rows_of(record, view))))
            base = self._base_attributes(record, view) if "attributes" in self._wanted else []
            while self._within:
                if not self._add(record, self._within[-1], base):
                    return False
                self._within.pop()
        self._within = None
        self._note_gap(record.seq)
        self._next_seq = record.seq + 1
        self._run_records -= 1
        self._run_bytes -= record.stride
        return True

    def _note_gap(self, until: int) -> None:
        start = max(self._next_seq, self._gaps_from)
        if start < until:
            if self._gap[0] == self._gap[1]:
                self._gap = (start, until)
            self._missing += until - start

    # --- a record as rows -------------------------------------------------------------------------------------------

    def _rows_of(self, record: _Record, view: memoryview) -> Iterator[_Row]:
        content = bytes(view[record.at + _RECORD.size + record.attribute_bytes : record.at + record.bytes])
        if not record.flags & _HAS_HEADERS or len(content) < _HEADERS.size:
            return iter((_Row(content),))
        size, tag, _, _, _ = _HEADERS.unpack_from(content)
        before = _HEADERS.size + size
        if size > _HEADERS_MOST or before > len(content):
            return iter((_Row(content),))
        if tag == headers_python.PULSAR:
            return self._of_pulsar(content, before)
        headers, body = content[_HEADERS.size : before], content[before:]
        if "attributes" not in self._wanted:
            return iter((_Row(body),))
        read = {headers_python.NATS: headers_python.of_nats, headers_python.SPARK: headers_python.of_spark}.get(tag)
        entries = None if read is None else read(headers)
        if entries is None or not entries.whole:
            return iter((_Row(body, -1, tag, None, headers),))
        return iter((_Row(body, -1, tag, entries),))

    def _of_pulsar(self, content: bytes, before: int) -> Iterator[_Row]:
        tag, headers, body = headers_python.PULSAR, content[_HEADERS.size : before], content[before:]
        split = headers_python.split_entry(content[_HEADERS.size :])
        entry = None
        if split is not None and split[1] == len(headers):
            entry = headers_python.scan_metadata(split[0])
        if split is None or entry is None:
            yield _Row(body, -1, tag, None, headers)
            return
        payload: bytes | None = body if entry.opens else None
        if entry.opens and entry.compression:
            size = entry.uncompressed_bytes
            payload = decompress(entry.compression, body, size) if size <= MAX_OPENED_BYTES else None
        wanted = "attributes" in self._wanted
        if payload is not None and entry.messages > 0:
            singles = headers_python.singles(payload, entry.messages)
            if singles is not None:
                for part, (metadata, one) in enumerate(singles):
                    entries = headers_python.of_pulsar(metadata, single=True) if wanted else None
                    opaque = None if entries is None or entries.whole else metadata
                    yield _Row(one, part, tag, entries, opaque)
                return
        entries = headers_python.of_pulsar(split[0], single=False) if wanted else None
        if payload is not None and entry.messages == 0:
            yield _Row(payload, -1, tag, entries, None if entries is None or entries.whole else headers)
        else:
            yield _Row(body, -1, tag, entries, headers)

    def _base_attributes(self, record: _Record, view: memoryview) -> list[tuple[str, str]]:
        start = record.at + _RECORD.size
        raw = bytes(view[start : start + record.attribute_bytes])
        if raw != self._attributes[0] or not self._attributes[1]:
            self._attributes = raw, _attributes_of(raw)
        return self._attributes[1]

    def _add(self, record: _Record, row: _Row, base: list[tuple[str, str]]) -> bool:
        rows, wanted = self._rows, self._wanted
        body_bytes = len(row.body) if "body" in wanted else 0
        left = len(self._within or ())
        if rows.seq and (
            len(rows.seq) >= self._most
            or rows.body_bytes + body_bytes > BATCH_BODY_BYTES
            or rows.header_bytes > _HEADERS_VALUE_BYTES
        ):
            # A few records, as batches, may hold many rows.
            self._most = max(self._most, min(left, decoding.BATCH_MESSAGES))
            return False
        if body_bytes > MAX_BODY_BYTES:
            raise DecodeError(f"seq {record.seq}: {body_bytes} bytes are more than a Spark column can hold")
        rows.seq.append(record.seq)
        rows.time_us.append(record.time_ns // 1000)
        rows.batch_index.append(row.batch_index)
        if "id" in wanted:
            place = "" if row.batch_index < 0 else f".{row.batch_index}"
            rows.ids.append(f"{self._id_prefix}{record.identity:016x}{place}")
        if "body" in wanted:
            rows.bodies.append(row.body)
            rows.body_bytes += body_bytes
        if "attributes" in wanted:
            self._add_attributes(row, base)
        return True

    def _add_attributes(self, row: _Row, base: list[tuple[str, str]]) -> None:
        rows = self._rows
        for name, value in base:
            rows.names.append(name)
            rows.values.append(value)
        pairs = row.entries.pairs() if row.tag and row.entries is not None else []
        if row.opaque is not None:
            pairs.append((f"headers.{row.tag}", row.opaque.hex()))
        for name, value in pairs:
            rows.names.append(name)
            rows.values.append(value)
            rows.header_bytes += len(name) + len(value)
        rows.attribute_ends.append(len(rows.names))

    # --- a batch ----------------------------------------------------------------------------------------------------

    def take(self) -> pa.RecordBatch | None:
        rows, n = self._rows, len(self._rows.seq)
        if n == 0:
            return None
        self._rows = _Rows()
        columns = [self._array(field, rows, n) for field in self._schema]
        self._constant.begin()
        return record_batch(columns, self._schema, n)

    def _array(self, field: pa.Field, rows: _Rows, n: int) -> pa.Array:
        columns: dict[str, Any] = {
            "topic": lambda: self._constant.topics(n),
            "shard": lambda: self._constant.shards(n),
            "broker": lambda: self._constant.brokers(n),
            "seq": lambda: pa.array(np.array(rows.seq, np.uint64).view(np.int64)),
            "timestamp": lambda: pa.array(np.array(rows.time_us, np.int64)).cast(UTC_US),
            "batch_index": lambda: pa.array(rows.batch_index, pa.int32()),
            "id": lambda: pa.array(rows.ids, pa.string()),
            "body": lambda: pa.array(rows.bodies, pa.binary()),
            "attributes": lambda: _maps(field.type, rows, n),
        }
        return columns[field.name]()


def _attributes_of(raw: bytes) -> list[tuple[str, str]]:
    """Returns the attributes of a PUBLISH or MOVED record, in its long or its brief form."""
    if len(raw) >= _LONG.size:
        pri, _, delay_ns, ttr_ns = _LONG.unpack_from(raw)
    else:
        pri, ttr_ms, delay_ms = _BRIEF.unpack(raw[: _BRIEF.size].ljust(_BRIEF.size, b"\0"))
        ttr_ns, delay_ns = ttr_ms * _MS_NS, delay_ms * _MS_NS
    found = [("pri", str(pri)), ("ttr_ms", _ms(ttr_ns))]
    return [*found, ("delay_ms", _ms(delay_ns))] if delay_ns else found


def _ms(ns: int) -> str:
    """Returns milliseconds, with as many decimals as needed."""
    whole, rest = divmod(ns, _MS_NS)
    return f"{whole}.{rest:06}".rstrip("0") if rest else str(whole)


def _maps(kind: pa.MapType, rows: _Rows, n: int) -> pa.Array:
    names, values = pa.array(rows.names, kind.key_type), pa.array(rows.values, kind.item_type)
    pairs = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
    offsets = pa.py_buffer(np.array(rows.attribute_ends, np.int32))
    return pa.Array.from_buffers(kind, n, [None, offsets], children=[pairs])
