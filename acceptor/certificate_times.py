"""When the certificates in files that options name expire: an expired one locks out all clients at once.

Reads only the expiry date of a certificate, and without the ssl library, which takes time to load.
"""

from __future__ import annotations

import binascii
import datetime
import re
from collections.abc import Iterator
from typing import Final

from mq_shards.acceptor.named_files import Files

SOON_S: Final = 14 * 86400
# Only the first certificate of a file counts: the server's own in a chain, mostly the only one of an authority.
FIRST: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
VALIDITY: Final = 4  # this field follows version, serial number, algorithm and issuer in the signed part


def ends_s(pem: bytes) -> float | None:
    """When the first certificate expires, in seconds of Unix time; None when no certificate can be read."""
    found = FIRST.search(pem)
    try:
        return _ends(binascii.a2b_base64(found[1])) if found is not None else None
    except (ValueError, IndexError):
        return None


def all_ends(files: Files) -> Iterator[tuple[str, float]]:
    """Yields the path of each certificate file, and when its certificate expires."""
    for path, content in files.items():
        end_s = ends_s(content)
        if end_s is not None:
            yield path, end_s


def remarks(files: Files, now_s: float) -> list[str]:
    """A line for each certificate that has expired or soon will."""
    return [
        f"{path}: this certificate {'has expired on' if end_s <= now_s else 'expires on'} "
        f"{datetime.datetime.fromtimestamp(end_s, datetime.UTC):%Y-%m-%d %H:%M} UTC"
        for path, end_s in all_ends(files) if end_s - now_s < SOON_S
    ]  # fmt: skip


# --- DER --------------------------------------------------------------------------------------------------------------


def content(der: bytes, at: int) -> tuple[int, int]:
    """Returns where the content of the element at `at` begins, and its length."""
    length, at = der[at + 1], at + 2
    if length < 0x80:
        return at, length
    count = length & 0x7F
    return at + count, int.from_bytes(der[at : at + count], "big")


def end(der: bytes, at: int) -> int:
    begin, length = content(der, at)
    return begin + length


def part(der: bytes, number: int) -> int:
    """Returns where a field of the signed part begins (RFC 5280, 4.1); 0 is the version, which may be missing."""
    at, _ = content(der, 0)
    at, _ = content(der, at)
    if der[at] == 0xA0:
        at = end(der, at)
    for _ in range(number - 1):
        at = end(der, at)
    return at


def _ends(der: bytes) -> float:
    begin, _ = content(der, part(der, VALIDITY))
    at = end(der, begin)  # behind notBefore is notAfter
    begin, length = content(der, at)
    text = der[begin : begin + length].decode("ascii").removesuffix("Z")
    if der[at] == UTC_TIME:
        text = ("19" if text >= "50" else "20") + text
    elif der[at] != GENERALIZED_TIME:
        raise ValueError(text)
    return datetime.datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=datetime.UTC).timestamp()
