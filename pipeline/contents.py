"""Puts headers before bodies, made from a column of attributes and one of keys.

A message's headers are names and values. Spark reads them as `attributes`; NATS clients read them as NATS headers, if
they can be written so. A key is one of the headers: it selects the consumer of a subscription by key.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from mq_shards.pipeline.encode import EncodeError, join
from mq_shards.pipeline.encoding import NAMELESS, TOO_MANY, UNSOUND, Split, text
from mq_shards.pipeline.key_hash import key_hashes

KEY: Final = "key"
MAP: Final = pa.map_(pa.string(), pa.string())


def contents(bodies: pa.Array, attributes: pa.Array | None, keys: pa.Array | None) -> pa.Array:
    """Returns headers and bodies joined, as large_binary. Raises EncodeError."""
    attributes = _empty(len(bodies)) if attributes is None else attributes.cast(MAP)
    if keys is not None:
        attributes = _with_keys(attributes, keys)
    joined, row, wrong = join(bodies, _split(attributes, keys))
    if joined is None:
        raise EncodeError(f"column attributes, in row {row} of a batch: {_WHY[wrong]}")
    return joined


_WHY: Final = {
    UNSOUND: "it is not sound",
    TOO_MANY: "a message has 64 headers at most, of 65536 bytes together",
    NAMELESS: "a header has a name",
}


def _empty(rows: int) -> pa.Array:
    nothing = pa.array([], pa.string())
    return pa.MapArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), nothing, nothing)


def _with_keys(attributes: pa.Array, keys: pa.Array) -> pa.Array:
    """Adds each row's key as an attribute, in place of one of that name."""
    names, values = attributes.keys, attributes.items
    if not len(names):  # as from a writer of Kafka's, whose rows have keys and values only
        offsets = np.concatenate([[0], np.cumsum(keys.is_valid())]).astype(np.int32)
        only = keys.drop_null().cast(pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets), pa.repeat(pa.scalar(KEY, pa.string()), len(only)), only)
    begins, ends = _bounds(attributes)
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
    """Returns where the entries of each row begin and end; a null row has none."""
    offsets = attributes.offsets.to_numpy(zero_copy_only=False).astype(np.int32)
    begins, ends = offsets[:-1].copy(), offsets[1:].copy()
    if attributes.null_count:
        nothing = attributes.is_null().to_numpy(zero_copy_only=False)
        ends[nothing] = begins[nothing]
    return begins, ends


def _split(attributes: pa.Array, keys: pa.Array | None) -> Split:
    begins, ends = _bounds(attributes)
    hashes = None if keys is None else _hashes(keys)
    return Split(begins, ends, *text(attributes.keys), *text(attributes.items), hashes)


def _hashes(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Returns the key hashes of Pulsar's clients, computed once for each distinct key."""
    encoded = pc.dictionary_encode(keys.cast(pa.string()))
    offsets, data = text(encoded.dictionary)
    known = np.concatenate([np.zeros(1, np.uint32), key_hashes(offsets, data)])
    places = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    found: npt.NDArray[np.uint32] = known[places + 1]
    return found
