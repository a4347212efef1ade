"""Closes all NATS clients before a stop. After a grace period, in which they may leave by themselves, they are closed
one after the other over a longer time, so that they do not all connect to another server at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Final

from mq_shards.acceptor.engine import FOREVER
from mq_shards.ringbuf.time_units import SECOND_NS

SHORTEST_STEP_NS: Final = 1_000_000


class LameDuck:
    def __init__(
        self,
        clients: Iterable[int],
        cut: Callable[[int], object],
        over: Callable[[], None],
        grace_ns: int,
        duration_ns: int,
        now_ns: Callable[[], int] = time.monotonic_ns,
        seed: int | None = None,
    ) -> None:
        """`duration_ns` includes the grace period. Calls `cut` for each client, and `over` once after the last."""
        self._random = random.Random(seed)
        self._left = list(clients)
        self._random.shuffle(self._left)
        self._cut = cut
        self._over = over
        self._now_ns = now_ns
        self._is_over = False
        spread_ns = duration_ns - grace_ns if duration_ns > grace_ns else SECOND_NS
        step_ns = spread_ns // max(len(self._left), 1)
        self._step_ns = min(max(step_ns, SHORTEST_STEP_NS), SECOND_NS)
        self._batch = max(1, SHORTEST_STEP_NS // max(step_ns, 1))
        self._next_ns = now_ns() + (grace_ns if self._left else 0)

    def wait_ns(self) -> int:
        return FOREVER if self._is_over else max(0, self._next_ns - self._now_ns())

    def expire(self) -> None:
        if self._is_over or self._now_ns() < self._next_ns:
            return
        for _ in range(min(self._batch, len(self._left))):
            self._cut(self._left.pop())
        if self._left:
            self._next_ns = self._now_ns() + self._random.randrange(self._step_ns // 2, self._step_ns)
        else:
            self.end()

    def end(self) -> None:
        """Ends when no client is left: all have been closed, or have left by themselves."""
        if not self._is_over:
            self._is_over = True
            self._over()
