"""Splits work on many topics into short turns of the gateway's event loop, so that it does not hold up other work."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Sequence
from typing import Final

TURN_S: Final = 0.002
PIECE: Final = 512  # names between two looks at the clock


class Turns:
    def __init__(self) -> None:
        self._now_s = asyncio.get_running_loop().time
        self._until_s = self._now_s() + TURN_S

    async def pause(self) -> None:
        """Lets the event loop run if this turn has been long enough."""
        if self._now_s() >= self._until_s:
            await asyncio.sleep(0)
            self._until_s = self._now_s() + TURN_S


async def in_pieces(names: Sequence[str], piece: int = PIECE) -> AsyncIterator[Sequence[str]]:
    turns = Turns()
    for at in range(0, len(names), piece):
        yield names[at : at + piece]
        await turns.pause()


async def sorted_in_turns(names: Sequence[str]) -> list[str]:
    runs = [sorted(piece) async for piece in in_pieces(names)]
    if len(runs) <= 1:
        return runs[0] if runs else []
    found: list[str] = []
    turns = Turns()
    for name in heapq.merge(*runs):
        found.append(name)
        if len(found) % PIECE == 0:
            await turns.pause()
    return found
