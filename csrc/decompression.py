"""Decompresses what clients have compressed, with a library, into exactly the size that they have named."""

from __future__ import annotations

import zlib
from typing import Final

# The numbers of Pulsar's MessageMetadata.compression.
LZ4: Final = 1
ZLIB: Final = 2
ZSTD: Final = 3
SNAPPY: Final = 4


def decompress(kind: int, data: bytes | memoryview, size: int) -> bytes | None:
    """Returns `size` bytes, or None if `data` is not valid or has another size."""
    if kind == ZLIB:
        return _inflated(data, size)
    import cramjam  # most processes never meet anything compressed

    into = {
        LZ4: cramjam.lz4.decompress_block_into,
        ZSTD: cramjam.zstd.decompress_into,
        SNAPPY: cramjam.snappy.decompress_raw_into,
    }.get(kind)
    if into is None:
        return None
    out = bytearray(size)
    try:
        written = into(data, out)
    except (cramjam.DecompressionError, ValueError):
        return None
    return bytes(out) if written == size else None


def _inflated(data: bytes | memoryview, size: int) -> bytes | None:
    """Java's clients flush the stream and do not end it, which most functions take for one that is cut off."""
    try:
        out = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error:
        return None
    return out if len(out) == size else None
