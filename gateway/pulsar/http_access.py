"""Permissions of the REST API: which operation each route and method is, in the words of a real broker, which its
refusals use too. What is not in the list is for super users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mq_shards.acceptor.protocols.pulsar.credentials import Credentials, CredentialsError, Identity
from mq_shards.acceptor.protocols.pulsar.names import (
    PERSISTENT,
    PulsarNameError,
    TopicName,
    check_namespace,
    cluster_of,
    topic_name,
)
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.pulsar.control import NO_CLUSTER, is_here
from mq_shards.gateway.pulsar.http_tenants import NO_TENANT
from mq_shards.gateway.pulsar.refusals import RefusedError, bad_name, not_found
from mq_shards.gateway.pulsar.roles import Roles, Who

# As with a real broker: monitoring needs no authentication.
OPEN_TO_ALL: Final = ("/metrics", "/metrics/", "/status.html")
NO_ADMIN: Final = "Don't have permission to administrate resources on this tenant"
NO_SUPER: Final = "This operation requires super-user access"

_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
_ISOLATION: Final = f"{_CLUSTER}/namespaceIsolationPolicies"
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION: Final = _TOPIC + "/subscription/{subscription}"
_SCHEMA: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_LOOKUP: Final = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"

_ANYWHERE: Final = (f"{_TOPIC}/stats", f"{_TOPIC}/permissions")  # also of a cluster that is not there

# By route and method: the kind of thing, a colon, and the operation. "anybody": every client that is authenticated.
_DONE: Final[Mapping[str, Mapping[str, str]]] = {
    "/admin/v2/tenants": {"GET": "tenants:LIST_TENANTS"},
    "/admin/v2/tenants/{tenant}": {
        "GET": "own-tenant:GET_TENANT", "PUT": "tenants:CREATE_TENANT", "POST": "own-tenant:UPDATE_TENANT",
        "DELETE": "own-tenant:DELETE_TENANT",
    },
    "/admin/v2/clusters": {"GET": "anybody"},
    "/admin/v2/clusters/{cluster}": {
        "GET": "cluster:GET_CLUSTER", "PUT": "cluster:CREATE_CLUSTER", "POST": "cluster:UPDATE_CLUSTER",
        "DELETE": "cluster:DELETE_CLUSTER",
    },
    f"{_CLUSTER}/peers": {"GET": "cluster:GET_PEER_CLUSTER", "POST": "cluster:UPDATE_PEER_CLUSTER"},
    f"{_CLUSTER}/failureDomains": {"GET": "cluster:GET_FAILURE_DOMAIN"},
    f"{_CLUSTER}/failureDomains/{{domain}}": {
        "GET": "cluster:GET_FAILURE_DOMAIN", "POST": "cluster:UPDATE_FAILURE_DOMAIN",
        "DELETE": "cluster:DELETE_FAILURE_DOMAIN",
    },
    f"{_ISOLATION}": {"GET": "cluster-policy:READ"},
    f"{_ISOLATION}/{{policy}}": {
        "GET": "cluster-policy:READ", "POST": "cluster-policy:WRITE", "DELETE": "cluster-policy:WRITE",
    },
    f"{_ISOLATION}/brokers": {"GET": "cluster-policy:READ"},
    f"{_ISOLATION}/brokers/{{broker}}": {"GET": "cluster-policy:READ"},
    "/admin/v2/brokers/health": {"GET": "broker:HEALTH_CHECK"},
    "/admin/v2/brokers": {"GET": "broker:LIST_BROKERS"},
    "/admin/v2/brokers/{cluster}": {"GET": "broker:LIST_BROKERS"},
    "/admin/v2/brokers/leaderBroker": {"GET": "broker:GET_LEADER_BROKER"},
    "/admin/v2/brokers/configuration": {"GET": "broker:LIST_DYNAMIC_CONFIGURATIONS"},
    "/admin/v2/brokers/configuration/values": {"GET": "broker:LIST_DYNAMIC_CONFIGURATIONS"},
    "/admin/v2/brokers/configuration/runtime": {"GET": "broker:LIST_RUNTIME_CONFIGURATIONS"},
    "/admin/v2/brokers/configuration/{option}": {"DELETE": "broker:DELETE_DYNAMIC_CONFIGURATION"},
    "/admin/v2/brokers/configuration/{option}/{value}": {"POST": "broker:UPDATE_DYNAMIC_CONFIGURATION"},
    "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces": {"GET": "broker:LIST_OWNED_NAMESPACES"},
    "/admin/v2/brokers/version": {"GET": "anybody"},
    "/admin/v2/brokers/ready": {"GET": "anybody"},
    "/admin/v2/namespaces/{tenant}": {"GET": "tenant:LIST_NAMESPACES"},
    "/admin/namespaces/{tenant}/{cluster}": {"GET": "tenant:LIST_NAMESPACES"},
    _NAMESPACE: {"GET": "policy:ALL", "PUT": "tenant:CREATE_NAMESPACE", "DELETE": "tenant:DELETE_NAMESPACE"},
    f"{_NAMESPACE}/topics": {"GET": "namespace:GET_TOPICS"},
    f"{_NAMESPACE}/bundles": {"GET": "namespace:GET_BUNDLE"},
    f"{_NAMESPACE}/{{bundle}}": {"DELETE": "namespace:DELETE_BUNDLE"},
    f"{_NAMESPACE}/{{bundle}}/topicHashPositions": {"GET": "policy:PERSISTENCE"},
    f"{_NAMESPACE}/{{bundle}}/clearBacklog": {"POST": "namespace:CLEAR_BACKLOG"},
    f"{_NAMESPACE}/{{bundle}}/clearBacklog/{{subscription}}": {"POST": "namespace:CLEAR_BACKLOG"},
    f"{_NAMESPACE}/{{bundle}}/unsubscribe/{{subscription}}": {"POST": "namespace:UNSUBSCRIBE"},
    f"{_NAMESPACE}/resourcegroup/{{group}}": {"POST": "policy:RESOURCEGROUP"},
    f"{_NAMESPACE}/unload": {"PUT": "super"},
    f"{_NAMESPACE}/permissions": {"GET": "namespace:GET_PERMISSION"},
    f"{_NAMESPACE}/permissions/subscription": {"GET": "namespace:GET_PERMISSION"},
    f"{_NAMESPACE}/permissions/{{role}}": {
        "POST": "namespace:GRANT_PERMISSION", "DELETE": "namespace:REVOKE_PERMISSION",
    },
    f"{_NAMESPACE}/permissions/{{role}}/{{of}}": {
        "POST": "namespace:GRANT_PERMISSION", "DELETE": "namespace:REVOKE_PERMISSION",
    },
    f"{_NAMESPACE}/properties": dict.fromkeys(("GET", "PUT", "DELETE"), "admin"),
    f"{_NAMESPACE}/property/{{key}}": dict.fromkeys(("GET", "DELETE"), "admin"),
    f"{_NAMESPACE}/property/{{key}}/{{value}}": {"PUT": "admin"},
    "/admin/v2/{domain}/{tenant}/{namespace}": {"GET": "namespace:GET_TOPICS"},
    "/admin/v2/{domain}/{tenant}/{namespace}/partitioned": {"GET": "namespace:GET_TOPICS"},
    _TOPIC: {
        "GET": "namespace:GET_BUNDLE",  # of topics that are not persistent those in a bundle
        "PUT": "namespace:CREATE_TOPIC", "DELETE": "namespace:DELETE_TOPIC",
    },
    f"{_TOPIC}/partitions": {
        "GET": "topic:LOOKUP", "PUT": "topic-policy:PARTITION", "POST": "topic-policy:PARTITION",
        "DELETE": "namespace:DELETE_TOPIC",
    },
    **{
        f"{_TOPIC}/{what}": {"GET": "topic:GET_STATS"}
        for what in ("stats", "partitioned-stats", "internalStats", "partitioned-internalStats", "internal-info")
    },
    f"{_NAMESPACE}/clearBacklog": {"POST": "namespace:CLEAR_BACKLOG"},
    f"{_NAMESPACE}/clearBacklog/{{subscription}}": {"POST": "namespace:CLEAR_BACKLOG"},
    f"{_NAMESPACE}/unsubscribe/{{subscription}}": {"POST": "namespace:UNSUBSCRIBE"},
    f"{_TOPIC}/all_subscription/expireMessages/{{seconds}}": {"POST": "topic:EXPIRE_MESSAGES"},
    f"{_TOPIC}/truncate": {"DELETE": "admin"},
    f"{_TOPIC}/trim": {"POST": "topic:TRIM_TOPIC"},
    f"{_TOPIC}/terminate/partitions": {"POST": "topic:TERMINATE"},
    f"{_TOPIC}/unload": {"PUT": "topic:UNLOAD"},
    f"{_TOPIC}/terminate": {"POST": "topic:TERMINATE"},
    f"{_TOPIC}/lastMessageId": {"GET": "topic:PEEK_MESSAGES"},
    f"{_TOPIC}/compaction": {"GET": "topic:COMPACT", "PUT": "topic:COMPACT"},
    f"{_TOPIC}/properties": {
        "GET": "topic:GET_METADATA", "PUT": "topic:UPDATE_METADATA", "DELETE": "topic:DELETE_METADATA",
    },
    f"{_TOPIC}/permissions": {"GET": "admin"},
    f"{_TOPIC}/permissions/{{role}}": {"POST": "admin", "DELETE": "admin"},
    f"{_TOPIC}/subscriptions": {"GET": "topic:GET_SUBSCRIPTIONS"},
    _SUBSCRIPTION: {"PUT": "topic:SUBSCRIBE", "DELETE": "topic:UNSUBSCRIBE"},
    f"{_SUBSCRIPTION}/skip_all": {"POST": "topic:SKIP"},
    f"{_SUBSCRIPTION}/skip/{{count}}": {"POST": "topic:SKIP"},
    f"{_SUBSCRIPTION}/resetcursor": {"POST": "topic:RESET_CURSOR"},
    f"{_SUBSCRIPTION}/resetcursor/{{time}}": {"POST": "topic:RESET_CURSOR"},
    f"{_SUBSCRIPTION}/properties": {"GET": "topic:CONSUME", "PUT": "topic:SUBSCRIBE"},
    f"{_SUBSCRIPTION}/analyzeBacklog": {"POST": "topic:CONSUME"},
    f"{_SUBSCRIPTION}/replicatedSubscriptionStatus": {
        "GET": "topic:GET_REPLICATED_SUBSCRIPTION_STATUS", "POST": "topic:SET_REPLICATED_SUBSCRIPTION_STATUS",
    },
    f"{_SUBSCRIPTION}/position/{{place}}": {"GET": "topic:PEEK_MESSAGES"},
    f"{_SUBSCRIPTION}/expireMessages": {"POST": "topic:EXPIRE_MESSAGES"},
    f"{_SUBSCRIPTION}/expireMessages/{{seconds}}": {"POST": "topic:EXPIRE_MESSAGES"},
    f"{_TOPIC}/examinemessage": {"GET": "topic:PEEK_MESSAGES"},
    f"{_TOPIC}/messageid/{{time}}": {"GET": "topic:PEEK_MESSAGES"},
    f"{_TOPIC}/backlogSize": {"PUT": "topic:GET_BACKLOG_SIZE"},
    f"{_TOPIC}/createMissedPartitions": {"POST": "admin"},
    f"{_TOPIC}/ledger/{{ledger}}/entry/{{entry}}": {"GET": "topic:PEEK_MESSAGES"},
    f"{_SCHEMA}/schema": {"GET": "topic:GET_METADATA", "POST": "topic:PRODUCE", "DELETE": "admin"},
    f"{_SCHEMA}/schema/{{version}}": {"GET": "topic:GET_METADATA"},
    f"{_SCHEMA}/schemas": {"GET": "topic:GET_METADATA"},
    f"{_SCHEMA}/metadata": {"GET": "topic:GET_METADATA"},
    f"{_SCHEMA}/version": {"POST": "topic:GET_METADATA"},
    f"{_SCHEMA}/compatibility": {"POST": "topic:GET_METADATA"},
    **{
        f"/admin/v3/transactions/{what}": {"GET": "anybody"}
        for what in (
            "coordinators", "coordinatorStats", "slowTransactions/{timeout}", "transactionMetadata/{most}/{least}",
            "transactionBufferStats/{tenant}/{namespace}/{topic}",
            "transactionInBufferStats/{tenant}/{namespace}/{topic}/{most}/{least}",
            "pendingAckStats/{tenant}/{namespace}/{topic}/{subscription}",
            "transactionInPendingAckStats/{tenant}/{namespace}/{topic}/{subscription}/{most}/{least}",
            "positionStatsInPendingAck/{tenant}/{namespace}/{topic}/{subscription}/{ledger}/{entry}",
        )
    },
    _LOOKUP: {"GET": "topic:LOOKUP"},
    f"{_LOOKUP}/bundle": {"GET": "topic:LOOKUP"},
}  # fmt: skip
# Policies of a namespace or a topic, by the last part of the path. GET is READ, all other methods are WRITE.
_POLICIES: Final = {
    "retention": "RETENTION", "messageTTL": "TTL", "deduplication": "DEDUPLICATION", "backlogQuota": "BACKLOG",
    "schemaCompatibilityStrategy": "SCHEMA_COMPATIBILITY_STRATEGY", "backlogQuotaMap": "BACKLOG",
    "schemaValidationEnforced": "SCHEMA_COMPATIBILITY_STRATEGY", "publishRate": "RATE", "replication": "REPLICATION",
    "schemaAutoUpdateCompatibilityStrategy": "SCHEMA_COMPATIBILITY_STRATEGY",
    "isAllowAutoUpdateSchema": "SCHEMA_COMPATIBILITY_STRATEGY", "delayedDelivery": "DELAYED_DELIVERY",
    "autoTopicCreation": "AUTO_TOPIC_CREATION", "autoSubscriptionCreation": "AUTO_SUBSCRIPTION_CREATION",
    "subscriptionTypesEnabled": "SUBSCRIPTION_AUTH_MODE", "maxProducersPerTopic": "MAX_PRODUCERS",
    "maxConsumersPerTopic": "MAX_CONSUMERS", "maxConsumersPerSubscription": "MAX_CONSUMERS",
    "maxSubscriptionsPerTopic": "MAX_SUBSCRIPTIONS", "maxUnackedMessagesPerConsumer": "MAX_UNACKED",
    "maxUnackedMessagesPerSubscription": "MAX_UNACKED", "maxTopicsPerNamespace": "MAX_TOPICS",
    "encryptionRequired": "ENCRYPTION", "compactionThreshold": "COMPACTION", "persistence": "PERSISTENCE",
    "dispatchRate": "RATE", "subscriptionDispatchRate": "RATE", "subscribeRate": "RATE",
    "replicatorDispatchRate": "REPLICATION_RATE", "inactiveTopicPolicies": "INACTIVE_TOPIC",
    "subscriptionExpirationTime": "SUBSCRIPTION_EXPIRATION_TIME", "offloadPolicies": "OFFLOAD",
    "offloadThreshold": "OFFLOAD", "removeOffloadPolicies": "OFFLOAD",
    "antiAffinity": "ANTI_AFFINITY", "resourcegroup": "RESOURCEGROUP",
    "entryFilters": "ENTRY_FILTERS", "maxProducers": "MAX_PRODUCERS", "maxConsumers": "MAX_CONSUMERS",
    "maxUnackedMessagesOnConsumer": "MAX_UNACKED", "maxUnackedMessagesOnSubscription": "MAX_UNACKED",
    "dispatcherPauseOnAckStatePersistent": "DISPATCHER_PAUSE_ON_ACK_STATE_PERSISTENT",
    "deduplicationSnapshotInterval": "DEDUPLICATION_SNAPSHOT", "subscriptionAuthMode": "SUBSCRIPTION_AUTH_MODE",
    "allowedClusters": "ALLOW_CLUSTERS", "shadowTopics": "SHADOW_TOPIC", "offloadDeletionLagMs": "OFFLOAD",
    "offloadThresholdInSeconds": "OFFLOAD", "maxMessageSize": "MAX_MESSAGE_SIZE",
    "deduplicationEnabled": "DEDUPLICATION",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a request matters for permissions."""

    method: str
    route: str
    names: Mapping[str, str]
    who: Who


