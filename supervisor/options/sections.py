"""The options of the sections that belong to no protocol, and the table of all sections.

Limits and defaults are defined here, with the protocols, and with the gateway; --help is made from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mq_shards.acceptor.option_kinds import HOUR, MINUTE, MS, SECOND, Duration, Kind, Number, Text, is_mode, is_owner
from mq_shards.acceptor.protocols.table import PROTOCOLS
from mq_shards.acceptor.secure_options import OPTIONS as TLS
from mq_shards.gateway.services import SECTIONS as GATEWAY_SECTIONS

LOG: Final[Mapping[str, Kind]] = {
    "sync-interval": Number(50, 1, 60_000, "milliseconds between syncs with --sync interval"),
    "retention-hours": Number(24, 0, 87_600, "hours for which finished messages stay readable"),
    "retention-bytes": Number(1 << 30, 0, 1 << 50, "bytes of finished messages kept, per shard"),
    "reader-bytes": Number(4 << 30, 0, 1 << 50, "bytes kept for named readers that have not read them, per shard"),
    # Counts only for what was erased by who may manage all topics: nobody else may drop others' messages.
    "erased-hours": Number(
        87_600, 0, 87_600, "hours for which finished messages beside erased ones stay, if less than retention-hours"
    ),
}

BROKER: Final[Mapping[str, Kind]] = {
    "ring-bytes": Number(
        4 << 20, 64 << 10, 1 << 30, "bytes of each ring (two per acceptor and worker)", power_of_two=True
    ),
    "worker-spin-us": Number(100, 0, 1_000_000, "microseconds a worker looks for requests before it sleeps"),
    "mesh-ring-bytes": Number(256 << 10, 64 << 10, 1 << 30, "bytes of a ring between two acceptors", power_of_two=True),
    "acceptor-spin-us": Number(5, 0, 1_000_000, "microseconds an acceptor looks for replies before it sleeps"),
    "unix-mode": Text("660", "access to socket files (--listen SCHEME://unix:/PATH)", "an octal mode", is_mode),
    "unix-owner": Text("", "whom they belong to", "USER, USER:GROUP or :GROUP", is_owner, "who runs this"),
    "stop-timeout": Duration(MINUTE, 10 * MS, HOUR, "a stop takes no longer: what is left then is killed"),
    "hang-timeout": Duration(
        30 * SECOND, 0, HOUR, "a process that does not answer for so long is replaced; 0: it is only said"
    ),
    "max-buffered-bytes": Number(
        256 << 20, 1 << 20, 1 << 40, "what all connections of an acceptor hold of half commands and unsent replies"
    ),
    "max-connections": Number(65536, 1, 65536, "connections of each acceptor"),  # MAX_CONNECTIONS, bounds.h
}

# In the order of --help; the protocols' sections come from the protocols.
SECTIONS: Final[Mapping[str, Mapping[str, Kind]]] = {
    **{name: protocol.options for name, protocol in PROTOCOLS.items() if not protocol.section},
    "log": LOG,
    **GATEWAY_SECTIONS,
    "tls": TLS,
    "broker": BROKER,
}
# Options of the replaced servers that make no sense here, and what to use instead.
INSTEAD: Final[Mapping[str, Mapping[str, str]]] = {name: protocol.instead for name, protocol in PROTOCOLS.items()}


def broker_number(settings: Mapping[str, Mapping[str, object]], name: str) -> int:
    """The value of a number or duration (in nanoseconds) in the section [broker]."""
    number = settings["broker"][name]
    assert isinstance(number, int)
    return number
