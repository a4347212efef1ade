"""Listeners whose connections are encrypted from their first byte, for a protocol that knows nothing of it.

The supervisor asks secure_context() before it starts anything: neither the C core nor a connection is needed for that.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor.filters.tls import VerifyingTls

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.upgrade import Upgrades

VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def secure_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Of the section tls. Raises ValueError: one line that names the option and says what is wrong."""
    for option in ("cert", "key"):
        if not settings[option]:
            raise ValueError(f"tls.{option} is needed where everything is to be encrypted")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    renew(context, settings)
    return context


def renew(context: ssl.SSLContext, settings: Mapping[str, Any]) -> None:
    """For connections that come; those that are there keep what they began with. Raises ValueError."""
    context.minimum_version = VERSIONS[settings["min-version"]]
    try:
        # No password: an empty one fails, where none would be asked for on the terminal.
        context.load_cert_chain(settings["cert"], settings["key"], password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ValueError(f"tls.cert {settings['cert']}, tls.key {settings['key']}: {_said(error)}") from None
    if settings["client-ca"]:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cafile=settings["client-ca"])
        except (ssl.SSLError, OSError) as error:
            raise ValueError(f"tls.client-ca {settings['client-ca']}: {_said(error)}") from None


def _said(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class SecureConnections:
    """Those of one protocol, in an acceptor: each begins with its handshake. Takes their upcalls."""

    def __init__(self, engine: Engine, settings: Mapping[str, Any]) -> None:
        from mq_shards.acceptor.upgrade import Upgrades  # which needs the core

        self._engine = engine
        self._context = secure_context(settings)
        self.upgrades: Final[Upgrades] = Upgrades(engine, lambda conn: None, self._refused, hears_out=True)

    def reload(self, settings: Mapping[str, Any]) -> None:
        """For connections that come."""
        self._context = secure_context(settings)

    def input(self, conn: int, data: bytes) -> None:
        if conn not in self.upgrades:
            self.upgrades.adopt(conn)
            self.upgrades.shake_hands(conn, VerifyingTls(self._context))
        self.upgrades.input(conn, data)

    def certificate_names(self, conn: int) -> tuple[str, ...]:
        """Of a client's certificate; none where none was wanted."""
        tls = self.upgrades.tls(conn)
        return tls.certificate_names if isinstance(tls, VerifyingTls) else ()

    def _refused(self, conn: int, alert: bytes, why: str) -> None:
        self._engine.send(conn, alert)
        self._engine.close_connection(conn)
