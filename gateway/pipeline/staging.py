"""Staged messages: files of sections, which are not published before a writer's batch names them.

    DIR/staged/NAME     whole sections, one after the other; after a crash perhaps a part of a section at the end

A file does not change while a batch has claimed it. A file that no client has touched for a day is dropped. Files are
read and written in threads; only the event loop reads and changes sizes and claims.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from mq_shards.gateway.pipeline import leftovers, message_sections
from mq_shards.gateway.pipeline.message_sections import SectionsError
from mq_shards.shards import durable

DIRECTORY: Final = leftovers.STAGED
MAX_FILES: Final = 65536
UNTOUCHED_S: Final = 24 * 3600.0
_NAME: Final = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9._:-]{0,199}")

T = TypeVar("T")

log = logging.getLogger(__name__)


class StagingError(Exception):
    """One line: why it is refused."""


class BadNameError(StagingError):
    pass


class NotStagedError(StagingError):
    pass


class NoRoomError(StagingError):
    """A limit of this broker is reached: of files, or of staged bytes."""


class ConflictError(StagingError):
    """The file is not what the client believes; `size` is how many bytes it has."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size: Final = size


@dataclass(slots=True)
class _File:
    size: int
    touched_s: float  # wall clock
    end: int | None  # where a section is known to end; None: the file has not been checked yet
    claimed: bool = False
    published: bool = False  # claimed until it can be removed
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Distinguishes a file from a later one of the same name."""

    name: str
    size: int
    changed_ns: int


class Shown(NamedTuple):
    name: str
    size: int
    touched_s: float  # wall clock
    is_claimed: bool  # a batch that is being published has named it


class Staging:
    def __init__(
        self,
        root: Path,
        max_bytes: int,
        max_message_bytes: int,
        threads: Executor,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Takes over files that are there from before. If the folder cannot be read, there are none, and a line says
        so."""
        self._directory: Final = root / DIRECTORY
        self._max_bytes = max_bytes
        self._max_message_bytes = max_message_bytes
        self._threads = threads
        self._clock = clock
        self._files: dict[str, _File] = {}
        try:
            for entry in os.scandir(self._directory):
                stat = entry.stat(follow_symlinks=False)
                self._files[entry.name] = _File(stat.st_size, stat.st_mtime, 0 if stat.st_size == 0 else None)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.error("what is staged cannot be read, and counts as gone until the gateway is started again: %s", error)
        self._bytes = sum(file.size for file in self._files.values())

    def path(self, name: str) -> Path:
        return self._directory / name

    # --- what clients stage -----------------------------------------------------------------------------------------

    async def put(self, name: str, at: int, body: bytes) -> int:
        """Writes sections after the first `at` bytes, in place of what follows them, unless the same bytes are there.
        Returns how many bytes the file has then. Raises StagingError, SectionsError, OSError."""
        _check_name(name)
        await self._in_thread(_check_body, body, self._max_message_bytes)
        while True:
            is_new = name not in self._files
            if is_new and len(self._files) >= MAX_FILES:
                raise NoRoomError(f"{MAX_FILES} files are staged, which is as many as there may be")
            file = self._files.setdefault(name, _File(0, self._clock(), 0))
            async with file.lock:
                if self._files.get(name) is not file:
                    continue  # it was dropped meanwhile
                try:
                    return await self._put(name, file, at, body)
                except (StagingError, OSError):
                    if is_new and file.size == 0:
                        await self._forget(name, file)
                    raise

    async def _put(self, name: str, file: _File, at: int, body: bytes) -> int:
        _check_free(name, file)
        if at > file.size:
            raise ConflictError(f"{name} has {file.size} bytes", file.size)
        file.touched_s = self._clock()
        growth = at + len(body) - file.size
        if growth > 0 and self._bytes + growth > self._max_bytes:
            raise NoRoomError(f"{self._bytes} bytes are staged; http.staged-bytes is {self._max_bytes}")
        self._bytes += max(growth, 0)  # counted before it is written, so that other requests see it
        before = file.size
        try:
            file.size, file.end = await self._in_thread(_write, self.path(name), at, body, file.size, file.end)
        except ConflictError as error:
            file.size = error.size
            raise
        except OSError:
            file.size, file.end = await self._in_thread(_size_of, self.path(name)), None
            raise
        finally:
            self._bytes += file.size - before - max(growth, 0)
        return file.size

    async def drop(self, name: str) -> bool:
        """Removes a file. False: there is none. Raises ConflictError, OSError."""
        _check_name(name)
        file = self._files.get(name)
        if file is None:
            return False
        async with file.lock:
            if self._files.get(name) is not file:
                return False
            _check_free(name, file)
            await self._forget(name, file)
            return True

    async def drop_untouched(self) -> None:
        """Removes files that no client has touched for a day, or that could not be removed before. Raises OSError."""
        await self._remove([name for name, file in self._files.items() if file.published])
        now = self._clock()
        for file in self._files.values():
            file.touched_s = min(file.touched_s, now)  # the clock may have been set back
        before = now - UNTOUCHED_S
        for name in [name for name, file in self._files.items() if file.touched_s < before and not file.claimed]:
            with contextlib.suppress(ConflictError):
                await self.drop(name)

    async def _forget(self, name: str, file: _File) -> None:
        await self._in_thread(_unlink, self.path(name))
        self._bytes -= file.size
        file.size = 0
        del self._files[name]

    def shown(self, prefix: str, after: str, most: int) -> list[Shown]:
        """The first `most` files, by name, whose names begin with `prefix` and come after `after`."""
        names = heapq.nsmallest(most, (name for name in self._files if name.startswith(prefix) and name > after))
        files = self._files
        return [Shown(name, files[name].size, files[name].touched_s, files[name].claimed) for name in names]

    # --- what a batch does with files --------------------------------------------------------------------------------

    async def claim(self, wanted: Iterable[tuple[str, int]]) -> list[Stamp]:
        """Claims all of these files and makes them durable, or claims none. Raises StagingError, OSError."""
        claimed: list[str] = []
        try:
            for name, size in wanted:
                file = self._files.get(name)
                if file is None:
                    raise NotStagedError(f"{name:.200} is not staged")
                _check_free(name, file)
                file.claimed = True
                claimed.append(name)
                async with file.lock:  # wait for a write that is under way
                    pass
                if file.size != size:
                    raise ConflictError(f"{name} has {file.size} bytes, not {size}", file.size)
            return await self._in_thread(_make_durable, self._directory, claimed)
        except BaseException:
            self.release(claimed)
            raise

    def claim_again(self, stamps: Iterable[Stamp]) -> None:
        """Claims, after a restart, the files of a batch that is under way."""
        for stamp in stamps:
            if (file := self._files.get(stamp.name)) is not None:
                file.claimed = True

    def release(self, names: Iterable[str]) -> None:
        for name in names:
            if (file := self._files.get(name)) is not None:
                file.claimed = False

    async def remove(self, stamps: Iterable[Stamp]) -> None:
        """Removes files that were published. Raises OSError: drop_untouched() tries it again."""
        await self._remove([stamp.name for stamp in stamps if stamp.name in self._files])

    async def _remove(self, names: Iterable[str]) -> None:
        failed = None
        for name in names:
            file = self._files[name]
            try:
                await self._forget(name, file)
            except OSError as error:
                file.published, failed = True, error
        if failed is not None:
            raise failed

    def remove_left(self, stamps: Iterable[Stamp]) -> None:
        """Removes files that were published, but not removed before the process died.

        To be called before any request is served.
        """
        for stamp in stamps:
            file, path = self._files.get(stamp.name), self.path(stamp.name)
            if file is None:
                continue
            try:
                stat = path.lstat()
                if (stat.st_size, stat.st_mtime_ns) == (stamp.size, stamp.changed_ns):
                    path.unlink()
                    self._bytes -= self._files.pop(stamp.name).size
            except OSError as error:
                file.claimed = file.published = True
                log.warning("what was published cannot be removed yet: %s", error)

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


