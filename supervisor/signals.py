"""Signals as bytes on a socket that the main loop watches: nothing is done inside a handler."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterable, Iterator
from types import FrameType


@contextlib.contextmanager
def on_a_socket(numbers: Iterable[int]) -> Iterator[socket.socket]:
    """The socket, which does not block, holds one byte for each signal that came: its number."""
    ours, wake = socket.socketpair()
    ours.setblocking(False)
    wake.setblocking(False)
    before_fd = signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, _noted) for number in numbers}
    try:
        yield wake
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        ours.close()
        wake.close()


def _noted(number: int, frame: FrameType | None) -> None:
    """Does nothing: the byte on the wake-up socket holds the signal's number."""
