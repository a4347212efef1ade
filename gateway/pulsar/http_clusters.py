"""REST: clusters. There is one, and others are kept and shown, with their peers and failure domains."""

from __future__ import annotations

from typing import Final

from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar.catalog import CLUSTER, Json
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.http_tenants import Urls, are_texts, entity
from mq_shards.gateway.pulsar.refusals import RefusedError, conflict, not_found, precondition, too_many
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Routes, json_of, object_of

MAX_CLUSTERS: Final = 1000
NO_CLUSTER: Final = "Cluster does not exist"
PEERS: Final = "peerClusterNames"
# Kept with a cluster's data, and shown by themselves.
DOMAINS: Final = "failureDomains"
POLICIES: Final = "isolationPolicies"

_FIELDS: Final[dict[str, type]] = {
    **dict.fromkeys(
        (
            "serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls", "proxyServiceUrl",
            "proxyProtocol", "authenticationPlugin", "authenticationParameters", "listenerName",
            "brokerClientTlsTrustStoreType", "brokerClientTlsTrustStore", "brokerClientTlsTrustStorePassword",
            "brokerClientTlsKeyStoreType", "brokerClientTlsKeyStore", "brokerClientTlsKeyStorePassword",
            "brokerClientTrustCertsFilePath", "brokerClientCertificateFilePath", "brokerClientKeyFilePath",
            "brokerClientSslFactoryPlugin", "brokerClientSslFactoryPluginParams",
        ),
        str,
    ),
    **dict.fromkeys(
        ("brokerClientTlsEnabled", "tlsAllowInsecureConnection", "brokerClientTlsEnabledWithKeyStore"), bool
    ),
    PEERS: list,
}  # fmt: skip
_ALWAYS: Final = {
    "brokerClientTlsEnabled": False,
    "brokerClientTlsEnabledWithKeyStore": False,
    "tlsAllowInsecureConnection": False,
}


