"""REST: subscriptions and their cursors, and single messages."""

from __future__ import annotations

import json
from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import MAX_SUBSCRIPTION_BYTES, RETENTION, TopicName
from mq_shards.acceptor.protocols.pulsar.position import Position
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar import core as core_module
from mq_shards.gateway.pulsar import metadata as metadata_module
from mq_shards.gateway.pulsar import policies as policies_module
from mq_shards.gateway.pulsar.client_stats import iso
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import Entry, NoSubscriptionError, NoTopicError
from mq_shards.gateway.pulsar.http_topics import TOPIC
from mq_shards.gateway.pulsar.refusals import RefusedError, conflict, not_found, precondition
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Routes, json_of
from mq_shards.gateway.pulsar.scalars import flag, whole
from mq_shards.gateway.pulsar.stats import Stats

MAX_SHOWN_BYTES: Final = 16 << 20
LATEST_ID: Final = (1 << 63) - 1
MILLISECOND_NS: Final = 1_000_000
SUB: Final = f"{TOPIC}/subscription/{{subscription}}"


def not_expired(name: TopicName, subscription: str) -> RefusedError:
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
            f"{SUB}/skip_all": {"POST": self._skip_all},
            f"{SUB}/skip/{{count}}": {"POST": self._skip},
            f"{SUB}/resetcursor": {"POST": self._reset_to_id},
            f"{SUB}/resetcursor/{{time}}": {"POST": self._reset_to_time},
            f"{SUB}/position/{{place}}": {"GET": self._peek},
            f"{SUB}/expireMessages/{{seconds}}": {"POST": self._expire},
            f"{TOPIC}/ledger/{{ledger}}/entry/{{entry}}": {"GET": self._entry},
        }

    def _name(self, call: Call) -> str:
        name = call.names["subscription"]
        if not 0 < len(name.encode()) <= MAX_SUBSCRIPTION_BYTES or "\n" in name or name == RETENTION:
            raise precondition("Invalid subscription name")
        return name

    def _missing(self, call: Call, name: TopicName) -> RefusedError:
        return not_found(f"Subscription {call.names['subscription']} not found for topic {name}")

    async def _there(self, call: Call) -> tuple[TopicName, list[TopicName]]:
        """The topic, which must exist, and its partitions."""
        name = call.topic(self._control)
        namespace = self._control.namespace(name.namespace)
        if str(name) not in namespace.topics:
            await self._control.check_exists(name)
        return name, self._control.parts(name)

    async def _list(self, call: Call) -> Answer:
        name, _ = await self._there(call)
        return json_of(await self._control.subscriptions(name))

    # --- made and deleted -------------------------------------------------------------------------------------------

    async def _make(self, call: Call) -> Answer:
        """Makes a subscription that begins where the body says, or at the topic's end."""
        name, wanted = call.topic(self._control), self._name(call)
        start, at = _where(await call.json(), default=core_module.LATEST)
        if not await self._control.exists(name) and str(name) not in self._control.namespace(name.namespace).topics:
            await self._control.open(name, create=True)
        if wanted in await self._control.subscriptions(name):
            raise conflict("Subscription already exists for topic")
        policies = policies_module.told(self._control.policies_of(name))
        await self._control.admission.check_subscription(name, wanted, policies, durable=True, made=True)
        try:
            for part in self._control.parts(name):
                await self._stats.position(part)
                await self._control.core.begin_subscription(part.core, wanted, start, at)
        finally:
            self._control.admission.was_made(name, wanted)
        return NO_CONTENT

    async def _delete(self, call: Call) -> Answer:
        name, parts = await self._there(call)
        wanted = self._name(call)
        if wanted not in await self._control.subscriptions(name):
            raise not_found(f"Subscription {wanted} not found for topic {name}")
        names = [str(part) for part in parts]
        connected = await self._control.clients.of(names)
        if any(one.get("subscription") == wanted for found in connected.values() for one in found.consumers):
            if not call.flag("force"):
                raise precondition("Subscription has active connected consumers")
            await self._control.clients.close(names, wanted)
        for part in parts:
            await self._control.core.delete_subscription(part.core, wanted)
            self._control.admission.was_made(part, wanted)
        return NO_CONTENT

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
        at = max(call.number("time"), 0) * MILLISECOND_NS
        for part in parts:
            await self._seek(call, name, part, core_module.AT_TIME, at)
        return NO_CONTENT

    async def _reset_to_id(self, call: Call) -> Answer:
        given = await call.json()
        name, parts = await self._there(call)
        if parts != [name]:
            raise RefusedError(405, "NotAllowedError", "Reset-cursor at position is not allowed for partitioned-topic")
        start, at = _where(given, default=core_module.EARLIEST)
        if start == core_module.AT_SEQ and isinstance(given, dict):
            incarnation = (await self._stats.position(name)).incarnation
            ledger, _ = _id(given)
            if ledger != incarnation:
                start, at = (core_module.LATEST if ledger > incarnation else core_module.EARLIEST), 0
            elif flag(given.get("isExcluded"), "isExcluded"):
                at += 1
        await self._seek(call, name, name, start, at)
        return NO_CONTENT

    async def _expire(self, call: Call) -> Answer:
        """Finishes all messages that are older."""
        name, parts = await self._there(call)
        seconds = call.number("seconds")
        moved = False
        for part in parts:
            where = await self._where_is(call, part)
            before_ns = int(self._control.now_s() * 1e9) - seconds * 1_000_000_000
            entry = await self._control.core.entry(part.core, where.unfinished)
            if entry is not None and entry.time_ns < before_ns:
                await self._control.core.expire(part.core, call.names["subscription"], before_ns)
                moved = True
        if not moved:
            raise not_expired(name, call.names["subscription"])
        return NO_CONTENT

    # --- single messages --------------------------------------------------------------------------------------------

    async def _peek(self, call: Call) -> Answer:
        name, parts = await self._there(call)
        if parts != [name]:
            raise RefusedError(405, "NotAllowedError", "Peek messages on a partitioned topic is not allowed")
        try:
            where = await self._control.core.position(name.core, call.names["subscription"])
        except (NoTopicError, NoSubscriptionError):
            raise not_found("Message not found") from None
        seq = where.unfinished + max(call.number("place"), 1) - 1
        entry = await self._control.core.entry(name.core, seq) if seq < where.next_seq else None
        if entry is None:
            raise not_found("Message not found")
        return _shown(entry, where.incarnation, name)

    async def _entry(self, call: Call) -> Answer:
        name = call.topic(self._control)
        position = await self._stats.position(name)
        ledger, seq = call.number("ledger"), call.number("entry")
        entry = None
        if ledger == position.incarnation and position.began_seq <= seq < position.next_seq:
            entry = await self._control.core.entry(name.core, seq)
        if entry is None:
            raise not_found("Message id not found")
        return _shown(entry, position.incarnation, name)


