"""Who reads topics gives way to the broker's other clients.

A reader takes what it can get: Spark asks for every core of the machine, and clients that share it with Spark would do
less than half of what they do alone. The gateway cannot see who waits for a processor, on whatever machine; it can see
what its readers cost. So it closes its gate for a moment every now and then, and compares what the workers write
meanwhile with what they write while it is open. If readers cost so much that the others do not reach FAIR of what they
would do alone, the gate stays closed for a larger part of each cycle, MOST_CLOSED at most. Where that changes nothing
(readers on another machine, clients that want less than there is) only those moments are lost; where nobody else does
anything, nothing at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

CYCLE_S: Final = 1.2
PROBE_S: Final = 0.3  # the shortest time for which the gate is closed
SETTLE_S: Final = 0.15  # of that, and of the time behind it: readers still have something to do with what is on its way
PROBE_EVERY_S: Final = 2.4  # as long as readers cost nothing that matters
FAIR: Final = 0.9
AT_FIRST: Final = 0.5  # the share of time in which the gate is closed, until something is known
MOST_CLOSED: Final = 0.8
QUIET: Final = 500.0  # records a second of all workers: below that there is nobody to give way to
KEPT: Final = 0.7  # of what was measured before, each time
REMEMBERED_S: Final = 60.0  # what has been found out holds for readers who come so soon: a job asks again and again
RELEASE: Final = 0.15  # by so much the share falls in a cycle at most: what is measured in so short a time varies


class GiveWay:
    def __init__(self, written: Callable[[], int]) -> None:
        """`written`: how many records the workers have written so far."""
        self._written = written
        self._gate = asyncio.Event()
        self._gate.set()
        self._wanted = asyncio.Event()
        self._readers = 0
        self._forget()

    def __enter__(self) -> None:
        """Around a reply."""
        self._readers += 1
        self._wanted.set()

    def __exit__(self, *_: object) -> None:
        self._readers -= 1

    def _forget(self) -> None:
        self._open, self._closed = _Average(), _Average()
        self.closed_share = AT_FIRST

    async def turn(self) -> None:
        """Before each piece of it."""
        if not self._gate.is_set():
            await self._gate.wait()

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        try:
            while True:
                if self._readers == 0 and not self._wanted.is_set():
                    await self._pause()
                self._wanted.clear()
                await self._cycle()
        finally:
            self._gate.set()

    async def _pause(self) -> None:
        """Until there is a reader."""
        clock = asyncio.get_running_loop().time
        since = clock()
        await self._wanted.wait()
        if clock() - since > REMEMBERED_S:
            self._forget()

    async def _cycle(self) -> None:
        closed_s = max(PROBE_S, self.closed_share * CYCLE_S)
        open_s = PROBE_EVERY_S
        if self.closed_share > 0:
            open_s = min(open_s, closed_s / self.closed_share - closed_s)
        if await self._measure(self._open, open_s) < QUIET:
            return
        self._gate.clear()
        try:
            await self._measure(self._closed, closed_s)
        finally:
            self._gate.set()
        needed = share(self._open.rate, self._closed.rate)
        self.closed_share = max(needed, self.closed_share - RELEASE)

    async def _measure(self, into: _Average, seconds: float) -> float:
        """The rate at which others write in that time, which goes into the average."""
        await asyncio.sleep(SETTLE_S)
        clock = asyncio.get_running_loop().time
        began, before = clock(), self._written()
        await asyncio.sleep(seconds - SETTLE_S)
        # A worker that starts anew counts anew.
        return into.add(max(0, self._written() - before), clock() - began)


class _Average:
    """Of the last few times, the newest most."""

    def __init__(self) -> None:
        self._records = self._seconds = 0.0

    def add(self, records: float, seconds: float) -> float:
        self._records = KEPT * self._records + records
        self._seconds = KEPT * self._seconds + seconds
        return records / seconds

    @property
    def rate(self) -> float:
        return self._records / self._seconds


def share(open_rate: float, closed_rate: float) -> float:
    """How much of the time the gate is to be closed, so that on average FAIR of closed_rate is reached."""
    if open_rate >= FAIR * closed_rate:
        return 0.0
    return min(MOST_CLOSED, (FAIR * closed_rate - open_rate) / (closed_rate - open_rate))
