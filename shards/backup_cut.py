"""The one moment of all shards in a backup: where the log of each shard ended at that moment.

Copying takes long, so it is done before. Then what was appended since is scanned, again and again, until little is
left, and the broker is asked for a moment at which none of its workers writes (shards/hold.py). Without a broker, all
shards are scanned twice: if nothing was appended in between, the ends are of one moment too.
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
from mq_shards.shards import durable
from mq_shards.shards.hold import HOLD_S, address_of, user_of
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.paths import LOCK, segment_name
from mq_shards.shards.reader.scan import Columns, FileScan
from mq_shards.shards.segment_header import lacks_header
from mq_shards.shards.store_error import StoreError

ROUND_S: Final = 0.01  # short enough
ROUNDS: Final = 10
TRIES: Final = 20  # retention may remove what was about to be opened
TIMEOUT_S: Final = 10.0  # a worker may be recovering, or late
TRY_S: Final = 0.1
ANSWER_S: Final = 5 * HOLD_S
WINDOW_BYTES: Final = 1 << 16


class End(NamedTuple):
    """Where a shard's log ended: its segments were `first` to `last`, which ended at `bytes`. `last` 0: none."""

    first: int
    last: int
    bytes: int


class Moment(NamedTuple):
    """A moment at which all workers held still: `at_ns` is the wall clock; `ends` has an End for each shard."""

    at_ns: int
    ends: list[End]


class Cut(NamedTuple):
    """The moment of the backup. `problem`: why the shards are of nearly one moment only; "": of one."""

    at_ns: int
    problem: str = ""


@dataclass(slots=True)
class Tail:
    """What a shard's log got after it was copied: the end of the last copied segment, and segments that follow.
    `copied`: the copied segments; `ends`: where each segment from the last copied one on ends; `said`: where the log
    ends according to its worker, None if it was not asked."""

    path: Path
    listed: Callable[[], set[int]]
    copied: set[int]
    ends: dict[int, int]
    open: dict[int, int] = field(default_factory=dict)
    there: set[int] = field(default_factory=set)  # all segments that the shard has
    said: End | None = None

    def look(self, columns: Columns) -> bool:
        """Scans what was appended, the last segment first, as it has the latest. Returns whether there was anything."""
        before = dict(self.ends)
        self.there = self._open_new()
        for segment in sorted(self.open, reverse=True):
            if segment in self.there and not lacks_header(self.open[segment], is_last=segment == max(self.there)):
                self._scan(segment, os.fstat(self.open[segment]).st_size, columns)
        return self.ends != before

    def end(self, at: End, columns: Columns) -> bool:
        """Sets the tail's end to `at`. False: segments of that moment have been removed since."""
        self._open_new()
        if not set(range(max(at.first, max(self.copied, default=1)), at.last + 1)) <= self.open.keys():
            return False
        self.said = at
        self.there = {one for one in self.copied | self.open.keys() if at.first <= one <= at.last}
        for segment in self.open.keys() & self.there:
            fd = self.open[segment]
            if not lacks_header(fd, is_last=segment == at.last):
                self._scan(segment, at.bytes if segment == at.last else os.fstat(fd).st_size, columns)
        return True

    def _scan(self, segment: int, size: int, columns: Columns) -> None:
        at = self.ends.get(segment, SEGMENT_HEADER_BYTES)
        scan = FileScan(self.open[segment], segment, at, size, columns, WINDOW_BYTES)
        while scan.next() is not None:
            pass
        self.ends[segment] = scan.offset

    def _open_new(self) -> set[int]:
        """Opens segments that are not open yet; returns all that are listed now."""
        first = max(self.copied, default=0)
        for _ in range(TRIES):
            listed = self.listed()
            try:
                for segment in listed:
                    if segment >= first and segment not in self.open:
                        path = self.path / segment_name(segment)
                        self.open[segment] = durable.open_to_read(path)
                return listed
            except FileNotFoundError:
                time.sleep(0.01)
        raise StoreError(f"{self.path}: segments that its manifest lists are not there")

    def close(self) -> None:
        for fd in self.open.values():
            os.close(fd)


def cut(data_dir: Path, tails: list[Tail], columns: Columns) -> Cut:
    """Sets the ends of all tails to those of one moment, or nearly so."""
    problem, until = "", time.monotonic() + TIMEOUT_S
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
    """Scans in rounds, each of which has less to do, until one is short enough."""
    for _ in range(ROUNDS):
        begun = time.monotonic()
        for tail in tails:
            tail.look(columns)
        if time.monotonic() - begun < ROUND_S:
            break


def moment(data_dir: Path) -> Moment | str | None:
    """Asks the directory's broker for a moment. A text: why it has none now; None: there is no broker to ask."""
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
