"""Returns memory to the system that requests have left unused.

Many large bodies, or a long answer, take memory from malloc, which keeps what is freed, in pieces between what is still
in use. There is no figure for the size of these pieces, so the process's own memory is compared with the least that it
ever was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 2.0
WORTH_BYTES: Final = 8 << 20
# If memory has grown because more is in use, trimming returns nothing: so it is tried less and less often, ...
MOST_LOOKS: Final = 30


class IdleMemory:
    def __init__(self, own_bytes: Callable[[], int], trim: Callable[[], None]) -> None:
        self._own_bytes: Final = own_bytes
        self._trim: Final = trim
        self._least_bytes = own_bytes()
        self._tried_bytes = self._least_bytes  # the process's own memory after the last try
        self._looks = 0  # since the last try
        self._pause = 1  # looks between two tries

    def look(self) -> None:
        try:
            before = self._own_bytes()
        except OSError:  # no descriptor is left to read it with
            return
        self._least_bytes = min(self._least_bytes, before)
        self._looks += 1
        if before < self._least_bytes + WORTH_BYTES:
            return
        if abs(before - self._tried_bytes) >= WORTH_BYTES:  # ... until much was allocated or freed
            self._pause = 1
        if self._looks < self._pause:
            return
        self._trim()
        self._looks = 0
        self._pause = min(2 * self._pause, MOST_LOOKS)
        with contextlib.suppress(OSError):
            self._tried_bytes = self._own_bytes()
        self._least_bytes = min(self._least_bytes, self._tried_bytes)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
