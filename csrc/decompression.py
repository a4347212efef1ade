"""Decompresses what clients have compressed, with a library, into exactly the size that they have named."""

from __future__ import annotations

from typing import Final

# The numbers of Pulsar's MessageMetadata.compression.
LZ4: Final = 1
ZLIB: Final = 2
ZSTD: Final = 3
SNAPPY: Final = 4


def decompress(kind: int, data: bytes, size: int) -> bytes | None:
    """Returns `size` bytes, or None if `data` is not valid or has another size."""
    import cramjam  # most processes never meet anything compressed

    into = {
        LZ4: cramjam.lz4.decompress_block_into,
        ZLIB: cramjam.zlib.decompress_into,
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
