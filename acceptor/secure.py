"""Listeners whose connections are encrypted from their first byte, for a protocol that need not know of it.

The supervisor calls secure_context() to check the options before it starts anything, so that must not need the C core.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor import named_files
from mq_shards.acceptor.filters.tls import VerifyingTls

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.upgrade import Upgrades

log = logging.getLogger(__name__)

VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def secure_context(settings: Mapping[str, Any], cert: str = "", key: str = "") -> ssl.SSLContext:
    """Makes a context of the options in the section tls, with the listener's own certificate and key if it has them.
    Raises ValueError with one line that names the option and says what is wrong."""
    own = bool(cert)
    cert, key = (cert, key) if own else (settings["cert"], settings["key"])
    for option, path in (("cert", cert), ("key", key)):
        if not path:
            raise ValueError(f"tls.{option} is needed where everything is to be encrypted")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.minimum_version = VERSIONS[settings["min-version"]]
    try:
        load_certificate(context, cert, key)
    except (ssl.SSLError, OSError, ValueError) as error:
        files = f"--listen: cert={cert}, key={key}" if own else f"tls.cert {cert}, tls.key {key}"
        raise ValueError(f"{files}: {why_unusable(error)}") from None
    if settings["client-ca"]:
        demand_certificates(context, optional=settings["client-cert-optional"])
        load_authorities(context, settings["client-ca"], f"tls.client-ca {settings['client-ca']}")
    elif settings["client-cert-optional"]:
        raise ValueError("tls.client-cert-optional needs tls.client-ca")
    return context


def demand_certificates(context: ssl.SSLContext, optional: bool = False) -> None:
    """Each client must show a certificate, or may if that is optional; one that is shown must be good. It does so each
    time: a session that is resumed would not show whether the certificate is still good. Without tickets there are no
    such sessions of TLS 1.3. Those of 1.2 OpenSSL then keeps itself, each until its connection has ended; VerifyingTls
    looks at those that are resumed earlier."""
    context.verify_mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET


def load_certificate(context: ssl.SSLContext, cert: str, key: str) -> None:
    """Raises OSError, ssl.SSLError or ValueError."""
    with named_files.opened(cert) as cert_place, named_files.opened(key) as key_place:
        try:
            # With an empty password an encrypted key fails; without one OpenSSL would ask for it on the terminal.
            context.load_cert_chain(cert_place, key_place, password="")
        except ssl.SSLError as error:
            if error.reason is None:
                raise ValueError(_which_is_unreadable(cert_place, named_files.read(key))) from None
            raise


def _which_is_unreadable(cert_place: str, key: bytes) -> str:
    """OpenSSL says only "PEM lib", whichever of the two files it cannot read."""
    if b"ENCRYPTED" in key:  # in the first line of PKCS #8, in the second of older keys
        return "the key has a password"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=cert_place)
    except ssl.SSLError:
        return "no certificate can be read from the first file"
    return "no key can be read from the second file"


def load_authorities(context: ssl.SSLContext, path: str, what: str) -> None:
    """Each certificate of the file is trusted, also one that another authority has signed, as by Go's and
    Java's servers. Raises ValueError: `what`, which names the option and the file, and what is wrong."""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        with named_files.opened(path) as place:
            context.load_verify_locations(cafile=place)
    except (ssl.SSLError, OSError) as error:
        is_damaged = isinstance(error, ssl.SSLError) and error.reason is None
        why = "the certificate in it is damaged" if is_damaged else why_unusable(error)
        raise ValueError(f"{what}: {why}") from None


def why_unusable(error: Exception) -> str:
    """Says in a few words why the files of a certificate, or of authorities, cannot be used."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class SecureContexts:
    """The TLS contexts of a process's listeners, by certificate and key."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings`: the section tls."""
        self._settings = settings
        self._of: dict[tuple[str, str], ssl.SSLContext] = {}

    def of(self, cert: str, key: str) -> ssl.SSLContext:
        """The context for a new connection. Raises ValueError as secure_context() does."""
        if (cert, key) not in self._of:
            self._of[cert, key] = secure_context(self._settings, cert, key)
        return self._of[cert, key]

    def reload(self, settings: Mapping[str, Any]) -> None:
        """Reads all files again, for new connections. When a file cannot be used (it may have changed since the
        supervisor checked it), this is logged and the old certificate stays in use."""
        self._settings = settings
        for cert, key in self._of:
            try:
                self._of[cert, key] = secure_context(settings, cert, key)
            except ValueError as error:
                log.error("who comes is shown the certificate of before: %s", error)


class SecureConnections:
    """One protocol's encrypted connections in an acceptor; each begins with a handshake. Takes their upcalls."""

    def __init__(self, engine: Engine, contexts: SecureContexts) -> None:
        from mq_shards.acceptor.upgrade import Upgrades  # which needs the core

        self._engine = engine
        self._contexts = contexts
        self._shown: dict[int, tuple[str, str]] = {}  # certificate and key by listener
        self.upgrades: Final[Upgrades] = Upgrades(engine, lambda conn: None, self._refused, hears_out=True)

    def listening(self, listener: int, cert: str, key: str) -> None:
        """Raises ValueError as secure_context() does."""
        self._contexts.of(cert, key)
        self._shown[listener] = cert, key

    def input(self, conn: int, data: bytes) -> bool:
        """See Upgrades.input()."""
        if conn not in self.upgrades:
            self.upgrades.adopt(conn)
            self.upgrades.shake_hands(conn, VerifyingTls(self._contexts.of(*self._shown[self._engine.listener(conn)])))
        return self.upgrades.input(conn, data)

    def certificate_names(self, conn: int) -> tuple[str, ...]:
        """The names in the client's certificate; empty where no certificate was asked for."""
        tls = self.upgrades.tls(conn)
        return tls.certificate_names if isinstance(tls, VerifyingTls) else ()

    def _refused(self, conn: int, alert: bytes, why: str) -> None:
        self._engine.send(conn, alert)
        self._engine.close_connection(conn)
