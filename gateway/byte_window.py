"""Limits how many bytes may be under way at once; further takers wait in order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final


class ByteWindow:
    def __init__(self, size: int) -> None:
        self._size: Final = size
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, count: int) -> None:
        """Waits for room and takes it. A count above the window's size is let through when nothing else is under
        way."""
        if not self._waiting and self._fits(count):
            self._taken += count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._taken -= count  # it was admitted just before it was cancelled
            self._admit()
            raise

    def give(self, count: int) -> None:
        self._taken -= count
        self._admit()

    def _fits(self, count: int) -> bool:
        return self._taken == 0 or self._taken + count <= self._size

    def _admit(self) -> None:
        while self._waiting:
            count, turn = self._waiting[0]
            if not turn.done():
                if not self._fits(count):
                    return
                self._taken += count
                turn.set_result(None)
            self._waiting.popleft()
