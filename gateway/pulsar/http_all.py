"""REST: operations on all subscriptions of a topic, of a namespace or of a bundle at once, and on all partitions of a
topic."""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import PERSISTENT, TopicName, topic_name
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar import bundles
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import NoSubscriptionError, NoTopicError, used_channels
from mq_shards.gateway.pulsar.http_subscriptions import expire
from mq_shards.gateway.pulsar.http_topics import message_id
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Routes, json_of
from mq_shards.gateway.pulsar.stats import Stats
from mq_shards.gateway.turns import in_pieces

TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
BUNDLE: Final = f"{NAMESPACE}/{{bundle}}"


class HttpAll:
    def __init__(self, control: Control, stats: Stats) -> None:
        self._control = control
        self._stats = stats
        self.routes: Routes = {
            f"{TOPIC}/all_subscription/expireMessages/{{seconds}}": {"POST": self._expire},
            f"{TOPIC}/truncate": {"DELETE": self._truncate},
            f"{TOPIC}/terminate/partitions": {"POST": self._terminate},
            f"{NAMESPACE}/clearBacklog": {"POST": self._clear},
            f"{NAMESPACE}/clearBacklog/{{subscription}}": {"POST": self._clear},
            f"{NAMESPACE}/unsubscribe/{{subscription}}": {"POST": self._unsubscribe},
            f"{BUNDLE}/unload": {"PUT": self._unload},
            f"{BUNDLE}/clearBacklog": {"POST": self._clear},
            f"{BUNDLE}/clearBacklog/{{subscription}}": {"POST": self._clear},
            f"{BUNDLE}/unsubscribe/{{subscription}}": {"POST": self._unsubscribe},
        }

    async def _there(self, call: Call) -> tuple[TopicName, list[TopicName]]:
        name = call.topic(self._control)
        return name, [part for part in await self._control.existing_parts(name) if part.domain == PERSISTENT]

    async def _subscriptions(self, name: TopicName, only: str | None = None) -> list[str]:
        figures = await self._control.core.figures(name.core)
        names = [channel.name for channel in used_channels(figures)] if figures is not None else []
        return names if only is None else [one for one in names if one == only]

    async def _expire(self, call: Call) -> Answer:
        """Like a real broker, fails at the first subscription that refuses it."""
        _, parts = await self._there(call)
        for part in parts:
            for subscription in await self._subscriptions(part):
                await expire(self._control, part, subscription, call.number("seconds"))
        return NO_CONTENT

    async def _pass_all(self, part: TopicName, only: str | None = None) -> None:
        for subscription in await self._subscriptions(part, only):
            try:
                where = await self._control.core.position(part.core, subscription)
                await self._control.core.evict(part.core, subscription, where.next_seq)
            except (NoTopicError, NoSubscriptionError):
                continue

    async def _truncate(self, call: Call) -> Answer:
        _, parts = await self._there(call)
        for part in parts:
            await self._pass_all(part)
        return NO_CONTENT

    async def _terminate(self, call: Call) -> Answer:
        name, parts = await self._there(call)
        if parts == [name]:
            why = "Termination of a non-partitioned topic is not allowed using partitioned-terminate, please use "
            raise RefusedError(405, "NotAllowedError", f"{why}terminate commands")
        found = {}
        for part in parts:
            await self._stats.position(part)
            await self._control.core.terminate(part.core)
            await self._control.clients.terminated(str(part))
            # A real broker names the partition in the key alone, and of a batch the entry alone.
            entry = message_id(part, await self._stats.position(part))
            found[str(part.partition)] = {**entry, "partitionIndex": -1, "batchIndex": -1}
        return json_of(found)

    async def _topics(self, call: Call) -> list[TopicName]:
        self._control.namespace(call.namespace, "Namespace does not exist")
        # An older release noted topics with a line end in their names, which no worker has.
        found = await self._chosen(call, await self._control.topics(call.namespace, PERSISTENT))
        return [topic_name(text) async for piece in in_pieces(found) for text in piece if "\n" not in text]

    async def _chosen(self, call: Call, topics: list[str]) -> list[str]:
        """Those of the namespace's topics that are in the bundle, if one was named."""
        bundle = call.names.get("bundle")
        if bundle is None:
            return topics
        boundaries = bundles.boundaries_of(self._control.namespace(call.namespace).policies)
        return await bundles.in_range(*bundles.checked(call.namespace, boundaries, bundle), topics)

    async def _unload(self, call: Call) -> Answer:
        self._control.namespace(call.namespace, "Namespace not found", made=True)
        topics = await self._control.topics_of_mode(call.namespace, "ALL")
        await self._control.clients.close(await self._chosen(call, topics))
        return NO_CONTENT

    async def _clear(self, call: Call) -> Answer:
        for name in await self._topics(call):
            await self._pass_all(name, call.names.get("subscription"))
        return NO_CONTENT

    async def _unsubscribe(self, call: Call) -> Answer:
        wanted = call.names["subscription"]
        names = [name for name in await self._topics(call) if await self._subscriptions(name, wanted)]
        if await self._control.consumers(names, wanted):
            raise RefusedError(412, "ConsumerBusy", "Subscription has active connected consumers")
        for name in names:
            await self._control.core.delete_subscription(name.core, wanted)
            self._control.admission.was_made(name, wanted)
        return NO_CONTENT
