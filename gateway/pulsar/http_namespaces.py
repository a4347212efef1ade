"""REST: namespaces, their policies and permissions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mq_shards.acceptor.protocols.pulsar.names import PulsarNameError, check_entity
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar import policies as policies_module
from mq_shards.gateway.pulsar import scalars
from mq_shards.gateway.pulsar.bundles import BUNDLES
from mq_shards.gateway.pulsar.catalog import CLUSTER, Json, Namespace
from mq_shards.gateway.pulsar.control import MAX_NAMESPACES, Control
from mq_shards.gateway.pulsar.refusals import RefusedError, conflict, not_found, precondition, too_many
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Handler, Routes, json_of, object_of, text_of
from mq_shards.gateway.pulsar.schemas import STRATEGIES

NO_NAMESPACE: Final = "Namespace does not exist"
ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")
QUOTA_TYPES: Final = ("destination_storage", "message_age")
QUOTA_POLICIES: Final = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
INACTIVE_MODES: Final = ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")
MAX_ROLES: Final = 1000
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
    if time < -1 or size < -1:
        raise precondition("Invalid retention policy: retention limits are -1 or more")
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
    found = _numbers(given, {**{f"bookkeeper{kind}": 0 for kind in kinds}, "managedLedgerMaxMarkDeleteRate": 0.0})
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
        if count is not None and kind == "partitioned" and not 0 < count <= 4096:
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
    mode = given.get("inactiveTopicDeleteMode", INACTIVE_MODES[0])
    if mode not in INACTIVE_MODES or (found["deleteWhileInactive"] and found["maxInactiveDurationSeconds"] <= 0):
        raise precondition("Invalid inactive topic policies")
    return {"inactiveTopicDeleteMode": mode, **found}


def _check_enum(given: Any) -> None:  # noqa: ANN401
    """Refuses a body that cannot name one of several values: a real broker takes words and numbers."""
    if given is not None and (isinstance(given, bool) or not isinstance(given, str | int)):
        raise RefusedError(400, "MetadataError", "the body is neither a word nor a number")


def _strategy(given: Any) -> str:  # noqa: ANN401
    """A string or number that is not a strategy counts as UNDEFINED."""
    _check_enum(given)
    return given if isinstance(given, str) and given in STRATEGIES else "UNDEFINED"


def rate_of(given: Any) -> Json | None:  # noqa: ANN401
    if given is None:
        return None
    return {CLUSTER: _numbers(given, {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1})}


def replicator_rate(given: Any) -> Json | None:  # noqa: ANN401
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


def dispatch_rate(given: Any) -> Json | None:  # noqa: ANN401
    found = replicator_rate(given)
    if found is not None and found["relativeToPublishRate"]:
        raise RefusedError(501, "NotAllowedError", "this broker has no rates relative to that of publishing")
    return found


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


def only_here(given: Any, tenant: str) -> list[str]:  # noqa: ANN401
    """Clusters, of which there is one."""
    for cluster in given:
        if cluster != CLUSTER:
            why = f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{tenant}]"
            raise RefusedError(403, "NotAllowedError", why)
    return [CLUSTER]


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
    "replicatorDispatchRate": Policy("replicatorDispatchRate", by_cluster(replicator_rate), of_cluster=True),
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
# Policies of a real broker that this one does not have: they are never set, and cannot be.
_NOT_HERE: Final = {  # and what a GET shows
    "offloadPolicies": None, "offloadThreshold": -1, "offloadThresholdInSeconds": -1,
    "offloadDeletionLagMs": None, "resourcegroup": None, "migration": None,
}  # fmt: skip


class HttpNamespaces:
    def __init__(self, control: Control) -> None:
        self._control = control
        ns = "/admin/v2/namespaces/{tenant}/{namespace}"
        self.routes: Routes = {
            "/admin/v2/namespaces/{tenant}": {"GET": self._list},
            ns: {"GET": self._get, "PUT": self._make, "DELETE": self._delete},
            f"{ns}/topics": {"GET": self._topics},
            f"{ns}/bundles": {"GET": self._bundles},
            f"{ns}/unload": {"PUT": self._unload},
            f"{ns}/replication": {"GET": self._replication, "POST": self._set_replication},
            f"{ns}/allowedClusters": {"GET": self._allowed_clusters, "POST": self._set_allowed_clusters},
            f"{ns}/subscriptionAuthMode": {"GET": self._auth_mode, "POST": self._set_auth_mode},
            f"{ns}/permissions": {"GET": self._permissions},
            f"{ns}/permissions/subscription": {"GET": self._subscription_permissions},
            f"{ns}/permissions/{{role}}": {"POST": self._grant, "DELETE": self._revoke},
            # To grant the path is subscription/NAME, to revoke NAME/ROLE.
            f"{ns}/permissions/{{role}}/{{of}}": {
                "POST": self._grant_subscription,
                "DELETE": self._revoke_subscription,
            },
            f"{ns}/properties": {"GET": self._properties, "PUT": self._set_properties, "DELETE": self._no_properties},
            f"{ns}/property/{{key}}": {"GET": self._property, "DELETE": self._no_property},
            f"{ns}/property/{{key}}/{{value}}": {"PUT": self._set_property},
            f"{ns}/publishRate": {"GET": self._rate, "POST": self._set_rate, "DELETE": self._no_rate},
            f"{ns}/backlogQuotaMap": {"GET": self._quotas},
            f"{ns}/backlogQuota": {"POST": self._set_quota, "DELETE": self._no_quota},
            f"{ns}/entryFilters": {
                "GET": self._unset(None), "POST": self._no_filters, "DELETE": self._keep_unset,
            },
            f"{ns}/persistence/bookieAffinity": {
                "GET": self._keep_unset, "POST": self._not_here, "DELETE": self._keep_unset,
            },
            f"{ns}/antiAffinity": {"GET": self._keep_unset, "POST": self._not_here, "DELETE": self._keep_unset},
            # The first part of this path is a cluster.
            "/admin/v2/namespaces/{tenant}/antiAffinity/{namespace}": {"GET": self._anti_affinity},
            f"{ns}/schemaAutoUpdateCompatibilityStrategy": {"GET": self._keep_unset, "PUT": self._not_here},
        }  # fmt: skip
        for name, policy in POLICIES.items():
            methods = {"GET": self._getting(policy), policy.setting: self._setting(policy)}
            if policy.can_go:
                methods["DELETE"] = self._unsetting(policy)
            self.routes[f"{ns}/{name}"] = methods
        for name, shown in _NOT_HERE.items():
            self.routes[f"{ns}/{name}"] = {
                "GET": self._unset(shown), "POST": self._not_here, "PUT": self._not_here, "DELETE": self._keep_unset,
            }  # fmt: skip

    async def _anti_affinity(self, call: Call) -> Answer:
        """The namespaces of an anti-affinity group: there are none."""
        if call.names["tenant"] != CLUSTER:
            raise precondition(f"Cluster {call.names['tenant']} does not exist.")
        return json_of([])

    # --- namespaces -------------------------------------------------------------------------------------------------

    def _found(self, call: Call, reason: str = NO_NAMESPACE) -> Namespace:
        return self._control.namespace(call.namespace, reason)

    async def _list(self, call: Call) -> Answer:
        self._control.store.check()
        if call.names["tenant"] not in self._control.store.catalog.tenants:
            raise not_found("Tenant not found")
        await self._control.store.settled()
        return json_of(self._control.store.catalog.namespaces_of(call.names["tenant"]))

    async def _get(self, call: Call) -> Answer:
        found = self._found(call)
        await self._control.store.settled()
        shown = policies_module.shown(found.policies)
        of_topics = {name: topic.permissions for name, topic in found.topics.items() if topic.permissions}
        return json_of({**shown, "auth_policies": {**shown["auth_policies"], "destination_auth": of_topics}})

    async def _make(self, call: Call) -> Answer:
        given = await call.object()
        self._control.store.check()
        catalog = self._control.store.catalog
        if call.names["tenant"] not in catalog.tenants:
            raise not_found("Tenant does not exist")
        try:
            check_entity(call.names["namespace"])
        except PulsarNameError:
            raise precondition("Namespace name is not valid") from None
        if call.namespace in catalog.namespaces:
            raise conflict("Namespace already exists")
        if len(catalog.namespaces) >= MAX_NAMESPACES:
            raise too_many("there are as many namespaces as there may be")
        await self._control.set_policies(call.namespace, _given_policies(given))
        return NO_CONTENT

    async def _delete(self, call: Call) -> Answer:
        self._found(call, f"Namespace {call.namespace} does not exist.")
        if call.flag("force"):
            raise RefusedError(405, "NotAllowedError", "Broker doesn't allow forced deletion of namespaces")
        names = await self._control.topics_of_mode(call.namespace, "ALL")
        if names or self._found(call).topics:
            raise conflict("Cannot delete non empty namespace")
        await self._control.store.commit({"do": "no-namespace", "name": call.namespace})
        self._control.policies_changed(call.namespace)
        return NO_CONTENT

    async def _topics(self, call: Call) -> Answer:
        mode = call.fields.get("mode", "PERSISTENT")
        if mode not in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
            raise precondition(f"Invalid query parameter mode: {mode}")
        names = await self._control.topics_of_mode(call.namespace, mode)
        await self._control.store.settled()
        return json_of(names)

    async def _bundles(self, call: Call) -> Answer:
        self._found(call)
        return json_of(BUNDLES)

    async def _replication(self, call: Call) -> Answer:
        self._found(call)
        return json_of([CLUSTER])

    async def _set_replication(self, call: Call) -> Answer:
        """Accepts only the one cluster that there is."""
        given = await call.json()
        self._found(call)
        if not isinstance(given, list) or not given:
            raise precondition("ClusterIds should not be null or empty")
        for cluster in given:
            if cluster != CLUSTER:
                raise RefusedError(403, "NotAllowedError", f"Invalid cluster id: {cluster}")
        return NO_CONTENT

    async def _allowed_clusters(self, call: Call) -> Answer:
        return json_of(self._found(call).policies.get("allowed_clusters", []))

    async def _set_allowed_clusters(self, call: Call) -> Answer:
        given = await call.json()
        found = self._found(call)
        if not isinstance(given, list) or not given:
            raise precondition("ClusterIds should not be null or empty")
        clusters = only_here(given, call.names["tenant"])
        await self._control.set_policies(call.namespace, {**found.policies, "allowed_clusters": clusters})
        return Answer(200)

    async def _auth_mode(self, call: Call) -> Answer:
        self._found(call)
        return json_of("None")

    async def _set_auth_mode(self, call: Call) -> Answer:
        """Names of subscriptions are nobody's, whatever role uses them."""
        given = await call.json()
        self._found(call)
        _check_enum(given)
        if given == "Prefix":
            raise RefusedError(501, "NotAllowedError", "this broker does not tie names of subscriptions to roles")
        return NO_CONTENT

    async def _unload(self, call: Call) -> Answer:
        self._found(call, "Namespace not found")
        names = await self._control.topics_of_mode(call.namespace, "ALL")
        await self._control.clients.close(names)
        return NO_CONTENT

    # --- permissions ------------------------------------------------------------------------------------------------

    @staticmethod
    def _granted(found: Namespace, to: str = "namespace_auth") -> dict[str, list[str]]:
        """Granted actions by role or, in subscription_auth_roles, roles by subscription."""
        granted: dict[str, list[str]] = found.policies.get("auth_policies", {}).get(to, {})
        return granted

    async def _permissions(self, call: Call) -> Answer:
        found = self._granted(self._found(call))
        await self._control.store.settled()
        return json_of(found)

    async def _set_granted(self, call: Call, granted: dict[str, list[str]], to: str = "namespace_auth") -> Answer:
        if len(granted) > MAX_ROLES or any(len(some) > MAX_ROLES for some in granted.values()):
            raise too_many("there are as many roles as there may be")
        before = self._found(call).policies.get("auth_policies", {})
        empty: Json = {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}}
        answer = await self._set(call, "auth_policies", {**empty, **before, to: granted})
        self._control.permissions_changed(call.names["tenant"])
        return answer

    async def _grant(self, call: Call) -> Answer:
        actions = await actions_of(call)
        granted = self._granted(self._found(call, "Topic's namespace does not exist"))
        return await self._set_granted(call, {**granted, call.names["role"]: actions})

    async def _revoke(self, call: Call) -> Answer:
        granted = self._granted(self._found(call))
        return await self._set_granted(
            call, {role: what for role, what in granted.items() if role != call.names["role"]}
        )

    async def _subscription_permissions(self, call: Call) -> Answer:
        found = self._granted(self._found(call), "subscription_auth_roles")
        await self._control.store.settled()
        return json_of(found)

    async def _grant_subscription(self, call: Call) -> Answer:
        roles = await call.json()
        if call.names["role"] != "subscription":
            raise RefusedError(404, "MetadataError", "HTTP 404 Not Found")
        if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
            raise RefusedError(400, "MetadataError", "the body is not a list of roles")
        granted = self._granted(self._found(call), "subscription_auth_roles")
        granted = {**granted, call.names["of"]: sorted(set(roles))}
        return await self._set_granted(call, granted, "subscription_auth_roles")

    async def _revoke_subscription(self, call: Call) -> Answer:
        granted = dict(self._granted(self._found(call), "subscription_auth_roles"))
        left = [role for role in granted.pop(call.names["role"], []) if role != call.names["of"]]
        if left:
            granted[call.names["role"]] = left
        return await self._set_granted(call, granted, "subscription_auth_roles")

    # --- properties -------------------------------------------------------------------------------------------------

    async def _properties(self, call: Call) -> Answer:
        return json_of(self._found(call).policies.get("properties", {}))

    async def _set_properties(self, call: Call) -> Answer:
        given = await call.texts()
        return await self._put_properties(call, {**self._found(call).policies.get("properties", {}), **given})

    async def _no_properties(self, call: Call) -> Answer:
        self._found(call)
        return await self._put_properties(call, {})

    async def _property(self, call: Call) -> Answer:
        found = self._found(call).policies.get("properties", {}).get(call.names["key"])
        return json_of(None) if found is None else text_of(found)

    async def _set_property(self, call: Call) -> Answer:
        properties = self._found(call).policies.get("properties", {})
        return await self._put_properties(call, {**properties, call.names["key"]: call.names["value"]})

    async def _no_property(self, call: Call) -> Answer:
        properties = dict(self._found(call).policies.get("properties", {}))
        before = properties.pop(call.names["key"], None)
        await self._put_properties(call, properties)
        return json_of(None) if before is None else text_of(before)

    async def _put_properties(self, call: Call, properties: dict[str, str]) -> Answer:
        if len(properties) > 64 or sum(len(name) + len(value) for name, value in properties.items()) > 4096:
            raise precondition("properties are 64 and 4096 bytes at most")
        return await self._set(call, "properties", properties)

    # --- policies ---------------------------------------------------------------------------------------------------

    async def _set(self, call: Call, key: str, value: Any) -> Answer:  # noqa: ANN401
        """Sets a policy; None: removes it."""
        policies = {name: what for name, what in self._found(call).policies.items() if name != key}
        if value is not None:
            policies[key] = value
        await self._control.set_policies(call.namespace, policies)
        return NO_CONTENT

    def _getting(self, policy: Policy) -> Handler:
        async def get(call: Call) -> Answer:
            found = self._found(call).policies.get(policy.key, policy.default)
            if policy.of_cluster:
                found = (found or {}).get(CLUSTER)
            await self._control.store.settled()
            return json_of(found)

        return get

    def _setting(self, policy: Policy) -> Handler:
        async def put(call: Call) -> Answer:
            given = await call.json(needed=isinstance(policy.checked, Needed))
            policies = self._found(call).policies
            checked = policy.checked(given)
            quota = policies.get("backlog_quota_map", {}).get(QUOTA_TYPES[0])
            if policy.key == "retention_policies" and exceeds(quota, checked):
                raise precondition("Retention Quota must exceed configured backlog quota for namespace.")
            return await self._set(call, policy.key, _beside_others(policies, policy, checked))

        return put

    def _unsetting(self, policy: Policy) -> Handler:
        nothing = False if policy.default is False else None  # as a real broker, flags stay among what is set

        async def unset(call: Call) -> Answer:
            return await self._set(call, policy.key, _beside_others(self._found(call).policies, policy, nothing))

        return unset

    async def _rate(self, call: Call) -> Answer:
        return json_of(self._found(call).policies.get("publishMaxMessageRate", {}).get(CLUSTER))

    async def _set_rate(self, call: Call) -> Answer:
        given = await call.json()
        return await self._set(call, "publishMaxMessageRate", rate_of(given))

    async def _no_rate(self, call: Call) -> Answer:
        return await self._set(call, "publishMaxMessageRate", None)

    async def _quotas(self, call: Call) -> Answer:
        return json_of(self._found(call).policies.get("backlog_quota_map", {}))

    async def _set_quota(self, call: Call) -> Answer:
        kind, quota = quota_type(call), quota_of(await call.object())
        policies = self._found(call).policies
        if kind == QUOTA_TYPES[0] and exceeds(quota, policies.get("retention_policies")):
            raise quota_exceeds("namespace")
        quotas = {**policies.get("backlog_quota_map", {}), kind: quota}
        return await self._set(call, "backlog_quota_map", quotas)

    async def _no_quota(self, call: Call) -> Answer:
        kind = quota_type(call)
        quotas = self._found(call).policies.get("backlog_quota_map", {})
        return await self._set(call, "backlog_quota_map", {name: q for name, q in quotas.items() if name != kind})

    def _unset(self, shown: int | None) -> Handler:
        async def get(call: Call) -> Answer:
            self._found(call)
            return json_of(shown)

        return get

    async def _keep_unset(self, call: Call) -> Answer:
        self._found(call)
        return NO_CONTENT

    async def _no_filters(self, call: Call) -> Answer:
        given = await call.json()
        self._found(call)
        check_filters(given)
        return NO_CONTENT

    async def _not_here(self, call: Call) -> Answer:
        self._found(call)
        raise RefusedError(501, "NotAllowedError", "this broker has no such policy")


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


