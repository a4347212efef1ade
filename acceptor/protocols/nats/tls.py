"""Makes TLS contexts of the options of section nats, and checks those options.

Needs neither the C core nor a connection, so that the supervisor can call it before it starts anything.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from mq_shards.acceptor import certificate_times
from mq_shards.acceptor.filters.tls import CIPHER_NAMES, VerifyingTls
from mq_shards.acceptor.protocols.nats.tls_options import CURVES, OPTIONS, first_ns, with_defaults
from mq_shards.acceptor.secure import demand_certificates, load_authorities, load_certificate, why_unusable

VERSIONS: Final = {"": ssl.TLSVersion.TLSv1_2, "1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
OPENSSL_NAMES: Final = {name: ours for ours, name in CIPHER_NAMES.items()}
KEY_INFO: Final = 6  # the number of this field in a certificate's signed part
VERSION_1_3: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


# Options that change nothing where there is no TLS.
MEANINGLESS: Final = ("tls-timeout", "allow-non-tls")


class TlsTerms(NamedTuple):
    """The TLS settings of a listener."""

    context: ssl.SSLContext
    required: bool
    verify: bool
    maps: bool  # a client's certificate names its user
    timeout_ns: int
    first_ns: int  # see first_ns()
    pinned: frozenset[str]
    rate_limit: int

    def make(self) -> VerifyingTls:
        return VerifyingTls(self.context)

    def refuses(self, tls: VerifyingTls) -> bool:
        """Whether keys are pinned, and the client's is not one of them."""
        certificate = tls.certificate
        return bool(self.pinned) and (certificate is None or key_digest(certificate) not in self.pinned)


def terms(settings: Mapping[str, Any], prefix: str = "") -> TlsTerms | None:
    """None when clients are not encrypted. `prefix`: of the names of the options. Raises ValueError, with a message of
    one line that names the option."""
    if not settings[f"{prefix}tls-cert-file"] and not settings[f"{prefix}tls-key-file"]:
        for name, kind in OPTIONS.items():
            if name not in MEANINGLESS and settings[f"{prefix}{name}"] != kind.default:
                raise ValueError(f"nats.{prefix}{name} needs nats.{prefix}tls-cert-file and nats.{prefix}tls-key-file")
        return None
    for one, other in (("tls-cert-file", "tls-key-file"), ("tls-key-file", "tls-cert-file")):
        if not settings[f"{prefix}{one}"]:
            raise ValueError(f"nats.{prefix}{other} is set, so nats.{prefix}{one} must be too")
    first = first_ns(settings[f"{prefix}tls-handshake-first"])
    assert first is not None
    maps = settings[f"{prefix}tls-verify-and-map"]
    return TlsTerms(
        context=server_context(settings, prefix),
        required=not settings[f"{prefix}allow-non-tls"],
        verify=bool(settings[f"{prefix}tls-verify"] or maps),
        maps=maps,
        timeout_ns=settings[f"{prefix}tls-timeout"],
        first_ns=first,
        pinned=frozenset(pin.lower() for pin in settings[f"{prefix}tls-pinned-certs"]),
        rate_limit=settings[f"{prefix}tls-connection-rate-limit"],
    )


def server_context(settings: Mapping[str, Any], prefix: str = "", *, verify: bool | None = None) -> ssl.SSLContext:
    """`prefix`: of the names of the options. `verify`: clients must have a certificate; None: as the options say.
    Raises ValueError as terms() does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _choose(context, settings, prefix)
    _show(context, settings, prefix)
    if verify or (verify is None and (settings[f"{prefix}tls-verify"] or settings[f"{prefix}tls-verify-and-map"])):
        demand_certificates(context)
        _trust(context, settings, prefix, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: Mapping[str, Any], prefix: str, *, verify: bool) -> ssl.SSLContext:
    """The context of connections that this server makes. Raises ValueError as terms() does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _choose(context, settings, prefix)
    # The connecting side need not have a certificate.
    if settings[f"{prefix}tls-cert-file"]:
        _show(context, settings, prefix)
    _trust(context, settings, prefix, ssl.Purpose.SERVER_AUTH)
    return context


def resolver_context(said: Mapping[str, Any]) -> ssl.SSLContext:
    """The context of resolver_tls; `said` has options without a prefix. Raises ValueError as terms() does."""
    return client_context(with_defaults(said), "", verify=not said.get("insecure"))


