"""Memory that requests have left behind goes back to the system.

What a flood of bodies, or a long answer, takes comes from malloc, which keeps what is given back to it, in pieces
between what is in use. Nothing says how much that is: so what the process has of its own is compared with the least
that it has had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 2.0
WORTH_BYTES: Final = 8 << 20
# Where there is more because more is in use nothing comes back: then it is tried less and less often, ...
MOST_LOOKS: Final = 30


class IdleMemory:
    def __init__(self, own_bytes: Callable[[], int], trim: Callable[[], None]) -> None:
        self._own_bytes: Final = own_bytes
        self._trim: Final = trim
        self._least_bytes = own_bytes()
        self._tried_bytes = self._least_bytes  # as many as there were after it
        self._looks = 0  # since it was tried
        self._pause = 1  # looks until it is tried again

    def look(self) -> None:
        before = self._own_bytes()
        self._least_bytes = min(self._least_bytes, before)
        self._looks += 1
        if before < self._least_bytes + WORTH_BYTES:
            return
        if abs(before - self._tried_bytes) >= WORTH_BYTES:  # ... until much has come, or gone
            self._pause = 1
        if self._looks < self._pause:
            return
        self._trim()
        self._looks = 0
        self._pause = min(2 * self._pause, MOST_LOOKS)
        self._tried_bytes = self._own_bytes()
        self._least_bytes = min(self._least_bytes, self._tried_bytes)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
