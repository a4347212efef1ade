"""Fetches accounts from a resolver: limits how many are fetched at once, and shares that fairly among hosts.

Anybody can make a key that causes an account to be fetched, and a resolver may be slow. So each host has its own queue,
queues are served in turn, and no host takes more places (places.py) than are left for others. A host that asks for
thousands of unknown accounts delays only its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mq_shards.acceptor.access.attempts import host_of
from mq_shards.acceptor.protocols.nats.places import Place, Places

MAX_WAITING: Final = 4096  # in all queues; one queue holds no more than what is left for others
MAX_WAIT_S: Final = 1.9  # how long a fetch may wait: clients have 2 s to authenticate
LOOKED_AT: Final = 64  # queues tried when a place is free; also, stale entries removed in a turn

Found = Callable[[str], None]


@dataclass(slots=True)
class _Wanted:
    since_s: float
    found: list[Found] = field(default_factory=list)
    is_under_way: bool = False


class Fetches:
    def __init__(
        self,
        fetch: Callable[[str, Found], None],
        at_once: int,
        poke: Callable[[], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fetch` is called with an account and a callback for its JWT. `poke` is called when settle() has something to
        do."""
        self._fetch = fetch
        self._poke = poke
        self._now_s = now_s
        self._places = Places(at_once)
        self._wanted: dict[str, _Wanted] = {}  # by account
        self._lines: dict[str, dict[str, None]] = {}  # by host: its queue of accounts; the first host is served next
        self._waiting = 0  # in all queues
        self._to_look_at = LOOKED_AT  # stale entries that may still be removed in this turn

    def fetch(self, account: str, address: str, found: Found) -> None:
        """Calls `found` with the JWT, now or later; "" if there is none."""
        wanted = self._wanted.get(account)
        if wanted is not None and wanted.is_under_way:
            wanted.found.append(found)
            return
        host = host_of(address)
        line = self._lines.get(host, {})
        if account not in line and len(line) >= MAX_WAITING - self._waiting:
            found("")
            return
        self._waiting += account not in line
        line[account] = None
        self._lines[host] = line
        self._wanted.setdefault(account, _Wanted(self._now_s())).found.append(found)
        self._begin_of(host)

    def settle(self) -> None:
        """Goes on with what an earlier turn has left."""
        was_left = self._to_look_at == 0
        self._to_look_at = LOOKED_AT
        if was_left:
            self._begin()

    def met(self, address: str) -> None:
        """A client from this address was admitted."""
        self._places.met(host_of(address))

    def _begin(self) -> None:
        """Begins fetches when a place is free."""
        for _ in range(min(len(self._lines), LOOKED_AT)):
            if not self._lines:
                return
            self._begin_of(next(iter(self._lines)))

    def _begin_of(self, host: str) -> None:
        """Begins a fetch of this host if there is a place for it, and moves the host behind the others."""
        self._take(host, self._lines.get(host, {}))
        if line := self._lines.pop(host, None):
            self._lines[host] = line

    def _take(self, host: str, line: dict[str, None]) -> None:
        """Begins the next fetch of a queue if there is a place. Removes entries that are under way or too late."""
        while line:
            account = next(iter(line))
            wanted = self._wanted.get(account)
            is_late = wanted is not None and self._now_s() - wanted.since_s > MAX_WAIT_S
            if wanted is None or wanted.is_under_way or is_late:
                if self._to_look_at == 0:
                    self._poke()
                    return
                self._to_look_at -= 1
                del line[account]
                self._waiting -= 1
                if wanted is not None and not wanted.is_under_way:
                    self._tell(account, "")
                continue
            place = self._places.take(host)
            if place is not None:
                del line[account]
                self._waiting -= 1
                wanted.is_under_way = True
                self._fetch(account, self._ended(account, place))
            return

    def _ended(self, account: str, place: Place) -> Found:
        def ended(jwt: str) -> None:
            self._places.give(place, was_good=False)
            self._tell(account, jwt)
            self._begin()
            self._begin_of(place.host)

        return ended

    def _tell(self, account: str, jwt: str) -> None:
        for found in self._wanted.pop(account).found:
            found(jwt)
