"""What the catalog keeps of durable subscriptions: the properties that their maker gave them, and whether they are to
be replicated. Nothing is replicated here: the flag is only shown.

Workers have the subscriptions themselves. One that a client deletes is not reported here, so what was kept of it is
dropped when a subscription of that name is made again, or by the next round of upkeep.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import (
    MAX_PROPERTIES,
    MAX_PROPERTY_BYTES,
    PERSISTENT,
    PulsarNameError,
    TopicName,
    topic_name,
)
from mq_shards.gateway.pulsar.catalog import Subscription, encoded_bytes, subscription_record
from mq_shards.gateway.pulsar.core import Core, NoSubscriptionError, NoTopicError, shown_channels
from mq_shards.gateway.pulsar.refusals import precondition, too_many
from mq_shards.gateway.pulsar.store import Store

MAX_ALL_BYTES: Final = 64 << 20
MAX_TOPICS_A_ROUND: Final = 1000  # that upkeep visits
MAX_DROPPED_AT_ONCE: Final = 500  # subscriptions: others that write to the catalog are served between two such calls
# For how long a subscription may be on its way to its worker: until then it is not taken for a deleted one.
MADE_WITHIN_S: Final = 60.0
MAX_BEGUN: Final = 1 << 16  # subscriptions on their way: beyond, those that have been for longest are taken for made
NOTHING: Final = Subscription()


def checked(properties: Mapping[str, str] | None) -> dict[str, str]:
    """Properties of a topic or a subscription, if they are not too many. Raises RefusedError."""
    found = dict(properties or {})
    if len(found) > MAX_PROPERTIES or encoded_bytes(found) > MAX_PROPERTY_BYTES:
        raise precondition(f"properties are {MAX_PROPERTIES} and {MAX_PROPERTY_BYTES} bytes at most")
    return found


class SubscriptionProperties:
    def __init__(self, store: Store, core: Core, clock_s: Callable[[], float] = time.monotonic) -> None:
        """`clock_s` is monotonic."""
        self._store = store
        self._core = core
        self._clock_s = clock_s
        self._begun: OrderedDict[tuple[str, str], float] = OrderedDict()  # being made: since when
        self._visited = 0  # how many topics upkeep has visited since it began with the first one

    def of(self, topic: TopicName) -> Mapping[str, Subscription]:
        """What is kept of a topic's subscriptions, by name. Most have nothing."""
        found = self._store.catalog.namespaces.get(topic.namespace)
        return {} if found is None else found.subscriptions.get(str(topic), {})

    async def begin(self, topic: TopicName, name: str, properties: Mapping[str, str], *, replicated: bool) -> None:
        """A client is about to make a durable subscription, or to use it. Properties are those of who makes it. Raises
        RefusedError, StoreError."""
        known = self.of(topic).get(name)
        if topic.domain != PERSISTENT or (known is None and not properties and not replicated):
            return
        if await self._exists(topic, name):
            before = self.of(topic).get(name, NOTHING)
            await self._put(topic, name, replace(before, replicated=before.replicated or replicated))
        else:
            await self._put(topic, name, Subscription(checked(properties), replicated), begins=True)

    async def set_properties(self, topic: TopicName, name: str, properties: Mapping[str, str]) -> None:
        before = self.of(topic).get(name, NOTHING)
        await self._put(topic, name, replace(before, properties=checked(properties)))

    async def set_replicated(self, topic: TopicName, name: str, *, replicated: bool) -> None:
        before = self.of(topic).get(name, NOTHING)
        await self._put(topic, name, replace(before, replicated=replicated))

    async def drop_deleted(self) -> bool:
        """Drops what is kept of subscriptions that no worker has, of some topics and not of many subscriptions: the
        next ones at the next call. Returns whether there were so many that there may be more. Raises RefusedError,
        StoreError."""
        topics = [topic for one in self._store.catalog.namespaces.values() for topic in one.subscriptions]
        if self._visited >= len(topics):
            self._visited = 0
        left = MAX_DROPPED_AT_ONCE
        for text in topics[self._visited : self._visited + MAX_TOPICS_A_ROUND]:
            self._visited += 1
            with contextlib.suppress(PulsarNameError):  # of a damaged log
                topic = topic_name(text)
                left -= await self._drop_deleted(topic, left)
                if left == 0 or not self.of(topic):  # it may have more of them, or is not among these topics any more
                    self._visited -= 1
            if left == 0:
                break
        await self._store.settled()
        return left == 0

    async def _drop_deleted(self, topic: TopicName, most: int) -> int:
        """Returns how many were dropped."""
        figures = await self._core.figures(topic.core)
        # From here on nothing is awaited, so that no subscription can be begun while others are dropped.
        there = {channel.name for channel in shown_channels(figures)} if figures is not None else set()
        self._forget_begun()
        deleted = (name for name in self.of(topic) if name not in there and (str(topic), name) not in self._begun)
        gone = list(itertools.islice(deleted, most))
        self._store.change(*(subscription_record(topic.namespace, str(topic), name, NOTHING) for name in gone))
        return len(gone)

    def _note_begun(self, topic: TopicName, name: str) -> None:
        self._forget_begun()
        self._begun[str(topic), name] = self._clock_s()
        self._begun.move_to_end((str(topic), name))
        if len(self._begun) > MAX_BEGUN:
            self._begun.popitem(last=False)

    def _forget_begun(self) -> None:
        since_s = self._clock_s() - MADE_WITHIN_S
        while self._begun and next(iter(self._begun.values())) < since_s:
            self._begun.popitem(last=False)

    async def _exists(self, topic: TopicName, name: str) -> bool:
        try:
            await self._core.position(topic.core, name)
        except (NoTopicError, NoSubscriptionError):
            return False
        return True

    async def _put(self, topic: TopicName, name: str, wanted: Subscription, *, begins: bool = False) -> None:
        before = self.of(topic).get(name, NOTHING)
        more = wanted.stored_bytes(name) - before.stored_bytes(name)
        if more > 0 and self._store.catalog.subscription_bytes + more > MAX_ALL_BYTES:
            raise too_many("there are as many properties of subscriptions as there may be")
        if begins:
            self._note_begun(topic, name)
        if wanted != before:
            await self._store.commit(subscription_record(topic.namespace, str(topic), name, wanted))
