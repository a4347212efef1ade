"""REST: subscriptions and their cursors."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import (
    MAX_SUBSCRIPTION_BYTES,
    PERSISTENT,
    RETENTION,
    TopicName,
    is_local,
)
from mq_shards.acceptor.protocols.pulsar.position import Position
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar import core as core_module
from mq_shards.gateway.pulsar import metadata as metadata_module
from mq_shards.gateway.pulsar import policies as policies_module
from mq_shards.gateway.pulsar.by_time import first_at
from mq_shards.gateway.pulsar.catalog import Subscription
from mq_shards.gateway.pulsar.client_stats import properties_of
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import NoSubscriptionError, NoTopicError
from mq_shards.gateway.pulsar.http_topics import TOPIC
from mq_shards.gateway.pulsar.refusals import RefusedError, conflict, not_found, precondition
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Routes, json_of, required
from mq_shards.gateway.pulsar.scalars import flag, strings, whole
from mq_shards.gateway.pulsar.stats import Stats
from mq_shards.gateway.pulsar.subscription_properties import NOTHING

LATEST_ID: Final = (1 << 63) - 1
_NAMED: Final = {
    "earliest": {"ledgerId": -1, "entryId": -1},
    "latest": {"ledgerId": LATEST_ID, "entryId": LATEST_ID},
}
FEW: Final = 1000  # entries: what is expired of so few while a consumer is there, and at work
SUB: Final = f"{TOPIC}/subscription/{{subscription}}"


async def expire(control: Control, part: TopicName, subscription: str, seconds: int) -> None:
    """Finishes all messages of a topic that is not partitioned, or of a partition, that are older. As at a real broker
    it is refused where the backlog is empty, or small and being consumed with nothing so old in it.

    Raises RefusedError, NoTopicError, NoSubscriptionError.
    """
    where = await control.core.position(part.core, subscription)
    before_ns = int(control.now_s() * 1e9) - seconds * 1_000_000_000
    entry = await control.core.entry(part.core, where.unfinished, head=True)
    if entry is not None and entry.time_ns < before_ns:
        await control.core.expire(part.core, subscription, before_ns)
        return
    connected = (await control.clients.of([str(part)]))[str(part)]
    consumed = any(one.get("subscription") == subscription for one in connected.consumers)
    if entry is None or (consumed and where.next_seq - where.unfinished < FEW):
        raise _not_expired(part, subscription)


def _not_expired(name: TopicName, subscription: str) -> RefusedError:
    return conflict(
        f"Expire message by timestamp not issued on topic {name} for subscription {subscription} due to ongoing "
        "message expiration not finished or subscription almost catch  up. If it's performed on a partitioned topic "
        "operation might succeeded on other partitions, please check stats of individual partition."
    )


class HttpSubscriptions:
    def __init__(self, control: Control, stats: Stats) -> None:
        self._control = control
        self._stats = stats
        self.routes: Routes = {
            f"{TOPIC}/subscriptions": {"GET": self._list},
            SUB: {"PUT": self._make, "DELETE": self._delete},
            f"{SUB}/properties": {"GET": self._properties, "PUT": self._set_properties},
            f"{SUB}/replicatedSubscriptionStatus": {"GET": self._replicated, "POST": self._set_replicated},
            f"{SUB}/skip_all": {"POST": self._skip_all},
            f"{SUB}/skip/{{count}}": {"POST": self._skip},
            f"{SUB}/resetcursor": {"POST": self._reset_to_id},
            f"{SUB}/resetcursor/{{time}}": {"POST": self._reset_to_time},
            f"{SUB}/expireMessages": {"POST": self._expire_to_id},
            f"{SUB}/expireMessages/{{seconds}}": {"POST": self._expire},
        }

    def _missing(self, call: Call, name: TopicName) -> RefusedError:
        return not_found(f"Subscription {call.names['subscription']} not found for topic {name}")

    async def _there(self, call: Call) -> tuple[TopicName, list[TopicName]]:
        """The topic, which must exist, and its partitions."""
        name = call.topic(self._control)
        return name, await self._control.existing_parts(name)

    async def _list(self, call: Call) -> Answer:
        name, _ = await self._there(call)
        return json_of(await self._control.subscriptions(name))

    # --- made and deleted -------------------------------------------------------------------------------------------

    async def _make(self, call: Call) -> Answer:
        """Makes a subscription that begins where the body says, or at the topic's end."""
        name, wanted = call.topic(self._control), subscription_of(call)
        given = await call.json()
        begins = id_of("latest" if given is None else given)
        properties = strings(given.get("properties")) if isinstance(given, dict) else {}
        if not await self._control.exists(name) and str(name) not in self._control.namespace(name.namespace).topics:
            await self._control.open(name, create=True)
        parts = self._control.parts(name)
        lacking = [part for part in parts if wanted not in await self._control.subscriptions(part)]
        if parts and not lacking:  # if some have it, it was not made to its end
            raise conflict("Subscription already exists for topic")
        async with being_made(self._control, name, wanted):
            for part in lacking:
                start, at = start_at(begins, (await self._stats.position(part)).incarnation)
                await self._control.subscription_properties.begin(
                    part, wanted, properties, replicated=call.flag("replicated")
                )
                await self._control.core.begin_subscription(part.core, wanted, start, at)
        return NO_CONTENT

    async def _delete(self, call: Call) -> Answer:
        name, parts = await self._there(call)
        wanted = subscription_of(call)
        if wanted not in await self._control.subscriptions(name):
            raise not_found(f"Subscription {wanted} not found for topic {name}")
        if await self._control.consumers(parts, wanted):
            if not call.flag("force"):
                raise precondition("Subscription has active connected consumers")
            await self._control.clients.close([str(part) for part in parts], wanted)
        for part in parts:
            await self._control.core.delete_subscription(part.core, wanted)
            self._control.admission.was_made(part, wanted)
        return NO_CONTENT

    # --- properties -------------------------------------------------------------------------------------------------

    async def _having(self, call: Call) -> list[TopicName]:
        """The topic, or its partitions, of which each has the subscription."""
        name, parts = await self._there(call)
        if call.names["subscription"] not in await self._control.subscriptions(name):
            raise self._missing(call, name)
        return parts

    async def _properties(self, call: Call) -> Answer:
        found: dict[str, str] = {}
        parts, wanted = await self._having(call), call.names["subscription"]
        connected = await self._control.clients.of([str(part) for part in parts])
        for part in parts:
            about = self._control.subscription_properties.of(part).get(wanted)
            consumers = [one for one in connected[str(part)].consumers if one.get("subscription") == wanted]
            found |= properties_of(consumers) if about is None else about.properties
        return json_of(found)

    def _about(self, part: TopicName, call: Call) -> Subscription:
        return self._control.subscription_properties.of(part).get(call.names["subscription"], NOTHING)

    async def _set_properties(self, call: Call) -> Answer:
        given = strings(await call.json())
        for part in await self._having(call):
            await self._control.subscription_properties.set_properties(part, call.names["subscription"], given)
        return NO_CONTENT

    async def _replicated(self, call: Call) -> Answer:
        self._check_persistent(call, "get")
        return json_of({str(part): self._about(part, call).replicated for part in await self._having(call)})

    async def _set_replicated(self, call: Call) -> Answer:
        given = await call.json(needed=True)
        self._check_persistent(call, "enable/disable")
        wanted = flag(given, "the body")
        for part in await self._having(call):
            await self._control.subscription_properties.set_replicated(
                part, call.names["subscription"], replicated=wanted
            )
        return NO_CONTENT

    def _check_persistent(self, call: Call, what: str) -> None:
        name = call.topic(self._control)
        if name.domain == PERSISTENT and not is_local(name.namespace):
            return
        kind = "non-persistent" if name.domain != PERSISTENT else "non-global"
        raise RefusedError(405, "NotAllowedError", f"Cannot {what} replicated subscriptions on {kind} topics")

    # --- cursors ----------------------------------------------------------------------------------------------------

    async def _seek(self, call: Call, name: TopicName, part: TopicName, start: int, at: int = 0) -> None:
        try:
            await self._control.core.seek(part.core, call.names["subscription"], start, at)
        except (NoTopicError, NoSubscriptionError):
            raise self._missing(call, name) from None

    async def _skip_all(self, call: Call) -> Answer:
        name, parts = await self._there(call)
        for part in parts:
            await self._seek(call, name, part, core_module.LATEST)
        return NO_CONTENT

    async def _skip(self, call: Call) -> Answer:
        name, parts = await self._there(call)
        if parts != [name]:
            raise RefusedError(405, "NotAllowedError", "Skip messages on a partitioned topic is not allowed")
        where = await self._where_is(call, name)
        to = min(where.unfinished + max(call.number("count"), 0), where.next_seq)
        await self._seek(call, name, name, core_module.AT_SEQ, to)
        return NO_CONTENT

    async def _where_is(self, call: Call, name: TopicName) -> Position:
        try:
            return await self._control.core.position(name.core, call.names["subscription"])
        except (NoTopicError, NoSubscriptionError):
            raise self._missing(call, name) from None

    async def _reset_to_time(self, call: Call) -> Answer:
        name, parts = await self._there(call)
        for part in parts:
            where = await self._stats.position(part)
            at = await first_at(self._control.core, part.core, where, call.number("time"))
            await self._seek(call, name, part, core_module.AT_SEQ, at)
        return NO_CONTENT

    async def _reset_to_id(self, call: Call) -> Answer:
        given = await call.json()
        name, parts = await self._there(call)
        if parts != [name]:
            raise RefusedError(405, "NotAllowedError", "Reset-cursor at position is not allowed for partitioned-topic")
        found = id_of(required(given))
        start, at = start_at(found, (await self._stats.position(name)).incarnation)
        if start == core_module.AT_SEQ and flag(given.get("excluded"), "excluded"):
            index = whole(given.get("batchIndex", -1), "batchIndex")
            at += not await self._has_more(name, at, index)
        await self._seek(call, name, name, start, at)
        return NO_CONTENT

    async def _has_more(self, name: TopicName, seq: int, index: int) -> bool:
        """Whether a batch has messages behind this one. -1: the whole of it is meant."""
        entry = await self._control.core.entry(name.core, seq, head=True) if index >= 0 else None
        if entry is None or entry.tag != metadata_module.PULSAR_TAG:
            return False
        found = metadata_module.read(entry.headers)
        return found is not None and index + 1 < (found.batch_messages or 1)

    async def _expire(self, call: Call) -> Answer:
        """Where a partition refuses it the others do it all the same."""
        _, parts = await self._there(call)
        refused: RefusedError | None = None
        for part in parts:
            try:
                await expire(self._control, part, call.names["subscription"], call.number("seconds"))
            except (NoTopicError, NoSubscriptionError):
                raise self._missing(call, part) from None
            except RefusedError as error:
                refused = refused or error
        if refused is not None:
            raise refused
        return NO_CONTENT

    async def _expire_to_id(self, call: Call) -> Answer:
        """Finishes the message with this id, and all before it."""
        given = await call.json()
        name, parts = await self._there(call)
        if parts != [name]:
            why = "Expire message at position is not supported for partitioned-topic"
            raise RefusedError(405, "NotAllowedError", why)
        ledger, entry = id_of(given)
        partition = whole(given.get("partitionIndex", -1), "partitionIndex") if isinstance(given, dict) else -1
        if partition != name.partition:
            raise precondition(
                "Invalid parameter for expire message by position, partition index of passed in message position "
                "doesn't match partition index for the topic"
            )
        where = await self._where_is(call, name)
        if ledger > where.incarnation or (ledger == where.incarnation and entry >= where.next_seq):
            raise conflict(
                f"Expire message by position not issued on topic {name} for subscription {call.names['subscription']} "
                "due to ongoing message expiration not finished or invalid message position provided."
            )
        if ledger == where.incarnation and entry >= where.unfinished:
            await self._control.core.evict(name.core, call.names["subscription"], entry + 1)
        return NO_CONTENT


