"""The header of a segment: csrc/log/layout.h has it as the C core writes it."""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from mq_shards.csrc._core import lib
from mq_shards.csrc.structs import packed, struct_in
from mq_shards.shards import medium
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.layout import SEGMENT_CRC_AT, SEGMENT_HEADER_BYTES
from mq_shards.shards.store_error import StoreError

SEGMENT_VERSIONS: Final = range(lib.SEGMENT_OLDEST, lib.SEGMENT_VERSION + 1)
PIECE_BYTES: Final = 1 << 16
LARGE_BEFORE_BYTES: Final = 4 * PIECE_BYTES  # less than NAMES_MEANWHILE, csrc/shards/naming.c
WHAT_TO_DO: Final = "start the release that wrote it, or one that is newer; nothing has been changed"


class Header(NamedTuple):
    shard: int
    shards: int
    segment: int
    time_ns: int
    previous_end: int = 0  # where the previous segment ends; 0: there was none
    missing: int = 0  # for how many missing segments it was put there
    log_began_ns: int = 0  # wall clock, the same in all segments of a log; 0: not known


def is_zeros(fd: int, size: int) -> bool:
    """Whether the first `size` bytes of a file are zeros; what cannot be read is not."""
    pieces = range(0, size, PIECE_BYTES)
    return not any(medium.is_failing(fd, PIECE_BYTES, at) or any(os.pread(fd, PIECE_BYTES, at)) for at in pieces)


def lacks_header(fd: int, *, is_last: bool) -> bool:
    """Whether a segment has no header yet, which is written first. Only in a shard's last segment a part of a large
    message may come before it, behind LARGE_BEFORE_BYTES of zeros (csrc/log/large.c)."""
    size = os.fstat(fd).st_size
    return size < SEGMENT_HEADER_BYTES or is_zeros(fd, min(size, LARGE_BEFORE_BYTES) if is_last else size)


def decode_version(header: bytes) -> int:
    """The version in a segment's header, known or not."""
    return int(struct_in("segment_header", header).version)


def is_header(content: bytes) -> bool:
    """Whether this is an undamaged header, of any version."""
    header = struct_in("segment_header", content)
    return bool(header.magic == lib.SEGMENT_MAGIC and header.crc == crc32c(content[:SEGMENT_CRC_AT]))


def is_of_another_kind(content: bytes) -> bool:
    """Whether this is an undamaged header of a file that is no segment, as heads of segments have it."""
    header = struct_in("segment_header", content)
    return bool(header.magic != lib.SEGMENT_MAGIC and header.crc == crc32c(content[:SEGMENT_CRC_AT]))


def decode_header(content: bytes) -> Header:
    if len(content) < SEGMENT_HEADER_BYTES:
        raise StoreError(f"a segment has a header of {SEGMENT_HEADER_BYTES} bytes, this has {len(content)} in all")
    header = struct_in("segment_header", content)
    if header.magic != lib.SEGMENT_MAGIC:
        raise StoreError("this is not a segment: its header does not begin like one")
    if header.crc != crc32c(content[:SEGMENT_CRC_AT]):
        raise StoreError("the segment's header is damaged: its CRC is wrong")
    if header.version not in SEGMENT_VERSIONS:
        known = " and ".join(map(str, SEGMENT_VERSIONS))
        raise StoreError(f"the segment is of version {header.version}, and this release reads {known}: {WHAT_TO_DO}")
    return Header(*(getattr(header, name) for name in Header._fields))


def encode_header(header: Header) -> bytes:
    fields = {"magic": lib.SEGMENT_MAGIC, "version": lib.SEGMENT_VERSION, **header._asdict()}
    crc = crc32c(packed("segment_header", **fields)[:SEGMENT_CRC_AT])
    return packed("segment_header", **fields, crc=crc)


def first_not_zero(content: bytes, start: int) -> int:
    found = re.compile(rb"[^\0]").search(content, start)
    return found.start() if found else len(content)
