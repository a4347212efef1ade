"""The addresses of this server: in INFO's connect_urls, which clients are sent once the cluster has others, and in
its ports file."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Final

SIOCGIFADDR: Final = 0x8915
NAME_BYTES: Final = 16  # IFNAMSIZ: of an interface name
IF_INET6: Final = Path("/proc/net/if_inet6")


def own_urls(host: str, port: int, advertise: str) -> list[str]:
    """Returns HOST:PORT, IPv6 in brackets. `advertise`, if not empty, replaces them; `port` is added if it has none."""
    if advertise:
        has_port = advertise.rpartition(":")[2].isdigit() and (advertise.count(":") == 1 or "]:" in advertise)
        return [advertise if has_port else url(advertise, port)]
    return [url(address, port) for address in (interface_addresses() if _is_any(host) else []) or [host]]


def reached_at(address: str) -> list[str]:
    """Returns all HOST:PORT that this HOST:PORT stands for, loopback and link-local ones too."""
    host, _, port = address.rpartition(":")
    is_any = port.isdigit() and _is_any(host.strip("[]"))
    return [url(str(one), int(port)) for one in _all_interfaces()] if is_any else [address]


def url(host: str, port: int) -> str:
    bare = host.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def _is_any(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")


def interface_addresses() -> list[str]:
    """The addresses of all interfaces, except loopback and link-local ones."""
    return [str(address) for address in _all_interfaces() if not address.is_loopback and not address.is_link_local]


def _all_interfaces() -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    return [*_version_4(), *_version_6()]


def _version_4() -> list[ipaddress.IPv4Address]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{NAME_BYTES}s24x", name.encode()[: NAME_BYTES - 1])
            with contextlib.suppress(OSError):  # the interface has no IPv4 address
                answer = fcntl.ioctl(sock, SIOCGIFADDR, request)
                found.append(ipaddress.IPv4Address(answer[20:24]))
    return found


def _version_6() -> list[ipaddress.IPv6Address]:
    try:
        lines = IF_INET6.read_text().splitlines()
    except OSError:
        return []
    return [ipaddress.IPv6Address(int(line.split()[0], 16)) for line in lines]
