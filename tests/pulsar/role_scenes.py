"""Who may do what: commands and requests of several roles, asked of a real broker by record_roles.py, of ours by tests.

A step is a role ("" has no token), and a request as in admin_scenes.py, or "wire", a command and its fields. Scenes
follow each other: what one grants holds in the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import jwt

SECRET: Final = b"a secret of thirty-two bytes, or more than that"
SUPER: Final = "admin"
PROXY: Final = "proxy"
# Of the tenant "acme": who may administer it, has been granted something, or has nothing.
ROLES: Final = ("", "nobody", "writer", "reader", "topicwriter", "boss", SUPER)

Step = tuple[Any, ...]

N: Final = "acme/ns"
T: Final = f"persistent/{N}/t"
TOPIC: Final = f"persistent://{N}/t"
BUNDLE: Final = "0x40000000_0x80000000"  # in which that topic is
OTHER: Final = "0xc0000000_0xffffffff"
DOMAINS: Final = "clusters/standalone/failureDomains"
ISOLATION: Final = "clusters/standalone/namespaceIsolationPolicies"
POLICY: Final[dict[str, Any]] = {
    "namespaces": ["isolated/.*"], "primary": ["x"], "secondary": [],
    "auto_failover_policy": {
        "policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "80"},
    },
}  # fmt: skip

# What is asked by every role, one after the other; the last may do what the first may not, so that it is done once.
ASKED: Final[dict[str, list[Step]]] = {
    "tenants": [
        ("GET", "tenants"), ("GET", "tenants/acme"), ("GET", "tenants/none"),
        ("PUT", "tenants/other", {"adminRoles": [], "allowedClusters": ["standalone"]}),
        ("POST", "tenants/acme", {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}),
        ("DELETE", "tenants/other"), ("GET", "clusters"), ("GET", "clusters/standalone"),
        ("PUT", "clusters/far", {"serviceUrl": "http://far"}), ("DELETE", "clusters/far"),
    ],
    "broker": [
        ("GET", "brokers/health"), ("GET", "brokers/version"), ("GET", "brokers/standalone"),
        ("GET", "brokers/leaderBroker"), ("GET", "brokers/ready"), ("GET", "/metrics/"), ("GET", "nothing/like/this"),
    ],
    "namespaces": [
        ("GET", "namespaces/acme"), ("PUT", "namespaces/acme/made"), ("GET", f"namespaces/{N}"),
        ("GET", f"namespaces/{N}/topics"), ("GET", f"namespaces/{N}/permissions"), ("GET", f"namespaces/{N}/retention"),
        ("POST", f"namespaces/{N}/retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 5}),
        ("GET", f"namespaces/{N}/messageTTL"), ("POST", f"namespaces/{N}/messageTTL", 100),
        ("GET", f"namespaces/{N}/backlogQuotaMap"), ("GET", f"namespaces/{N}/publishRate"),
        ("POST", f"namespaces/{N}/deduplication", False), ("GET", f"namespaces/{N}/schemaCompatibilityStrategy"),
        ("GET", f"namespaces/{N}/bundles"), ("PUT", f"namespaces/{N}/unload"),
        ("POST", f"namespaces/{N}/permissions/topicreader", ["consume"]),
        ("DELETE", f"namespaces/{N}/permissions/topicreader"), ("DELETE", "namespaces/acme/made"),
        ("GET", "namespaces/none"), ("GET", "namespaces/acme/none"),
    ],
    "topics": [
        ("GET", f"persistent/{N}"), ("GET", f"persistent/{N}/partitioned"), ("PUT", f"persistent/{N}/made"),
        ("PUT", f"persistent/{N}/parts/partitions", 2), ("GET", f"persistent/{N}/parts/partitions"),
        ("POST", f"persistent/{N}/parts/partitions", 3), ("GET", f"{T}/partitions"), ("GET", f"{T}/stats"),
        ("GET", f"{T}/internalStats"), ("GET", f"{T}/permissions"), ("GET", f"{T}/lastMessageId"),
        ("POST", f"{T}/permissions/topicreader", ["consume"]), ("DELETE", f"{T}/permissions/topicreader"),
        ("PUT", f"{T}/unload"), ("GET", f"{T}/subscriptions"), ("PUT", f"{T}/subscription/made"),
        ("POST", f"{T}/subscription/made/skip_all"), ("POST", f"{T}/subscription/made/resetcursor/0"),
        ("GET", f"{T}/subscription/made/position/1"), ("DELETE", f"{T}/subscription/made"),
        ("GET", f"schemas/{N}/t/schema"), ("DELETE", f"schemas/{N}/t/schema"),
        ("POST", f"schemas/{N}/t/schema", {"type": "STRING", "schema": "", "properties": {}}),
        ("GET", f"/lookup/v2/topic/persistent/{N}/t"), ("DELETE", f"persistent/{N}/parts/partitions"),
        ("POST", f"persistent/{N}/made/terminate"), ("DELETE", f"persistent/{N}/made"),
    ],
    "wire": [
        ("wire", "lookupTopic", {"topic": TOPIC}), ("wire", "partitionMetadata", {"topic": TOPIC}),
        ("wire", "producer", {"topic": TOPIC, "producer_id": 1}),
        ("wire", "subscribe", {"topic": TOPIC, "subscription": "s", "subType": 1, "consumer_id": 1}),
        ("wire", "getTopicsOfNamespace", {"namespace": N, "mode": 0}),
        ("wire", "getSchema", {"topic": TOPIC}),
        ("wire", "getOrCreateSchema", {
            "topic": TOPIC, "schema": {"name": "", "schema_data": "", "type": 1, "properties": []},
        }),
        ("wire", "lookupTopic", {"topic": "persistent://acme/none/t"}),
        ("wire", "lookupTopic", {"topic": "persistent://none/none/t"}),
        ("wire", "producer", {"topic": f"persistent://{N}/unmade", "producer_id": 1}),
        ("wire", "watchTopicList", {"namespace": N, "watcher_id": 1, "topics_pattern": ".*"}),
    ],
    "bundles and what is only kept": [
        ("GET", f"namespaces/{N}/{BUNDLE}/topicHashPositions"), ("PUT", f"namespaces/{N}/{OTHER}/split"),
        ("POST", f"namespaces/{N}/{BUNDLE}/clearBacklog"), ("POST", f"namespaces/{N}/{BUNDLE}/unsubscribe/none"),
        ("GET", f"non-persistent/{N}/{BUNDLE}"), ("GET", f"persistent/{N}?bundle={BUNDLE}"),
        ("DELETE", f"namespaces/{N}/{BUNDLE}"),
        ("GET", "resourcegroups"), ("PUT", "resourcegroups/g", {}), ("GET", "resourcegroups/g"),
        ("POST", f"namespaces/{N}/resourcegroup/g"), ("GET", f"namespaces/{N}/resourcegroup"),
        ("DELETE", f"namespaces/{N}/resourcegroup"), ("DELETE", "resourcegroups/g"),
        ("GET", "resource-quotas"), ("POST", "resource-quotas", {"msgRateIn": 1}),
        ("GET", f"resource-quotas/{N}/{BUNDLE}"), ("POST", f"resource-quotas/{N}/{BUNDLE}", {"msgRateIn": 1}),
        ("DELETE", f"resource-quotas/{N}/{BUNDLE}"),
        ("GET", f"namespaces/{N}/antiAffinity"), ("POST", f"namespaces/{N}/antiAffinity", "g"),
        ("DELETE", f"namespaces/{N}/antiAffinity"), ("GET", f"namespaces/{N}/persistence/bookieAffinity"),
        ("POST", f"namespaces/{N}/persistence/bookieAffinity", {"bookkeeperAffinityGroupPrimary": "x"}),
        ("DELETE", f"namespaces/{N}/persistence/bookieAffinity"),
        ("GET", f"namespaces/{N}/schemaAutoUpdateCompatibilityStrategy"),
        ("PUT", f"namespaces/{N}/schemaAutoUpdateCompatibilityStrategy", "Full"),
        ("GET", "brokers/configuration"), ("GET", "brokers/configuration/values"),
        ("POST", "brokers/configuration/maxTenants/100"), ("DELETE", "brokers/configuration/maxTenants"),
        ("GET", "brokers/standalone/none/ownedNamespaces"),
        ("GET", "clusters/standalone/peers"), ("POST", "clusters/standalone/peers", []),
        ("GET", f"{DOMAINS}"), ("POST", f"{DOMAINS}/d", {"brokers": ["b"]}), ("GET", f"{DOMAINS}/d"),
        ("DELETE", f"{DOMAINS}/d"),
        ("GET", ISOLATION), ("POST", f"{ISOLATION}/p", POLICY), ("GET", f"{ISOLATION}/p"),
        ("GET", f"{ISOLATION}/brokers"), ("DELETE", f"{ISOLATION}/p"),
    ],
    "subscription roles": [
        ("wire", "subscribe", {"topic": TOPIC, "subscription": "kept", "subType": 1, "consumer_id": 1}),
    ],
}  # fmt: skip

SETUP: Final[list[Step]] = [
    (SUPER, "PUT", "tenants/acme", {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}),
    ("boss", "PUT", f"namespaces/{N}"),
    ("boss", "PUT", T),
    ("boss", "POST", f"namespaces/{N}/permissions/writer", ["produce"]),
    ("boss", "POST", f"namespaces/{N}/permissions/reader", ["consume"]),
    ("boss", "POST", f"{T}/permissions/topicwriter", ["produce"]),
    ("boss", "POST", f"namespaces/{N}/permissions/keeper", ["consume"]),
    ("boss", "POST", f"namespaces/{N}/permissions/subscription/kept", ["keeper"]),
]
# Behind the others: what a revocation, and a tenant with other administrators, change.
REVOKED: Final[list[Step]] = [
    ("boss", "GET", f"namespaces/{N}/permissions/subscription"),
    ("boss", "DELETE", f"namespaces/{N}/permissions/kept/keeper"),
    ("boss", "GET", f"namespaces/{N}/permissions"),
    ("boss", "DELETE", f"namespaces/{N}/permissions/writer"),
    ("writer", "wire", "producer", {"topic": TOPIC, "producer_id": 1}),
    ("boss", "DELETE", f"{T}/permissions/topicwriter"),
    ("boss", "DELETE", f"{T}/permissions/topicwriter"),
    ("topicwriter", "wire", "lookupTopic", {"topic": TOPIC}),
    ("boss", "POST", f"namespaces/{N}/permissions/writer", ["write"]),
    ("boss", "POST", f"{T}/permissions/writer", []),
    (SUPER, "POST", "tenants/acme", {"adminRoles": ["other"], "allowedClusters": ["standalone"]}),
    ("boss", "GET", f"namespaces/{N}"),
    ("boss", "wire", "lookupTopic", {"topic": TOPIC}),
    ("other", "wire", "lookupTopic", {"topic": TOPIC}),
]
# A proxy speaks for somebody.
PROXIED: Final[list[Step]] = [
    ("proxy/reader", "wire", "lookupTopic", {"topic": TOPIC}),
    ("boss", "POST", f"namespaces/{N}/permissions/proxy", ["consume"]),
    ("proxy/reader", "wire", "lookupTopic", {"topic": TOPIC}),
    ("proxy/nobody", "wire", "lookupTopic", {"topic": TOPIC}),
    (PROXY, "wire", "lookupTopic", {"topic": TOPIC}),
    ("proxy/proxy", "wire", "lookupTopic", {"topic": TOPIC}),
    ("reader/reader", "wire", "lookupTopic", {"topic": TOPIC}),
    ("reader/other", "wire", "lookupTopic", {"topic": TOPIC}),
    ("admin/reader", "wire", "lookupTopic", {"topic": TOPIC}),
    ("proxy/reader", "GET", f"{T}/partitions"),
    ("proxy/nobody", "GET", f"{T}/partitions"),
    (PROXY, "GET", f"{T}/partitions"),
    ("reader/other", "GET", f"{T}/partitions"),
]


# Every action there is, and none; each with a role of its own, that is then asked for what others may do.
ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")


def _role(action: str) -> str:
    """Who may do that."""
    return f"{action.removesuffix('s').removesuffix('e')}er"


USED: Final[list[Step]] = [
    ("wire", "lookupTopic", {"topic": TOPIC}), ("wire", "partitionMetadata", {"topic": TOPIC}),
    ("wire", "producer", {"topic": TOPIC, "producer_id": 1}),
    ("wire", "subscribe", {"topic": TOPIC, "subscription": "s", "subType": 1, "consumer_id": 1}),
    ("wire", "getTopicsOfNamespace", {"namespace": N, "mode": 0}), ("wire", "getSchema", {"topic": TOPIC}),
    ("wire", "watchTopicList", {"namespace": N, "watcher_id": 1, "topics_pattern": ".*"}),
    ("GET", f"persistent/{N}"), ("GET", f"{T}/stats"), ("GET", f"{T}/subscriptions"), ("GET", f"{T}/internalStats"),
    ("GET", f"{T}/partitions"), ("POST", f"{T}/subscription/s/skip_all"), ("GET", f"{T}/subscription/s/position/1"),
    ("POST", f"{T}/subscription/s/resetcursor/0"), ("POST", f"{T}/subscription/s/expireMessages/1"),
    ("PUT", f"{T}/subscription/s/properties", {"a": "b"}), ("GET", f"{T}/subscription/s/properties"),
    ("POST", f"{T}/subscription/s/replicatedSubscriptionStatus", False),
    ("GET", f"{T}/subscription/s/replicatedSubscriptionStatus"), ("POST", f"{T}/subscription/s/analyzeBacklog"),
    ("GET", f"{T}/lastMessageId"), ("PUT", f"{T}/compaction"), ("GET", f"{T}/compaction"), ("GET", f"{T}/retention"),
    ("POST", f"{T}/retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 5}), ("DELETE", f"{T}/retention"),
    ("GET", f"schemas/{N}/t/schema"), ("GET", f"/lookup/v2/topic/persistent/{N}/t"),
    ("GET", f"namespaces/{N}/topics"), ("GET", f"namespaces/{N}/permissions"), ("GET", f"namespaces/{N}/retention"),
    ("POST", f"namespaces/{N}/clearBacklog"), ("POST", f"namespaces/{N}/unsubscribe/none"),
    ("DELETE", f"{T}/subscription/none"), ("POST", f"{T}/permissions/somebody", ["produce"]),
]  # fmt: skip
# The tenant's administrator is another by now.
GRANTED: Final[list[Step]] = [
    ("other", "POST", f"namespaces/{N}/permissions/{_role(action)}", [action]) for action in ACTIONS
] + [
    ("other", "POST", f"{T}/permissions/topic{_role(action)}", [action]) for action in ACTIONS
] + [
    ("other", "GET", f"namespaces/{N}/permissions"), ("other", "GET", f"{T}/permissions"),
    ("other", "POST", f"namespaces/{N}/permissions/all", list(ACTIONS)),
    ("other", "POST", f"namespaces/{N}/permissions/wrong", ["everything"]),
    ("other", "POST", f"namespaces/{N}/permissions/wrong", "produce"),
    ("other", "POST", "namespaces/acme/none/permissions/wrong", ["produce"]),
    ("other", "POST", "namespaces/none/none/permissions/wrong", ["produce"]),
    ("other", "DELETE", f"namespaces/{N}/permissions/nobody-at-all"),
    ("other", "POST", f"persistent/{N}/none/permissions/early", ["consume"]),
    ("other", "GET", f"persistent/{N}/none/permissions"),
    ("other", "DELETE", f"persistent/{N}/none/permissions/early"),
    ("other", "POST", f"namespaces/{N}/permissions/subscription/s", ["consumer", "somebody"]),
    ("other", "GET", f"namespaces/{N}/permissions/subscription"),
]  # fmt: skip
TAKEN: Final[list[Step]] = [
    ("other", "DELETE", f"namespaces/{N}/permissions/s/consumer"),
    ("consumer", "wire", "subscribe", {"topic": TOPIC, "subscription": "s", "subType": 1, "consumer_id": 1}),
    ("somebody", "wire", "subscribe", {"topic": TOPIC, "subscription": "s", "subType": 1, "consumer_id": 1}),
    ("other", "DELETE", f"namespaces/{N}/permissions/s/somebody"),
    ("other", "DELETE", f"namespaces/{N}/permissions/s/somebody"),
    ("other", "DELETE", f"namespaces/{N}/permissions/none/somebody"),
    ("consumer", "wire", "subscribe", {"topic": TOPIC, "subscription": "s", "subType": 1, "consumer_id": 1}),
    ("other", "DELETE", f"namespaces/{N}/permissions/all"),
    ("all", "wire", "lookupTopic", {"topic": TOPIC}), ("all", "GET", f"{T}/stats"),
    ("other", "DELETE", f"{T}/permissions/topicproducer"),
    ("topicproducer", "wire", "producer", {"topic": TOPIC, "producer_id": 1}),
    ("other", "GET", f"{T}/permissions"),
    ("other", "POST", f"namespaces/{N}/permissions/consumer", ["produce"]),
    ("consumer", "wire", "subscribe", {"topic": TOPIC, "subscription": "s", "subType": 1, "consumer_id": 1}),
    ("consumer", "wire", "producer", {"topic": TOPIC, "producer_id": 1}),
]  # fmt: skip


# Namespaces with a cluster in their names: one that somebody made, one of a tenant that is there, one of nobody.
OLDER: Final = ("acme/standalone/made", "acme/nowhere/none", "nobody/nowhere/none")
OLDER_SETUP: Final[list[Step]] = [
    (SUPER, "PUT", f"/admin/namespaces/{OLDER[0]}"),
    *((SUPER, "PUT", f"/admin/persistent/{namespace}/t") for namespace in OLDER),
    ("other", "POST", f"/admin/namespaces/{OLDER[0]}/permissions/oldreader", ["consume"]),
    ("other", "POST", f"/admin/persistent/{OLDER[0]}/t/permissions/oldwriter", ["produce"]),
    ("other", "POST", f"/admin/namespaces/{OLDER[1]}/permissions/oldreader", ["consume"]),
    ("other", "POST", f"/admin/persistent/{OLDER[1]}/t/permissions/oldwriter", ["produce"]),
    ("other", "GET", f"/admin/persistent/{OLDER[0]}/t/permissions"),
    ("other", "PUT", "/admin/namespaces/acme/standalone/another"),
    ("nobody", "PUT", "/admin/namespaces/acme/standalone/denied"),
    ("other", "DELETE", "/admin/namespaces/acme/standalone/another"),
]


def _older(namespace: str) -> list[Step]:
    topic, path = f"persistent://{namespace}/t", f"/admin/persistent/{namespace}/t"
    return [
        ("wire", "lookupTopic", {"topic": topic}),
        ("wire", "partitionMetadata", {"topic": topic}),
        ("wire", "producer", {"topic": topic, "producer_id": 1}),
        ("wire", "subscribe", {"topic": topic, "subscription": "s", "subType": 1, "consumer_id": 1}),
        ("wire", "getTopicsOfNamespace", {"namespace": namespace, "mode": 0}),
        ("wire", "watchTopicList", {"namespace": namespace, "watcher_id": 1, "topics_pattern": ".*"}),
        ("GET", f"/admin/persistent/{namespace}"),
        ("GET", f"{path}/stats"),
        ("GET", f"{path}/partitions"),
        ("GET", f"{path}/subscriptions"),
        ("GET", f"/admin/namespaces/{namespace}/retention"),
        ("POST", f"{path}/permissions/somebody", ["produce"]),
        ("GET", f"/lookup/v2/destination/persistent/{namespace}/t"),
        ("PUT", f"{path}/unload"),
    ]


def token(role: str) -> str:
    return jwt.encode({"sub": role}, SECRET, algorithm="HS256")


def scenes() -> Iterator[tuple[str, list[Step]]]:
    yield "setup", SETUP
    for name, asked in ASKED.items():
        roles = ("", "keeper", "reader", "boss", SUPER) if name == "subscription roles" else ROLES
        for role in roles:
            yield f"{name}: {role or 'no token'}", [(role, *step) for step in asked]
    yield "proxied", PROXIED
    yield "revoked", REVOKED
    yield "granted", GRANTED
    for role in (*map(_role, ACTIONS), "topicproducer", "topicconsumer", "all", "other"):
        yield f"used: {role}", [(role, *step) for step in USED]
    yield "taken", TAKEN
    yield "older setup", OLDER_SETUP
    for role in ("", "nobody", "oldreader", "oldwriter", "other", SUPER):
        asked = [step for namespace in OLDER for step in _older(namespace)]
        yield f"older: {role or 'no token'}", [(role, *step) for step in asked]
