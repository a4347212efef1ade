"""Figures for a statsd daemon: counters as the increase since the last time, everything else as gauges."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from mq_shards.gateway.broker import Broker
from mq_shards.gateway.catalog import Topic
from mq_shards.gateway.nsq.names import is_ephemeral
from mq_shards.gateway.nsq.topics import visible_topics
from mq_shards.gateway.turns import Turns, in_pieces
from mq_shards.gateway.workers import WorkersError

# The packets of an interval are spread over it, except for this long at its end.
REST_S: Final = 1.0

log = logging.getLogger(__name__)

Counters = dict[str, int]


@dataclass(frozen=True, slots=True)
class StatsdOptions:
    address: str
    prefix: str
    interval_s: float
    packet_bytes: int
    exclude_ephemeral: bool
    on_disk: bool  # there is a data directory: backend_depth is the whole depth, as in stats.py


class Statsd:
    def __init__(self, options: StatsdOptions, broker: Broker, memory: Callable[[], dict[str, int]] | None) -> None:
        """`memory` returns the memory figures to send in addition; None: none are sent."""
        self._options = options
        self._broker = broker
        self._memory = memory
        self._last: Counters = {}

    async def run(self) -> None:
        """Sends figures once each interval, until it is cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._options.interval_s
        while True:
            await asyncio.sleep(due - loop.time())
            due = max(due + self._options.interval_s, loop.time())
            try:
                await self._push()
            except (OSError, ValueError, WorkersError) as error:
                log.error("statsd %s: %s", self._options.address, error)

    async def _push(self) -> None:
        sent = await self.report()
        host, _, port = self._options.address.rpartition(":")
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=(host.strip("[]"), int(port))
        )
        try:
            pause_s = max(0.0, self._options.interval_s - REST_S) / max(1, len(sent))
            for packet in sent:
                transport.sendto(packet)
                await asyncio.sleep(pause_s)
        finally:
            transport.close()

    async def report(self) -> list[bytes]:
        """The packets of an interval, which are made as the lines of all topics are, a few at a time."""
        topics, silent = await visible_topics(self._broker)
        if self._options.exclude_ephemeral:
            topics = [topic async for piece in in_pieces(topics) for topic in piece if not is_ephemeral(topic.name)]
        counters: Counters = {}
        lines = figures(topics, self._last, counters, self._options)
        if self._memory is not None:
            lines = chain(lines, _memory_lines(self._memory()))
        sent: list[bytes] = []
        turns = Turns()
        for packet in packets((self._options.prefix + line for line in lines), self._options.packet_bytes):
            sent.append(packet)
            await turns.pause()
        self._last = self._last | counters if silent else counters  # topics that are missing will be back
        return sent


def figures(topics: Iterable[Topic], last: Counters, counters: Counters, options: StatsdOptions) -> Iterator[str]:
    """Yields the lines to send, and puts the values of all counters into `counters`. `last`: their values at the last
    time."""

    def count(key: str, value: int) -> str:
        counters[key] = value
        before = last.get(key, 0)
        # A value may have fallen: a worker was restarted, or a topic was made again.
        return f"{key}:{value - before if value >= before else value}|c\n"

    def gauge(key: str, value: int) -> str:
        return f"{key}:{value}|g\n"

    def backend(depth: int) -> int:
        return depth if options.on_disk else 0

    for topic in topics:
        of_topic = f"topic.{topic.name}."
        yield count(of_topic + "message_count", topic.messages)
        yield count(of_topic + "message_bytes", topic.message_bytes)
        yield gauge(of_topic + "depth", topic.depth)
        yield gauge(of_topic + "backend_depth", backend(topic.depth))
        for channel in topic.channels:
            if options.exclude_ephemeral and is_ephemeral(channel.name):
                continue
            of_channel = f"{of_topic}channel.{channel.name}."
            yield count(of_channel + "message_count", channel.messages)
            yield gauge(of_channel + "depth", channel.depth)
            yield gauge(of_channel + "backend_depth", backend(channel.depth))
            yield gauge(of_channel + "in_flight_count", channel.in_flight)
            yield gauge(of_channel + "deferred_count", channel.deferred)
            yield count(of_channel + "requeue_count", channel.requeues)
            yield count(of_channel + "timeout_count", channel.timeouts)
            yield gauge(of_channel + "clients", channel.consumer_count)


def _memory_lines(memory: dict[str, int]) -> list[str]:
    """Lines of memory figures. Like nsqd, sends the count of collections under another name than /stats has."""
    lines = [f"mem.{name}:{value}|g\n" for name, value in memory.items() if name != "gc_total_runs"]
    lines.append(f"mem.gc_runs:{memory['gc_total_runs']}|c\n")
    return lines


def packets(lines: Iterable[str], packet_bytes: int) -> Iterator[bytes]:
    """Packs as many whole lines into a packet as fit; a line that is too long gets a packet of its own."""
    packet = b""
    for line in lines:
        data = line.encode()
        if packet and len(packet) + len(data) > packet_bytes:
            yield packet
            packet = b""
        packet += data
    if packet:
        yield packet
