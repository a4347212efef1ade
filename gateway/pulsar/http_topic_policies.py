"""REST: policies of one topic, which override those of its namespace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from mq_shards.acceptor.protocols.pulsar.names import TopicName
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar import offload, scalars
from mq_shards.gateway.pulsar.catalog import CLUSTER, Json, Topic, topic_record
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.policies import MAX_UNACKED_PER_CONSUMER, MAX_UNACKED_PER_SUBSCRIPTION
from mq_shards.gateway.pulsar.policy_checks import (
    POLICIES,
    QUOTA_TYPES,
    Needed,
    Policy,
    check_filters,
    dispatch_rate,
    exceeds,
    or_none,
    quota_exceeds,
    quota_of,
    quota_type,
    rate_of,
    whole,
)
from mq_shards.gateway.pulsar.refusals import RefusedError, not_found, precondition, too_many
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Handler, Routes, json_of, object_of

TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
QUOTAS: Final = "backlog_quota_map"
OF_SUBSCRIPTIONS: Final = "dispatchRateOfSubscriptions"
_SIZES: Final = (
    "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller than that in the broker-level"
)
MAX_RATES: Final = 100  # subscriptions of a topic with a rate of their own


@dataclass(frozen=True, slots=True)
class _TopicPolicy:
    """Like Policy, for a topic. `unset`: the status of a GET if it is not set."""

    key: str
    checked: Callable[[Any], Any]
    unset: int = 200
    nothing: Any = None  # the answer to such a GET
    is_rate: bool = False  # stored by cluster, of which there is one


def _as(policy: Policy, unset: int = 200, nothing: Any = None) -> _TopicPolicy:  # noqa: ANN401
    return _TopicPolicy(policy.key, policy.checked, unset, nothing)


def _or_none(policy: Policy) -> _TopicPolicy:
    """One that an empty body removes, though it does not in a namespace."""
    return replace(_as(policy), checked=or_none(policy.checked))


def _number(policy: str, name: str) -> _TopicPolicy:
    """One that has another name than in a namespace."""
    return replace(_as(POLICIES[policy]), checked=whole(name, 0))


def _invalid(name: str, unset: int) -> _TopicPolicy:
    """One of which a number that is too small is said to be wrong in other words than of a namespace's."""
    return replace(_as(POLICIES[name], unset), checked=whole(name, 0, f"Invalid value for {name}"))


def _unacked(where: str) -> _TopicPolicy:
    return replace(_as(POLICIES[f"maxUnackedMessagesPer{where}"]), checked=or_none(whole("maxUnackedNum", 0)))


def _rate_shown(found: Any) -> Any:  # noqa: ANN401
    return next(iter(found.values())) if isinstance(found, dict) and found else None


def _replication(given: Any) -> list[str]:  # noqa: ANN401
    if not isinstance(given, list) or not given:
        raise precondition("ClusterIds should not be null or empty")
    if CLUSTER not in given:
        raise precondition("Can not remove local cluster from the local topic-level replication clusters policy")
    for cluster in given:
        if cluster != CLUSTER:
            raise RefusedError(403, "NotAllowedError", f"Invalid cluster id: {cluster}")
    return [CLUSTER]


