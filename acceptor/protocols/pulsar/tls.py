"""The server's own TLS, which is spoken on the same ports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl


def context_of(settings: Mapping[str, Any]) -> ssl.SSLContext | None:
    """The server's TLS context; None without a certificate. Raises ValueError."""
    files = settings["tls-cert-file"], settings["tls-key-file"], settings["tls-trust-certs-file"]
    if settings["tls-client-cert-optional"] and not files[2]:
        raise ValueError("pulsar.tls-client-cert-optional needs pulsar.tls-trust-certs-file")
    if not any(files):
        return None
    if not files[0] or not files[1]:
        raise ValueError("pulsar.tls-cert-file and pulsar.tls-key-file go together")
    import ssl  # slow to load, and most brokers have no certificate

    from mq_shards.acceptor.secure import demand_certificates, load_authorities, load_certificate, why_unusable

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        load_certificate(context, files[0], files[1])
    except (OSError, ValueError) as error:
        why = why_unusable(error)
        raise ValueError(f"pulsar.tls-cert-file {files[0]}, pulsar.tls-key-file {files[1]}: {why}") from None
    if files[2]:
        demand_certificates(context, optional=settings["tls-client-cert-optional"])
        load_authorities(context, files[2], f"pulsar.tls-trust-certs-file {files[2]}")
    return context