def _where(given: object, default: int) -> tuple[int, int]:
    """Where a message id in a body points to: earliest, latest, or a seq of this topic."""
    if given is None:
        return default, 0
    if isinstance(given, str) and given in ("earliest", "latest"):
        return (core_module.EARLIEST if given == "earliest" else core_module.LATEST), 0
    ledger, entry = _id(given)
    if ledger < 0 or entry < 0:
        return core_module.EARLIEST, 0
    if ledger == LATEST_ID:
        return core_module.LATEST, 0
    return core_module.AT_SEQ, entry


def _id(given: object) -> tuple[int, int]:
    if not isinstance(given, dict) or not all(given.get(name) is not None for name in ("ledgerId", "entryId")):
        raise RefusedError(400, "MetadataError", "the body is no message id")
    return whole(given["ledgerId"], "ledgerId"), whole(given["entryId"], "entryId")


def _shown(entry: Entry, ledger: int, name: TopicName) -> Answer:
    """Shows a message as a real broker does: the payload as the body, all else in headers."""
    found = metadata_module.read(entry.headers) if entry.tag == metadata_module.PULSAR_TAG else None
    body = entry.body
    headers = {"X-Pulsar-Message-ID": f"{ledger}:{entry.seq}", "X-Pulsar-PROPERTY": "{}"}
    if found is None:
        headers["X-Pulsar-publish-time"] = iso(entry.time_ns // MILLISECOND_NS)
        headers["X-Pulsar-producer-name"] = "mq-shards"
        headers["X-Pulsar-sequence-id"] = str(entry.seq)
    else:
        body = metadata_module.uncompressed(found, body, MAX_SHOWN_BYTES)
        headers["X-Pulsar-PROPERTY"] = json.dumps(found.properties, separators=(",", ":"))
        headers["X-Pulsar-publish-time"] = iso(found.publish_time_ms)
        headers["X-Pulsar-producer-name"] = found.producer_name
        headers["X-Pulsar-sequence-id"] = str(found.sequence_id)
        headers["X-Pulsar-Is-Encrypted"] = str(found.is_encrypted).lower()
        if found.event_time_ms:
            headers["X-Pulsar-event-time"] = iso(found.event_time_ms)
        if found.deliver_at_ms:
            headers["X-Pulsar-deliver-at-time"] = iso(found.deliver_at_ms)
        if found.batch_messages is not None:
            headers["X-Pulsar-num-batch-message"] = str(found.batch_messages)
            headers["X-Pulsar-batch-size"] = str(len(entry.headers) + len(entry.body))
        if found.partition_key is not None:
            headers["X-Pulsar-partition-key"] = found.partition_key
        if found.compression:
            headers["X-Pulsar-uncompressed-size"] = str(found.uncompressed_bytes or 0)
    shown = {header: _one_line(value) for header, value in headers.items()}
    return Answer(200, body, {**shown, "Content-Type": "application/json"})


def _one_line(value: str) -> str:
    """Replaces what a header cannot hold: control characters, and characters beyond Latin-1."""
    return "".join(c if " " <= c != "\x7f" else "?" for c in value).encode("latin-1", "replace").decode("latin-1")
