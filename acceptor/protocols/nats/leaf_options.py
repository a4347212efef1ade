"""The options of section nats about leaf nodes that connect to this server and hubs that it connects to, as in
nats-server's block `leafnodes`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mq_shards.acceptor.option_kinds import MS, SECOND, YEAR, Duration, Flag, Kind, Number, Text, TextList
from mq_shards.acceptor.protocols.nats import (
    nkeys as nats_nkeys,
)
from mq_shards.acceptor.protocols.nats import (
    route_compression as nats_route_compression,
)
from mq_shards.acceptor.protocols.nats import (
    tls_options as nats_tls_options,
)
from mq_shards.acceptor.protocols.nats import (
    write_timeout as nats_write_timeout,
)

PREFIX: Final = "leaf-"
MOST: Final = 1024  # NATS_LEAVES, csrc/acceptor/protocols/nats/nats_others.h
# JetStream's subjects do not pass: each side may have a JetStream of its own.
JETSTREAM: Final = ("$JS.API.>", "$KV.>", "$OBJ.>")
RESERVED_CLUSTER: Final = "_"
# TLS options that leaf nodes lack, as they are few, and their values.
NOT_THERE: Final[Mapping[str, Any]] = {"leaf-tls-connection-rate-limit": 0}

TLS_OPTIONS: Final[Mapping[str, Kind]] = {
    f"{PREFIX}{name}": kind
    for name, kind in nats_tls_options.OPTIONS.items()
    if f"{PREFIX}{name}" not in NOT_THERE and name not in ("tls-cert-file", "tls-handshake-first", "allow-non-tls")
}
# See tls_options.py.
DEMANDS: Final = tuple(f"{PREFIX}{name}" for name in nats_tls_options.DEMANDS)

# The oldest version that may be demanded of leaf nodes.
OLDEST: Final = (2, 8, 0)
_VERSION: Final = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(?:[-+][0-9A-Za-z.+-]+)?", re.ASCII)


def version_of(text: str) -> tuple[int, ...] | None:
    """The three numbers of a server's version; None if it is not one."""
    found = _VERSION.fullmatch(text)
    return tuple(map(int, found.groups())) if found else None


def _may_be_demanded(text: str) -> bool:
    version = version_of(text)
    return not text or (version is not None and version >= OLDEST)


def _is_hub_url(text: str) -> bool:
    from mq_shards.acceptor.protocols.nats.remotes import hub_url

    return hub_url(text) is not None


OPTIONS: Final[Mapping[str, Kind]] = {
    "leaf-user": Text("", "leaf nodes must say this user and password; none: they are users as clients are"),
    "leaf-password": Text("", "see leaf-user"),
    "leaf-nkey": Text(
        "", "or sign with this key", "the public key of a user",
        lambda text: not text or nats_nkeys.is_public(nats_nkeys.USER, text),
    ),
    "leaf-account": Text("", "of leaf nodes that are no other user; empty: the global one"),
    "leaf-auth-timeout": Duration(2 * SECOND, MS, YEAR, "for a leaf node to say who it is"),
    "leaf-advertise": Text("", "what leaf nodes are told to connect to", "HOST or HOST:PORT", lambda text: True),
    "leaf-no-advertise": Flag(False, "leaf nodes are not told where else they can connect to"),
    "leaf-max-connections": Number(MOST, 1, MOST, "leaf nodes"),
    "leaf-min-version": Text("", "of leaf nodes' servers; empty: any", "2.8.0 or later", _may_be_demanded),
    "leaf-write-deadline": Duration(0, 0, YEAR, "in which a leaf node has to take what waits; 0: as clients"),
    "leaf-write-timeout": nats_write_timeout.option("a leaf node"),
    "leaf-remotes": TextList(
        "hubs: servers that this one is a leaf node of", "nats-leaf://[USER[:PASSWORD]@]HOST[:PORT], or ws://, wss://",
        _is_hub_url,
    ),
    "leaf-remote-account": Text("", "that is connected to those; empty: the global one"),
    "leaf-remote-credentials": Text("", "a file that says who this server is to them: a JWT and its seed", "a path"),
    "leaf-reconnect": Duration(SECOND, MS, YEAR, "until a hub that has gone is connected to again"),
    "leaf-dial-timeout": Duration(SECOND, MS, YEAR, "for a hub to take a connection"),
    **nats_route_compression.LEAF_OPTIONS,
    "leaf-tls-cert-file": nats_tls_options.OPTIONS["tls-cert-file"],
    "leaf-tls-handshake-first": Flag(False, "INFO is said inside only"),
    "leaf-allow-non-tls": Flag(False, "leaf nodes may do without"),
    **TLS_OPTIONS,
}  # fmt: skip

SECRETS: Final = frozenset({"leaf-user", "leaf-password", "leaf-remotes"})


def tls_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in the form that tls.terms() takes, with the prefix of leaf nodes."""
    first = "true" if settings["leaf-tls-handshake-first"] else ""
    return {**settings, **NOT_THERE, "leaf-tls-handshake-first": first}


def check(settings: Mapping[str, Any]) -> None:
    """Raises ValueError, with a message of one line, for options that contradict each other."""
    if bool(settings["leaf-user"]) != bool(settings["leaf-password"]):
        raise ValueError("nats.leaf-user and nats.leaf-password go together")
    nats_route_compression.thresholds_of(settings, PREFIX)
    if settings["leaf-user"] and settings["leaf-nkey"]:
        raise ValueError("nats.leaf-user and nats.leaf-nkey: it is one or the other")
    if any(settings[name] != kind.default for name, kind in OPTIONS.items() if "-tls-" in name):
        from mq_shards.acceptor.protocols.nats import tls as nats_tls

        nats_tls.terms(tls_settings(settings), PREFIX)
