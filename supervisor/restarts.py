"""When a process that has died is started again: at once, then slower, and in the end not at all."""

from __future__ import annotations

from typing import Final

from mq_shards.supervisor.child import Child

# A child that dies more often than this within the window is not worth starting again. The window is shorter than five
# times what a worker bears with a failing disk (FAILING_LIMIT_S in shards/worker.py): that may last until it is mended.
MAX_DEATHS: Final = 5
DEATHS_WINDOW_S: Final = 20.0
# Before the first restart, the second, ...: at once, since clients wait; then slower, since it did not help.
RESTART_DELAYS_S: Final = (0.0, 0.1, 0.2, 0.4, 0.8)
# The gateway serves no message, so the broker goes on without it: it is tried again and again, in the end this often.
AUXILIARY_DELAY_S: Final = 30.0


def delay_s(child: Child, now: float) -> float | None:
    """Before it is started again; None if it has died too often."""
    while child.deaths and child.deaths[0] < now - DEATHS_WINDOW_S:
        child.deaths.popleft()
    child.deaths.append(now)
    return None if len(child.deaths) > MAX_DEATHS else RESTART_DELAYS_S[len(child.deaths) - 1]


def auxiliary_delay_s(child: Child, now: float) -> float:
    """Of one that is never given up. A life that lasted is a new beginning. One that was killed may be well: it comes
    no later than those bear who wait for it, which is some seconds.
    """
    if now - child.started_at > DEATHS_WINDOW_S:
        child.deaths.clear()
    child.deaths.append(now)
    delay_s = delay_after(len(child.deaths))
    return min(delay_s, RESTART_DELAYS_S[-1]) if child.was_killed else delay_s


def delay_after(deaths: int) -> float:
    """In a row: as for the others at first, then twice as long each time."""
    if deaths <= len(RESTART_DELAYS_S):
        return RESTART_DELAYS_S[deaths - 1]
    return float(min(AUXILIARY_DELAY_S, RESTART_DELAYS_S[-1] * 2 ** (deaths - len(RESTART_DELAYS_S))))
