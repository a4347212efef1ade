"""Figures of topics in the form of a real broker's `stats` and `internalStats`, from what workers and acceptors say.

A field of a real broker that has no counterpart here has the value of an unused topic (0, empty). Rates are averages
since stats were last asked for, if that was not long ago.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import COMPACTION, NON_PERSISTENT, TopicName
from mq_shards.acceptor.protocols.pulsar.position import Position, last_entry
from mq_shards.csrc._core import lib
from mq_shards.gateway.catalog import Channel
from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.pulsar.by_time import published_ms
from mq_shards.gateway.pulsar.catalog import Json, Subscription, Topic
from mq_shards.gateway.pulsar.client_stats import (
    consumers_together,
    of_consumers,
    properties_of,
    publisher,
    publishers_together,
)
from mq_shards.gateway.pulsar.clients import Connected
from mq_shards.gateway.pulsar.compaction import Compaction
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import NoSubscriptionError, NoTopicError
from mq_shards.gateway.pulsar.refusals import not_found
from mq_shards.gateway.pulsar.sizes import bytes_in, entries_in, entry_bytes, messages_in

REMEMBERED: Final = 10_000  # topics whose last figures are kept, to compute rates
RATE_S: Final = (1.0, 120.0)  # the shortest and longest time between two requests that give rates

_TOPIC: Final[Json] = {
    "msgRateIn": 0.0, "msgThroughputIn": 0.0, "msgRateOut": 0.0, "msgThroughputOut": 0.0, "bytesInCounter": 0,
    "msgInCounter": 0, "systemTopicBytesInCounter": 0, "bytesOutCounter": 0, "msgOutCounter": 0,
    "bytesOutInternalCounter": 0, "averageMsgSize": 0.0, "msgChunkPublished": False, "storageSize": 0,
    "backlogSize": 0, "backlogQuotaLimitSize": -1, "backlogQuotaLimitTime": -1, "oldestBacklogMessageAgeSeconds": -1,
    "publishRateLimitedTimes": 0, "earliestMsgPublishTimeInBacklogs": 0, "offloadedStorageSize": 0,
    "lastOffloadLedgerId": 0, "lastOffloadSuccessTimeStamp": 0, "lastOffloadFailureTimeStamp": 0, "ongoingTxnCount": 0,
    "abortedTxnCount": 0, "committedTxnCount": 0, "publishers": [], "waitingPublishers": 0, "subscriptions": {},
    "replication": {}, "deduplicationStatus": "Disabled", "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0, "delayedMessageIndexSizeInBytes": 0,
    "compaction": {
        "lastCompactionRemovedEventCount": 0, "lastCompactionSucceedTimestamp": 0,
        "lastCompactionFailedTimestamp": 0, "lastCompactionDurationTimeInMills": 0,
    },
}  # fmt: skip
_SUBSCRIPTION: Final[Json] = {
    "msgRateOut": 0.0, "msgThroughputOut": 0.0, "bytesOutCounter": 0, "msgOutCounter": 0, "msgRateRedeliver": 0.0,
    "messageAckRate": 0.0, "chunkedMessageRate": 0.0, "msgBacklog": 0, "backlogSize": 0,
    "earliestMsgPublishTimeInBacklog": 0, "msgBacklogNoDelayed": 0, "blockedSubscriptionOnUnackedMsgs": False,
    "type": "None", "msgDelayed": 0, "msgInReplay": 0, "unackedMessages": 0, "msgRateExpired": 0.0,
    "totalMsgExpired": 0,
    "lastExpireTimestamp": 0, "lastConsumedFlowTimestamp": 0, "lastConsumedTimestamp": 0, "lastAckedTimestamp": 0,
    "lastMarkDeleteAdvancedTimestamp": 0, "consumers": [], "isDurable": True, "isReplicated": False,
    "allowOutOfOrderDelivery": False, "consumersAfterMarkDeletePosition": {}, "drainingHashesCount": 0,
    "drainingHashesClearedTotal": 0, "drainingHashesUnackedMessages": 0, "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0, "delayedMessageIndexSizeInBytes": 0,
    "subscriptionProperties": {}, "filterProcessedMsgCount": 0, "filterAcceptedMsgCount": 0,
    "filterRejectedMsgCount": 0, "filterRescheduledMsgCount": 0, "durable": True, "replicated": False,
    **{
        f"dispatchThrottled{what}EventsBy{by}Limit": 0
        for by in ("Subscription", "Topic", "Broker") for what in ("Msg", "Bytes")
    },
}  # fmt: skip
_NON_PERSISTENT: Final[Json] = {
    "backlogQuotaLimitSize": 0, "backlogQuotaLimitTime": 0, "oldestBacklogMessageAgeSeconds": 0, "msgDropRate": 0.0,
}  # fmt: skip
# The fields that are added up over partitions; the others keep the value of an unused topic.
_NOT_ADDED: Final = ("last", "backlogQuota")
_ADDED: Final = tuple(
    name for name, value in _TOPIC.items() if type(value) in (int, float) and not name.startswith(_NOT_ADDED)
)
_ADDED_OF_SUBSCRIPTION: Final = tuple(
    name for name, value in _SUBSCRIPTION.items() if type(value) in (int, float) and not name.startswith("last")
)
# internalStats of a topic that is not persistent.
_NOT_STORED: Final[Json] = {
    "numberOfEntries": 0, "totalSize": 0, "currentLedgerEntries": 0, "currentLedgerSize": 0,
    "waitingCursorsCount": 0, "pendingAddEntriesCount": 0,
}  # fmt: skip
_NO_CURSOR: Final[Json] = {
    "waitingReadOp": False, "pendingReadOps": 0, "messagesConsumedCounter": 0, "cursorLedger": 0,
    "cursorLedgerLastEntry": 0, "active": False, "numberOfEntriesSinceFirstNotAckedMessage": 0,
    "totalNonContiguousDeletedMessagesRange": 0, "subscriptionHavePendingRead": False,
    "subscriptionHavePendingReplayRead": False,
}  # fmt: skip
_NO_TIME: Final = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class _Look:
    at_s: float
    messages: int
    message_bytes: int
    delivered: dict[str, int]  # by subscription
    dropped: dict[str, int]  # likewise, of a topic that is not persistent


class Stats:
    def __init__(
        self, control: Control, compaction: Compaction, broker_id: str, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._control = control
        self._compaction = compaction
        self._broker_id = broker_id
        self._clock_s = clock_s
        self._looks: OrderedDict[str, _Look] = OrderedDict()

    # --- stats ------------------------------------------------------------------------------------------------------

    async def topic(self, name: TopicName, *, earliest: bool = False, connected: Connected | None = None) -> Json:
        """Stats of a topic that is not partitioned, or of a partition. `earliest`: adds the publish time of the oldest
        message in each backlog, which has to be read. `connected`: its clients, if they are known."""
        figures = await self._figures(name)
        if connected is None:
            connected = (await self.clients([name]))[str(name)]
        found: Json = {**_TOPIC, "ownerBroker": self._broker_id}
        policies = self._control.policies_of(name)
        if policies.get("deduplicationEnabled"):
            found["deduplicationStatus"] = "Enabled"
        quota = policies.get("backlog_quota_map", {})
        found["backlogQuotaLimitSize"] = quota.get("destination_storage", {}).get("limitSize", -1)
        found["backlogQuotaLimitTime"] = quota.get("message_age", {}).get("limitTime", -1)
        if name.domain == NON_PERSISTENT:
            found |= _NON_PERSISTENT
            del found["deduplicationStatus"]
        run = self._compaction.of(name)
        found["compaction"] = {
            "lastCompactionRemovedEventCount": run.removed, "lastCompactionSucceedTimestamp": run.succeeded_ms,
            "lastCompactionFailedTimestamp": run.failed_ms, "lastCompactionDurationTimeInMills": run.took_ms,
        }  # fmt: skip
        # One that waits for the exclusive place is none yet.
        found["publishers"] = [publisher(one) for one in connected.producers if not one.get("waits")]
        found["waitingPublishers"] = len(connected.producers) - len(found["publishers"])
        for key in ("msgRateIn", "msgThroughputIn"):
            found[key] = sum(one[key] for one in found["publishers"])
        if figures is not None:
            messages = messages_in(figures, persistent=name.domain != NON_PERSISTENT)
            found["msgInCounter"], found["bytesInCounter"] = messages, bytes_in(figures)
            found["averageMsgSize"] = found["bytesInCounter"] / messages if messages else 0.0
            about = self._control.subscription_properties.of(name)
            found["subscriptions"] = {
                c.name: _subscription(c, connected, figures, about.get(c.name)) for c in figures.channels
            }
            if name.domain == NON_PERSISTENT:
                _pass_on(found)
            if COMPACTION in found["subscriptions"]:
                backlog = await self._compaction.backlog(name)
                found["subscriptions"][COMPACTION] |= _view(backlog, entry_bytes(figures))
            found["msgOutCounter"] = sum(s["msgOutCounter"] for s in found["subscriptions"].values())
            found["backlogSize"] = max((s["backlogSize"] for s in found["subscriptions"].values()), default=0)
            found["storageSize"] = await self._stored(name, entry_bytes(figures))
            self._add_rates(str(name), figures, found)
            for key in ("msgRateOut", "msgThroughputOut"):
                found[key] = sum(s[key] for s in found["subscriptions"].values())
            if earliest:
                await self._add_earliest(name, found)
        found["bytesOutCounter"] = sum(one.get("bytes", 0) for one in connected.consumers)
        return found

    async def clients(self, names: Sequence[TopicName]) -> dict[str, Connected]:
        return await self._control.clients.of([str(name) for name in names])

    async def partitioned(self, name: TopicName, *, per_partition: bool) -> Json:
        parts = {str(part): await self.topic(part) for part in self._control.parts(name)}
        found: Json = {**_TOPIC, **{key: sum(part[key] for part in parts.values()) for key in _ADDED}}
        found["averageMsgSize"] = found["bytesInCounter"] / found["msgInCounter"] if found["msgInCounter"] else 0.0
        found["oldestBacklogMessageAgeSeconds"] = 0  # as a real broker puts the -1 of partitions together
        if name.domain == NON_PERSISTENT:
            found |= _NON_PERSISTENT
        del found["deduplicationStatus"]
        found["publishers"] = publishers_together(part["publishers"] for part in parts.values())
        subscriptions: dict[str, list[Json]] = {}
        for part in parts.values():
            for sub, figures in part["subscriptions"].items():
                subscriptions.setdefault(sub, []).append(figures)
        found["subscriptions"] = {sub: _together(of_parts) for sub, of_parts in subscriptions.items()}
        topic = self._control.namespace(name.namespace).topics[str(name)]
        found["metadata"] = metadata_of(topic)
        found["partitions"] = parts if per_partition else {}
        return found

    async def _figures(self, name: TopicName) -> Figures | None:
        """What the worker knows of a topic, which must exist. None: nothing yet."""
        if not await self._control.exists(name):
            raise not_found(f"Topic {name} not found")
        return await self._control.core.figures(name.core, consumers=True)

    async def _stored(self, name: TopicName, average: float) -> int:
        """An estimate of the bytes stored: the entries in the log times their mean size."""
        try:
            where = await self._control.core.position(name.core)
        except NoTopicError:
            return 0
        return round(where.messages * average)

    async def _add_earliest(self, name: TopicName, found: Json) -> None:
        times = []
        for subscription, figures in found["subscriptions"].items():
            if not figures["msgBacklog"]:
                figures["earliestMsgPublishTimeInBacklog"] = -1
                continue
            try:
                where = await self._control.core.position(name.core, subscription)
                entry = await self._control.core.entry(name.core, where.unfinished, head=True)
            except (NoTopicError, NoSubscriptionError):
                continue
            if entry is not None:
                at_ms = published_ms(entry)
                figures["earliestMsgPublishTimeInBacklog"] = at_ms
                times.append(at_ms)
        found["earliestMsgPublishTimeInBacklogs"] = min(times, default=0)

    def _add_rates(self, name: str, figures: Figures, found: Json) -> None:
        now_s = self._clock_s()
        before = self._looks.get(name)
        delivered = {sub: one["msgOutCounter"] for sub, one in found["subscriptions"].items()}
        dropped = {channel.name: channel.messages - channel.delivered for channel in figures.channels}
        look = _Look(now_s, found["msgInCounter"], found["bytesInCounter"], delivered, dropped)
        if before is None or not RATE_S[0] <= now_s - before.at_s <= RATE_S[1] or before.messages > look.messages:
            if before is None or now_s - before.at_s > RATE_S[0]:
                self._remember(name, look)
            return
        self._remember(name, look)
        seconds = now_s - before.at_s
        if not found["publishers"]:
            found["msgRateIn"] = (look.messages - before.messages) / seconds
            found["msgThroughputIn"] = (look.message_bytes - before.message_bytes) / seconds
        for sub, figures_of in found["subscriptions"].items():
            if "msgDropRate" in figures_of:
                figures_of["msgDropRate"] = max(0, dropped[sub] - before.dropped.get(sub, 0)) / seconds
            rate = max(0, delivered[sub] - before.delivered.get(sub, 0)) / seconds
            if not figures_of["consumers"]:  # else it is the sum of theirs
                figures_of["msgRateOut"], figures_of["msgThroughputOut"] = rate, rate * found["averageMsgSize"]

    def _remember(self, name: str, look: _Look) -> None:
        self._looks[name] = look
        self._looks.move_to_end(name)
        if len(self._looks) > REMEMBERED:
            self._looks.popitem(last=False)

    # --- internalStats ----------------------------------------------------------------------------------------------

    async def internal(self, name: TopicName) -> Json:
        figures = await self._figures(name)
        if name.domain == NON_PERSISTENT:
            added = entries_in(figures, persistent=False) if figures is not None else 0
            cursors = {c.name: _NO_CURSOR for c in (figures.channels if figures else ())}
            return {**_NOT_STORED, "entriesAddedCounter": added, "cursors": cursors}
        position = await self.position(name)
        incarnation, end = position.incarnation, position.next_seq
        entries = position.messages
        stored = round(entries * entry_bytes(figures)) if figures is not None else 0
        cursors = {}
        for channel in figures.channels if figures is not None else ():
            try:
                where = await self._control.core.position(name.core, channel.name)
            except (NoTopicError, NoSubscriptionError):
                continue
            cursors[channel.name] = _cursor(where, channel)
        return {
            "entriesAddedCounter": end - position.began_seq,
            "numberOfEntries": entries,
            "totalSize": stored,
            "currentLedgerEntries": entries,
            "currentLedgerSize": stored,
            "lastLedgerCreatedTimestamp": _NO_TIME,
            "waitingCursorsCount": 0,
            "pendingAddEntriesCount": 0,
            "lastConfirmedEntry": f"{incarnation}:{last_entry(position)}",
            "state": "Terminated" if position.terminated else "LedgerOpened",
            "ledgers": [
                {
                    "ledgerId": incarnation,
                    "entries": entries,
                    "size": stored,
                    "offloaded": False,
                    "underReplicated": False,
                }
            ],
            "cursors": cursors,
            "schemaLedgers": [],
            "compactedLedger": _compacted_ledger(position, figures),
        }

    async def info(self, name: TopicName) -> Json:
        """What a real broker notes of a topic's ledgers and cursors; when it did so is not known here."""
        found = await self.internal(name)
        noted: Json = {"version": 0, "creationDate": _NO_TIME, "modificationDate": _NO_TIME}
        ledgers = [
            {"ledgerId": one["ledgerId"], "entries": one["entries"], "size": one["size"], "isOffloaded": False}
            for one in found.get("ledgers", ())
        ]
        cursors: Json = {}
        for cursor, figures in found["cursors"].items():
            ledger, _, entry = figures.get("markDeletePosition", "-1:-1").rpartition(":")
            place = {"ledgerId": int(ledger), "entryId": int(entry)}
            cursors[cursor] = {**noted, "cursorsLedgerId": -1, "markDelete": place}
        return {**noted, "ledgers": ledgers, "cursors": cursors}

    async def position(self, name: TopicName) -> Position:
        """Positions of a topic, which must exist. If no worker has it yet, makes it there."""
        await self._control.check_exists(name)
        try:
            found = await self._control.core.position(name.core)
            if found.incarnation:
                return found
        except NoTopicError:
            pass
        await self._control.core.make(name.core)
        return await self._control.core.position(name.core)


