"""All that the gateway offers, one line each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from mq_shards.acceptor.option_kinds import MAX_BODY, Kind
from mq_shards.acceptor.protocols.table import PROTOCOLS
from mq_shards.gateway.nats.offer import NATS
from mq_shards.gateway.nsq.offer import NSQ
from mq_shards.gateway.offer import Offer, Service, Settings
from mq_shards.gateway.pipeline.offer import PIPELINE
from mq_shards.gateway.pulsar.offer import PULSAR
from mq_shards.gateway.terms import Terms

if TYPE_CHECKING:
    from mq_shards.gateway.part import Part, Shared

OFFERS: Final[tuple[Offer, ...]] = (
    PULSAR,
    PIPELINE,
    NATS,
    NSQ,
)  # fmt: skip

SERVICES: Final[Mapping[str, Service]] = {service.name: service for offer in OFFERS for service in offer.services}
SECTIONS: Final[Mapping[str, Mapping[str, Kind]]] = dict(offer.section for offer in OFFERS if offer.section)
_ASKED_BY: Final = {*SERVICES, *(scheme for offer in OFFERS for scheme in offer.needed_by)}


def is_needed(listening: Collection[str], settings: Settings) -> bool:
    """Whether there is work for a gateway: HTTP to serve, clients that need it, or something to do without being
    asked."""
    return not _ASKED_BY.isdisjoint(listening) or has_work(listening, settings)


def has_work(listening: Collection[str], settings: Settings) -> bool:
    """Whether a gateway has work without being asked."""
    return any(offer.has_work(listening, settings) for offer in OFFERS)


def is_left(data_dir: str | None) -> bool:
    """Whether an earlier start has left work, which goes on even if nothing listens for its clients now."""
    return any(offer.is_left(data_dir) for offer in OFFERS)


def without_effect(listening: Collection[str], settings: Settings) -> Iterator[str]:
    """Yields warnings about options that have no effect."""
    for offer in OFFERS:
        yield from offer.without_effect(listening, settings)


def terms(settings: Settings) -> Terms:
    """The terms of publishing over HTTP. A message may be as large as one that came through any protocol: what was read
    from a topic can be published again."""
    found = next(offer.terms(settings) for offer in OFFERS if offer.terms is not None)
    sizes = [protocol.settings_of(settings)[protocol.largest] for protocol in PROTOCOLS.values() if protocol.largest]
    return found._replace(max_message_bytes=max(MAX_BODY if size < 0 else size for size in sizes))


def live_topics(settings: Settings) -> Sequence[str]:
    """Patterns of the topics whose messages live subscribers are told."""
    return [pattern for offer in OFFERS for pattern in offer.live_topics(settings)]


def parts(shared: Shared) -> list[Part]:
    """Makes the parts of the gateway's process."""
    made = [part for offer in OFFERS if (part := offer.part(shared)) is not None]
    for part in made:
        part.meet({other.name: other for other in made})
    return made
