"""Until when certificates hold, in files that options name: one that is over locks out every client at once.

Reads no more of a certificate than that, and without the ssl library, which takes time to load.
"""

from __future__ import annotations

import binascii
import datetime
import re
from collections.abc import Iterator
from typing import Final

from mq_shards.acceptor.named_files import Files

SOON_S: Final = 14 * 86400
# Of a chain the first is the server's own, and of an authority's file there is one that matters mostly.
FIRST: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
VALIDITY: Final = 4  # in a certificate's first part, behind version, serial number, algorithm and issuer


def ends_s(pem: bytes) -> float | None:
    """Of the first certificate: seconds of Unix; None: there is none that can be read."""
    found = FIRST.search(pem)
    try:
        return _ends(binascii.a2b_base64(found[1])) if found is not None else None
    except (ValueError, IndexError):
        return None


def all_ends(files: Files) -> Iterator[tuple[str, float]]:
    """By path."""
    for path, content in files.items():
        end_s = ends_s(content)
        if end_s is not None:
            yield path, end_s


def remarks(files: Files, now_s: float) -> list[str]:
    """A line for each that is over, or soon will be."""
    return [
        f"{path}: this certificate {'is over since' if end_s <= now_s else 'is over on'} "
        f"{datetime.datetime.fromtimestamp(end_s, datetime.UTC):%Y-%m-%d %H:%M} UTC"
        for path, end_s in all_ends(files) if end_s - now_s < SOON_S
    ]  # fmt: skip


# --- DER --------------------------------------------------------------------------------------------------------------


def content(der: bytes, at: int) -> tuple[int, int]:
    """Where what begins at `at` has its content, and how much that is."""
    length, at = der[at + 1], at + 2
    if length < 0x80:
        return at, length
    count = length & 0x7F
    return at + count, int.from_bytes(der[at : at + count], "big")


def end(der: bytes, at: int) -> int:
    begin, length = content(der, at)
    return begin + length


def part(der: bytes, number: int) -> int:
    """Where a part of what is signed begins (RFC 5280, 4.1): 0 is the version, which may be missing."""
    at, _ = content(der, 0)
    at, _ = content(der, at)
    if der[at] == 0xA0:
        at = end(der, at)
    for _ in range(number - 1):
        at = end(der, at)
    return at


def _ends(der: bytes) -> float:
    begin, _ = content(der, part(der, VALIDITY))
    at = end(der, begin)  # behind the time from which it holds
    begin, length = content(der, at)
    text = der[begin : begin + length].decode("ascii").removesuffix("Z")
    if der[at] == UTC_TIME:
        text = ("19" if text >= "50" else "20") + text
    elif der[at] != GENERALIZED_TIME:
        raise ValueError(text)
    return datetime.datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=datetime.UTC).timestamp()
