"""S2's streams, made and taken apart beside the broker's own (csrc/base/s2_stream.c): chunks as Snappy's framing format
has them, of blocks of up to 4 MiB. Blocks are the core's (csrc/base/s2.h): no library for Python knows S2.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from mq_shards.acceptor.filters import FilterError
from mq_shards.acceptor.filters.chunks import Chunks, Compress, identifier_chunk
from mq_shards.acceptor.filters.snappy import SNAPPY_IDENTIFIER
from mq_shards.csrc._core import ffi, lib

IDENTIFIERS: Final = (b"S2sTwO", SNAPPY_IDENTIFIER)
IDENTIFIER_CHUNK: Final = identifier_chunk(IDENTIFIERS[0])
MAX_BLOCK_BYTES: Final = 4 << 20

FAST, BETTER, BEST = lib.S2_FAST, lib.S2_BETTER, lib.S2_BEST


class S2(Chunks):
    def __init__(self, level: int | None = FAST) -> None:
        super().__init__("s2", IDENTIFIERS, MAX_BLOCK_BYTES, None, uncompress)
        self.set_level(level)

    def set_level(self, level: int | None) -> None:
        """Of what is said from now on; None: it is not compressed."""
        self.compress = COMPRESS[level] if level is not None else None


def compress(level: int, block: memoryview | bytes) -> bytes:
    """A block, of at most 64 KiB."""
    room = len(block) + lib.S2_ENCODED_EXTRA
    out = ffi.new("uint8_t[]", room)
    size = lib.s2_encode(ffi.from_buffer(block), len(block), out, room, level)
    return bytes(ffi.buffer(out, size))


COMPRESS: Final[Mapping[int, Compress]] = {level: functools.partial(compress, level) for level in (FAST, BETTER, BEST)}


def uncompress(packed: memoryview | bytes, most: int = MAX_BLOCK_BYTES) -> bytes:
    """A block, to so many bytes at most. Raises FilterError."""
    with ffi.from_buffer(packed) as block:
        size = lib.s2_decoded_bytes(block, len(packed))
        # Before room is made for it.
        if not 0 <= size <= most:
            raise FilterError("s2: a chunk that is too large when it is uncompressed")
        out = bytearray(size)
        if lib.s2_decode(block, len(packed), ffi.from_buffer(out), size) != size:
            raise FilterError("s2: corrupt input")
    return bytes(out)
