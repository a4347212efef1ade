"""What the policies of namespaces and topics may be: checks of what clients give, in a real broker's words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mq_shards.gateway.pulsar import offload, scalars
from mq_shards.gateway.pulsar import policies as policies_module
from mq_shards.gateway.pulsar.catalog import CLUSTER, Json
from mq_shards.gateway.pulsar.refusals import RefusedError, precondition
from mq_shards.gateway.pulsar.requests import Call, object_of
from mq_shards.gateway.pulsar.schemas import STRATEGIES

QUOTA_TYPES: Final = ("destination_storage", "message_age")
QUOTA_POLICIES: Final = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
MAX_BOOKIES: Final = 5  # of a ledger, as a real broker has it: nothing is made of it here
_OF_KIND: Final[dict[type, Callable[[object, str], Any]]] = {
    bool: scalars.flag,
    int: scalars.whole,
    float: scalars.decimal,
}


class Needed:
    """The check of a number or flag that needs a body, in which null is 0 or false."""

    def __init__(self, check: Callable[[Any], Any]) -> None:
        self._check = check

    def __call__(self, given: Any) -> Any:  # noqa: ANN401
        return self._check(given)


def whole(what: str, least: int, words: str = "") -> Needed:
    """`words`: what a real broker says of a number that is less."""

    def check(given: Any) -> int:  # noqa: ANN401
        found = scalars.whole(given, what)
        if found < least:
            raise precondition(words or f"{what} must be {least} or more")
        return found

    return Needed(check)


def or_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An empty body or null removes the policy; an empty string too, where it stands for 0 or false."""
    nothing = (None, "") if isinstance(check, Needed) else (None,)
    return lambda given: None if given in nothing else check(given)


@Needed
def _ttl(given: Any) -> int:  # noqa: ANN401
    found = scalars.whole(given, "message TTL")
    if found < 0:
        raise precondition("Invalid value for message TTL, message TTL must >= 0")
    return found


@Needed
def _flag(given: Any) -> bool:  # noqa: ANN401
    return scalars.flag(given, "the body")


def _numbers(given: Any, names: dict[str, Any]) -> Json:  # noqa: ANN401
    """Reads an object of numbers and flags. `names` has a default for each field."""
    if not isinstance(given, dict):
        raise RefusedError(400, "MetadataError", "the body is not an object")
    return {name: _OF_KIND[type(default)](given.get(name, default), name) for name, default in names.items()}


