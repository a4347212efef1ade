"""The same as encode_core.py, but without C; it writes the same bytes."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa
from mq_shards.pipeline.encoding import NAMELESS, SIZE_BYTES, TOO_MANY, UNSOUND, Bytes, Rows, Split, text

_HEADERS: Final = struct.Struct("<IHHII")  # struct headers, which a test compares it with
_SIZES: Final = struct.Struct("<II")
_NATS, _SPARK = 1, 3
_NATS_VERSION: Final = b"NATS/1.0\r\n"
_NATS_END: Final = b"\r\n"
_ROW_BYTES: Final = _HEADERS.size + len(_NATS_VERSION) + len(_NATS_END)
_MOST: Final = 64
_MOST_BYTES: Final = 65536
_EVERY_MESSAGES: Final = (b"pri", b"ttr_ms", b"delay_ms")


class Column:
    def __init__(self, bodies: pa.Array) -> None:
        self.rows = len(bodies)
        self._offsets, data = text(bodies)
        self._data = data.data

    def body_bytes(self, row: int) -> int:
        return int(self._offsets[row + 1]) - int(self._offsets[row])

    def body(self, row: int) -> memoryview | None:
        """Returns None if an offset leads out of the column."""
        start, end = int(self._offsets[row]), int(self._offsets[row + 1])
        return self._data[start:end] if 0 <= start <= end <= len(self._data) else None

    def put(self, rows: Rows | None, first: int, count: int, out: Bytes, room: int) -> tuple[int, int]:
        pieces: list[bytes | memoryview] = []
        numbers = range(first, first + count) if rows is None else rows[first : first + count].tolist()
        done = used = 0
        for row in numbers:
            body = self.body(row)
            if body is None:
                return -1, 0
            if used + SIZE_BYTES + len(body) > room:
                break
            pieces += (len(body).to_bytes(SIZE_BYTES, "big"), body)
            used += SIZE_BYTES + len(body)
            done += 1
        out[:used] = np.frombuffer(b"".join(pieces), np.uint8)
        return done, used


def join(bodies: pa.Array, headers: Split) -> tuple[pa.Array | None, int, int]:
    column, contents = Column(bodies), []
    for row in range(len(bodies)):
        pairs = _pairs(headers, row)
        body = column.body(row)
        if isinstance(pairs, int) or body is None:
            return None, row, pairs if isinstance(pairs, int) else UNSOUND
        most = _ROW_BYTES + sum(_SIZES.size + len(name) + len(value) for name, value in pairs)
        if most > _MOST_BYTES:
            return None, row, TOO_MANY
        for_nats = bool(pairs) and all(_is_nats(name, value) for name, value in pairs)
        written = _nats(pairs) if for_nats else _spark(pairs)
        key_hash = 0 if headers.key_hashes is None else int(headers.key_hashes[row])
        head = _HEADERS.pack(len(written), _NATS if for_nats else _SPARK, 0, key_hash, 0)
        contents.append(b"".join((head, written, body)))
    return pa.array(contents, pa.large_binary()), 0, 0


def _pairs(headers: Split, row: int) -> list[tuple[bytes, bytes]] | int:
    """Returns the headers of a row, or why they cannot be written."""
    begin, end = int(headers.begins[row]), int(headers.ends[row])
    if not 0 <= begin <= end < len(headers.name_offsets):
        return UNSOUND
    found: list[tuple[bytes, bytes]] = []
    for entry in range(begin, end):
        name = _at(headers.name_offsets, entry, headers.names)
        value = _at(headers.value_offsets, entry, headers.values)
        if name is None or value is None:
            return UNSOUND
        if name in _EVERY_MESSAGES:
            continue
        if not name:
            return NAMELESS
        if len(found) == _MOST:
            return TOO_MANY
        found.append((name, value))
    return found


def _at(offsets: Rows | Bytes | object, entry: int, data: Bytes) -> bytes | None:
    assert isinstance(offsets, np.ndarray)
    start, end = int(offsets[entry]), int(offsets[entry + 1])
    return data[start:end].tobytes() if 0 <= start <= end <= len(data) else None


def _is_nats(name: bytes, value: bytes) -> bool:
    if any(letter <= 32 or letter > 126 or letter == 58 for letter in name) or value.strip(b" \t") != value:
        return False
    return not any(letter in value for letter in (b"\r", b"\n", b"\0"))


def _nats(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join((_NATS_VERSION, *(b"%b: %b\r\n" % pair for pair in pairs), _NATS_END))


def _spark(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(_SIZES.pack(len(name), len(value)) + name + value for name, value in pairs)
