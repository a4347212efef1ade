"""REST: namespaces, their policies and permissions."""

from __future__ import annotations

from typing import Any, Final

from mq_shards.acceptor.protocols.pulsar.names import PulsarNameError, check_entity, has_cluster, is_local
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar import bundles, offload, scalars
from mq_shards.gateway.pulsar import policies as policies_module
from mq_shards.gateway.pulsar.catalog import CLUSTER, Json, Namespace
from mq_shards.gateway.pulsar.control import (
    CLUSTERS,
    MAX_NAMESPACES,
    NAMESPACE_NOT_FOUND,
    NO_NAMESPACE,
    NO_ROOM,
    Control,
)
from mq_shards.gateway.pulsar.policy_checks import (
    POLICIES,
    QUOTA_TYPES,
    Needed,
    Policy,
    check_enum,
    check_filters,
    exceeds,
    quota_exceeds,
    quota_of,
    quota_type,
    rate_of,
)
from mq_shards.gateway.pulsar.refusals import RefusedError, conflict, not_found, precondition, too_many
from mq_shards.gateway.pulsar.requests import JSON, NO_CONTENT, Call, Handler, Routes, json_of, object_of, text_of

ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")
GLOBAL: Final = "global"  # the cluster of a namespace that is of several
MAX_ROLES: Final = 1000
AUTH: Final = "auth_policies"
_NOTHING_GRANTED: Final[Json] = {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}}
ANTI_AFFINITY: Final = "anti_affinity_group"
MAX_GROUP_BYTES: Final = 1024
BOOKIES: Final = "bookie_affinity_group"
BOOKIE_GROUPS: Final = ("bookkeeperAffinityGroupPrimary", "bookkeeperAffinityGroupSecondary")
# What old clients set, and nobody obeys where there is a schema_compatibility_strategy.
OLD_STRATEGY: Final = "schema_auto_update_compatibility_strategy"
OLD_STRATEGIES: Final = (
    "AutoUpdateDisabled", "Backward", "Forward", "Full", "AlwaysCompatible", "BackwardTransitive", "ForwardTransitive",
    "FullTransitive",
)  # fmt: skip


def only_here(given: Any, tenant: str) -> list[str]:  # noqa: ANN401
    """Clusters, of which there is one."""
    for cluster in given:
        if cluster != CLUSTER:
            why = f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{tenant}]"
            raise RefusedError(403, "NotAllowedError", why)
    return [CLUSTER]


# Policies of a real broker that this one does not have: they are never set, and cannot be.
_NOT_HERE: Final = {  # and what a GET shows
    "migration": None,
}  # fmt: skip


_OFFLOADED: Final = {  # of the policies for offloading, each by itself, and what a GET shows if it is not set
    "offloadThreshold": (offload.BYTES, -1), "offloadThresholdInSeconds": (offload.SECONDS, -1),
    "offloadDeletionLagMs": (offload.LAG_MS, None),
}  # fmt: skip


