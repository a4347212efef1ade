"""REST: the paths of before Pulsar 2.0, whose namespaces have a cluster in their names. Each is one of today's paths,
with the namespace `cluster/namespace`, and fewer methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import NON_PERSISTENT, PERSISTENT, PulsarNameError, check_namespace
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar.catalog import CLUSTER
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.refusals import not_found, precondition
from mq_shards.gateway.pulsar.requests import Call, Routes, json_of

DOMAINS: Final = (PERSISTENT, NON_PERSISTENT)
_CLUSTERED: Final = "{tenant}/{cluster}/{namespace}"
_TODAY: Final = "{tenant}/{namespace}"
_SUBSCRIPTION: Final = "subscription/{subscription}"
_LOOKUP: Final = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
_NAMESPACE: Final = "/admin/namespaces/" + _CLUSTERED

# What there was of a namespace, a topic and a schema, and with which methods.
_OF_NAMESPACE: Final = {
    "": "GET PUT DELETE", "permissions": "GET", "permissions/subscription": "GET",
    "permissions/{role}": "POST DELETE", "permissions/{role}/{of}": "POST DELETE", "replication": "GET POST",
    "messageTTL": "GET POST DELETE", "subscriptionExpirationTime": "GET POST DELETE", "antiAffinity": "GET POST DELETE",
    "deduplication": "POST", "autoTopicCreation": "GET POST DELETE", "autoSubscriptionCreation": "GET POST DELETE",
    "bundles": "GET", "unload": "PUT", "{bundle}": "DELETE", "{bundle}/unload": "PUT",
    "{bundle}/split": "PUT", "{bundle}/topicHashPositions": "GET", "publishRate": "GET POST",
    "dispatchRate": "GET POST", "subscriptionDispatchRate": "GET POST DELETE", "replicatorDispatchRate": "GET POST",
    "backlogQuotaMap": "GET", "backlogQuota": "POST DELETE", "retention": "GET POST", "persistence": "GET POST",
    "persistence/bookieAffinity": "GET POST DELETE", "clearBacklog": "POST", "{bundle}/clearBacklog": "POST",
    "clearBacklog/{subscription}": "POST", "{bundle}/clearBacklog/{subscription}": "POST",
    "unsubscribe/{subscription}": "POST", "{bundle}/unsubscribe/{subscription}": "POST",
    "subscriptionAuthMode": "GET POST", "encryptionRequired": "GET POST", "maxProducersPerTopic": "GET POST",
    "maxConsumersPerTopic": "GET POST", "maxConsumersPerSubscription": "GET POST DELETE",
    "compactionThreshold": "GET PUT", "offloadThreshold": "GET PUT", "migration": "POST",
    "schemaAutoUpdateCompatibilityStrategy": "GET PUT",
}  # fmt: skip
_OF_TOPICS: Final = {"": "GET", "partitioned": "GET"}
_OF_TOPIC: Final = {
    "": "PUT DELETE", "permissions": "GET", "permissions/{role}": "POST DELETE", "partitions": "GET PUT POST DELETE",
    "unload": "PUT", "subscriptions": "GET", "stats": "GET", "internalStats": "GET", "internal-info": "GET",
    "partitioned-stats": "GET", "partitioned-internalStats": "GET", "lastMessageId": "GET", "compaction": "GET PUT",
    "terminate": "POST", "terminate/partitions": "POST", "offload": "GET PUT", "ledger/{ledger}/entry/{entry}": "GET",
    "all_subscription/expireMessages/{seconds}": "POST", _SUBSCRIPTION: "PUT DELETE",
    f"{_SUBSCRIPTION}/skip_all": "POST", f"{_SUBSCRIPTION}/skip/{{count}}": "POST",
    f"{_SUBSCRIPTION}/expireMessages": "POST", f"{_SUBSCRIPTION}/expireMessages/{{seconds}}": "POST",
    f"{_SUBSCRIPTION}/resetcursor": "POST", f"{_SUBSCRIPTION}/resetcursor/{{time}}": "POST",
    f"{_SUBSCRIPTION}/position/{{place}}": "GET", f"{_SUBSCRIPTION}/replicatedSubscriptionStatus": "GET POST",
}  # fmt: skip
_OF_SCHEMA: Final = {
    "schema": "GET POST DELETE", "schema/{version}": "GET", "schemas": "GET", "metadata": "GET", "version": "POST",
    "compatibility": "POST",
}  # fmt: skip
# Below these all of today's is there too.
_SAME: Final = {
    "/admin/v2/clusters": "/admin/clusters", "/admin/v2/brokers": "/admin/brokers",
    "/admin/v2/tenants": "/admin/properties", "/admin/v2/broker-stats": "/admin/broker-stats",
}  # fmt: skip
_AVAILABILITY: Final = "broker-stats/broker-resource-availability"
_OTHERWISE: Final = ("/admin/v2/broker-stats/topics", f"/admin/v2/{_AVAILABILITY}/{_TODAY}")


def _paths() -> dict[str, tuple[str, str | None]]:
    """By path: today's, and its methods (None: all)."""
    found: dict[str, tuple[str, str | None]] = {
        "/admin/namespaces/{tenant}": ("/admin/v2/namespaces/{tenant}", "GET"),
        f"{_NAMESPACE}/destinations": (f"/admin/v2/namespaces/{_TODAY}/topics", "GET"),
        f"{_NAMESPACE}/policy": (f"/admin/v2/namespaces/{_TODAY}", "PUT"),
        "/admin/broker-stats/destinations": ("/admin/v2/broker-stats/topics", "GET"),
        f"/admin/resource-quotas/{_CLUSTERED}/{{bundle}}": (f"/admin/v2/resource-quotas/{_TODAY}/{{bundle}}", None),
        f"/admin/{_AVAILABILITY}/{_CLUSTERED}": (f"/admin/v2/{_AVAILABILITY}/{_TODAY}", "GET"),
        f"/lookup/v2/destination/{{domain}}/{_CLUSTERED}/{{topic}}": (_LOOKUP, "GET"),
        f"/lookup/v2/destination/{{domain}}/{_CLUSTERED}/{{topic}}/bundle": (f"{_LOOKUP}/bundle", "GET"),
    }
    for older, today, wanted in (
        (_NAMESPACE, f"/admin/v2/namespaces/{_TODAY}", _OF_NAMESPACE),
        *((f"/admin/{domain}/{_CLUSTERED}", f"/admin/v2/{{domain}}/{_TODAY}", _OF_TOPICS) for domain in DOMAINS),
        *((f"/admin/{domain}/{_CLUSTERED}/{{topic}}", f"/admin/v2/{{domain}}/{_TODAY}/{{topic}}", _OF_TOPIC)
          for domain in DOMAINS),
        (f"/admin/schemas/{_CLUSTERED}/{{topic}}", f"/admin/v2/schemas/{_TODAY}/{{topic}}", _OF_SCHEMA),
    ):  # fmt: skip
        for below, methods in wanted.items():
            end = f"/{below}" if below else ""
            found[older + end] = today + end, methods
    return found


