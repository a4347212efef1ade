"""Reads the client's address in a header of the PROXY protocol (nats_proxied.c has found where the header ends).

Raises ValueError for malformed headers, and for addresses that a nats-server does not accept.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from typing import Final

# The start of version 2; then follow command, address family, and the length of the rest.
SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_HEAD: Final = struct.Struct(">BBH")
_FOR_SOMEBODY: Final = 0x21
_FAMILIES: Final = {0x10: struct.Struct(">4s4sH"), 0x20: struct.Struct(">16s16sH")}

Address = tuple[str, int]


def address_of(header: bytes) -> Address | None:
    """The host and port of the proxy's client; None: the proxy connects for itself, or names no address.

    >>> address_of(b"PROXY TCP4 192.0.2.1 192.0.2.2 4242 4222\\r\\n")
    ('192.0.2.1', 4242)
    """
    return _of_binary(header[len(SIGNATURE) :]) if header.startswith(SIGNATURE) else _of_line(header)


def _of_line(line: bytes) -> Address | None:
    words = line.decode("utf-8", "replace").split()[1:]
    if not line.endswith(b"\n") or words[:1] == ["UNKNOWN"]:  # without an end: the client sent no header
        return None
    kind, source, destination, *ports = words if len(words) == 5 else ["", "", ""]
    if kind not in ("TCP4", "TCP6") or {":" in source, ":" in destination} != {kind == "TCP6"}:
        raise ValueError("invalid v1 format")
    found, _ = _ip(source), _ip(destination)
    if not all(re.fullmatch(r"[0-9]+", port, re.ASCII) and int(port) <= 0xFFFF for port in ports):
        raise ValueError("invalid port")
    return found, int(ports[0])


def _ip(text: str) -> str:
    """Reads an address as Go does here: a zone is an error."""
    if "%" in text:
        raise ValueError("invalid address")
    return _shown(ipaddress.ip_address(text))


def _shown(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Writes an address as Go does: an IPv4 address inside IPv6 as IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _of_binary(rest: bytes) -> Address | None:
    what, family, _ = _HEAD.unpack_from(rest)
    addresses = _FAMILIES.get(family & 0xF0)
    if what != _FOR_SOMEBODY or addresses is None:
        return None
    source, _, port = addresses.unpack_from(rest, _HEAD.size)
    return _shown(ipaddress.ip_address(source)), port
