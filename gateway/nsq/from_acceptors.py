"""Connections that acceptors hand over because their next request is not plainly a publish, and is served here. With
the next publish a connection is handed back: an acceptor serves publishes several times as fast."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from mq_shards.acceptor.access import arrival
from mq_shards.gateway.http_parse import Head
from mq_shards.gateway.http_server import ACCEPTED, HttpServer
from mq_shards.ringbuf.handover import Handover

PUBLISHES: Final = ("/pub", "/mpub")


class FromAcceptors:
    """To be made where the event loop runs."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._handovers: list[Handover] = []
        self._adopting: set[asyncio.Task[None]] = set()

    def attach(self, handover: Handover) -> None:
        """Takes connections from this handover, which it now owns."""
        self._handovers.append(handover)
        self._loop.add_reader(handover.fileno(), self._take, handover)

    def close(self) -> None:
        for handover in self._handovers:
            self._loop.remove_reader(handover.fileno())
            handover.close()
        self._handovers.clear()

    def _take(self, handover: Handover) -> None:
        """As many in a turn as are accepted in one: while many requests are served turns are long."""
        for _ in range(ACCEPTED):
            if (found := handover.take()) is None:
                return
            sock, received, came = found
            returns = partial(_returns, handover, came)
            task = self._loop.create_task(self._server.adopt(sock, received, arrival.decode(came), returns))
            self._adopting.add(task)
            task.add_done_callback(self._adopting.discard)


def _returns(handover: Handover, came: bytes, head: Head, fd: int, received: bytes) -> bool:
    if head.method != "POST" or head.target.partition("?")[0] not in PUBLISHES or "origin" in head.headers:
        return False
    return handover.give(fd, received, came)
