"""The checkpoint of a streaming query as Spark keeps it: how far the query is with each of its sources.

    DIR/offsets/N    the end of micro-batch N, written before it is begun: a line for each source
    DIR/commits/N    written when it is done

Reads only version 1 of this log, and only in a directory that this machine can access.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from mq_shards.pipeline.offsets import Json
from mq_shards.pipeline.options import OptionError
from mq_shards.pipeline.sink_log import newest_batch
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

    def check(self) -> None:
        """Raises OptionError if what says where the query is, is damaged."""
        if self.begun >= 0:
            self._lines(self.begun)

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
        # Empty, zeros or cut short: what a crash before the sync, or a lost sector, leaves.
        if not content or b"\0" in content or (VERSION.startswith(lines[0]) and not _is_whole(lines)):
            raise OptionError(f"{path} is damaged: bring back the whole checkpoint, or begin a new one")
        if lines[0] != VERSION:
            raise OptionError(f"{path}: it is of version {lines[0]!r}; this reads {VERSION}")
        return lines


def _is_whole(lines: Sequence[str]) -> bool:
    """Whether an offsets file has its metadata, an offset, and no JSON that was cut short. Offsets of other kinds of
    sources need not be JSON."""
    return len(lines) >= 3 and all(_json(line) is not None for line in lines[1:] if line.startswith("{"))


def _json(line: str) -> Any:  # noqa: ANN401
    """Returns what the line says; None if it is no JSON."""
    try:
        return orjson.loads(line)
    except ValueError:
        return None


def begun_with(directory: Path) -> int:
    """Returns the last micro-batch that was begun with this checkpoint; -1: none, or there is no checkpoint. Raises
    OptionError if it is damaged."""
    if not (directory / "offsets").is_dir():
        return -1
    checkpoint = Checkpoint(directory)
    checkpoint.check()
    return checkpoint.begun


def check_continues(directory: Path, to: Path) -> None:
    """Raises OptionError if a query with this checkpoint, which may not exist yet, cannot go on, or if Spark would
    leave out what it reads: the file sink of `to` takes no micro-batch up to the last one in its log."""
    begun, written = begun_with(directory), newest_batch(to)
    if begun < written:
        raise OptionError(
            f"{to} has micro-batches up to {written}, and the checkpoint {directory} knows them only up to {begun}: "
            "Spark would leave out what it reads next. Bring back the checkpoint that belongs to it, or write elsewhere"
        )


def _numbers(directory: Path) -> list[int]:
    return [int(path.name) for path in directory.glob("[0-9]*") if path.name.isdecimal()]


def _offset(line: str) -> Json | None:
    """Returns the offset in this line; None if it is of another kind of source."""
    found = _json(line)
    return found if isinstance(found, dict) and isinstance(found.get("brokers"), dict) else None
