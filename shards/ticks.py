"""When a worker looks after its shards: few at a time, often while they are written to, and seldom otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

TICK_NS: Final = 500_000_000
BUSY_TICK_NS: Final = 1_000_000
# All shards are looked after in TICK_NS, few of them sooner: in so many ticks, or in fewer with so many shards at each.
TIDIED_IN: Final = 8
TIDIED_AT_ONCE: Final = 8


class Ticks:
    """`at_once`: how many shards are looked after in a tick; `usual_ns`: from one tick to the next."""

    def __init__(self, shards: int) -> None:
        self.at_once: Final = max(TIDIED_AT_ONCE, -(-shards // TIDIED_IN))
        ticks = max(1, -(-shards // self.at_once))
        self.usual_ns: Final = max(BUSY_TICK_NS, TICK_NS * min(shards, TIDIED_IN) // TIDIED_IN // ticks)
        self._idle_ns: Final = max(BUSY_TICK_NS, TICK_NS // ticks)
        self._appended = 0

    def wait_ns(self, appended: Callable[[], int], *, is_more: bool, is_urgent: bool) -> int:
        """Returns the time until the next tick. `appended`: how much all logs have ever been given; `is_more`: there is
        something left to do.

        While nothing is written it is long, so that an idle worker hardly ever takes a core from others.
        """
        if is_more:
            return BUSY_TICK_NS
        if is_urgent or self.usual_ns == self._idle_ns:
            return self.usual_ns
        before, self._appended = self._appended, appended()
        return self.usual_ns if self._appended != before else self._idle_ns
