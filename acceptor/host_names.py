"""Which names of a broker a page of a stranger cannot have. A page can make its own name resolve to the broker's
address (DNS rebinding): to the browser both are then one site.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Container


def is_out_of_reach(name: str, others: Container[str] = ()) -> bool:
    """Whether `name` (lower case, without a port) is an address, this machine's own name, or one of `others`."""
    # No site of the web has a name without a dot.
    return is_address(name) or bool(name and "." not in name) or name == socket.gethostname().lower() or name in others


def is_address(name: str) -> bool:
    """Whether this is an IP address, maybe with a zone.

    >>> is_address("::1"), is_address("hub")
    (True, False)
    """
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def is_of_this_machine(name: str) -> bool:
    """Whether a browser looks for `name` on the machine that it runs on itself."""
    if is_address(name):
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    return name == "localhost" or name.endswith(".localhost")
