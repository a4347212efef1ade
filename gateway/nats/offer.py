"""What the gateway does for NATS's clients: monitoring over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mq_shards.acceptor.protocol import OtherScheme
from mq_shards.gateway.offer import Offer, Service, Settings

if TYPE_CHECKING:
    from mq_shards.gateway.part import Part, Shared


def _live_topics(settings: Settings) -> Sequence[str]:
    topics: Sequence[str] = settings["nats"]["topics"]
    return topics


def _part(shared: Shared) -> Part:
    from mq_shards.gateway.nats.part import NatsPart  # slow to load

    return NatsPart(shared)


NATS: Final = Offer(
    _part,
    services=(
        Service(
            "nats-http",
            8222,
            "curl 'http://{address}/varz'",
            (OtherScheme("nats-https", 8223, "curl --cacert CA 'https://{address}/varz'"),),
            leads_to_topics=False,
        ),
    ),
    live_topics=_live_topics,
)