class Access:
    """Authenticates clients of the REST API, and checks their permissions."""

    def __init__(self, credentials: Credentials | None, roles: Roles, broker_id: str) -> None:
        """`credentials` None: Pulsar's own authentication is off."""
        self._credentials = credentials
        self._roles = roles
        self._broker_id = broker_id

    def learn(self, credentials: Credentials | None) -> None:
        """Sets new credentials for further requests; None only if they were None before."""
        self._credentials = credentials

    @property
    def knows_others(self) -> bool:
        """Whether it knows clients besides the users that all protocols share."""
        return self._credentials is not None

    def who(self, path: str, request: Request) -> Who | None:
        """Who sends a request. None: authentication is needed, and failed."""
        headers = request.headers
        if request.login is not None:
            return Who(request.login.user.name)
        if self._credentials is None and not request.is_guarded:
            return Who("", is_open=True)
        if path in OPEN_TO_ALL and not request.is_guarded:
            return Who("")
        if self._credentials is None:
            return None
        try:
            common_name = next(iter(request.certificate_names), "")
            found: Identity = self._credentials.of_request(headers.get("authorization", ""), common_name)
        except CredentialsError:
            return None
        original = headers.get("x-original-principal", "")
        return Who(found.role, "" if original == found.role else original)

    def check(self, asked: Asked) -> None:
        """Checks that a request is permitted. Raises RefusedError."""
        if not self._roles.enabled or asked.route in OPEN_TO_ALL:
            return
        namespace = f"{asked.names.get('tenant')}/{asked.names.get('namespace')}"
        elsewhere = NO_CLUSTER.format(cluster_of(namespace)) if not is_here(namespace) else ""
        if elsewhere and asked.route.startswith(_LOOKUP):
            raise not_found(elsewhere)
        if not self._roles.is_super(asked.who):
            self._check_role(asked)
        if elsewhere and asked.route.startswith(_TOPIC) and not asked.route.startswith(_ANYWHERE):
            raise not_found(elsewhere)

    def _check_role(self, asked: Asked) -> None:
        kind, _, operation = _done(asked).partition(":")
        names = asked.names
        match kind:
            case "anybody":
                return
            case "tenants" | "own-tenant":
                if kind == "own-tenant" and self._roles.administers(asked.who, names["tenant"]):
                    return
                raise self._refused(asked, 401, "BothTenantOperationAndSuperUser", operation, "")
            case "cluster":
                at = f"on cluster [{names['cluster']}]"
                raise self._refused(asked, 401, "BothSuperuserAndClusterOperation", operation, at)
            case "cluster-policy":
                at = f"on cluster [{names['cluster']}]"
                raise self._refused(asked, 401, "BothSuperuserAndClusterPolicyOperation", operation, at)
            case "broker":
                at = f"on broker [{self._broker_id}]"
                raise self._refused(asked, 401, "BothSuperuserAndBrokerOperation", operation, at)
            case "tenant":
                self._check_tenant(names["tenant"])
                if not self._roles.administers(asked.who, names["tenant"]):
                    raise self._refused(asked, 401, "TenantOperation", operation, f"on tenant [{names['tenant']}]")
            case "admin":
                self._check_tenant(names["tenant"])
                if not self._roles.administers(asked.who, names["tenant"]):
                    raise RefusedError(401, "AuthorizationError", NO_ADMIN)
            case "namespace" | "policy":
                self._check_namespace(asked, kind, operation)
            case "topic" | "topic-policy":
                self._check_topic(asked, kind, operation)
            case _:
                raise RefusedError(401, "AuthorizationError", NO_SUPER)

    @staticmethod
    def _refused(asked: Asked, status: int, what: str, operation: str, at: str) -> RefusedError:
        who = f"originalPrincipal [{asked.who.original or 'null'}] and clientAppId [{asked.who.role}]"
        reason = f"Unauthorized to validate{what} for {who} about operation [{operation}] {at}"
        return RefusedError(status, "AuthorizationError", reason)

    def _check_tenant(self, tenant: str) -> None:
        if not self._roles.has_tenant(tenant):
            raise not_found(NO_TENANT)

    def _check_namespace(self, asked: Asked, kind: str, operation: str) -> None:
        name = _namespace(asked.names)
        self._check_tenant(asked.names["tenant"])
        if kind == "namespace":
            if self._roles.may_in_namespace(asked.who, name, operation):
                return
            reason = f"Unauthorized to validateNamespaceOperation for operation [{operation}] on namespace [{name}]"
        else:
            if self._roles.administers(asked.who, asked.names["tenant"]):
                return
            reason = f"Unauthorized to validateNamespacePolicyOperation for operation [{_access(asked)}] on namespace "
            reason += f"[{name}] on policy [{operation}]"
        raise RefusedError(403, "AuthorizationError", reason)

    def _check_topic(self, asked: Asked, kind: str, operation: str) -> None:
        name = _topic(asked.names)
        self._check_tenant(name.tenant)
        if kind == "topic-policy":
            if self._roles.administers(asked.who, name.tenant):
                return
            reason = f"Unauthorized to validateTopicPolicyOperation for operation [{_access(asked)}] on topic [{name}] "
            raise RefusedError(403, "AuthorizationError", f"{reason}on policy [{operation}]")
        if not self._roles.may_with_topic(asked.who, name, operation, asked.names.get("subscription", "")):
            reason = f"Unauthorized to validateTopicOperation for operation [{operation}] on topic [{name}]"
            raise RefusedError(401, "AuthorizationError", reason)


def _done(asked: Asked) -> str:
    method = "GET" if asked.method == "HEAD" else asked.method
    found = _DONE.get(asked.route, {}).get(method)
    above, _, last = asked.route.rpartition("/")
    if found is None and above in (_NAMESPACE, _TOPIC, f"{_TOPIC}/{{subscription}}") and last in _POLICIES:
        found = f"{'policy' if above == _NAMESPACE else 'topic-policy'}:{_POLICIES[last]}"
    return found or "super"


def _access(asked: Asked) -> str:
    return "READ" if asked.method in ("GET", "HEAD") else "WRITE"


def _namespace(names: Mapping[str, str]) -> str:
    try:
        return check_namespace(f"{names['tenant']}/{names['namespace']}")
    except PulsarNameError as error:
        raise bad_name(str(error)) from None


def _topic(names: Mapping[str, str]) -> TopicName:
    try:
        domain = names.get("domain", PERSISTENT)
        return topic_name(f"{domain}://{names['tenant']}/{names['namespace']}/{names['topic']}")
    except PulsarNameError as error:
        raise bad_name(str(error)) from None