def _subscription(channel: Channel, connected: Connected, topic: Figures, about: Subscription | None) -> Json:
    mine = [client for client in connected.consumers if client.get("subscription") == channel.name]
    backlog = channel.depth + channel.in_flight + channel.deferred
    known: Json = {}
    if about is not None:
        known = dict.fromkeys(("isReplicated", "replicated"), about.replicated)
    known["subscriptionProperties"] = about.properties if about is not None else properties_of(mine)
    return {
        **_SUBSCRIPTION,
        **known,
        "msgBacklog": backlog,
        "msgBacklogNoDelayed": backlog - channel.deferred,
        "backlogSize": round(backlog * entry_bytes(topic)),
        "blockedSubscriptionOnUnackedMsgs": bool(channel.flags & lib.FIGURES_BLOCKED),
        "msgDelayed": channel.deferred,
        "msgOutCounter": channel.delivered,
        **of_consumers(channel, mine),
    }


def metadata_of(topic: Topic) -> Json:
    """Of one that is partitioned."""
    found: Json = {"partitions": topic.partitions, "deleted": False}
    return found | {"properties": topic.properties} if topic.properties else found


def _pass_on(found: Json) -> None:
    """Changes a topic's figures to those of one that is not persistent: messages are with consumers or dropped. A real
    broker counts drops for the topic only where a publisher sends too much, which is not dropped here."""
    for one in found["publishers"]:
        one["msgDropRate"] = 0.0
    for one in found["subscriptions"].values():
        one["msgOutCounter"] = sum(consumer["msgOutCounter"] for consumer in one["consumers"])
        one["msgDropRate"] = 0.0


