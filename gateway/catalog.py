"""What a worker says of its topics, channels and consumers: the body of a CATALOG's reply (csrc/ringbuf/message.h)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from mq_shards.csrc._core import lib
from mq_shards.gateway.names import is_valid_name

PAUSED: Final[int] = lib.FIGURES_PAUSED
DURABLE: Final[int] = lib.FIGURES_DURABLE

_TOPIC: Final = struct.Struct("=IIIIQQQQ")
_CHANNEL: Final = struct.Struct("=IIIIQQQQQQ")
_CONSUMER: Final = struct.Struct("=IIIIQQQII")


@dataclass(frozen=True, slots=True)
class Consumer:
    acceptor: int
    conn: int
    credit: int
    in_flight: int
    messages: int
    finishes: int
    requeues: int
    sample_percent: int
    description: bytes  # what its acceptor said of the client when it subscribed


@dataclass(frozen=True, slots=True)
class Channel:
    name: str
    flags: int
    consumer_count: int
    depth: int
    in_flight: int
    deferred: int
    messages: int
    requeues: int
    timeouts: int
    consumers: list[Consumer] = field(default_factory=list)

    @property
    def paused(self) -> bool:
        return bool(self.flags & PAUSED)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    flags: int
    depth: int
    messages: int
    message_bytes: int
    jobs: int
    channels: list[Channel] = field(default_factory=list)

    @property
    def paused(self) -> bool:
        return bool(self.flags & PAUSED)

    @property
    def visible(self) -> bool:
        """Whether NSQ's clients are shown it. A beanstalk tube that nobody has put anything into is none of theirs."""
        exists = self.flags & DURABLE or self.channels or self.depth or self.jobs
        return bool(exists) and is_valid_name(self.name)


def decode(body: bytes) -> list[Topic]:
    """Raises ValueError when it is not a whole catalog."""
    topics = []
    offset = 0
    try:
        while offset < len(body):
            topic, offset = _topic(body, offset)
            topics.append(topic)
    except struct.error as error:
        raise ValueError(f"a catalog ends in the middle, at {offset} of {len(body)} bytes: {error}") from None
    return topics


def _topic(body: bytes, offset: int) -> tuple[Topic, int]:
    figures = _TOPIC.unpack_from(body, offset)
    name_bytes, flags, channels, _shard, depth, messages, message_bytes, jobs = figures
    name, offset = _text(body, offset + _TOPIC.size, name_bytes)
    topic = Topic(name, flags, depth, messages, message_bytes, jobs)
    for _ in range(channels):
        channel, offset = _channel(body, offset)
        topic.channels.append(channel)
    topic.channels.sort(key=lambda channel: channel.name)
    return topic, offset


def _channel(body: bytes, offset: int) -> tuple[Channel, int]:
    figures = _CHANNEL.unpack_from(body, offset)
    name_bytes, flags, consumers, listed, depth, in_flight, deferred, messages, requeues, timeouts = figures
    name, offset = _text(body, offset + _CHANNEL.size, name_bytes)
    channel = Channel(name, flags, consumers, depth, in_flight, deferred, messages, requeues, timeouts)
    for _ in range(listed):
        consumer, offset = _consumer(body, offset)
        channel.consumers.append(consumer)
    return channel, offset


def _consumer(body: bytes, offset: int) -> tuple[Consumer, int]:
    figures = _CONSUMER.unpack_from(body, offset)
    acceptor, conn, credit, in_flight, messages, finishes, requeues, description_bytes, sample_percent = figures
    description, offset = _bytes(body, offset + _CONSUMER.size, description_bytes)
    consumer = Consumer(
        acceptor, conn, credit, in_flight, messages, finishes, requeues, sample_percent, description
    )  # fmt: skip
    return consumer, offset


def _bytes(body: bytes, offset: int, count: int) -> tuple[bytes, int]:
    end = offset + count
    if end > len(body):
        raise ValueError(f"a catalog ends in the middle, at {offset} of {len(body)} bytes")
    return body[offset:end], end


def _text(body: bytes, offset: int, count: int) -> tuple[str, int]:
    data, end = _bytes(body, offset, count)
    return data.decode("latin-1"), end  # a beanstalk tube's name need not be UTF-8
