"""Snappy's framing format (framing_format.txt of google/snappy): chunks of at most 64 KiB, each with its checksum.

cramjam has a codec for whole streams of this format, none that takes one as it comes; so the framing is done here, and
cramjam does the blocks.
"""

from __future__ import annotations

import struct
from typing import Final

from cramjam import DecompressionError, snappy
from mq_shards.acceptor.filters import PIECE_BYTES, PIECE_PARTS, FilterError
from mq_shards.csrc._core import ffi, lib

BLOCK_BYTES: Final = 65536
HEADER_BYTES: Final = 4  # one of kind, three of length, little-endian
CHECKSUM_BYTES: Final = 4
# What snappy's MaxCompressedLength says of BLOCK_BYTES.
LARGEST_CHUNK_BYTES: Final = CHECKSUM_BYTES + 32 + BLOCK_BYTES + BLOCK_BYTES // 6

COMPRESSED: Final = 0x00
UNCOMPRESSED: Final = 0x01
FIRST_SKIPPABLE: Final = 0x80  # padding too
IDENTIFIER: Final = 0xFF
IDENTIFIER_CONTENT: Final = b"sNaPpY"
IDENTIFIER_CHUNK: Final = b"\xff\x06\x00\x00" + IDENTIFIER_CONTENT


class Snappy:
    def __init__(self) -> None:
        self._greeted = False  # our identifier has gone out
        self._identified = False  # theirs has come
        self._rest = bytearray()  # unless pending, of a chunk that is not complete: less than one
        self._pending = False
        self._skip = 0  # bytes to come that mean nothing

    @property
    def ended(self) -> bool:
        return False

    @property
    def pending(self) -> bool:
        return self._pending

    def encode(self, data: bytes) -> bytes:
        if not data:
            return b""
        parts = [] if self._greeted else [IDENTIFIER_CHUNK]
        self._greeted = True
        view = memoryview(data)
        for start in range(0, len(data), BLOCK_BYTES):
            block = view[start : start + BLOCK_BYTES]
            kind, content = COMPRESSED, bytes(snappy.compress_raw(block))
            # Not worth the reader's while.
            if len(content) >= len(block) - len(block) // 8:
                kind, content = UNCOMPRESSED, bytes(block)
            length = CHECKSUM_BYTES + len(content)
            parts += [struct.pack("<II", kind | length << 8, masked_checksum(block)), content]
        return b"".join(parts)

    def decode(self, data: bytes) -> bytes:
        self._rest += data
        parts: list[bytes] = []
        self._pending = False
        with memoryview(self._rest) as view:
            taken = self._take_chunks(view, parts)
        del self._rest[:taken]
        return b"".join(parts)

    def _take_chunks(self, view: memoryview, parts: list[bytes]) -> int:
        """Puts what complete chunks hold to `parts`, as many as make a piece; returns how many bytes they are."""
        at = made = 0
        for _ in range(PIECE_PARTS):
            skipped = min(self._skip, len(view) - at)
            self._skip -= skipped
            at += skipped
            if self._skip > 0 or len(view) - at < HEADER_BYTES:
                return at
            kind = view[at]
            length = int.from_bytes(view[at + 1 : at + HEADER_BYTES], "little")
            if not self._identified and kind != IDENTIFIER:
                raise FilterError("snappy: the stream does not begin with its identifier")
            if FIRST_SKIPPABLE <= kind < IDENTIFIER:
                at += HEADER_BYTES
                self._skip = length
                continue
            if length > LARGEST_CHUNK_BYTES:
                raise FilterError(f"snappy: a chunk of {length} bytes")
            end = at + HEADER_BYTES + length
            if end > len(view):
                return at
            with view[at + HEADER_BYTES : end] as content:
                parts.append(self._chunk(kind, content))
            at = end
            made += len(parts[-1])
            if made >= PIECE_BYTES:
                break
        self._pending = True
        return at

    def _chunk(self, kind: int, content: memoryview) -> bytes:
        if kind == IDENTIFIER:
            if bytes(content) != IDENTIFIER_CONTENT:
                raise FilterError("snappy: not the identifier of a stream")
            self._identified = True
            return b""
        if kind not in (COMPRESSED, UNCOMPRESSED):
            raise FilterError(f"snappy: a chunk of kind {kind:#04x}")
        if len(content) < CHECKSUM_BYTES:
            raise FilterError("snappy: a chunk without a checksum")
        with content[CHECKSUM_BYTES:] as packed:
            block = uncompress(packed) if kind == COMPRESSED else bytes(packed)
        if len(block) > BLOCK_BYTES:
            raise FilterError(f"snappy: a chunk of {len(block)} bytes when it is uncompressed")
        if masked_checksum(block) != int.from_bytes(content[:CHECKSUM_BYTES], "little"):
            raise FilterError("snappy: a chunk's checksum is wrong")
        return block


def uncompress(packed: memoryview) -> bytes:
    try:
        # Before room is made for it.
        if snappy.decompress_raw_len(packed) > BLOCK_BYTES:
            raise FilterError("snappy: a chunk that is too large when it is uncompressed")
        return bytes(snappy.decompress_raw(packed))
    except DecompressionError as error:
        raise FilterError(f"{error}") from None


def masked_checksum(block: bytes | memoryview) -> int:
    """A CRC-32C, as the format masks it."""
    checksum: int = lib.crc32c_extend(0, ffi.from_buffer(block), len(block))
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
