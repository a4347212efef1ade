"""Consumers that their client ends, by CLOSE_CONSUMER or UNSUBSCRIBE, until their worker has let go of them. Their ids
are taken meanwhile: a SUBSCRIBE with one of them waits until it is free, or the UNSUBSCRIBE has been refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final


@dataclass(slots=True, eq=False)
class _End:
    count: int = 0  # of commands that are not done
    waiting: list[Callable[[], None]] = field(default_factory=list)


class Ending:
    """Those of one connection."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: Final[dict[int, _End]] = {}  # by the consumer's id

    def begin(self, consumer_id: int) -> None:
        self._ends.setdefault(consumer_id, _End()).count += 1

    def over(self, consumer_id: int) -> None:
        """To be called once for each begin()."""
        end = self._ends[consumer_id]
        end.count -= 1
        if end.count == 0:
            del self._ends[consumer_id]
            if not self._ends:
                self._ends.clear()  # gives back the memory of what was in it
            for then in end.waiting:
                then()

    def waits(self, consumer_id: int, then: Callable[[], None]) -> bool:
        """Whether `then` is called later, as the id is not free yet."""
        end = self._ends.get(consumer_id)
        if end is not None:
            end.waiting.append(then)
        return end is not None
