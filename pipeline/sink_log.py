"""The files that count in a directory that Spark's streams write, by Spark's own log of them, `_spark_metadata`.

Micro-batch N writes a file N there, with a line of JSON for each of its files; every tenth writes N.compact instead,
which has all files up to N. So the replacement of the last N.compact replaces or removes files at one blow: a reader
that lists the directory finds either the old files or the new ones. Files that do not count any more stay for a while
(`GRACE_S`), for readers that have listed them before.

No query may write into the directory meanwhile: one that goes on takes from N.compact which files count.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import orjson
from mq_shards.shards import durable

GRACE_S: Final = 86400.0
_VERSION: Final = b"v1"
METADATA: Final = "_spark_metadata"
_COMPACT: Final = ".compact"
_LEFT: Final = "_left.json"  # by file name: since when (in s) the file does not count, or is expected


class SinkLogError(Exception):
    """One line: what is wrong with a directory's log, or that it cannot be read from here."""


@dataclass(frozen=True)
class SinkFile:
    name: str
    """In the directory."""
    path: Path
    size: int
    modified_s: float
    line: bytes
    """As Spark has written it."""


def newest_batch(directory: Path) -> int:
    """Returns the last micro-batch in the directory's log; -1: none. Spark's sink takes none up to it any more,
    whatever checkpoint it is of."""
    return max((int(name.removesuffix(_COMPACT)) for name in _names(directory)), default=-1)


def _names(directory: Path) -> list[str]:
    """Returns the names of the log's files."""
    return [path.name for path in (directory / METADATA).glob("*") if path.name.removesuffix(_COMPACT).isdecimal()]


class SinkLog:
    def __init__(self, directory: Path) -> None:
        """Raises SinkLogError."""
        self.directory = directory
        self._log = directory / METADATA
        names = _names(directory)
        compacted = [int(name.removesuffix(_COMPACT)) for name in names if name.endswith(_COMPACT)]
        self._compacted = max(compacted, default=-1)
        later = sorted(int(name) for name in names if name.isdecimal() and int(name) > self._compacted)
        self.settled = self._read(f"{self._compacted}.compact") if compacted else []
        """Those that can be replaced."""
        self.files = [*self.settled, *(file for number in later for file in self._read(str(number)))]
        """All that count."""

    def replace(self, gone: Collection[Path], come: Iterable[Path]) -> None:
        """Replaces settled files by others, which must be there and durable, or by none. Raises OSError."""
        left, settled = self._left(), len(self.settled)
        left |= {file.name: time.time() for file in self.settled if file.path in gone}
        durable.save(self.directory / _LEFT, orjson.dumps(left))
        self.settled = [file for file in self.settled if file.path not in gone] + [self._written(path) for path in come]
        later = [file for file in self.files[settled:] if file.path not in gone]
        self.files = [*self.settled, *later]
        path = self._log / f"{self._compacted}.compact"
        # Hadoop's checksum is that of the old content. A file that has none is not checked.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        durable.save(path, b"\n".join([_VERSION, *(file.line for file in self.settled)]))

    def expect(self, path: Path) -> None:
        """Announces a file: if it never comes to count, it is removed after a while. Raises OSError."""
        durable.save(self.directory / _LEFT, orjson.dumps(self._left() | {self._name(path): time.time()}))

    def remove_left(self, grace_s: float = GRACE_S, listed: Collection[str] = ()) -> int:
        """Removes half-written files, and files that have not counted for `grace_s`; returns the number of these. For
        names in `listed`, of which readers are still told, the time begins again. Raises OSError."""
        for folder in {file.path.parent for file in self.files}:
            for half in folder.glob(".part-*.new"):
                half.unlink()
        left = self._left()
        counting = {file.name for file in self.files}
        before = time.time() - grace_s
        gone = [name for name, since in left.items() if since <= before]
        for name in counting.intersection(gone):  # it was not replaced after all, or is a replacement itself
            gone.remove(name)
            del left[name]
        told_of = set(listed).intersection(gone)
        left |= dict.fromkeys(told_of, time.time())
        gone = [name for name in gone if name not in told_of]
        for name in gone:
            with contextlib.suppress(FileNotFoundError):
                (self.directory / name).unlink()
            (self.directory / name).with_name(f".{Path(name).name}.crc").unlink(missing_ok=True)
            del left[name]
        if gone or told_of:
            durable.save(self.directory / _LEFT, orjson.dumps(left))
        return len(gone)

    @property
    def has_replaced(self) -> bool:
        """Whether files were replaced since the table was last emptied."""
        return (self.directory / _LEFT).exists()

    def _left(self) -> dict[str, float]:
        try:
            found: dict[str, float] = orjson.loads((self.directory / _LEFT).read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise SinkLogError(f"{self.directory / _LEFT} is damaged ({error}): remove it") from None
        return found

    def _read(self, name: str) -> list[SinkFile]:
        path = self._log / name
        try:
            version, *lines = path.read_bytes().splitlines()
            if version != _VERSION:
                raise ValueError(f"its version is {version!r}")
            return [self._file(orjson.loads(line), line) for line in lines]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SinkLogError(f"{path} cannot be read: {error}") from None

    def _file(self, said: Any, line: bytes) -> SinkFile:  # noqa: ANN401
        if said["action"] != "add":
            raise ValueError(f"its action is {said['action']!r}")
        path = local_path(said["path"])
        return SinkFile(self._name(path), path, said["size"], said["modificationTime"] / 1000, line)

    def _name(self, path: Path) -> str:
        """Spark names files by the directory's path as it was given, which may lead through a link."""
        for file, directory in ((path, self.directory), (path.resolve(), self.directory.resolve())):
            if file.is_relative_to(directory):
                return str(file.relative_to(directory))
        raise ValueError(
            f"it is of another directory, as it names {path}, where Spark would look for it. If {self.directory} was "
            "moved, put a link to it in its old place, and name that"
        )

    def _written(self, path: Path) -> SinkFile:
        found = path.stat()
        modified_ms = found.st_mtime_ns // 1_000_000
        said = {
            "path": path.as_uri(), "size": found.st_size, "isDir": False, "modificationTime": modified_ms,
            "blockReplication": 1, "blockSize": 33554432, "action": "add",
        }  # fmt: skip
        return SinkFile(self._name(path), path, found.st_size, modified_ms / 1000, orjson.dumps(said))


def local_path(text: str) -> Path:
    """Returns the path of a path or of a file: URL, as Spark writes it. Raises ValueError for other places."""
    if "://" not in text and not text.startswith("file:"):
        return Path(text)
    if not text.startswith("file:"):
        raise ValueError(f"{text} is not on this machine")
    return Path(unquote(urlsplit(text).path))
