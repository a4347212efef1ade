"""A gateway that is away for long, since it dies again and again or cannot start: whoever comes to it is refused at
once, instead of waiting for an answer to a request such as /ping.

Connections are closed unread; nothing else is done with them. Requests that acceptors make of the gateway are refused
by the acceptors themselves (calls.py).
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from mq_shards.ringbuf.handover import Handover

LONG_S: Final = 2.0  # clients wait for a gateway that is back sooner


class Away:
    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector: Final = selector
        self._watched: list[socket.socket] = []

    def begin(self, listening: Iterable[socket.socket], handovers: Iterable[socket.socket]) -> None:
        """Refuses who comes by these sockets, which belong to the caller and stay open until end()."""
        self.end()
        for sock in listening:
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                self._watch(sock, lambda sock=sock: sock.accept()[0].close())  # type: ignore[misc]
        for sock in handovers:
            self._watch(sock, partial(_refuse_handed, Handover(sock)))

    def end(self) -> None:
        for sock in self._watched:
            self._selector.unregister(sock)
        self._watched.clear()

    def _watch(self, sock: socket.socket, refuse: Callable[[], None]) -> None:
        self._selector.register(sock, selectors.EVENT_READ, partial(self._refuse, refuse))
        self._watched.append(sock)

    def _refuse(self, refuse: Callable[[], None]) -> None:
        try:
            if self._watched:  # otherwise another socket was ready in the same turn, and has ended this
                refuse()
        except (BlockingIOError, ConnectionError):
            pass  # the client has gone
        except OSError:  # descriptors or memory are short: to try again and again would help nobody
            self.end()


def _refuse_handed(handover: Handover) -> None:
    if (found := handover.take()) is not None:
        found[0].close()