class HttpNamespaces:
    def __init__(self, control: Control) -> None:
        self._control = control
        ns = "/admin/v2/namespaces/{tenant}/{namespace}"
        self.routes: Routes = {
            "/admin/v2/namespaces/{tenant}": {"GET": self._list},
            ns: {"GET": self._get, "PUT": self._make, "DELETE": self._delete},
            f"{ns}/topics": {"GET": self._topics},
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
                "GET": self._bookies, "POST": self._set_bookies, "DELETE": self._no_bookies,
            },
            f"{ns}/antiAffinity": {
                "GET": self._group, "POST": self._set_group, "DELETE": self._no_group,
            },
            # The first part of this path is a cluster.
            "/admin/v2/namespaces/{tenant}/antiAffinity/{namespace}": {"GET": self._anti_affinity},
            "/admin/namespaces/{tenant}/antiAffinity/{namespace}": {"GET": self._anti_affinity},  # of pulsar-admin
            f"{ns}/schemaAutoUpdateCompatibilityStrategy": {"GET": self._old_strategy, "PUT": self._set_old_strategy},
        }  # fmt: skip
        for name, policy in POLICIES.items():
            methods = {"GET": self._getting(policy), policy.setting: self._setting(policy)}
            if policy.can_go:
                methods["DELETE"] = self._unsetting(policy)
            self.routes[f"{ns}/{name}"] = methods
        self.routes[f"{ns}/removeOffloadPolicies"] = {"DELETE": self._not_offloaded}
        for name, (key, unset) in _OFFLOADED.items():
            self.routes[f"{ns}/{name}"] = {"GET": self._offloaded(key, unset), "PUT": self._set_offloaded(key)}
        self.routes[f"{ns}/offloadDeletionLagMs"]["DELETE"] = self._no_lag
        for name, shown in _NOT_HERE.items():
            self.routes[f"{ns}/{name}"] = {
                "GET": self._unset(shown), "POST": self._not_here, "PUT": self._not_here, "DELETE": self._keep_unset,
            }  # fmt: skip

    async def _anti_affinity(self, call: Call) -> Answer:
        """The namespaces of an anti-affinity group, which are all where there is one broker."""
        self._control.store.check()
        if call.names["tenant"] != CLUSTER:
            raise precondition(f"Cluster {call.names['tenant']} does not exist.")
        tenant = call.fields.get("tenant", call.fields.get("property"))
        if tenant is None:
            raise RefusedError(400, "MetadataError", "Tenant should not be null")
        catalog = self._control.store.catalog
        names = catalog.namespaces_of(tenant)
        group = call.names["namespace"]
        found = [name for name in names if catalog.namespaces[name].policies.get(ANTI_AFFINITY) == group]
        await self._control.store.settled()
        return json_of(found)

    async def _group(self, call: Call) -> Answer:
        """A name that is neither JSON to be read nor to be shown, as with a real broker."""
        found = self._found(call).policies.get(ANTI_AFFINITY)
        await self._control.store.settled()
        return NO_CONTENT if found is None else Answer(200, found.encode(), JSON)

    async def _set_group(self, call: Call) -> Answer:
        async with call.bodies.read_whole(call.request, MAX_GROUP_BYTES) as body:
            try:
                group = bytes(body).decode()
            except UnicodeDecodeError:
                raise RefusedError(400, "MetadataError", "the body is not UTF-8") from None
        if not group.strip():
            raise precondition("antiAffinityGroup can't be empty")
        return await self._set(call, ANTI_AFFINITY, group)

    async def _no_group(self, call: Call) -> Answer:
        return await self._set(call, ANTI_AFFINITY, None)

    async def _bookies(self, call: Call) -> Answer:
        found = self._found(call).policies.get(BOOKIES)
        await self._control.store.settled()
        return NO_CONTENT if found is None else json_of(found)

    async def _set_bookies(self, call: Call) -> Answer:
        given = await call.object()
        found = {name: given[name] for name in BOOKIE_GROUPS if given.get(name) is not None}
        if not all(isinstance(group, str) for group in found.values()):
            raise RefusedError(400, "MetadataError", "groups of bookies are names")
        return await self._set(call, BOOKIES, found)

    async def _no_bookies(self, call: Call) -> Answer:
        return await self._set(call, BOOKIES, None)

    async def _old_strategy(self, call: Call) -> Answer:
        found = self._found(call).policies.get(OLD_STRATEGY)
        await self._control.store.settled()
        return NO_CONTENT if found is None else json_of(found)

    async def _set_old_strategy(self, call: Call) -> Answer:
        given = await call.json()
        check_enum(given)
        return await self._set(call, OLD_STRATEGY, given if given in OLD_STRATEGIES else None)

    # --- namespaces -------------------------------------------------------------------------------------------------

    def _found(self, call: Call, reason: str = NO_NAMESPACE) -> Namespace:
        return self._control.namespace(call.namespace, reason, made=True)

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
        if has_cluster(call.namespace):
            shown[CLUSTERS] = found.policies.get(CLUSTERS, [])
        of_topics = {name: topic.permissions for name, topic in found.topics.items() if topic.permissions}
        return json_of({**shown, "auth_policies": {**shown["auth_policies"], "destination_auth": of_topics}})

    async def _make(self, call: Call) -> Answer:
        given = await call.object()
        self._control.store.check()
        catalog = self._control.store.catalog
        if call.names["tenant"] not in catalog.tenants:
            raise not_found("Tenant does not exist")
        for part in call.names["namespace"].split("/"):
            try:
                check_entity(part)
            except PulsarNameError:
                raise precondition("Namespace name is not valid") from None
        cluster = call.names.get("cluster", GLOBAL)
        if cluster not in (CLUSTER, GLOBAL):
            only_here([cluster], call.names["tenant"])
        found = catalog.namespaces.get(call.namespace)
        if found is not None and found.is_made:
            raise conflict("Namespace already exists")
        most = self._control.options.of("maxNamespacesPerTenant")
        if 0 < most <= len(catalog.namespaces_of(call.names["tenant"])):
            raise precondition(f"Exceed the maximum number of namespace in tenant :{call.names['tenant']}")
        if found is None and len(catalog.namespaces) >= MAX_NAMESPACES:
            raise too_many(NO_ROOM)
        policies = _given_policies(given)
        ranges = bundles.given(given.get(bundles.KEY), self._control.options.of("defaultNumberOfNamespaceBundles"))
        if ranges is not None:
            policies[bundles.KEY] = ranges
        await self._control.set_policies(call.namespace, policies)
        if AUTH in policies:
            self._control.permissions_changed(call.names["tenant"])
        return NO_CONTENT

    async def _delete(self, call: Call) -> Answer:
        reason = f"Namespace {call.namespace} does not exist."
        if call.flag("force"):
            if not self._control.options.of("forceDeleteNamespaceAllowed"):
                raise RefusedError(405, "NotAllowedError", "Broker doesn't allow forced deletion of namespaces")
            self._found(call, reason)
            await self._control.delete_topics(call.namespace)
        self._found(call, reason)
        names = await self._control.topics_of_mode(call.namespace, "ALL")
        if names or self._found(call).topics:
            raise conflict("Cannot delete non empty namespace")
        await self._control.delete_namespace(call.namespace)
        return NO_CONTENT

    async def _topics(self, call: Call) -> Answer:
        mode = call.fields.get("mode", "PERSISTENT")
        if mode not in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
            raise precondition(f"Invalid query parameter mode: {mode}")
        self._found(call)
        names = await self._control.topics_of_mode(call.namespace, mode)
        await self._control.store.settled()
        return json_of(names)

    async def _replication(self, call: Call) -> Answer:
        found = self._found(call)
        if is_local(call.namespace):
            raise precondition("Cannot get the replication clusters for a non-global namespace")
        return json_of(found.policies.get(CLUSTERS, [] if has_cluster(call.namespace) else [CLUSTER]))

    async def _set_replication(self, call: Call) -> Answer:
        """Accepts only the one cluster that there is."""
        given = await call.json()
        found = self._found(call)
        if not isinstance(given, list) or not given:
            raise precondition("ClusterIds should not be null or empty")
        for cluster in given:
            if cluster != CLUSTER:
                raise RefusedError(403, "NotAllowedError", f"Invalid cluster id: {cluster}")
        if not has_cluster(call.namespace):
            return NO_CONTENT
        await self._control.set_policies(call.namespace, {**found.policies, CLUSTERS: [CLUSTER]})
        return Answer(200)

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
        _check_auth_mode(given)
        return NO_CONTENT

    async def _unload(self, call: Call) -> Answer:
        self._found(call, NO_NAMESPACE if has_cluster(call.namespace) else NAMESPACE_NOT_FOUND)
        names = await self._control.topics_of_mode(call.namespace, "ALL")
        await self._control.clients.close(names)
        return NO_CONTENT

    # --- permissions ------------------------------------------------------------------------------------------------

    @staticmethod
    def _granted(found: Namespace, to: str = "namespace_auth") -> dict[str, list[str]]:
        """Granted actions by role or, in subscription_auth_roles, roles by subscription."""
        granted: dict[str, list[str]] = found.policies.get(AUTH, {}).get(to, {})
        return granted

    async def _permissions(self, call: Call) -> Answer:
        found = self._granted(self._found(call))
        await self._control.store.settled()
        return json_of(found)

    async def _set_granted(self, call: Call, granted: dict[str, list[str]], to: str = "namespace_auth") -> Answer:
        _check_roles(granted)
        before = self._found(call).policies.get(AUTH, {})
        answer = await self._set(call, AUTH, {**_NOTHING_GRANTED, **before, to: granted})
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

    async def _not_offloaded(self, call: Call) -> Answer:
        return await self._set(call, offload.KEY, None)

    def _offloaded(self, key: str, unset: int | None) -> Handler:
        async def get(call: Call) -> Answer:
            return json_of((self._found(call).policies.get(offload.KEY) or {}).get(key, unset))

        return get

    def _set_offloaded(self, key: str) -> Handler:
        async def put(call: Call) -> Answer:
            answer = await self._set_offload(call, key, scalars.whole(await call.json(), key))
            return Answer(200) if key == offload.SECONDS else answer  # as a real broker

        return put

    async def _no_lag(self, call: Call) -> Answer:
        return await self._set_offload(call, offload.LAG_MS, None)

    async def _set_offload(self, call: Call, key: str, value: int | None) -> Answer:
        before = self._found(call).policies.get(offload.KEY)
        return await self._set(call, offload.KEY, offload.with_number(before, key, value))

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
        kind, quota = quota_type(call), quota_of(await call.object(), call.namespace)
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


