"""The heads of sealed segments: a start reads these instead (csrc/log/heads.h, docs/log.md).

They are made by the errands' thread from the segment alone, and never change. Without them the segment is read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

from mq_shards.csrc._core import ffi, lib
from mq_shards.shards import durable
from mq_shards.shards.paths import heads_name
from mq_shards.shards.retention import Segment

# Most messages are done with sooner, and then a start passes over their segment anyway.
SEALED_FOR_S: Final = 60.0
# Larger ones, of small messages, are written for little: a start takes its time for each record, not for its bytes.
PART: Final = 1 / 4


def due(sealed: Sequence[Segment], made: Collection[int], begin: int, cut: int, now: float) -> Segment | None:
    """The next segment whose heads are worth writing: a start would read it from `begin` on; those up to `cut` have
    been cut to their length."""
    for segment in sealed:
        if begin <= segment.number <= cut and segment.number not in made and now - segment.sealed_at >= SEALED_FOR_S:
            return segment
    return None


def write(segment: Path, end: int) -> bool:
    """Writes the heads of a segment beside it, durably. False: a start does as well without. Raises OSError."""
    final = segment.with_name(heads_name(int(segment.stem)))
    new = final.with_name(final.name + ".new")
    records = durable.open_to_read(segment)
    try:
        # What is told of it must not be on the disk before it.
        os.fdatasync(records)
        with os.fdopen(durable.open_anew(new), "wb", buffering=0) as heads:
            written = lib.heads_write(records, heads.fileno(), end, int(PART * end))
            if written == lib.HEADS_FAILED:
                raise OSError(ffi.errno, os.strerror(ffi.errno), str(new))
            if written == lib.HEADS_WRITTEN:
                os.fsync(heads.fileno())
                new.replace(final)
                durable.sync_directory(final.parent)
    finally:
        os.close(records)
        new.unlink(missing_ok=True)
    return bool(written == lib.HEADS_WRITTEN)


def remove(segment: Path) -> None:
    """Has the next start read a segment. Raises OSError."""
    segment.with_name(heads_name(int(segment.stem))).unlink(missing_ok=True)
    durable.sync_directory(segment.parent)


def use(worker: Any, shard: int, segment: Path) -> str | None:  # noqa: ANN401
    """Gives the core the heads of a segment at a start. Returns "", or why it has to be read; None: it has none."""
    path = segment.with_name(heads_name(int(segment.stem)))
    try:
        fd = durable.open_to_read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror or str(error)
    try:
        found = lib.worker_use_heads(worker, shard, fd, int(segment.stem))
    finally:
        os.close(fd)
    return {lib.HEADS_FOUND: "", lib.HEADS_OTHER: "it is not of what the segment has now"}.get(found, "it is damaged")
