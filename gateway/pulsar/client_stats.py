"""Figures of producers and consumers, in the form of a real broker's `stats`. Acceptors count them; workers know which
messages are in flight. Rates are those of the last one or two intervals of keep-alive."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from mq_shards.csrc._core import lib
from mq_shards.gateway.catalog import Channel
from mq_shards.gateway.catalog import Consumer as Flying
from mq_shards.gateway.pulsar.catalog import Json

INDIVIDUAL: Final = ("Shared", "Key_Shared")  # types of subscriptions whose messages are acknowledged one by one
SINGLE: Final = ("Exclusive", "Failover")  # types of subscriptions that have one active consumer
TYPES: Final = {
    lib.POLICY_TURNS: "Shared", lib.POLICY_EXCLUSIVE: "Exclusive", lib.POLICY_FAILOVER: "Failover",
    lib.POLICY_KEY: "Key_Shared",
}  # fmt: skip

_CYCLE_S: Final = 146_097 * 86_400  # 400 years, after which the calendar repeats itself
_LAST_PLAIN_YEAR: Final = 9999
_PUBLISHER: Final[Json] = {
    "msgRateIn": 0.0, "msgThroughputIn": 0.0, "averageMsgSize": 0.0, "chunkedMessageRate": 0.0,
    "supportsPartialProducer": False, "metadata": {},
}  # fmt: skip
_CONSUMER: Final[Json] = {
    "msgRateOut": 0.0, "msgThroughputOut": 0.0, "bytesOutCounter": 0, "msgOutCounter": 0, "msgRateRedeliver": 0.0,
    "messageAckRate": 0.0, "chunkedMessageRate": 0.0, "availablePermits": 0, "unackedMessages": 0,
    "avgMessagesPerEntry": 1, "blockedConsumerOnUnackedMsgs": False, "drainingHashesCount": 0,
    "drainingHashesClearedTotal": 0, "drainingHashesUnackedMessages": 0, "lastAckedTimestamp": 0,
    "lastConsumedTimestamp": 0, "lastConsumedFlowTimestamp": 0, "metadata": {},
    "lastAckedTime": "1970-01-01T00:00:00Z", "lastConsumedTime": "1970-01-01T00:00:00Z",
}  # fmt: skip
# A subscription's figures: the sum, or the latest, of those of its consumers.
_ADDED: Final = ("msgRateOut", "msgThroughputOut", "msgRateRedeliver", "messageAckRate", "bytesOutCounter")
_LATEST: Final = ("lastConsumedFlowTimestamp", "lastConsumedTimestamp", "lastAckedTimestamp")
KEY_SLOTS: Final = 65536
# Figures that are added up for a client that is connected to several partitions.
_PUBLISHED: Final = ("msgRateIn", "msgThroughputIn", "chunkedMessageRate")
_CONSUMED: Final = (*_ADDED, "msgOutCounter", "chunkedMessageRate", "availablePermits", "unackedMessages")


def publisher(client: Json) -> Json:
    messages, count = client.get("rates", (0.0, 0.0))
    return {
        **_PUBLISHER,
        "msgRateIn": messages, "msgThroughputIn": count, "averageMsgSize": count / messages if messages else 0.0,
        "accessMode": client.get("access_mode", "Shared"), "producerId": client.get("id", 0),
        "producerName": client.get("name", ""), "address": _address(client),
        "connectedSince": client.get("connected_since", ""), "clientVersion": client.get("client_version", ""),
        "metadata": client.get("metadata", {}),
    }  # fmt: skip


def publishers_together(parts: Iterable[list[Json]]) -> list[Json]:
    """Joins the producers of partitions as a real broker does: the first of each partition become one, and so on."""
    found = []
    for same in _by_place(parts):
        one = {**_PUBLISHER, **{key: sum(each[key] for each in same) for key in _PUBLISHED}, "producerId": 0}
        one["averageMsgSize"] = one["msgThroughputIn"] / one["msgRateIn"] if one["msgRateIn"] else 0.0
        del one["metadata"]
        found.append(one)
    return found


def properties_of(consumers: list[Json]) -> Json:
    """Those that the first consumer gave a subscription that is not durable: the catalog has others'."""
    found: Json = consumers[0].get("properties", {}) if consumers else {}
    return found


def consumers_together(parts: Iterable[list[Json]]) -> list[Json]:
    """Joins the consumers of partitions in the same way."""
    found = []
    for same in _by_place(parts):
        one = {**_CONSUMER, **{key: sum(each[key] for each in same) for key in _CONSUMED}}
        del one["metadata"]
        found.append(one | {"consumerName": same[0]["consumerName"], "avgMessagesPerEntry": 0})
    return found


