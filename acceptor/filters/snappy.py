"""Snappy streams, with blocks of at most 64 KiB.

cramjam can decode whole streams of this format, but not a stream that arrives in pieces. So chunks.py does the framing,
and cramjam the blocks.
"""

from __future__ import annotations

from typing import Final

from cramjam import DecompressionError, snappy
from mq_shards.acceptor.filters import FilterError
from mq_shards.acceptor.filters.chunks import BLOCK_BYTES, Chunks, identifier_chunk

SNAPPY_IDENTIFIER: Final = b"sNaPpY"
IDENTIFIER_CHUNK: Final = identifier_chunk(SNAPPY_IDENTIFIER)


class Snappy(Chunks):
    def __init__(self) -> None:
        super().__init__("snappy", (SNAPPY_IDENTIFIER,), BLOCK_BYTES, compress, uncompress)


def compress(block: memoryview) -> bytes:
    return bytes(snappy.compress_raw(block))


def uncompress(packed: memoryview, most: int) -> bytes:
    try:
        # Checked before memory is allocated for it.
        if snappy.decompress_raw_len(packed) > most:
            raise FilterError("snappy: a chunk that is too large when it is uncompressed")
        return bytes(snappy.decompress_raw(packed))
    except DecompressionError as error:
        raise FilterError(f"{error}") from None
