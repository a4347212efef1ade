"""The schemes of --listen that wrap a protocol in something else, such as TLS or WebSocket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class OtherScheme(NamedTuple):
    of: str  # the protocol or service inside
    port: int
    example: str
    secure: bool = True  # TLS from the first byte, as the section [tls] says


# Open only if --listen asks for them.
OTHER_SCHEMES: Final[Mapping[str, OtherScheme]] = {
    "beanstalks": OtherScheme("beanstalk", 11301, "openssl s_client -quiet -connect {address}"),
    "https": OtherScheme("http", 4181, "curl --cacert CA 'https://{address}/v1/topics'"),
    "nsq-https": OtherScheme("nsq-http", 4152, "curl --cacert CA -d hello 'https://{address}/pub?topic=greetings'"),
    "pulsar-https": OtherScheme("pulsar-http", 8443, "curl --cacert CA 'https://{address}/admin/v2/brokers/health'"),
    "nats-https": OtherScheme("nats-http", 8223, "curl --cacert CA 'https://{address}/varz'"),
    # The protocol itself handles what comes first: the HTTP request of a WebSocket, and TLS by its own options.
    "nats-ws": OtherScheme("nats", 8080, "nats --server ws://{address} sub greetings", secure=False),
}
SECURE: Final = frozenset(scheme for scheme, one in OTHER_SCHEMES.items() if one.secure)


def spoken(scheme: str) -> str:
    """The protocol or service that is spoken at a scheme."""
    return OTHER_SCHEMES[scheme].of if scheme in OTHER_SCHEMES else scheme
