"""S2's streams: chunks as Snappy's framing format has them, of blocks of up to 4 MiB, each with its checksum.

A stream may end and another begin, with an identifier of its own, at any chunk. What goes out are blocks of Snappy,
which are S2's too. Blocks that come are taken apart by csrc/base/s2.c: no library that there is for Python knows S2.
"""

from __future__ import annotations

import struct
from typing import Final

from cramjam import snappy
from mq_shards.acceptor.filters import PIECE_BYTES, PIECE_PARTS, FilterError
from mq_shards.acceptor.filters.snappy import (
    CHECKSUM_BYTES,
    COMPRESSED,
    FIRST_SKIPPABLE,
    HEADER_BYTES,
    IDENTIFIER,
    UNCOMPRESSED,
    masked_checksum,
)
from mq_shards.csrc._core import ffi, lib

IDENTIFIERS: Final = (b"S2sTwO", b"sNaPpY")
IDENTIFIER_CHUNK: Final = b"\xff\x06\x00\x00" + IDENTIFIERS[0]
OUR_BLOCK_BYTES: Final = 64 << 10
MAX_BLOCK_BYTES: Final = 4 << 20
# No encoder makes a block longer than what it stands for by more than a few bytes: it would be sent as it is.
MAX_CHUNK_BYTES: Final = CHECKSUM_BYTES + MAX_BLOCK_BYTES + MAX_BLOCK_BYTES // 6 + 32


class S2:
    def __init__(self, *, compresses: bool = True) -> None:
        """Without `compresses` what goes out has the form only; that may be changed at any time."""
        self.compresses = compresses
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
        parts = [] if self._greeted else [IDENTIFIER_CHUNK]
        self._greeted = True
        view = memoryview(data)
        for start in range(0, len(data), OUR_BLOCK_BYTES):
            block = view[start : start + OUR_BLOCK_BYTES]
            kind, content = UNCOMPRESSED, b""
            if self.compresses:
                kind, content = COMPRESSED, bytes(snappy.compress_raw(block))
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
        """Whether a chunk is there."""
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
                raise FilterError("s2: the stream does not begin with its identifier")
            if FIRST_SKIPPABLE <= kind < IDENTIFIER:
                at += HEADER_BYTES
                self._skip = length
                continue
            if length > MAX_CHUNK_BYTES:
                raise FilterError(f"s2: a chunk of {length} bytes")
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
            if bytes(content) not in IDENTIFIERS:
                raise FilterError("s2: not the identifier of a stream")
            self._identified = True
            return b""
        if kind not in (COMPRESSED, UNCOMPRESSED):
            raise FilterError(f"s2: a chunk of kind {kind:#04x}")
        if len(content) < CHECKSUM_BYTES:
            raise FilterError("s2: a chunk without a checksum")
        packed = bytes(content[CHECKSUM_BYTES:])
        block = uncompress(packed) if kind == COMPRESSED else packed
        if len(block) > MAX_BLOCK_BYTES:
            raise FilterError(f"s2: a chunk of {len(block)} bytes when it is uncompressed")
        if masked_checksum(block) != int.from_bytes(content[:CHECKSUM_BYTES], "little"):
            raise FilterError("s2: a chunk's checksum is wrong")
        return block


def uncompress(packed: bytes) -> bytes:
    """A block. Raises FilterError."""
    block = ffi.from_buffer(packed)
    size = lib.s2_decoded_bytes(block, len(packed))
    # Before room is made for it.
    if not 0 <= size <= MAX_BLOCK_BYTES:
        raise FilterError("s2: a chunk that is too large when it is uncompressed")
    out = bytearray(size)
    if lib.s2_decode(block, len(packed), ffi.from_buffer(out), size) != size:
        raise FilterError("s2: corrupt input")
    return bytes(out)
