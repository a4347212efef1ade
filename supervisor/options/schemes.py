"""The schemes of --listen that wrap a protocol or a service in something else, such as TLS or a websocket. Each is
listed with what it wraps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mq_shards.acceptor.protocol import OtherScheme
from mq_shards.acceptor.protocols.table import PROTOCOLS
from mq_shards.gateway.services import SERVICES

_LISTED: Final[Mapping[str, Sequence[OtherScheme]]] = {
    **{name: protocol.other_schemes for name, protocol in PROTOCOLS.items()},
    **{name: service.other_schemes for name, service in SERVICES.items()},
}
OTHER_SCHEMES: Final[Mapping[str, OtherScheme]] = {other.name: other for others in _LISTED.values() for other in others}
SECURE: Final = frozenset(scheme for scheme, one in OTHER_SCHEMES.items() if one.secure)
_INSIDE: Final[Mapping[str, str]] = {other.name: name for name, others in _LISTED.items() for other in others}


def spoken(scheme: str) -> str:
    """The protocol or service that is spoken at a scheme."""
    return _INSIDE.get(scheme, scheme)
