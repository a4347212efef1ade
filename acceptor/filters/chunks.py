"""The framing of Snappy's streams (framing_format.txt of google/snappy): chunks, each with its checksum. What is in a
block is the filter's that stands on this.

A stream may end and another begin, with an identifier of its own, at any chunk.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from mq_shards.acceptor.filters import PIECE_BYTES, PIECE_PARTS, FilterError
from mq_shards.csrc._core import ffi, lib

BLOCK_BYTES: Final = 64 << 10  # of ours, at most
HEADER_BYTES: Final = 4  # one of kind, three of length, little-endian
CHECKSUM_BYTES: Final = 4

COMPRESSED: Final = 0x00
UNCOMPRESSED: Final = 0x01
FIRST_SKIPPABLE: Final = 0x80  # padding too
IDENTIFIER: Final = 0xFF

Compress: TypeAlias = Callable[[memoryview], bytes]
# Given how many bytes it may become. Raises FilterError.
Uncompress: TypeAlias = Callable[[memoryview, int], bytes]


def identifier_chunk(identifier: bytes) -> bytes:
    return struct.pack("<I", IDENTIFIER | len(identifier) << 8) + identifier


class Chunks:
    def __init__(
        self, name: str, identifiers: Sequence[bytes], most: int, compress: Compress | None, uncompress: Uncompress
    ) -> None:
        """The first of `identifiers` is what we say. `most`: the bytes of a block that comes. Without `compress` what
        goes out has the form only; that may be changed at any time."""
        self.compress = compress
        self._name, self._identifiers, self._uncompress = name, identifiers, uncompress
        self._most = most
        # No encoder makes a block longer than what it stands for by more than that.
        self._most_packed = CHECKSUM_BYTES + most + most // 6 + 32
        self._greeted = False  # our identifier has gone out
        self._identified = False  # theirs has come
        self._rest = bytearray()  # unless pending, of a chunk that is not complete: less than one
        self._blocks, self._at = b"", 0  # that were taken apart, and how much of them has been handed out
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
        parts = [] if self._greeted else [identifier_chunk(self._identifiers[0])]
        self._greeted = True
        view = memoryview(data)
        for start in range(0, len(data), BLOCK_BYTES):
            block = view[start : start + BLOCK_BYTES]
            kind, content = UNCOMPRESSED, b""
            if self.compress is not None:
                kind, content = COMPRESSED, self.compress(block)
            # Not worth the reader's while.
            if kind == UNCOMPRESSED or len(content) >= len(block) - len(block) // 8:
                kind, content = UNCOMPRESSED, bytes(block)
            length = CHECKSUM_BYTES + len(content)
            parts += [struct.pack("<II", kind | length << 8, masked_checksum(block)), content]
        return b"".join(parts)

    def decode(self, data: bytes) -> bytes:
        self._rest += data
        if self._at < len(self._blocks):
            return self._piece()
        parts: list[bytes] = []
        with memoryview(self._rest) as view:
            taken = self._take_chunks(view, parts)
        del self._rest[:taken]
        self._blocks, self._at = b"".join(parts), 0
        return self._piece()

    def _piece(self) -> bytes:
        piece = self._blocks[self._at : self._at + PIECE_BYTES]
        self._at += len(piece)
        if self._at == len(self._blocks):
            self._blocks, self._at = b"", 0
        self._pending = bool(self._blocks) or self._is_whole()
        return piece

    def _is_whole(self) -> bool:
        """Whether there is something to be done with what is there."""
        if self._skip:
            return bool(self._rest)
        if len(self._rest) < HEADER_BYTES:
            return False
        length = int.from_bytes(self._rest[1:HEADER_BYTES], "little")
        return FIRST_SKIPPABLE <= self._rest[0] < IDENTIFIER or len(self._rest) >= HEADER_BYTES + length

    def _take_chunks(self, view: memoryview, parts: list[bytes]) -> int:
        """Puts what complete chunks hold to `parts`, as many as make a piece; returns how many bytes they are."""
        at = made = 0
        for _ in range(PIECE_PARTS):
            skipped = min(self._skip, len(view) - at)
            self._skip -= skipped
            at += skipped
            if self._skip > 0 or len(view) - at < HEADER_BYTES or made >= PIECE_BYTES:
                break
            kind = view[at]
            length = int.from_bytes(view[at + 1 : at + HEADER_BYTES], "little")
            if not self._identified and kind != IDENTIFIER:
                raise FilterError(f"{self._name}: the stream does not begin with its identifier")
            if FIRST_SKIPPABLE <= kind < IDENTIFIER:
                at += HEADER_BYTES
                self._skip = length
                continue
            if length > self._most_packed:
                raise FilterError(f"{self._name}: a chunk of {length} bytes")
            end = at + HEADER_BYTES + length
            if end > len(view):
                break
            with view[at + HEADER_BYTES : end] as content:
                parts.append(self._chunk(kind, content))
            at = end
            made += len(parts[-1])
        return at

    def _chunk(self, kind: int, content: memoryview) -> bytes:
        if kind == IDENTIFIER:
            if bytes(content) not in self._identifiers:
                raise FilterError(f"{self._name}: not the identifier of a stream")
            self._identified = True
            return b""
        if kind not in (COMPRESSED, UNCOMPRESSED):
            raise FilterError(f"{self._name}: a chunk of kind {kind:#04x}")
        if len(content) < CHECKSUM_BYTES:
            raise FilterError(f"{self._name}: a chunk without a checksum")
        with content[CHECKSUM_BYTES:] as packed:
            block = self._uncompress(packed, self._most) if kind == COMPRESSED else bytes(packed)
        if len(block) > self._most:
            raise FilterError(f"{self._name}: a chunk of {len(block)} bytes when it is uncompressed")
        if masked_checksum(block) != int.from_bytes(content[:CHECKSUM_BYTES], "little"):
            raise FilterError(f"{self._name}: a chunk's checksum is wrong")
        return block


def masked_checksum(block: bytes | memoryview) -> int:
    """A CRC-32C, as the format masks it."""
    checksum: int = lib.crc32c_extend(0, ffi.from_buffer(block), len(block))
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
