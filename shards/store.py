"""The segments of a shard in a data directory (or in memory, see shards/memory.py).

This module creates, opens and removes files. Their content belongs to the C core, except for a segment's header. Every
error is a StoreError of one line. As a command, the module shows records (shards/dump.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from mq_shards.csrc._core import lib
from mq_shards.shards import durable, medium
from mq_shards.shards.aside import is_no_file, put_aside
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.manifest import NAME as MANIFEST
from mq_shards.shards.manifest import NEW as MANIFEST_NEW
from mq_shards.shards.manifest import Manifest, ManifestError
from mq_shards.shards.meta import Meta
from mq_shards.shards.paths import (
    BACK,
    BESIDE,
    COPIES_NAME,
    HEADS_NAME,
    KNOWN_NAME,
    SEGMENT_NAME,
    copies_name,
    heads_name,
    segment_name,
    shard_path,
)
from mq_shards.shards.segment_header import (
    Header,
    decode_header,
    encode_header,
    is_header,
    is_of_another_kind,
    is_zeros,
    lacks_header,
)
from mq_shards.shards.stock import Found, Stock
from mq_shards.shards.stock import take as take_stock
from mq_shards.shards.store_error import StoreError, explained

# A worker that was just killed may hold its shards' locks for a moment longer.
SHARD_LOCK_WAIT_S: Final = 5.0

COPY_MOST: Final = 4096  # more than the copy of any name takes

log = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """The segments of a shard, in order and without a gap; and what was wrong, one line for each."""

    segments: Sequence[int]
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()
    ended: tuple[int, int] = (0, 0)  # Manifest.ended
    missing: Sequence[int] = ()  # those in whose place an empty one was put, of which a line tells
    read_from: int = 0  # the first that has to be read; 0: all have to be


class SegmentStore(Protocol):
    """The segments of one shard. The caller closes the descriptors that `open` and `create` return."""

    def recover(self, refuse: bool = False) -> Recovered:
        """Finds the segments at a start, before anything else. Drops those that nothing was written to, and fills gaps.
        Raises StoreError if it cannot, or if something is missing or foreign and `refuse` is set."""

    def open(self, segment: int) -> int: ...

    def path_of(self, segment: int) -> Path | None:
        """The file of a segment; None: it is in memory."""

    def create(self, segment: int) -> int:
        """Creates an empty segment, which must not exist yet."""

    def open_copies(self, segment: int) -> int | None:
        """Opens, or creates, the file for copies of the segment's names; None: this store keeps no copies."""

    def note_begun(self, ended: tuple[int, int] = (0, 0)) -> None:
        """Notes which segments have a header by now and, at a stop, where the log ends (Manifest.ended)."""

    def note_read_from(self, segment: int) -> None:
        """Notes which is the first segment that a start has to read."""

    def remove(self, segment: int) -> None:
        """Removes a segment, which may be gone already."""

    def close(self) -> None: ...


def _spare_of(stock: Stock, found: Mapping[int, Found], manifest: Manifest | None) -> int:
    """The shard's last segment, if it still waits for its first record; 0: none. It is kept as a spare instead of being
    removed and created again: takes it out of `stock.remove`."""
    number = max(stock.remove, default=0)
    if manifest is None or number < max(manifest.segments, default=1) or number <= max(stock.segments, default=0):
        return 0
    if manifest.segments.get(number) != 0 or found[number].begun_ns != 0 or found[number].bytes > 0:
        return 0
    stock.remove.remove(number)
    return number


def _look(fd: int, shard: int, shards: int) -> Found:
    """Examines a file. Raises StoreError for a version that this program does not know, which is not damage."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        return Found(None, why_foreign="it is not a file")
    if status.st_size < SEGMENT_HEADER_BYTES:
        return Found(0)  # whatever it has, it is no record
    if medium.is_failing(fd, SEGMENT_HEADER_BYTES, 0):
        return Found(None, bytes=status.st_size)
    content = os.pread(fd, SEGMENT_HEADER_BYTES, 0)
    if not any(content):
        if lacks_header(fd, is_last=True):
            return Found(0, bytes=0 if is_zeros(fd, status.st_size) else status.st_size)
        return Found(0, bytes=status.st_size, is_written=True)
    if is_of_another_kind(content):
        return Found(None, why_foreign="it is a file of another kind")
    if not is_header(content):
        return Found(None, bytes=status.st_size)
    header = decode_header(content)
    why = ""
    if header.shard != shard:
        why = f"it is of shard {header.shard}"
    elif header.shards != shards:
        why = f"it is of a data directory of {header.shards} shards"
    # A header rewritten after damage knows the segment's number, but not when it was begun.
    return Found(header.time_ns or None, header.segment, why, status.st_size, log_began_ns=header.log_began_ns)


def _read_begun(path: Path) -> int:
    """The wall clock in a segment's header, which is durable then; 0 if it has none."""
    with os.fdopen(durable.open_to_read(path), "rb", buffering=0) as file:
        try:
            begun_ns = decode_header(medium.read(file.fileno(), SEGMENT_HEADER_BYTES, 0)).time_ns
        except StoreError:
            return 0
        os.fdatasync(file.fileno())
        return begun_ns


