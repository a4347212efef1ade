"""Raw deflate (RFC 1951), flushed to a byte boundary after each piece.

64 KiB, which an acceptor receives at once, can decompress to 66 MiB: decode() makes them a piece at a time.
"""

from __future__ import annotations

import zlib
from typing import Final

from mq_shards.acceptor.filters import PIECE_BYTES, FilterError

RAW: Final = -zlib.MAX_WBITS


class Deflate:
    def __init__(self, level: int) -> None:
        """`level`: 1 to 9."""
        self._compressor = zlib.compressobj(level, zlib.DEFLATED, RAW)
        self._decompressor = zlib.decompressobj(RAW)
        self.pending = False

    @property
    def ended(self) -> bool:
        return self._decompressor.eof

    def decode(self, data: bytes) -> bytes:
        decompressor = self._decompressor
        if decompressor.eof:
            return b""
        try:
            piece = decompressor.decompress(decompressor.unconsumed_tail + data, PIECE_BYTES)
        except zlib.error as error:
            raise FilterError(f"deflate: {error}") from None
        # A full piece may have left something in the decompressor, though it has taken all input.
        self.pending = not decompressor.eof and len(piece) == PIECE_BYTES
        return piece

    def encode(self, data: bytes) -> bytes:
        if not data:
            return b""
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
