"""Channels that a new topic has on other nodes: nsqlookupd is asked for them, and they are made here too.

So messages that arrive here before any consumer has found the topic wait in each of its channels, not only for the
first channel. Messages over HTTP wait until the channels are made. Messages over TCP do not: what is published before
the channels exist (about 0.1 s) is only in the first of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import orjson
from mq_shards.gateway import broker as broker_module
from mq_shards.gateway.broker import Broker, BrokerError
from mq_shards.gateway.nsq.names import is_ephemeral, is_valid_channel
from mq_shards.gateway.turns import in_pieces, sorted_in_turns
from mq_shards.gateway.workers import WorkersError

MAX_REPLY_BYTES: Final = 1 << 20
MAX_CHANNELS: Final = 1000  # the most channels that are made for one topic
MAX_WAITING: Final = 10_000  # topics to be asked for; new topics beyond that are not

if TYPE_CHECKING:  # large, so it is not loaded before the first request
    import aiohttp

log = logging.getLogger(__name__)


class Timeouts(NamedTuple):
    """Of a request to nsqlookupd, in seconds."""

    total: float
    connect: float


class ChannelsElsewhere:
    def __init__(self, broker: Broker, addresses: Callable[[], Sequence[str]], timeouts: Timeouts) -> None:
        """`addresses` returns the HTTP addresses of the nsqlookupds that this node is connected to."""
        self._broker = broker
        self._addresses = addresses
        self._timeouts = timeouts
        self._known: set[str] | None = None  # topics that need not be asked for; None before the first list
        self._prepared: set[str] = set()  # since the last list, and perhaps not in it
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._waiting: asyncio.Queue[str] = asyncio.Queue(MAX_WAITING)

    async def update(self, came: Sequence[str], gone: Set[str]) -> None:
        """Takes the topics that are new in the list of all, and those that no longer are. Those of the first list are
        older than this process, and are not asked for."""
        prepared, self._prepared = self._prepared, set()
        known = set() if self._known is None else self._known
        for topic in await sorted_in_turns([] if self._known is None else came) if self._addresses() else ():
            if topic not in prepared:
                with contextlib.suppress(asyncio.QueueFull):
                    self._waiting.put_nowait(topic)
        async for piece in in_pieces(came):
            known.update(piece)
        async for piece in in_pieces(list(gone)):
            known.difference_update(piece)
        self._known = known

    async def prepare(self, topic: str) -> None:
        """To be called before the first message of a topic. Never fails: the topic works without the channels too."""
        if not self._addresses() or self._known is None or topic in self._known or topic in self._prepared:
            return
        await self._ask_once(topic, is_new=True)
        self._prepared.add(topic)

    async def run(self) -> None:
        """Makes the channels of topics that were made in other ways, until it is cancelled."""
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
                if is_new:  # an older topic may have been deleted meanwhile, and must stay deleted
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
            # An ephemeral channel without a consumer would be deleted at once.
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