class ShardStore:
    """The segments of a shard in a data directory, as files. Holds a lock on the shard until it is closed."""

    def __init__(self, directory: Path, shard: int, refuse: bool = False, meta: Meta | None = None) -> None:
        """`meta`: the directory's, if it has been read. Raises StoreError; if `refuse` is set also for a folder that is
        gone or no directory. Otherwise the folder is made anew, and what has its name is put aside."""
        self.path = shard_path(directory, shard)
        self.shard = shard
        if meta is not None:
            self._meta = meta
        self._manifest: Manifest | None = None  # as last saved
        self._spare = 0  # number of an empty segment that is made and listed in advance; 0: none
        self._going: list[int] = []  # segments that are dropped, and whose files are not removed yet
        self._read_from = 0  # Recovered.read_from
        self._odd_folder = ""  # what was wrong with it
        is_there = os.path.lexists(self.path)
        if refuse and not self.path.is_dir():
            why = "is not a directory" if is_there else "is missing"
            raise StoreError(f"shard {shard} is refused: its folder {why} (--damage serve does without)")
        with explained(f"{self.path} cannot be opened"):
            if is_there and not self.path.is_dir():
                self._odd_folder = f"its folder is not a directory: it is put aside as {put_aside(self.path).name}"
            # If the folder is gone so are its segments, which `recover` reports; the other shards are served
            # nevertheless.
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o750)
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._lock()
            except BaseException:
                os.close(self._fd)
                raise

    def _lock(self) -> None:
        give_up = time.monotonic() + SHARD_LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise StoreError(f"{self.path} is in use by another worker") from None
            time.sleep(0.02)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def path_of(self, segment: int) -> Path:
        return self.path / segment_name(segment)

    def recover(self, refuse: bool = False) -> Recovered:
        with explained(f"{self.path} cannot be read"):
            meta = self._meta
            names = self._names()
            if any(name.endswith((BACK, BESIDE)) for name in names):
                if any(name.endswith(BACK) for name in names):
                    self._put_back()
                for path in self.path.glob(f"*{BESIDE}"):
                    path.unlink()
                names = self._names()
            notes: list[str] = []
            found = self._find(names, meta.shards, notes)
            beside = [name for name in names if COPIES_NAME.fullmatch(name) or HEADS_NAME.fullmatch(name)]
            no_files = [name for name in beside if not self._is_file(name)]
            notes += [f"{name} is put aside: it is not a file" for name in no_files]
            manifest, why = self._load_manifest()
        # A power failure may leave an empty manifest in a new directory.
        if manifest is None and not why and meta.manifests and (found or not (self.path / MANIFEST).exists()):
            why = "its manifest is missing"
        stock = take_stock(found, manifest, why)
        if refuse and stock.problems:
            said = "; ".join(stock.problems)
            raise StoreError(f"shard {self.shard} is refused: {said} (--damage serve does without)")
        self._spare = _spare_of(stock, found, manifest)
        # Where something that is read is wrong, all that there is may tell of what was lost. What is passed over is not
        # needed, and without one of its segments what that said is finished would come again.
        if manifest is not None and stock.wrong_until < manifest.read_from in stock.segments and not self._odd_folder:
            self._read_from = manifest.read_from
        with explained(f"{self.path} cannot be put in order"):
            for name in no_files:
                put_aside(self.path / name)
            for name in beside:
                heads = HEADS_NAME.fullmatch(name)
                if heads and name not in no_files and (heads[2] or int(heads[1]) not in stock.segments):
                    os.unlink(name, dir_fd=self._fd)
            if self._put_in_order(stock, meta.shards) or no_files:
                names = self._names()
        problems = [*filter(None, [self._odd_folder]), *stock.problems]
        odd = [
            f"{name} is odd: nothing in {self.path.name} has such a name"
            for name in names
            if KNOWN_NAME.fullmatch(name) is None
        ]
        ended = manifest.ended if manifest else (0, 0)
        notes = [*stock.notes, *notes, *odd]
        return Recovered(sorted(stock.segments), problems, notes, ended, tuple(stock.begin), self._read_from)

    def _load_manifest(self) -> tuple[Manifest | None, str]:
        try:
            self._manifest = Manifest.load(self.path, self._directory_id, self.shard)
            return self._manifest, ""
        except ManifestError as error:
            return None, str(error)

    @cached_property
    def _meta(self) -> Meta:
        return Meta.load(self.path.parent)

    @property
    def _directory_id(self) -> str:
        return self._meta.id

    def _names(self) -> list[str]:
        return sorted(os.listdir(self._fd))  # noqa: PTH208 - of a descriptor

    def _is_file(self, name: str) -> bool:
        return stat.S_ISREG(os.lstat(name, dir_fd=self._fd).st_mode)

    def _find(self, names: Sequence[str], shards: int, notes: list[str]) -> dict[int, Found]:
        found = {}
        for text in names:
            if (name := SEGMENT_NAME.fullmatch(text)) is None:
                continue
            if not self._is_file(text):
                found[int(name[1])] = Found(None, why_foreign="it is not a file")
                continue
            fd = self.open(int(name[1]))
            try:
                look = _look(fd, self.shard, shards)
                emptied = not look.bytes and self._has_copies(int(name[1]), notes)
                found[int(name[1])] = look._replace(is_emptied=emptied)
            except StoreError as error:
                raise StoreError(f"shard {self.shard}, segment {int(name[1])}, offset 0: {error}") from None
            finally:
                os.close(fd)
        return found

    def _has_copies(self, segment: int, notes: list[str]) -> bool:
        """Whether the copies of an empty segment's names begin with a whole one. If they cannot be opened, `notes` gets
        a line."""
        try:
            fd = self._open_file(copies_name(segment))
        except StoreError as error:
            if error.errno != errno.ENOENT:
                notes.append(f"{error}: whether {segment_name(segment)}, which is empty, had messages is not known")
            return False
        try:
            content = medium.read(fd, COPY_MOST, 0)
            return bool(lib.copies_are_of(content, len(content), segment))
        finally:
            os.close(fd)

    def _put_in_order(self, stock: Stock, shards: int) -> bool:
        """Does what `stock` says; returns whether that was anything. If interrupted, the next call can finish it."""
        manifests = (self.path / MANIFEST, self.path / MANIFEST_NEW)
        for path in (*map(self.path_of, stock.aside), *filter(is_no_file, manifests)):
            put_aside(path)
        for own, number in stock.back.items():
            self.path_of(own).with_suffix(BESIDE).hardlink_to(self.path_of(number))
        if stock.back:
            os.fsync(self._fd)
            self._put_back()
            for number in set(stock.back.values()) - stock.segments.keys():
                self.path_of(number).unlink(missing_ok=True)
        for number in stock.begin:
            begun = stock.segments[number] = time.time_ns()
            # One is enough for all that were before it, if none of these is there.
            missing = max(1, stock.lost_tail - len(stock.begin) + 1) if number == stock.begin[0] else 1
            header = Header(self.shard, shards, number, begun, missing=missing)
            durable.save(self.path_of(number), encode_header(header))
        listed = stock.segments | ({self._spare: 0} if self._spare else {})
        before = self._manifest
        changes = (
            before is None or (before.segments, before.read_from) != (listed, self._read_from) or bool(stock.remove)
        )
        self._going = list(stock.remove)
        if changes:
            self._list_as(listed)
        try:
            self._unlink_going()
        except OSError as error:
            names = ", ".join(map(segment_name, self._going))
            stock.notes.append(f"{names}: what is not needed any more cannot be removed: {error.strerror}")
        return changes or bool(stock.aside or stock.back or stock.begin)

    def _put_back(self) -> None:
        """Gives BESIDE files their names. A BACK file tells that all of them exist, so that names may be replaced."""
        for path in list(self.path.glob(f"*{BESIDE}")):
            path.rename(path.with_suffix(BACK))
        for path in list(self.path.glob(f"*{BACK}")):
            path.rename(path.with_suffix(".log"))

    def _list_as(self, segments: Mapping[int, int], ended: tuple[int, int] = (0, 0)) -> None:
        staying = {number: begun for number, begun in segments.items() if number not in self._going}
        manifest = Manifest(self._directory_id, self.shard, staying, list(self._going), ended, self._read_from)
        manifest.save(self.path)
        self._manifest = manifest

    def _listed(self) -> dict[int, int]:
        if self._manifest is None:
            self._manifest = Manifest.load(self.path, self._directory_id, self.shard)
        if self._manifest is None:
            self._manifest = Manifest(self._directory_id, self.shard)
        return dict(self._manifest.segments)

    def _unlink_going(self) -> None:
        for segment in self._going:
            for name in (segment_name(segment), copies_name(segment), heads_name(segment)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self._fd)
        if self._going:
            os.fsync(self._fd)
            self._going.clear()

    def note_begun(self, ended: tuple[int, int] = (0, 0)) -> None:
        """Lists segments that have a header by now with its time. Raises StoreError."""
        listed = self._listed()
        begun = self._begun(listed)
        if begun != listed or (self._manifest is not None and ended not in ((0, 0), self._manifest.ended)):
            with explained(f"{self.path} cannot be written"):
                self._list_as(begun, ended=ended)

    def note_read_from(self, segment: int) -> None:
        """What segments before it are needed for must be durable in later ones. Raises StoreError."""
        self._read_from = segment
        with explained(f"{self.path} cannot be written"):
            self._list_as(self._begun(self._listed()))

    def _begun(self, listed: Mapping[int, int]) -> dict[int, int]:
        with explained(f"{self.path} cannot be read"):
            return {n: begun_ns or _read_begun(self.path_of(n)) for n, begun_ns in listed.items()}

    def open(self, segment: int) -> int:
        return self._open_file(segment_name(segment))

    def _open_file(self, name: str, create: int = 0) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | create
        with explained(f"{self.path / name} cannot be opened"):
            fd = os.open(name, flags, 0o640, dir_fd=self._fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise StoreError(f"{self.path / name} is not a file")
        return fd

    def create(self, segment: int) -> int:
        if segment in self._going:
            with explained(f"{self.path_of(segment)}, which is there from before, cannot be removed"):
                self._unlink_going()
            self._spare = 0
        if self._spare:
            # It stays the spare until it was taken or removed, so that this can be tried again if it fails.
            if segment == self._spare and (fd := self._take_spare(segment)) >= 0:
                self._spare = 0
                return fd
            self.remove(self._spare)
            self._spare = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with explained(f"{self.path_of(segment)} cannot be made"):
            self._clear(segment_name(segment), copies_name(segment), heads_name(segment))
            fd = os.open(segment_name(segment), flags, 0o640, dir_fd=self._fd)
            try:
                for name in (copies_name(segment), heads_name(segment)):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=self._fd)
                # This syncs the folder too: otherwise a power failure could remove the name of a file whose content was
                # synced.
                # The segments before it have a header by now.
                self._list_as(self._begun(self._listed()) | {segment: 0})
            except BaseException:
                os.close(fd)
                with contextlib.suppress(OSError):
                    os.unlink(segment_name(segment), dir_fd=self._fd)
                raise
        return fd

    def _clear(self, *names: str) -> None:
        """Puts aside what is no file in these files' places: a directory there would stop the log for good."""
        for name in names:
            if os.path.lexists(self.path / name) and not self._is_file(name):
                put_aside(self.path / name)
                log.warning("shard %d: %s is put aside: it is not a file", self.shard, name)

    def _take_spare(self, segment: int) -> int:
        """Opens the spare, which was made durable before the restart. -1 if it is not empty after all, or was about to
        be removed."""
        with explained(f"{self.path_of(segment)} cannot be read"):
            if segment not in self._listed():
                return -1
            with contextlib.suppress(FileNotFoundError):
                if os.stat(copies_name(segment), dir_fd=self._fd).st_size > 0:
                    return -1
        fd = self.open(segment)
        try:
            if os.fstat(fd).st_size > 0:
                os.close(fd)
                return -1
            self.note_begun()
        except BaseException:
            os.close(fd)
            raise
        return fd

    def open_copies(self, segment: int) -> int | None:
        return self._open_file(copies_name(segment), os.O_CREAT)

    def remove(self, segment: int) -> None:
        """Those that could not be removed before are tried again with it. They leave the list all at once, so that no
        older one is there when a newer one, which may say what is finished in it, is not."""
        if segment not in self._going:
            self._going.append(segment)
        with explained(f"{', '.join(map(segment_name, self._going))} in {self.path} cannot be removed"):
            listed = self._listed()
            if listed.keys() & self._going:
                self._list_as(listed)
            self._unlink_going()


if __name__ == "__main__":
    from mq_shards.shards import dump  # imported here because a worker does not need it

    sys.exit(dump.main(sys.argv[1:]))
