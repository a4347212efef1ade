"""Where things are in the header of a segment and the heads of its records, by csrc/log/log.h."""

from __future__ import annotations

from typing import Final

from mq_shards.csrc._core import ffi
from mq_shards.csrc.structs import packed
from mq_shards.shards.checksum import crc32c

SEGMENT_HEADER_BYTES: Final[int] = ffi.sizeof("struct segment_header")
SEGMENT_CRC_AT: Final[int] = ffi.offsetof("struct segment_header", "crc")  # it is of the bytes before it
RECORD_BYTES: Final[int] = ffi.sizeof("struct record")
RECORD_CRC_END: Final[int] = ffi.offsetof("struct record", "kind")  # what follows is under the CRC as it is


def record_crc_begun(size: int, segment: int) -> int:
    """The CRC of a record's bytes before RECORD_CRC_END, with the segment's number in the place of `crc`."""
    return crc32c(packed("record", bytes=size, crc=segment)[:RECORD_CRC_END])
