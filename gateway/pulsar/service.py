"""Pulsar's control side as a whole. The gateway's process makes it if it serves Pulsar or a catalog is left."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from mq_shards.acceptor.protocols.pulsar.credentials import Credentials
from mq_shards.gateway.http_server import HttpServer
from mq_shards.gateway.part import Shared
from mq_shards.gateway.pulsar import http_non_persistent, http_none
from mq_shards.gateway.pulsar.clients import Clients
from mq_shards.gateway.pulsar.compaction import Compaction
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import Core
from mq_shards.gateway.pulsar.http import PulsarHttp
from mq_shards.gateway.pulsar.http_access import Access
from mq_shards.gateway.pulsar.http_all import HttpAll
from mq_shards.gateway.pulsar.http_broker_options import HttpBrokerOptions
from mq_shards.gateway.pulsar.http_broker_stats import HttpBrokerStats
from mq_shards.gateway.pulsar.http_bundles import HttpBundles
from mq_shards.gateway.pulsar.http_clusters import HttpClusters
from mq_shards.gateway.pulsar.http_isolation import HttpIsolation
from mq_shards.gateway.pulsar.http_messages import HttpMessages
from mq_shards.gateway.pulsar.http_namespaces import HttpNamespaces
from mq_shards.gateway.pulsar.http_quotas import HttpQuotas
from mq_shards.gateway.pulsar.http_resource_groups import HttpResourceGroups
from mq_shards.gateway.pulsar.http_schemas import HttpSchemas
from mq_shards.gateway.pulsar.http_subscriptions import HttpSubscriptions
from mq_shards.gateway.pulsar.http_tenants import HttpTenants, Urls
from mq_shards.gateway.pulsar.http_topic_policies import HttpTopicPolicies
from mq_shards.gateway.pulsar.http_topics import HttpTopics
from mq_shards.gateway.pulsar.http_transactions import HttpTransactions
from mq_shards.gateway.pulsar.metrics import PulsarMetrics, kept_of
from mq_shards.gateway.pulsar.older_paths import OlderPaths
from mq_shards.gateway.pulsar.questions import Questions
from mq_shards.gateway.pulsar.roles import Roles
from mq_shards.gateway.pulsar.stats import Stats
from mq_shards.gateway.pulsar.store import Store
from mq_shards.gateway.pulsar.transactions import Coordinator
from mq_shards.gateway.pulsar.upkeep import Upkeep
from mq_shards.gateway.pulsar.watches import Watches
from mq_shards.ringbuf.time_units import SECOND_NS

Addresses = Sequence[Mapping[str, Any]]


class PulsarService:
    """To be made where the event loop runs."""

    def __init__(self, shared: Shared) -> None:
        settings = shared.start["settings"]["pulsar"]
        calls, metrics, access = shared.calls, shared.metrics, shared.access
        self._store = Store(shared.data_dir)
        self._watches = Watches(calls)
        urls = urls_of(shared.start["addresses"], settings)
        core = Core(shared.engine, shared.workers)
        control = Control(self._store, core, Clients(calls), address=urls.broker_id)
        roles = Roles(settings, lambda: self._store.catalog, lambda: access.users if access.on else None)
        self._schema_checks = control.schema_checks
        self._coordinator = Coordinator(control)
        Questions(control, calls, self._watches, roles, self._coordinator)
        self._compaction = Compaction(control.core)
        figures = PulsarMetrics(
            control.clients, self._coordinator, metrics.most_topics, lambda names: kept_of(control, names)
        )
        self._upkeep = Upkeep(control, self._compaction, settings["policies-interval"] / SECOND_NS, time.monotonic)
        stats = Stats(control, self._compaction, urls.broker_id)
        routes = {
            **HttpTenants(control, urls, lambda: shared.broker.health, lambda: metrics.scrape(figures.families)).routes,
            **HttpNamespaces(control).routes,
            **HttpBundles(control).routes,
            **HttpBrokerOptions(control, urls, settings).routes,
            **HttpClusters(control, urls).routes,
            **HttpIsolation(control, urls).routes,
            **HttpQuotas(control).routes,
            **HttpResourceGroups(control).routes,
            **HttpSchemas(control).routes,
            **HttpTransactions(control, self._coordinator, urls.broker).routes,
            **HttpTopics(control, self._compaction, self._upkeep, stats).routes,
            **HttpTopicPolicies(control, deduplicates=settings["deduplication"]).routes,
            **HttpSubscriptions(control, stats).routes,
            **HttpMessages(control, stats).routes,
            **HttpAll(control, stats).routes,
            **HttpBrokerStats(control, stats, metrics.topics, metrics.most_topics).routes,
            **http_none.ROUTES,
        }
        self._access = Access(Credentials.of(settings), roles, urls.broker_id)
        refusing = http_non_persistent.refusing(routes)
        older = OlderPaths(control, refusing)
        self._http = PulsarHttp(self._store, shared.bodies, refusing, older, self._access, access)

    def reload(self, settings: Mapping[str, Any]) -> None:
        """Reads files with keys and passwords anew; none of the options has changed. Raises ValueError, with nothing
        changed."""
        self._access.learn(Credentials.of(settings))

    @property
    def server(self) -> HttpServer:
        return self._http.server

    @property
    def knows_others(self) -> bool:
        return self._http.knows_others

    async def open(self, *, broker_began: bool) -> None:
        """Opens the catalog and starts what runs beside requests. Until then no request is answered."""
        await self._store.open(broker_began=broker_began)
        self._upkeep.start()
        self._coordinator.start()

    def acceptor_came(self, acceptor: int) -> None:
        """An acceptor has been restarted."""
        self._watches.forget(acceptor)

    async def close(self, timeout_s: float) -> None:
        await self._upkeep.close()
        await self._compaction.close()
        await self._coordinator.close()
        await self._http.server.close(timeout_s)
        self._watches.close()
        self._schema_checks.close()
        await self._store.close()


def urls_of(addresses: Addresses, settings: Mapping[str, Any]) -> Urls:
    """The URLs of the first listener of each kind. A listener of pulsar:// also serves pulsar+ssl://."""

    def url(protocol: str, scheme: str) -> str:
        found = next((one for one in addresses if one["protocol"] == protocol and one["port"]), None)
        if found is None:
            return ""
        host = f"[{found['host']}]" if ":" in found["host"] else found["host"]
        return f"{scheme}://{host}:{found['port']}"

    broker = settings["advertised-url"] or url("pulsar", "pulsar")
    broker_tls = broker.replace("pulsar://", "pulsar+ssl://", 1) if settings["tls-cert-file"] else ""
    return Urls(broker, broker_tls, url("pulsar-http", "http"), url("pulsar-https", "https"))
