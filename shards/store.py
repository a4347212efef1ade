"""Where segments live: a data directory (or memory, see shards/memory.py).

    DIR/meta.json                       {"version": 1, "shards": 64, "id": "..."}; written once
    DIR/lock                            locked by the broker that uses the directory
    DIR/shard-0007/0000000001.log       segments of shard 7; the layout of one is in csrc/log/log.h
    DIR/shard-0007/0000000001.names     copies of the names in it; csrc/log/copies.h

This module creates, opens and removes files. Their content belongs to the C core, except for a segment's header. Every
error is a StoreError of one line. As a command, the module shows records (shards/dump.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import stat
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from mq_shards.csrc._core import lib
from mq_shards.csrc.structs import packed, struct_in
from mq_shards.shards import durable, last_run, medium
from mq_shards.shards.aside import is_no_file, put_aside
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.layout import RECORD_BYTES, RECORD_CRC_END, SEGMENT_CRC_AT, SEGMENT_HEADER_BYTES, record_crc_begun
from mq_shards.shards.manifest import NAME as MANIFEST
from mq_shards.shards.manifest import NEW as MANIFEST_NEW
from mq_shards.shards.manifest import Manifest, ManifestError
from mq_shards.shards.stock import Found, Stock
from mq_shards.shards.stock import take as take_stock

VERSION: Final = 1
SEGMENT_VERSIONS: Final = range(lib.SEGMENT_OLDEST, lib.SEGMENT_VERSION + 1)
MAX_SHARDS: Final = 4096
META: Final = "meta.json"
META_NEW: Final = "meta.json.new"
LOCK: Final = "lock"
# A worker that was just killed may hold its shards' locks for a moment longer.
SHARD_LOCK_WAIT_S: Final = 5.0

SEGMENT_NAME: Final = re.compile(r"(\d{10})\.log")
SHARD_NAME: Final = re.compile(r"shard-\d{4}")
COPIES_NAME: Final = re.compile(r"\d{10}\.names")
BESIDE: Final = ".beside"  # suffix of a segment that is about to be put back under its own name,
BACK: Final = ".back"  # and of one that is being put back
# What a shard's folder may hold: .torn and .odd were put aside, .index is the readers'.
KNOWN_NAME: Final = re.compile(
    r"\d{10}\.(log(\.new)?|names|index(\.new)?|torn|odd\d*)|manifest\.(json(\.new)?|(json\.)?odd\d*)"
)

COPY_HEAD_BYTES: Final = 8  # before each record in a .names file: csrc/log/copies.c
COPY_MOST: Final = 4096  # more than the copy of any name takes

PIECE_BYTES: Final = 1 << 16
LARGE_BEFORE_BYTES: Final = 4 * PIECE_BYTES  # less than NAMES_MEANWHILE, csrc/shards/naming.c
WHAT_TO_DO: Final = "start the release that wrote it, or one that is newer; nothing has been changed"


log = logging.getLogger(__name__)


class StoreError(Exception):
    """One line for the operator. `errno` is the operating system's error; 0: it is not one of those."""

    def __init__(self, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.errno = number


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns an OSError into a StoreError that begins with `what`."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what}: {error.strerror or os.strerror(errno.EIO)}", error.errno or 0) from error


def shard_path(directory: Path, shard: int) -> Path:
    return directory / f"shard-{shard:04d}"


def segment_name(segment: int) -> str:
    return f"{segment:010d}.log"


def copies_name(segment: int) -> str:
    return f"{segment:010d}.names"


# --- the data directory ---------------------------------------------------------------------------------------------


