"""Finds the generation of a catalog's log from its records alone, for a log whose head cannot be read.

The checksum of a record covers its generation, its place and its payload, in this order. A CRC can be computed
backwards from its end, which gives the only generation below 2^32 that leads to the checksum in the record. (There are
no higher generations: each is a rewrite of a log of megabytes.) Bytes that only look like a record give a generation
that no other record gives.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from typing import Final

# Each byte takes a step in Python, so longer records are not used, nor more records than this.
MAX_ASKED_BYTES: Final = 64 << 10
MAX_ASKED: Final = 16

_POLYNOMIAL: Final = 0x82F63B78  # of CRC-32C, its bits in reverse
_ONES: Final = 0xFFFFFFFF


def generation_of(records: Iterable[tuple[int, bytes, int]]) -> int | None:
    """The generation that most of `records` give (place, payload and checksum of each). None: there are none."""
    named: Counter[int] = Counter()
    for place, payload, crc in records:
        if len(payload) <= MAX_ASKED_BYTES:
            # To feed the generation's lower half to a CRC is to XOR it into the first state (all ones) and feed 0.
            named[_before(crc, struct.pack("<QQ", 0, place) + payload)] += 1
        if named.total() == MAX_ASKED:
            break
    return named.most_common(1)[0][0] if named else None


def _before(crc: int, data: bytes) -> int:
    """The CRC that becomes `crc` when `data` is appended."""
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
