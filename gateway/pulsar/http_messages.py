"""REST: single messages, and where in a topic they are."""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import TopicName
from mq_shards.acceptor.protocols.pulsar.position import Position, last_entry
from mq_shards.gateway.http_answers import Answer, HttpError
from mq_shards.gateway.http_bodies import SMALL_ANSWER_BYTES, TOO_MANY_ANSWERS
from mq_shards.gateway.pulsar import core as core_module
from mq_shards.gateway.pulsar.by_time import first_at
from mq_shards.gateway.pulsar.catalog import Json
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import Backlog, Entry, NoSubscriptionError, NoTopicError
from mq_shards.gateway.pulsar.http_subscriptions import SUB, being_made, id_of, start_at, subscription_of
from mq_shards.gateway.pulsar.http_topics import TOPIC
from mq_shards.gateway.pulsar.refusals import RefusedError, not_found, precondition
from mq_shards.gateway.pulsar.requests import Call, Routes, json_of, object_of, text_of
from mq_shards.gateway.pulsar.scalars import whole
from mq_shards.gateway.pulsar.shown_message import shown
from mq_shards.gateway.pulsar.sizes import entry_bytes
from mq_shards.gateway.pulsar.stats import Stats

# Entries that analyzeBacklog counts, as a real broker's subscriptionBacklogScanMaxEntries.
MOST_COUNTED: Final = 10_000


