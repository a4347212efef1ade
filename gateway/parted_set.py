"""A set that may be very large. It is kept in parts, so that none of its operations takes a long turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from typing import Final, Generic, TypeVar

from mq_shards.gateway.turns import Turns

PARTS: Final = 256  # a power of two

T = TypeVar("T", bound=Hashable)


class PartedSet(Generic[T]):
    def __init__(self) -> None:
        self._parts: Final[list[set[T]]] = [set() for _ in range(PARTS)]

    def __contains__(self, item: object) -> bool:
        return item in self._parts[hash(item) % PARTS]

    def add(self, item: T) -> None:
        self._parts[hash(item) % PARTS].add(item)

    def discard(self, item: T) -> None:
        self._parts[hash(item) % PARTS].discard(item)

    async def pieces(self) -> AsyncIterator[list[T]]:
        """Yields what it holds, part by part. It may be changed meanwhile."""
        turns = Turns()
        for part in self._parts:
            yield list(part)
            await turns.pause()

    async def clear(self) -> None:
        turns = Turns()
        for part in self._parts:
            part.clear()
            await turns.pause()
