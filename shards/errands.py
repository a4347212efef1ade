"""Errands: work that waits for the disk, done one by one on a thread of its own while the worker serves.

The worker's thread calls `run` or, for errands that something waits for, `run_first`: these come before all that have
not begun. When the descriptor is readable it calls `settle`, which deals with the results. An errand must not touch
anything that the worker's thread uses meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Errands:
    def __init__(self) -> None:
        # For each errand that was asked for, wherever it stands, a True; then a False.
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._first: deque[Callable[[], Callable[[], None]]] = deque()
        self._others: deque[Callable[[], Callable[[], None]]] = deque()
        self._done: deque[Callable[[], None]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._work, name="errands", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._bell

    def run(self, errand: Callable[[], T], then: Callable[[T | OSError], None], *errors: type[Exception]) -> None:
        """Runs an errand. `then` gets its result, or the OSError (or one of `errors`) that it raises; any other
        exception ends the worker."""
        self._ask(self._others, errand, then, errors)

    def run_first(self, errand: Callable[[], T], then: Callable[[T | OSError], None], *errors: type[Exception]) -> None:
        self._ask(self._first, errand, then, errors)

    def _ask(
        self,
        queue: deque[Callable[[], Callable[[], None]]],
        errand: Callable[[], T],
        then: Callable[[T | OSError], None],
        errors: tuple[type[Exception], ...],
    ) -> None:
        expected: tuple[type[Exception], ...] = (OSError, *errors)

        def work() -> Callable[[], None]:
            try:
                result: T | Exception = errand()
            except expected as error:
                result = error
            return lambda: then(result)  # type: ignore[arg-type]

        queue.append(work)
        self._asked.put(True)

    def settle(self) -> None:
        """Calls `then` for the errands that are done."""
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            return
        while self._done:
            self._done.popleft()()

    def close(self) -> None:
        """Waits until all errands are done, settles them, and ends the thread."""
        self._asked.put(False)
        self._thread.join()
        self.settle()
        os.close(self._bell)

    def _work(self) -> None:
        while self._asked.get():
            work = (self._first or self._others).popleft()
            try:
                self._done.append(work())
            except Exception as error:
                self._done.append(_raising(error))
            os.eventfd_write(self._bell, 1)


def no_matter(result: object) -> None:
    """Ignores the result of an errand."""


def _raising(error: Exception) -> Callable[[], None]:
    def again() -> None:
        raise error

    return again
