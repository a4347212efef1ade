"""SIGINT and SIGTERM as an exception in the main thread: a job ends as if it had failed, and says how far it is."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


class Stopped(BaseException):
    """Not an Exception, so that no code takes it for a failure after which to try again."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """The first signal raises Stopped; further ones are ignored while it is handled. After a signal any other error
    becomes Stopped, too: a scheduler's signal reaches all processes of a job, so the JVM may be gone before it is
    ended."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        heard.append(number)
        raise Stopped(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Exception:
        if heard:
            raise Stopped(heard[0]) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_held() -> Iterator[Callable[[], None]]:
    """Holds signals back until the end. A process that is started meanwhile must call what this yields, to get any."""
    held = (signal.SIGINT, signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield release
    finally:
        release()
