"""The index of a sealed segment, in a file beside it: `0000000007.index`. It can always be made again from the segment.

    0    8   magic
    8    4   version
    12   4   CRC-32C of everything from 16 on
    16   64  the segment's header, which the index of another segment of that name would not match
    80   8   the segment's size, without space allocated ahead
    88   32  counts: topic numbers that occur, stretches, names, bytes of names, damaged places; topic numbers and
             stretches of what is staged, aborted transactions
    120      the columns of `Stretches` in their order, and once more of what is staged; of names: number (u4), next seq
             (u8), where the name ends (u4), the names; of damaged places: offset, until (u8); of aborted transactions:
             topic number, transaction (u8); each column padded to a multiple of 8

All numbers are little-endian. The file can be mapped while it is used, since it is never truncated.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mq_shards.shards import durable, medium
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.reader.segment import Damage, Known, Segment
from mq_shards.shards.reader.stretches import COLUMNS, OF_TOPICS, Stretches, merge

MAGIC: Final = 0x58444E4951534D71
VERSION: Final = 2
_HEAD: Final = struct.Struct("<QII64sQ8I")
_CRC_FROM: Final = 16
assert _HEAD.size % 8 == 0


def index_path(segment: Path) -> Path:
    return segment.with_suffix(".index")


def save(path: Path, segment: Segment, size: int) -> None:
    """Saves the index of the segment at `path`, which ends at `size`: all of it, or nothing. Raises OSError."""
    part, staged = (found[0] if found else merge([]) for found in (segment.parts, segment.staged))
    names = b"".join(known.name for known in segment.topics.values())
    columns: list[npt.NDArray[Any]] = [
        np.ascontiguousarray(getattr(of, name), kind) for of in (part, staged) for name, kind in COLUMNS.items()
    ]
    columns += [
        np.array(list(segment.topics), "<u4"),
        np.array([known.next_seq for known in segment.topics.values()], "<u8"),
        np.cumsum([len(known.name) for known in segment.topics.values()], dtype="<u4"),
        np.frombuffer(names, "u1"),
        np.array([(place.offset, place.until) for place in segment.damage], "<u8"),
        np.array(sorted(segment.aborted), "<u8"),
    ]
    body = b"".join(_padded(column.tobytes()) for column in columns)
    counts = [len(part.number), len(part), len(segment.topics), len(names), len(segment.damage)]
    counts += [len(staged.number), len(staged), len(segment.aborted)]
    head = _HEAD.pack(MAGIC, VERSION, 0, segment.header, size, *counts)
    crc = crc32c(body, crc32c(head[_CRC_FROM:]))
    head = _HEAD.pack(MAGIC, VERSION, crc, segment.header, size, *counts)
    target = index_path(path)
    new = target.with_suffix(".index.new")
    try:
        with os.fdopen(durable.open_anew(new), "wb") as file:
            file.write(head)
            file.write(body)
        new.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def load(path: Path, number: int, header: bytes, size: int) -> Segment | None:
    """The segment as it was saved; None if its index is missing, damaged, or that of another segment."""
    try:
        fd = durable.open_to_read(index_path(path))
    except OSError:
        return None
    try:
        if os.fstat(fd).st_size < _HEAD.size:
            return None
        if medium.is_failing(fd, os.fstat(fd).st_size, 0):
            return None
        content = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    except OSError:
        return None
    finally:
        os.close(fd)
    magic, version, crc, of_header, of_size, *counts = _HEAD.unpack_from(content)
    if (magic, version, of_header, of_size) != (MAGIC, VERSION, header, size):
        return None
    if crc32c(memoryview(content)[_CRC_FROM:]) != crc:
        return None
    return _decode(content, number, header, size, counts)


def _decode(content: mmap.mmap, number: int, header: bytes, size: int, counts: list[int]) -> Segment | None:
    topics, stretches, names, name_bytes, damages, staged_topics, staged, aborted = counts
    at = _HEAD.size

    def column(kind: str, count: int) -> npt.NDArray[Any]:
        nonlocal at
        array = np.frombuffer(content, kind, count, at)
        at += (array.nbytes + 7) // 8 * 8
        return array

    def part(topics: int, stretches: int) -> list[Stretches]:
        columns = [
            column(kind, topics if place < OF_TOPICS else stretches) for place, kind in enumerate(COLUMNS.values())
        ]
        return [Stretches(*columns)] if stretches else []

    segment = Segment(number, header, size, sealed=True)
    try:
        segment.parts, segment.staged = part(topics, stretches), part(staged_topics, staged)
        numbers, next_seqs, ends = column("<u4", names), column("<u8", names), column("<u4", names)
        text = column("u1", name_bytes).tobytes()
        places = column("<u8", 2 * damages).reshape(damages, 2)
        segment.aborted = {(topic, txn) for topic, txn in column("<u8", 2 * aborted).reshape(aborted, 2).tolist()}
    except ValueError:
        return None
    start = 0
    for topic, next_seq, end in zip(numbers.tolist(), next_seqs.tolist(), ends.tolist(), strict=True):
        segment.topics[topic] = Known(text[start:end], next_seq)
        start = end
    segment.damage = [Damage(offset, until) for offset, until in places.tolist()]
    return segment


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
