"""CRC-32C, the core's: of records and headers; and of a topic's name, whose shard it tells."""

from __future__ import annotations

from mq_shards.csrc._core import ffi, lib


def crc32c(data: bytes | memoryview, start: int = 0) -> int:
    """Goes on from `start`, the CRC of what is before."""
    return int(lib.crc32c_extend(start, ffi.from_buffer(data), len(data)))
