"""The options of section nats about TLS, as in nats-server's block `tls`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mq_shards.acceptor.option_kinds import (
    MS,
    SECOND,
    YEAR,
    Duration,
    File,
    Flag,
    Kind,
    Number,
    Text,
    TextList,
    alternatives,
    parse_duration,
)

FALLBACK_NS: Final = 50 * MS  # for "auto"
NOT_FIRST: Final = -1
MIN_VERSIONS: Final = ("", "1.2", "1.3")
# OpenSSL's names of curves; empty: it does not have the curve.
CURVES: Final[Mapping[str, str]] = {
    "X25519": "X25519", "CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1",
    "X25519MLKEM768": "", "SecP256r1MLKEM768": "", "SecP384r1MLKEM1024": "",
}  # fmt: skip
SHA256_HEX: Final = r"[0-9A-Fa-f]{64}"


def first_ns(text: str) -> int | None:
    """How long to wait for a handshake before INFO is sent; 0: for ever; NOT_FIRST: not at all; None: malformed."""
    word = text.lower()
    if word in ("", "false", "off"):
        return NOT_FIRST
    if word in ("true", "on"):
        return 0
    if word in ("auto", "auto_fallback"):
        return FALLBACK_NS
    delay = parse_duration(word)
    return delay if delay is not None and 0 <= delay <= YEAR else None


OPTIONS: Final[Mapping[str, Kind]] = {
    "tls-cert-file": File("the server's certificate: clients are to encrypt"),
    "tls-key-file": File("its key"),
    "tls-ca-file": File("who may have signed clients' certificates; none: whom the system trusts"),
    "tls-verify": Flag(False, "clients must show a certificate"),
    "tls-verify-and-map": Flag(False, "and it says which user they are"),
    "tls-timeout": Duration(2 * SECOND, 1, YEAR, "for a handshake"),
    "tls-handshake-first": Text(
        "", "INFO is said inside only", "true, false, auto, or how long to wait before it is said outside",
        lambda text: first_ns(text) is not None,
    ),
    "tls-pinned-certs": TextList(
        "keys of clients' certificates, and no others", "hexadecimal SHA-256 of a SubjectPublicKeyInfo",
        lambda text: re.fullmatch(SHA256_HEX, text) is not None,
    ),
    "tls-cipher-suites": TextList(
        "that may be used before TLS 1.3", "a name such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        lambda text: re.fullmatch(r"TLS_[A-Z0-9_]+", text) is not None,
    ),
    "tls-min-version": Text("", "of TLS", "1.2 or 1.3", lambda text: text in MIN_VERSIONS, "1.2"),
    "tls-curve-preferences": TextList(
        "of which keys are agreed on: one; of several any, and others", alternatives([*CURVES]), CURVES.__contains__
    ),
    "tls-connection-rate-limit": Number(0, 0, 1 << 31, "handshakes a second of each acceptor; 0: any number"),
    "allow-non-tls": Flag(False, "clients may do without"),
}  # fmt: skip


# Options that turn on TLS even if only the broker's common certificate is set.
DEMANDS: Final = ("tls-verify", "tls-verify-and-map", "tls-handshake-first", "tls-pinned-certs")


def with_defaults(said: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: kind.default for name, kind in OPTIONS.items()}, **said}


def are_set(settings: Mapping[str, Any]) -> bool:
    return any(settings[name] != kind.default for name, kind in OPTIONS.items())
