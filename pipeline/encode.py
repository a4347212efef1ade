"""Encodes columns of Arrow record batches as sections (docs/pipeline-http.md): messages of one topic, as a broker takes
them.

A section collects messages of many batches, so that sections are large even with many topics. The C core copies the
bodies (encode_core.py; without it, encode_python.py does). The code here runs once per topic and batch, never once per
message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from mq_shards.pipeline.encoding import SIZE_BYTES, Bytes, Rows

if TYPE_CHECKING:
    from mq_shards.pipeline.encode_core import Column, join
else:
    try:
        from mq_shards.pipeline.encode_core import Column, join
    except ImportError:
        from mq_shards.pipeline.encode_python import Column, join

__all__ = ["Column", "EncodeError", "Encoder", "Schedules", "Section", "join"]

SECTION_BYTES: Final = 1 << 20  # most bytes of messages in a section, unless it has only one
MAX_MESSAGE_BYTES: Final = (32 << 20) - 1024  # the largest request body, less what is around the message
HELD_BYTES: Final = 64 << 20  # most memory of sections that are not full yet
HELD_SECTIONS: Final = 16384
FIRST_BYTES: Final = 4096  # memory of a new section
GROWTH: Final = 4
DEFAULT_PRIORITY: Final = 1024
_HEAD: Final = struct.Struct("<HHII")
HEADERS: Final = 1
SCHEDULED: Final = 2
_SCHEDULE: Final = struct.Struct("<QII")
_FEW: Final = 1 << 16  # for fewer topics their numbers have 16 bits, which numpy sorts in linear time


class EncodeError(Exception):
    """One line: what in the rows cannot be published."""


class Section(NamedTuple):
    topic: str
    messages: int
    data: bytes


class Schedule(NamedTuple):
    """The delay and priority of messages. None instead of a Schedule: the defaults."""

    delay_ns: int
    priority: int


class _Held:
    """A section that is being filled."""

    def __init__(
        self, topic: str, capacity: int = FIRST_BYTES, schedule: Schedule | None = None, *, headers: bool = False
    ) -> None:
        self.topic = topic
        self.schedule = schedule
        self._headers = headers
        self._name = topic.encode()
        self._after_name = b"" if schedule is None else _SCHEDULE.pack(*schedule, 0)
        self.head_bytes = _HEAD.size + len(self._name) + len(self._after_name)
        if len(self._name) >= 1 << 16:
            raise EncodeError(f"topic: {topic[:80]!r}... is not a topic's name")
        self.messages = 0
        self._resize(np.empty(max(capacity, 2 * self.head_bytes), np.uint8))
        self.end = self.head_bytes

    def _resize(self, buffer: Bytes) -> None:
        self._buffer = buffer

    @property
    def capacity(self) -> int:
        return self._buffer.size

    @property
    def data_bytes(self) -> int:
        return self.end - self.head_bytes

    def grow(self, data_bytes: int) -> None:
        """Makes room for so many bytes of messages."""
        size = max(self.head_bytes + data_bytes, min(GROWTH * self._buffer.size, self.head_bytes + SECTION_BYTES))
        buffer = np.empty(size, np.uint8)
        buffer[: self.end] = self._buffer[: self.end]
        self._resize(buffer)

    def put(self, column: Column, rows: Rows | None, first: int, count: int) -> int:
        """Adds as many of these rows as there is room for, and returns how many. Raises EncodeError."""
        room = min(self._buffer.size - self.end, SECTION_BYTES - self.data_bytes)
        done, used = column.put(rows, first, count, self._buffer[self.end :], max(0, room))
        if done < 0:
            raise EncodeError("the column of bodies is not sound")
        self.end += used
        self.messages += done
        return done

    def put_large(self, column: Column, row: int) -> None:
        """Adds one message, which is larger than a section of several may be."""
        done, used = column.put(None, row, 1, self._buffer[self.end :], self._buffer.size - self.end)
        assert done == 1, done
        self.end += used
        self.messages += 1

    def take(self) -> Section:
        flags = (HEADERS if self._headers else 0) | (SCHEDULED if self._after_name else 0)
        _HEAD.pack_into(self._buffer.data, 0, len(self._name), flags, self.messages, self.data_bytes)
        self._buffer[_HEAD.size : self.head_bytes] = np.frombuffer(self._name + self._after_name, np.uint8)
        section = Section(self.topic, self.messages, self._buffer[: self.end].tobytes())
        self.messages, self.end = 0, self.head_bytes
        return section


class Encoder:
    """Keeps the order of each topic's rows. `headers`: whether the bodies begin with headers."""

    def __init__(
        self, held_bytes: int = HELD_BYTES, held_sections: int = HELD_SECTIONS, *, headers: bool = False
    ) -> None:
        self._held: dict[str, _Held] = {}
        self._held_bytes = 0
        self._most_bytes = held_bytes
        self._most_sections = held_sections
        self._headers = headers

    def add(self, topics: pa.Array | str, bodies: pa.Array, schedules: Schedules | None = None) -> Iterator[Section]:
        """Yields the sections that are full now. `topics`: one for each body, or one for all. Raises EncodeError."""
        column = Column(bodies)
        by_topic = [(topics, None)] if isinstance(topics, str) else rows_by_topic(topics)
        for topic, rows in by_topic:
            if schedules is None:
                yield from self._add(topic, column, rows, column.rows if rows is None else rows.size, None)
                continue
            rows = np.arange(column.rows, dtype=np.int64) if rows is None else rows
            for schedule, part in schedules.parts(rows):
                yield from self._add(topic, column, part, part.size, schedule)

    def finish(self) -> Iterator[Section]:
        """Yields the sections that are left."""
        held, self._held, self._held_bytes = self._held, {}, 0
        for section in held.values():
            if section.messages:
                yield section.take()

    def _holding(self, topic: str, schedule: Schedule | None) -> Iterator[Section]:
        """Gives the topic a section with this schedule; yields the section with another that it had."""
        held = self._held.get(topic)
        if held is not None and held.schedule != schedule:
            if held.messages:
                yield held.take()
            self._held_bytes -= held.capacity
            held = None
        if held is None:
            self._held[topic] = held = _Held(topic, schedule=schedule, headers=self._headers)
            self._held_bytes += held.capacity

    def _add(
        self, topic: str, column: Column, rows: Rows | None, count: int, schedule: Schedule | None
    ) -> Iterator[Section]:
        if count == 0:
            return
        yield from self._holding(topic, schedule)
        held = self._held[topic]
        done = 0
        while True:
            done += held.put(column, rows, done, count - done)
            if done == count:
                break
            # The next message does not fit.
            row = done if rows is None else int(rows[done])
            size = SIZE_BYTES + column.body_bytes(row)
            if size > SECTION_BYTES:
                if held.messages:
                    yield held.take()
                yield _alone(topic, column, row, schedule, headers=self._headers)
                done += 1
                if done == count:
                    break
            elif held.data_bytes + size > SECTION_BYTES:
                yield held.take()
            else:
                before = held.capacity
                held.grow(held.data_bytes + size)
                self._held_bytes += held.capacity - before
        if self._held_bytes > self._most_bytes or len(self._held) > self._most_sections:
            yield from self.finish()


