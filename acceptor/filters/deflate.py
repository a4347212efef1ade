"""Raw deflate (RFC 1951), flushed to a byte boundary after each piece.

64 KiB that an acceptor receives at once become at most 66 MiB: deflate's ratio has a bound, 1032.
"""

from __future__ import annotations

import zlib
from typing import Final

from mq_shards.acceptor.filters import FilterError

RAW: Final = -zlib.MAX_WBITS


class Deflate:
    def __init__(self, level: int) -> None:
        """`level`: 1 to 9."""
        self._compressor = zlib.compressobj(level, zlib.DEFLATED, RAW)
        self._decompressor = zlib.decompressobj(RAW)

    @property
    def ended(self) -> bool:
        return self._decompressor.eof

    def decode(self, data: bytes) -> bytes:
        if self._decompressor.eof:
            return b""
        try:
            return self._decompressor.decompress(data)
        except zlib.error as error:
            raise FilterError(f"deflate: {error}") from None

    def encode(self, data: bytes) -> bytes:
        if not data:
            return b""
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
