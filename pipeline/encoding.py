"""What both encoders (encode_core.py, encode_python.py) share: their input, and why they refuse it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SIZE_BYTES: Final = 4  # the size field before each body
# Reasons why a row's headers cannot be written.
UNSOUND, TOO_MANY, NAMELESS = 1, 2, 3

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Split:
    """A column of headers: row i has the entries begins[i] to ends[i] - 1. `key_hashes`: one a row; 0: no key."""

    begins: Offsets
    ends: Offsets
    name_offsets: Offsets
    names: Bytes
    value_offsets: Offsets
    values: Bytes
    key_hashes: npt.NDArray[np.uint32] | None


def is_large(kind: pa.DataType) -> bool:
    """Whether the offsets of a column of this type have 64 bits."""
    return bool(pa.types.is_large_binary(kind) or pa.types.is_large_string(kind))


def text(column: pa.Array) -> tuple[npt.NDArray[Any], Bytes]:
    """Returns a column's offsets, and the data that they point into."""
    dtype = np.int64 if is_large(column.type) else np.int32
    _, offsets, data = column.buffers()
    found: npt.NDArray[Any] = np.zeros(1, dtype)
    if len(column):
        found = np.frombuffer(offsets, dtype)[column.offset : column.offset + len(column) + 1]
    return found, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
