"""For whom a proxy speaks: what a header of the PROXY protocol says (nats_proxied.c has found where it ends).

What is none of it raises ValueError, and so do addresses that a nats-server does not take.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from typing import Final

# Of version 2; behind it stand what is to be done, the family of addresses, and how many bytes follow.
SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_HEAD: Final = struct.Struct(">BBH")
_FOR_SOMEBODY: Final = 0x21
_FAMILIES: Final = {0x10: struct.Struct(">4s4sH"), 0x20: struct.Struct(">16s16sH")}

Address = tuple[str, int]




def address_of(header: bytes) -> Address | None:
    """Host and port of who has come to the proxy; None: the proxy speaks for itself, or says nothing.

    >>> address_of(b"PROXY TCP4 192.0.2.1 192.0.2.2 4242 4222\\r\\n")
    ('192.0.2.1', 4242)
    """
    return _of_binary(header[len(SIGNATURE) :]) if header.startswith(SIGNATURE) else _of_line(header)


def _of_line(line: bytes) -> Address | None:
    words = line.decode("utf-8", "replace").split()[1:]
    if not line.endswith(b"\n") or words[:1] == ["UNKNOWN"]:  # without an end there is none
        return None
    kind, source, destination, *ports = words if len(words) == 5 else ["", "", ""]
    if kind not in ("TCP4", "TCP6") or {":" in source, ":" in destination} != {kind == "TCP6"}:
        raise ValueError("invalid v1 format")
    found, _ = _ip(source), _ip(destination)
    if not all(re.fullmatch(r"[0-9]+", port, re.ASCII) and int(port) <= 0xFFFF for port in ports):
        raise ValueError("invalid port")
    return found, int(ports[0])


def _ip(text: str) -> str:
    """As Go reads it: without a zone."""
    if "%" in text:
        raise ValueError("invalid address")
    return _shown(ipaddress.ip_address(text))


def _shown(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """As Go shows it: of version 6, those of version 4 as such."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _of_binary(rest: bytes) -> Address | None:
    what, family, _ = _HEAD.unpack_from(rest)
    addresses = _FAMILIES.get(family & 0xF0)
    if what != _FOR_SOMEBODY or addresses is None:
        return None
    source, _, port = addresses.unpack_from(rest, _HEAD.size)
    return _shown(ipaddress.ip_address(source)), port
