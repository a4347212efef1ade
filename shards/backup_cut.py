"""The moment that all shards of a backup have in common: how far the log of each goes by then.

To copy takes long, so it is done before, and what has come since is looked at until little is left. Then the broker is
asked for a moment at which none of its workers writes (shards/hold.py). If there is no broker to ask, all shards are
looked at twice: where nothing has come in between, it was of one moment too.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from mq_shards.ringbuf.control import Control, ControlError
from mq_shards.shards.hold import HOLD_S, address_of, user_of
from mq_shards.shards.reader.scan import Columns, FileScan
from mq_shards.shards.store import LOCK, SEGMENT_HEADER, StoreError, segment_name, waits

ROUND_S: Final = 0.01  # short enough
ROUNDS: Final = 10
TRIES: Final = 20  # retention may remove what was about to be opened
PATIENCE_S: Final = 10.0  # a worker may be recovering, or late
TRY_S: Final = 0.1
ANSWER_S: Final = 5 * HOLD_S
WINDOW_BYTES: Final = 1 << 16


class End(NamedTuple):
    """Of a shard at that moment: its segments are `first` to `last`, which ends at `bytes`. `last` 0: it has none."""

    first: int
    last: int
    bytes: int


class Moment(NamedTuple):
    """`at_ns`: by the wall clock. `ends`: by shard."""

    at_ns: int
    ends: list[End]


class Cut(NamedTuple):
    """`problem`: why it is of nearly one moment only."""

    at_ns: int
    problem: str = ""


@dataclass(slots=True)
class Tail:
    """Of a shard, what has grown since it was copied, or come. `copied`: segments that were, the last of which others
    follow; `ends`: how far each goes."""

    path: Path
    listed: Callable[[], set[int]]
    copied: set[int]
    ends: dict[int, int]
    open: dict[int, int] = field(default_factory=dict)
    there: set[int] = field(default_factory=set)  # all segments that the shard has

    def look(self, columns: Columns) -> bool:
        """The last segment first: what it has is behind all that those before it have. Whether something had come."""
        before = dict(self.ends)
        self.there = self._open_new()
        for segment in sorted(self.open, reverse=True):
            if segment in self.there and not waits(self.open[segment], is_last=segment == max(self.there)):
                self._scan(segment, os.fstat(self.open[segment]).st_size, columns)
        return self.ends != before

    def end(self, at: End, columns: Columns) -> bool:
        """Up to there. False: what was there then is not any more."""
        self._open_new()
        if not set(range(max(at.first, max(self.copied, default=1)), at.last + 1)) <= self.open.keys():
            return False
        self.there = {one for one in self.copied | self.open.keys() if at.first <= one <= at.last}
        for segment in self.open.keys() & self.there:
            fd = self.open[segment]
            if not waits(fd, is_last=segment == at.last):
                self._scan(segment, at.bytes if segment == at.last else os.fstat(fd).st_size, columns)
        return True

    def _scan(self, segment: int, size: int, columns: Columns) -> None:
        at = self.ends.get(segment, SEGMENT_HEADER.size)
        scan = FileScan(self.open[segment], segment, at, size, columns, WINDOW_BYTES)
        while scan.next() is not None:
            pass
        self.ends[segment] = scan.offset

    def _open_new(self) -> set[int]:
        """All that are listed now."""
        first = max(self.copied, default=0)
        for _ in range(TRIES):
            listed = self.listed()
            try:
                for segment in listed:
                    if segment >= first and segment not in self.open:
                        path = self.path / segment_name(segment)
                        self.open[segment] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                return listed
            except FileNotFoundError:
                time.sleep(0.01)
        raise StoreError(f"{self.path}: segments that its manifest lists are not there")

    def close(self) -> None:
        for fd in self.open.values():
            os.close(fd)


def cut(data_dir: Path, tails: list[Tail], columns: Columns) -> Cut:
    """Their ends are of one moment."""
    problem, until = "", time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        _approach(tails, columns)
        found = moment(data_dir)
        if found is None:
            problem = "no broker answers, and something writes"
            break
        if isinstance(found, str):
            problem = found
        elif all(tail.end(end, columns) for tail, end in zip(tails, found.ends, strict=True)):
            return Cut(found.at_ns)
        else:
            problem = "segments come and go too fast"
        time.sleep(TRY_S)
    for _ in range(ROUNDS):
        at_ns = time.time_ns()
        if sum(tail.look(columns) for tail in tails) == 0:  # all are looked at
            return Cut(at_ns)
    return Cut(at_ns, problem)


def _approach(tails: list[Tail], columns: Columns) -> None:
    """Each round has less to look at."""
    for _ in range(ROUNDS):
        begun = time.monotonic()
        for tail in tails:
            tail.look(columns)
        if time.monotonic() - begun < ROUND_S:
            break


def moment(data_dir: Path) -> Moment | str | None:
    """Asks the broker that has this data directory. A text: why it cannot be had now. None: there is nobody to ask."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(ANSWER_S)
        try:
            sock.connect(address_of(data_dir))
            if user_of(sock) not in (0, (data_dir / LOCK).stat().st_uid):
                return None  # another process has taken the name; it is not the broker
        except TimeoutError:
            return f"no answer within {ANSWER_S:g} s"
        except OSError:
            return None
        try:
            said, _ = Control(sock).receive(ANSWER_S)
            if said["did"] == "held":
                return Moment(int(said["at_ns"]), [End(*end) for end in said["ends"]])
            return str(said["reason"])
        except TimeoutError:
            return f"no answer within {ANSWER_S:g} s"
        except (EOFError, OSError):
            return "its broker would not say"
        except (ControlError, LookupError, TypeError, ValueError) as error:
            return f"its broker is of another version ({error!r})"
