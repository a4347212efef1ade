"""REST: policies that tie namespaces to some of a cluster's brokers: kept and shown. There is one broker."""

from __future__ import annotations

import json
from typing import Any, Final

from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar.catalog import CLUSTER, Json
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.http_clusters import POLICIES
from mq_shards.gateway.pulsar.http_tenants import Urls, are_texts
from mq_shards.gateway.pulsar.refusals import RefusedError, not_found, precondition
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Routes, json_of, object_of, required
from mq_shards.gateway.pulsar.watches import Matcher

_ALL: Final = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies"
LISTS: Final = ("namespaces", "primary", "secondary")
FAILOVER: Final = "auto_failover_policy"
MIN_AVAILABLE: Final = "min_available"
NEEDED: Final = frozenset({"min_limit", "usage_threshold"})
SCOPES: Final = ("all_matching", "none", "changed")


class HttpIsolation:
    def __init__(self, control: Control, urls: Urls) -> None:
        self._control = control
        self._broker = urls.broker_id
        self.routes: Routes = {
            _ALL: {"GET": self._list},
            f"{_ALL}/{{policy}}": {"GET": self._get, "POST": self._set, "DELETE": self._delete},
            f"{_ALL}/brokers": {"GET": self._brokers},
            f"{_ALL}/brokers/{{broker}}": {"GET": self._of_broker},
        }

    def _found(self, call: Call) -> Json:
        """The policies of a cluster that has, or had, some."""
        self._control.store.check()
        found = self._cluster(call).get(POLICIES)
        if found is None:
            raise not_found(f"NamespaceIsolationPolicies for cluster {call.names['cluster']} does not exist")
        return dict(found)

    def _cluster(self, call: Call) -> Json:
        name, clusters = call.names["cluster"], self._control.store.catalog.clusters
        if name != CLUSTER and name not in clusters:
            raise not_found(f"Cluster {name} does not exist.")
        return clusters.get(name, {})

    def _to_change(self, call: Call) -> Json:
        self._control.store.check()
        try:
            return self._cluster(call)
        except RefusedError as error:
            raise precondition(error.reason) from None

    async def _list(self, call: Call) -> Answer:
        found = self._found(call)
        await self._control.store.settled()
        return json_of(found)

    async def _get(self, call: Call) -> Answer:
        found = self._found(call).get(call.names["policy"])
        if found is None:
            where = f"{call.names['policy']} for cluster {call.names['cluster']}"
            raise not_found(f"Cannot find NamespaceIsolationPolicy {where}")
        await self._control.store.settled()
        return json_of(found)

    async def _set(self, call: Call) -> Answer:
        given = object_of(required(await call.json()))
        cluster = self._to_change(call)
        policy = _checked(given, call.names["policy"])
        await self._put(call, {**(cluster.get(POLICIES) or {}), call.names["policy"]: policy})
        return NO_CONTENT

    async def _delete(self, call: Call) -> Answer:
        self._to_change(call)
        left = self._found(call)
        if left.pop(call.names["policy"], None) is not None:
            await self._put(call, left)
        return NO_CONTENT

    async def _put(self, call: Call, policies: Json) -> None:
        data = {**self._cluster(call), POLICIES: policies}
        await self._control.store.commit({"do": "cluster", "name": call.names["cluster"], "data": data})

    # --- which brokers they name ------------------------------------------------------------------------------------

    async def _brokers(self, call: Call) -> Answer:
        return json_of([_of_broker(self._found(call), self._broker)])

    async def _of_broker(self, call: Call) -> Answer:
        return json_of(_of_broker(self._found(call), call.names["broker"]))


def _of_broker(policies: Json, broker: str) -> Json:
    """The policy that names a broker: the last of them."""
    found: Json = {"brokerName": broker, "namespaceRegex": [], "primary": False}
    for name, policy in policies.items():
        for kind in ("secondary", "primary"):
            if any(Matcher(pattern, of_topics=False).base(broker) for pattern in policy[kind]):
                found |= {"policyName": name, "namespaceRegex": policy["namespaces"], "primary": kind == "primary"}
    return found


def _checked(given: Json, name: str) -> Json:
    lists = {kind: _texts(given.get(kind)) for kind in LISTS}
    failover = given.get(FAILOVER)
    shown: Json | None = None
    if failover is not None:
        kind = MIN_AVAILABLE if object_of(failover).get("policy_type") == MIN_AVAILABLE else None
        shown = {"parameters": failover.get("parameters"), "policy_type": kind}
    scope = given.get("unload_scope") if given.get("unload_scope") in SCOPES else None
    is_whole = lists["namespaces"] and lists["primary"] and lists["secondary"] is not None
    if not is_whole or shown is None or not _is_failover(shown):
        raise _invalid(name, {**lists, FAILOVER: shown, "unload_scope": scope})
    for pattern in (*(lists["primary"] or ()), *(lists["secondary"] or ())):
        Matcher(pattern, of_topics=False)
    found = {**lists, FAILOVER: shown}
    return found if scope is None else {**found, "unload_scope": scope}


def _texts(given: Any) -> list[str] | None:  # noqa: ANN401
    if given is not None and not are_texts(given):
        raise RefusedError(400, "MetadataError", "namespaces and brokers are lists of patterns")
    found: list[str] | None = given
    return found


def _is_failover(shown: Json) -> bool:
    parameters = shown["parameters"]
    if shown["policy_type"] is None or not isinstance(parameters, dict):
        return False
    return parameters.keys() >= NEEDED and are_texts(list(parameters.values()))


def _invalid(name: str, data: Json) -> RefusedError:
    reason = f"Invalid format of input policy data. policy: {name}; data: {_pretty(data)}"
    return RefusedError(400, "MetadataError", reason)


def _pretty(value: Any, indent: str = "") -> str:  # noqa: ANN401
    """As a real broker writes JSON for people."""
    if isinstance(value, list):
        return f"[ {', '.join(_pretty(one, indent) for one in value)} ]" if value else "[ ]"
    if not isinstance(value, dict):
        return json.dumps(value)
    lines = [f"{indent}  {json.dumps(key)} : {_pretty(one, indent + '  ')}" for key, one in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}" if lines else "{ }"
