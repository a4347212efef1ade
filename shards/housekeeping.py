"""What becomes of the segments of a worker's shards: they are listed, cut, read ahead, emptied, passed over, dropped.

All of it is done a little at a time, between turns. What waits for the disk is an errand, if there is a disk.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from mq_shards.csrc._core import ffi, lib
from mq_shards.shards import durable, heads, retention
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.erased import ErasedSegments, Mark
from mq_shards.shards.errands import Errands, no_matter
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.readers import Unread
from mq_shards.shards.refusals import NO_SPACE_ERRORS
from mq_shards.shards.retention import Retention, Segment
from mq_shards.shards.shard_files import ShardFiles
from mq_shards.shards.store_error import StoreError

ROLL_EVERY_S: Final = 600.0
# How much of an old segment is looked at between two turns: half a millisecond of work.
COMPACT_BYTES: Final = 1 << 17
READ_AHEAD_BYTES: Final = 1 << 20
# For this long after a publish was refused because the disk was full, nothing is retained without need.
DISK_FULL_S: Final = 10.0

log = logging.getLogger(__name__)


class Housekeeping:
    def __init__(
        self,
        own: Sequence[int],
        shards: int,
        files: Mapping[int, ShardFiles],
        retained: Retention,
        data_dir: Path | None,
        at_once: int,
        *,
        background_sync: bool,
    ) -> None:
        """Looks after the shards `own` of all `shards`, `at_once` of them at a time, in the order of `own`. `data_dir`:
        None with --memory. `background_sync`: what is written comes to the disk by itself."""
        self.core: Any = None  # the worker in C, which has read its shards back
        self.errands: Errands | None = None  # set once it serves, if it has a disk to wait for
        self._own = own
        self._shards = shards
        self._files = files
        self._retention = retained
        self._unread = None if data_dir is None else Unread(data_dir)
        self._erased = None if data_dir is None else ErasedSegments(data_dir)
        self._at_once = at_once
        self._background_sync = background_sync
        self._heading = False  # whether heads of a segment are being written; one at a time, so that a stop is soon
        self._next = 0
        self._disk_full_until = 0.0

    def disk_is_full(self) -> None:
        self._disk_full_until = time.monotonic() + DISK_FULL_S

    @property
    def is_disk_full(self) -> bool:
        return time.monotonic() < self._disk_full_until

    def tidy(self) -> bool:
        """Drops segments that may go, and compacts some that should. True if there is more to do."""
        busy = bool(lib.worker_trim_spares(self.core))
        self.look_at_readers()
        if self._erased is not None:
            self._erased.refresh()
        some = len(self._own) if self.is_disk_full else min(self._at_once, len(self._own))
        for n in range(self._next, self._next + some):
            busy |= self._tidy_shard(self._own[n % len(self._own)])
        self._next += 0 if busy else some
        if self._next >= len(self._own):
            self._next = 0
            lib.worker_retry_segments(self.core)
        return busy

    def look_at_readers(self) -> None:
        if self._unread is None:
            return
        before, error = self._unread.topics, self._unread.error
        self._unread.refresh()
        if self._unread.error and self._unread.error != error:
            log.error("no segment is dropped until what readers have read is known: %s", self._unread.error)
        if bool(self._unread.error) != bool(error):
            for shard in self._own:
                self._keep_named_topics(shard)
        if self._unread.topics is before:
            return
        by_shard: dict[int, dict[str, int]] = {shard: {} for shard in self._own}
        for topic, seq in self._unread.topics.items():
            shard = crc32c(topic.encode("latin-1", "replace")) % self._shards
            if shard in by_shard:
                by_shard[shard][topic] = seq
        for shard, topics in by_shard.items():
            unread = self._files[shard].unread
            assert unread is not None
            unread.set(topics)
            self._keep_named_topics(shard)

    def _is_unread(self, shard: int, segment: int) -> bool:
        unread = self._files[shard].unread
        if unread is None or self._unread is None:
            return False
        return bool(self._unread.error) or unread.hold(segment)

    def _tidy_shard(self, shard: int) -> bool:
        core = self.core
        first, active = lib.worker_first_segment(core, shard), lib.worker_active_segment(core, shard)
        if active and lib.worker_move_names(core, shard, 0) == lib.NAMES_MORE:
            return True
        if self.is_disk_full and active and self._mostly_dead(shard, active):
            # Everything is in the active segment, which cannot go while it is active.
            lib.worker_roll(core, shard)
        files, mark = self._files[shard], self._mark_of(shard)
        if active and active <= mark.last and not self.is_disk_full and time.monotonic() >= files.roll_at:
            # Erased messages cannot go while their segment is being written to, and it may never fill.
            lib.worker_roll(core, shard)
            if lib.worker_active_segment(core, shard) != active:
                files.roll_at = time.monotonic() + ROLL_EVERY_S
        if active:
            files.note_sealed(first, active, time.time())
            self._note_begun(shard, active)
        if first == 0 or first == active:
            return False
        self._cut(shard, active)
        total = ffi.new("uint64_t *")
        sealed = []
        for number in range(first, active):
            live = lib.worker_live_jobs(core, shard, number, total)
            sealed.append(
                Segment(
                    number,
                    lib.worker_segment_bytes(core, shard, number),
                    files.sealed_at[number],
                    live,
                    total[0],
                    lib.worker_segment_names(core, shard, number),
                    erased=number <= mark.last,
                    soon=number <= mark.soon,
                )
            )
        active_bytes = lib.worker_segment_bytes(core, shard, active)
        decision = retention.decide(
            sealed, active_bytes, self._retention, time.time(), self.is_disk_full, partial(self._is_unread, shard)
        )
        if decision.drop:
            # Segments behind the dead ones are looked at when those are gone.
            return self._drop(shard, decision.drop)
        if self.errands is not None and not self.is_disk_full and self._pass_over(shard, sealed):
            return True
        self._write_heads(shard, sealed)
        if not decision.compact:
            return self._empty_thin(shard, sealed)
        if not self._is_warm(shard, first):
            return False
        return not lib.worker_compact(core, shard, COMPACT_BYTES)

    def _note_begun(self, shard: int, active: int) -> None:
        """Has the newest segment listed as begun, so that zeros or another log in its place show after a kill."""
        files, end = self._files[shard], lib.worker_segment_bytes(self.core, shard, active)
        if self.errands is not None and files.noted != active and end > SEGMENT_HEADER_BYTES:
            files.noted = active
            self.errands.run(files.store.note_begun, no_matter, StoreError)

    def _mark_of(self, shard: int) -> Mark:
        if self._erased is None:
            return Mark()
        return self._erased.mark_of(shard, lib.worker_log_began(self.core, shard))

    def _cut(self, shard: int, active: int) -> None:
        """Cuts sealed segments to their length, which frees space allocated ahead. If that fails, zeros remain, which
        mark the end as well."""
        files = self._files[shard]
        if self.errands is None:
            return
        for number in range(max(files.cut + 1, lib.worker_first_segment(self.core, shard)), active):
            path, end = files.store.path_of(number), lib.worker_segment_bytes(self.core, shard, number)
            if path is not None and end:
                self.errands.run(partial(os.truncate, path, end), no_matter)
            files.cut = number

    def _is_warm(self, shard: int, number: int) -> bool:
        """Whether the segment was read into the page cache, so that moving its messages does not wait for the disk."""
        files = self._files[shard]
        path = files.store.path_of(number)
        if self.errands is None or path is None or files.warmed == number:
            return True
        if files.warming != number:
            files.warming = number
            self._warm(shard, number, path, 0)
        return False

    def _warm(self, shard: int, number: int, path: Path, offset: int) -> None:
        """Reads a segment ahead piece by piece, so that other errands need not wait for a whole segment."""
        assert self.errands is not None
        self.errands.run(partial(_read_ahead, path, offset), partial(self._has_warmed, shard, number, path, offset))

    def _has_warmed(self, shard: int, number: int, path: Path, offset: int, result: int | OSError) -> None:
        if result == READ_AHEAD_BYTES and self.errands is not None:
            self._warm(shard, number, path, offset + READ_AHEAD_BYTES)
        else:
            self._files[shard].warmed = number  # or it cannot be read ahead; moving its messages will show why

    def _mostly_dead(self, shard: int, segment: int) -> bool:
        total = ffi.new("uint64_t *")
        live = lib.worker_live_jobs(self.core, shard, segment, total)
        return bool(total[0]) and live < retention.WORTH_MOVING * total[0]

    def _pass_over(self, shard: int, sealed: Sequence[Segment]) -> bool:
        """Notes from which segment on the next start has to read, once what it needs of those before is on disk in
        later ones. True if there is more to do."""
        files = self._files[shard]
        if not files.passing:
            needed = lib.worker_needed_from(self.core, shard, files.read_from)
            if not needed or not retention.worth_passing(sealed, files.read_from, needed):
                return False
            moved = lib.worker_move_names(self.core, shard, needed - 1)
            if moved != lib.NAMES_MOVED:
                return bool(moved == lib.NAMES_MORE)
            files.passing, files.passing_until = needed, lib.worker_appended(self.core, shard)
        if self._background_sync:
            if lib.worker_synced(self.core, shard) < files.passing_until:
                return False
        elif not lib.worker_flush(self.core):
            return False
        assert self.errands is not None
        files.read_from, files.passing = files.passing, 0
        self.errands.run(partial(files.store.note_read_from, files.read_from), no_matter, StoreError)
        return False

    def _write_heads(self, shard: int, sealed: Sequence[Segment]) -> None:
        """Has the heads of the next sealed segment written, if a start would read the segment."""
        files = self._files[shard]
        if self.errands is None or self.is_disk_full or self._heading:
            return
        segment = heads.due(sealed, files.headed, files.read_from, files.cut, time.time())
        path = files.store.path_of(segment.number) if segment else None
        if segment is None or path is None:
            return
        self._heading = True
        self.errands.run(partial(heads.write, path, segment.bytes), partial(self._headed, shard, segment.number))

    def _headed(self, shard: int, number: int, result: bool | OSError) -> None:
        """Where the disk has no room for them a start does without, until one has begun."""
        self._heading = False
        self._files[shard].headed.add(number)
        if isinstance(result, OSError) and result.errno not in NO_SPACE_ERRORS:
            log.warning("shard %d: a start will read more than it might: %s", shard, result)

    def _empty_thin(self, shard: int, sealed: Sequence[Segment]) -> bool:
        """Moves the few messages that keep a start from passing over a segment. True if there is more to do."""
        if self.errands is None or self.is_disk_full or lib.worker_retains(self.core, shard):
            return False
        thin = retention.thin(sealed)
        if not thin or not self._is_warm(shard, thin):
            return False
        return not lib.worker_compact_needed(self.core, shard, COMPACT_BYTES)

    def _drop(self, shard: int, count: int) -> bool:
        """Drops dead segments, if the records that make them dead (deletes, topics, moved messages) are on disk.

        It does not wait for syncs in the background: a later call drops them. True if segments were dropped.
        """
        files = self._files[shard]
        moved = lib.worker_move_names(self.core, shard, lib.worker_first_segment(self.core, shard) + count - 1)
        if moved != lib.NAMES_MOVED:
            return bool(moved == lib.NAMES_MORE)
        if self._background_sync and not self.is_disk_full:
            if not files.doomed:
                files.doomed, files.doomed_until = count, lib.worker_appended(self.core, shard)
            if lib.worker_synced(self.core, shard) < files.doomed_until:
                return False
            count = min(count, files.doomed)
        elif not lib.worker_flush(self.core):
            return False
        files.doomed = 0
        self._keep_named_topics(shard)
        for _ in range(count):
            number = lib.worker_first_segment(self.core, shard)
            if not lib.worker_drop_first(self.core, shard):
                return False
            files.sealed_at.pop(number, None)
            files.headed.discard(number)
            self._remove(shard, number)
            if files.unread is not None:
                files.unread.forget(number)
        return True

    def _remove(self, shard: int, number: int) -> None:
        store = self._files[shard].store
        if self.errands is None:
            store.remove(number)
        else:
            self.errands.run(lambda: store.remove(number), partial(self._removed, shard), StoreError)

    def _removed(self, shard: int, error: Exception | None) -> None:
        """A file that cannot be removed takes room, and nothing else."""
        files = self._files[shard]
        if error is not None and not files.unremoved:
            log.error("shard %d: %s; it is tried again with the next one", shard, error)
        files.unremoved = error is not None

    def _keep_named_topics(self, shard: int) -> None:
        """Has the core remember topics that a reader names, even after a drop, so that their seqs go on."""
        unread = self._files[shard].unread
        if unread is None or self._unread is None:
            return
        if self._unread.error:  # unknown which, so all of them
            lib.worker_keep_topics(self.core, shard, ffi.NULL, 0)
            return
        names = b"\n".join(topic.encode("latin-1", "replace") for topic in unread.unread)
        lib.worker_keep_topics(self.core, shard, names, len(names))


def _read_ahead(path: Path, offset: int) -> int:
    """Reads a piece into the page cache; returns its size."""
    with os.fdopen(durable.open_to_read(path), "rb", buffering=0) as file:
        return os.preadv(file.fileno(), [bytearray(READ_AHEAD_BYTES)], offset)