class OlderPaths:
    def __init__(self, control: Control, routes: Routes) -> None:
        """`routes`: today's."""
        self._control = control
        self._today: dict[str, str] = {}
        self.routes: Routes = {
            "/admin/namespaces/{tenant}/{cluster}": {"GET": self._of_cluster},
        }
        paths = _paths()
        for today in routes:
            for begin, older in _SAME.items():
                if today == begin or (today.startswith(f"{begin}/") and today not in _OTHERWISE):
                    paths.setdefault(older + today.removeprefix(begin), (today, None))
        for path, (today, methods) in paths.items():
            there = routes[today]
            self.routes[path] = there if methods is None else {one: there[one] for one in methods.split()}
            self._today[path] = today
        for name, methods in _OF_NAMESPACE.items():  # what cannot be removed is taken for a bundle
            if name and name[0] != "{" and "/" not in name and "DELETE" not in methods:
                self.routes[f"{_NAMESPACE}/{name}"]["DELETE"] = self._no_bundle

    def today(self, route: str, names: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
        """What is asked, as it is asked today. Raises RefusedError."""
        today = self._today.get(route, route)
        if today.startswith("/admin/v2/"):
            _check(names)
        if "cluster" not in names or "namespace" not in names:
            return today, names
        found = {**names, "namespace": f"{names['cluster']}/{names['namespace']}"}
        if route.startswith("/admin/"):
            try:
                check_namespace(f"{found['tenant']}/{found['namespace']}")
            except PulsarNameError:
                raise precondition("Namespace name is not valid") from None
            if not found.get("topic", "t").strip():
                raise precondition("Topic name is not valid")
            found.setdefault("domain", NON_PERSISTENT if route.startswith("/admin/non-persistent/") else PERSISTENT)
        return today, found

    async def _of_cluster(self, call: Call) -> Answer:
        """The namespaces of a tenant that have this cluster in their names."""
        self._control.store.check()
        if call.names["cluster"] != CLUSTER:
            raise not_found("Cluster does not exist")
        await self._control.store.settled()
        begin = f"{call.names['tenant']}/{call.names['cluster']}/"
        found = self._control.store.catalog.namespaces_of(call.names["tenant"])
        return json_of([name for name in found if name.startswith(begin)])

    async def _no_bundle(self, call: Call) -> Answer:
        last = call.request.target.partition("?")[0].rpartition("/")[2]
        raise precondition(f"Invalid bundle range: {last}")


def _check(names: Mapping[str, str]) -> None:
    """A part of a path is no more than one part of a name, but for the topic's own."""
    if "namespace" in names and any("/" in names.get(part, "") for part in ("tenant", "cluster", "namespace")):
        raise precondition(f"{'Topic' if 'topic' in names else 'Namespace'} name is not valid")
