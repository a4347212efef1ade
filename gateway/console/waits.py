"""How long the oldest messages of topics and channels have waited. Workers are asked for those that a client looks at;
answers are shared by all clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final

from mq_shards.gateway.ages import Name, look_up
from mq_shards.gateway.broker import Broker

FRESH_S: Final = 1.5
WITHIN_S: Final = 0.25  # what was not asked for by then is unknown this time
KEPT: Final = 10_000


class Waits:
    """To be made where the event loop runs."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._found: dict[Name, tuple[float, float]] = {}  # when the worker answered, and the age then
        self._begin: dict[int, Name] = {}
        self._asking = asyncio.Lock()

    async def of(self, groups: Sequence[Iterable[Name]]) -> list[float | None]:
        """The greatest age in each group of names, in seconds. None: not known; 0: nothing waits."""
        async with self._asking:
            now = time.monotonic()
            wanted = {name for group in groups for name in group}
            missing = [name for name in wanted if now >= self._found.get(name, (-FRESH_S, 0.0))[0] + FRESH_S]
            if missing:
                if len(self._found) > KEPT:
                    self._found.clear()
                found = await look_up(self._broker, missing, self._begin, WITHIN_S)
                asked = time.monotonic()
                for name in missing:
                    self._found.pop(name, None)
                self._found.update({name: (asked, age_s) for name, age_s in found.items()})
            return [self._greatest(list(group)) for group in groups]

    def forget(self) -> None:
        """While nobody looks: a name that is remembered may be all that is left of a large piece of memory."""
        self._found.clear()
        self._begin.clear()

    def _greatest(self, group: Sequence[Name]) -> float | None:
        ages = [self._found[name][1] for name in group if name in self._found]
        return max(ages, default=None if group else 0.0)
