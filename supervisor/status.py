"""How the broker is, in one line, for the service manager: "serving", or what is wrong with it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from mq_shards.supervisor.child import Child
from mq_shards.supervisor.liveness import Liveness

log: Final = logging.getLogger(__name__)


class Status:
    def __init__(self) -> None:
        self.draining = False
        self._refused: Final[dict[str, str]] = {}  # by title of a process: why its start was refused
        self._disk_failing: Final[dict[int, str]] = {}  # by index of the worker: why the disk refuses writes
        self._disk_full: Final[dict[int, str]] = {}  # by index of a worker that refuses publishes: why

    def disk(self, worker: Child, state: str, reason: str) -> None:
        """What a worker says of its disk: "failing", until it is "ok" again, or "full", until there is "room"."""
        match state:
            case "ok":
                self._disk_failing.pop(worker.index, None)
                log.info("%s: the disk takes writes again", worker.title)
            case "full":
                self._disk_full[worker.index] = reason
                log.error("%s: %s: publishes are refused", worker.title, reason)
            case "room":
                self._disk_full.pop(worker.index, None)
                log.info("%s: publishes are refused no more", worker.title)
            case _:
                self._disk_failing[worker.index] = reason
                log.error("%s: the disk refuses writes: %s", worker.title, reason)

    def refused(self, child: Child, why: str) -> None:
        self._refused[child.title] = why

    def serves(self, child: Child) -> None:
        self._refused.pop(child.title, None)

    def ended(self, child: Child) -> None:
        """The next process in this place says so itself if its disk refuses writes."""
        if not child.refused:
            self._refused.pop(child.title, None)
        if child.role == "worker":
            self._disk_failing.pop(child.index, None)
            self._disk_full.pop(child.index, None)

    @property
    def refusing(self) -> list[tuple[int, str]]:
        """Workers, by index, that refuse writes, and why."""
        return sorted((self._disk_full | self._disk_failing).items())

    def line(self, children: Iterable[Child], liveness: Liveness) -> str:
        # A gateway that has not died is one that is not needed yet, or begins.
        away = [child.title for child in children if not child.serving and child.deaths]
        down = [title for title in away if title not in self._refused]
        parts = [f"restarting {', '.join(down)}"] if down else []
        parts += [f"{title} {self._refused[title]}" for title in away if title in self._refused]
        parts += [f"{title} does not answer" for title in liveness.hanging()]
        parts += [f"mq-worker-{index}: the disk refuses writes: {why}" for index, why in self._disk_failing.items()]
        parts += [f"mq-worker-{index}: {why}: publishes are refused" for index, why in self._disk_full.items()]
        return "; ".join(parts or ["serving"]) + (" (draining)" if self.draining else "")
