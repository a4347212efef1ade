"""REST: what a standalone broker has and this one never does: clusters to migrate to, bookies, functions, a JVM. Lists
are empty, and nothing can be added."""

from __future__ import annotations

from itertools import accumulate

from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar.refusals import RefusedError, not_found
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Handler, Routes, json_of


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


async def _allocator(call: Call) -> Answer:
    """There are no Netty allocators: their figures, as pulsar-admin reads them, are 0."""
    if call.names["allocator"] not in ("default", "ml-cache"):
        raise RefusedError(406, "NotAllowedError", f"Invalid allocator name : {call.names['allocator']}")
    return json_of(dict.fromkeys(_ALLOCATOR, 0) | {"directArenas": [], "heapArenas": []})


async def _no_check(_call: Call) -> Answer:
    """Quotas are checked every pulsar.policies-interval."""
    return NO_CONTENT


_ALLOCATOR = (
    "numDirectArenas", "numHeapArenas", "numThreadLocalCaches", "normalCacheSize", "smallCacheSize", "usedDirectMemory",
    "usedHeapMemory",
)  # fmt: skip
_CANNOT_TELL = _off(
    409, "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerWrapper does not support this operation"
)

_CLUSTER = "/admin/v2/clusters/{cluster}"
_NO_RACK = _missing("Bookie rack placement configuration not found: {bookie}")
_CANNOT_MIGRATE = _off(501, "this broker has one cluster, and its clients no other one to go to")
_CANNOT_RACK = _off(501, "this broker has no bookies")
_CANNOT_GROW = _off(501, "this broker has one transaction coordinator")

_NO_REPORT = _missing("this broker has its figures, and those of topics, at /metrics/")
_NO_WORKER = _off(409, "Pulsar Function Worker is not enabled, probably functionsWorkerEnabled is set to false")
_NO_PACKAGES = _off(503, "Package Management Service is not enabled in the broker.")
_ALL_METHODS = ("GET", "PUT", "POST", "DELETE")
_OF_WORKER = (
    *(f"/admin/v3/{kind}" for kind in ("functions", "sink", "sinks", "source", "sources")),
    *("/admin/v2/functions", "/admin/functions"),
)
_BELOW = tuple(accumulate(("/{tenant}/{namespace}", "/{name}", "/{what}", "/{more}")))
_BELOW_WORKER = tuple(accumulate(("/{what}", "/{more}", "/{still}")))

ROUTES: Routes = {
    **{
        f"{kind}{below}": dict.fromkeys(_ALL_METHODS, _NO_WORKER)
        for kind in _OF_WORKER
        for below in ("/{tenant}", *_BELOW)
    },
    **{
        f"/admin/v2/{kind}{below}": dict.fromkeys(("GET", "PUT"), _NO_WORKER)
        for kind in ("worker", "worker-stats")
        for below in _BELOW_WORKER
    },
    **{f"/admin/v3/packages/{{type}}{below}": dict.fromkeys(_ALL_METHODS, _NO_PACKAGES) for below in _BELOW},
    f"{_CLUSTER}/migrate": {"GET": _missing("Cluster does not exist"), "POST": _CANNOT_MIGRATE},
    "/admin/v2/bookies/all": {"GET": _empty({"bookies": []})},
    "/admin/v2/bookies/racks-info": {"GET": _empty({})},
    "/admin/v2/bookies/racks-info/{bookie}": {"GET": _NO_RACK, "POST": _CANNOT_RACK, "DELETE": _NO_RACK},
    "/admin/v3/transactions/transactionCoordinator/replicas": {"POST": _CANNOT_GROW},
    **{f"/admin/v2/broker-stats/{what}": {"GET": _NO_REPORT} for what in ("metrics", "load-report")},
    "/admin/v2/brokers/internal-configuration": {"GET": _missing("this broker has no metadata store and no bookies")},
    "/admin/v2/broker-stats/broker-resource-availability/{tenant}/{namespace}": {"GET": _CANNOT_TELL},
    "/admin/v2/broker-stats/bookieops": {"GET": _empty({})},
    "/admin/v2/broker-stats/mbeans": {"GET": _empty([])},
    "/admin/v2/broker-stats/allocator-stats/{allocator}": {"GET": _allocator},
    "/admin/v2/brokers/backlog-quota-check": {"GET": _no_check},
}  # fmt: skip