class Schedules:
    """The delay and priority of each row; a priority below 0: none was given."""

    def __init__(self, delay_ns: npt.NDArray[np.int64], priority: npt.NDArray[np.int64]) -> None:
        self._delay_ns = delay_ns
        self._priority = priority

    def parts(self, rows: Rows) -> Iterator[tuple[Schedule | None, Rows]]:
        """Splits rows, in their order, into runs that have the same schedule; None: the defaults."""
        delay_ns, priority = self._delay_ns[rows], self._priority[rows]
        changes = (delay_ns[1:] != delay_ns[:-1]) | (priority[1:] != priority[:-1])
        begins = [0, *(np.flatnonzero(changes) + 1).tolist(), len(rows)]
        for begin, end in pairwise(begins):
            if begin < end:
                delay, pri = int(delay_ns[begin]), int(priority[begin])
                pri = DEFAULT_PRIORITY if pri < 0 else pri
                as_any = delay == 0 and pri == DEFAULT_PRIORITY
                yield None if as_any else Schedule(delay, pri), np.ascontiguousarray(rows[begin:end])


def _alone(topic: str, column: Column, row: int, schedule: Schedule | None, *, headers: bool) -> Section:
    size = column.body_bytes(row)
    if size > MAX_MESSAGE_BYTES:
        raise EncodeError(f"topic {topic}: a message of {size} bytes; a broker takes {MAX_MESSAGE_BYTES} from Spark")
    held = _Held(topic, schedule=schedule, headers=headers)
    held.grow(SIZE_BYTES + size)
    held.put_large(column, row)
    return held.take()


def rows_by_topic(topics: pa.Array) -> Iterator[tuple[str, Rows | None]]:
    """Yields each topic with its rows, in order; None: all rows."""
    encoded = pc.dictionary_encode(topics)
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], None
        return
    numbers = encoded.indices.to_numpy()
    if len(names) < _FEW:
        numbers = numbers.astype(np.uint16)
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(names)))
    start = 0
    for name, end in zip(names, ends.tolist(), strict=True):
        yield name, order[start:end]
        start = end
