"""Who has tried to log in of late, by address, and how long the next attempt has to wait: one count for all processes.

What is counted, and its limits, is in csrc/base/login_attempts.h; here is what an address is.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from typing import Any, Final

from mq_shards.csrc._core import lib

PATIENCE_S: Final = lib.LOGIN_PATIENCE_MS / 1000


class Attempts:
    def __init__(self, table: Any, now_ns: Callable[[], int] = time.monotonic_ns) -> None:  # noqa: ANN401
        """`table`: a struct login_attempts, which all processes share."""
        self._table = table
        self._now_ns = now_ns

    def begin(self, address: str) -> float | None:
        """How many seconds it waits before it is looked at; None: it is refused unseen. Else end() has to follow."""
        key = key_of(address).encode()
        wait_ns = int(lib.login_attempt_begin(self._table, key, len(key), self._now_ns()))
        return None if wait_ns < 0 else wait_ns / 1e9

    def end(self, address: str, *, right: bool) -> None:
        if right:
            key = key_of(address).encode()
            lib.login_attempt_right(self._table, key, len(key))

    def failed(self, address: str) -> float:
        """One that was not made to wait was wrong: how long its answer has to."""
        wait_s = self.begin(address)
        return PATIENCE_S if wait_s is None else wait_s


def key_of(address: str) -> str:
    """Of HOST or HOST:PORT. A network of 64 bits of IPv6 is one customer's."""
    host = address.rpartition(":")[0].strip("[]") if address.count(":") == 1 or address.startswith("[") else address
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if found.version == 4:
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.ip_network((found, 64), strict=False))