def _choose(context: ssl.SSLContext, settings: Mapping[str, Any], prefix: str) -> None:
    context.minimum_version = VERSIONS[settings[f"{prefix}tls-min-version"]]
    _choose_ciphers(context, settings[f"{prefix}tls-cipher-suites"], prefix)
    _choose_curve(context, settings[f"{prefix}tls-curve-preferences"], prefix)


def _show(context: ssl.SSLContext, settings: Mapping[str, Any], prefix: str) -> None:
    cert, key = f"{prefix}tls-cert-file", f"{prefix}tls-key-file"
    try:
        load_certificate(context, settings[cert], settings[key])
    except (ssl.SSLError, OSError, ValueError) as error:
        files = f"nats.{cert} {settings[cert]}, nats.{key} {settings[key]}"
        raise ValueError(f"{files}: {why_unusable(error)}") from None


def _choose_ciphers(context: ssl.SSLContext, names: Sequence[str], prefix: str) -> None:
    """Sets the allowed cipher suites. Those of TLS 1.3 are always allowed, as ssl cannot choose among them."""
    for name in names:
        if name not in OPENSSL_NAMES and name not in VERSION_1_3:
            raise ValueError(f"nats.{prefix}tls-cipher-suites: {name} is not known here")
    older = [OPENSSL_NAMES[name] for name in names if name in OPENSSL_NAMES]
    try:
        if older:
            context.set_ciphers(":".join(older))
    except ssl.SSLError as error:
        raise ValueError(f"nats.{prefix}tls-cipher-suites: {why_unusable(error)}") from None
    if names and not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def _choose_curve(context: ssl.SSLContext, names: Sequence[str], prefix: str) -> None:
    """Sets the curve. ssl can be given only one: if there are several, OpenSSL chooses."""
    known = [CURVES[name] for name in names if CURVES[name]]
    if names and not known:
        raise ValueError(f"nats.{prefix}tls-curve-preferences: OpenSSL has none of {', '.join(names)}")
    if len(known) == 1:
        context.set_ecdh_curve(known[0])


def _trust(context: ssl.SSLContext, settings: Mapping[str, Any], prefix: str, purpose: ssl.Purpose) -> None:
    option = f"{prefix}tls-ca-file"
    path = settings[option]
    if not path:
        context.load_default_certs(purpose)
        return
    load_authorities(context, path, f"nats.{option}: {path}")


# --- certificates -----------------------------------------------------------------------------------------------------


def key_digest(certificate: bytes) -> str:
    """Hexadecimal SHA-256 of the SubjectPublicKeyInfo of a certificate in DER (RFC 5280, 4.1)."""
    begin = certificate_times.part(certificate, KEY_INFO)
    return hashlib.sha256(certificate[begin : certificate_times.end(certificate, begin)]).hexdigest()


# Short names of a subject's attributes (RFC 4514, 3), by the names that ssl uses.
SHORT_NAMES: Final[Mapping[str, str]] = {
    "commonName": "CN", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "countryName": "C", "streetAddress": "STREET", "domainComponent": "DC",
    "userId": "UID", "serialNumber": "SERIALNUMBER", "postalCode": "POSTALCODE",
}  # fmt: skip

Subject = Sequence[Sequence[tuple[str, str]]]  # in each part the attributes that it has together, mostly one


def names_of(certificate: Mapping[str, Any]) -> list[str]:
    """The alternative names of a certificate, given as ssl returns it, in the order in which a nats-server looks for a
    user of such a name."""
    names = certificate.get("subjectAltName", ())
    return [name for wanted in ("email", "DNS", "URI") for kind, name in names if kind == wanted]


def subject_of(certificate: Mapping[str, Any]) -> Subject:
    """The subject of a certificate, sorted, because the order of its parts does not matter."""
    parts = certificate.get("subject", ())
    return sorted(sorted((SHORT_NAMES.get(kind, kind).upper(), value) for kind, value in part) for part in parts)


def parse_subject(text: str) -> Subject | None:
    """Parses a user name in the form of a subject, CN=one,OU=two; None if it is not. RFC 4514, without #hex.

    >>> parse_subject("OU=two+CN=one,O=x")
    [[('CN', 'one'), ('OU', 'two')], [('O', 'x')]]
    """
    found: list[list[tuple[str, str]]] = []
    for part in re.split(r"(?<!\\),", text):
        together = []
        for one in re.split(r"(?<!\\)\+", part):
            kind, equals, value = one.partition("=")
            if not equals or not kind.strip():
                return None
            together.append((kind.strip().upper(), re.sub(r"\\(.)", r"\1", value.strip())))
        found.append(sorted(together))
    return sorted(found)
