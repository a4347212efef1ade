"""The gateway before anybody has come to it: it has no process then.

Most brokers are never used over HTTP, and even a process that only waits takes a tenth of a small broker's memory. So
the supervisor watches the sockets over which clients and acceptors come to the gateway, and starts it when the first of
them can be read. This happens once: a gateway that has begun is started again when it dies, as any process is.

Owns: the gateway's ends of its socket pairs with acceptors (ringbuf/calls.py) until it begins. Must never: read from a
socket. What arrives is for the gateway.
"""

from __future__ import annotations

import select
import selectors
import socket
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Final

from mq_shards.gateway import services
from mq_shards.gateway.offer import Settings
from mq_shards.gateway.pipeline import leftovers


def has_work(listening: Collection[str], settings: Settings, data_dir: str | None) -> bool:
    """Whether a gateway has work before anybody comes to it: servers to be told of topics, a writer's decision that an
    earlier gateway did not carry out, or what clients have left."""
    return services.has_work(listening, settings) or leftovers.are_in(data_dir) or services.is_left(data_dir)


class Standby:
    def __init__(self, selector: selectors.BaseSelector, begin: Callable[[], None]) -> None:
        """`begin` starts the gateway; it is called once after each wait(), unless end() comes first."""
        self.waits = False
        self._selector: Final = selector
        self._begin: Final = begin
        self._watched: list[socket.socket] = []
        self._calls: Final[dict[int, socket.socket]] = {}  # by acceptor

    def wait(self, sockets: Iterable[socket.socket]) -> None:
        """Begins to watch `sockets`, which belong to the caller and stay open until end()."""
        self.waits = True
        for sock in sockets:
            self._watch(sock, self._somebody_came)

    def end(self) -> None:
        self.waits = False
        for sock in self._watched:
            self._selector.unregister(sock)
        self._watched.clear()

    def close(self) -> None:
        self.end()
        for sock in self._calls.values():
            sock.close()
        self._calls.clear()

    def keep(self, acceptor: int, end: socket.socket) -> None:
        """Keeps the gateway's end of a pair with an acceptor, and watches it."""
        self._calls[acceptor] = end
        self._watch(end, partial(self._acceptor_called, acceptor))

    def take(self, acceptor: int) -> socket.socket | None:
        """Gives up the kept end. None if there is none, or the process at the other end is gone."""
        end = self._calls.pop(acceptor, None)
        if end is None:
            return None
        if end in self._watched:
            self._watched.remove(end)
            self._selector.unregister(end)
        if _is_hung_up(end):
            end.close()
            return None
        return end

    def _watch(self, sock: socket.socket, ready: Callable[[], Any]) -> None:
        self._selector.register(sock, selectors.EVENT_READ, ready)
        self._watched.append(sock)

    def _somebody_came(self) -> None:
        if self.waits:  # otherwise another socket was ready in the same turn
            self.end()
            self._begin()

    def _acceptor_called(self, acceptor: int) -> None:
        """The end can be read also when the acceptor has died, which is no reason to begin."""
        end = self._calls.get(acceptor)
        if end is not None and _is_hung_up(end):
            self.take(acceptor)
        else:
            self._somebody_came()


def _is_hung_up(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, 0)  # 0: only errors and a closed other end are reported
    return bool(poll.poll(0))
