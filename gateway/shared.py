"""Work that several clients may ask for at the same time, and that costs the same whether one or all of them get it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, Generic, TypeVar

Result = TypeVar("Result")


class Shared(Generic[Result]):
    """Who asks while it is done gets what the first one gets. When it is over, the next one has it done anew."""

    def __init__(self) -> None:
        self._under_way: Final[dict[Hashable, asyncio.Task[Result]]] = {}

    async def get(self, what: Hashable, make: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of `make`, which goes on when those who wait for it leave. `what` tells one work from another."""
        task = self._under_way.get(what)
        if task is None:
            task = self._under_way[what] = asyncio.create_task(make())
            task.add_done_callback(lambda done: self._over(what, done))
        return await asyncio.shield(task)

    def _over(self, what: Hashable, task: asyncio.Task[Result]) -> None:
        del self._under_way[what]
        if not task.cancelled():
            task.exception()  # perhaps nobody is left who hears of it
