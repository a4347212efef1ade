"""A worker's catalog of its topics, channels and consumers: the body of a reply to CATALOG (csrc/ringbuf/message.h)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from mq_shards.csrc._core import ffi, lib

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
    is_blocked: bool = False  # it had all in flight that it may, and has not finished half of them since


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
    in_flight_parts: int = 0  # of a batch each message that is not finished
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
    header_bytes: int = 0  # since the worker began: of its messages' headers
    more_parts: int = 0  # since then: messages in batches, less one for each batch

    @property
    def paused(self) -> bool:
        return bool(self.flags & PAUSED)


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


class _Kind:
    """A struct of a catalog."""

    def __init__(self, name: str) -> None:
        self.pointer: Final = ffi.typeof(f"struct {name} *")
        self.size: Final = ffi.sizeof(f"struct {name}")


_TOPIC: Final = _Kind("topic_figures")
_CHANNEL: Final = _Kind("channel_figures")
_CONSUMER: Final = _Kind("consumer_figures")


class _Sheet:
    """A catalog, and how far it has been read. The structs have the C compiler's layout."""

    def __init__(self, body: bytes) -> None:
        self.offset = 0
        self._body = body
        self._begin: Any = ffi.from_buffer(body)

    def topic(self) -> Topic:
        f = self._figures(_TOPIC)
        topic = Topic(
            self._text(f.name_bytes), f.flags, f.depth, f.messages, f.message_bytes, f.jobs,
            [], f.read_back, f.read_back_bytes, f.reserves, f.deletes, f.reserved, f.delayed, f.buried,
            f.releases, f.timeouts, f.header_bytes, f.more_parts,
        )  # fmt: skip
        for _ in range(f.channels):
            topic.channels.append(self._one_channel())
        if f.channels > 1:
            topic.channels.sort(key=lambda channel: channel.name)
        return topic

    def _one_channel(self) -> Channel:
        f = self._figures(_CHANNEL)
        channel = Channel(
            self._text(f.name_bytes), f.flags, f.consumers, f.depth, f.in_flight, f.deferred,
            f.messages, f.requeues, f.timeouts, f.read_back, f.delivered, f.finished, f.in_flight_parts,
        )  # fmt: skip
        for _ in range(f.consumers_listed):
            channel.consumers.append(self._one_consumer())
        return channel

    def _one_consumer(self) -> Consumer:
        f = self._figures(_CONSUMER)
        return Consumer(
            f.acceptor, f.conn, f.credit, f.in_flight, f.messages, f.finishes,
            f.requeues, f.sample_percent, bool(f.is_leaving), f.number, self._bytes(f.description_bytes),
            bool(f.is_blocked),
        )  # fmt: skip

    def _figures(self, kind: _Kind) -> Any:  # noqa: ANN401
        """The next struct, where it lies in the body."""
        return ffi.cast(kind.pointer, self._begin + self._pass(kind.size))

    def _bytes(self, count: int) -> bytes:
        begin = self._pass(count)
        return self._body[begin : self.offset]

    def _pass(self, count: int) -> int:
        begin = self.offset
        if begin + count > len(self._body):
            raise ValueError(f"a catalog ends in the middle, at {begin} of {len(self._body)} bytes")
        self.offset = begin + count
        return begin

    def _text(self, count: int) -> str:
        return self._bytes(count).decode("latin-1")  # not every protocol wants names to be UTF-8
