"""What a certificate says of whom it belongs to; without the ssl library, which most brokers have no use for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

KINDS: Final = ("DNS", "URI", "email", "IP Address")


def names_of(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """Of one that was verified, as getpeercert() has it: its common name, then its other names."""
    common = (value for names in certificate.get("subject", ()) for key, value in names if key == "commonName")
    others = (name for kind, name in certificate.get("subjectAltName", ()) if kind in KINDS)
    return tuple(name for name in (*common, *others) if name)