_POLICIES: Final[dict[str, _TopicPolicy]] = {
    "retention": _as(POLICIES["retention"]),
    "maxProducers": _number("maxProducersPerTopic", "maxProducers"),
    "maxConsumers": _number("maxConsumersPerTopic", "maxConsumers"),
    "maxConsumersPerSubscription": _invalid("maxConsumersPerSubscription", 204),
    "maxSubscriptionsPerTopic": _as(POLICIES["maxSubscriptionsPerTopic"], 204),
    "maxUnackedMessagesOnConsumer": _unacked("Consumer"),
    "maxUnackedMessagesOnSubscription": _unacked("Subscription"),
    "maxMessageSize": _TopicPolicy("max_message_size", whole("topic-level maxMessageSize", 0, _SIZES), 204),
    "delayedDelivery": _as(POLICIES["delayedDelivery"]),
    "deduplicationEnabled": _or_none(POLICIES["deduplication"]),
    "publishRate": _TopicPolicy("publishMaxMessageRate", rate_of, 204, is_rate=True),
    "dispatchRate": replace(_as(POLICIES["dispatchRate"]), is_rate=True),
    "subscriptionDispatchRate": replace(_as(POLICIES["subscriptionDispatchRate"]), is_rate=True),
    "replicatorDispatchRate": replace(_as(POLICIES["replicatorDispatchRate"]), is_rate=True),
    "subscribeRate": replace(_as(POLICIES["subscribeRate"]), is_rate=True),
    "persistence": _as(POLICIES["persistence"]),
    "compactionThreshold": _invalid("compactionThreshold", 200),
    "inactiveTopicPolicies": _as(POLICIES["inactiveTopicPolicies"]),
    "subscriptionTypesEnabled": _as(POLICIES["subscriptionTypesEnabled"], nothing=[]),
    "schemaCompatibilityStrategy": _as(POLICIES["schemaCompatibilityStrategy"], 204),
    "autoSubscriptionCreation": _as(POLICIES["autoSubscriptionCreation"]),
    "schemaValidationEnforced": _as(POLICIES["schemaValidationEnforced"], nothing=False),
    "dispatcherPauseOnAckStatePersistent": _as(POLICIES["dispatcherPauseOnAckStatePersistent"], nothing=False),
    "deduplicationSnapshotInterval": replace(
        _as(POLICIES["deduplicationSnapshotInterval"]), checked=or_none(whole("interval", 0))
    ),
    "replication": _TopicPolicy("replication_clusters", _replication),
    "offloadPolicies": _as(POLICIES["offloadPolicies"]),
}
_TTL: Final = POLICIES["messageTTL"]
# What holds for a topic where neither it nor its namespace has a policy, as a real standalone shows it; by key.
_NO_RATE: Final = {
    "dispatchThrottlingRateInMsg": 0, "dispatchThrottlingRateInByte": 0, "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}  # fmt: skip
_NO_QUOTA: Final = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
_APPLIED: Final[dict[str, Any]] = {
    POLICIES["dispatchRate"].key: {CLUSTER: _NO_RATE},
    POLICIES["subscriptionDispatchRate"].key: {CLUSTER: _NO_RATE},
    POLICIES["replicatorDispatchRate"].key: {CLUSTER: _NO_RATE},
    POLICIES["subscribeRate"].key: {CLUSTER: {"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 30}},
    POLICIES["retention"].key: {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
    _TTL.key: 0,
    POLICIES["maxProducersPerTopic"].key: 0,
    POLICIES["maxConsumersPerTopic"].key: 0,
    POLICIES["maxUnackedMessagesPerConsumer"].key: MAX_UNACKED_PER_CONSUMER,
    POLICIES["maxUnackedMessagesPerSubscription"].key: MAX_UNACKED_PER_SUBSCRIPTION,
    POLICIES["delayedDelivery"].key: {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 0},
    POLICIES["persistence"].key: {
        "bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 1.0,
    },
    POLICIES["compactionThreshold"].key: 0,
    # Unlike those of a real broker, topics that nobody uses stay.
    POLICIES["inactiveTopicPolicies"].key: {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 60,
        "deleteWhileInactive": False,
    },
    POLICIES["schemaCompatibilityStrategy"].key: "FULL",
    POLICIES["autoSubscriptionCreation"].key: {"allowAutoSubscriptionCreation": True},
    "replication_clusters": [CLUSTER],
    QUOTAS: dict.fromkeys(QUOTA_TYPES, _NO_QUOTA),
}  # fmt: skip


class HttpTopicPolicies:
    def __init__(self, control: Control, *, deduplicates: bool) -> None:
        """`deduplicates`: whether topics do for which nobody has said it."""
        self._control = control
        self._applied = {**_APPLIED, POLICIES["deduplication"].key: deduplicates}
        self.routes: Routes = {
            f"{TOPIC}/messageTTL": {
                "GET": self._getting(_as(_TTL)), "POST": self._set_ttl, "DELETE": self._unsetting(_TTL.key),
            },
            f"{TOPIC}/{{subscription}}/dispatchRate": {
                "GET": self._rate_of_one, "POST": self._set_rate_of_one, "DELETE": self._no_rate_of_one,
            },
            f"{TOPIC}/policies": {"DELETE": self._delete_all},
            f"{TOPIC}/shadowTopics": {"GET": self._unset, "PUT": self._no_shadows, "DELETE": self._keep_unset},
            f"{TOPIC}/entryFilters": {"GET": self._filters, "POST": self._no_filters, "DELETE": self._keep_unset},
            f"{TOPIC}/backlogQuotaMap": {"GET": self._quotas},
            f"{TOPIC}/backlogQuota": {"POST": self._set_quota, "DELETE": self._no_quota},
        }  # fmt: skip
        for name, policy in _POLICIES.items():
            setting = self._setting(policy)
            self.routes[f"{TOPIC}/{name}"] = {
                "GET": self._getting(policy), "POST": setting, "PUT": setting, "DELETE": self._unsetting(policy.key),
            }  # fmt: skip

    async def _unset(self, call: Call) -> Answer:
        await self._found(call)
        return json_of(None)

    async def _keep_unset(self, call: Call) -> Answer:
        await self._found(call)
        return NO_CONTENT

    async def _filters(self, call: Call) -> Answer:
        await self._found(call)
        return json_of({"entryFilterNames": ""} if call.flag("applied") else None)

    async def _no_filters(self, call: Call) -> Answer:
        given = await call.json()
        await self._found(call)
        check_filters(given)
        return NO_CONTENT

    async def _no_shadows(self, call: Call) -> Answer:
        given = await call.json()
        await self._found(call)
        if not given:
            raise precondition("Cannot specify empty shadow topics, please use remove command instead.")
        raise RefusedError(501, "NotAllowedError", "this broker has no shadow topics")

    async def _delete_all(self, call: Call) -> Answer:
        """Removes all policies of a topic; it need not exist."""
        name = call.topic(self._control)
        topic = self._control.namespace(name.namespace).topics.get(str(name))
        if topic is not None and topic.policies:
            await self._put(name, topic, {})
        return NO_CONTENT

    async def _found(self, call: Call) -> tuple[TopicName, Topic]:
        """The topic, which must exist. One made by another protocol's client has no policies yet, but can have some; a
        partition has those of its topic."""
        name = call.topic(self._control)
        if name.partition >= 0:
            raise precondition("Not allowed to set/get topic policy for a partition")
        topic = self._control.namespace(name.namespace).topics.get(str(name))
        if topic is None:
            if not await self._control.exists(name):
                raise not_found(f"Topic {name} not found")
            topic = Topic()
        return name, topic

    async def _set(self, call: Call, key: str, value: Any) -> Answer:  # noqa: ANN401
        """Sets a policy; None: removes it."""
        name, topic = await self._found(call)
        policies = {one: what for one, what in topic.policies.items() if one != key}
        if value is not None:
            policies[key] = value
        await self._put(name, topic, policies)
        return NO_CONTENT

    async def _put(self, name: TopicName, topic: Topic, policies: Json) -> None:
        await self._control.store.commit(topic_record(name.namespace, str(name), replace(topic, policies=policies)))
        self._control.policies_changed(name.namespace, str(name))

    async def _value(self, call: Call, key: str) -> Any:  # noqa: ANN401
        """A policy of the topic; with the flag `applied`, if it has none, that of its namespace, or what holds then."""
        name, topic = await self._found(call)
        of_namespace = self._control.of_namespace(self._control.namespace(name.namespace))
        await self._control.store.settled()
        if not call.flag("applied"):
            return topic.policies.get(key)
        if key == offload.KEY:
            return offload.applied(topic.policies.get(key), of_namespace.get(key))
        found = (policies.get(key) for policies in (topic.policies, of_namespace, self._applied))
        return next((one for one in found if one is not None), None)

    def _getting(self, policy: _TopicPolicy) -> Handler:
        async def get(call: Call) -> Answer:
            found = await self._value(call, policy.key)
            if found is None:
                return json_of(policy.nothing) if policy.unset == 200 else Answer(policy.unset)
            return json_of(_rate_shown(found) if policy.is_rate else found)

        return get

    def _setting(self, policy: _TopicPolicy) -> Handler:
        async def put(call: Call) -> Answer:
            given = await call.json(needed=isinstance(policy.checked, Needed))
            if given is None and policy.is_rate:  # a real broker does nothing then
                await self._found(call)
                return NO_CONTENT
            checked = policy.checked(given)
            if policy.key == "retention_policies":
                name, topic = await self._found(call)
                of_namespace = self._control.namespace(name.namespace).policies
                quotas = {**of_namespace.get(QUOTAS, {}), **topic.policies.get(QUOTAS, {})}
                if any(exceeds(quota, checked) for quota in quotas.values()):
                    raise precondition(
                        "Retention Quota must exceed configured backlog quota for topic. Please increase retention "
                        "quota and retry"
                    )
            return await self._set(call, policy.key, checked)

        return put

    def _unsetting(self, key: str) -> Handler:
        async def unset(call: Call) -> Answer:
            return await self._set(call, key, None)

        return unset

    async def _set_ttl(self, call: Call) -> Answer:
        """Sets the TTL, a number in the query or in the body."""
        text = call.fields.get("messageTTL", "")
        given = int(text) if text.lstrip("-").isascii() and text.lstrip("-").isdigit() else await call.json()
        found = None if given is None else scalars.whole(given, "message TTL")
        if found is not None and found < 0:
            raise precondition("Invalid value for message TTL")
        return await self._set(call, _TTL.key, found)

    async def _rate_of_one(self, call: Call) -> Answer:
        """The rate of one subscription, which overrides the rate for all subscriptions of the topic."""
        own = (await self._value(call, OF_SUBSCRIPTIONS) or {}).get(call.names["subscription"])
        if own is None and call.flag("applied"):
            own = _rate_shown(await self._value(call, POLICIES["subscriptionDispatchRate"].key))
        return json_of(own)

    async def _set_rate_of_one(self, call: Call) -> Answer:
        return await self._put_rate_of_one(call, dispatch_rate(await call.json()))

    async def _no_rate_of_one(self, call: Call) -> Answer:
        return await self._put_rate_of_one(call, None)

    async def _put_rate_of_one(self, call: Call, rate: Json | None) -> Answer:
        name = call.names["subscription"]
        _, topic = await self._found(call)
        rates = {one: what for one, what in topic.policies.get(OF_SUBSCRIPTIONS, {}).items() if one != name}
        if rate is not None:
            rates[name] = rate
        if len(rates) > MAX_RATES:
            raise too_many("there are as many subscriptions with a rate of their own as a topic may have")
        return await self._set(call, OF_SUBSCRIPTIONS, rates or None)

    async def _quotas(self, call: Call) -> Answer:
        return json_of(await self._value(call, QUOTAS) or {})

    async def _set_quota(self, call: Call) -> Answer:
        given = await call.json()
        if given is None:
            return await self._no_quota(call)
        kind, quota = quota_type(call), quota_of(object_of(given), call.namespace)
        name, topic = await self._found(call)
        of_namespace = self._control.namespace(name.namespace).policies.get("retention_policies")
        if exceeds(quota, topic.policies.get("retention_policies") or of_namespace):
            raise quota_exceeds("topic")
        return await self._set(call, QUOTAS, {**topic.policies.get(QUOTAS, {}), kind: quota})

    async def _no_quota(self, call: Call) -> Answer:
        kind = quota_type(call)
        _, topic = await self._found(call)
        left = {one: quota for one, quota in topic.policies.get(QUOTAS, {}).items() if one != kind}
        return await self._set(call, QUOTAS, left or None)