def _by_place(parts: Iterable[list[Json]]) -> list[list[Json]]:
    return [[each for each in same if each is not None] for same in itertools.zip_longest(*parts)]


def of_consumers(channel: Channel, clients: list[Json]) -> Json:
    """A subscription's consumers, and the figures that follow from theirs."""
    flying = {(one.acceptor, one.conn, one.number): one for one in channel.consumers}
    found: Json = {"consumers": []}
    kinds = [client["type"] for client in clients if "type" in client]
    for client in clients:
        who = client.get("acceptor", 0), client.get("conn", 0), client.get("number", 0)
        found["consumers"].append(_consumer(client, flying.get(who) if kinds[0] in INDIVIDUAL else None))
    for key in _ADDED:
        found[key] = sum(one[key] for one in found["consumers"])
    for key in _LATEST:
        found[key] = max((one[key] for one in found["consumers"]), default=0)
    if not kinds:
        found["type"] = TYPES.get(channel.flags // lib.FIGURES_POLICY - 1, "None")
        return found
    found["type"] = kinds[0]
    if kinds[0] in INDIVIDUAL:  # with cumulative acks nothing is counted for each consumer
        found["unackedMessages"] = sum(one["unackedMessages"] for one in found["consumers"])
    if kinds[0] in SINGLE:
        active = [client for client in clients if client.get("active") or kinds[0] == "Exclusive"]
        found["activeConsumerName"] = active[0].get("name", "") if active else ""
    if kinds[0] == "Key_Shared":
        _add_ranges(found, clients)
    durable = all(client.get("durable", True) for client in clients)
    found["isDurable"] = found["durable"] = durable
    return found


def _consumer(client: Json, flying: Flying | None) -> Json:
    messages, count, redelivered, acked = client.get("rates", (0.0, 0.0, 0.0, 0.0))
    average = max(1, round(client.get("per_entry", 1))) if client.get("messages") else 0
    acked_ms, consumed_ms = client.get("acked_ms", 0), client.get("consumed_ms", 0)
    found = {
        **_CONSUMER,
        "msgRateOut": messages, "msgThroughputOut": count, "msgRateRedeliver": redelivered, "messageAckRate": acked,
        "consumerName": client.get("name", ""), "address": _address(client),
        "connectedSince": client.get("connected_since", ""), "clientVersion": client.get("client_version", ""),
        "availablePermits": client.get("permits", 0), "avgMessagesPerEntry": average,
        "msgOutCounter": client.get("messages", 0), "bytesOutCounter": client.get("bytes", 0),
        "lastAckedTimestamp": acked_ms, "lastConsumedTimestamp": consumed_ms,
        "lastConsumedFlowTimestamp": client.get("flowed_ms", 0),
        "lastAckedTime": iso(acked_ms), "lastConsumedTime": iso(consumed_ms), "metadata": client.get("metadata", {}),
    }  # fmt: skip
    if flying is not None:
        found["unackedMessages"] = flying.in_flight
        found["blockedConsumerOnUnackedMsgs"] = flying.is_blocked
    return found


def _add_ranges(found: Json, clients: list[Json]) -> None:
    """Adds ranges of slots. With AUTO_SPLIT only a consumer that is alone shows one; a real broker has no slot 0."""
    sticky = any(client.get("ranges") for client in clients)
    found["keySharedMode"] = "STICKY" if sticky else "AUTO_SPLIT"
    found["allowOutOfOrderDelivery"] = any(client.get("any_order") for client in clients)
    for one, client in zip(found["consumers"], clients, strict=True):
        alone = [[1, KEY_SLOTS - 1]] if len(clients) == 1 else []
        one["keyHashRangeArrays"] = client.get("ranges") or alone
        one["drainingHashes"] = []


def _address(client: dict[str, Any]) -> str:
    """An address as Java writes it."""
    return f"/{client.get('address', '')}"


def iso(time_ms: int) -> str:
    """A time as Java writes an Instant. Clients may have given any: 64 bits, with a sign or not."""
    signed_ms = time_ms - (1 << 64) if time_ms >> 63 == 1 else time_ms
    cycles, seconds = divmod(signed_ms // 1000, _CYCLE_S)
    moment = datetime.fromtimestamp(seconds, UTC)
    year = moment.year + 400 * cycles
    shown = f"{'-' if year < 0 else '+' if year > _LAST_PLAIN_YEAR else ''}{abs(year):04d}"
    text = f"{shown}{moment:-%m-%dT%H:%M:%S}"
    return f"{text}.{signed_ms % 1000:03d}Z" if signed_ms % 1000 else f"{text}Z"
