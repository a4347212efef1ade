"""The core's CRC-32C: of records and headers, and of a topic's name, from which its shard follows."""

from __future__ import annotations

from mq_shards.csrc._core import ffi, lib


def crc32c(data: bytes | memoryview, start: int = 0) -> int:
    """The CRC of `data`, continued from `start`, the CRC of the bytes before it."""
    return int(lib.crc32c_extend(start, ffi.from_buffer(data), len(data)))