class HttpMessages:
    def __init__(self, control: Control, stats: Stats) -> None:
        self._control = control
        self._stats = stats
        self.routes: Routes = {
            f"{SUB}/position/{{place}}": {"GET": self._peek},
            f"{SUB}/analyzeBacklog": {"POST": self._analyze},
            f"{TOPIC}/ledger/{{ledger}}/entry/{{entry}}": {"GET": self._entry},
            f"{TOPIC}/examinemessage": {"GET": self._examine},
            f"{TOPIC}/messageid/{{time}}": {"GET": self._id_at},
            f"{TOPIC}/backlogSize": {"PUT": self._backlog_size},
        }

    async def _there(self, call: Call) -> tuple[TopicName, list[TopicName]]:
        """The topic, which must exist, and its partitions."""
        name = call.topic(self._control)
        return name, await self._control.existing_parts(name)

    async def _alone(self, call: Call, refusal: str) -> tuple[TopicName, Position]:
        """A topic that is not partitioned, and its positions; of one that is, this refusal."""
        name, parts = await self._there(call)
        if parts != [name]:
            raise RefusedError(405, "NotAllowedError", refusal)
        return name, await self._stats.position(name)

    async def _read(self, call: Call, name: TopicName, seq: int, *, or_next: bool = False) -> Entry | None:
        """A message. A large one is held twice as it comes, which counts as an answer. Raises HttpError."""
        core = self._control.core
        entry = await core.entry(name.core, seq, or_next=or_next, most=SMALL_ANSWER_BYTES)
        if entry is None or entry.whole_bytes <= SMALL_ANSWER_BYTES:
            return entry
        if 2 * entry.whole_bytes > call.bodies.limit:
            more = f"{entry.whole_bytes} bytes, more than {call.bodies.limit // 2}"
            raise HttpError(413, f"the message has {more}: it can only be consumed")
        with call.bodies.answering(2 * entry.whole_bytes) as has_room:
            if not has_room:
                raise HttpError(503, TOO_MANY_ANSWERS)
            return await core.entry(name.core, entry.seq)

    async def _peek(self, call: Call) -> Answer:
        name, parts = await self._there(call)
        if parts != [name]:
            raise RefusedError(405, "NotAllowedError", "Peek messages on a partitioned topic is not allowed")
        try:
            where = await self._begun(name, subscription_of(call))
        except (NoTopicError, NoSubscriptionError):
            raise not_found("Message not found") from None
        seq = where.unfinished + max(call.number("place"), 1) - 1
        entry = await self._read(call, name, seq) if seq < where.next_seq else None
        if entry is None:
            raise not_found("Message not found")
        return shown(entry, where.incarnation)

    async def _begun(self, name: TopicName, subscription: str) -> Position:
        """Where a subscription is. As at a real broker, one that is not there is made, and begins at the first message:
        clients peek like that. Raises NoTopicError, NoSubscriptionError and RefusedError."""
        core = self._control.core
        try:
            return await core.position(name.core, subscription)
        except NoSubscriptionError:
            async with being_made(self._control, name, subscription):
                await core.begin_subscription(name.core, subscription, core_module.EARLIEST, 0)
            return await core.position(name.core, subscription)

    async def _analyze(self, call: Call) -> Answer:
        """Counts what a subscription has not finished; from a message id on, if there is one in the body."""
        given = await call.object()
        name, _ = await self._alone(
            call, "Analyze backlog on a partitioned topic is not allowed, please try do it on specific topic partition"
        )
        subscription = call.names["subscription"]
        try:
            where = await self._control.core.position(name.core, subscription)
            start = where.unfinished
            if given:
                ledger, entry = (whole(given.get(key, 0), key) for key in ("ledgerId", "entryId"))
                start = max(entry, 0) if ledger == where.incarnation else 0
                start = start if ledger <= where.incarnation else where.next_seq
            found = await self._control.core.backlog(name.core, subscription, start, where.unfinished, MOST_COUNTED)
        except (NoTopicError, NoSubscriptionError):
            raise not_found(f"Subscription {subscription} not found for topic {name}") from None
        return json_of(_analyzed(found))

    async def _entry(self, call: Call) -> Answer:
        name = call.topic(self._control)
        position = await self._stats.position(name)
        ledger, seq = call.number("ledger"), call.number("entry")
        entry = None
        if ledger == position.incarnation and position.began_seq <= seq < position.next_seq:
            entry = await self._read(call, name, seq)
        if entry is None:
            raise not_found("Message id not found")
        return shown(entry, position.incarnation)

    async def _examine(self, call: Call) -> Answer:
        """The n-th message from the topic's beginning or end."""
        name, where = await self._alone(
            call,
            "Examine messages on a partitioned topic is not allowed, please try examine message on specific topic "
            "partition",
        )
        count = where.messages
        if count <= 0:
            raise precondition("Could not examine messages due to the total message is zero")
        place = min(max(call.asked_number("messagePosition", 1), 1), count)
        forwards = call.fields.get("initialPosition") == "earliest"
        seq = where.first_seq + place - 1 if forwards else last_entry(where) - place + 1
        entry = await self._read(call, name, max(seq, where.first_seq), or_next=True)
        if entry is None:
            raise not_found("Message not found")
        return shown(entry, where.incarnation)

    async def _id_at(self, call: Call) -> Answer:
        """The id of the first message that was published at this time or later; that of the next one if none was."""
        name, where = await self._alone(
            call,
            "Get message ID by timestamp on a partitioned topic is not allowed, please try do it on specific topic "
            "partition",
        )
        first = await first_at(self._control.core, name.core, where, call.number("time"))
        found = {"ledgerId": where.incarnation, "entryId": first, "partitionIndex": name.partition}
        return json_of({**found, "batchSize": 0, "batchIndex": -1})

    async def _backlog_size(self, call: Call) -> Answer:
        """About how many bytes there are behind a message id."""
        given = object_of(await call.json())
        name, where = await self._alone(call, "calculate backlog size is not allowed for partitioned-topic")
        start, at = start_at(id_of(given), where.incarnation)
        behind = where.messages
        if start == core_module.AT_SEQ:
            behind = max(min(where.next_seq - at - 1, behind), 0)
        figures = await self._control.core.figures(name.core)
        mean = entry_bytes(figures) if figures is not None else 0
        return text_of(str(int(behind * mean)))


def _analyzed(found: Backlog) -> Json:
    """There are no filters of entries, so all are accepted."""
    shown: Json = {}
    for what, count in (("Entries", found.entries), ("Messages", found.messages)):
        shown |= {what.lower(): count, f"filterRejected{what}": 0, f"filterAccepted{what}": count}
        shown[f"filterRescheduled{what}"] = 0
    shown["aborted"] = not found.whole
    for name, at in (("firstMessageId", found.first), ("lastMessageId", found.last)):
        if at is not None:
            shown[name] = f"{at[0]}:{at[1]}"
    return shown
