"""What the gateway does for NSQ's clients: the HTTP API, as far as acceptors do not serve it, nsqlookupd and statsd.

NSQ's options also hold for what is published through the other HTTP APIs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from mq_shards.gateway.offer import Offer, Settings
from mq_shards.gateway.terms import Terms

if TYPE_CHECKING:
    from mq_shards.gateway.part import Part, Shared

# Options of [nsq] that name servers to be told of the topics on nsq://.
_TOLD: Final = ("lookupd-tcp-address", "statsd-address")


def _tells_somebody(listening: Collection[str], settings: Settings) -> bool:
    return "nsq" in listening and any(settings["nsq"][name] for name in _TOLD)


def _without_effect(listening: Collection[str], settings: Settings) -> Iterator[str]:
    if not any(name in listening for name in ("nsq", "nsq-http")):
        for name in _TOLD:
            if settings["nsq"][name]:
                yield f"nsq.{name} has no effect: nothing listens on nsq://"


def _terms(settings: Settings) -> Terms:
    nsq = settings["nsq"]
    return Terms(nsq["msg-timeout"], nsq["max-msg-size"], nsq["max-body-size"])


def _part(shared: Shared) -> Part:
    from mq_shards.gateway.nsq.part import NsqPart  # slow to load

    return NsqPart(shared)


NSQ: Final = Offer(
    _part,
    needed_by=("nsq-http",),
    has_work=_tells_somebody,
    without_effect=_without_effect,
    terms=_terms,
)
