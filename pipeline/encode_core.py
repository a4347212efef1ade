"""The part of writing that the C core does (csrc/pipeline/encode.h, contents.h): bodies, and headers before them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from mq_shards.pipeline.core import ffi, lib
from mq_shards.pipeline.encoding import NAMELESS, TOO_MANY, UNSOUND, Bytes, Rows, Split, is_large, text

_REFUSED: Final = {
    lib.CONTENTS_UNSOUND: UNSOUND,
    lib.CONTENTS_TOO_MANY: TOO_MANY,
    lib.CONTENTS_NAMELESS: NAMELESS,
}


class Column:
    """The bodies of a batch."""

    def __init__(self, bodies: pa.Array) -> None:
        self.rows = len(bodies)
        self._offsets, data = text(bodies)
        self._kept: list[object] = []
        self.c = ffi.new("struct encode_column *")
        self.c.rows = self.rows
        setattr(self.c, "large_offsets" if is_large(bodies.type) else "offsets", _lent(self._offsets, self._kept))
        self.c.data, self.c.bytes = _lent(data, self._kept), len(data)

    def body_bytes(self, row: int) -> int:
        return int(self._offsets[row + 1]) - int(self._offsets[row])

    def put(self, rows: Rows | None, first: int, count: int, out: Bytes, room: int) -> tuple[int, int]:
        """Copies rows first to first + count - 1 of `rows` (None: of all), each after its size, as many as there is
        room for. Returns how many, and their bytes; -1: an offset leads out of the column."""
        used = ffi.new("size_t *")
        at = ffi.NULL if rows is None else ffi.from_buffer("int64_t[]", rows) + first
        done = lib.encode_many(self.c, at, first, count, ffi.from_buffer("uint8_t[]", out), room, used)
        return int(done), int(used[0])


def join(bodies: pa.Array, headers: Split) -> tuple[pa.Array | None, int, int]:
    """Returns bodies after their headers, as large_binary; or None, the row that is wrong, and what is wrong."""
    column = Column(bodies)
    kept: list[object] = []
    c = ffi.new("struct encode_attributes *")
    for name in ("begins", "ends", "name_offsets", "names", "value_offsets", "values"):
        setattr(c, name, _lent(getattr(headers, name), kept))
    c.entries, c.name_bytes, c.value_bytes = len(headers.name_offsets) - 1, len(headers.names), len(headers.values)
    if headers.key_hashes is not None:
        c.key_hashes = _lent(headers.key_hashes, kept)
    held = len(bodies) * lib.CONTENTS_ROW_BYTES + c.entries * lib.CONTENTS_ENTRY_BYTES
    out = np.empty(held + c.name_bytes + c.value_bytes + column.c.bytes, np.uint8)
    offsets = np.empty(len(bodies) + 1, np.int64)
    row = ffi.new("size_t *")
    size = lib.encode_contents(column.c, c, _lent(offsets, kept), _lent(out, kept), len(out), row)
    if size < 0:
        return None, int(row[0]), _REFUSED[size]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out[:size])]
    return pa.Array.from_buffers(pa.large_binary(), len(bodies), buffers), 0, 0


def _lent(array: npt.NDArray[Any], kept: list[object]) -> Any:  # noqa: ANN401
    """Lends an array's memory to the C core, for as long as `kept` is there."""
    ctypes = {"int32": "int32_t[]", "int64": "int64_t[]", "uint32": "uint32_t[]", "uint8": "uint8_t[]"}
    kept.append(memory := ffi.from_buffer(ctypes[array.dtype.name], array))
    return memory
