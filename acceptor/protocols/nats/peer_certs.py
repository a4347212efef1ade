"""A client's certificates, as nats-server's monitoring shows them: the subject as Go writes it, and two digests."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.x509 import Name

# Attributes that Go's pkix.Name has fields for, in the order of its string: the last of a certificate is its first.
NAMED: Final = {
    "2.5.4.5": "SERIALNUMBER", "2.5.4.3": "CN", "2.5.4.17": "POSTALCODE", "2.5.4.9": "STREET", "2.5.4.7": "L",
    "2.5.4.8": "ST", "2.5.4.11": "OU", "2.5.4.10": "O", "2.5.4.6": "C",
}  # fmt: skip
SINGLE: Final = frozenset({"SERIALNUMBER", "CN"})  # of several the last one counts
ESCAPED: Final = frozenset(',+"\\<>;')
PRINTABLE: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 '()+,-./:=?")
PRINTABLE_STRING, UTF8_STRING = 0x13, 0x0C  # of ASN.1


def peer_cert(certificate: bytes) -> dict[str, str]:
    """A row of `tls_peer_certs`, of a certificate in DER: without subject and key where OpenSSL can read more than
    `cryptography` does, since a client may send anything besides its own certificate."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from cryptography.x509 import load_der_x509_certificate

    try:
        loaded = load_der_x509_certificate(certificate)
        key = loaded.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        row = {"subject": subject_of(loaded.subject), "spki_sha256": hashlib.sha256(key).hexdigest()}
    except (ValueError, UnsupportedAlgorithm):
        row = {}
    row["cert_sha256"] = hashlib.sha256(certificate).hexdigest()
    return {name: value for name, value in row.items() if value}


def subject_of(name: Name) -> str:
    values: dict[str, list[str]] = {}
    others: list[str] = []
    for attribute in name:
        text, oid = str(attribute.value), attribute.oid.dotted_string
        known = NAMED.get(oid)
        if known is None:
            others.insert(0, f"{oid}=#{_der(text).hex()}")
        elif known in SINGLE:
            values[known] = [text]
        else:
            values.setdefault(known, []).append(text)
    parts = ["+".join(f"{one}={_escaped(text)}" for text in values[one]) for one in NAMED.values() if values.get(one)]
    return ",".join((*parts, *others))


def _escaped(text: str) -> str:
    found = "".join(f"\\{one}" if one in ESCAPED else one for one in text)
    if found.startswith((" ", "#")):
        found = "\\" + found
    return found[:-1] + "\\ " if len(text) > 1 and text.endswith(" ") else found


def _der(text: str) -> bytes:
    """A string in DER, of the type that Go chooses."""
    data = text.encode()
    size = len(data).to_bytes((len(data).bit_length() + 7) // 8 or 1, "big")
    length = size if len(data) < 0x80 else bytes([0x80 | len(size)]) + size
    return bytes([PRINTABLE_STRING if PRINTABLE.issuperset(text) else UTF8_STRING]) + length + data