class Meta(NamedTuple):
    """What was fixed when the directory was made."""

    shards: int
    id: str
    manifests: bool = True  # whether shards have manifests; False: made by a version that had none

    def encode(self) -> bytes:
        found = {"version": VERSION, "shards": self.shards, "id": self.id, "manifests": self.manifests}
        return json.dumps(found).encode() + b"\n"

    @staticmethod
    def decode(path: Path, text: bytes) -> Meta:
        try:
            found = json.loads(text)
            version, shards, identity = found["version"], found["shards"], found["id"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise StoreError(f"{path} is damaged: it should say version, shards and id") from None
        if version != VERSION:
            raise StoreError(f"{path} is of version {version!r}; this program reads version {VERSION}")
        if type(shards) is not int or not 1 <= shards <= MAX_SHARDS or not isinstance(identity, str):
            raise StoreError(f"{path} is damaged: {shards!r} shards, id {identity!r}")
        return Meta(shards, identity, found.get("manifests") is True)


def read_meta(path: Path) -> Meta:
    """Reads meta.json of an existing data directory, without its lock. Raises StoreError."""
    with explained(f"{path / META} cannot be read"):
        return Meta.decode(path / META, durable.read(path / META))


class DataDirectory:
    """A data directory that this process has locked. `shards` and `id` are fixed since it was made."""

    def __init__(self, path: Path, meta: Meta, lock: int) -> None:
        self.path = path
        self.shards = meta.shards
        self.id = meta.id
        self._lock = lock

    @classmethod
    def open_or_create(
        cls, path: Path, shards: int | None, default_shards: int = 64, *, begun: bool = False
    ) -> DataDirectory:
        """Opens the directory, or makes it with `shards` shards (None: as many as it has, or the default). `begun`:
        makes each shard with the file of its first segment, so that workers need not sync one after the other.

        Raises StoreError: another broker uses it, it has another number of shards, it holds other files, or the disk
        refuses.
        """
        with explained(f"the data directory {path} cannot be made"):
            path.mkdir(mode=0o750, parents=True, exist_ok=True)
        lock = cls._take_lock(path)
        try:
            meta = cls._with_manifests(path, cls._meta(path, shards, default_shards, begun=begun))
        except BaseException:
            os.close(lock)
            raise
        return cls(path, meta, lock)

    def close(self) -> None:
        """Unlocks the directory for another broker."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def shard(self, shard: int) -> ShardStore:
        return ShardStore(self.path, shard)

    @staticmethod
    def _take_lock(path: Path) -> int:
        with explained(f"{path / LOCK} cannot be locked"):
            lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(lock, 0)
                os.pwrite(lock, b"%d\n" % os.getpid(), 0)
            except BlockingIOError:
                owner = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
                os.close(lock)
                raise StoreError(f"the data directory {path} is in use by another broker (pid {owner})") from None
            except BaseException:
                os.close(lock)
                raise
        return lock

    @classmethod
    def _meta(cls, path: Path, shards: int | None, default_shards: int, *, begun: bool) -> Meta:
        with explained(f"{path / META} cannot be read"):
            try:
                meta = Meta.decode(path / META, durable.read(path / META))
            except FileNotFoundError:
                return cls._create(path, default_shards if shards is None else shards, begun=begun)
        if shards not in (None, meta.shards):
            raise StoreError(f"the data directory {path} has {meta.shards} shards, which is fixed, and not {shards}")
        return meta

    @staticmethod
    def _with_manifests(path: Path, meta: Meta) -> Meta:
        """Takes over a directory of a version without manifests: lists the segments that are there now."""
        if meta.manifests:
            return meta
        for shard in range(meta.shards):
            store = ShardStore(path, shard)
            try:
                store.recover()
            finally:
                store.close()
        meta = Meta(meta.shards, meta.id)
        with explained(f"{path / META} cannot be written"):
            durable.save(path / META, meta.encode())
        return meta

    @staticmethod
    def _create(path: Path, shards: int, *, begun: bool) -> Meta:
        if not 1 <= shards <= MAX_SHARDS:
            raise StoreError(f"a data directory has 1 to {MAX_SHARDS} shards, not {shards}")
        with explained(f"the data directory {path} cannot be made"):
            for entry in sorted(path.iterdir()):
                # Left by a crash in the middle of this, or found in a fresh file system.
                ours = entry.name in (LOCK, META_NEW, last_run.NAME, "lost+found") or (
                    SHARD_NAME.fullmatch(entry.name)
                    and entry.is_dir()
                    and all(_is_new(file) for file in entry.iterdir())
                )
                if not ours:
                    raise StoreError(f"{path} is not a data directory (no {META}) and not empty: it has {entry.name}")
            meta = Meta(shards, os.urandom(16).hex())
            folders = [shard_path(path, shard) for shard in range(shards)]
            for shard, folder in enumerate(folders):
                folder.mkdir(mode=0o750, exist_ok=True)
                first = folder / segment_name(1)
                if begun:
                    first.touch(0o640)
                else:
                    first.unlink(missing_ok=True)
                Manifest(meta.id, shard, {1: 0} if begun else {}).write(folder)
            if begun:
                durable.sync_all([*(folder / MANIFEST for folder in folders), *folders])
            last_run.write(path)
            # The directory exists once meta.json does, and is complete then.
            durable.save(path / META, meta.encode())
            durable.sync_directory(path.resolve().parent)
        return meta


def _is_new(file: Path) -> bool:
    status = file.lstat()
    is_empty = file.name == segment_name(1) and status.st_size == 0
    return stat.S_ISREG(status.st_mode) and (file.name == MANIFEST or is_empty)


# --- the segments of a shard ----------------------------------------------------------------------------------------


class Recovered(NamedTuple):
    """The segments of a shard, in order and without a gap; and what was wrong, one line for each."""

    segments: Sequence[int]
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()
    ended: tuple[int, int] = (0, 0)  # Manifest.ended


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


def _is_zeros(fd: int, size: int) -> bool:
    pieces = range(0, size, PIECE_BYTES)
    return not any(medium.is_failing(fd, PIECE_BYTES, at) or any(os.pread(fd, PIECE_BYTES, at)) for at in pieces)


def waits(fd: int, *, is_last: bool) -> bool:
    """Whether a segment has no header yet, which is written first. Only in a shard's last segment a part of a large
    message may come before it, behind LARGE_BEFORE_BYTES of zeros (csrc/log/large.c)."""
    size = os.fstat(fd).st_size
    return size < SEGMENT_HEADER_BYTES or _is_zeros(fd, min(size, LARGE_BEFORE_BYTES) if is_last else size)


def _look(fd: int, shard: int, shards: int) -> Found:
    """Examines a file. Raises StoreError for a version that this program does not know, which is not damage."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        return Found(None, why_foreign="it is not a file")
    if medium.is_failing(fd, SEGMENT_HEADER_BYTES, 0):
        return Found(None, bytes=status.st_size)
    content = os.pread(fd, SEGMENT_HEADER_BYTES, 0)
    if len(content) < SEGMENT_HEADER_BYTES or not any(content):
        if waits(fd, is_last=True):
            return Found(0, bytes=0 if _is_zeros(fd, status.st_size) else status.st_size)
        return Found(0, bytes=status.st_size, is_written=True)
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


def _is_copy(content: bytes, segment: int) -> bool:
    """Whether this begins with the copy of a record of that segment; the layout is in csrc/log/copies.c."""
    if len(content) < COPY_HEAD_BYTES + RECORD_BYTES:
        return False
    _, check, size, crc = struct.unpack_from("<IIII", content)
    if not RECORD_BYTES <= size <= len(content) - COPY_HEAD_BYTES:
        return False
    rest = content[COPY_HEAD_BYTES + RECORD_CRC_END : COPY_HEAD_BYTES + size]
    return bool(crc32c(rest, record_crc_begun(size, segment)) == crc and crc32c(content[:4], crc) == check)


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

    def __init__(self, directory: Path, shard: int, refuse: bool = False) -> None:
        """Raises StoreError; if `refuse` is set also for a folder that is gone or no directory. Otherwise the folder is
        made anew, and what has its name is put aside."""
        self.path = shard_path(directory, shard)
        self.shard = shard
        self._manifest: Manifest | None = None  # as last saved
        self._spare = 0  # number of an empty segment that is made and listed in advance; 0: none
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
            no_copies = [name for name in names if COPIES_NAME.fullmatch(name) and not self._is_file(name)]
            notes += [f"{name} is put aside: it is not a file" for name in no_copies]
            manifest, why = self._load_manifest()
        # A power failure may leave an empty manifest in a new directory.
        if manifest is None and not why and meta.manifests and (found or not (self.path / MANIFEST).exists()):
            why = "its manifest is missing"
        stock = take_stock(found, manifest, why)
        if refuse and stock.problems:
            said = "; ".join(stock.problems)
            raise StoreError(f"shard {self.shard} is refused: {said} (--damage serve does without)")
        self._spare = _spare_of(stock, found, manifest)
        with explained(f"{self.path} cannot be put in order"):
            for name in no_copies:
                put_aside(self.path / name)
            if self._put_in_order(stock, meta.shards) or no_copies:
                names = self._names()
        problems = [*filter(None, [self._odd_folder]), *stock.problems]
        odd = [
            f"{name} is odd: nothing in {self.path.name} has such a name"
            for name in names
            if KNOWN_NAME.fullmatch(name) is None
        ]
        ended = manifest.ended if manifest else (0, 0)
        return Recovered(sorted(stock.segments), problems, [*stock.notes, *notes, *odd], ended)

    def _load_manifest(self) -> tuple[Manifest | None, str]:
        try:
            self._manifest = Manifest.load(self.path, self._directory_id, self.shard)
            return self._manifest, ""
        except ManifestError as error:
            return None, str(error)

    @cached_property
    def _meta(self) -> Meta:
        meta = self.path.parent / META
        return Meta.decode(meta, durable.read(meta))

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
            return _is_copy(medium.read(fd, COPY_MOST, 0), segment)
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
        changes = self._manifest is None or self._manifest.segments != listed or bool(stock.remove)
        if changes:
            self._list_as(listed, stock.remove)
        self._unlink(stock.remove)
        return changes or bool(stock.aside or stock.back or stock.begin)

    def _put_back(self) -> None:
        """Gives BESIDE files their names. A BACK file tells that all of them exist, so that names may be replaced."""
        for path in list(self.path.glob(f"*{BESIDE}")):
            path.rename(path.with_suffix(BACK))
        for path in list(self.path.glob(f"*{BACK}")):
            path.rename(path.with_suffix(".log"))

    def _list_as(self, segments: dict[int, int], going: Sequence[int] = (), ended: tuple[int, int] = (0, 0)) -> None:
        manifest = Manifest(self._directory_id, self.shard, segments, list(going), ended)
        manifest.save(self.path)
        self._manifest = manifest

    def _listed(self) -> dict[int, int]:
        if self._manifest is None:
            self._manifest = Manifest.load(self.path, self._directory_id, self.shard)
        if self._manifest is None:
            self._manifest = Manifest(self._directory_id, self.shard)
        return dict(self._manifest.segments)

    def _unlink(self, segments: Sequence[int]) -> None:
        for segment in segments:
            for name in (segment_name(segment), copies_name(segment)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self._fd)
        if segments:
            os.fsync(self._fd)

    def note_begun(self, ended: tuple[int, int] = (0, 0)) -> None:
        """Lists segments that have a header by now with its time. Raises StoreError."""
        listed = self._listed()
        begun = self._begun(listed)
        if begun != listed or (self._manifest is not None and ended not in ((0, 0), self._manifest.ended)):
            with explained(f"{self.path} cannot be written"):
                self._list_as(begun, ended=ended)

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
        if self._spare:
            # It stays the spare until it was taken or removed, so that this can be tried again if it fails.
            if segment == self._spare and (fd := self._take_spare(segment)) >= 0:
                self._spare = 0
                return fd
            self.remove(self._spare)
            self._spare = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with explained(f"{self.path_of(segment)} cannot be made"):
            self._clear(segment_name(segment), copies_name(segment))
            fd = os.open(segment_name(segment), flags, 0o640, dir_fd=self._fd)
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(copies_name(segment), dir_fd=self._fd)
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
        with explained(f"{self.path_of(segment)} cannot be removed"):
            listed = self._listed()
            # In order, so that a power failure leaves no gap. A file that could not be unlinked is no longer listed.
            if listed.pop(segment, None) is not None:
                self._list_as(listed, [segment])
            self._unlink([segment])


# --- a segment's header ---------------------------------------------------------------------------------------------


class Header(NamedTuple):
    """A segment's header."""

    shard: int
    shards: int
    segment: int
    time_ns: int
    previous_end: int = 0  # where the previous segment ends; 0: there was none
    missing: int = 0  # for how many missing segments it was put there
    log_began_ns: int = 0  # wall clock, the same in all segments of a log; 0: not known


def decode_version(header: bytes) -> int:
    """The version in a segment's header, known or not."""
    return int(struct_in("segment_header", header).version)


def is_header(content: bytes) -> bool:
    """Whether this is an undamaged header, of any version."""
    header = struct_in("segment_header", content)
    return bool(header.magic == lib.SEGMENT_MAGIC and header.crc == crc32c(content[:SEGMENT_CRC_AT]))


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


if __name__ == "__main__":
    from mq_shards.shards import dump  # imported here because a worker does not need it

    sys.exit(dump.main(sys.argv[1:]))
