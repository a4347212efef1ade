"""Policies of namespaces and topics: the names under which Pulsar stores them, defaults, what acceptors are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mq_shards.gateway.pulsar import bundles
from mq_shards.gateway.pulsar.catalog import CLUSTER, Json

INACTIVE_MODES: Final = ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")
SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
# A real broker's own defaults.
MAX_UNACKED_PER_CONSUMER: Final = 50_000
MAX_UNACKED_PER_SUBSCRIPTION: Final = 200_000

MAX_PARTITIONS: Final = 4096  # of a topic

# Shown by GET of a namespace for policies that are not set.
_ALWAYS: Final[Json] = {
    "allowed_clusters": [],
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "backlog_quota_map": {},
    "bundles": bundles.shown(bundles.DEFAULT),
    "clusterDispatchRate": {},
    "clusterSubscribeRate": {},
    "deleted": False,
    "encryption_required": False,
    "is_allow_auto_update_schema": True,
    "latency_stats_sample_rate": {},
    "migrated": False,
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "properties": {},
    "publishMaxMessageRate": {},
    "replication_clusters": [CLUSTER],
    "replicatorDispatchRate": {},
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "subscriptionDispatchRate": {},
    "subscription_auth_mode": "None",
    "subscription_types_enabled": [],
    "topicDispatchRate": {},
}

_UNSHOWN: Final = frozenset({"bundle_quotas", "anti_affinity_group", "bookie_affinity_group"})


def shown(policies: Json) -> Json:
    """The policies as GET of a namespace shows them."""
    return {**_ALWAYS, **{name: value for name, value in policies.items() if name not in _UNSHOWN}}


def told(policies: Json) -> Json:
    """The policies that acceptors need, with defaults for those that are not set (docs/pulsar-catalog.md)."""

    def number(name: str, default: int = 0) -> int:
        found = policies.get(name)
        return default if found is None else int(found)

    def rate(name: str) -> list[int] | None:
        return _dispatch((policies.get(name) or {}).get(CLUSTER), published)

    published = policies.get("published") or (0, 0)
    retention = policies.get("retention_policies") or {}
    publish = (policies.get("publishMaxMessageRate") or {}).get(CLUSTER, {})
    delayed = policies.get("delayed_delivery_policies") or {}
    quota = policies.get("backlog_quota_map", {}).get("destination_storage") or {}
    return {
        "deduplication": policies.get("deduplicationEnabled"),
        "delayed_delivery": bool(delayed.get("active", True)),
        "max_delay_ms": int(delayed.get("maxDeliveryDelayInMillis", 0)),
        "max_message_bytes": number("max_message_size"),
        "message_ttl_s": number("message_ttl_in_seconds"),
        "retention_minutes": int(retention.get("retentionTimeInMinutes", 0)),
        "retention_mb": int(retention.get("retentionSizeInMB", 0)),
        "backlog_bytes": int(quota.get("limitSize", -1)),
        "backlog_policy": str(quota.get("policy", "")),
        "max_producers": number("max_producers_per_topic"),
        "max_consumers": number("max_consumers_per_topic"),
        "max_consumers_per_subscription": number("max_consumers_per_subscription"),
        "max_subscriptions": number("max_subscriptions_per_topic"),
        "max_unacked_per_consumer": number("max_unacked_messages_per_consumer", MAX_UNACKED_PER_CONSUMER),
        "max_unacked_per_subscription": number("max_unacked_messages_per_subscription", MAX_UNACKED_PER_SUBSCRIPTION),
        "dispatch": rate("topicDispatchRate"),
        "subscription_dispatch": rate("subscriptionDispatchRate"),
        "subscription_rates": {
            name: _dispatch(one, published) for name, one in (policies.get("dispatchRateOfSubscriptions") or {}).items()
        },
        "subscribe_rate": _subscribing((policies.get("clusterSubscribeRate") or {}).get(CLUSTER)),
        "publish_messages": max(0, int(publish.get("publishThrottlingRateInMsg", 0))),
        "publish_bytes": max(0, int(publish.get("publishThrottlingRateInByte", 0))),
        "group": policies.get("resource_group"),
        "broker_publish": policies.get("broker_publish"),
        "broker_dispatch": policies.get("broker_dispatch"),
        "subscription_types": policies.get("subscription_types_enabled") or list(SUBSCRIPTION_TYPES),
        "auto_subscription": bool(
            (policies.get("autoSubscriptionCreationOverride") or {}).get("allowAutoSubscriptionCreation", True)
        ),
        "schema_enforced": bool(policies.get("schema_validation_enforced", False)),
        "encryption_required": bool(policies.get("encryption_required", False)),
    }


def _dispatch(rate: Json | None, published: Sequence[int]) -> list[int] | None:
    """Messages, bytes (0: no limit) and the period in seconds; None: no rate is set. `published`: messages and bytes a
    second, which a relative rate is more than."""
    if not rate:
        return None
    found = [max(0, int(rate.get(f"dispatchThrottlingRateIn{what}") or 0)) for what in ("Msg", "Byte")]
    if rate.get("relativeToPublishRate"):
        found = [own and own + of_others for own, of_others in zip(found, published, strict=True)]
    return [*found, max(1, int(rate.get("ratePeriodInSecond") or 1))] if any(found) else None


def _subscribing(rate: Json | None) -> list[int] | None:
    """How often a consumer may subscribe, and the period in seconds; None: no limit."""
    often = int((rate or {}).get("subscribeThrottlingRatePerConsumer") or 0)
    return [often, max(1, int((rate or {}).get("ratePeriodInSecond") or 30))] if often > 0 else None


def told_of_topic(namespace: Json, topic: Json) -> Json:
    """A topic's own policies, as acceptors are told them in addition to those of its namespace."""
    if not topic:
        return {}
    merged, own = told(of_topic(namespace, topic)), told(topic)
    of_namespace, unset = told(namespace), told({})
    return {name: merged[name] for name in merged if own[name] != unset[name] or merged[name] != of_namespace[name]}


def of_topic(namespace: Json, topic: Json) -> Json:
    """A topic's policies: its own override those of its namespace."""
    return {**namespace, **topic} if topic else namespace


def is_kept(policies: Json) -> bool:
    """Whether messages stay for a while after every subscription has finished them."""
    found = policies.get("retention_policies") or {}
    return bool(found.get("retentionTimeInMinutes")) and bool(found.get("retentionSizeInMB"))


def auto_creation(policies: Json) -> tuple[bool, int]:
    """Whether a topic is made when a client asks for it, and with how many partitions; 0: not partitioned."""
    override: dict[str, Any] = policies.get("autoTopicCreationOverride") or {}
    allowed = bool(override.get("allowAutoTopicCreation", True))
    partitions = int(override.get("defaultNumPartitions") or 0) if override.get("topicType") == "partitioned" else 0
    return allowed, partitions
