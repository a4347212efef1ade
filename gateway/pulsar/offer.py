"""What the gateway does for Pulsar's clients: it keeps the catalog, and serves the REST API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mq_shards.acceptor.protocol import OtherScheme
from mq_shards.gateway.offer import Offer, Service
from mq_shards.gateway.pulsar import leftovers

if TYPE_CHECKING:
    from mq_shards.gateway.part import Part, Shared

# Schemes whose clients need the gateway, because it keeps the catalog.
_CLIENTS: Final = ("pulsar", "pulsar+ssl", "pulsar-http", "pulsar-https")


def _part(shared: Shared) -> Part | None:
    """None when nothing listens for Pulsar's clients and they have left nothing. What they have left goes on without
    listeners: policies, and ending transactions, for which consumers may wait."""
    listening = {address["protocol"] for address in shared.start["addresses"]}
    if listening.isdisjoint(_CLIENTS) and not leftovers.are_in(shared.start["data_dir"]):
        return None
    from mq_shards.gateway.pulsar.part import PulsarPart  # slow to load

    return PulsarPart(shared)


PULSAR: Final = Offer(
    _part,
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
