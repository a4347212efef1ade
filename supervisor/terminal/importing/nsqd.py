"""nsqd's data path: nsqd.dat names topics and channels. Disk queues hold the messages that a topic has not handed to
its channels, and those that a channel has not finished. Source of the format: nsqd 1.3, go-diskqueue 1.1.

    NAME.diskqueue.meta.dat      depth \\n file,position to read from \\n file,position to write to
    NAME.diskqueue.000042.dat    int32 (big-endian) of bytes, then a message: int64 ns, uint16 attempts, 16 digits, body

NAME is a topic, or TOPIC:CHANNEL. A message has the same id in all queues.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mq_shards.shards import durable
from mq_shards.supervisor.terminal.client import ClientError
from mq_shards.supervisor.terminal.importing.log_writer import Channel, LogWriter

METADATA: Final = ("nsqd.dat", "nsqd.data")
SIZE: Final = struct.Struct(">i")
HEAD: Final = struct.Struct(">qH16s")
PRIORITY: Final = 1024
TTR_NS: Final = 60_000_000_000
PIECE: Final = 4096  # messages between two cursors of a channel: this bounds the memory that a broker needs
# Where a message lies: file, offset and size, with its id and time.
PLACE: Final = np.dtype([("id", "<u8"), ("time", "<i8"), ("file", "<i4"), ("offset", "<i8"), ("size", "<i4")])
Places = npt.NDArray[Any]
Progress = Callable[[int], None]


def metadata(directory: Path) -> list[dict[str, Any]]:
    """The topics, as nsqd.dat lists them. Raises ClientError, OSError."""
    for name in METADATA:
        if (directory / name).exists():
            try:
                found = json.loads(durable.read(directory / name))
                return [topic for topic in found["topics"] or () if topic["name"]]
            except (ValueError, KeyError, TypeError):
                raise ClientError(f"{directory / name} is damaged") from None
    raise ClientError(f"{directory} is no data path of an nsqd: it has no {METADATA[0]}")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """No nsqd can use the directory meanwhile. Raises ClientError if one does."""
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ClientError(f"an nsqd uses {directory}: stop it first") from None
    try:
        yield
    finally:
        os.close(lock)


class Queue:
    """The disk queue of a topic or channel."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name

    def _path(self, file: int) -> Path:
        return self._directory / f"{self._name}.diskqueue.{file:06d}.dat"

    def _ends(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """File and position to read from, and to write to; None: there is no queue. Raises OSError."""
        path = self._directory / f"{self._name}.diskqueue.meta.dat"
        try:
            _, *ends = durable.read(path).decode().split("\n")[:3]
            reading, writing = (tuple(map(int, end.split(","))) for end in ends)
            return (reading[0], reading[1]), (writing[0], writing[1])
        except FileNotFoundError:  # nsqd makes it some seconds after the queue's first file
            what = "not there"
        except (ValueError, IndexError):
            what = "damaged"
        there = self._numbers(0)
        if not there:
            return None
        print(
            f"mq-shards: {path} is {what}: all messages from {self._path(there[0]).name} on are taken over, also those"
            " that were finished",
            file=sys.stderr,
        )
        return (there[0], 0), (there[-1], 0)

    def _numbers(self, first: int) -> list[int]:
        """The numbers of the files that exist, from `first` on."""
        names = (path.name for path in self._directory.glob(f"{glob.escape(self._name)}.diskqueue.*.dat"))
        numbers = (name.removesuffix(".dat").rpartition(".")[2] for name in names)
        return sorted(int(number) for number in numbers if number.isdigit() and int(number) >= first)

    def places(self, files: list[Path], progress: Progress) -> Places:
        """Where the messages lie. Appends the files of the queue to `files`. Raises OSError."""
        ends = self._ends()
        if ends is None:
            return np.empty(0, PLACE)
        (first, begins_at), (last, ends_at) = ends
        found: list[Places] = []
        there = self._numbers(first)
        if there and there[0] != first:
            # nsqd removes files that it has read, but seldom saves its position: that may be in a removed file.
            path = self._path(first)
            print(f"mq-shards: {path} is not there: it is read from {self._path(there[0]).name} on", file=sys.stderr)
        # After a crash there may be more than nsqd has noted, but not less.
        is_last_empty = ends_at == (begins_at if last == first else 0)
        for number, count in _missing(there, first, last - is_last_empty):
            what = "is not there" if count == 1 else f"and {count - 1} more are not there"
            print(f"mq-shards: {self._path(number)} {what}: messages are missing", file=sys.stderr)
        for number in there:
            position = begins_at if number == first else 0
            files.append(self._path(number))
            data = durable.read(self._path(number))
            places = np.fromiter(_messages(data, position, len(files) - 1), PLACE)
            found.append(places)
            end = int(places[-1]["offset"] + places[-1]["size"]) if len(places) else position
            if end < len(data):
                print(f"mq-shards: {files[-1]}: what follows byte {end} is no whole message", file=sys.stderr)
            elif number == last and end < ends_at:
                print(f"mq-shards: {files[-1]} ends at byte {end}, and nsqd wrote up to {ends_at}", file=sys.stderr)
            progress(len(data))
        return np.concatenate(found) if found else np.empty(0, PLACE)


def _missing(there: list[int], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Where numbers up to `last` are missing, and how many; before the first that is there none is."""
    expected = there[0] if there else first
    for number in (*there, last + 1):
        if expected < number:
            yield expected, number - expected
        expected = number + 1


def _messages(data: bytes, at: int, file: int) -> Iterator[tuple[int, int, int, int, int]]:
    while at + SIZE.size <= len(data):
        size = SIZE.unpack_from(data, at)[0]
        begin = at + SIZE.size
        if size < HEAD.size or begin + size > len(data):
            return
        time_ns, _, identity = HEAD.unpack_from(data, begin)
        try:
            yield int(identity, 16), time_ns, file, begin, size
        except ValueError:
            return
        at = begin + size


class Import:
    """One topic."""

    def __init__(self, directory: Path, topic: dict[str, Any], progress: Progress) -> None:
        """Finds out where the messages of the topic are. Raises OSError."""
        self.name: str = topic["name"]
        self.paused = bool(topic.get("paused"))
        self.channels: list[tuple[str, bool]] = [
            (one["name"], bool(one.get("paused"))) for one in topic.get("channels") or ()
        ]
        self._files: list[Path] = []
        own = Queue(directory, self.name).places(self._files, progress)
        of_channels = [Queue(directory, f"{self.name}:{n}").places(self._files, progress) for n, _ in self.channels]
        # Messages that wait in the topic come after all that its channels got, and go to every channel.
        self._handed_out = _once(np.concatenate(of_channels)) if of_channels else np.empty(0, PLACE)
        waiting = _once(own)
        self._waiting = waiting[~np.isin(waiting["id"], self._handed_out["id"])]
        self._has = [np.isin(self._handed_out["id"], one["id"]) for one in of_channels]
        self.bytes = int(self._handed_out["size"].sum() + self._waiting["size"].sum())
        self.messages = len(self._handed_out) + len(self._waiting)

    def write(self, log: LogWriter, progress: Progress) -> None:
        """Writes the topic, its channels and messages. Raises OSError."""
        first_ns = int(self._handed_out["time"][0]) if len(self._handed_out) else 0
        topic = log.topic(self.name.encode(), first_ns, is_durable=True)
        made: dict[int, Channel] = {}
        begins = [int(np.argmax(has)) if has.any() else len(has) for has in self._has]
        for begin in range(0, len(self._handed_out), PIECE):
            end = min(begin + PIECE, len(self._handed_out))
            for seq in range(begin, end):
                for n in (n for n, at in enumerate(begins) if at == seq):
                    made[n] = log.channel(topic, *self.channels[n])
                self._publish(log, self._handed_out[seq], progress)
            for n, channel in made.items():
                self._pass(log, n, channel, end)
        for n, (name, paused) in enumerate(self.channels):
            if n not in made:
                made[n] = log.channel(topic, name, paused)
        if self.paused:
            log.stop(topic)
        for place in self._waiting:
            self._publish(log, place, progress)

    def _pass(self, log: LogWriter, n: int, channel: Channel, end: int) -> None:
        """Writes the channel's cursor, `end` at most: what the channel lacks of [cursor, end) it has finished, what it
        has is delivered again. If it has everything from a seq on, the cursor stays there: it was not delivered."""
        has = self._has[n]
        if has[channel.cursor :].all():
            return
        missing = channel.cursor + np.flatnonzero(~has[channel.cursor : end])
        if len(missing):
            cursor = int(missing[-1]) + 1 if has[end:].all() else end
            log.passed(log.topic(self.name.encode(), 0, is_durable=True), channel, cursor, map(int, missing))
        elif end < len(has):
            log.passed(log.topic(self.name.encode(), 0, is_durable=True), channel, end, ())

    def _publish(self, log: LogWriter, place: Any, progress: Progress) -> None:  # noqa: ANN401
        topic = log.topic(self.name.encode(), 0, is_durable=True)
        log.publish(topic, self._body(int(place["file"]), int(place["offset"]), int(place["size"])),
                    int(place["time"]), PRIORITY, TTR_NS)  # fmt: skip
        progress(int(place["size"]))

    _open: tuple[int, int] = (-1, -1)  # the file that is open: its number in `_files`, and its descriptor

    def _body(self, file: int, offset: int, size: int) -> bytes:
        number, fd = self._open
        if number != file:
            self.close()
            fd = os.open(self._files[file], os.O_RDONLY)
            self._open = file, fd
        return os.pread(fd, size - HEAD.size, offset + HEAD.size)

    def close(self) -> None:
        if self._open[1] >= 0:
            os.close(self._open[1])
            self._open = -1, -1


def _once(places: Places) -> Places:
    """The places of all messages, each once, in the order in which they were published."""
    _, first = np.unique(places["id"], return_index=True)
    found = places[first]
    return found[np.lexsort((found["id"], found["time"]))]
