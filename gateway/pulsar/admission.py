"""Whether the policies of a topic or its namespace admit a producer or consumer. Whether its role may do so is checked
by roles.py.

Acceptors are asked how many clients there are only where a policy limits that. Two producers or consumers that come at
the same moment may both find room. A new subscription takes up room as soon as it is admitted.
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
# The words of a real broker, misprint included: an exception, and the same one as its cause.
_INCOMPATIBLE: Final = (
    "org.apache.pulsar.broker.service.schema.exceptions.IncompatibleSchemaException: Producers cannot connect or send "
    "message without a schema to topics with a schemawhen SchemaValidationEnforced is enabled"
)
NO_SCHEMA: Final = f"{_INCOMPATIBLE} caused by {_INCOMPATIBLE}"


# For how long an admitted subscription counts although no worker is known to have it: after that it has been made, or
# never will be. It stops counting earlier if it was seen to exist, or was deleted.
MADE_WITHIN_S: Final = 5.0


class SubscriptionNotFoundError(RefusedError):
    """There is no such subscription, and policies forbid that a client makes one by using it."""

    def __init__(self) -> None:
        super().__init__(404, "SubscriptionNotFound", "Subscription does not exist")


class Admission:
    def __init__(self, core: Core, clients: Clients) -> None:
        self._core = core
        self._clients = clients
        self._let_in: Final[dict[tuple[str, str], float]] = {}  # subscriptions being made: when they were admitted
        self._looking: Final[list[tuple[str, set[str]]]] = []  # lookups under way: topic, and what was admitted since
        self.over_quota: Final[dict[str, str]] = {}  # topics, and the policy for their producers; set by upkeep.py

    async def check(self, name: TopicName, asked: Json, policies: Json, *, has_schema: bool) -> None:
        """Admits a client. docs/pulsar-catalog.md describes `asked` and `policies`. Raises RefusedError."""
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
        """Admits a subscription, which may not exist yet. `made`: an administrator makes it, who always may make one.

        Raises RefusedError.
        """
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
        """The subscription was made, will not be, or was deleted: from now on it counts only if the topic has it."""
        self._let_in.pop((name.core, subscription), None)

    def _being_made(self, name: TopicName) -> set[str]:
        since_s = asyncio.get_running_loop().time() - MADE_WITHIN_S
        for one in [one for one, at_s in self._let_in.items() if at_s < since_s]:
            del self._let_in[one]
        return {subscription for topic, subscription in self._let_in if topic == name.core}
