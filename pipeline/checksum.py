"""CRC-32C without C, of many pieces at once: each numpy lookup takes one word of every piece.

The tables are those of Sarwate's method for eight bytes at once ("slicing by 8", Kounavis and Berry, 2005). A CRC is
linear. From an initial state of 0, zeros before a message change nothing, so pieces of different lengths are padded at
the front. The CRC of a long piece is combined from those of its lanes, each advanced over the lanes after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

POLYNOMIAL: Final = 0x82F63B78  # Castagnoli's, reflected
LANE: Final = 4096
ALL: Final = 0xFFFFFFFF
_LITTLE: Final = 64  # bytes up to which a plain loop is used: names of topics, say

Table = npt.NDArray[np.uint32]


@cache
def _bytes_table() -> list[int]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        found.append(value)
    return found


@cache
def _tables() -> list[Table]:
    """Table i gives the state after a byte and i more zero bytes."""
    tables = [np.array(_bytes_table(), np.uint32)]
    for _ in range(7):
        last = tables[-1]
        tables.append(last >> np.uint32(8) ^ tables[0][last & np.uint32(255)])
    return tables


@cache
def _over_a_lane() -> list[list[int]]:
    """For each byte of a state, a table of what LANE zero bytes make of it."""
    state = np.array([value << 8 * byte for byte in range(4) for value in range(256)], np.uint32)
    for _ in range(LANE // 8):
        state = _step(state, np.zeros(len(state), np.uint64))
    return [state[256 * byte : 256 * (byte + 1)].tolist() for byte in range(4)]


def _step(state: Table, words: npt.NDArray[np.uint64]) -> Table:
    split = (words ^ state).view(np.uint8).reshape(-1, 8)
    tables = _tables()
    found = tables[7][split[:, 0]]
    for byte in range(1, 8):
        found ^= tables[7 - byte][split[:, byte]]
    return found


def crc32c(data: bytes) -> int:
    if len(data) > _LITTLE:
        return crcs([data])[0]
    table, state = _bytes_table(), ALL
    for byte in data:
        state = state >> 8 ^ table[(state ^ byte) & 255]
    return state ^ ALL


def crcs(pieces: Sequence[bytes | bytearray | memoryview]) -> list[int]:
    """Returns the CRC of each piece; a piece has at least 4 bytes."""
    lanes: list[bytes | bytearray | memoryview] = []
    begins: list[bool] = []
    for piece in pieces:
        first = len(piece) % LANE or LANE
        assert len(piece) >= 4
        if first < 4:  # the initial ~0 is applied to 4 bytes, which must lie in one lane
            first += LANE
        lanes.append(piece[:first])
        begins.append(True)
        for at in range(first, len(piece), LANE):
            lanes.append(piece[at : at + LANE])
            begins.append(False)
    found = _of_lanes(lanes, begins)
    result: list[int] = []
    advance = None
    for crc, begin in zip(found.tolist(), begins, strict=True):
        if begin:
            result.append(crc)
            continue
        advance = advance or _over_a_lane()
        state = result[-1]
        result[-1] = (
            crc
            ^ advance[0][state & 255]
            ^ advance[1][state >> 8 & 255]
            ^ advance[2][state >> 16 & 255]
            ^ advance[3][state >> 24]
        )
    return [crc ^ ALL for crc in result]


def _of_lanes(lanes: Sequence[bytes | bytearray | memoryview], begins: Sequence[bool]) -> Table:
    """Returns the state after each lane, from 0; from ~0 for a lane that begins a piece."""
    words = np.array([(len(lane) + 7) // 8 for lane in lanes])
    found = np.zeros(len(lanes), np.uint32)
    # Groups lanes of about one length, so that shorter ones need little padding.
    kinds = np.ceil(np.log2(np.maximum(words, 1)))
    for kind in np.unique(kinds):
        members = np.flatnonzero(kinds == kind)
        width = int(words[members].max()) * 8
        block = np.zeros((len(members), width), np.uint8)
        for row, lane in zip(block, members.tolist(), strict=True):
            start = width - len(lanes[lane])
            row[start:] = np.frombuffer(lanes[lane], np.uint8)
            if begins[lane]:
                row[start : start + 4] ^= 255
        columns = np.ascontiguousarray(block.view(np.uint64).T)
        state = np.zeros(len(members), np.uint32)
        for column in columns:
            state = _step(state, column)
        found[members] = state
    return found
