"""What a SUBSCRIBE says: checked, put into a worker's words, and why a worker refuses it."""

from __future__ import annotations

import itertools
from typing import Final

from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Answer
from mq_shards.acceptor.protocols.pulsar.clients import (
    CONSUMER_ASSIGN_ERROR,
    CONSUMER_BUSY,
    NOT_ALLOWED,
    PRODUCER_BUSY,
    SERVICE_NOT_READY,
    TOPIC_NOT_FOUND,
    Consumer,
    PulsarError,
    Ranges,
)
from mq_shards.acceptor.protocols.pulsar.keys import failover_order
from mq_shards.acceptor.protocols.pulsar.messages import Message
from mq_shards.acceptor.protocols.pulsar.names import TopicName
from mq_shards.acceptor.protocols.pulsar.start import Start
from mq_shards.csrc._core import lib
from mq_shards.csrc.structs import packed

EXCLUSIVE: Final = 0
SHARED: Final = 1
FAILOVER: Final = 2
KEY_SHARED: Final = 3
KINDS: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
POLICIES: Final = (lib.POLICY_EXCLUSIVE, lib.POLICY_TURNS, lib.POLICY_FAILOVER, lib.POLICY_KEY)
STICKY: Final = 1
ANY_ORDER, OWN_RANGES = 1, 2  # bits of a Key_Shared consumer's order
EARLIEST: Final = 1  # InitialPosition
NEVER_NS: Final = 1 << 60
MAX_UNACKED: Final = (1 << 32) - 1


def keep_nothing(body: Message) -> None:
    """Makes a SUBSCRIBE one for messages that come from now on, whatever it asks for: those of a topic that is not
    persistent are for who is there."""
    body.durable = False
    body.ClearField("start_message_id")
    body.ClearField("start_message_rollback_duration_sec")
    body.ClearField("initialPosition")


def initial(body: Message) -> Start:
    return Start(lib.START_EARLIEST if body.initialPosition == EARLIEST else lib.START_LATEST)


def check(body: Message) -> None:
    """Checks a SUBSCRIBE by itself, but for its subscription's name and what is kept. Raises PulsarError."""
    if not body.subscription:
        raise PulsarError(PRODUCER_BUSY, "Empty subscription name")
    if len(body.consumer_name.encode()) > lib.CONSUMER_NAME_MAX:
        raise PulsarError(NOT_ALLOWED, f"The name of a consumer has {lib.CONSUMER_NAME_MAX} bytes at most")
    if body.read_compacted and body.subType not in (EXCLUSIVE, FAILOVER):
        raise PulsarError(NOT_ALLOWED, "readCompacted only allowed on failover or exclusive subscriptions")
    if _names_ranges(body):
        if len(body.keySharedMeta.hashRanges) > lib.KEY_MAX_RANGES:
            raise PulsarError(NOT_ALLOWED, f"More than {lib.KEY_MAX_RANGES} hash ranges")
        ranges = own_ranges(body)
        if not ranges and body.subType == KEY_SHARED:
            raise PulsarError(CONSUMER_ASSIGN_ERROR, "Ranges for KeyShared policy must not be empty.")
        _check_ranges(ranges)


def _names_ranges(body: Message) -> bool:
    return body.subType in (KEY_SHARED, EXCLUSIVE) and body.keySharedMeta.keySharedMode == STICKY


def own_ranges(body: Message) -> Ranges:
    """The hash slots that a consumer has named; consumers of other types get all messages whatever they name. A range
    may reach beyond the slots that there are."""
    if not _names_ranges(body):
        return ()
    named = [(one.start, one.end) for one in body.keySharedMeta.hashRanges]
    return tuple(
        (max(first, 0), min(last, lib.KEY_SLOTS - 1)) if first < lib.KEY_SLOTS and last >= 0 else (first, last)
        for first, last in named
    )


def packed_ranges(ranges: Ranges) -> bytes:
    return b"".join(packed("key_range", first=first, last=last) for first, last in ranges)


