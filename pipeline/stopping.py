"""SIGINT and SIGTERM as an exception in the main thread: a job ends as if it had failed, and says how far it is.

A signal often comes twice: `timeout` sends it to the job, and then to all of its processes. So from the first one on
others are ignored until the end has been told, even where nobody listens for signals any more.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], None]


class Stopped(BaseException):
    """Not an Exception, so that no code takes it for a failure after which to try again."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def ignore_signals() -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


@contextlib.contextmanager
def handlers_restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def heard_by(hear: Handler) -> Iterator[None]:
    """Who has called `ignore_signals` meanwhile finds them ignored afterwards, too."""
    before = {number: signal.signal(number, hear) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is hear:
                signal.signal(number, handler)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """The first signal raises Stopped. After it any other error becomes Stopped, too: a scheduler's signal reaches all
    processes of a job, so the JVM may be gone before it is ended."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        ignore_signals()
        heard.append(number)
        raise Stopped(number)

    with heard_by(hear):
        try:
            yield
        except Exception:
            if heard:
                raise Stopped(heard[0]) from None
            raise


@contextlib.contextmanager
def signals_held() -> Iterator[Callable[[], None]]:
    """Holds signals back until the end. A process that is started meanwhile must call what this yields, to get any."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield release
    finally:
        release()
