"""REST: what a bundle may take, as a load balancer reckons with it: kept and shown. There is nothing to balance."""

from __future__ import annotations

from typing import Final

from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar import bundles, scalars
from mq_shards.gateway.pulsar.catalog import Json
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Routes, json_of, object_of

KEY: Final = "resource-quota"  # under which the catalog keeps that of all bundles without one
OF_BUNDLES: Final = "bundle_quotas"  # among a namespace's policies
NUMBERS: Final = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory")
# What a standalone says where nobody has said anything.
DEFAULT: Final[Json] = {
    "msgRateIn": 40.0, "msgRateOut": 120.0, "bandwidthIn": 100000.0, "bandwidthOut": 300000.0, "memory": 80.0,
    "dynamic": True,
}  # fmt: skip


class HttpQuotas:
    def __init__(self, control: Control) -> None:
        self._control = control
        self.routes: Routes = {
            "/admin/v2/resource-quotas": {"GET": self._get, "POST": self._set},
            "/admin/v2/resource-quotas/{tenant}/{namespace}/{bundle}": {
                "GET": self._of_bundle, "POST": self._set_of_bundle, "DELETE": self._reset,
            },
        }  # fmt: skip

    def _default(self) -> Json:
        self._control.store.check()
        return self._control.store.catalog.broker.get(KEY) or DEFAULT

    async def _get(self, _: Call) -> Answer:
        found = self._default()
        await self._control.store.settled()
        return json_of(found)

    async def _set(self, call: Call) -> Answer:
        await self._control.set_broker(KEY, await _given(call))
        return NO_CONTENT

    def _found(self, call: Call) -> tuple[Json, str]:
        """The policies of the bundle's namespace, and its name."""
        policies = self._control.namespace(call.namespace, "Namespace does not exist", made=True).policies
        boundaries = bundles.boundaries_of(policies)
        return policies, bundles.range_of(*bundles.checked(call.namespace, boundaries, call.names["bundle"]))

    async def _of_bundle(self, call: Call) -> Answer:
        policies, bundle = self._found(call)
        found = policies.get(OF_BUNDLES, {}).get(bundle)
        await self._control.store.settled()
        return json_of(found or self._default())

    async def _set_of_bundle(self, call: Call) -> Answer:
        quota = await _given(call)
        policies, bundle = self._found(call)
        quotas = {**policies.get(OF_BUNDLES, {}), bundle: quota}
        await self._control.set_policies(call.namespace, {**policies, OF_BUNDLES: quotas})
        return NO_CONTENT

    async def _reset(self, call: Call) -> Answer:
        policies, bundle = self._found(call)
        left = {name: quota for name, quota in policies.get(OF_BUNDLES, {}).items() if name != bundle}
        await self._control.set_policies(call.namespace, {**policies, OF_BUNDLES: left})
        return NO_CONTENT


async def _given(call: Call) -> Json:
    given = await call.json()
    if given is None:
        return {}  # as if nobody had said anything
    wanted = object_of(given)
    found: Json = {name: scalars.decimal(wanted.get(name), name) for name in NUMBERS}
    return {**found, "dynamic": scalars.flag(wanted.get("dynamic", True), "dynamic")}
