"""Bodies with headers before them, out of a column of attributes and one of keys (csrc/pipeline/contents.h).

A message's headers are names and values, which Spark reads as `attributes`, and NATS clients as their headers where
they can be written so. A key is one of them, and says which consumer of a subscription by key gets the message.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from mq_shards.csrc._core import ffi, lib
from mq_shards.pipeline.encode import EncodeError, is_large

KEY: Final = "key"
MAP: Final = pa.map_(pa.string(), pa.string())
_SLOTS: Final = 65536  # KEY_SLOTS, csrc/ringbuf/message.h: a hash that is a multiple would say that there is no key


def contents(bodies: pa.Array, attributes: pa.Array | None, keys: pa.Array | None) -> pa.Array:
    """Of type large_binary. Raises EncodeError."""
    attributes = _empty(len(bodies)) if attributes is None else attributes.cast(MAP)
    if keys is not None:
        attributes = _with_keys(attributes, keys)
    kept: list[object] = []
    column = _column(bodies, kept)
    c = _attributes(attributes, keys, kept)
    held = len(bodies) * lib.CONTENTS_ROW_BYTES + c.entries * lib.CONTENTS_ENTRY_BYTES
    room = held + c.name_bytes + c.value_bytes + column.bytes
    out = np.empty(room, np.uint8)
    offsets = np.empty(len(bodies) + 1, np.int64)
    row = ffi.new("size_t *")
    size = lib.encode_contents(
        column, c, ffi.from_buffer("int64_t[]", offsets), ffi.from_buffer("uint8_t[]", out), room, row
    )
    if size < 0:
        raise EncodeError(f"column attributes, in row {row[0]} of a batch: {_WHY[size]}")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out[:size])]
    return pa.Array.from_buffers(pa.large_binary(), len(bodies), buffers)


_WHY: Final = {
    lib.CONTENTS_UNSOUND: "it is not sound",
    lib.CONTENTS_TOO_MANY: "a message has 64 headers at most, of 65536 bytes together",
    lib.CONTENTS_NAMELESS: "a header has a name",
}


def _empty(rows: int) -> pa.Array:
    nothing = pa.array([], pa.string())
    return pa.MapArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), nothing, nothing)


def _with_keys(attributes: pa.Array, keys: pa.Array) -> pa.Array:
    """The key is an attribute; one of that name which was there gives way."""
    begins, ends = _bounds(attributes)
    names, values = attributes.keys, attributes.items
    is_key = pc.equal(names, KEY).fill_null(False).to_numpy(zero_copy_only=False)
    counts = (ends - begins).astype(np.int64)
    row_of = np.repeat(np.arange(len(attributes)), counts)
    entry = np.arange(len(row_of)) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
    has_key = keys.is_valid().to_numpy(zero_copy_only=False)
    stays = ~(is_key[entry] & has_key[row_of])
    entry, row_of = entry[stays], row_of[stays]
    keyed = np.flatnonzero(has_key)
    rows = np.concatenate([row_of, keyed])
    order = np.argsort(rows, kind="stable")
    taken = np.concatenate([entry, len(names) + np.arange(len(keyed))])[order]
    all_names = pa.concat_arrays([names, pa.repeat(pa.scalar(KEY, pa.string()), len(keyed))])
    all_values = pa.concat_arrays([values, keys.drop_null().cast(pa.string())])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(attributes)))]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), all_names.take(pa.array(taken)), all_values.take(pa.array(taken)))


def _bounds(attributes: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Of the entries of each row; one that is null has none."""
    offsets = attributes.offsets.to_numpy(zero_copy_only=False).astype(np.int32)
    begins, ends = offsets[:-1].copy(), offsets[1:].copy()
    if attributes.null_count:
        nothing = attributes.is_null().to_numpy(zero_copy_only=False)
        ends[nothing] = begins[nothing]
    return begins, ends


def _column(bodies: pa.Array, kept: list[object]) -> Any:  # noqa: ANN401
    c = ffi.new("struct encode_column *")
    c.rows = len(bodies)
    offsets, data = _text(bodies, np.int64 if is_large(bodies.type) else np.int32)
    setattr(c, "large_offsets" if is_large(bodies.type) else "offsets", _lent(offsets, kept))
    c.data, c.bytes = _lent(data, kept), len(data)
    return c


def _attributes(attributes: pa.Array, keys: pa.Array | None, kept: list[object]) -> Any:  # noqa: ANN401
    c = ffi.new("struct encode_attributes *")
    begins, ends = _bounds(attributes)
    name_offsets, names = _text(attributes.keys, np.int32)
    value_offsets, values = _text(attributes.items, np.int32)
    c.begins, c.ends, c.entries = _lent(begins, kept), _lent(ends, kept), len(attributes.keys)
    c.name_offsets, c.names, c.name_bytes = _lent(name_offsets, kept), _lent(names, kept), len(names)
    c.value_offsets, c.values, c.value_bytes = _lent(value_offsets, kept), _lent(values, kept), len(values)
    if keys is not None:
        c.key_hashes = _lent(_hashes(keys), kept)
    return c


def _hashes(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """As Pulsar's clients have them: once for each key that occurs."""
    encoded = pc.dictionary_encode(keys.cast(pa.string()))
    known = np.array([0, *(key_hash(key) for key in encoded.dictionary.to_pylist())], np.uint32)
    places = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    found: npt.NDArray[np.uint32] = known[places + 1]
    return found


def key_hash(key: str) -> int:
    data = key.encode()
    found = int(lib.pulsar_murmur(data, len(data))) & 0x7FFFFFFF
    return found if found % _SLOTS else found + 1


def _text(column: pa.Array, dtype: type[np.generic]) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Offsets, and what they lead into."""
    _, offsets, data = column.buffers()
    found = np.zeros(1, dtype)
    if len(column):
        found = np.frombuffer(offsets, dtype)[column.offset : column.offset + len(column) + 1]
    return found, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _lent(array: npt.NDArray[Any], kept: list[object]) -> Any:  # noqa: ANN401
    """For the C core, as long as `kept` is there."""
    ctypes = {"int32": "int32_t[]", "int64": "int64_t[]", "uint32": "uint32_t[]", "uint8": "uint8_t[]"}
    kept.append(memory := ffi.from_buffer(ctypes[array.dtype.name], array))
    return memory
