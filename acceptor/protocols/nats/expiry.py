"""Clients whose JWTs let them stay only until some time. As with a nats-server that is counted from when it is known: a
wall clock that is set forward meanwhile cuts nobody off."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator

from mq_shards.acceptor.engine import FOREVER


class Expiries:
    def __init__(self, now_s: Callable[[], float] = time.monotonic, wall_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._wall_s = wall_s
        self._said: dict[int, float] = {}  # by connection: when it ends by the wall clock
        self._ends: dict[int, float] = {}  # the same by the other
        self._soonest: list[tuple[float, int]] = []  # stale entries are removed when they come first

    def set(self, conn: int, ends_s: float) -> None:
        """Sets when a connection has to be closed, by the wall clock; 0: never."""
        if not ends_s:
            self.gone(conn)
        elif self._said.get(conn) != ends_s:
            self._said[conn] = ends_s
            self._ends[conn] = self._now_s() + ends_s - self._wall_s()
            heapq.heappush(self._soonest, (self._ends[conn], conn))

    def gone(self, conn: int) -> None:
        self._said.pop(conn, None)
        self._ends.pop(conn, None)

    def wait_ns(self) -> int:
        while self._soonest and self._ends.get(self._soonest[0][1]) != self._soonest[0][0]:
            heapq.heappop(self._soonest)
        if not self._soonest:
            return FOREVER
        return int(max(self._soonest[0][0] - self._now_s(), 0) * 1e9)

    def over(self) -> Iterator[int]:
        """Removes and yields the connections whose time is over. One that is set meanwhile waits for the next call, so
        that a caller who leaves a connection open, and its end in the past, is not kept here for ever."""
        now_s = self._now_s()
        for _ in range(len(self._soonest)):
            if self._soonest[0][0] > now_s:
                return
            ends_s, conn = heapq.heappop(self._soonest)
            if self._ends.get(conn) == ends_s:
                self.gone(conn)
                yield conn
