"""Reads the metadata of a stored Pulsar entry: the fields that the REST API and compaction need.

An entry's headers are the bytes that the client sent before the payload: optionally a magic and a checksum; the size of
the metadata; the metadata, in protobuf. The numbers of fields are Pulsar's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from mq_shards.csrc.decompression import decompress

PULSAR_TAG: Final = 2  # HEADERS_PULSAR, csrc/ringbuf/message.h
_MAGIC: Final = b"\x0e\x01"
_MAX_FIELDS: Final = 10_000
_REPEATED: Final = (4, 7, 13)


@dataclass(slots=True)
class Metadata:
    producer_name: str = ""
    sequence_id: int = 0
    publish_time_ms: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    partition_key: str | None = None
    compression: int = 0
    uncompressed_bytes: int | None = None
    batch_messages: int | None = None  # None: not a batch
    event_time_ms: int = 0
    is_encrypted: bool = False
    deliver_at_ms: int = 0
    chunk_id: int | None = None
    chunks: str | None = None  # id of the message of which it is a chunk; None: not a chunk


Value = int | bytes


def read(headers: bytes) -> Metadata | None:
    """Decodes an entry's headers. None: they hold no valid metadata."""
    data = _metadata(headers)
    try:
        return None if data is None else _read(data)
    except (ValueError, IndexError):
        return None


def fields_of(headers: bytes) -> tuple[dict[int, Value], int]:
    """All fields of metadata that read() has decoded, by their numbers: of repeated ones the first; and the bytes that
    they take."""
    data = _metadata(headers) or b""
    found: dict[int, Value] = {}
    for number, value in _fields(data):
        if number in _REPEATED:
            found.setdefault(number, value)
        else:
            found[number] = value
    return found, len(data)


def _metadata(headers: bytes) -> bytes | None:
    rest = headers[6:] if headers[:2] == _MAGIC else headers
    size = int.from_bytes(rest[:4], "big")
    return None if len(rest) < 4 or size > len(rest) - 4 else rest[4 : 4 + size]


def _read(data: bytes) -> Metadata:
    found = Metadata()
    for number, value in _fields(data):
        if isinstance(value, bytes):
            if number == 1:
                found.producer_name = value.decode(errors="replace")
            elif number == 4:
                pair = {n: v for n, v in _fields(value) if isinstance(v, bytes)}
                found.properties[pair.get(1, b"").decode(errors="replace")] = pair.get(2, b"").decode(errors="replace")
            elif number == 6:
                found.partition_key = value.decode(errors="replace")
            elif number == 26:
                found.chunks = value.decode(errors="replace")
            elif number == 13:
                found.is_encrypted = True
        elif (name := _NUMBERS.get(number)) is not None:
            setattr(found, name, value)
    return found


def read_single(data: bytes) -> tuple[str | None, int] | None:
    """The key, and the size of the payload, of a message in a batch. None: its metadata cannot be read."""
    key: str | None = None
    size: int | None = None
    try:
        for number, value in _fields(data):
            if number == 2 and isinstance(value, bytes):
                key = value.decode(errors="replace")
            elif number == 3 and isinstance(value, int):
                size = value
    except (ValueError, IndexError):
        return None
    return None if size is None else (key, size)


_NUMBERS: Final = {
    2: "sequence_id", 3: "publish_time_ms", 8: "compression", 9: "uncompressed_bytes", 11: "batch_messages",
    12: "event_time_ms", 19: "deliver_at_ms", 29: "chunk_id",
}  # fmt: skip


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yields number and value of each varint and length-delimited field. ValueError, IndexError: not protobuf."""
    at = count = 0
    while at < len(data):
        count += 1
        if count > _MAX_FIELDS:
            raise ValueError("too many fields")
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif kind == 2:
            size, at = _varint(data, at)
            if size > len(data) - at:
                raise ValueError("a field is cut off")
            yield key >> 3, data[at : at + size]
            at += size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"fields of kind {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def uncompressed(metadata: Metadata, payload: bytes | memoryview, most: int) -> bytes | memoryview:
    """The payload, decompressed; unchanged if that is impossible or its size is given as more than `most`."""
    size = metadata.uncompressed_bytes or 0
    if metadata.is_encrypted or metadata.compression == 0 or size > most:
        return payload
    opened = decompress(metadata.compression, payload, size)
    return payload if opened is None else opened
