"""A stop that is under way: how long it may take, and how often to log what it waits for."""

from __future__ import annotations

from typing import Final

SAID_S: Final = 3.0
# timeout(1) and the like signal a process and then its whole group: that counts as one signal, not two.
SAME_SIGNAL_S: Final = 0.5


class Stop:
    def __init__(self, began: float, timeout_s: float) -> None:
        self._began: Final = began
        self._deadline: float | None = began + timeout_s
        self._said_at: float | None = began + SAID_S

    def has_taken_s(self, now: float) -> float:
        return now - self._began

    def is_asked_again(self, now: float) -> bool:
        """Whether a signal that arrives now is a second one."""
        return now - self._began > SAME_SIGNAL_S

    def is_overdue(self, now: float) -> bool:
        return self._deadline is not None and self._deadline <= now

    def is_to_be_said(self, now: float) -> bool:
        """Whether to log now what the stop waits for; once in SAID_S."""
        if self._said_at is None or self._said_at > now:
            return False
        self._said_at = now + SAID_S
        return True

    def all_are_killed(self) -> None:
        self._deadline = self._said_at = None

    @property
    def due_at(self) -> list[float]:
        return [at for at in (self._deadline, self._said_at) if at is not None]
