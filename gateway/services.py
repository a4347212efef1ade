"""The services of the gateway besides the acceptors' wire protocols, one line each, and the gateway's own options.

The supervisor imports this module before it starts a gateway, so it must import nothing large of the gateway.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from mq_shards.acceptor.option_kinds import Kind, Number, TextList
from mq_shards.acceptor.protocol import OtherScheme
from mq_shards.gateway.pulsar import leftovers


class Service(NamedTuple):
    name: str  # the scheme of --listen
    port: int  # the default port
    example: str  # a shell command that tries it; {address} is {host}:{port}, IPv6 in brackets
    other_schemes: tuple[OtherScheme, ...] = ()
    guarded_as: str = ""  # the protocol whose options also say who may connect here
    leads_to_topics: bool = True


SERVICES: Final[Mapping[str, Service]] = {
    service.name: service
    for service in (
        Service(
            "pulsar-http",
            8080,
            "curl 'http://{address}/admin/v2/brokers/health'",
            (OtherScheme("pulsar-https", 8443, "curl --cacert CA 'https://{address}/admin/v2/brokers/health'"),),
            guarded_as="pulsar",
        ),
        Service(
            "http",
            4180,
            "curl 'http://{address}/v1/topics'",
            (OtherScheme("https", 4181, "curl --cacert CA 'https://{address}/v1/topics'"),),
        ),
        Service(
            "nats-http",
            8222,
            "curl 'http://{address}/varz'",
            (OtherScheme("nats-https", 8223, "curl --cacert CA 'https://{address}/varz'"),),
            leads_to_topics=False,
        ),
    )
}


def _is_host(text: str) -> bool:
    return re.fullmatch("[A-Za-z0-9_.-]{1,253}", text) is not None


SECTIONS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "http": {
        "staged-bytes": Number(16 << 30, 0, 1 << 50, "bytes of messages that are staged and not published yet, in all"),
        "hosts": TextList("names under which browsers come to the console, beside addresses", "a name", _is_host),
        "metrics-topics": Number(1000, 0, 1 << 20, "topics with figures of their own in /metrics"),
    },
}

# Schemes whose clients need the gateway, because it keeps Pulsar's catalog.
PULSAR: Final = ("pulsar", "pulsar+ssl", "pulsar-http", "pulsar-https")
# Schemes that acceptors serve only in part: the gateway serves the rest.
IN_PART: Final = ("nsq-http",)
# Options of [nsq] that name servers to be told of the topics on nsq://, which is work for a gateway too.
_TOLD_OF_NSQ: Final = ("lookupd-tcp-address", "statsd-address")


def is_needed(listening: Collection[str], settings: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether there is work for a gateway: HTTP to serve, or servers to be told of NSQ's topics."""
    asked = any(name in SERVICES or name in PULSAR or name in IN_PART for name in listening)
    return asked or tells_somebody(listening, settings)


def is_left(data_dir: str | None) -> bool:
    """Whether an earlier start has left work: what Pulsar's clients made goes on even if nothing listens for them
    now."""
    return leftovers.are_in(data_dir)


def tells_somebody(listening: Collection[str], settings: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the gateway tells other servers of NSQ's topics without being asked."""
    return "nsq" in listening and any(settings["nsq"][name] for name in _TOLD_OF_NSQ)


def without_effect(listening: Collection[str], settings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yields warnings about options that have no effect."""
    if not any(name in listening for name in ("nsq", "nsq-http")):
        for name in _TOLD_OF_NSQ:
            if settings["nsq"][name]:
                yield f"nsq.{name} has no effect: nothing listens on nsq://"
