"""The options of section nats about clusters, as in nats-server's block `cluster`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mq_shards.acceptor.option_kinds import (
    MS,
    SECOND,
    YEAR,
    Duration,
    Flag,
    Kind,
    Number,
    Text,
    TextList,
)
from mq_shards.acceptor.protocols.nats import (
    route_compression as nats_route_compression,
)
from mq_shards.acceptor.protocols.nats import (
    write_timeout as nats_write_timeout,
)
from mq_shards.acceptor.protocols.nats.route_tls_options import TLS_OPTIONS
from mq_shards.acceptor.protocols.nats.server_url import route_url


def is_cluster_name(text: str) -> bool:
    return text == "" or re.fullmatch(r"[^\s]{1,256}", text) is not None


def is_pattern(text: str) -> bool:
    return bool(text) and not any(blank in text for blank in " \t\r\n")


# Setting any of these means that routes are encrypted.
TLS_DEMANDS: Final = tuple(
    name for name in TLS_OPTIONS if name not in ("cluster-tls-cert-file", "cluster-tls-key-file", "cluster-tls-timeout")
)

OPTIONS: Final[Mapping[str, Kind]] = {
    "cluster-name": Text(
        "", "the cluster that routes make; servers of another are refused", "without blanks", is_cluster_name,
        "made up, and given up for another's",
    ),
    "routes": TextList(
        "other servers of the cluster; some are enough, the rest are found through them",
        "nats-route://[USER:PASSWORD@]HOST:PORT", lambda text: route_url(text) is not None,
    ),
    "cluster-user": Text("", "servers must say this user and password"),
    "cluster-password": Text("", "see cluster-user"),
    "cluster-auth-timeout": Duration(2 * SECOND, MS, YEAR, "for a server to say who it is"),
    "cluster-advertise": Text("", "what other servers are told to connect to", "HOST or HOST:PORT", lambda text: True),
    "cluster-no-advertise": Flag(False, "clients are not told of the other servers"),
    "cluster-connect-retries": Number(0, 0, 1 << 31, "to a server that was found through others, and does not answer"),
    "cluster-connect-backoff": Flag(False, "the time between attempts doubles, from 1s up to 30s"),
    "cluster-ping-interval": Duration(0, 0, YEAR, "a server is sent a PING so often, 30s at most; 0: as clients are"),
    "cluster-ping-max": Number(0, 0, 1 << 20, "unanswered PINGs of a server; 0: as of clients"),
    "cluster-write-deadline": Duration(0, 0, YEAR, "in which a server has to take what waits; 0: as clients"),
    "cluster-write-timeout": nats_write_timeout.option("a server"),
    "cluster-max-interest": Number(1 << 24, 1, 1 << 31, "subjects that all other servers together may want"),
    "cluster-pool-size": Number(3, -1, 256, "connections to each server; -1: one, as servers before 2.10 do"),
    "cluster-import-allow": TextList("subjects that others' messages may have; none: any", "a subject", is_pattern),
    "cluster-import-deny": TextList("subjects that they may not have", "a subject", is_pattern),
    "cluster-export-allow": TextList("subjects that others may listen to; none: any", "a subject", is_pattern),
    "cluster-export-deny": TextList("subjects that they may not", "a subject", is_pattern),
    "cluster-accounts": TextList("have a connection of their own to each server", "an account", bool),
    **TLS_OPTIONS,
    **nats_route_compression.OPTIONS,
}  # fmt: skip


def check(settings: Mapping[str, Any]) -> None:
    """Raises ValueError, with a message of one line, for options that contradict each other."""
    is_named = settings["cluster-user"] and settings["cluster-tls-verify-and-map"]
    if bool(settings["cluster-user"]) != bool(settings["cluster-password"]) and not is_named:
        raise ValueError("nats.cluster-user and nats.cluster-password go together")
    if settings["cluster-pool-size"] == 0:
        raise ValueError("nats.cluster-pool-size is -1, or at least 1")
    accounts = settings["cluster-accounts"]
    if len(set(accounts)) < len(accounts):
        raise ValueError("nats.cluster-accounts names an account twice")
    if accounts and settings["cluster-pool-size"] < 0:
        raise ValueError("nats.cluster-accounts needs a nats.cluster-pool-size of at least 1")
    nats_route_compression.thresholds_of(settings)
    if any(settings[name] != kind.default for name, kind in TLS_OPTIONS.items()):
        from mq_shards.acceptor.protocols.nats import route_tls as nats_route_tls

        nats_route_tls.terms(settings)


def advertised(text: str, port: int) -> tuple[str, int]:
    """Parses HOST or HOST:PORT; `port` is the default."""
    host, colon, digits = text.rpartition(":")
    if colon and digits.isdigit() and not host.endswith(":"):
        return host.strip("[]"), int(digits)
    return text.strip("[]"), port
