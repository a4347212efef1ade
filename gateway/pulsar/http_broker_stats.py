"""REST: broker-stats/topics, the figures of all topics at once, as Pulsar Manager reads them.

Only the topics with the most messages are shown, as many as in /metrics/: each costs questions to its worker and to the
acceptors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from heapq import nlargest
from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import TopicName, topic_of_core
from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.metrics_topics import order_of
from mq_shards.gateway.pulsar.bundles import boundaries_of, bundle_of
from mq_shards.gateway.pulsar.catalog import Json
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import in_text
from mq_shards.gateway.pulsar.refusals import RefusedError, unavailable
from mq_shards.gateway.pulsar.requests import Call, Routes, json_of
from mq_shards.gateway.pulsar.stats import Stats
from mq_shards.gateway.shared import Shared

# The names that figures have here, by those that they have in a topic's own stats.
_TOPIC: Final = {
    "publishers": "publishers", "replication": "replication", "averageMsgSize": "averageMsgSize",
    "msgRateIn": "msgRateIn", "msgRateOut": "msgRateOut", "msgInCounter": "msgInCount",
    "bytesInCounter": "bytesInCount", "msgOutCounter": "msgOutCount", "bytesOutCounter": "bytesOutCount",
    "msgThroughputIn": "msgThroughputIn", "msgThroughputOut": "msgThroughputOut", "storageSize": "storageSize",
    "backlogSize": "backlogSize",
}  # fmt: skip
_SUBSCRIPTION: Final = (
    "consumers", "msgBacklog", "msgRateExpired", "msgRateOut", "messageAckRate", "msgThroughputOut",
    "msgRateRedeliver", "type", "filterProcessedMsgCount", "filterAcceptedMsgCount", "filterRejectedMsgCount",
    "filterRescheduledMsgCount",
)  # fmt: skip
_OF_SOME: Final = ("activeConsumerName", "blockedSubscriptionOnUnackedMsgs", "unackedMessages", "msgDropRate")
_NO_RANGES: Final[Json] = {
    "numberOfEntriesSinceFirstNotAckedMessage": 0, "totalNonContiguousDeletedMessagesRange": 0,
}  # fmt: skip


class HttpBrokerStats:
    def __init__(
        self, control: Control, stats: Stats, topics: Callable[[], Awaitable[list[Figures] | None]], most_topics: int
    ) -> None:
        """`topics` returns what the workers say of all topics; None: a worker does not answer."""
        self._control = control
        self._stats = stats
        self._all = topics
        self._most_topics = most_topics
        self._shared: Shared[Answer] = Shared()
        self.routes: Routes = {"/admin/v2/broker-stats/topics": {"GET": self._topics}}

    async def _topics(self, _: Call) -> Answer:
        return await self._shared.get(None, self._all_topics)

    async def _all_topics(self) -> Answer:
        found: dict[str, dict[str, dict[str, Json]]] = {}
        topics = await self._all()
        if topics is None:
            raise unavailable("a worker does not answer")
        names = await asyncio.to_thread(_choose, topics, self._most_topics)  # in a thread, as there may be a million
        connected = await self._stats.clients(names)
        for name in names:
            try:
                stats = await self._stats.topic(name, connected=connected[str(name)])
                boundaries = boundaries_of(self._control.namespace(name.namespace).policies)
            except RefusedError:  # it has gone meanwhile
                continue
            of = found.setdefault(name.namespace, {}).setdefault(bundle_of(boundaries, str(name)), {})
            of.setdefault(name.domain, {})[str(name)] = _short(stats)
        return json_of(found)


def _choose(topics: Sequence[Figures], most: int) -> list[TopicName]:
    shown = nlargest(most, map(in_text, topics), key=order_of)
    return [name for topic in shown if (name := topic_of_core(topic.name)) is not None]


def _short(stats: Json) -> Json:
    found: Json = {short: stats[name] for name, short in _TOPIC.items()}
    subscriptions: Json = {}
    for name, of in stats["subscriptions"].items():
        more = {key: of[key] for key in _OF_SOME if key in of}
        subscriptions[name] = {key: of[key] for key in _SUBSCRIPTION} | more | _NO_RANGES
    empty = {"pendingAddEntriesCount": 0, "filteredEntriesCount": 0}
    return {**found, **empty, "subscriptions": subscriptions, "producerCount": len(stats["publishers"])}
