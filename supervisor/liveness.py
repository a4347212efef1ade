"""Which processes answer: a process that hangs without dying is reported, and replaced.

Each process that serves, and a gateway that loads, gets a ping over its control socket and answers in its next turn. If
it has not after HUNG_S, that is logged; after the limit it is killed, and restarted as after any death. Time in which
the supervisor itself, or the whole machine, was stopped is not counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mq_shards.supervisor.child import Child

ASK_S: Final = 1.0
HUNG_S: Final = 3.0  # so that a hang is reported within 5 s
LATE_S: Final = 1.0  # a look() later than this means that the supervisor itself was stopped

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class _Asked:
    """A ping that was sent to a process."""

    pid: int
    at: float
    answered: bool = False
    said: bool = False


class Liveness:
    def __init__(self, limit_s: float, now: float) -> None:
        """`limit_s` 0: a process that hangs is reported, but not killed."""
        self._limit_s = limit_s
        self._asked: dict[Child, _Asked] = {}
        self._found: list[str] = []  # what hanging() returned at the end of the last look()
        self.times: Counter[str] = Counter()  # how often each process, by title, has not answered for HUNG_S
        self.due_at = now + ASK_S

    def answered(self, child: Child, now: float) -> None:
        asked = self._asked.get(child)
        if asked is None or asked.pid != child.pid:
            return
        asked.answered = True
        if asked.said:
            log.warning("%s (pid %d) answers again, after %.1f s", child.title, child.pid, now - asked.at)

    def look(self, children: Iterable[Child], now: float) -> bool:
        """To be called when `due_at` has come. Returns whether what hanging() returns has changed since the last time,
        also by an answer or a death in between."""
        late_s = now - self.due_at
        missed_s = late_s if late_s > LATE_S else 0.0
        self.due_at = now + ASK_S
        for child in children:
            asked = self._asked.get(child)
            if not child.has_to_answer:
                self._asked.pop(child, None)
            elif asked is None or asked.pid != child.pid or asked.answered:
                self._asked[child] = _Asked(child.pid, now)
                child.send({"do": "ping"})
            else:
                asked.at += missed_s
                self._judge(child, asked, now)
        before, self._found = self._found, self.hanging()
        return self._found != before

    def hanging(self) -> list[str]:
        """By title; those that have died since are not among them."""
        asked = self._asked.items()
        return [child.title for child, one in asked if one.said and not one.answered and one.pid == child.pid]

    def _judge(self, child: Child, asked: _Asked, now: float) -> None:
        silent_s = now - asked.at
        if silent_s >= HUNG_S and not asked.said:
            asked.said = True
            self.times[child.title] += 1
            what = f"and is replaced after {self._limit_s:g} s" if self._limit_s else "and is left"
            log.error("%s (pid %d) has not answered for %.1f s, %s", child.title, child.pid, silent_s, what)
        if self._limit_s and silent_s >= self._limit_s:
            log.error("%s (pid %d) hangs: killing it", child.title, child.pid)
            child.kill()
