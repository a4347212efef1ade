"""The checkpoint of a streaming query as Spark keeps it: how far the query is with each of its sources.

    DIR/offsets/N    the end of micro-batch N, written before it is begun: a line for each source
    DIR/commits/N    written when it is done

Reads only version 1 of this log, and only in a directory that this machine can access.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from mq_shards.pipeline.offsets import Json
from mq_shards.pipeline.options import OptionError
from mq_shards.shards import durable

VERSION: Final = "v1"
LOCKS: Final = {"_checkpoint": "_lock", "storage": ".lock"}  # lock files beside these: archive.only_one, Project.lock
MOVED: Final = "moved"  # directory of replaced offset files


@dataclass(frozen=True)
class Position:
    """The offset of one of our sources after the last micro-batch that is done. `source`: its index in the query."""

    source: int
    offset: Json


class Checkpoint:
    def __init__(self, directory: Path) -> None:
        """Raises OptionError."""
        self.directory = directory
        if not (directory / "offsets").is_dir():
            raise OptionError(f"--checkpoint: {directory} is no checkpoint of a streaming query; it has no offsets/")

    @property
    def done(self) -> int:
        """The last micro-batch that is done; -1: none."""
        return max(_numbers(self.directory / "commits"), default=-1)

    @property
    def begun(self) -> int:
        """The last micro-batch that was begun; -1: none."""
        return max(_numbers(self.directory / "offsets"), default=-1)

    def positions(self) -> list[Position]:
        """Raises OptionError."""
        if self.done < 0:
            return []
        found = enumerate(_offset(line) for line in self._lines(self.done)[2:])
        return [Position(source, offset) for source, offset in found if offset is not None]

    def move(self, source: int, offset: Json) -> Path:
        """Makes the next micro-batch begin at `offset`; returns the path of a copy of the replaced file. The query must
        be stopped, between two micro-batches. Raises OptionError."""
        with self.movable():
            return self._replace(source, offset)

    @contextlib.contextmanager
    def movable(self) -> Iterator[None]:
        """Keeps jobs of ours from beginning with this checkpoint meanwhile. Any other query is noticed only by a
        micro-batch that it has begun and not done. Raises OptionError."""
        with contextlib.ExitStack() as held:
            for path in self._locks():
                lock = held.enter_context(path.open("a"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise OptionError(f"a job is at work in {path.parent}: stop it first") from None
            self._check_settled()
            yield

    def _locks(self) -> list[Path]:
        """Returns the lock files of the archive or project that has this checkpoint; jobs hold them while they run."""
        here = self.directory.resolve()
        beside = [path.with_name(LOCKS[path.name]) for path in (here, *here.parents) if path.name in LOCKS]
        return [path for path in beside if path.is_file()]

    def _check_settled(self) -> None:
        if self.begun != self.done:
            raise OptionError(
                f"micro-batch {self.begun} was begun and is not done: what it reads is settled. Start the query, "
                "until it has done it, and stop it again"
            )

    def _replace(self, source: int, offset: Json) -> Path:
        path = self.directory / "offsets" / str(self.done)
        lines = self._lines(self.done)
        kept = self.directory / MOVED / f"{self.done}-{time.time_ns()}"
        kept.parent.mkdir(exist_ok=True)
        durable.save(kept, path.read_bytes())
        lines[2 + source] = orjson.dumps(offset).decode()
        # Hadoop's checksum is that of the replaced content; without a checksum Spark takes the file as it is.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        durable.save(path, "\n".join(lines).encode())
        return kept

    def _lines(self, batch: int) -> list[str]:
        path = self.directory / "offsets" / str(batch)
        try:
            content = path.read_bytes()
            lines = content.decode().split("\n")
        except OSError as error:
            raise OptionError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            content, lines = b"\0", []
        if not content or b"\0" in content:  # what a crash before the sync, or a lost sector, leaves
            raise OptionError(f"{path} is damaged: bring back the whole checkpoint, or begin a new one")
        if lines[0] != VERSION or len(lines) < 3:
            raise OptionError(f"{path}: it is of version {lines[0]!r}; this reads {VERSION}")
        return lines


def _numbers(directory: Path) -> list[int]:
    return [int(path.name) for path in directory.glob("[0-9]*") if path.name.isdecimal()]


def _offset(line: str) -> Json | None:
    """Returns the offset in this line; None if it is of another kind of source."""
    try:
        found: Any = orjson.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("brokers"), dict) else None
