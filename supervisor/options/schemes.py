"""The schemes of --listen that are no protocol's own: what is spoken there is one, behind something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class OtherScheme(NamedTuple):
    of: str  # the protocol that is spoken there
    port: int
    example: str
    secure: bool = True  # encrypted from the first byte, with the section tls


# Not unless asked for.
OTHER_SCHEMES: Final[Mapping[str, OtherScheme]] = {
    "beanstalks": OtherScheme("beanstalk", 11301, "openssl s_client -quiet -connect {address}"),
    "https": OtherScheme("http", 4181, "curl --cacert CA 'https://{address}/v1/topics'"),
    "nsq-https": OtherScheme("nsq-http", 4152, "curl --cacert CA -d hello 'https://{address}/pub?topic=greetings'"),
    "pulsar-https": OtherScheme("pulsar-http", 8443, "curl --cacert CA 'https://{address}/admin/v2/brokers/health'"),
    "nats-https": OtherScheme("nats-http", 8223, "curl --cacert CA 'https://{address}/varz'"),
    # What is in front of it is the protocol's affair: a request of HTTP, and TLS as it has it.
    "nats-ws": OtherScheme("nats", 8080, "nats --server ws://{address} sub greetings", secure=False),
}
SECURE: Final = frozenset(scheme for scheme, one in OTHER_SCHEMES.items() if one.secure)


def spoken(scheme: str) -> str:
    """The protocol or service of a scheme."""
    return OTHER_SCHEMES[scheme].of if scheme in OTHER_SCHEMES else scheme
