"""REST: what a standalone broker has and this one never does: peers, failure domains and isolation policies of
clusters, resource groups, bookies, dynamic configuration, functions. Lists are empty, and nothing can be added."""

from __future__ import annotations

from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar.refusals import RefusedError, not_found, precondition
from mq_shards.gateway.pulsar.requests import Call, Handler, Routes, json_of


def _empty(found: object) -> Handler:
    async def get(_call: Call) -> Answer:
        return json_of(found)

    return get


def _missing(reason: str) -> Handler:
    """`reason` may have names of the path in braces."""

    async def answer(call: Call) -> Answer:
        raise not_found(reason.format_map(call.names))

    return answer


def _off(status: int, reason: str) -> Handler:
    """For a service that this broker has not, or that a standalone has only if it is switched on."""

    async def answer(_call: Call) -> Answer:
        raise RefusedError(status, "NotAllowedError", reason)

    return answer


def _static(what: str) -> Handler:
    async def answer(_call: Call) -> Answer:
        raise precondition(f"Can't {what} non-dynamic configuration")

    return answer


_CLUSTER = "/admin/v2/clusters/{cluster}"
_NO_ISOLATION = _missing("NamespaceIsolationPolicies for cluster {cluster} does not exist")
_NO_DOMAIN = _missing("Domain {domain} for cluster {cluster} does not exist")
_NO_RACK = _missing("Bookie rack placement configuration not found: {bookie}")
_CANNOT_ISOLATE = _off(501, "this broker has one cluster of one broker, and nothing to isolate")
_CANNOT_LIMIT = _off(501, "this broker has no resource groups")

_NO_WORKER = _off(409, "Pulsar Function Worker is not enabled, probably functionsWorkerEnabled is set to false")
_NO_PACKAGES = _off(503, "Package Management Service is not enabled in the broker.")
_ALL_METHODS = ("GET", "PUT", "POST", "DELETE")
_OF_WORKER = ("/admin/v3/functions", "/admin/v3/sinks", "/admin/v3/sources")
_BELOW = ("/{tenant}/{namespace}", "/{tenant}/{namespace}/{name}", "/{tenant}/{namespace}/{name}/{what}")

ROUTES: Routes = {
    **{f"{kind}{below}": dict.fromkeys(_ALL_METHODS, _NO_WORKER) for kind in _OF_WORKER for below in _BELOW},
    "/admin/v2/worker/{what}": {"GET": _NO_WORKER},
    **{f"/admin/v3/packages/{{type}}{below}": dict.fromkeys(_ALL_METHODS, _NO_PACKAGES) for below in _BELOW},
    f"{_CLUSTER}/peers": {"GET": _empty(None), "POST": _CANNOT_ISOLATE},
    f"{_CLUSTER}/failureDomains": {"GET": _empty({})},
    f"{_CLUSTER}/failureDomains/{{domain}}": {"GET": _NO_DOMAIN, "POST": _CANNOT_ISOLATE, "DELETE": _NO_DOMAIN},
    f"{_CLUSTER}/namespaceIsolationPolicies": {"GET": _NO_ISOLATION},
    f"{_CLUSTER}/namespaceIsolationPolicies/{{policy}}": {
        "GET": _NO_ISOLATION, "POST": _CANNOT_ISOLATE, "DELETE": _NO_ISOLATION,
    },
    f"{_CLUSTER}/namespaceIsolationPolicies/brokers/{{broker}}": {"GET": _NO_ISOLATION},
    "/admin/v2/resourcegroups": {"GET": _empty([])},
    "/admin/v2/resourcegroups/{group}": {
        "GET": _missing("ResourceGroup does not exist"), "PUT": _CANNOT_LIMIT,
        "DELETE": _missing("ResourceGroup does not exist"),
    },
    "/admin/v2/bookies/all": {"GET": _empty({"bookies": []})},
    "/admin/v2/bookies/racks-info": {"GET": _empty({})},
    "/admin/v2/bookies/racks-info/{bookie}": {"GET": _NO_RACK, "DELETE": _NO_RACK},
    "/admin/v2/brokers/configuration": {"GET": _empty([])},
    "/admin/v2/brokers/configuration/values": {"GET": _empty({})},
    "/admin/v2/brokers/configuration/{option}": {"DELETE": _static("delete")},
    "/admin/v2/brokers/configuration/{option}/{value}": {"POST": _static("update")},
}  # fmt: skip
