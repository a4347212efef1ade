"""Splits work on many topics into short turns of the gateway's event loop, so that it does not hold up other work."""

from __future__ import annotations

import asyncio
from bisect import bisect
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, TypeVar

TURN_S: Final = 0.002
PIECE: Final = 512  # names between two looks at the clock
RANGES: Final = 512  # that many names are sorted in

T = TypeVar("T")


class Turns:
    def __init__(self) -> None:
        self._now_s = asyncio.get_running_loop().time
        self._until_s = self._now_s() + TURN_S

    async def pause(self) -> None:
        """Lets the event loop run if this turn has been long enough."""
        if self._now_s() >= self._until_s:
            await asyncio.sleep(0)
            self._until_s = self._now_s() + TURN_S


async def in_pieces(items: Sequence[T], piece: int = PIECE) -> AsyncIterator[Sequence[T]]:
    turns = Turns()
    for at in range(0, len(items), piece):
        yield items[at : at + piece]
        await turns.pause()


async def sorted_by_name(items: Sequence[T], name: Callable[[T], str]) -> list[T]:
    """As sorted(items, key=name). Deals them out to ranges of names, which are sorted one after the other."""
    if len(items) <= PIECE:
        return sorted(items, key=name)
    borders = sorted({name(item) for item in items[:: len(items) // RANGES + 1]})
    ranges: list[list[T]] = [[] for _ in range(len(borders) + 1)]
    async for piece in in_pieces(items):
        for item in piece:
            ranges[bisect(borders, name(item))].append(item)
    found: list[T] = []
    turns = Turns()
    for one in ranges:
        one.sort(key=name)
        found += one
        one.clear()  # not all of them in the last turn
        await turns.pause()
    return found


async def sorted_in_turns(names: Sequence[str]) -> list[str]:
    return await sorted_by_name(names, str)
