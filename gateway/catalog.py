"""A worker's catalog of its topics, channels and consumers: the body of a reply to CATALOG (csrc/ringbuf/message.h)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from mq_shards.csrc._core import ffi, lib
from mq_shards.gateway.names import is_valid_name

PAUSED: Final[int] = lib.FIGURES_PAUSED
DURABLE: Final[int] = lib.FIGURES_DURABLE
PIECE: Final = 256  # topics, channels and consumers that are decoded at a time, which takes a millisecond or two


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
    is_leaving: bool  # it wants no more messages
    number: int  # chosen by its acceptor, unique on its connection
    description: bytes  # of the client, as its acceptor gave it when it subscribed


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
    read_back: int = 0  # of the messages, those recovered from the log when the worker began
    delivered: int = 0  # since the worker began
    finished: int = 0
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
    read_back: int = 0  # of the messages, those recovered from the log when the worker began
    read_back_bytes: int = 0
    reserves: int = 0  # of jobs, since the worker began
    deletes: int = 0
    reserved: int = 0  # jobs that are now in this state
    delayed: int = 0
    buried: int = 0
    releases: int = 0  # of jobs, since the worker began
    timeouts: int = 0

    @property
    def paused(self) -> bool:
        return bool(self.flags & PAUSED)

    @property
    def visible(self) -> bool:
        """Whether NSQ's clients see it. They do not see a beanstalk tube that nothing was ever put into."""
        exists = self.flags & DURABLE or self.channels or self.depth or self.jobs
        return bool(exists) and is_valid_name(self.name)


def decode(body: bytes) -> list[Topic]:
    """Raises ValueError when it is not a whole catalog."""
    sheet = _Sheet(body)
    topics = []
    while sheet.offset < len(body):
        topics.append(sheet.topic())
    return topics


async def decode_in_pieces(body: bytes) -> list[Topic]:
    """Does the same as decode(), with pauses for the event loop, so that a large catalog holds nothing up."""
    return [topic async for topic in each(body)]


async def each(body: bytes) -> AsyncIterator[Topic]:
    """Yields the topics one by one, with the same pauses, for callers that do not keep them all."""
    sheet = _Sheet(body)
    done = 0
    while sheet.offset < len(body):
        topic = sheet.topic()
        yield topic
        done += 1 + len(topic.channels) + sum(len(channel.consumers) for channel in topic.channels)
        if done >= PIECE:
            done = 0
            await asyncio.sleep(0)


class _Sheet:
    """A catalog, and how far it has been read. The structs have the C compiler's layout."""

    def __init__(self, body: bytes) -> None:
        self.offset = 0
        self._body = body
        self._topic: Any = ffi.new("struct topic_figures *")
        self._channel: Any = ffi.new("struct channel_figures *")
        self._consumer: Any = ffi.new("struct consumer_figures *")

    def topic(self) -> Topic:
        f = self._topic
        self._read(f)
        channels = int(f.channels)
        topic = Topic(
            self._text(f.name_bytes), int(f.flags), int(f.depth), int(f.messages), int(f.message_bytes), int(f.jobs),
            read_back=int(f.read_back), read_back_bytes=int(f.read_back_bytes), reserves=int(f.reserves),
            deletes=int(f.deletes), reserved=int(f.reserved), delayed=int(f.delayed), buried=int(f.buried),
            releases=int(f.releases), timeouts=int(f.timeouts),
        )  # fmt: skip
        for _ in range(channels):
            topic.channels.append(self._one_channel())
        topic.channels.sort(key=lambda channel: channel.name)
        return topic

    def _one_channel(self) -> Channel:
        f = self._channel
        self._read(f)
        listed = int(f.consumers_listed)
        channel = Channel(
            self._text(f.name_bytes), int(f.flags), int(f.consumers), int(f.depth), int(f.in_flight), int(f.deferred),
            int(f.messages), int(f.requeues), int(f.timeouts), int(f.read_back), int(f.delivered), int(f.finished),
        )  # fmt: skip
        for _ in range(listed):
            channel.consumers.append(self._one_consumer())
        return channel

    def _one_consumer(self) -> Consumer:
        f = self._consumer
        self._read(f)
        return Consumer(
            int(f.acceptor), int(f.conn), int(f.credit), int(f.in_flight), int(f.messages), int(f.finishes),
            int(f.requeues), int(f.sample_percent), bool(f.is_leaving), int(f.number), self._bytes(f.description_bytes),
        )  # fmt: skip

    def _read(self, figures: Any) -> None:  # noqa: ANN401
        size = ffi.sizeof(figures[0])
        ffi.memmove(figures, self._bytes(size), size)

    def _bytes(self, count: int) -> bytes:
        begin = self.offset
        if begin + count > len(self._body):
            raise ValueError(f"a catalog ends in the middle, at {begin} of {len(self._body)} bytes")
        self.offset = begin + count
        return self._body[begin : self.offset]

    def _text(self, count: int) -> str:
        return self._bytes(count).decode("latin-1")  # a beanstalk tube's name need not be UTF-8
