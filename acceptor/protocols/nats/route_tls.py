"""TLS of routes: both servers verify each other's certificates before anything else is sent.

    encryption.begin(conn, "")        begins the handshake with a server that has connected to us
    encryption.begin(conn, "host")    begins it with the server at `host`, to which we have connected

terms() needs no connection: the supervisor calls it before it starts anything. Certificates are checked as by
nats-server.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor.filters.tls import VerifyingTls
from mq_shards.acceptor.host_names import is_address
from mq_shards.acceptor.protocols.nats.route_tls_options import TLS_OPTIONS
from mq_shards.acceptor.protocols.nats.server_url import RouteUrl
from mq_shards.acceptor.protocols.nats.tls import (
    client_context,
    key_digest,
    names_of,
    parse_subject,
    server_context,
    subject_of,
)

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.upgrade import Upgrades

PREFIX: Final = "cluster-"


@dataclass(frozen=True, slots=True)
class RouteTerms:
    """The TLS settings of routes."""

    accepting: ssl.SSLContext
    connecting: ssl.SSLContext
    timeout_ns: int
    pinned: frozenset[str]
    user: str  # the user that a certificate must name; empty: any
    checks_hosts: bool  # a certificate must name the host of a configured route

    @property
    def names_who(self) -> bool:
        """Whether servers are authenticated by certificate instead of password."""
        return bool(self.user) or self.checks_hosts


def terms(settings: Mapping[str, Any]) -> RouteTerms | None:
    """None when routes are not encrypted. Raises ValueError, with a message of one line that names the option."""
    names = ("cluster-tls-cert-file", "cluster-tls-key-file")
    if not any(settings[name] for name in names):
        for name, kind in TLS_OPTIONS.items():
            if name != "cluster-tls-timeout" and settings[name] != kind.default:
                raise ValueError(f"nats.{name} needs nats.cluster-tls-cert-file and nats.cluster-tls-key-file")
        return None
    for one, other in (names, names[::-1]):
        if not settings[one]:
            raise ValueError(f"nats.{other} is set, so nats.{one} must be too")
    if settings["cluster-tls-verify-and-map"] and not settings["cluster-user"]:
        raise ValueError("nats.cluster-tls-verify-and-map needs nats.cluster-user, which certificates are to name")
    return RouteTerms(
        accepting=server_context(settings, PREFIX, verify=True),
        connecting=client_context(settings, PREFIX, verify=not settings["cluster-tls-insecure"]),
        timeout_ns=settings["cluster-tls-timeout"],
        pinned=frozenset(pin.lower() for pin in settings["cluster-tls-pinned-certs"]),
        user=settings["cluster-user"] if settings["cluster-tls-verify-and-map"] else "",
        checks_hosts=settings["cluster-tls-check-known-urls"],
    )


class RouteEncryption:
    def __init__(self, engine: Engine, upgrades: Upgrades) -> None:
        self._engine, self._upgrades = engine, upgrades
        self._terms: RouteTerms | None = None
        self._host = ""

    @property
    def terms(self) -> RouteTerms | None:
        return self._terms

    def set(self, terms: RouteTerms | None, routes: Sequence[RouteUrl]) -> None:
        """Sets what new routes use. Gossip has servers' IP addresses: then a certificate must name the first host name
        among the configured routes."""
        self._terms = terms
        self._host = next((url.host for url in routes if not is_address(url.host)), "")

    def begin(self, conn: int, host: str) -> None:
        """Begins a handshake. `host`: the one that we have connected to; empty: the other server has connected."""
        assert self._terms is not None
        self._upgrades.begin(conn)
        if not host:
            self._upgrades.shake_hands(conn, VerifyingTls(self._terms.accepting), self._terms.timeout_ns)
            return
        name = self._host if self._host and is_address(host) else host
        tls = VerifyingTls(self._terms.connecting, server_hostname=name)
        self._upgrades.shake_hands(conn, tls, self._terms.timeout_ns, speaks_first=True)

    def is_pinned(self, conn: int) -> bool:
        """Whether the other server's key is pinned, or no keys are."""
        tls, terms = self._upgrades.tls(conn), self._terms
        certificate = tls.certificate if isinstance(tls, VerifyingTls) else None
        if terms is None or not terms.pinned:
            return True
        return certificate is not None and key_digest(certificate) in terms.pinned

    def is_known(self, conn: int, routes: Sequence[RouteUrl]) -> bool:
        """Whether the certificate of a server that has connected names the right user or host."""
        tls = self._upgrades.tls(conn)
        if self._terms is None or not isinstance(tls, VerifyingTls):
            return False
        certificate = tls.certificate_fields
        hosts = [url.host.lower().split(".") for url in routes]
        kinds = certificate.get("subjectAltName", ())
        if self._terms.checks_hosts and any(
            _matches(name.lower().split("."), host) for kind, name in kinds if kind == "DNS" for host in hosts
        ):
            return True
        user = self._terms.user
        return bool(user) and (user in names_of(certificate) or parse_subject(user) == subject_of(certificate))


def _matches(pattern: Sequence[str], host: Sequence[str]) -> bool:
    """RFC 6125, 6.4.3: a wildcard matches exactly one label, the first."""
    if len(pattern) != len(host):
        return False
    return pattern[1:] == host[1:] and pattern[0] in ("*", host[0])
