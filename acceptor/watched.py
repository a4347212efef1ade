"""The descriptors that an acceptor's Python half watches besides the engine's, such as the control socket.

The engine sees them as one descriptor, and returns to Python when any of them is ready.
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
        """The descriptor for Engine.control()."""
        return self._epoll.fileno()

    def watch(self, fd: int, ready: Callable[[], None], writing: bool = False, *, reading: bool = True) -> None:
        """Calls `ready` in each run() in which `fd` is readable, or with `writing` writable."""
        events = (select.EPOLLIN if reading else 0) | (select.EPOLLOUT if writing else 0)
        if fd in self._ready:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._ready[fd] = ready

    def forget(self, fd: int) -> None:
        """Stops watching `fd`. To be called before it is closed."""
        del self._ready[fd]
        self._epoll.unregister(fd)

    def run(self) -> None:
        """Calls `ready` of each descriptor that is ready now."""
        for fd, _ in self._epoll.poll(0):
            if (ready := self._ready.get(fd)) is not None:  # else an earlier callback has just forgotten it
                ready()

    def close(self) -> None:
        self._epoll.close()
