"""When clients' credentials expire, by the wall clock. Takes memory for the clients there are, however many have come
and gone."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

SPARE: Final = 64  # outdated entries that are kept, besides as many as there are others


class Expiries:
    def __init__(self) -> None:
        self._of: dict[int, float] = {}  # by connection
        self._heap: list[tuple[float, int]] = []  # these, and outdated ones

    def __len__(self) -> int:
        return len(self._heap)

    def note(self, conn: int, until_s: float) -> None:
        """Notes when a connection's credentials expire, instead of any former time."""
        self._of[conn] = until_s
        heapq.heappush(self._heap, (until_s, conn))
        self._tidy()

    def forget(self, conn: int) -> None:
        if self._of.pop(conn, None) is not None:
            self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._of) + SPARE:
            self._heap = [(until_s, conn) for conn, until_s in self._of.items()]
            heapq.heapify(self._heap)

    def soonest_s(self) -> float | None:
        """Nothing expires before this time; None: nothing ever does."""
        return self._heap[0][0] if self._heap else None

    def over(self, now_s: float) -> Iterator[int]:
        """The connections whose credentials have expired; each is returned once."""
        while self._heap and self._heap[0][0] <= now_s:
            until_s, conn = heapq.heappop(self._heap)
            if self._of.get(conn) == until_s:
                del self._of[conn]
                yield conn