# --- run in a thread ------------------------------------------------------------------------------------------------


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise BadNameError("a name has 1 to 200 letters, digits, _ - : and . but no . first")


def _check_free(name: str, file: _File) -> None:
    if file.claimed:
        what = "was published, and cannot be removed yet" if file.published else "is being published"
        raise ConflictError(f"{name} {what}", file.size)


def _check_body(body: bytes, max_message_bytes: int) -> None:
    for _ in message_sections.check(body, max_message_bytes):
        pass


def _write(path: Path, at: int, body: bytes, size: int, end: int | None) -> tuple[int, int | None]:
    """Returns how many bytes the file has then, and where a section is known to end."""
    fd = _open(path)
    try:
        if at < size and at + len(body) <= size and _is_there(fd, at, body):
            return size, end
        if at not in (0, end):
            _check_boundary(path, at, size)
        os.ftruncate(fd, at)
        try:
            done = 0
            while done < len(body):
                done += os.pwrite(fd, memoryview(body)[done:], at + done)
        except OSError:
            os.ftruncate(fd, at)
            raise
    finally:
        os.close(fd)
    return at + len(body), at + len(body)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o640)
    except FileNotFoundError:
        path.parent.parent.mkdir(mode=0o700, exist_ok=True)
        path.parent.mkdir(mode=0o750, exist_ok=True)
        return os.open(path, flags, 0o640)


def _is_there(fd: int, at: int, body: bytes) -> bool:
    step = 1 << 20
    return all(os.pread(fd, step, at + n)[: len(body) - n] == body[n : n + step] for n in range(0, len(body), step))


def _check_boundary(path: Path, at: int, size: int) -> None:
    try:
        for _ in message_sections.in_file(path, at):
            pass
    except SectionsError:
        raise ConflictError(f"no section of {path.name} ends at {at}", size) from None


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


def _make_durable(directory: Path, names: list[str]) -> list[Stamp]:
    stamps = []
    for name in names:
        fd = durable.open_to_read(directory / name)
        try:
            os.fsync(fd)
            stat = os.fstat(fd)
        finally:
            os.close(fd)
        stamps.append(Stamp(name, stat.st_size, stat.st_mtime_ns))
    for path in (directory, directory.parent) if names else ():
        durable.sync_directory(path)
    return stamps