def subscription_of(call: Call) -> str:
    name = call.names["subscription"]
    if not 0 < len(name.encode()) <= MAX_SUBSCRIPTION_BYTES or "\n" in name or name == RETENTION:
        raise precondition("Invalid subscription name")
    return name


@contextlib.asynccontextmanager
async def being_made(control: Control, name: TopicName, subscription: str) -> AsyncIterator[None]:
    """While one is made that was not there. Raises RefusedError if the topic may not have it."""
    policies = policies_module.told(control.policies_of(name))
    await control.admission.check_subscription(name, subscription, policies, durable=True, made=True)
    try:
        yield
    finally:
        control.admission.was_made(name, subscription)


def id_of(given: object) -> tuple[int, int]:
    """The ledger and entry that a body names; "earliest" and "latest" stand for ids. As at a real broker, what an
    object lacks is 0. Raises RefusedError."""
    if isinstance(given, str):
        given = _NAMED.get(given)
    if not isinstance(given, dict):
        raise RefusedError(400, "MetadataError", "the body is no message id")
    ledger, entry = (0 if given.get(key) is None else whole(given[key], key) for key in ("ledgerId", "entryId"))
    return ledger, entry


def start_at(message_id: tuple[int, int], incarnation: int) -> tuple[int, int]:
    """Where a message id points to in a topic: EARLIEST, LATEST, or AT_SEQ with the seq. Ids of an earlier topic of the
    same name mean the beginning, larger ones the end."""
    ledger, entry = message_id
    if ledger > incarnation:
        return core_module.LATEST, 0
    if ledger < incarnation or entry < 0:
        return core_module.EARLIEST, 0
    return core_module.AT_SEQ, entry
