"""Whether a producer or consumer may come to a topic, by the policies of the topic or its namespace; whether its role
lets it is roles.py's.

How many there are already the acceptors are asked, and only where a policy limits it. Two producers or consumers that
come at the same moment may both find room; of new subscriptions each has a place as soon as it was let in.
"""

from __future__ import annotations

import asyncio
from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import TopicName
from mq_shards.gateway.pulsar.catalog import Json
from mq_shards.gateway.pulsar.clients import Clients
from mq_shards.gateway.pulsar.core import Core, durable_channels
from mq_shards.gateway.pulsar.refusals import RefusedError

HOLD: Final = "producer_request_hold"
EXCEPTION: Final = "producer_exception"
# As a real broker writes it.
NO_SCHEMA: Final = (
    "Producers cannot connect or send message without a schema to topics with a schemawhen SchemaValidationEnforced "
    "is enabled"
)


# A subscription that was let in has been made after so long, or is not. Until then it counts, unless it was seen to be
# there, or to go.
MADE_WITHIN_S: Final = 5.0


class SubscriptionNotFoundError(RefusedError):
    """It is not there, and nobody makes one by using it."""

    def __init__(self) -> None:
        super().__init__(404, "SubscriptionNotFound", "Subscription does not exist")


class Admission:
    def __init__(self, core: Core, clients: Clients) -> None:
        self._core = core
        self._clients = clients
        self._let_in: Final[dict[tuple[str, str], float]] = {}  # subscriptions that are being made: since when
        self._looking: Final[list[tuple[str, set[str]]]] = []  # topics that are looked at, and what was let in
        self.over_quota: Final[dict[str, str]] = {}  # topics, and the policy that producers feel; kept by upkeep.py

    async def check(self, name: TopicName, asked: Json, policies: Json, *, has_schema: bool) -> None:
        """`asked` and `policies` as docs/pulsar-catalog.md has them. Raises RefusedError."""
        if asked["action"] == "consume":
            await self._check_consumer(name, asked, policies)
        else:
            await self._check_producer(name, asked, policies, has_schema)

    async def _check_producer(self, name: TopicName, asked: Json, policies: Json, has_schema: bool) -> None:
        if policies["encryption_required"] and not asked.get("encrypted"):
            raise RefusedError(412, "MetadataError", f"Encryption is required in {name}")
        if policies["schema_enforced"] and has_schema and not asked.get("schema"):
            raise RefusedError(409, "IncompatibleSchema", NO_SCHEMA)
        quota = self.over_quota.get(str(name))
        if quota is not None:
            kind = "Exception" if quota == EXCEPTION else "Error"
            error = f"ProducerBlockedQuotaExceeded{kind}"
            raise RefusedError(412, error, "Cannot create producer on topic with backlog quota exceeded")
        most = policies["max_producers"]
        if most and len((await self._clients.of([str(name)]))[str(name)].producers) >= most:
            raise RefusedError(412, "ProducerBusy", f"Topic '{name}' reached max producers limit")

    async def _check_consumer(self, name: TopicName, asked: Json, policies: Json) -> None:
        kind, subscription = asked.get("type"), asked["subscription"]
        if kind is not None and kind not in policies["subscription_types"]:
            raise RefusedError(412, "NotAllowedError", f"Topic[{{{name}}}] doesn't support {kind} sub type!")
        if not policies["auto_subscription"] or policies["max_subscriptions"]:
            await self.check_subscription(name, subscription, policies, durable=bool(asked.get("durable", True)))
        most, most_of_one = policies["max_consumers"], policies["max_consumers_per_subscription"]
        if not most and not most_of_one:
            return
        there = (await self._clients.of([str(name)]))[str(name)].consumers
        if most and len(there) >= most:
            raise RefusedError(412, "ConsumerBusy", "Topic reached max consumers limit")
        if most_of_one and sum(one.get("subscription") == subscription for one in there) >= most_of_one:
            raise RefusedError(412, "ConsumerBusy", "Subscription reached max consumers limit")

    async def check_subscription(
        self, name: TopicName, subscription: str, policies: Json, *, durable: bool, made: bool = False
    ) -> None:
        """Of one that is not there yet. `made`: by an administrator, who always may. Raises RefusedError."""
        looking = name.core, self._being_made(name)
        self._looking.append(looking)
        try:
            figures = await self._core.figures(name.core)
        finally:
            self._looking[:] = [one for one in self._looking if one is not looking]
        there = {channel.name for channel in durable_channels(figures)} if figures is not None else set()
        for made_now in there:
            self.was_made(name, made_now)
        if subscription in there or not durable:
            return
        if not policies["auto_subscription"] and not made:
            raise SubscriptionNotFoundError
        most = policies["max_subscriptions"]
        if not most:
            return
        there |= looking[1] | self._being_made(name)
        if subscription not in there and len(there) >= most:
            reason = f"Exceed the maximum number of subscriptions of the topic: {name}"
            raise RefusedError(409, "NotAllowedError", reason)
        self._let_in[name.core, subscription] = asyncio.get_running_loop().time()
        for topic, meanwhile in self._looking:
            if topic == name.core:
                meanwhile.add(subscription)

    def was_made(self, name: TopicName, subscription: str) -> None:
        """Or will not be, or has gone: what the topic has is what counts."""
        self._let_in.pop((name.core, subscription), None)

    def _being_made(self, name: TopicName) -> set[str]:
        since_s = asyncio.get_running_loop().time() - MADE_WITHIN_S
        for one in [one for one, at_s in self._let_in.items() if at_s < since_s]:
            del self._let_in[one]
        return {subscription for topic, subscription in self._let_in if topic == name.core}