def quota_of(given: Json) -> Json:
    if given.get("policy") not in QUOTA_POLICIES:
        raise precondition(f"policy is one of {', '.join(QUOTA_POLICIES)}")
    sizes = {
        "limitSize": given.get("limitSize", given.get("limit", 0)) or 0,
        "limitTime": given.get("limitTime") or 0,
    }
    found = _numbers(sizes, {"limitSize": 0, "limitTime": 0})
    return {"limit": found["limitSize"], **found, "policy": given["policy"]}


async def actions_of(call: Call) -> list[str]:
    """The actions in the body. Like a real broker, ignores unknown ones."""
    given = await call.json()
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise RefusedError(400, "MetadataError", "the body is not a list of actions")
    return [action for action in ACTIONS if action in given]


def _beside_others(policies: Json, policy: Policy, value: Any) -> Any:  # noqa: ANN401
    """The new value of a policy; None: it goes. What is stored for other clusters stays."""
    if not policy.of_cluster:
        return value
    others = {cluster: rate for cluster, rate in (policies.get(policy.key) or {}).items() if cluster != CLUSTER}
    return {**others, **(value or {})} or None


def _given_policies(given: Json) -> Json:
    """The policies with which a namespace is made: those that can be set one by one, checked in the same way."""
    found: Json = {}
    for policy in POLICIES.values():
        wanted = given.get(policy.key)
        if policy.of_cluster and wanted is not None:
            if not isinstance(wanted, dict):
                raise RefusedError(400, "MetadataError", f"{policy.key} is given by cluster")
            rates = {cluster: policy.checked(rate) for cluster, rate in wanted.items()}
            found[policy.key] = {cluster: rate[CLUSTER] for cluster, rate in rates.items() if rate is not None}
        elif wanted is not None:
            found[policy.key] = policy.checked(wanted)
    return found