def _check_ranges(ranges: Ranges) -> None:
    """Raises PulsarError if a consumer's own hash ranges are invalid."""
    for first, last in ranges:
        if first > last:
            raise PulsarError(CONSUMER_ASSIGN_ERROR, f"Fixed hash range start > end for range: [{first},{last}]")
        if not 0 <= first <= last < lib.KEY_SLOTS:
            raise PulsarError(CONSUMER_ASSIGN_ERROR, "Invalid hash range")
    ordered = sorted(ranges)
    for one, other in itertools.pairwise(ordered):
        if other[0] <= one[1]:
            both = f"[{one[0]},{one[1]}] overlaps with [{other[0]},{other[1]}]"
            raise PulsarError(CONSUMER_ASSIGN_ERROR, f"Consumer's own ranges conflict: {both}")


def _key_order(*, any_order: bool, sticky: bool) -> int:
    """The order of a Key_Shared consumer, in which all of a subscription agree: see struct subscribe_policy."""
    return any_order * ANY_ORDER | sticky * OWN_RANGES


def refusal(answer: Answer, consumer: Consumer) -> tuple[int, str]:
    """The error for a refused SUBSCRIBE."""
    status = answer.status
    if status == engine.FULL:
        active, wanted = POLICIES.index(answer.pri), consumer.kind
        if active == wanted == EXCLUSIVE:
            return CONSUMER_BUSY, "Exclusive consumer is already connected"
        there, new = f"type of '{KINDS[active]}'", f"type '{KINDS[wanted]}'"
        differ = answer.seq ^ _key_order(any_order=consumer.any_order, sticky=bool(consumer.ranges))
        if active == wanted and differ & OWN_RANGES:  # both Key_Shared
            modes = ("AUTO_SPLIT", "STICKY") if consumer.ranges else ("STICKY", "AUTO_SPLIT")
            there, new = f"key_shared mode of '{modes[0]}'", f"key_shared mode '{modes[1]}'"
        why = f"Active subscription {there} is different than the connecting consumer's {new}."
        if active == wanted and differ == ANY_ORDER:
            does, does_not = "allows", "does not allow"
            there, new = (does_not, does) if consumer.any_order else (does, does_not)
            why = f"Active subscription {there} out of order delivery while the connecting consumer {new} it."
        return CONSUMER_BUSY, f"Subscription is of different type. {why}"
    if status == lib.STATUS_INVALID and consumer.kind == KEY_SHARED and consumer.ranges:
        return CONSUMER_ASSIGN_ERROR, "Range conflict with consumer of this subscription"
    if status == lib.STATUS_INVALID:
        there = "NonDurable" if consumer.durable else "Durable"
        return NOT_ALLOWED, f"{there} subscription with the same name already exists."
    if status == engine.TOO_MANY:
        return NOT_ALLOWED, "Too many consumers or topics"
    if status == engine.NOT_FOUND:
        return TOPIC_NOT_FOUND, "Topic does not exist"
    return SERVICE_NOT_READY, "The subscription could not be made"


def wanted_of(body: Message, topic: TopicName, start: Start, most_in_flight: int) -> bytes:
    """The body of a SUBSCRIBE."""
    name, consumer_name = body.subscription.encode(), body.consumer_name.encode()
    flags = lib.SUBSCRIBE_HEADERS | lib.SUBSCRIBE_POLICY | lib.SUBSCRIBE_START | lib.SUBSCRIBE_UNCOUNTED
    flags |= lib.SUBSCRIBE_AGAIN_FIRST
    if body.read_compacted:
        flags |= lib.SUBSCRIBE_COMPACTED
    if not body.durable:
        flags |= lib.SUBSCRIBE_EPHEMERAL
    head = packed("subscribe", timeout_ns=NEVER_NS, timeout_max_ns=NEVER_NS, name_bytes=len(name), flags=flags)
    terms, ranges = {}, b""
    if body.subType == FAILOVER:
        terms["pick"] = max(topic.partition, 0)
        terms["order"] = failover_order(str(topic), body.consumer_name) if topic.partition < 0 else 0
    elif body.subType == KEY_SHARED:
        own = own_ranges(body)
        terms["ranges"] = len(own)
        terms["order"] = _key_order(any_order=body.keySharedMeta.allowOutOfOrderDelivery, sticky=bool(own))
        ranges = packed_ranges(own)
    policy = packed(
        "subscribe_policy", policy=POLICIES[body.subType], name_bytes=len(consumer_name),
        priority=max(body.priority_level, 0), most_in_flight=min(most_in_flight, MAX_UNACKED), **terms,
    )  # fmt: skip
    begin = packed("subscribe_start", start=start.start, at=start.at)
    return b"".join((head, name, begin, policy, consumer_name, ranges))
