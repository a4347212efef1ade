"""Readers of topics give way to the broker's other clients.

A reader takes what it can get: Spark asks for every core of the machine, and clients that share the machine with Spark
would reach less than half of their usual rate. The gateway cannot see which process waits for a processor, on whatever
machine; it can measure what its readers cost. So it closes a gate in front of them for a moment every now and then, and
compares the workers' rate of writing while the gate is closed with their rate while it is open. If readers cost so much
that the other clients do not reach FAIR of the rate that they would have alone, the gate stays closed for a larger part
of each cycle, MOST_CLOSED at most. Where closing it changes nothing (readers on another machine, clients that want less
than the machine can give) readers lose only those moments. Where no other client writes they lose nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

CYCLE_S: Final = 1.2
PROBE_S: Final = 0.3  # the shortest time for which the gate is closed
SETTLE_S: Final = 0.15  # left out at the start of each measurement: readers still work on what they have been sent
PROBE_EVERY_S: Final = 2.4  # between two probes while readers cost nothing that matters
FAIR: Final = 0.9
AT_FIRST: Final = 0.5  # the share of time in which the gate is closed, until it has been measured
MOST_CLOSED: Final = 0.8
QUIET: Final = 500.0  # records a second of all workers; below that there is no client to give way to
KEPT: Final = 0.7  # the weight of earlier measurements when a new one is added
REMEMBERED_S: Final = 60.0  # measurements are kept over such a pause of readers: a job reads again and again
RELEASE: Final = 0.15  # the most by which the share falls in a cycle: measurements of so short a time vary


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
        """Begins a reply to a reader; __exit__ ends it."""
        self._readers += 1
        self._wanted.set()

    def __exit__(self, *_: object) -> None:
        self._readers -= 1

    def _forget(self) -> None:
        self._open, self._closed = _Average(), _Average()
        self.closed_share = AT_FIRST

    async def turn(self) -> None:
        """Waits until the gate is open. To be called before each piece of a reply."""
        if not self._gate.is_set():
            await self._gate.wait()

    async def run(self) -> None:
        """Opens and closes the gate until it is cancelled."""
        try:
            while True:
                if self._readers == 0 and not self._wanted.is_set():
                    await self._pause()
                self._wanted.clear()
                await self._cycle()
        finally:
            self._gate.set()

    async def _pause(self) -> None:
        """Waits for a reader; after a long wait, forgets what was measured."""
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
        """Measures the rate at which workers write for `seconds`; adds it to the average and returns it."""
        await asyncio.sleep(SETTLE_S)
        clock = asyncio.get_running_loop().time
        began, before = clock(), self._written()
        await asyncio.sleep(seconds - SETTLE_S)
        # The count falls when a worker has been restarted.
        return into.add(max(0, self._written() - before), clock() - began)


class _Average:
    """The average rate of the last few measurements; newer ones weigh more."""

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
    """The share of time for which the gate must be closed so that the average rate is FAIR of closed_rate."""
    if open_rate >= FAIR * closed_rate:
        return 0.0
    return min(MOST_CLOSED, (FAIR * closed_rate - open_rate) / (closed_rate - open_rate))
