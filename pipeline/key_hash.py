"""The key hash by which a subscription chooses a consumer: Murmur3, as in Pulsar's clients, of many keys at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

_SLOTS: Final = 65536  # KEY_SLOTS of csrc/ringbuf/message.h: a hash that is a multiple would say that there is no key

Words = npt.NDArray[np.uint32]


def key_hashes(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> Words:
    """Returns the hashes of the keys data[offsets[i] : offsets[i + 1]]."""
    sizes = np.diff(offsets)
    found = np.zeros(len(sizes), np.uint32)
    for size in np.unique(sizes):
        members = np.flatnonzero(sizes == size)
        places = offsets[:-1][members][:, None] + np.arange(size)
        found[members] = _of_one_size(data[places], int(size))
    found &= np.uint32(0x7FFFFFFF)
    return np.where(found % _SLOTS, found, found + np.uint32(1)).astype(np.uint32)


def key_hash(key: str) -> int:
    data = np.frombuffer(key.encode(), np.uint8)
    return int(key_hashes(np.array([0, len(data)], np.int32), data)[0])


def _of_one_size(keys: npt.NDArray[np.uint8], size: int) -> Words:
    """Returns the hashes of keys of one size, a row of `keys` each."""
    padded = np.zeros((len(keys), (size + 3) // 4 * 4), np.uint8)
    padded[:, :size] = keys
    words = padded.view("<u4")
    found = np.zeros(len(keys), np.uint32)
    for column in range(size // 4):
        found = _rotate(_mix(found, words[:, column]), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    if size % 4:
        found = _mix(found, words[:, -1])
    found ^= np.uint32(size)
    found = (found ^ found >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    found = (found ^ found >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return found ^ found >> np.uint32(16)


def _mix(found: Words, word: Words) -> Words:
    return found ^ _rotate(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotate(value: Words, by: int) -> Words:
    return value << np.uint32(by) | value >> np.uint32(32 - by)
