"""A worker process: what Python decides for the C core in csrc/shards/calls.h.

It reads the shards' logs back, hands the core its next segments, has old ones looked after (housekeeping.py), and
reports trouble with the disk. It never sees a message: `worker_run` returns only when one of these has to be done.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf.control import STDERR, Control, Message
from mq_shards.shards import heads
from mq_shards.shards.data_directory import sync_shards
from mq_shards.shards.descriptors import Share, check_descriptors
from mq_shards.shards.errands import Errands, no_matter
from mq_shards.shards.hold import hold
from mq_shards.shards.housekeeping import Housekeeping
from mq_shards.shards.made import Made, allocated, keep_copies, make
from mq_shards.shards.memory import MemoryStore
from mq_shards.shards.meta import read_meta
from mq_shards.shards.paths import segment_name, shard_path
from mq_shards.shards.recovery import Recovery
from mq_shards.shards.refusals import NO_SPACE_ERRORS, Refusals
from mq_shards.shards.retention import Retention
from mq_shards.shards.shard_files import ShardFiles
from mq_shards.shards.store import SegmentStore, ShardStore
from mq_shards.shards.store_error import StoreError, explained
from mq_shards.shards.ticks import Ticks
from mq_shards.shards.unread import UnreadSegments, read_head

SWITCH_S: Final = 0.0005
FAILING_WAIT_S: Final = 0.05
# If a log cannot be written for this long the worker starts anew from what is on disk.
FAILING_LIMIT_S: Final = 5.0
# The most that noting where each log ends may delay a stop.
NOTE_ENDS_S: Final = 2.0
SYNC_MODES: Final = {"never": 0, "interval": 1, "always": 2}

log = logging.getLogger(__name__)


class Worker:
    def __init__(self, start: Message, board_fd: int, wake_fd: int, control: Control) -> None:
        settings: dict[str, dict[str, Any]] = start["settings"]
        self._control = control
        self._index = int(start["index"])
        self._shards = int(start["shards"])
        self._own: list[int] = start["own"]
        self._in_memory = start["data_dir"] is None
        self._share = Share(int(start["kept_segments"]))
        log_settings = settings["log"]
        self._stopping = False
        self._early: list[tuple[Message, list[int]]] = []  # what came before "go" of rings, with their descriptors
        self._refusals = Refusals()
        self._no_segment = ""  # why the last one could not be made, if not for want of room
        self._failing_since: float | None = None
        self._files: dict[int, ShardFiles] = {}
        self._data_dir = start["data_dir"]
        self._refuses_damage = start.get("damage") == "refuse"
        self._lost_end = bool(start.get("lost_end"))
        self._new = partial(sync_shards, Path(self._data_dir), self._own) if start.get("new") else None
        self._meta = None if self._in_memory else read_meta(Path(self._data_dir))
        self._begin: Final = partial(_begin, start, board_fd, wake_fd)
        self._worker = self._begin()
        self._sync_first = start["sync"] == "always"
        self._memory: dict[int, dict[int, int]] = {}
        # Set once it serves, if it has a disk to wait for.
        self._errands: Errands | None = None
        self._ticks = Ticks(len(self._own))
        retained = (
            Retention(0.0, 0)
            if self._in_memory
            else Retention(
                age_s=log_settings["retention-hours"] * 3600.0,
                bytes=int(log_settings["retention-bytes"]),
                reader_bytes=int(log_settings["reader-bytes"]),
                erased_age_s=log_settings["erased-hours"] * 3600.0,
            )
        )
        self._housekeeping: Final = Housekeeping(
            self._own,
            self._shards,
            self._files,
            retained,
            None if self._in_memory else Path(self._data_dir),
            self._ticks.at_once,
            background_sync=start["sync"] != "never",
        )

    # --- starting ---------------------------------------------------------------------------------------------------

    def keep(self, shard: int, segment: int, fd: int) -> None:
        """Takes over a segment in memory that outlived the previous worker."""
        self._memory.setdefault(shard, {})[segment] = fd

    def _store(self, shard: int) -> SegmentStore:
        if not self._in_memory:
            return ShardStore(Path(self._data_dir), shard, self._refuses_damage, self._meta)
        return MemoryStore(
            shard,
            self._memory.get(shard, {}),
            keep=lambda s, n, fd: self._control.send({"did": "keep", "shard": s, "segment": n}, [fd]),
            drop=lambda s, n: self._control.send({"did": "drop", "shard": s, "segment": n}),
            spare=lambda: int(lib.worker_spare_segment(self._worker)),
            share=self._share,
        )

    def recover(self) -> None:
        recovery = Recovery(self._worker, self._refuses_damage)
        while not all(recovery.shard(shard, self._open(shard), lost_end=self._lost_end) for shard in self._own):
            lib.worker_free(self._worker)
            self._worker = self._begin()
            recovery.begin_anew(self._worker)
        for arrived in self._early:
            self._heard(*arrived)
        self._early.clear()
        lib.worker_recovered(self._worker)
        recovery.tell_of_lost_names(self._own)
        self._housekeeping.core = self._worker
        self._housekeeping.look_at_readers()
        new = sum(1 for shard in self._own if not lib.worker_active_segment(self._worker, shard))
        check_descriptors(len(self._own), new)
        if self._in_memory:
            self._share.check(len(self._own))
        if self._new and self._sync_first:
            with explained(f"new shards in {self._data_dir} cannot be synced"):
                self._synced(self._new())
        if self._lost_end:
            self._supply()
        noted = not self._lost_end or (lib.worker_note_ends(self._worker) and lib.worker_flush(self._worker))
        self._control.send({"did": "recovered", "shards": len(self._own), "noted": bool(noted), **recovery.report()})
        self._supply()  # while the acceptors start

    def _synced(self, failed: OSError | None) -> None:
        if failed is None:
            self._new = None
            self._control.send({"did": "synced"})
        else:  # whoever owns them next does it
            log.error("the folders of new shards cannot be synced: %s", failed)

    def _open(self, shard: int) -> ShardFiles:
        if shard in self._files:
            return self._files[shard]
        files = self._files[shard] = ShardFiles(self._store(shard))
        if not self._in_memory:
            directory = shard_path(Path(self._data_dir), shard)
            files.unread = UnreadSegments(
                lambda segment: directory / segment_name(segment),
                lambda: int(lib.worker_active_segment(self._worker, shard)),
                self._next_seq,
            )
        return files

    def _tell_of_unreadable(self) -> None:
        place, topic = ffi.new("struct damage *"), ffi.new("const char **")
        told = more = 0
        segments: set[tuple[int, int]] = set()
        while left := lib.worker_unreadable(self._worker, place, topic):
            told += 1
            log.error(
                "shard %d, segment %d, offset %d: a message of %s cannot be read (a medium error, or damage), and is "
                "left out",
                place.shard, place.segment, place.offset, ffi.string(topic[0]).decode("latin-1"),
            )  # fmt: skip
            more = left - 1
            segments.add((place.shard, place.segment))
        for shard, segment in segments:
            # The next start looks at all of it, and has back what was moved there from where it was.
            path = self._files[shard].store.path_of(segment)
            if path is not None and self._errands is not None:
                self._errands.run(partial(heads.remove, path), no_matter)
        if more:
            log.error("%d more messages cannot be read, and are left out", more)

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serves until the supervisor says stop. Raises EOFError when it is gone."""
        tick_at = time.monotonic_ns()
        heard = self._begin_errands()
        while not self._stopping:
            wait_ns = max(0, tick_at - time.monotonic_ns())
            events = lib.worker_run(self._worker, heard, wait_ns)
            if events & lib.WORKER_CONTROL:
                self._hear()
                if self._errands is not None:
                    self._errands.settle()
            if events & lib.WORKER_NO_SPACE:
                self._housekeeping.disk_is_full()
                self._say_full()
                tick_at = time.monotonic_ns()
            if events & lib.WORKER_WANTS_SEGMENT:
                self._supply()
                tick_at = min(tick_at, time.monotonic_ns() + self._ticks.usual_ns)
            if events & lib.WORKER_FAILING:
                self._failing()
            elif self._failing_since is not None:
                self._failing_since = None
                self._control.send({"did": "disk", "state": "ok"})
            if time.monotonic_ns() >= tick_at:
                self._tell_of_unreadable()
                self._say_room()
                is_more, is_urgent = self._housekeeping.tidy(), self._housekeeping.is_disk_full
                wait_ns = self._ticks.wait_ns(self._appended, is_more=is_more, is_urgent=is_urgent)
                tick_at = time.monotonic_ns() + wait_ns

    def _begin_errands(self) -> int:
        """Starts the errands' thread; returns a descriptor that is readable on news from it or from the supervisor."""
        if self._in_memory:
            lib.worker_reuse_segments(self._worker)
            return self._control.fileno()
        self._errands = self._housekeeping.errands = Errands()
        for files in self._files.values():
            if files.unread is not None:
                files.unread.fetch = partial(self._fetch_head, files.unread)
        for shard, files in self._files.items():
            files.cut = max(0, lib.worker_active_segment(self._worker, shard) - 1)
        lib.worker_leave_uncut(self._worker)
        if self._new:
            self._errands.run(self._new, self._synced)
        # An errand that computes for long must not keep the serving thread waiting.
        sys.setswitchinterval(SWITCH_S)
        self._ears = select.epoll()
        self._ears.register(self._control.fileno(), select.EPOLLIN)
        self._ears.register(self._errands.fileno(), select.EPOLLIN)
        return self._ears.fileno()

    def _fetch_head(self, unread: UnreadSegments, segment: int, names: frozenset[str]) -> None:
        assert self._errands is not None
        path = unread.path(segment)
        self._errands.run(lambda: read_head(path, segment, names), partial(unread.heard, segment, names))

    def stop(self) -> None:
        self._housekeeping.errands = None
        if self._errands is not None:
            self._errands.close()
            self._errands = None
        if not lib.worker_flush(self._worker):
            log.error("a log cannot be written (%s): what came last is lost if the machine stops", self._disk_failure())
            sys.exit(1)
        until = time.monotonic() + NOTE_ENDS_S
        for shard, files in self._files.items():
            segment = lib.worker_active_segment(self._worker, shard)
            if time.monotonic() > until:
                break
            with contextlib.suppress(StoreError):  # with a full disk a log that is cut off later is not noticed
                files.store.note_begun((segment, lib.worker_segment_bytes(self._worker, shard, segment)))
        self._control.send({"did": "stopped"})

    def _hear(self) -> None:
        while (arrived := self._control.receive_now()) is not None:
            self._heard(*arrived)

    def _heard(self, message: Message, fds: list[int]) -> None:
        try:
            self._do(message, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _do(self, message: Message, fds: list[int]) -> None:
        match message["do"]:
            case "peer":
                if not lib.worker_peer(self._worker, int(message["acceptor"]), fds[0], fds[1], fds[2]):
                    raise OSError(ffi.errno, f"rings cannot be opened: {os.strerror(ffi.errno)}")
            case "gone":
                lib.worker_peer_gone(self._worker, int(message["acceptor"]))
            case "stderr":
                os.dup2(fds[0], STDERR)
            case "ping":
                self._control.send({"did": "pong"})
            case "hold":
                for arrived in hold(self._control, int(message["number"]), self._ends()):
                    self._heard(*arrived)
            case "release":
                pass  # it has not been waiting that long
            case "stop":
                self._stopping = True
            case other:
                raise ValueError(f'"{other}" from a supervisor of another version')

    def hear_until_go(self) -> None:
        """Handles what comes before "go": rings and, with --memory, the segments of the previous worker."""
        while True:
            message, fds = self._control.receive()
            if message["do"] == "go":
                return
            if message["do"] == "segment":
                self.keep(int(message["shard"]), int(message["segment"]), fds.pop())
            elif message["do"] in ("peer", "gone"):
                self._early.append((message, fds))  # for the core that recovers all
            else:
                self._heard(message, fds)

    def _ends(self) -> list[list[int]]:
        """Where the logs end. Everything that was answered lies before: a turn writes before it answers."""
        active = [lib.worker_active_segment(self._worker, shard) for shard in self._own]
        return [
            [lib.worker_first_segment(self._worker, shard), last, lib.worker_segment_bytes(self._worker, shard, last)]
            for shard, last in zip(self._own, active, strict=True)
        ]

    # --- segments ---------------------------------------------------------------------------------------------------

    def _supply(self) -> None:
        """Gives every log that wants one its next segment."""
        size, number = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        while (shard := lib.worker_wanting_shard(self._worker, size, number)) >= 0:
            self._add_segment(shard, number[0], size[0])

    def _add_segment(self, shard: int, number: int, size: int) -> None:
        store = self._files[shard].store
        if self._errands is not None:
            lib.worker_ask_segment(self._worker, shard)
            self._errands.run_first(
                lambda: allocated(make(store, number), size), partial(self._made, shard, number, size), StoreError
            )
            return
        try:
            made: Made | Exception = make(store, number)
        except (OSError, StoreError) as error:
            made = error
        self._made(shard, number, size, made)

    def _made(self, shard: int, number: int, size: int, made: Made | Exception) -> None:
        files = self._files[shard]
        if isinstance(made, Exception):
            lib.worker_refuse_segment(self._worker, shard)
            if not files.refused:
                log.error("shard %d: segment %d cannot be made: %s", shard, number, made)
            files.refused = True
            is_full = getattr(made, "errno", 0) in NO_SPACE_ERRORS
            self._no_segment = "" if is_full else str(made)
            if is_full:
                self._housekeeping.disk_is_full()
            return
        files.refused, self._no_segment = False, ""
        if not lib.worker_add_segment(self._worker, shard, made.fd, number, size, True, time.time_ns()):
            os.close(made.fd)
            raise OSError(ffi.errno, f"shard {shard}, segment {number} is refused: {os.strerror(ffi.errno)}")
        keep_copies(self._worker, shard, number, made)

    def _say_full(self) -> None:
        """Tells the supervisor, once for as long as publishes are refused."""
        if self._refusals.refused(time.monotonic(), lib.worker_published(self._worker)):
            why = self._no_segment or ("memory is short" if self._in_memory else "the disk is full")
            self._control.send({"did": "disk", "state": "full", "reason": why})

    def _say_room(self) -> None:
        if self._refusals.ended(time.monotonic(), lib.worker_published(self._worker)):
            self._control.send({"did": "disk", "state": "room"})

    def _next_seq(self, topic: str) -> int:
        name = topic.encode("latin-1", "replace")
        return int(lib.worker_next_seq(self._worker, name, len(name)))

    def _appended(self) -> int:
        return sum(lib.worker_appended(self._worker, shard) for shard in self._own)

    # --- a disk that fails ------------------------------------------------------------------------------------------

    def _failing(self) -> None:
        """Waits, without replies, while a log cannot be written. If that lasts, the worker ends; a new one recovers."""
        now, reason = time.monotonic(), self._disk_failure()
        if self._failing_since is None:
            self._failing_since = now
            self._control.send({"did": "disk", "state": "failing", "reason": reason})
        elif now - self._failing_since > FAILING_LIMIT_S:
            log.error("a log cannot be written (%s): a new process goes on from what is on disk", reason)
            sys.exit(1)
        time.sleep(FAILING_WAIT_S)

    def _disk_failure(self) -> str:
        """Which file cannot be written or synced, and why."""
        fd = ffi.new("int *")
        error = lib.worker_disk_errno(self._worker, fd)
        try:
            path = Path(f"/proc/self/fd/{fd[0]}").readlink()
        except OSError:  # the segment has been dropped since
            return os.strerror(error)
        return f"{path.parent.name}/{path.name}: {os.strerror(error)}"


def _begin(start: Message, board_fd: int, wake_fd: int) -> Any:  # noqa: ANN401
    """A core that owns no shard yet. Raises StoreError."""
    workers, settings = int(start["workers"]), start["settings"]
    worker = lib.worker_new(int(start["index"]), workers, int(start["shards"]), board_fd, wake_fd, 0)
    if worker == ffi.NULL:
        raise StoreError(
            f"{os.strerror(ffi.errno)}: it sets address space aside, of which it uses little: ulimit -v has to be "
            "unlimited"
        )
    interval_ns = int(settings["log"]["sync-interval"]) * 1_000_000
    if not lib.worker_sync_mode(worker, SYNC_MODES[start["sync"]], interval_ns):
        raise StoreError(f"no thread to sync with: {os.strerror(ffi.errno)}")
    lib.worker_spin(worker, int(settings["broker"]["worker-spin-us"]) * 1000)
    # Half of what an acceptor's connections may hold; any worker may push its part of that.
    lib.worker_push_at_most(worker, int(settings["broker"]["max-buffered-bytes"]) // 2 // workers)
    return worker


def main(control: Control) -> None:
    """The entry of a worker process."""
    start, fds = control.receive()
    try:
        worker = Worker(start, fds[0], fds[1], control)
        worker.hear_until_go()
        worker.recover()
    except StoreError as error:
        control.send({"did": "refused", "reason": str(error)})  # the supervisor tries again if others serve
        return
    worker.run()
    worker.stop()
