"""Limits the work that unauthenticated clients can cause at an acceptor, in all and by host: requests to services
of auth callouts, and fetches of accounts.

    place = places.take(host)           None: no place is free for this host
    places.give(place, was_good=...)    the work is done; `was_good`: the client was admitted

A host takes no more places than are left for the others. Strangers share one half of the places. The other half is for
hosts from which a client was admitted before, so strangers with many addresses cannot take it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from mq_shards.acceptor.access.attempts import host_of

MOST: Final = 4096
GOOD_HOSTS: Final = 8192  # remembered hosts with admitted clients: the most recent


@dataclass(frozen=True, slots=True)
class Place:
    host: str
    is_strangers: bool


class Places:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._for_strangers = most // 2
        self._by_host: Counter[str] = Counter()  # places in use; only hosts with some
        self._taken = 0
        self._strangers = 0
        self._good: dict[str, None] = {}  # hosts, least recently good first

    def take(self, address: str) -> Place | None:
        host = host_of(address)
        place = Place(host, is_strangers=host not in self._good)
        left = (self._for_strangers - self._strangers) if place.is_strangers else self._most - self._taken
        if self._by_host.get(host, 0) >= left:
            return None
        self._by_host[host] += 1
        self._taken += 1
        self._strangers += place.is_strangers
        return place

    def give(self, place: Place, *, was_good: bool) -> None:
        self._by_host[place.host] -= 1
        if not self._by_host[place.host]:
            del self._by_host[place.host]
        self._taken -= 1
        self._strangers -= place.is_strangers
        if was_good:
            self.met(place.host)

    def met(self, host: str) -> None:
        """A client from this host was admitted."""
        self._good.pop(host, None)
        self._good[host] = None
        if len(self._good) > GOOD_HOSTS:
            del self._good[next(iter(self._good))]
