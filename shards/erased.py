"""Topics whose history was erased: the seq before which nothing of them is shown to any reader of the log.

    DIR/erased.json     {"version": 1, "topics": {"orders": {"until": 1200, "log_began_ns": N, "erased_ns": N,
                         "by": "boss"}}}

    DIR/erased-segments.json    {"version": 1, "shards": {"7": 12}, "logs": {"7": N}, "soon": {"7": 5}}: segments of
                         shard 7 up to 12 may hold erased bytes, those of the log that was begun at N; up to 5 they may
                         go before history does (log.erased-hours)

Seqs go on when a topic is created again, so its later messages are shown. When a log is lost and begun anew, seqs and
numbers of segments begin anew too, so both files count only for the log whose `log_began_ns` they name. The gateway
writes them; a worker only reads which segments it has to get rid of.

Earlier releases did not name the log of a mark, and drop the names when they mark something. Such a mark may be of a
log that is lost, so it lets no segment go before history does (`soon`). It has them sealed and emptied, no more.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from mq_shards.shards import durable

VERSION: Final = 1
NAME: Final = "erased.json"
SEGMENTS: Final = "erased-segments.json"
MAX_TOPICS: Final = 65536

K = TypeVar("K")
V = TypeVar("V")

log = logging.getLogger(__name__)


class ErasedError(Exception):
    """One line: why it is unknown what was erased, or why nothing more can be erased."""


class Erasure(NamedTuple):
    until: int  # the first seq that may still be shown
    log_began_ns: int
    erased_ns: int  # wall clock
    by: str  # "": there were no users, so nobody had a name


def load(data_dir: Path) -> dict[str, Erasure]:
    """The erasures, by topic. Raises ErasedError if they are unknown: then nothing at all may be shown."""

    def erasures(found: Any) -> dict[str, Erasure]:  # noqa: ANN401
        items = found["topics"].items()
        return {topic: Erasure(**{name: said[name] for name in Erasure._fields}) for topic, said in items}

    return _load(data_dir / NAME, erasures, "nothing may be")


def _load(path: Path, decode: Callable[[Any], dict[K, V]], so_that: str) -> dict[K, V]:
    """What a file has; nothing if there is none. `so_that`: what follows if it cannot be read."""
    try:
        found = json.loads(durable.read(path))
        if found["version"] != VERSION:
            raise ErasedError(f"{path} is of version {found['version']!r}, which is not known here")
        return decode(found)
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OSError) as error:
        raise ErasedError(f"{path} cannot be read, so that {so_that}: {error!r}") from None


def check_room(erased: Mapping[str, Erasure]) -> None:
    """Raises ErasedError if these are too many to be saved."""
    if len(erased) > MAX_TOPICS:
        raise ErasedError(f"{MAX_TOPICS} topics are erased and still in the log, which is as many as there may be")


def save(data_dir: Path, erased: Mapping[str, Erasure]) -> None:
    """Saves the erasures, for which there has to be room. They are durable when it returns. Raises OSError."""
    topics = {topic: erasure._asdict() for topic, erasure in erased.items()}
    durable.save(data_dir / NAME, json.dumps({"version": VERSION, "topics": topics}).encode())


class Mark(NamedTuple):
    """Which segments of a shard's log may hold erased bytes."""

    last: int = 0  # they and all before; 0: none
    log_began_ns: int = 0  # 0: it is not known of which log
    soon: int = 0  # up to this one they may go before history does


def load_segments(data_dir: Path) -> dict[int, Mark]:
    """The marks, by shard. Raises ErasedError."""

    def marks(found: Any) -> dict[int, Mark]:  # noqa: ANN401
        logs, soon = (dict(found.get(of, {})) for of in ("logs", "soon"))
        return {
            int(shard): Mark(int(last), int(logs.get(shard, 0)), int(soon.get(shard, 0)))
            for shard, last in found["shards"].items()
        }

    return _load(data_dir / SEGMENTS, marks, "what was erased may stay on disk")


@contextlib.contextmanager
def marked(data_dir: Path, shard: int, mark: Mark) -> Iterator[None]:
    """Marks segments, durably, before the erasure is saved in the body; a damaged file is replaced. If the body raises,
    the mark is taken back. Raises OSError.

    If the gateway is killed in the body, the mark stays, and nothing was erased or said to be. The topic is shown until
    the segments go, and nothing goes but what an erasing would have let go that somebody was allowed to ask for.
    """
    try:
        before = load_segments(data_dir)
    except ErasedError:
        before = {}
    earlier = before.get(shard, Mark())
    soon = max(mark.soon, earlier.soon) if earlier.log_began_ns == mark.log_began_ns else mark.soon
    _save_segments(data_dir, before | {shard: mark._replace(soon=soon)})
    try:
        yield
    except BaseException:
        try:
            _save_segments(data_dir, before)
        except OSError as error:
            log.error("shard %d: segments up to %d stay marked, though nothing is erased: %s", shard, mark.last, error)
        raise


def _save_segments(data_dir: Path, marks: Mapping[int, Mark]) -> None:
    said = {
        "shards": {str(number): mark.last for number, mark in marks.items()},
        "logs": {str(number): mark.log_began_ns for number, mark in marks.items()},
        "soon": {str(number): mark.soon for number, mark in marks.items() if mark.soon},
    }
    durable.save(data_dir / SEGMENTS, json.dumps({"version": VERSION, **said}).encode())


@dataclass(slots=True, eq=False, repr=False)
class ErasedSegments:
    """The segments that a worker has to get rid of. Reads the file again whenever it was replaced."""

    data_dir: Path
    marks: dict[int, Mark] = field(default_factory=dict)  # by shard
    error: str = ""
    _seen: tuple[int, int] | None = None

    def refresh(self) -> None:
        try:
            status = (self.data_dir / SEGMENTS).stat()
        except OSError:
            return
        seen = status.st_ino, status.st_mtime_ns
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.marks, self.error = load_segments(self.data_dir), ""
        except ErasedError as error:
            if str(error) != self.error:
                log.error("%s", error)
            self.error = str(error)

    def mark_of(self, shard: int, log_began_ns: int) -> Mark:
        """What counts for the log that was begun then; 0: it is not known when."""
        mark = self.marks.get(shard, Mark())
        if mark.log_began_ns and mark.log_began_ns == log_began_ns:
            return mark
        return Mark() if mark.log_began_ns and log_began_ns else mark._replace(soon=0)