def _retention(given: Any) -> Json | None:  # noqa: ANN401
    if given is None:
        return None
    found = _numbers(given, {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    time, size = found["retentionTimeInMinutes"], found["retentionSizeInMB"]
    for what, limit in (("time", time), ("size", size)):
        if limit < -1:
            raise RefusedError(400, "MetadataError", f"Invalid retention policy: {what} limit must be >= -1")
    if (time == 0) != (size == 0):
        raise RefusedError(
            400, "MetadataError",
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the limits has "
            "a non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. To disable retention both "
            "limits must be set to 0.",
        )  # fmt: skip
    return found


def _persistence(given: Any) -> Json:  # noqa: ANN401
    kinds = "Ensemble", "WriteQuorum", "AckQuorum"
    found = _numbers(given, {**{f"bookkeeper{kind}": 2 for kind in kinds}, "managedLedgerMaxMarkDeleteRate": 0.0})
    numbers = {kind: found[f"bookkeeper{kind}"] for kind in kinds}
    for name, number in numbers.items():
        if not 0 < number <= MAX_BOOKIES:
            raise RefusedError(400, "MetadataError", f"Bookkeeper-{name} must be <= {MAX_BOOKIES} and > 0.")
    if [*numbers.values()] != sorted(numbers.values(), reverse=True):
        order = (f"{name} ({number})" for name, number in numbers.items())
        raise RefusedError(400, "MetadataError", f"Bookkeeper {' >= '.join(order)}")
    return found


def _delayed(given: Any) -> Json:  # noqa: ANN401
    found = _numbers(given, {"active": False, "tickTime": 0, "maxDeliveryDelayInMillis": 0})
    if found["maxDeliveryDelayInMillis"] < 0:
        raise precondition("maxDeliveryDelayInMillis must be 0 or more")
    return found


def _auto_topics(given: Any) -> Json | None:  # noqa: ANN401
    if given is None:
        return None
    if not isinstance(given, dict):
        raise RefusedError(400, "MetadataError", "the body is no autoTopicCreationOverride")
    start = "Invalid configuration for autoTopicCreationOverride. the detail is "
    kind, partitions = given.get("topicType"), given.get("defaultNumPartitions")
    count = None if partitions is None else scalars.whole(partitions, "defaultNumPartitions")
    allowed = scalars.flag(given.get("allowAutoTopicCreation"), "allowAutoTopicCreation")
    if allowed:
        if kind not in ("partitioned", "non-partitioned"):
            raise precondition(f"{start}Unknown topic type [{kind}]")
        if kind == "partitioned" and count is None:
            raise precondition(f"{start}[defaultNumPartitions] cannot be null when the type is partitioned.")
        if count is not None and kind == "partitioned" and not 0 < count <= policies_module.MAX_PARTITIONS:
            raise precondition(f"{start}[defaultNumPartitions] cannot be less than 1 for partition type.")
        if kind == "non-partitioned" and count is not None:
            raise precondition(
                f"{start}[defaultNumPartitions] is not allowed to be set when the type is non-partition."
            )
    found = {"allowAutoTopicCreation": allowed, "topicType": kind, "defaultNumPartitions": count}
    return {name: value for name, value in found.items() if value is not None}


def _auto_subscriptions(given: Any) -> Json | None:  # noqa: ANN401
    return None if given is None else _numbers(given, {"allowAutoSubscriptionCreation": False})


def _types(given: Any) -> list[str]:  # noqa: ANN401
    if not isinstance(given, list) or not all(one in policies_module.SUBSCRIPTION_TYPES for one in given):
        raise RefusedError(
            400, "MetadataError", "subscription types are " + ", ".join(policies_module.SUBSCRIPTION_TYPES)
        )
    return sorted(set(given), key=given.index)


def _inactive(given: Any) -> Json | None:  # noqa: ANN401
    if given is None:
        return None
    found = _numbers(given, {"maxInactiveDurationSeconds": 0, "deleteWhileInactive": False})
    mode = given.get("inactiveTopicDeleteMode", policies_module.INACTIVE_MODES[0])
    is_never = found["deleteWhileInactive"] and found["maxInactiveDurationSeconds"] <= 0
    if mode not in policies_module.INACTIVE_MODES or is_never:
        raise precondition("Invalid inactive topic policies")
    return {"inactiveTopicDeleteMode": mode, **found}


def check_enum(given: Any) -> None:  # noqa: ANN401
    """Refuses a body that cannot name one of several values: a real broker takes words and numbers."""
    if given is not None and (isinstance(given, bool) or not isinstance(given, str | int)):
        raise RefusedError(400, "MetadataError", "the body is neither a word nor a number")


def _strategy(given: Any) -> str:  # noqa: ANN401
    """A string or number that is not a strategy counts as UNDEFINED."""
    check_enum(given)
    return given if isinstance(given, str) and given in STRATEGIES else "UNDEFINED"


def rate_of(given: Any) -> Json | None:  # noqa: ANN401
    if given is None:
        return None
    return {CLUSTER: _numbers(given, {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1})}


def dispatch_rate(given: Any) -> Json | None:  # noqa: ANN401
    if given is None:
        return None
    return _numbers(
        given,
        {
            "dispatchThrottlingRateInMsg": 0,
            "dispatchThrottlingRateInByte": 0,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 0,
        },
    )


def subscribe_rate(given: Any) -> Json | None:  # noqa: ANN401
    if given is None:
        return None
    return _numbers(given, {"subscribeThrottlingRatePerConsumer": -1, "ratePeriodInSecond": 0})


def by_cluster(checked: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wraps a check: rates are stored by cluster, and there is one cluster."""

    def check(given: Any) -> Json | None:  # noqa: ANN401
        found = checked(given)
        return None if found is None else {CLUSTER: found}

    return check


def always(_given: Any) -> bool:  # noqa: ANN401
    """A policy that a POST without a body turns on."""
    return True


@dataclass(frozen=True, slots=True)
class Policy:
    key: str  # its name in stored policies
    checked: Callable[[Any], Any]
    setting: str = "POST"
    default: Any = None  # what a GET returns if it is not set
    can_go: bool = True
    of_cluster: bool = False  # stored by cluster; that of this one is obeyed


POLICIES: Final[dict[str, Policy]] = {
    "retention": Policy("retention_policies", _retention),
    "offloadPolicies": Policy(offload.KEY, offload.checked, can_go=False),
    "messageTTL": Policy("message_ttl_in_seconds", _ttl),
    "deduplication": Policy("deduplicationEnabled", _flag),
    "schemaCompatibilityStrategy": Policy("schema_compatibility_strategy", _strategy, "PUT", "UNDEFINED", False),
    "schemaValidationEnforced": Policy("schema_validation_enforced", _flag, "POST", False, False),
    "isAllowAutoUpdateSchema": Policy("is_allow_auto_update_schema", _flag, "POST", True, False),
    "delayedDelivery": Policy("delayed_delivery_policies", or_none(_delayed)),
    "autoTopicCreation": Policy("autoTopicCreationOverride", _auto_topics),
    "autoSubscriptionCreation": Policy("autoSubscriptionCreationOverride", _auto_subscriptions),
    "subscriptionTypesEnabled": Policy("subscription_types_enabled", _types, "POST", []),
    "maxProducersPerTopic": Policy("max_producers_per_topic", whole("maxProducersPerTopic", 0)),
    "maxConsumersPerTopic": Policy("max_consumers_per_topic", whole("maxConsumersPerTopic", 0)),
    "maxConsumersPerSubscription": Policy("max_consumers_per_subscription", whole("maxConsumersPerSubscription", 0)),
    "maxSubscriptionsPerTopic": Policy("max_subscriptions_per_topic", whole("maxSubscriptionsPerTopic", 0)),
    "maxUnackedMessagesPerConsumer": Policy(
        "max_unacked_messages_per_consumer", whole("maxUnackedMessagesPerConsumer", 0)
    ),
    "maxUnackedMessagesPerSubscription": Policy(
        "max_unacked_messages_per_subscription", whole("maxUnackedMessagesPerSubscription", 0)
    ),
    "maxTopicsPerNamespace": Policy("max_topics_per_namespace", whole("maxTopicsPerNamespace", 0), "POST", 0),
    "encryptionRequired": Policy("encryption_required", _flag, "POST", False, False),
    "compactionThreshold": Policy("compaction_threshold", whole("compactionThreshold", 0), "PUT"),
    "persistence": Policy("persistence", _persistence),
    "subscriptionExpirationTime": Policy(
        "subscription_expiration_time_minutes",
        whole("subscriptionExpirationTime", 0, "Invalid value for subscription expiration time"),
    ),
    "inactiveTopicPolicies": Policy("inactive_topic_policies", _inactive),
    "dispatchRate": Policy("topicDispatchRate", by_cluster(dispatch_rate), of_cluster=True),
    "subscriptionDispatchRate": Policy("subscriptionDispatchRate", by_cluster(dispatch_rate), of_cluster=True),
    "replicatorDispatchRate": Policy("replicatorDispatchRate", by_cluster(dispatch_rate), of_cluster=True),
    "subscribeRate": Policy("clusterSubscribeRate", by_cluster(subscribe_rate), of_cluster=True),
    "deduplicationSnapshotInterval": Policy(
        "deduplicationSnapshotIntervalSeconds",
        or_none(whole("interval", 0, "interval must be greater than or equal to 0")),
        can_go=False,
    ),
    "dispatcherPauseOnAckStatePersistent": Policy(
        "dispatcherPauseOnAckStatePersistentEnabled", always, "POST", default=False
    ),
}


def check_filters(given: Any) -> None:  # noqa: ANN401
    """Refuses all entry filters, as a real broker does that finds none in its directory."""
    if given is None:
        return
    names = object_of(given).get("entryFilterNames")
    if not isinstance(names, str) or not names.strip():
        why = "entryFilterNames can't be empty. To remove entry filters use the remove method."
        raise RefusedError(400, "MetadataError", why)
    raise RefusedError(400, "MetadataError", f"Entry filter '{names.split(',')[0]}' not found")


def quota_type(call: Call) -> str:
    kind = call.fields.get("backlogQuotaType", QUOTA_TYPES[0])
    if kind not in QUOTA_TYPES:
        raise precondition(f"there is no backlog quota type {kind}")
    return kind


def exceeds(quota: Json | None, retention: Json | None) -> bool:
    """Whether more may be in a backlog than is retained."""
    if not quota or not retention:
        return False
    megabytes, minutes = retention["retentionSizeInMB"], retention["retentionTimeInMinutes"]
    too_large = megabytes > 0 and quota["limitSize"] >= megabytes << 20
    return bool(too_large or (minutes > 0 and quota["limitTime"] >= minutes * 60))


def quota_exceeds(of: str) -> RefusedError:
    return precondition(
        f"Backlog Quota exceeds configured retention quota for {of}. Please increase retention quota and retry"
    )


def quota_of(given: Json, namespace: str) -> Json:
    if given.get("policy") not in QUOTA_POLICIES:
        raise RefusedError(
            400, "MetadataError",
            f"Set namespace[{namespace}] backlog quota failed because the data validation failed. the attribute policy "
            "cannot be null",
        )  # fmt: skip
    sizes = {
        "limitSize": given.get("limitSize", given.get("limit", 0)) or 0,
        "limitTime": given.get("limitTime") or 0,
    }
    found = _numbers(sizes, {"limitSize": 0, "limitTime": 0})
    return {"limit": found["limitSize"], **found, "policy": given["policy"]}
