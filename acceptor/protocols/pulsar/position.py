"""A worker's answer to POSITION: where a topic begins and ends, and where a subscription of it stands."""

from __future__ import annotations

from typing import Any, NamedTuple

from mq_shards.csrc._core import ffi


class Position(NamedTuple):
    """struct position, csrc/ringbuf/message.h, which explains the fields."""

    incarnation: int
    began_seq: int
    first_seq: int
    next_seq: int
    last_time_ns: int
    last_tag: int
    last_parts: int
    terminated: int
    consumer_blocked: int
    cursor: int
    unfinished: int
    depth: int
    in_flight: int
    last_seq: int
    compacted_until: int
    compacted_last: int
    compacted_messages: int
    compacted_tag: int
    compacted_parts: int
    consumer_in_flight: int
    messages: int

    @property
    def is_at_end(self) -> bool:
        """The topic is terminated and all its messages are acknowledged."""
        return bool(self.terminated) and self.unfinished >= self.next_seq


def last_entry(where: Position) -> int:
    """The entry of the topic's last message. If it is not there any more, that of the last one that may have been."""
    return where.last_seq if where.last_seq < where.next_seq else where.next_seq - 1


def kept_from(where: Position, kept: int) -> int:
    """From which seq on there are so many messages at least, wherever between them seqs are missing."""
    return max(where.first_seq, where.first_seq + where.messages - kept)


def position_of(body: bytes) -> Position:
    """Raises ValueError if it is cut off."""
    found: Any = ffi.new("struct position *")
    size = ffi.sizeof("struct position")
    if len(body) < size:
        raise ValueError("a position is cut off")
    ffi.memmove(found, body[:size], size)
    return Position(*(int(getattr(found, name)) for name in Position._fields))
