"""Log lines about clients and other servers, limited in number: a refused client tries again at once, and strangers
can claim any name.

    remarks.say(logging.ERROR, "b", "...")                 about the party "b"
    remarks.of_client("127.0.0.1:40960", "...")            about a client, which is known by its host

Each party gets SAME lines per level and minute, for up to OTHERS parties; all further parties share one such allowance.
Lines beyond that are counted, and the last one is logged with their number when the minute is over. A remark is always
a single short line, whatever characters a name contains.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mq_shards.acceptor.engine import FOREVER

MINUTE_NS: Final = 60_000_000_000
SAME: Final = 10
OTHERS: Final = 100
REST: Final = ""
LINE: Final = 400


@dataclass(slots=True, eq=False, repr=False)
class Remarked:
    """How often a remark was logged, how often it was left out, and the last one that was."""

    said: int = 0
    unsaid: int = 0
    last: str = ""


class Remarks:
    def __init__(self, log: logging.Logger, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._log, self._now_ns = log, now_ns
        self._until_ns = 0
        self._remarked: dict[tuple[int, str], Remarked] = {}

    def say(self, level: int, of: str, text: str) -> None:
        self.expire()
        if not self._remarked:
            self._until_ns = self._now_ns() + MINUTE_NS
        text = text[:LINE] if text.isprintable() else ascii(text[:LINE])
        known = (level, of) in self._remarked or len(self._remarked) < OTHERS
        remarked = self._remarked.setdefault((level, of if known else REST), Remarked())
        if remarked.said < SAME:
            remarked.said += 1
            self._log.log(level, "%s", text)
        else:
            remarked.unsaid += 1
            remarked.last = text

    def of_client(self, remote: str, text: str, level: int = logging.INFO) -> None:
        self.say(level, remote.rpartition(":")[0], f"{remote}: {text}")

    def wait_ns(self) -> int:
        if not any(remarked.unsaid for remarked in self._remarked.values()):
            return FOREVER
        return max(self._until_ns - self._now_ns(), 0)

    def expire(self) -> None:
        if not self._remarked or self._now_ns() < self._until_ns:
            return
        for (level, _), remarked in self._remarked.items():
            if remarked.unsaid:
                self._log.log(level, "%s (%d lines like it in a minute)", remarked.last, remarked.unsaid)
        self._remarked.clear()
