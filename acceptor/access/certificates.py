"""The names in a certificate. Does not load the ssl library, which most brokers do not need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

KINDS: Final = ("DNS", "URI", "email", "IP Address")


def names_of(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """The common name, then the alternative names, of a verified certificate in the form of getpeercert()."""
    common = (value for names in certificate.get("subject", ()) for key, value in names if key == "commonName")
    others = (name for kind, name in certificate.get("subjectAltName", ()) if kind in KINDS)
    return tuple(name for name in (*common, *others) if name)
