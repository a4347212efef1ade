"""Errands: what waits for the disk is done on a thread of its own, one after the other, while the worker serves.

The worker's thread asks: `run`, or `run_first` for what somebody waits for, which comes before all that has not begun.
When the descriptor is readable it calls `settle`, and what there is to do with the result is done there. An errand must
touch nothing that the worker's thread touches meanwhile.
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
        """`then` gets what the errand returns, or the OSError (or one of `errors`) that it raises. Any other ends the
        worker."""
        self._ask(self._others, errand, then, errors)

    def run_first(
        self, errand: Callable[[], T], then: Callable[[T | OSError], None], *errors: type[Exception]
    ) -> None:
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
        """What has been done since."""
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            return
        while self._done:
            self._done.popleft()()

    def close(self) -> None:
        """When all that was asked for has been done."""
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


def _raising(error: Exception) -> Callable[[], None]:
    def again() -> None:
        raise error

    return again
