"""The framing of Snappy streams (framing_format.txt of google/snappy): chunks with checksums. Filters that use it
supply the compression of the blocks inside.

At any chunk one stream may end and another begin, with an identifier of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from mq_shards.acceptor.filters import PIECE_BYTES, PIECE_PARTS, FilterError
from mq_shards.csrc._core import ffi, lib

BLOCK_BYTES: Final = 64 << 10  # the largest block that we write
HEADER_BYTES: Final = 4  # one byte kind, three bytes length, little-endian
CHECKSUM_BYTES: Final = 4

COMPRESSED: Final = 0x00
UNCOMPRESSED: Final = 0x01
FIRST_SKIPPABLE: Final = 0x80  # from here on kinds are skipped, padding too
IDENTIFIER: Final = 0xFF

Compress: TypeAlias = Callable[[memoryview], bytes]
# Takes a block and the most bytes that it may become. Raises FilterError.
Uncompress: TypeAlias = Callable[[memoryview, int], bytes]


def identifier_chunk(identifier: bytes) -> bytes:
    return struct.pack("<I", IDENTIFIER | len(identifier) << 8) + identifier


class Chunks:
    def __init__(
        self, name: str, identifiers: Sequence[bytes], most: int, compress: Compress | None, uncompress: Uncompress
    ) -> None:
        """The first of `identifiers` is the one we send. `most`: the bytes of the largest block accepted. Without
        `compress`, which may be set at any time, blocks are sent in chunks but uncompressed."""
        self.compress = compress
        self._name, self._identifiers, self._uncompress = name, identifiers, uncompress
        self._most = most
        # No encoder makes a block longer than its content by more than this.
        self._most_packed = CHECKSUM_BYTES + most + most // 6 + 32
        self._greeted = False  # our identifier has been sent
        self._identified = False  # the client's has been received
        self._rest = bytearray()  # input not decoded yet; unless pending, less than a chunk
        self._blocks, self._at = b"", 0  # decoded content, and how much of it was returned
        self.pending = False
        self._skip = 0  # bytes of a skipped chunk that are still to come

    @property
    def ended(self) -> bool:
        return False

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
            # Compression saves less than an eighth: send it uncompressed.
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
        self.pending = bool(self._blocks) or self._is_whole()
        return piece

    def _is_whole(self) -> bool:
        """Whether the input holds a complete chunk, or bytes to skip."""
        if self._skip:
            return bool(self._rest)
        if len(self._rest) < HEADER_BYTES:
            return False
        length = int.from_bytes(self._rest[1:HEADER_BYTES], "little")
        return FIRST_SKIPPABLE <= self._rest[0] < IDENTIFIER or len(self._rest) >= HEADER_BYTES + length

    def _take_chunks(self, view: memoryview, parts: list[bytes]) -> int:
        """Appends the content of complete chunks to `parts`, up to a piece. Returns how many bytes of input it used."""
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
    """The CRC-32C of a block, masked as the format wants it."""
    checksum: int = lib.crc32c_extend(0, ffi.from_buffer(block), len(block))
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
