"""REST: tenants, the broker itself, lookup."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final

from mq_shards.acceptor.protocols.pulsar.names import NO_LISTENER, PERSISTENT, PulsarNameError, check_entity
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar import bundles
from mq_shards.gateway.pulsar.catalog import CLUSTER, Json
from mq_shards.gateway.pulsar.control import MAX_TENANTS, Control
from mq_shards.gateway.pulsar.refusals import RefusedError, conflict, not_found, precondition, too_many
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Routes, json_of, text_of
from mq_shards.gateway.turns import in_pieces

NO_TENANT: Final = "Tenant does not exist"

_HOST: Final = re.compile(r"([\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?", re.ASCII)
_ANYWHERE: Final = re.compile(r"://(?:0\.0\.0\.0|\[::\]):")


@dataclass(frozen=True, slots=True)
class Urls:
    """The URLs by which clients reach this broker; "" where nothing listens."""

    broker: str
    broker_tls: str
    web: str
    web_tls: str

    @property
    def broker_id(self) -> str:
        return (self.web or self.web_tls).partition("://")[2]

    def as_asked(self, host: str) -> Urls:
        """Replaces "all addresses" by the name by which a client reached this broker. `host`: its Host header."""
        named = _HOST.fullmatch(host)
        if named is None:
            return self
        urls = (self.broker, self.broker_tls, self.web, self.web_tls)
        return Urls(*(_ANYWHERE.sub(f"://{named[1]}:", url, count=1) for url in urls))


class HttpTenants:
    def __init__(
        self, control: Control, urls: Urls, health: Callable[[], str], metrics: Callable[[], Awaitable[Answer]]
    ) -> None:
        """`health` returns OK, or why the broker is not healthy."""
        self._control = control
        self._urls = urls
        self._health = health
        self._metrics = metrics
        self.routes: Routes = {
            "/admin/v2/tenants": {"GET": self._list},
            "/admin/v2/tenants/{tenant}": {
                "GET": self._get, "PUT": self._make, "POST": self._change, "DELETE": self._delete,
            },
            "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}": {"GET": self._lookup},
            "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle": {"GET": self._bundle},
            "/admin/v2/brokers/health": {"GET": self._say_health},
            "/admin/v2/brokers/ready": {"GET": self._say_health},
            "/admin/v2/brokers/version": {"GET": self._version},
            "/admin/v2/brokers/leaderBroker": {"GET": self._leader},
            # Whatever it is named.
            "/admin/v2/brokers/{cluster}": {"GET": self._brokers},
            "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces": {"GET": self._owned},
            "/admin/v2/brokers": {"GET": self._brokers},
            "/status.html": {"GET": self._say_health},
            "/metrics": {"GET": self._to_metrics},
            "/metrics/": {"GET": self._say_metrics},
        }  # fmt: skip

    # --- tenants ----------------------------------------------------------------------------------------------------

    async def _list(self, call: Call) -> Answer:
        self._control.store.check()
        return json_of(sorted(self._control.store.catalog.tenants))

    def _found(self, call: Call, reason: str = NO_TENANT) -> Json:
        self._control.store.check()
        found = self._control.store.catalog.tenants.get(call.names["tenant"])
        if found is None:
            raise not_found(reason)
        return found

    async def _get(self, call: Call) -> Answer:
        found = self._found(call)
        await self._control.store.settled()
        return json_of(found)

    def _checked(self, given: Json) -> Json:
        clusters = given.get("allowedClusters") or []
        roles = given.get("adminRoles") or []
        if not are_texts(clusters) or not clusters or not all(map(str.strip, clusters)):
            raise precondition("Clusters cannot be empty or blank")
        if any(cluster != CLUSTER and cluster not in self._control.store.catalog.clusters for cluster in clusters):
            raise precondition("Clusters do not exist")
        if not are_texts(roles):
            raise precondition("adminRoles are strings")
        if any(role != role.strip() for role in roles):
            raise precondition("AdminRoles contains whitespace in the beginning or end.")
        return {"adminRoles": roles, "allowedClusters": clusters}

    async def _make(self, call: Call) -> Answer:
        name = entity(call.names["tenant"], "Tenant name is not valid")
        given = await call.object()
        tenants = self._control.store.catalog.tenants
        data = self._checked(given)
        if name in tenants:
            raise conflict("Tenant already exist")
        if len(tenants) >= min(self._control.options.of("maxTenants") or MAX_TENANTS, MAX_TENANTS):
            raise too_many("Exceed the maximum number of tenants")
        await self._control.store.commit({"do": "tenant", "name": name, "data": data})
        return NO_CONTENT

    async def _change(self, call: Call) -> Answer:
        given = await call.object()
        self._found(call, f"Tenant {call.names['tenant']} not found")
        data = self._checked(given)
        await self._control.store.commit({"do": "tenant", "name": call.names["tenant"], "data": data})
        self._control.permissions_changed(call.names["tenant"])
        return NO_CONTENT

    async def _delete(self, call: Call) -> Answer:
        name = call.names["tenant"]
        if call.flag("force"):
            if not self._control.options.of("forceDeleteTenantAllowed"):
                raise RefusedError(405, "NotAllowedError", "Broker doesn't allow forced deletion of tenants")
            self._found(call, "Tenant doesn't exist")
            for namespace in self._control.store.catalog.namespaces_of(name):
                await self._control.delete_topics(namespace)
                await self._control.delete_namespace(namespace)
        self._found(call, "Tenant doesn't exist")
        if self._control.store.catalog.namespaces_of(name):
            raise conflict("The tenant still has active namespaces")
        await self._control.store.commit({"do": "no-tenant", "name": name})
        return NO_CONTENT

    # --- the broker -------------------------------------------------------------------------------------------------

    async def _lookup(self, call: Call) -> Answer:
        name = call.topic(self._control)
        self._control.namespace(name.namespace)
        if listener := call.fields.get("listenerName") or call.request.headers.get("x-pulsar-listenername"):
            raise RefusedError(500, "ServiceNotReady", NO_LISTENER.format(listener))
        if name.domain == PERSISTENT and not await self._control.exists(name) and not self._control.may_make(name):
            raise not_found(f"Topic not found {name}")
        urls = self._urls.as_asked(call.request.headers.get("host", ""))
        found = {
            "brokerUrl": urls.broker,
            "httpUrl": urls.web,
            "nativeUrl": urls.broker,
            "brokerUrlSsl": urls.broker_tls,
        }
        if urls.broker_tls:
            found["brokerUrlTls"] = urls.broker_tls
        if urls.web_tls:
            found["httpUrlTls"] = urls.web_tls
        return json_of(found)

    async def _bundle(self, call: Call) -> Answer:
        name = call.topic(self._control)
        boundaries = bundles.boundaries_of(self._control.namespace(name.namespace).policies)
        return text_of(bundles.bundle_of(boundaries, str(name)))

    async def _say_health(self, call: Call) -> Answer:
        self._control.store.check()
        found = self._health()
        return text_of("ok") if found == "OK" else Answer(503, found.encode(), {"Content-Type": "text/plain"})

    async def _version(self, call: Call) -> Answer:
        return text_of(f"mq-shards {metadata.version('mq-shards')}")

    async def _leader(self, call: Call) -> Answer:
        return json_of({"brokerId": self._urls.broker_id, "serviceUrl": self._urls.web})

    async def _brokers(self, call: Call) -> Answer:
        return json_of([self._urls.broker_id])

    async def _owned(self, call: Call) -> Answer:
        """All bundles of all namespaces."""
        self._control.store.check()
        if call.names["broker"] != self._urls.broker_id:
            raise not_found(f"Broker id '{call.names['broker']}' not found in available brokers.")
        status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        return json_of(
            {
                f"{namespace}/{bundle}": status
                async for piece in in_pieces(list(self._control.store.catalog.namespaces.items()), piece=64)
                for namespace, found in piece
                for bundle in bundles.names_of(bundles.boundaries_of(found.policies))
            }
        )

    async def _to_metrics(self, call: Call) -> Answer:
        return Answer(302, b"", {"Location": "/metrics/"})

    async def _say_metrics(self, call: Call) -> Answer:
        return await self._metrics()


def are_texts(found: Any) -> bool:  # noqa: ANN401
    return isinstance(found, list) and all(isinstance(one, str) for one in found)


def entity(name: str, reason: str) -> str:
    try:
        return check_entity(name)
    except PulsarNameError:
        raise precondition(reason) from None
