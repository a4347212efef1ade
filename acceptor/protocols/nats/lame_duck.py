"""Closes all NATS clients before a stop. After a grace period, in which they may leave by themselves, they are closed
one after the other over a longer time, so that they do not all connect to another server at once. A moment before, a
client's members of queue groups are retired: other servers are told to choose others, and what they have sent until
they hear that still comes."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from mq_shards.acceptor.engine import FOREVER
from mq_shards.ringbuf.time_units import SECOND_NS

SHORTEST_STEP_NS: Final = 1_000_000
# How long before it is closed a client is retired; half of the grace period, if that is less.
RETIRED_NS: Final = SECOND_NS


class LameDuck:
    def __init__(
        self,
        clients: Iterable[int],
        retire: Callable[[int], object],
        cut: Callable[[int], object],
        over: Callable[[], None],
        grace_ns: int,
        duration_ns: int,
        now_ns: Callable[[], int] = time.monotonic_ns,
        seed: int | None = None,
    ) -> None:
        """`duration_ns` includes the grace period. Calls `retire`, and then `cut`, for each client, and `over` once
        after the last."""
        self._random = random.Random(seed)
        self._left = list(clients)
        self._random.shuffle(self._left)
        self._retired: deque[tuple[int, int]] = deque()  # when each is to be cut, and who that is
        self._retire = retire
        self._cut = cut
        self._over = over
        self._now_ns = now_ns
        self._is_over = False
        spread_ns = duration_ns - grace_ns if duration_ns > grace_ns else SECOND_NS
        step_ns = spread_ns // max(len(self._left), 1)
        self._step_ns = min(max(step_ns, SHORTEST_STEP_NS), SECOND_NS)
        self._batch = max(1, SHORTEST_STEP_NS // max(step_ns, 1))
        self._before_ns = min(RETIRED_NS, grace_ns // 2)
        self._next_ns = now_ns() + (grace_ns - self._before_ns if self._left else 0)

    def wait_ns(self) -> int:
        if self._is_over:
            return FOREVER
        at_ns = [self._next_ns] if self._left or not self._retired else []
        at_ns += [self._retired[0][0]] if self._retired else []
        return max(0, min(at_ns) - self._now_ns())

    def expire(self) -> None:
        now_ns = self._now_ns()
        if self._is_over:
            return
        if self._left and now_ns >= self._next_ns:
            for conn in [self._left.pop() for _ in range(min(self._batch, len(self._left)))]:
                self._retire(conn)
                self._retired.append((now_ns + self._before_ns, conn))
            self._next_ns = now_ns + self._random.randrange(self._step_ns // 2, self._step_ns)
        while self._retired and now_ns >= self._retired[0][0]:
            self._cut(self._retired.popleft()[1])
        if not self._left and not self._retired:
            self.end()

    def end(self) -> None:
        """Ends when no client is left: all have been closed, or have left by themselves."""
        if not self._is_over:
            self._is_over = True
            self._over()
