"""What the gateway does for NATS's clients: monitoring over HTTP."""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor.protocol import OtherScheme
from mq_shards.gateway.offer import Offer, Service

NATS: Final = Offer(
    services=(
        Service(
            "nats-http",
            8222,
            "curl 'http://{address}/varz'",
            (OtherScheme("nats-https", 8223, "curl --cacert CA 'https://{address}/varz'"),),
            leads_to_topics=False,
        ),
    )
)