def _view(backlog: int, average: float) -> Json:
    """Figures of the compacted view's subscription: messages in the view do not count as backlog."""
    return {
        "msgBacklog": backlog, "msgBacklogNoDelayed": backlog, "backlogSize": round(backlog * average),
        "unackedMessages": 0, "type": "Exclusive",
    }  # fmt: skip


def _compacted_ledger(position: Position, figures: Figures | None) -> Json:
    nothing = figures is None or not position.compacted_until
    entries = -1 if nothing else position.compacted_messages
    average = entry_bytes(figures) if figures is not None else 0
    return {
        "ledgerId": -1 if nothing else position.incarnation, "entries": entries,
        "size": -1 if nothing else round(entries * average), "offloaded": False, "underReplicated": False,
    }  # fmt: skip


def _together(parts: Sequence[Json]) -> Json:
    """Joins the figures of a subscription on several partitions."""
    found = {**parts[0], **{key: sum(part[key] for part in parts) for key in _ADDED_OF_SUBSCRIPTION}}
    if "msgDropRate" in found:
        found["msgDropRate"] = sum(part["msgDropRate"] for part in parts)
    found.pop("activeConsumerName", None)  # each partition has its own
    found |= {key: 0 for key in found if key.startswith("last")}
    found["consumers"] = consumers_together(part["consumers"] for part in parts)
    found["type"] = next((part["type"] for part in parts if part["type"] != "None"), "None")
    return found


def _cursor(where: Position, channel: Channel) -> Json:
    ledger = where.incarnation
    return {
        "markDeletePosition": f"{ledger}:{where.unfinished - 1}",
        "readPosition": f"{ledger}:{where.cursor}",
        "waitingReadOp": where.depth == 0 and channel.consumer_count > 0,
        "pendingReadOps": 0,
        "messagesConsumedCounter": max(0, where.unfinished - where.began_seq),
        "cursorLedger": -1,
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": "[]",
        "lastLedgerSwitchTimestamp": _NO_TIME,
        # A real broker's durable cursor has a ledger of its own only when something was acknowledged.
        "state": "Open" if channel.flags & lib.FIGURES_EPHEMERAL else "NoLedger",
        "active": channel.consumer_count > 0,
        "numberOfEntriesSinceFirstNotAckedMessage": where.cursor - where.unfinished + 1,
        "totalNonContiguousDeletedMessagesRange": 0,
        "subscriptionHavePendingRead": where.depth == 0 and channel.consumer_count > 0,
        "subscriptionHavePendingReplayRead": False,
        "properties": {},
    }
