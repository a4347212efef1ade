"""The options of section nats about the TLS of routes: route_tls.py has what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mq_shards.acceptor.option_kinds import MS, SECOND, YEAR, Duration, File, Flag, Kind
from mq_shards.acceptor.protocols.nats import tls_options as nats_tls_options

TLS_OPTIONS: Final[Mapping[str, Kind]] = {
    "cluster-tls-cert-file": File("this server's certificate: servers encrypt to each other"),
    "cluster-tls-key-file": File("its key"),
    "cluster-tls-ca-file": File("who may have signed other servers' certificates; none: whom the system trusts"),
    "cluster-tls-insecure": Flag(False, "a server that we connect to is not asked who it is"),
    "cluster-tls-verify-and-map": Flag(False, "a certificate names cluster-user, and no password is said"),
    "cluster-tls-check-known-urls": Flag(False, "or it names the host of one of nats.routes"),
    "cluster-tls-timeout": Duration(2 * SECOND, MS, YEAR, "for a handshake"),
    **{
        f"cluster-{name}": nats_tls_options.OPTIONS[name]
        for name in ("tls-pinned-certs", "tls-cipher-suites", "tls-curve-preferences", "tls-min-version")
    },
}  # fmt: skip
