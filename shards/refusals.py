"""Whether a worker refuses publishes, for lack of disk space or memory: since one was refused, until there is room."""

from __future__ import annotations

import errno
from typing import Final

NO_SPACE_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TAKEN_S: Final = 3.0  # without a refusal, before a message that was taken shows that there is room
SILENT_S: Final = 60.0  # the same when nobody publishes


class Refusals:
    def __init__(self) -> None:
        self._last_s: float | None = None  # when the last publish was refused; None: none is
        self._published = 0

    def refused(self, now: float, published: int) -> bool:
        """`published`: how many messages were taken so far. Returns whether it is news that publishes are refused."""
        is_news = self._last_s is None
        self._last_s, self._published = now, published
        return is_news

    def ended(self, now: float, published: int) -> bool:
        """Returns True once, when publishes are refused no more."""
        if self._last_s is None:
            return False
        wait_s = TAKEN_S if published > self._published else SILENT_S
        if now < self._last_s + wait_s:
            return False
        self._last_s = None
        return True
