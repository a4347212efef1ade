"""Which generation a catalog's log has, told by its records alone: for a log whose head cannot be read.

The checksum of a record is that of its generation, its place and its payload, one behind the other. It can be run
backwards from its end, which leaves the one generation below 2^32 with which it is what the record says (each is a log
that was written anew, of megabytes: there are no more). What only looks like a record names one that no other does.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from typing import Final

# Each byte is a step in Python: records that are longer are not asked, nor more than so many.
MAX_ASKED_BYTES: Final = 64 << 10
MAX_ASKED: Final = 16

_POLYNOMIAL: Final = 0x82F63B78  # of CRC-32C, its bits in reverse
_ONES: Final = 0xFFFFFFFF


def generation_of(records: Iterable[tuple[int, bytes, int]]) -> int | None:
    """Of what look like records: place, payload, checksum. The one that most of them name; None: there are none."""
    named: Counter[int] = Counter()
    for place, payload, crc in records:
        if len(payload) <= MAX_ASKED_BYTES:
            # The lower half of the generation in the place of what was before the first byte, which is all ones.
            named[_before(crc, struct.pack("<QQ", 0, place) + payload)] += 1
        if named.total() == MAX_ASKED:
            break
    return named.most_common(1)[0][0] if named else None


def _before(crc: int, data: bytes) -> int:
    """The CRC of which `crc` is what it became with `data`."""
    state = crc ^ _ONES
    for byte in reversed(data):
        entry = _BY_HIGHEST[state >> 24]
        state = ((state ^ _TABLE[entry]) << 8 | entry ^ byte) & _ONES
    return state ^ _ONES


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE: Final = [_entry(byte) for byte in range(256)]
_BY_HIGHEST: Final = {entry >> 24: byte for byte, entry in enumerate(_TABLE)}  # no two have the same highest byte
