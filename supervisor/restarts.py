"""When a process that has ended is started again: at once, then slower. One that dies too often is given up; one whose
start is refused is not, since what refuses it (a disk, a limit of the system) may be mended."""

from __future__ import annotations

import logging
from typing import Final

from mq_shards.supervisor.child import Child

# A child that dies more often than this within the window is not restarted. A worker ends after FAILING_LIMIT_S
# (shards/worker.py) with a failing disk; the window is shorter than five times that, so the disk may fail until mended.
MAX_DEATHS: Final = 5
DEATHS_WINDOW_S: Final = 20.0
# The delays before the first restart, the second, ...: at first none, since clients wait, then longer ones.
RESTART_DELAYS_S: Final = (0.0, 0.1, 0.2, 0.4, 0.8)
# The broker goes on without the gateway, which delivers no messages: its restarts never end, with this delay at most.
AUXILIARY_DELAY_S: Final = 30.0
# At most, while a start is refused: clients wait for this process, and each try may read a log.
REFUSED_DELAY_S: Final = 10.0

log = logging.getLogger(__name__)


def plan(child: Child, now: float) -> float | None:
    """Notes an end, and when the child is started again. Returns the delay until then; None: never, since it has died
    too often."""
    if child.refused and child.role != "gateway":
        return _after_refusal(child, now)
    wait_s = auxiliary_delay_s(child, now) if child.role == "gateway" else delay_s(child, now)
    if wait_s is None:
        log.error("giving up: %s died %d times within %g s", child.title, len(child.deaths), DEATHS_WINDOW_S)
        return None
    child.restart_at = now + wait_s
    if child.role == "gateway" and len(child.deaths) > 1:
        log.warning(
            "%s died %d times, is started again in %g s; messages are served without it",
            child.title, len(child.deaths), wait_s,
        )  # fmt: skip
    return wait_s


def _after_refusal(child: Child, now: float) -> float:
    """This is no death: a process that starts in the end may still die as often as any."""
    child.refusals += 1
    wait_s = delay_after(child.refusals + 1, REFUSED_DELAY_S)
    child.restart_at = now + wait_s
    log.warning("%s is tried again in %g s; the other processes serve", child.title, wait_s)
    return wait_s


def delay_s(child: Child, now: float) -> float | None:
    """Notes a death; returns the delay before the restart, None if the child has died too often."""
    while child.deaths and child.deaths[0] < now - DEATHS_WINDOW_S:
        child.deaths.popleft()
    child.deaths.append(now)
    return None if len(child.deaths) > MAX_DEATHS else RESTART_DELAYS_S[len(child.deaths) - 1]


def auxiliary_delay_s(child: Child, now: float) -> float:
    """The same for a child that is never given up. A process that lived longer than the window starts the count anew.
    One that was killed may be healthy: its delay stays short, since those that wait for it do so for seconds only.
    """
    if now - child.started_at > DEATHS_WINDOW_S:
        child.deaths.clear()
    child.deaths.append(now)
    delay_s = delay_after(len(child.deaths), AUXILIARY_DELAY_S)
    return min(delay_s, RESTART_DELAYS_S[-1]) if child.was_killed else delay_s


def delay_after(ends: int, most_s: float) -> float:
    """The delay after so many ends in a row: at first as for any child, then doubled each time."""
    if ends <= len(RESTART_DELAYS_S):
        return RESTART_DELAYS_S[ends - 1]
    return float(min(most_s, RESTART_DELAYS_S[-1] * 2 ** min(ends - len(RESTART_DELAYS_S), 16)))
