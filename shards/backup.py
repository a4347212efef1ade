"""A copy of a data directory, whose broker may be running. A repeated backup copies only what is new.

    TO/backup.json                       which files belong to the backup, and how long each is; replaced at the end
    TO/log/shard-0007/0000000003-0.log   a segment; the one that the broker writes to grows with each backup
    TO/rest-2/...                        all other files, copied again each time

Of a shard, a prefix of its log is copied, which is what a broker that was killed at that point would find: all segments
that the manifest lists are opened at one moment, then the end of each is found, the last one's first, since segments
are written one after the other. When all shards are copied, what was written meanwhile is cut off at one moment for all
of them (backup_cut.py), and copied too. Files beside the logs (readers, writers, a catalog) are copied before
the logs, so that all messages they mention are in the logs.

An interrupted backup leaves the previous one intact: files only grow, and files no longer needed are removed last.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from mq_shards.shards import durable, erased, medium
from mq_shards.shards.backup_cut import Tail, cut
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.last_run import NAME as LAST_RUN
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.manifest import Manifest, ManifestError
from mq_shards.shards.meta import Meta, read_meta
from mq_shards.shards.paths import LOCK, SEGMENT_NAME, SHARD_NAME, segment_name, shard_path
from mq_shards.shards.reader.scan import Columns, FileScan, find_whole
from mq_shards.shards.segment_header import Header, decode_header, is_header, lacks_header
from mq_shards.shards.store_error import StoreError, explained

VERSION: Final = 2
UNSUMMED: Final = 1  # the version before there was a checksum of backup.json itself
CONTENTS: Final = "backup.json"
LOG: Final = "log"
REST: Final = "rest-"
PIECE_BYTES: Final = 4 << 20
LAST_BYTES: Final = 1 << 20  # of a segment that has the length of its copy, this is what is compared
TRIES: Final = 20  # retention may remove what was about to be opened, and writers what they have staged
WRITE_TRIES: Final = 5
WRITE_S: Final = 0.02  # a write to the page cache takes much less
NO_HEADER: Final = 1  # stands for when a segment with a damaged header was begun
STAGED: Final = "staged"
WRITERS: Final = "writers"
_COPIES: Final = re.compile(r"\d{10}\.names")


@dataclass(frozen=True, slots=True)
class File:
    """`at`: path in the backup. `begun_ns`: the wall clock in a segment's header; 0: not a segment. `changed_ns`: the
    time at which any other file was changed, which tells it from a later file of the same name."""

    at: str
    bytes: int
    crc: int
    begun_ns: int = 0
    changed_ns: int = 0


@dataclass(frozen=True, slots=True)
class Backup:
    """The content of backup.json. `files` is keyed by paths in the data directory."""

    id: str
    shards: int
    at_ns: int
    files: dict[str, File]

    def save(self, path: Path) -> None:
        said = {"version": VERSION, **asdict(self)}
        durable.save(path / CONTENTS, json.dumps({"crc": _crc(said), **said}).encode())

    @staticmethod
    def load(path: Path) -> Backup | None:
        """Reads backup.json; None: there is none. Raises StoreError."""
        try:
            found = json.loads(durable.read(path / CONTENTS))
            crc = found.pop("crc", None)
            if found["version"] not in (VERSION, UNSUMMED):
                raise StoreError(f"{path / CONTENTS} is of another version than {VERSION}")
            if crc != _crc(found) and found["version"] == VERSION:
                raise StoreError(f"{path / CONTENTS} is damaged")
            del found["version"]
            files = {name: File(**file) for name, file in found.pop("files").items()}
            return Backup(**found, files=files)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise StoreError(f"{path / CONTENTS} is damaged") from None


def _crc(said: dict[str, Any]) -> int:
    return crc32c(json.dumps(said, sort_keys=True).encode())


@dataclass(slots=True)
class Made:
    """The result of making a backup."""

    backup: Backup
    copied_bytes: int = 0
    problems: tuple[str, ...] = ()


def make(source: Path, to: Path) -> Made:
    """Backs up the data directory `source` to `to`. Raises StoreError."""
    meta = read_meta(source)
    with explained(f"{source} cannot be copied to {to}"):
        if to.resolve().is_relative_to(source.resolve()):
            raise StoreError(f"{to} is in the data directory itself")
        for path in (shard_path(source, shard) for shard in range(meta.shards)):
            if not path.is_dir():
                raise StoreError(f"{path} is missing, or not a directory: start the broker, which puts that in order")
        to.mkdir(mode=0o750, parents=True, exist_ok=True)
        with _locked(to):
            before = Backup.load(to)
            if before is None and not all(map(_is_ours, to.iterdir())):
                raise StoreError(f"{to} is no backup, and not empty")
            if before is not None and before.id != meta.id:
                raise StoreError(f"{to} is a backup of another data directory")
            return _Making(source, to, meta, before).run()


@contextlib.contextmanager
def _locked(to: Path) -> Iterator[None]:
    lock = os.open(to / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StoreError(f"another backup to {to} is being made") from None
    finally:
        os.close(lock)


def _is_ours(path: Path) -> bool:
    """Whether a first backup that was not finished may have left it."""
    return path.name in (LOCK, LOG, f"{CONTENTS}.new") or _is_rest(path)


def _is_rest(path: Path) -> bool:
    return path.name.startswith(REST) and path.name[len(REST) :].isdecimal()


class _Making:
    def __init__(self, source: Path, to: Path, meta: Meta, before: Backup | None) -> None:
        self._source = source
        self._to = to
        self._meta = meta
        self._before = before.files if before is not None else {}
        self._files: dict[str, File] = {}
        self._problems: list[str] = []
        self._damaged: set[str] = set()
        self._copied = 0
        self._columns = Columns()

    def run(self) -> Made:
        self._copy_rest()
        for shard in range(self._meta.shards):
            self._copy_shard(shard)
        at_ns = self._copy_tails()
        backup = Backup(self._meta.id, self._meta.shards, at_ns, self._files)
        backup.save(self._to)
        self._tidy()
        return Made(backup, self._copied, tuple(self._problems))

    # --- what is beside the logs ------------------------------------------------------------------------------------

    def _copy_rest(self) -> None:
        used = [int(path.name[len(REST) :]) for path in self._to.iterdir() if _is_rest(path)]
        folder = self._to / f"{REST}{max(used, default=0) + 1}"
        for _ in range(TRIES):
            shutil.rmtree(folder, ignore_errors=True)
            found: dict[str, File] = {}
            for path in self._rest():
                name = str(path.relative_to(self._source))
                try:
                    with os.fdopen(durable.open_to_read(path), "rb") as file:
                        changed_ns = os.fstat(file.fileno()).st_mtime_ns
                        content = file.read()
                except FileNotFoundError:
                    continue
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                _write_new(target, content)
                found[name] = File(
                    str(target.relative_to(self._to)), len(content), crc32c(content), changed_ns=changed_ns
                )
            if self._staged_are_there(folder, found):
                for path in (folder, *(one for one in folder.rglob("*") if one.is_dir())):
                    durable.sync_directory(path)
                self._files |= found
                self._copied += sum(file.bytes for file in found.values())
                return
        raise StoreError(f"{self._source / WRITERS} changes faster than it can be copied")

    def _rest(self) -> Iterator[Path]:
        """All files but segments, in the order of copying. Copies of names are among them: they are written after the
        names themselves, so copied before. Staged files come last: a decision about them stands until they are out.
        Erasures are written after the marks of their segments, so copied before them."""
        for path in sorted(self._source.iterdir(), key=lambda path: (path.name == erased.SEGMENTS, path.name)):
            if SHARD_NAME.fullmatch(path.name):
                yield from sorted(one for one in path.iterdir() if _COPIES.fullmatch(one.name))
            elif path.is_dir():
                if path.name != STAGED:
                    yield from (one for one in sorted(path.rglob("*")) if one.is_file() and one.suffix != ".new")
            elif path.name not in (LOCK, LAST_RUN) and path.suffix != ".new" and path.is_file():
                yield path
        if (self._source / STAGED).is_dir():
            yield from sorted(one for one in (self._source / STAGED).rglob("*") if one.is_file())

    @staticmethod
    def _staged_are_there(folder: Path, found: dict[str, File]) -> bool:
        """Whether all staged files were copied that, by the copied decisions, writers had still to publish."""
        for name in found:
            if not name.startswith(f"{WRITERS}/"):
                continue
            try:
                decision = json.loads((folder / name).read_bytes())
                wanted = [one["name"] for one in decision["staged"]] if decision["state"] == "publishing" else []
            except (ValueError, KeyError, TypeError, RecursionError):
                continue  # it is damaged in the directory, too
            if any(f"{STAGED}/{staged}" not in found for staged in wanted):
                return False
        return True

    # --- a shard ----------------------------------------------------------------------------------------------------

    def _copy_shard(self, shard: int) -> None:
        opened = self._open_all(shard)
        try:
            folder = self._to / LOG / shard_path(Path(), shard).name
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            for segment, size in sorted(self._sizes(shard, opened).items()):
                self._copy_segment(shard, segment, opened[segment], size, folder)
            durable.sync_directory(folder)
        finally:
            for fd in opened.values():
                os.close(fd)

    def _copy_tails(self) -> int:
        """Copies what was written since, up to one moment for all shards. Returns that moment."""
        tails = [self._tail(shard) for shard in range(self._meta.shards)]
        try:
            found = cut(self._source, tails, self._columns)
            if found.problem:
                self._problems.append(f"the shards are of nearly one moment only: {found.problem}")
            for shard, tail in enumerate(tails):
                self._copy_tail(shard, tail)
            return found.at_ns
        finally:
            for tail in tails:
                tail.close()

    def _tail(self, shard: int) -> Tail:
        path = shard_path(self._source, shard)
        segments = self._segments_of(shard)
        last = max(segments, default=0)
        ends = {last: self._files[segments[last]].bytes} if segments else {}
        return Tail(path, lambda: self._listed(path, shard), set(segments), ends)

    def _segments_of(self, shard: int) -> dict[int, str]:
        """By number, the copied segments of a shard, as paths in the data directory."""
        paths = {name: Path(name) for name in self._files if name.startswith(f"{shard_path(Path(), shard).name}/")}
        return {int(path.stem): name for name, path in paths.items() if SEGMENT_NAME.fullmatch(path.name)}

    def _copy_tail(self, shard: int, tail: Tail) -> None:
        folder = self._to / LOG / shard_path(Path(), shard).name
        # Segments that retention has removed meanwhile do not belong to that moment.
        for segment, name in self._segments_of(shard).items():
            if segment not in tail.there:
                del self._files[name]
        damaged_before = set(self._damaged)
        said = 0  # where a segment ends, according to the worker for the last one, and the one behind it for any other
        ends: dict[int, int] = {}
        for segment, end in sorted(tail.ends.items(), reverse=True):
            fd = tail.open.get(segment)
            if fd is not None and segment in tail.there:
                if tail.said is not None and segment == tail.said.last:
                    said = tail.said.bytes
                name = self._name(shard, segment)
                is_known = end >= said or name in damaged_before
                ends[segment] = end if is_known else self._whole_bytes(fd, segment, name, said)
                said = self._header(fd).previous_end
        for segment, end in sorted(ends.items()):
            name, fd = self._name(shard, segment), tail.open[segment]
            mine = self._files.get(name)
            if mine is None:
                self._copy_segment(shard, segment, fd, end, folder)
            elif name in damaged_before:
                self._copy_again(shard, segment, fd, folder)
            elif end > mine.bytes:
                self._grow(name, fd, mine.bytes, end, mine.crc)
        durable.sync_directory(folder)

    def _copy_again(self, shard: int, segment: int, fd: int, folder: Path) -> None:
        """Copies a damaged segment anew if more has been written to it. It was copied as it was, so in its copy that is
        zeros. What the backup before has of it stays."""
        name = self._name(shard, segment)
        mine, before, size = self._files[name], self._before.get(name), os.fstat(fd).st_size
        if mine.bytes >= size and self._is_as_copied(mine, self._header(fd), fd, 0):
            return
        if before is not None and before.at == mine.at:
            self._files[name] = replace(mine, at=str(self._free(folder, segment).relative_to(self._to)))
        self._grow(name, fd, 0, size, 0)

    def _grow(self, name: str, fd: int, at: int, size: int, crc: int) -> None:
        """Copies a segment from `at` on, again or for the first time; `crc`: of what is before."""
        mine = self._files[name]
        crc = self._append(self._to / mine.at, fd, at, size, crc)
        self._files[name] = replace(mine, bytes=size, crc=crc)

    def _open_all(self, shard: int) -> dict[int, int]:
        """Opens all segments that are listed at one moment."""
        path = shard_path(self._source, shard)
        for _ in range(TRIES):
            opened: dict[int, int] = {}
            try:
                listed = self._listed(path, shard)
                for segment in sorted(listed):
                    opened[segment] = durable.open_to_read(path / segment_name(segment))
                if self._listed(path, shard) == listed:
                    return opened
            except FileNotFoundError:
                pass  # retention has just removed it
            for fd in opened.values():
                os.close(fd)
            time.sleep(0.01)
        raise StoreError(f"{path}: segments that its manifest lists are not there")

    def _listed(self, path: Path, shard: int) -> set[int]:
        try:
            manifest = Manifest.load(path, self._meta.id, shard)
        except ManifestError as error:
            raise StoreError(f"{path}: {error}") from None
        if manifest is not None:
            return set(manifest.segments)
        # It is of a version that had none, and has not been served since; or it is lost: what is there counts.
        return {int(found[1]) for one in path.iterdir() if (found := SEGMENT_NAME.fullmatch(one.name))}

    def _sizes(self, shard: int, opened: dict[int, int]) -> dict[int, int]:
        """The end of each segment that was begun. The last is examined first, since its records are later than those of
        the segments before it; its header says where the segment before it ends."""
        sizes: dict[int, int] = {}
        end = 0
        for segment in sorted(opened, reverse=True):
            fd = opened[segment]
            if lacks_header(fd, is_last=segment == max(opened)):
                continue  # it waits for its first record
            header = self._header(fd)
            name = self._name(shard, segment)
            before = self._before.get(name)
            if end and before is not None and before.bytes == end and _is_of(before, header):
                sizes[segment] = end  # it was complete when it was copied
            else:
                sizes[segment] = self._whole_bytes(fd, segment, name, end)
            end = header.previous_end
        return sizes

    @staticmethod
    def _header(fd: int) -> Header:
        content = medium.read(fd, SEGMENT_HEADER_BYTES, 0)
        if len(content) == SEGMENT_HEADER_BYTES and not is_header(content):
            return Header(0, 0, 0, 0, 0, 0)  # it is damaged, which its broker reports
        return decode_header(content)

    @staticmethod
    def _name(shard: int, segment: int) -> str:
        return f"{shard_path(Path(), shard).name}/{segment_name(segment)}"

    def _copy_segment(self, shard: int, segment: int, fd: int, size: int, folder: Path) -> None:
        header = self._header(fd)
        begun_ns = header.time_ns or NO_HEADER
        name = self._name(shard, segment)
        before = self._before.get(name)
        if before is not None and _is_of(before, header) and self._goes_on(before, header, segment, fd, size):
            path, at, crc = self._to / before.at, before.bytes, before.crc
            begun_ns = before.begun_ns
        else:
            path, at, crc = self._free(folder, segment), 0, 0
        crc = self._append(path, fd, at, size, crc)
        self._files[name] = File(str(path.relative_to(self._to)), size, crc, begun_ns)

    @staticmethod
    def _free(folder: Path, segment: int) -> Path:
        """The path of a new copy."""
        return next(one for n in range(1 << 16) if not (one := folder / f"{segment:010d}-{n}.log").exists())

    def _whole_bytes(self, fd: int, segment: int, name: str, end: int) -> int:
        """Where the last whole record ends; the file's size if the segment is damaged before its `end` (0: `end` is not
        known, since no segment follows)."""
        size = os.fstat(fd).st_size
        scan = FileScan(fd, segment, SEGMENT_HEADER_BYTES, size, self._columns)
        while scan.next() is not None:
            pass
        is_damaged = scan.offset < end if end else self._is_damage(fd, segment, scan.offset, size)
        if is_damaged:
            self._damaged.add(name)
            self._problems.append(f"{name} is damaged at {scan.offset}: it is copied as it is")
            return size
        return scan.offset

    @staticmethod
    def _is_damage(fd: int, segment: int, bad: int, size: int) -> bool:
        """Whether a whole record follows a place without one, as recovery judges. A record that is being written may
        look damaged, so it is read again a moment later."""
        for _ in range(WRITE_TRIES):
            if find_whole(fd, segment, bad, size) in (None, bad):
                return False
            time.sleep(WRITE_S)
        return True

    def _goes_on(self, before: File, header: Header, segment: int, fd: int, size: int) -> bool:
        """Whether the segment still begins with what was copied: a power failure may have cut it."""
        if before.bytes > size or not (self._to / before.at).exists():
            return False
        if before.bytes < size:
            return self._is_as_copied(before, header, fd, 0)
        # One that was cut and has the same length again has other records at its end: each has the time of its writing.
        return self._is_as_copied(before, header, fd, max(0, size - LAST_BYTES)) or self._is_damaged_since(
            before, segment, fd, size
        )

    def _is_as_copied(self, before: File, header: Header, fd: int, begin: int) -> bool:
        """Compares from `begin` on. Blocks that cannot be read any more, and a header that is damaged or was rewritten,
        do not count: the copy has them."""
        with os.fdopen(durable.open_to_read(self._to / before.at), "rb") as copy:
            copy.seek(begin)
            for at in range(begin, before.bytes, PIECE_BYTES):
                count = min(PIECE_BYTES, before.bytes - at)
                copied = copy.read(count)
                if copied != medium.read(fd, count, at) and not _is_alike(copied, fd, at, header):
                    return False
        return True

    def _is_damaged_since(self, before: File, segment: int, fd: int, size: int) -> bool:
        """Whether the segment differs from its copy because it was damaged. Then the copy counts."""
        scan = FileScan(fd, segment, SEGMENT_HEADER_BYTES, size, self._columns)
        while scan.next() is not None:
            pass
        if scan.offset >= size:
            return False
        self._problems.append(f"{before.at}: its segment is damaged at {scan.offset} now: this copy of it is kept")
        return True

    def _append(self, path: Path, fd: int, at: int, size: int, crc: int) -> int:
        if at == size and path.exists():
            return crc
        out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            os.ftruncate(out, at)  # left by a backup that was interrupted
            while at < size:
                data = medium.read(fd, min(PIECE_BYTES, size - at), at)
                if not data:
                    raise StoreError(f"{path.name}: the segment was cut while it was copied")
                crc = crc32c(data, crc)
                view = memoryview(data)
                while view:
                    view = view[os.pwrite(out, view, at + len(data) - len(view)) :]
                at += len(data)
                self._copied += len(data)
            os.fsync(out)
        finally:
            os.close(out)
        return crc

    # --- what is not needed any more --------------------------------------------------------------------------------

    def _tidy(self) -> None:
        needed = {file.at for file in self._files.values()}
        rest = {name.split("/")[0] for name in needed}
        for path in list(self._to.iterdir()):
            if _is_rest(path) and path.name not in rest:
                shutil.rmtree(path, ignore_errors=True)
        for path in (self._to / LOG).glob("*/*.log"):
            # A copy from before its segment was damaged may be the only one that is whole.
            of = f"{path.parent.name}/{path.name.partition('-')[0]}.log"
            if str(path.relative_to(self._to)) not in needed and of not in self._damaged:
                path.unlink()


def _is_of(before: File, header: Header) -> bool:
    """Whether `before` may be a copy of the segment with this header; both have the same number."""
    return header.time_ns in (0, before.begun_ns)


def _is_alike(copied: bytes, fd: int, at: int, header: Header) -> bool:
    """Compares blocks, except those that cannot be read, and the first one if its header is damaged or rewritten."""
    for begin in range(0, len(copied), medium.BLOCK):
        block = copied[begin : begin + medium.BLOCK]
        if at + begin == 0 and not header.time_ns:
            continue
        if block != medium.read(fd, len(block), at + begin) and not medium.is_failing(fd, len(block), at + begin):
            return False
    return True


def _write_new(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def contents_json(made: Made) -> dict[str, Any]:
    segments = [file for file in made.backup.files.values() if file.begun_ns]
    return {
        "id": made.backup.id,
        "segments": len(segments),
        "bytes": sum(file.bytes for file in made.backup.files.values()),
        "copied_bytes": made.copied_bytes,
        "problems": list(made.problems),
    }
