"""Who has tried to log in of late, by address, and how long the next attempt has to wait.

An attempt counts from when it begins: a thousand at once wait for each other like a thousand in a row. The table has
a limit: who has not tried for longest is forgotten.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FREE: Final = 5  # wrong ones, before anybody waits
FIRST_S: Final = 0.25
LONGEST_S: Final = 4.0
PATIENCE_S: Final = 30.0  # what would wait longer is refused
FORGOTTEN_S: Final = 600.0
MAX_ADDRESSES: Final = 4096


@dataclass(slots=True)
class _Address:
    failures: int = 0
    under_way: int = 0
    free_at: float = 0.0  # for the next attempt
    seen_at: float = 0.0


class Attempts:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._addresses: OrderedDict[str, _Address] = OrderedDict()

    def begin(self, address: str) -> float | None:
        """How many seconds it waits before it is looked at; None: it is refused unseen. Else end() has to follow."""
        now = self._now_s()
        found = self._of(key_of(address), now)
        count = found.failures + found.under_way
        wait_s = 0.0
        if count >= FREE:
            delay_s = min(FIRST_S * 2.0 ** min(count - FREE, 16), LONGEST_S)
            free_at = max(now, found.free_at) + delay_s
            wait_s = free_at - now
            if wait_s > PATIENCE_S:
                return None
            found.free_at = free_at
        found.under_way += 1
        return wait_s

    def end(self, address: str, *, right: bool) -> None:
        found = self._of(key_of(address), self._now_s())
        found.under_way = max(0, found.under_way - 1)
        if not right:
            found.failures += 1

    def failed(self, address: str) -> float:
        """One that was not made to wait was wrong: how long its answer has to."""
        wait_s = self.begin(address)
        if wait_s is None:
            return PATIENCE_S
        self.end(address, right=False)
        return wait_s

    def _of(self, key: str, now: float) -> _Address:
        found = self._addresses.pop(key, None)
        if found is None or (found.seen_at + FORGOTTEN_S < now and not found.under_way):
            found = _Address()
        found.seen_at = now
        self._addresses[key] = found
        if len(self._addresses) > MAX_ADDRESSES:
            self._addresses.popitem(last=False)
        return found

    def __len__(self) -> int:
        return len(self._addresses)


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
