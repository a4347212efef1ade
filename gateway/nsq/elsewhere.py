"""Channels that a new topic has on other nodes: nsqlookupd is asked for them, and they are made here too.

So messages that come here before any consumer has heard of it wait in each of its channels, and not for the first only.
What comes over HTTP waits for this. What comes over TCP does not: of what is published before the channels are there
(some 0.1 s), the first of them has everything and the others what comes after.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import orjson
from mq_shards.gateway import broker as broker_module
from mq_shards.gateway.broker import Broker, BrokerError
from mq_shards.gateway.names import is_ephemeral, is_valid_channel
from mq_shards.gateway.workers import WorkersError

MAX_REPLY_BYTES: Final = 1 << 20
MAX_CHANNELS: Final = 1000  # made for one topic
MAX_WAITING: Final = 10_000  # topics; what is new beyond that is not asked for

if TYPE_CHECKING:  # not before somebody is asked: it is large
    import aiohttp

log = logging.getLogger(__name__)


class Timeouts(NamedTuple):
    """In seconds."""

    total: float
    connect: float


class ChannelsElsewhere:
    def __init__(self, broker: Broker, addresses: Callable[[], Sequence[str]], timeouts: Timeouts) -> None:
        """`addresses` are where the HTTP APIs of the nsqlookupds are that we are connected to."""
        self._broker = broker
        self._addresses = addresses
        self._timeouts = timeouts
        self._known: set[str] | None = None  # topics that need not be asked for; None before the first list
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._waiting: asyncio.Queue[str] = asyncio.Queue(MAX_WAITING)

    def update(self, topics: Iterable[str]) -> None:
        """These are here now. Those of the first list have been here before us."""
        before, self._known = self._known, set(topics)
        for topic in sorted(self._known - before) if before is not None and self._addresses() else ():
            with contextlib.suppress(asyncio.QueueFull):
                self._waiting.put_nowait(topic)

    async def prepare(self, topic: str) -> None:
        """Before the first message of a topic. Never fails: without the channels it goes on as well."""
        if not self._addresses() or self._known is None or topic in self._known:
            return
        await self._ask_once(topic, is_new=True)
        self._known.add(topic)

    async def run(self) -> None:
        """Sees to the topics that were made otherwise. Goes on until it is cancelled."""
        while True:
            await self._ask_once(await self._waiting.get(), is_new=False)

    async def _ask_once(self, topic: str, *, is_new: bool) -> None:
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.create_task(self._make_channels(topic, is_new))
            task.add_done_callback(lambda _: self._asking.pop(topic, None))
        await asyncio.shield(task)

    async def _make_channels(self, topic: str, is_new: bool) -> None:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=self._timeouts.total, connect=self._timeouts.connect)
        try:
            async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
                answers = await asyncio.gather(*(self._channels(session, at, topic) for at in self._addresses()))
            channels = sorted({channel for answer in answers for channel in answer})[:MAX_CHANNELS]
            if channels:
                if is_new:  # another may have been deleted meanwhile, and is to stay so
                    await self._broker.change(broker_module.MAKE, topic)
                made = (self._broker.change(broker_module.MAKE, topic, channel) for channel in channels)
                await asyncio.gather(*made)
                log.info("topic %s: made its channels of other nodes: %s", topic, ", ".join(channels))
        except (BrokerError, WorkersError) as error:
            log.warning("topic %s: cannot make its channels of other nodes: %r", topic, error)

    async def _channels(self, session: aiohttp.ClientSession, address: str, topic: str) -> list[str]:
        import aiohttp

        try:
            async with session.get(f"http://{address}/channels?topic={quote(topic)}") as response:
                body = await _read(response)
                found: Any = orjson.loads(body) if response.status == 200 else {}
            channels = found["channels"] if isinstance(found, dict) and found else []
            # An ephemeral channel without a consumer would go at once.
            return [c for c in channels if isinstance(c, str) and is_valid_channel(c) and not is_ephemeral(c)]
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, LookupError, TypeError) as error:
            log.warning("nsqlookupd at %s does not say which channels %s has: %r", address, topic, error)
            return []


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > MAX_REPLY_BYTES:
            raise ValueError(f"it replies with more than {MAX_REPLY_BYTES} bytes")
    return bytes(body)
