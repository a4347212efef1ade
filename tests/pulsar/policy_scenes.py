"""Policies of namespaces and topics, and what clients are told of them: asked of a real broker by record_roles.py, of
ours by tests. Steps are those of role_scenes.py; of several commands on one connection the last one's answer counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.pulsar.role_scenes import SUPER, Step

N: Final = "limits/ns"


def _topic(name: str) -> str:
    return f"persistent://{N}/{name}"


def _producer(name: str, producer: int = 1, **fields: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return "producer", {"topic": _topic(name), "producer_id": producer, **fields}


def _consumer(name: str, consumer: int = 1, subscription: str = "s", kind: int = 1) -> tuple[Any, ...]:
    fields = {"topic": _topic(name), "subscription": subscription, "subType": kind, "consumer_id": consumer}
    return "subscribe", fields


def _for_a_while(policy: str, value: object, asked: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Set for the namespace, asked of, and set no more."""
    path = f"namespaces/{N}/{policy}"
    return [("GET", path), ("POST", path, value), ("GET", path), *asked, ("DELETE", path)]


STRING: Final = {"name": "", "schema_data": "", "type": 1, "properties": []}

NAMESPACE: Final[dict[str, list[tuple[Any, ...]]]] = {
    "producers": _for_a_while(
        "maxProducersPerTopic", 1, [("wire", *_producer("a"), *_producer("a", 2)), ("wire", *_producer("a"))]
    ),
    "consumers": _for_a_while(
        "maxConsumersPerTopic", 1,
        [("wire", *_consumer("b"), *_consumer("b", 2)), ("wire", *_consumer("b"), *_consumer("b", 2, "other"))],
    ),
    "consumers of a subscription": _for_a_while(
        "maxConsumersPerSubscription", 1,
        [("wire", *_consumer("c"), *_consumer("c", 2)), ("wire", *_consumer("c"), *_consumer("c", 2, "other"))],
    ),
    "subscriptions": _for_a_while(
        "maxSubscriptionsPerTopic", 1,
        [("wire", *_consumer("d"), *_consumer("d", 2)), ("wire", *_consumer("d", 1, "other")),
         ("PUT", f"persistent/{N}/d/subscription/third")],
    ),
    "types": _for_a_while(
        "subscriptionTypesEnabled", ["Exclusive", "Failover"],
        [("wire", *_consumer("e")), ("wire", *_consumer("e", kind=0)), ("wire", *_consumer("e", kind=3))],
    ),
    "auto subscription": _for_a_while(
        "autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False},
        [("PUT", f"persistent/{N}/f"), ("wire", *_consumer("f")), ("PUT", f"persistent/{N}/f/subscription/made"),
         ("wire", *_consumer("f", subscription="made"))],
    ),
    "encryption": [
        ("POST", f"namespaces/{N}/encryptionRequired", True), ("wire", *_producer("g")),
        ("wire", *_producer("g", encrypted=True)), ("POST", f"namespaces/{N}/encryptionRequired", False),
    ],
    "enforced schemas": [
        ("wire", *_producer("h", schema=STRING)), ("wire", *_producer("h")),
        ("POST", f"namespaces/{N}/schemaValidationEnforced", True), ("wire", *_producer("h")),
        ("wire", *_producer("h", schema=STRING)), ("wire", *_producer("plain")),
        ("POST", f"namespaces/{N}/schemaValidationEnforced", False),
    ],
    "subscription expiration": _for_a_while("subscriptionExpirationTime", 3, []),
    "inactive topics": _for_a_while(
        "inactiveTopicPolicies",
        {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 60,
         "deleteWhileInactive": True}, [],
    ),
}  # fmt: skip

# Policies of one topic: the path, a value, and what is asked while it is set.
TOPIC: Final[dict[str, tuple[object, list[tuple[Any, ...]]]]] = {
    "retention": ({"retentionTimeInMinutes": 10, "retentionSizeInMB": 10}, []),
    "messageTTL?messageTTL=100": (None, []),
    "maxProducers": (1, [("wire", *_producer("t"), *_producer("t", 2))]),
    "maxConsumers": (1, [("wire", *_consumer("t"), *_consumer("t", 2))]),
    "maxConsumersPerSubscription": (1, [("wire", *_consumer("t"), *_consumer("t", 2))]),
    "maxSubscriptionsPerTopic": (1, [("wire", *_consumer("t"), *_consumer("t", 2, "another"))]),
    "maxUnackedMessagesOnConsumer": (7, []),
    "maxUnackedMessagesOnSubscription": (9, []),
    "maxMessageSize": (1000, []),
    "delayedDelivery": ({"active": False, "tickTime": 1000, "maxDeliveryDelayInMillis": 0}, []),
    "deduplicationEnabled": (True, []),
    "publishRate": ({"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1}, []),
    "persistence": (
        {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1,
         "managedLedgerMaxMarkDeleteRate": 0.0}, [],
    ),
    "compactionThreshold": (1000, []),
    "deduplicationSnapshotInterval": (7, []),
    "dispatcherPauseOnAckStatePersistent": (None, []),
    "replication": (["standalone"], []),
    "inactiveTopicPolicies": (
        {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 60,
         "deleteWhileInactive": True}, [],
    ),
    "subscriptionTypesEnabled": (["Exclusive"], [("wire", *_consumer("t")), ("wire", *_consumer("t", kind=0))]),
}  # fmt: skip


def _of_topic(policy: str, value: object, asked: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    bare = f"persistent/{N}/t/{policy.partition('?')[0]}"
    return [
        ("GET", bare), ("POST", f"persistent/{N}/t/{policy}", value), ("GET", bare), ("GET", f"{bare}?applied=true"),
        *asked, ("DELETE", bare), ("GET", bare), ("POST", bare.replace("/t/", "/none/"), value),
    ]  # fmt: skip


BACKLOG: Final = {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
QUOTA: Final[list[tuple[Any, ...]]] = [
    ("GET", f"persistent/{N}/t/backlogQuotaMap"), ("POST", f"persistent/{N}/t/backlogQuota", BACKLOG),
    ("GET", f"persistent/{N}/t/backlogQuotaMap"), ("GET", f"persistent/{N}/t/backlogQuotaMap?applied=true"),
    ("DELETE", f"persistent/{N}/t/backlogQuota"), ("GET", f"persistent/{N}/t/backlogQuotaMap"),
]  # fmt: skip


def scenes() -> Iterator[tuple[str, list[Step]]]:
    setup = [
        ("PUT", "tenants/limits", {"adminRoles": [], "allowedClusters": ["standalone"]}), ("PUT", f"namespaces/{N}"),
        ("PUT", f"persistent/{N}/t"),
    ]  # fmt: skip
    named = {"setup": setup, **NAMESPACE, "backlog of a topic": QUOTA}
    named |= {f"topic's {name}": _of_topic(name, *what) for name, what in TOPIC.items()}
    for name, steps in named.items():
        yield name, [(SUPER, *_looked_up(step)) for step in steps]


def _looked_up(step: tuple[Any, ...]) -> tuple[Any, ...]:
    """A real broker serves what somebody has looked up."""
    if step[0] != "wire":
        return step
    return "wire", "lookupTopic", {"topic": step[2]["topic"]}, *step[1:]
