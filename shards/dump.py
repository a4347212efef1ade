"""Records in a data directory, for tests and for people who want to see what a log holds:

    python -m mq_shards.shards.store dump DIR [--shard N] [--segment N]

Only looks: a broker may be using it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mq_shards.csrc.structs import struct_in
from mq_shards.shards import durable, medium
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.layout import (
    RECORD_BYTES,
    RECORD_CRC_END,
    SEGMENT_HEADER_BYTES,
    record_crc_begun,
)
from mq_shards.shards.manifest import NAME as MANIFEST
from mq_shards.shards.meta import read_meta
from mq_shards.shards.paths import SEGMENT_NAME, SHARD_NAME, shard_path
from mq_shards.shards.segment_header import decode_header, first_not_zero, lacks_header
from mq_shards.shards.store_error import StoreError, explained


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    kind: int
    flags: int
    topic: int
    seq: int
    time_ns: int
    id: int
    attributes: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [offset, until) of a segment that are no whole record. At a log's end: a write that a crash cut short."""

    offset: int
    until: int


def _whole_record(content: bytes, offset: int, segment: int) -> tuple[Record, int] | None:
    """The record that begins at `offset`, and its length, if there is one."""
    if offset + RECORD_BYTES > len(content):
        return None
    head = struct_in("record", content, offset)
    attributes = offset + RECORD_BYTES
    body, end = attributes + head.attribute_bytes, offset + head.bytes
    if head.kind == 0 or body > end or end > len(content):
        return None
    if crc32c(content[offset + RECORD_CRC_END : end], record_crc_begun(head.bytes, segment)) != head.crc:
        return None
    record = Record(
        offset, head.kind, head.flags, head.topic, head.seq, head.time_ns, head.id, content[attributes:body],
        content[body:end],
    )  # fmt: skip
    return record, head.bytes


def decode(content: bytes) -> Iterator[Record | Damage]:
    """The records of a segment in order, and the damaged places. Raises StoreError if the header is wrong."""
    segment = decode_header(content).segment
    offset = SEGMENT_HEADER_BYTES
    while offset < len(content):
        found = _whole_record(content, offset, segment)
        if found:
            yield found[0]
            offset += (found[1] + 7) // 8 * 8
            continue
        place, damaged = offset, first_not_zero(content, offset)
        # A record begins with its length, which is not 0, at a multiple of 8.
        while damaged < len(content):
            offset = damaged // 8 * 8
            if offset != place and _whole_record(content, offset, segment):
                break
            damaged = first_not_zero(content, offset + 8)
        else:
            offset = len(content)
            if first_not_zero(content, place) == len(content):
                return
        yield Damage(place, offset)


