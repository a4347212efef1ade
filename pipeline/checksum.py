"""CRC-32C without C, of many pieces at once: numpy looks up a column of words, one of each piece, at a time.

What is said of tables is Sarwate's method, eight bytes at once ("slicing by 8", Kounavis and Berry, 2005). A CRC is
linear: zeros before a message change nothing if it begins with 0, so pieces of different lengths are set to one end;
and the CRC of a long piece is made of those of its lanes, each advanced over what follows it.
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
_LITTLE: Final = 64  # names of topics, say

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
    """The i-th advances a byte over i more."""
    tables = [np.array(_bytes_table(), np.uint32)]
    for _ in range(7):
        last = tables[-1]
        tables.append(last >> np.uint32(8) ^ tables[0][last & np.uint32(255)])
    return tables


@cache
def _over_a_lane() -> list[list[int]]:
    """By each of a state's bytes: what becomes of it over LANE zeros."""
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
    """Of pieces of 4 bytes and more."""
    lanes: list[bytes | bytearray | memoryview] = []
    begins: list[bool] = []
    for piece in pieces:
        first = len(piece) % LANE or LANE
        assert len(piece) >= 4
        if first < 4:  # what the CRC begins with has to lie in one
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
    """Each from 0, but that those which begin a piece begin as a CRC does."""
    words = np.array([(len(lane) + 7) // 8 for lane in lanes])
    found = np.zeros(len(lanes), np.uint32)
    # Of about one length, so that what is set before the shorter ones is little.
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
