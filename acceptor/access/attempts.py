"""Recent login attempts by address, and how long the next one must wait; all processes share one table.

csrc/base/login_attempts.h describes the counts and their limits. This module defines which clients count as one
address.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from typing import Any, Final

from mq_shards.csrc._core import lib

MAX_WAIT_S: Final = lib.LOGIN_MAX_WAIT_MS / 1000


class Attempts:
    def __init__(self, table: Any, now_ns: Callable[[], int] = time.monotonic_ns) -> None:  # noqa: ANN401
        """`table`: a struct login_attempts, which all processes share."""
        self._table = table
        self._now_ns = now_ns

    def begin(self, address: str) -> float | None:
        """The seconds that the attempt must wait before it is checked, then end() must follow; None: refuse it
        unchecked."""
        key = key_of(address).encode()
        wait_ns = int(lib.login_attempt_begin(self._table, key, len(key), self._now_ns()))
        return None if wait_ns < 0 else wait_ns / 1e9

    def end(self, address: str, *, right: bool) -> None:
        if right:
            key = key_of(address).encode()
            lib.login_attempt_right(self._table, key, len(key))

    def failed(self, address: str) -> float:
        """An attempt was checked without waiting and was wrong: the seconds by which to delay its answer."""
        wait_s = self.begin(address)
        return MAX_WAIT_S if wait_s is None else wait_s


def key_of(address: str) -> str:
    """The key of HOST or HOST:PORT."""
    return host_of(
        address.rpartition(":")[0].strip("[]") if address.count(":") == 1 or address.startswith("[") else address
    )


def host_of(host: str) -> str:
    """What an address counts as. An IPv6 network of 64 bits counts as one address, since one customer has it.

    >>> host_of("127.0.0.1"), host_of("::ffff:127.0.0.1"), host_of("2001:db8::1:2:3:4"), host_of("@")
    ('127.0.0.1', '127.0.0.1', '2001:db8::/64', '@')
    """
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if found.version == 4:
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.ip_network((found, 64), strict=False))
