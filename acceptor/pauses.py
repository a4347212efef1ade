"""Pauses of long work, such as reading anew what very many accounts and users share: it calls `pause` after each piece
of some microseconds, and every 2 ms connections go on for a turn (Engine.pause). Nothing that Python knows changes
meanwhile, so such work is written as if it were done at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Pause = Callable[[], None]
T = TypeVar("T")


def no_pause() -> None:
    """For work that keeps nobody waiting, as at a start."""


def each_with(pause: Pause, things: Iterable[T]) -> Iterator[T]:
    for thing in things:
        pause()
        yield thing
