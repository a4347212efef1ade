"""A stop that is under way: how long it may take, what it waits for, and how those that are left are killed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from mq_shards.supervisor.child import Child

SAID_S: Final = 3.0
# timeout(1) and the like signal a process and then its whole group: that counts as one signal, not two.
SAME_SIGNAL_S: Final = 0.5

log = logging.getLogger(__name__)


class Stop:
    def __init__(self, began: float, timeout_s: float) -> None:
        self.failed = False  # whether a process had to be killed, or did not end well
        self._began: Final = began
        self._timeout_s: Final = timeout_s
        self._deadline: float | None = began + timeout_s
        self._said_at: float | None = began + SAID_S

    @property
    def due_at(self) -> list[float]:
        return [at for at in (self._deadline, self._said_at) if at is not None]

    def ended(self, child: Child, pid: int, how: str) -> None:
        """`how`: see Child.reap."""
        if how:
            log.error("%s (pid %d) %s while stopping", child.title, pid, how)
            self.failed = True

    def signalled(self, name: str, left: Sequence[Child], now: float) -> None:
        """A second signal kills what is left."""
        if now - self._began > SAME_SIGNAL_S:
            self._kill(left, f"{name} again")

    def look(self, left: Sequence[Child], waited_for: Iterable[Child], now: float) -> str:
        """Kills those that are `left` when their time is over. Returns what the stop waits for, once in SAID_S;
        otherwise ""."""
        if not left:  # the last has just ended
            return ""
        if self._deadline is not None and self._deadline <= now:
            self._kill(left, f"not stopped within {self._timeout_s:g} s")
        if self._said_at is None or self._said_at > now:
            return ""
        self._said_at = now + SAID_S
        titles = ", ".join(child.title for child in waited_for)
        log.info(
            "stopping for %.0f s, waiting for %s; what is left after %g s is killed",
            now - self._began, titles, self._timeout_s,
        )  # fmt: skip
        return titles

    def _kill(self, left: Sequence[Child], why: str) -> None:
        log.error("%s: killing %s", why, ", ".join(child.title for child in left))
        self.failed = True
        self._deadline = self._said_at = None
        for child in left:
            child.kill()
