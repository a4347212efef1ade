"""Reads the logs of a worker's shards back into its core, and says what is damaged or lost."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Sequence
from typing import Any

from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf.control import Message
from mq_shards.shards import heads
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.made import keep_copies, with_copies
from mq_shards.shards.paths import heads_name, segment_name
from mq_shards.shards.segment_header import WHAT_TO_DO, decode_version
from mq_shards.shards.shard_files import ShardFiles
from mq_shards.shards.store import Recovered
from mq_shards.shards.store_error import StoreError

log = logging.getLogger(__name__)


class Recovery:
    def __init__(self, worker: Any, refuses_damage: bool) -> None:  # noqa: ANN401
        self._worker = worker
        self._refuses_damage = refuses_damage
        self._began = time.monotonic()
        self._found = ffi.new("struct replay *")
        self._recovered: dict[int, Recovered] = {}  # by shard
        self._whole: set[int] = set()  # shards of which all segments have to be read
        self._told: set[tuple[int, int]] = set()  # (shard, segment) of which a line tells that its end is lost

    def begin_anew(self, worker: Any) -> None:  # noqa: ANN401
        """For a worker to which no shard has been given yet."""
        self._worker, self._found = worker, ffi.new("struct replay *")

    def _look(self, shard: int, files: ShardFiles) -> Recovered:
        if shard in self._recovered:
            return self._recovered[shard]
        recovered = self._recovered[shard] = files.store.recover(self._refuses_damage)
        for line in recovered.problems:
            log.error("shard %d: %s", shard, line)
        self._told.update((shard, number) for number in recovered.missing)
        for line in recovered.notes:
            log.warning("shard %d: %s", shard, line)
        return recovered

    def shard(self, shard: int, files: ShardFiles, *, lost_end: bool = False) -> bool:
        """Gives a shard's segments to the core, which reads them. False: something is damaged, and all segments have to
        be read, by another worker (`begin_anew`). `lost_end`: what was written last may be lost without a trace. Raises
        StoreError if it is refused."""
        found = self._found
        if not lib.worker_own(self._worker, shard):
            raise MemoryError
        recovered = self._look(shard, files)
        segments, read_from = recovered.segments, 0 if shard in self._whole else recovered.read_from
        for number in segments:
            fd = files.store.open(number)
            status = os.fstat(fd)
            files.sealed_at[number] = status.st_mtime
            size = max(int(lib.SEGMENT_BYTES), status.st_size)
            if not lib.worker_add_segment(self._worker, shard, fd, number, size, False, time.time_ns()):
                why = _why_refused(ffi.errno, fd)
                os.close(fd)
                raise StoreError(f"shard {shard}, segment {number} {why}")
            if number >= read_from:
                keep_copies(self._worker, shard, number, with_copies(files.store, number, fd))
        # Where something is wrong with the files, or nothing may be, all that there is is looked at.
        if not recovered.problems and not self._refuses_damage:
            self._use_heads(shard, files, [n for n in segments[:-1] if n >= recovered.read_from])
        files.read_from = recovered.read_from
        lib.worker_read_from(self._worker, shard, read_from)
        lib.worker_ended(self._worker, shard, *recovered.ended)
        if lost_end:
            lib.worker_lost_end(self._worker, shard)
        damages = int(found.damages)
        has_log = bool(segments) or lost_end
        if has_log and not lib.worker_replay(self._worker, shard, found, time.monotonic_ns(), time.time_ns()):
            if found.unknown.kind:
                at = found.unknown
                raise StoreError(
                    f"shard {shard}, segment {at.segment}, offset {at.offset}: a record of kind {at.kind}, which a "
                    f"later release wrote: {WHAT_TO_DO}"
                )
            if ffi.errno == errno.EAGAIN:
                self._whole.add(shard)
                return False
            why = os.strerror(ffi.errno)
            raise StoreError(f"shard {shard} can neither be cut nor overwritten where it ends: {why}")
        if found.uncut:
            log.warning(
                "shard %d, segment %d cannot be cut where it ends (%s): zeros are written there, and the next is begun",
                shard, found.uncut, os.strerror(found.uncut_errno),
            )  # fmt: skip
            found.uncut = 0
        self._compare_end(shard, found.damage[damages : min(found.damages, len(found.damage))], *recovered.ended)
        return True

    def _use_heads(self, shard: int, files: ShardFiles, segments: Sequence[int]) -> None:
        for number in segments:
            path = files.store.path_of(number)
            why = heads.use(self._worker, shard, path) if path else None
            if why:
                log.warning(
                    "shard %d: %s is not used: %s; all of %s is read instead",
                    shard, heads_name(number), why, segment_name(number),
                )  # fmt: skip
            elif why is not None:
                files.headed.add(number)

    def _compare_end(self, shard: int, damage: Sequence[Any], segment: int, ended: int) -> None:
        """Compares the log's end with that at the last stop: a log cut off later looks like one with a torn write."""
        torn = [d.offset for d in damage if d.segment == segment and d.offset == d.until]
        is_last = segment == lib.worker_active_segment(self._worker, shard)
        end = self._found.end if is_last else lib.worker_segment_bytes(self._worker, shard, segment)
        end = min([end, *torn])
        if not 0 < end < ended:
            return
        what = f"{segment_name(segment)} ends at {end}, and ended at {ended} when the broker was stopped"
        if self._refuses_damage:
            raise StoreError(f"shard {shard} is refused: {what} (--damage serve does without)")
        log.error("shard %d: %s: the messages between are lost", shard, what)
        self._told.add((shard, segment))

    def tell_of_lost_names(self, shards: Sequence[int]) -> None:
        messages = ffi.new("uint64_t *")
        for shard in shards:
            topics = lib.worker_nameless(self._worker, shard, messages)
            if topics:
                log.error(
                    "shard %d: the names of topics are damaged (%d), and what they hold (%d messages) is in tubes "
                    "lost+found/shard-%d/...: reserve it there, or see it with python -m mq_shards.shards.store dump",
                    shard, topics, messages[0], shard,
                )  # fmt: skip

    def report(self) -> Message:
        """What the supervisor is told of it."""
        found = self._found
        damage = [
            _damage(d)
            for d in found.damage[0 : min(found.damages, len(found.damage))]
            if d.offset != d.until or (d.shard, d.segment) not in self._told
        ]
        return {
            "records": found.records,
            "jobs": found.jobs,
            "bytes": found.bytes,
            "seconds": time.monotonic() - self._began,
            "damage": damage,
        }


def _why_refused(code: int, fd: int) -> str:
    if code == errno.EPROTO:
        version = decode_version(os.pread(fd, SEGMENT_HEADER_BYTES, 0))
        known = f"{lib.SEGMENT_OLDEST} to {lib.SEGMENT_VERSION}"
        return f"is of version {version}, and this release reads {known}: {WHAT_TO_DO}"
    return "belongs to another log" if code == errno.EINVAL else f"cannot be used: {os.strerror(code)}"


def _damage(place: Any) -> Message:  # noqa: ANN401
    """A struct damage as the supervisor will report it."""
    torn = place.offset == place.until
    if torn:
        reason = "no whole record follows: it is a write that a crash cut short, of which nobody was told, or damage"
    else:
        what = f"{place.until - place.offset} bytes are" if place.offset else "the header is"
        reason = f"{what} damaged; what is whole after that is served"
    where = {"shard": place.shard, "segment": place.segment, "offset": place.offset}
    return {**where, "torn": torn, "reason": reason}
