"""Options of a real broker that can be set while it runs, as far as they have a meaning here: what each may be, and
what follows for namespaces that do not say otherwise. Who sets one is in http_broker_options.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from mq_shards.gateway.pulsar.bundles import MAX_BUNDLES
from mq_shards.gateway.pulsar.catalog import CLUSTER, Catalog, Json
from mq_shards.gateway.pulsar.policies import INACTIVE_MODES, MAX_PARTITIONS, SUBSCRIPTION_TYPES

KEY: Final = "options"  # under which the catalog keeps those that are set
MOST: Final = (1 << 31) - 1


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _number(text: str) -> int:
    found = int(text)
    if not 0 <= found <= MOST:
        raise ValueError
    return found


def _up_to(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        found = _number(text)
        if not 0 < found <= most:
            raise ValueError
        return found

    return read


def _one_of(*names: str) -> Callable[[str], str]:
    return lambda text: names[names.index(text.strip())]


def _types(text: str) -> list[str]:
    names = [name.strip() for name in text.strip("[]").split(",")]
    if not all(name in SUBSCRIPTION_TYPES for name in names):
        raise ValueError
    return names


class Option(NamedTuple):
    default: str
    read: Callable[[str], Any]  # raises ValueError, KeyError


OPTIONS: Final[Mapping[str, Option]] = {
    "allowAutoSubscriptionCreation": Option("true", _flag),
    "allowAutoTopicCreation": Option("true", _flag),
    "allowAutoTopicCreationType": Option("non-partitioned", _one_of("non-partitioned", "partitioned")),
    # Unlike those of a real broker, topics that nobody uses stay, if nobody says otherwise.
    "brokerDeleteInactiveTopicsEnabled": Option("false", _flag),
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": Option("60", _number),
    "brokerDeleteInactiveTopicsMode": Option(INACTIVE_MODES[0], _one_of(*INACTIVE_MODES)),
    "brokerPublisherThrottlingMaxByteRate": Option("0", _number),
    "brokerPublisherThrottlingMaxMessageRate": Option("0", _number),
    "defaultNumPartitions": Option("1", _up_to(MAX_PARTITIONS)),
    "defaultNumberOfNamespaceBundles": Option("4", _up_to(MAX_BUNDLES)),
    "dispatchThrottlingRateInByte": Option("0", _number),
    "dispatchThrottlingRateInMsg": Option("0", _number),
    "dispatchThrottlingRatePerSubscriptionInByte": Option("0", _number),
    "dispatchThrottlingRatePerSubscriptionInMsg": Option("0", _number),
    "dispatchThrottlingRatePerTopicInByte": Option("0", _number),
    "dispatchThrottlingRatePerTopicInMsg": Option("0", _number),
    "forceDeleteNamespaceAllowed": Option("false", _flag),
    "forceDeleteTenantAllowed": Option("false", _flag),
    "isAllowAutoUpdateSchemaEnabled": Option("true", _flag),
    "maxNamespacesPerTenant": Option("0", _number),
    "maxNumPartitionsPerPartitionedTopic": Option("0", _number),
    "maxPublishRatePerTopicInBytes": Option("0", _number),
    "maxPublishRatePerTopicInMessages": Option("0", _number),
    "maxTenants": Option("0", _number),
    "maxTopicsPerNamespace": Option("0", _number),
    "subscribeRatePeriodPerConsumerInSecond": Option("30", _number),
    "subscribeThrottlingRatePerConsumer": Option("0", _number),
    "subscriptionTypesEnabled": Option("[Exclusive, Shared, Failover, Key_Shared]", _types),
}

# The rates of all topics together, whatever their own are: messages and bytes a second.
_OF_ALL_TOPICS: Final = {
    "broker_publish": ("brokerPublisherThrottlingMaxMessageRate", "brokerPublisherThrottlingMaxByteRate"),
    "broker_dispatch": ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
}


class BrokerOptions:
    """Those of the broker as they are now."""

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._catalog = catalog
        self._seen: Json = {}
        self._policies: Json = {}

    @property
    def set(self) -> Json:
        """Those that somebody has set, by name, as text."""
        found: Json = self._catalog().broker.get(KEY, {})
        return found

    def text(self, name: str) -> str:
        found: str = self.set.get(name, OPTIONS[name].default)
        return found

    def of(self, name: str) -> Any:  # noqa: ANN401
        """The value: a flag, a number, a text, or texts."""
        return OPTIONS[name].read(self.text(name))

    @property
    def policies(self) -> Json:
        """What holds for a namespace that does not say otherwise, under the names of a namespace's policies."""
        if self.set is not self._seen:
            self._seen, self._policies = self.set, self._make()
        return self._policies

    def _make(self) -> Json:
        found: Json = {}
        for name, options in _OF_ALL_TOPICS.items():
            if any(both := [self.of(option) for option in options]):
                found[name] = [*both, 1]
        if self._are_set("dispatchThrottlingRatePerTopicIn"):
            found["topicDispatchRate"] = self._dispatching("dispatchThrottlingRatePerTopicIn")
        if self._are_set("dispatchThrottlingRatePerSubscriptionIn"):
            found["subscriptionDispatchRate"] = self._dispatching("dispatchThrottlingRatePerSubscriptionIn")
        if self._are_set("maxPublishRatePerTopicIn"):
            messages, size = (self.of(f"maxPublishRatePerTopicIn{what}") for what in ("Messages", "Bytes"))
            rate = {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": size}
            found["publishMaxMessageRate"] = {CLUSTER: rate}
        if self._are_set("subscribe"):
            found["clusterSubscribeRate"] = {
                CLUSTER: {
                    "subscribeThrottlingRatePerConsumer": self.of("subscribeThrottlingRatePerConsumer"),
                    "ratePeriodInSecond": self.of("subscribeRatePeriodPerConsumerInSecond"),
                }
            }
        if self._are_set("allowAutoTopicCreation", "defaultNumPartitions"):
            found["autoTopicCreationOverride"] = {
                "allowAutoTopicCreation": self.of("allowAutoTopicCreation"),
                "topicType": self.of("allowAutoTopicCreationType"),
                "defaultNumPartitions": self.of("defaultNumPartitions"),
            }
        if self._are_set("allowAutoSubscriptionCreation"):
            allowed = self.of("allowAutoSubscriptionCreation")
            found["autoSubscriptionCreationOverride"] = {"allowAutoSubscriptionCreation": allowed}
        if self._are_set("brokerDeleteInactiveTopics"):
            found["inactive_topic_policies"] = {
                "inactiveTopicDeleteMode": self.of("brokerDeleteInactiveTopicsMode"),
                "maxInactiveDurationSeconds": self.of("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds"),
                "deleteWhileInactive": self.of("brokerDeleteInactiveTopicsEnabled"),
            }
        if self._are_set("isAllowAutoUpdateSchemaEnabled"):
            found["is_allow_auto_update_schema"] = self.of("isAllowAutoUpdateSchemaEnabled")
        if self._are_set("maxTopicsPerNamespace"):
            found["max_topics_per_namespace"] = self.of("maxTopicsPerNamespace")
        if self._are_set("subscriptionTypesEnabled"):
            found["subscription_types_enabled"] = self.of("subscriptionTypesEnabled")
        return found

    def _are_set(self, *starts: str) -> bool:
        return any(name.startswith(starts) for name in self.set)

    def _dispatching(self, start: str) -> Json:
        return {
            CLUSTER: {
                "dispatchThrottlingRateInMsg": self.of(f"{start}Msg"),
                "dispatchThrottlingRateInByte": self.of(f"{start}Byte"),
                "relativeToPublishRate": False,
                "ratePeriodInSecond": 1,
            }
        }
