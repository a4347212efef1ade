"""nats-server's numbers of reasons for which a connection ends; enum nats_reason of the codec has more of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine

CLIENT_CLOSED: Final = 1
AUTHENTICATION_VIOLATION: Final = 3
TLS_HANDSHAKE: Final = 4
PROTOCOL_VIOLATION: Final = 11
MAX_CONNECTIONS: Final = 15
SERVER_SHUTDOWN: Final = 21
KICKED: Final = 34
VIOLATION: Final = "Authorization Violation"
REASONS: Final[Mapping[str, int]] = {
    VIOLATION: AUTHENTICATION_VIOLATION,
    "invalid client protocol": 12,
    "no responders requires headers support": 28,
    "maximum connections exceeded": MAX_CONNECTIONS,
    "maximum account active connections exceeded": 14,
    "User Authentication Expired": 22,
    "Account Authentication Expired": 22,
    "User Authentication Revoked": 25,
}
# The same for leaf nodes and hubs, by the error that they are sent; any other is a protocol violation.
LEAF_REASONS: Final[Mapping[str, int]] = {
    VIOLATION: AUTHENTICATION_VIOLATION,
    "Authentication Timeout": 2,
    "maximum connections exceeded": MAX_CONNECTIONS,
    "maximum account active connections exceeded": 14,
    "attempted to connect to leaf node port": 13,
    "remote leafnode has same cluster name": 33,
    "Duplicate Remote LeafNode Connection": 30,
    "Stale Leaf Node Connection - Closing": 10,
}
# ... and the beginning of what a leaf node of too old a version is told.
OLD_VERSION: Final = "connection rejected since minimum version required is"


def end(engine: Engine, conn: int, text: str, otherwise: int = PROTOCOL_VIOLATION) -> None:
    """Closes a client with an error; "": it is sent none. `otherwise`: the reason if the error has no number here."""
    engine.call(conn, "end", REASONS.get(text, otherwise), text.encode())


def leaf_reason(words: str) -> int:
    if words.startswith(OLD_VERSION):
        return 32
    if words.startswith("Rejecting connection from gateway"):
        return 23
    return LEAF_REASONS.get(words, PROTOCOL_VIOLATION)
