"""What the gateway does for Pulsar's clients: it keeps the catalog, and serves the REST API."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mq_shards.acceptor.protocol import OtherScheme
from mq_shards.gateway.offer import Offer, Service
from mq_shards.gateway.pulsar import leftovers

# Schemes whose clients need the gateway, because it keeps the catalog.
_CLIENTS: Final = ("pulsar", "pulsar+ssl", "pulsar-http", "pulsar-https")

PULSAR: Final = Offer(
    services=(
        Service(
            "pulsar-http",
            8080,
            "curl 'http://{address}/admin/v2/brokers/health'",
            (OtherScheme("pulsar-https", 8443, "curl --cacert CA 'https://{address}/admin/v2/brokers/health'"),),
            guarded_as="pulsar",
        ),
    ),
    needed_by=_CLIENTS,
    is_left=leftovers.are_in,
)


def is_wanted(listening: Collection[str], data_dir: str | None) -> bool:
    """Whether something listens for Pulsar's clients, or they have left something."""
    return any(scheme in listening for scheme in _CLIENTS) or leftovers.are_in(data_dir)
