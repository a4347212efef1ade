"""Descriptors that an acceptor's Python watches beside its engine: the control socket, the one to the gateway.

They are one descriptor to the engine, which comes back when any of them is ready.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Final


class Watched:
    def __init__(self) -> None:
        self._epoll: Final = select.epoll()
        self._ready: dict[int, Callable[[], None]] = {}

    def fileno(self) -> int:
        """For Engine.control()."""
        return self._epoll.fileno()

    def watch(self, fd: int, ready: Callable[[], None], writing: bool = False, *, reading: bool = True) -> None:
        """`ready` is called, as long as that is so, when it can be read, or, if so wanted, written."""
        events = (select.EPOLLIN if reading else 0) | (select.EPOLLOUT if writing else 0)
        if fd in self._ready:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._ready[fd] = ready

    def forget(self, fd: int) -> None:
        """Before it is closed."""
        del self._ready[fd]
        self._epoll.unregister(fd)

    def run(self) -> None:
        """What is ready now."""
        for fd, _ in self._epoll.poll(0):
            if (ready := self._ready.get(fd)) is not None:  # else one before it has let it go
                ready()

    def close(self) -> None:
        self._epoll.close()