def _check_auth_mode(given: Any) -> None:  # noqa: ANN401
    check_enum(given)
    if given == "Prefix":
        raise RefusedError(501, "NotAllowedError", "this broker does not tie names of subscriptions to roles")


def _check_roles(granted: dict[str, list[str]]) -> None:
    if len(granted) > MAX_ROLES or any(len(some) > MAX_ROLES for some in granted.values()):
        raise too_many("there are as many roles as there may be")


def _given_permissions(given: Json) -> Json:
    """What roles may do in a namespace that is made. Permissions of single topics are of topics that are there."""
    if given.get("destination_auth"):
        raise RefusedError(501, "NotAllowedError", "a namespace is made without permissions of single topics")
    found = {**_NOTHING_GRANTED}
    for to in ("namespace_auth", "subscription_auth_roles"):
        granted = object_of({} if given.get(to) is None else given[to])
        lists = {name: some for name, some in granted.items() if some is not None}
        if not all(isinstance(some, list) and all(isinstance(one, str) for one in some) for some in lists.values()):
            raise RefusedError(400, "MetadataError", f"{to} has a list for each name")
        _check_roles(lists)
        found[to] = lists
    found["namespace_auth"] = {
        role: [action for action in ACTIONS if action in some] for role, some in found["namespace_auth"].items()
    }
    found["subscription_auth_roles"] = {
        name: sorted(set(some)) for name, some in found["subscription_auth_roles"].items()
    }
    return found


def _given_policies(given: Json) -> Json:
    """The policies with which a namespace is made: those that can be set one by one, checked in the same way."""
    found: Json = {}
    _check_auth_mode(given.get("subscription_auth_mode"))
    if given.get(AUTH) is not None:
        found[AUTH] = _given_permissions(object_of(given[AUTH]))
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