class HttpClusters:
    def __init__(self, control: Control, urls: Urls) -> None:
        self._control = control
        self._urls = urls
        cluster = "/admin/v2/clusters/{cluster}"
        self.routes: Routes = {
            "/admin/v2/clusters": {"GET": self._list},
            cluster: {"GET": self._get, "PUT": self._make, "POST": self._change, "DELETE": self._delete},
            f"{cluster}/peers": {"GET": self._peers, "POST": self._set_peers},
            f"{cluster}/failureDomains": {"GET": self._domains},
            f"{cluster}/failureDomains/{{domain}}": {
                "GET": self._domain, "POST": self._set_domain, "DELETE": self._no_domain,
            },
        }  # fmt: skip

    def _all(self) -> dict[str, Json]:
        self._control.store.check()
        ours: Json = {"serviceUrl": self._urls.web, "brokerServiceUrl": self._urls.broker}
        if self._urls.broker_tls:
            ours["brokerServiceUrlTls"] = self._urls.broker_tls
        there = self._control.store.catalog.clusters
        return {**there, CLUSTER: {**ours, **there.get(CLUSTER, {})}}

    async def _list(self, call: Call) -> Answer:
        return json_of(sorted(self._all()))

    async def _get(self, call: Call) -> Answer:
        found = self._all().get(call.names["cluster"])
        if found is None:
            raise not_found(NO_CLUSTER)
        await self._control.store.settled()
        return json_of({**_ALWAYS, **_without(found, DOMAINS, POLICIES)})

    async def _make(self, call: Call) -> Answer:
        given = await call.json()
        if given is None:
            raise RefusedError(400, "MetadataError", "cluster data is required")
        name, data = entity(call.names["cluster"], "Cluster name is not valid"), _data(object_of(given))
        there_are = self._all()
        if name in there_are:
            raise conflict("Cluster already exists")
        if len(there_are) >= MAX_CLUSTERS:
            raise too_many("there are as many clusters as there may be")
        await self._control.store.commit({"do": "cluster", "name": name, "data": data})
        return Answer(200)

    async def _change(self, call: Call) -> Answer:
        name, data = call.names["cluster"], _data(await call.object())
        if name not in self._all():
            raise not_found(NO_CLUSTER)
        kept = {key: value for key, value in self._kept(name).items() if key in (DOMAINS, POLICIES)}
        await self._put(name, {**data, **kept})
        return Answer(200)

    async def _delete(self, call: Call) -> Answer:
        name = call.names["cluster"]
        if name not in self._all():
            raise not_found(NO_CLUSTER)
        if name == CLUSTER or self._is_used(name) or self._kept(name).get(POLICIES):
            raise precondition("Cluster not empty")
        await self._control.store.commit({"do": "no-cluster", "name": name})
        return NO_CONTENT

    def _is_used(self, cluster: str) -> bool:
        return any(cluster in tenant["allowedClusters"] for tenant in self._control.store.catalog.tenants.values())

    def _kept(self, cluster: str) -> Json:
        """What the catalog has of a cluster; of this one that is what is not known by itself."""
        return self._control.store.catalog.clusters.get(cluster, {})

    async def _put(self, cluster: str, data: Json) -> None:
        await self._control.store.commit({"do": "cluster", "name": cluster, "data": data})

    # --- peers ------------------------------------------------------------------------------------------------------

    def _found(self, call: Call) -> Json:
        found = self._all().get(call.names["cluster"])
        if found is None:
            raise not_found(NO_CLUSTER)
        return found

    async def _peers(self, call: Call) -> Answer:
        found = self._found(call)
        await self._control.store.settled()
        return json_of(found.get(PEERS))

    async def _set_peers(self, call: Call) -> Answer:
        given, name = await call.json(), call.names["cluster"]
        self._found(call)
        if given is not None and not are_texts(given):
            raise RefusedError(400, "MetadataError", "the body is not a list of clusters")
        for peer in given or ():
            if peer == name:
                raise precondition(f"{name} itself can't be part of peer-list")
            if peer not in self._all():
                raise precondition(f"Peer cluster {peer} does not exist")
        rest = _without(self._kept(name), PEERS)
        await self._put(name, rest if given is None else {**rest, PEERS: list(dict.fromkeys(given))})
        return NO_CONTENT

    # --- failure domains --------------------------------------------------------------------------------------------

    def _domains_of(self, call: Call) -> Json:
        if call.names["cluster"] not in self._all():
            raise precondition(f"Cluster {call.names['cluster']} does not exist.")
        found: Json = self._kept(call.names["cluster"]).get(DOMAINS, {})
        return found

    async def _domains(self, call: Call) -> Answer:
        self._control.store.check()
        found = self._kept(call.names["cluster"]).get(DOMAINS, {})
        await self._control.store.settled()
        return json_of(found)

    async def _domain(self, call: Call) -> Answer:
        found = self._domains_of(call).get(call.names["domain"])
        if found is None:
            raise not_found(f"Domain {call.names['domain']} for cluster {call.names['cluster']} does not exist")
        await self._control.store.settled()
        return json_of(found)

    async def _set_domain(self, call: Call) -> Answer:
        brokers, name = (await call.object()).get("brokers"), call.names["domain"]
        domains = self._domains_of(call)
        if brokers is not None and not are_texts(brokers):
            raise RefusedError(400, "MetadataError", "brokers are a list of names")
        for other, domain in domains.items():
            both = sorted(set(domain.get("brokers", ())) & set(brokers or ()))
            if both and other != name:
                raise conflict(f"[{', '.join(both)}] already exists in {other}")
        await self._put_domains(call, {**domains, name: {} if brokers is None else {"brokers": sorted(set(brokers))}})
        return NO_CONTENT

    async def _no_domain(self, call: Call) -> Answer:
        domains, name = self._domains_of(call), call.names["domain"]
        if name not in domains:
            raise not_found(f"Domain-name {name} or cluster {call.names['cluster']} does not exist")
        await self._put_domains(call, _without(domains, name))
        return Answer(200)

    async def _put_domains(self, call: Call, domains: Json) -> None:
        await self._put(call.names["cluster"], {**self._kept(call.names["cluster"]), DOMAINS: domains})


def _without(data: Json, *names: str) -> Json:
    return {name: value for name, value in data.items() if name not in names}


def _data(given: Json) -> Json:
    for name, value in given.items():
        kind = _FIELDS.get(name)
        if value is not None and (kind is None or not isinstance(value, kind)):
            raise precondition(f"a cluster's {name} cannot be that")
    return {name: value for name, value in given.items() if value is not None}
