"""More of admin_scenes.py: bundles, and what a standalone keeps and shows of clusters and brokers."""

from __future__ import annotations

from typing import Any, Final

Step = tuple[str, str] | tuple[str, str, Any]

N: Final = "namespaces/public"
BUNDLES: Final[tuple[Any, ...]] = (
    {"numBundles": 4}, {"numBundles": 16}, {"numBundles": 1}, {"numBundles": 0}, {"numBundles": -1}, {"numBundles": 3},
    {"numBundles": "8"}, {"numBundles": 8.9}, None, {},
    {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2},
    {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"]},
    {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 7},
    {"boundaries": ["0x10000000", "0x80000000", "0xffffffff"], "numBundles": 2},
    {"boundaries": ["0xffffffff", "0x80000000", "0x00000000"], "numBundles": 2},
    {"boundaries": [], "numBundles": 2},
)  # fmt: skip
GROUP: Final = {
    "publishRateInMsgs": 10, "publishRateInBytes": 1000, "dispatchRateInMsgs": 20, "dispatchRateInBytes": 2000,
}  # fmt: skip
QUOTA: Final = {
    "msgRateIn": 10, "msgRateOut": 20, "bandwidthIn": 1000, "bandwidthOut": 2000, "memory": 100, "dynamic": False,
}  # fmt: skip
FIRST: Final = "0x00000000_0x40000000"
OF_BUNDLE: Final[tuple[Any, ...]] = (("GET",), ("POST", QUOTA), ("GET",), ("DELETE",), ("GET",))
CLUSTER: Final = "clusters/standalone"
DOMAINS: Final = f"{CLUSTER}/failureDomains"
ISOLATION: Final = f"{CLUSTER}/namespaceIsolationPolicies"
POLICY: Final[dict[str, Any]] = {
    "namespaces": ["isolated/.*"], "primary": ["127.*"], "secondary": ["b2"],
    "auto_failover_policy": {
        "policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "80"},
    },
}  # fmt: skip
WRONG: Final[tuple[dict[str, Any], ...]] = (
    {"namespaces": None}, {"namespaces": []}, {"primary": None}, {"secondary": None}, {"auto_failover_policy": None},
    {"auto_failover_policy": {"policy_type": "junk"}},
    {"auto_failover_policy": {"policy_type": "min_available", "parameters": {}}},
)  # fmt: skip
OPTION: Final = "brokers/configuration"
OPTIONS: Final = (
    "maxNamespacesPerTenant", "maxTenants", "defaultNumberOfNamespaceBundles", "maxNumPartitionsPerPartitionedTopic",
    "maxTopicsPerNamespace", "dispatchThrottlingRatePerTopicInMsg", "subscribeThrottlingRatePerConsumer",
    "allowAutoSubscriptionCreation", "brokerDeleteInactiveTopicsMode", "forceDeleteNamespaceAllowed",
    "forceDeleteTenantAllowed",
)  # fmt: skip


def _made() -> list[Step]:
    found: list[Step] = []
    for i, bundles in enumerate(BUNDLES):
        path = f"{N}/ranges{i}"
        found += [("PUT", path, {"bundles": bundles}), ("GET", f"{path}/bundles"), ("DELETE", path)]
    return found


def _split(what: str) -> list[Step]:
    return [("PUT", f"{N}/split/{what}"), ("GET", f"{N}/split/bundles")]


SCENES: Final[dict[str, list[Step]]] = {
    "bundles": _made(),
    "splitting": [
        ("PUT", f"{N}/split", {"bundles": {"numBundles": 2}}),
        *_split("0x00000000_0x80000000/split"),
        *_split("0x00000000_0x80000000/split"),
        *_split("0x00000000_0x40000000/split?unload=true"),
        *_split("0x80000000_0xffffffff/split?splitAlgorithmName=range_equally_divide"),
        *_split("0x20000000_0x40000000/split?splitAlgorithmName=nonsense"),
        *_split("0x20000000_0x40000000/split?splitAlgorithmName=topic_count_equally_divide"),
        *_split("0x20000000_0x40000000/split?splitAlgorithmName=specified_positions_divide"),
        *_split("junk/split"),
        *_split("0x80000000_0x00000000/split"),
        *_split("0_0x20000000/split"),
        ("PUT", f"{N}/nosplit/0x00000000_0x20000000/split"),
        ("DELETE", f"{N}/split/0x00000000_0x30000000"),
        ("DELETE", f"{N}/split/junk"),
        ("DELETE", f"{N}/nosplit/0x00000000_0x20000000"),
        ("GET", f"{N}/split/junk/topicHashPositions"),
        ("GET", f"{N}/nosplit/junk/topicHashPositions"),
        ("DELETE", f"{N}/split"),
    ],
    "splitting by topics": [
        ("PUT", f"{N}/counted", {"bundles": {"numBundles": 1}}),
        *(("PUT", f"persistent/public/counted/t{i}") for i in range(6)),
        ("PUT", f"{N}/counted/LARGEST/split?splitAlgorithmName=specified_positions_divide", [0x80000000, 0x60000000]),
        ("GET", f"{N}/counted/bundles"),
        ("GET", "/lookup/v2/topic/persistent/public/counted/t1/bundle"),
        ("GET", "/lookup/v2/topic/persistent/public/counted/t2/bundle"),
        ("GET", "/lookup/v2/topic/persistent/public/counted/t3/bundle"),
        ("GET", "persistent/public/counted?bundle=0x80000000_0xffffffff"),
        ("GET", "persistent/public/counted?bundle=0x80000000"),
        ("DELETE", f"{N}/counted/0x80000000_0xffffffff"),
        ("GET", "non-persistent/public/counted/0x80000000_0xffffffff"),
        ("GET", "non-persistent/public/counted/0x90000000_0xffffffff"),
        ("GET", "non-persistent/public/counted/junk"),
        *(("DELETE", f"persistent/public/counted/t{i}") for i in range(6)),
        ("DELETE", f"{N}/counted"),
    ],
    "resource groups": [
        ("PUT", f"{N}/grouped"),
        ("GET", "resourcegroups/g"),
        ("PUT", "resourcegroups/g", GROUP),
        ("GET", "resourcegroups"),
        ("GET", "resourcegroups/g"),
        ("PUT", "resourcegroups/g", {"publishRateInMsgs": 11}),
        ("GET", "resourcegroups/g"),
        ("PUT", "resourcegroups/h", {}),
        ("GET", "resourcegroups/h"),
        ("PUT", "resourcegroups/h", {"publishRateInMsgs": "junk"}),
        ("PUT", "resourcegroups/h", {"nosuch": 1}),
        ("GET", f"{N}/grouped/resourcegroup"),
        ("POST", f"{N}/grouped/resourcegroup/nosuch"),
        ("POST", f"{N}/grouped/resourcegroup/g"),
        ("GET", f"{N}/grouped/resourcegroup"),
        ("DELETE", "resourcegroups/g"),
        ("DELETE", f"{N}/grouped/resourcegroup"),
        ("GET", f"{N}/grouped/resourcegroup"),
        ("POST", f"{N}/nogroups/resourcegroup/g"),
        ("DELETE", f"{N}/nogroups/resourcegroup"),
        ("GET", f"{N}/nogroups/resourcegroup"),
        ("DELETE", "resourcegroups/g"),
        ("DELETE", "resourcegroups/h"),
        ("GET", "resourcegroups"),
        ("DELETE", f"{N}/grouped"),
    ],
    "resource quotas": [
        ("PUT", f"{N}/weighed"),
        ("GET", "resource-quotas"),
        ("POST", "resource-quotas", QUOTA),
        ("GET", "resource-quotas"),
        ("POST", "resource-quotas", {"msgRateIn": 1}),
        ("GET", "resource-quotas"),
        ("POST", "resource-quotas", {"msgRateIn": "x"}),
        *((method, f"resource-quotas/public/weighed/{FIRST}", *body) for method, *body in OF_BUNDLE),
        ("GET", "resource-quotas/public/weighed/junk"),
        ("POST", "resource-quotas/public/weighed/junk", {"msgRateIn": 1}),
        ("DELETE", "resource-quotas/public/weighed/junk"),
        *((method, f"resource-quotas/public/unweighed/{FIRST}", *body) for method, *body in OF_BUNDLE),
        ("POST", "resource-quotas", {**QUOTA, "dynamic": True}),
        ("DELETE", f"{N}/weighed"),
    ],
    "anti-affinity and old strategies": [
        ("PUT", f"{N}/apart"),
        ("GET", f"{N}/apart/antiAffinity"),
        ("POST", f"{N}/apart/antiAffinity", "grp"),
        ("GET", f"{N}/apart/antiAffinity"),
        ("POST", f"{N}/apart/antiAffinity"),
        ("GET", "namespaces/standalone/antiAffinity/grp"),
        ("DELETE", f"{N}/apart/antiAffinity"),
        ("GET", f"{N}/apart/antiAffinity"),
        ("POST", f"{N}/apart/persistence/bookieAffinity", {"bookkeeperAffinityGroupPrimary": "x"}),
        ("GET", f"{N}/apart/persistence/bookieAffinity"),
        ("DELETE", f"{N}/apart/persistence/bookieAffinity"),
        ("GET", f"{N}/apart/persistence/bookieAffinity"),
        ("GET", f"{N}/apart/schemaAutoUpdateCompatibilityStrategy"),
        *(
            (method, f"{N}/apart/schemaAutoUpdateCompatibilityStrategy", *body)
            for strategy in ("Full", "AutoUpdateDisabled", "ForwardTransitive", "junk", None)
            for method, *body in (("PUT", strategy), ("GET",))
        ),
        ("GET", f"{N}/apart/schemaCompatibilityStrategy"),
        ("GET", f"{N}/notapart/schemaAutoUpdateCompatibilityStrategy"),
        ("PUT", f"{N}/notapart/schemaAutoUpdateCompatibilityStrategy", "Full"),
        ("DELETE", f"{N}/apart"),
    ],
    "with isolation policies": [  # behind what has none: a cluster that had some is another than one that never had
        ("POST", f"{ISOLATION}/p", POLICY),
        ("GET", ISOLATION),
        ("GET", f"{ISOLATION}/p"),
        ("GET", f"{ISOLATION}/q"),
        ("GET", f"{ISOLATION}/brokers"),
        ("GET", f"{ISOLATION}/brokers/127.0.0.1:8080"),
        ("GET", f"{ISOLATION}/brokers/b"),
        *(("POST", f"{ISOLATION}/p", {**POLICY, **wrong}) for wrong in WRONG),
        ("POST", "clusters/nocluster/namespaceIsolationPolicies/p", {}),
        ("POST", f"{ISOLATION}/p2", {**POLICY, "unload_scope": "none"}),
        ("GET", f"{ISOLATION}/p2"),
        ("DELETE", f"{ISOLATION}/p"),
        ("DELETE", f"{ISOLATION}/p"),
        ("DELETE", f"{ISOLATION}/p2"),
        ("GET", ISOLATION),
        ("GET", "clusters/nocluster/namespaceIsolationPolicies"),
        ("GET", f"{ISOLATION}/brokers"),
        ("DELETE", "clusters/nocluster/namespaceIsolationPolicies/p"),
    ],
    "peers and failure domains": [
        ("PUT", "clusters/far", {"serviceUrl": "http://far:8080"}),
        ("POST", f"{CLUSTER}/peers", ["far"]),
        ("GET", f"{CLUSTER}/peers"),
        ("POST", f"{CLUSTER}/peers", ["nosuch"]),
        ("POST", f"{CLUSTER}/peers", ["standalone"]),
        ("POST", f"{CLUSTER}/peers", []),
        ("GET", f"{CLUSTER}/peers"),
        ("POST", f"{CLUSTER}/peers"),
        ("POST", f"{CLUSTER}/peers", {}),
        ("GET", "clusters/nocluster/peers"),
        ("POST", "clusters/nocluster/peers", ["far"]),
        ("POST", "clusters/far/peers", ["standalone"]),
        ("GET", "clusters/far"),
        ("POST", f"{DOMAINS}/d", {"brokers": ["b1"]}),
        ("GET", DOMAINS),
        ("GET", f"{DOMAINS}/d"),
        ("POST", f"{DOMAINS}/e", {"brokers": ["b1"]}),
        ("POST", f"{DOMAINS}/e", {"brokers": ["b3"]}),
        ("POST", f"{DOMAINS}/d", {"brokers": ["b4"]}),
        ("GET", DOMAINS),
        ("GET", f"{DOMAINS}/nosuch"),
        ("POST", "clusters/nocluster/failureDomains/d", {"brokers": ["b1"]}),
        ("GET", "clusters/nocluster/failureDomains"),
        ("GET", "clusters/nocluster/failureDomains/d"),
        ("DELETE", f"{DOMAINS}/d"),
        ("DELETE", f"{DOMAINS}/d"),
        ("DELETE", f"{DOMAINS}/e"),
        ("DELETE", "clusters/nocluster/failureDomains/d"),
        ("GET", DOMAINS),
        ("DELETE", "clusters/far"),
    ],
    "the broker's options": [
        ("POST", f"{OPTION}/clusterName/other"),
        ("DELETE", f"{OPTION}/clusterName"),
        ("POST", f"{OPTION}/maxNamespacesPerTenant/1"),
        ("PUT", f"{N}/onemore"),
        ("POST", f"{OPTION}/maxNamespacesPerTenant/100"),
        ("POST", f"{OPTION}/maxTenants/1"),
        ("PUT", "tenants/optional", {"allowedClusters": ["standalone"]}),
        ("POST", f"{OPTION}/maxTenants/100"),
        ("PUT", "tenants/optional", {"allowedClusters": ["standalone"]}),
        ("POST", f"{OPTION}/defaultNumberOfNamespaceBundles/3"),
        ("PUT", "namespaces/optional/n"),
        ("GET", "namespaces/optional/n/bundles"),
        ("PUT", "persistent/optional/n/t"),
        ("POST", f"{OPTION}/maxNumPartitionsPerPartitionedTopic/2"),
        ("PUT", "persistent/optional/n/p/partitions", 3),
        ("PUT", "persistent/optional/n/p/partitions", 2),
        ("POST", "persistent/optional/n/p/partitions", 3),
        ("POST", f"{OPTION}/maxTopicsPerNamespace/1"),
        ("PUT", "persistent/optional/n/second"),
        ("POST", f"{OPTION}/dispatchThrottlingRatePerTopicInMsg/100"),
        ("GET", "persistent/optional/n/t/dispatchRate?applied=true"),
        ("GET", "persistent/optional/n/t/dispatchRate"),
        ("GET", "namespaces/optional/n/dispatchRate"),
        ("POST", f"{OPTION}/subscribeThrottlingRatePerConsumer/7"),
        ("GET", "persistent/optional/n/t/subscribeRate?applied=true"),
        ("POST", f"{OPTION}/allowAutoSubscriptionCreation/false"),
        ("GET", "persistent/optional/n/t/autoSubscriptionCreation?applied=true"),
        ("POST", f"{OPTION}/brokerDeleteInactiveTopicsMode/delete_when_subscriptions_caught_up"),
        ("GET", "persistent/optional/n/t/inactiveTopicPolicies?applied=true"),
        ("GET", f"{OPTION}/values"),
        ("DELETE", "namespaces/optional/n?force=true"),
        ("DELETE", "tenants/optional?force=true"),
        ("POST", f"{OPTION}/forceDeleteNamespaceAllowed/true"),
        ("POST", f"{OPTION}/forceDeleteTenantAllowed/true"),
        ("DELETE", "namespaces/optional/n?force=true"),
        ("GET", "namespaces/optional"),
        ("PUT", "namespaces/optional/n2"),
        ("PUT", "persistent/optional/n2/t"),
        ("DELETE", "tenants/optional?force=true"),
        ("DELETE", "tenants/optional?force=true"),
        ("DELETE", "namespaces/public/optional?force=true"),
        *(("DELETE", f"{OPTION}/{name}") for name in OPTIONS),
        ("GET", f"{OPTION}/values"),
    ],
}