def decode_segment(source: Path | bytes) -> Iterator[Record | Damage]:
    """Decodes a segment, given as a file or as its bytes."""
    if isinstance(source, bytes):
        yield from decode(source)
        return
    with explained(f"{source} cannot be read"), os.fdopen(durable.open_to_read(source), "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            yield from decode(b"")
            return
        yield from decode(medium.read(file.fileno(), os.fstat(file.fileno()).st_size, 0))


def _described(entry: Record | Damage) -> str:
    if isinstance(entry, Damage):
        return f"offset {entry.offset}: damaged up to {entry.until}"
    # Any 64 bits may stand there; a year beyond 9999 does not fit a datetime.
    try:
        when = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=entry.time_ns // 1000)).isoformat()
    except OverflowError:
        when = f"{entry.time_ns} ns"
    shown = repr(entry.body[:60]) + ("..." if len(entry.body) > 60 else "")
    attributes = f" attributes {entry.attributes.hex()}" if entry.attributes else ""
    return (
        f"offset {entry.offset}: kind {entry.kind} flags {entry.flags} topic {entry.topic} seq {entry.seq} "
        f"id {entry.id} time {when}{attributes} body {len(entry.body)} bytes {shown}"
    )


def _end(entry: Record | Damage) -> int:
    if isinstance(entry, Damage):
        return entry.until
    return entry.offset + (RECORD_BYTES + len(entry.attributes) + len(entry.body) + 7) // 8 * 8


def _previous_end(following: Path | None) -> int:
    """Where the records of a segment end, as the header of the following one says; 0: it is not known."""
    if following is None:
        return 0
    with contextlib.suppress(OSError, StoreError), following.open("rb") as file:
        return decode_header(file.read(SEGMENT_HEADER_BYTES)).previous_end
    return 0


def _waits(path: Path, is_last: bool) -> bool:
    with explained(f"{path} cannot be read"), os.fdopen(durable.open_to_read(path), "rb") as file:
        return lacks_header(file.fileno(), is_last=is_last)


def _listed(path: Path) -> set[int]:
    """The segments that the manifest of a shard's folder lists and that are not being removed. If it cannot be read:
    none."""
    try:
        found = json.loads(durable.read(path / MANIFEST))
        return {int(number) for number in found["segments"]} - set(map(int, found["going"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, durable.NotAFileError):
        return set()


def _files(path: Path) -> tuple[dict[int, Path], set[int]]:
    """A shard's segments by number, and the numbers of those that it should have and has not."""
    # A segment's file is created before it is listed, and removed after it was: hence the order of these looks.
    before = _listed(path)
    names = ((file, SEGMENT_NAME.fullmatch(file.name)) for file in sorted(path.glob("*.log")))
    files = {int(name[1]): file for file, name in names if name}
    return files, before & _listed(path) - set(files)


def dump(directory: Path, shard: int | None, segment: int | None) -> Iterator[tuple[str, bool]]:
    """Lines about the records in a data directory, each with whether it reports damage, or that something is missing. A
    broker may be running."""
    shards = {path for path in directory.glob("shard-*") if SHARD_NAME.fullmatch(path.name)}
    if not shards:
        raise StoreError(f"{directory} is not a data directory: it has no shards")
    with contextlib.suppress(StoreError):  # without meta.json, those that are there
        shards.update(shard_path(directory, number) for number in range(read_meta(directory).shards))
    has_wanted = segment is None
    for path in sorted(shards) if shard is None else [shard_path(directory, shard)]:
        if not path.is_dir():
            yield f"{path.name} is missing", True
            continue
        files, missing = _files(path)
        for number in sorted({*files, *missing}):
            if segment not in (None, number):
                continue
            has_wanted = True
            where = f"{path.name} {number:010d}"
            if number in missing:
                yield f"{where} is missing", True
                continue
            file = files[number]
            try:
                if _waits(file, number == max(files)):
                    yield f"{where} waits for its first record", False
                    continue
                end = SEGMENT_HEADER_BYTES
                for entry in decode_segment(file):
                    yield f"{where} {_described(entry)}", isinstance(entry, Damage)
                    end = _end(entry)
                if end < (wrote_until := _previous_end(files.get(number + 1))):
                    yield f"{where} {_described(Damage(end, wrote_until))}", True
            except StoreError as error:
                yield f"{where}: {error}", True
    if not has_wanted:
        where = str(directory) if shard is None else shard_path(directory, shard).name
        yield f"{where} has no segment {segment}", True


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m mq_shards.shards.store", description="Look into a data directory.")
    command = parser.add_subparsers(dest="command", required=True).add_parser("dump", help="print the records")
    command.add_argument("directory", type=Path, metavar="DIR")
    command.add_argument("--shard", type=int, metavar="N", help="of this shard only")
    command.add_argument("--segment", type=int, metavar="N", help="of this segment only")
    options = parser.parse_args(argv)
    damaged = False
    try:
        for line, tells_damage in dump(options.directory, options.shard, options.segment):
            print(line)
            damaged |= tells_damage
    except StoreError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # `dump DIR | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if damaged else 0
