"""Which files of a directory that Spark's streams write count: Spark's own log of them, `_spark_metadata`.

A micro-batch N writes a file N there, a line of JSON for each of its files; every tenth writes N.compact instead, which
has all up to N. So files take the place of others, or go, by the replacement of the last N.compact, at one blow: who
lists the directory finds what was or what is. Files that do not count any more stay for a while (`GRACE_S`), for those
who have listed them before.

Nobody may write into the directory meanwhile: a query that goes on takes from N.compact what counts.
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
_LEFT: Final = "_left.json"  # files that do not count (any more), by their names in the directory: since when, in s


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


class SinkLog:
    def __init__(self, directory: Path) -> None:
        """Raises SinkLogError."""
        self.directory = directory
        self._log = directory / "_spark_metadata"
        names = [path.name for path in self._log.glob("*") if path.name.removesuffix(".compact").isdecimal()]
        compacted = [int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")]
        self._compacted = max(compacted, default=-1)
        later = sorted(int(name) for name in names if name.isdecimal() and int(name) > self._compacted)
        self.settled = self._read(f"{self._compacted}.compact") if compacted else []
        """Those that can be replaced."""
        self.files = [*self.settled, *(file for number in later for file in self._read(str(number)))]
        """All that count."""

    def replace(self, gone: Collection[Path], come: Iterable[Path]) -> None:
        """Settled files by others, which are there and durable; or by none. Raises OSError."""
        left, settled = self._left(), len(self.settled)
        left |= {file.name: time.time() for file in self.settled if file.path in gone}
        durable.save(self.directory / _LEFT, orjson.dumps(left))
        self.settled = [file for file in self.settled if file.path not in gone] + [self._written(path) for path in come]
        later = [file for file in self.files[settled:] if file.path not in gone]
        self.files = [*self.settled, *later]
        path = self._log / f"{self._compacted}.compact"
        # Hadoop's checksum of what is there now. A file that has none is not checked.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        durable.save(path, b"\n".join([_VERSION, *(file.line for file in self.settled)]))

    def expect(self, path: Path) -> None:
        """A file that is to come: should it never count, it goes after a while. Raises OSError."""
        durable.save(self.directory / _LEFT, orjson.dumps(self._left() | {self._name(path): time.time()}))

    def remove_left(self, grace_s: float = GRACE_S, listed: Collection[str] = ()) -> int:
        """How many files went that do not count, and have not for so long; and what is half written. `listed`: names
        that somebody is told of still, for whom the time begins again. Raises OSError."""
        for folder in {file.path.parent for file in self.files}:
            for half in folder.glob(".part-*.new"):
                half.unlink()
        left = self._left()
        counting = {file.name for file in self.files}
        before = time.time() - grace_s
        gone = [name for name, since in left.items() if since <= before]
        for name in counting.intersection(gone):  # its replacement did not come to pass, or it is one that did
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
        """Ever since the table was last emptied."""
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
        """Spark names files as it was told of the directory, which may have been by way of a link."""
        if not path.is_relative_to(self.directory):
            path = path.resolve().relative_to(self.directory.resolve())
            return str(path)
        return str(path.relative_to(self.directory))

    def _written(self, path: Path) -> SinkFile:
        found = path.stat()
        modified_ms = found.st_mtime_ns // 1_000_000
        said = {
            "path": path.as_uri(), "size": found.st_size, "isDir": False, "modificationTime": modified_ms,
            "blockReplication": 1, "blockSize": 33554432, "action": "add",
        }  # fmt: skip
        return SinkFile(self._name(path), path, found.st_size, modified_ms / 1000, orjson.dumps(said))


def local_path(text: str) -> Path:
    """Of a path, or a file: URL as Spark writes it. Raises ValueError for what is elsewhere."""
    if "://" not in text and not text.startswith("file:"):
        return Path(text)
    if not text.startswith("file:"):
        raise ValueError(f"{text} is not on this machine")
    return Path(unquote(urlsplit(text).path))
