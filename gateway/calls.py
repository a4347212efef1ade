"""The gateway's ends of calls (ringbuf/calls.py), one for each acceptor, in its event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from mq_shards.ringbuf.calls import FOREVER, TIMEOUT_NS, Asked, Calls, Reply, Status

# Answers a call to the gateway: given the acceptor and the body, returns the body of the answer.
Handler = Callable[[int, bytes], Awaitable[bytes]]

log = logging.getLogger(__name__)


class AcceptorCalls:
    """To be made while the event loop runs."""

    def __init__(self, acceptors: int, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._loop = asyncio.get_running_loop()
        self._now_ns = now_ns
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._hanging: Collection[int] = ()
        self.ends: Final = [Calls(self, now_ns) for _ in range(acceptors)]

    def attach(self, acceptor: int, fd: int) -> None:
        """Owns the descriptor from then on."""
        self.ends[acceptor].attach(socket.socket(fileno=fd))

    def hang(self, hanging: Collection[int]) -> None:
        """The acceptors that do not answer the supervisor, now: who only looks does not ask them."""
        self._hanging = hanging

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        for end in self.ends:
            end.close()

    def serve(self, what: str, handler: Handler) -> None:
        for acceptor, end in enumerate(self.ends):
            end.serve(what, lambda asked, acceptor=acceptor: self._serve(acceptor, handler, asked))  # type: ignore[misc]

    def tell(self, what: str, body: bytes) -> None:
        """Tells all acceptors that are connected."""
        for end in self.ends:
            end.tell(what, body)

    def tell_lost(self) -> None:
        """Tells all acceptors that what they were told may no longer be true."""
        for end in self.ends:
            end.tell_lost()

    async def ask(
        self, acceptor: int, what: str, body: bytes = b"", *, timeout_ns: int = TIMEOUT_NS, again: bool = False
    ) -> Reply:
        """`again`: the question changes nothing, and may be asked more than once."""
        if again and acceptor in self._hanging:
            return Reply(Status.UNAVAILABLE)
        future: asyncio.Future[Reply] = self._loop.create_future()

        def heard(reply: Reply) -> None:
            if not future.done():
                future.set_result(reply)

        end = self.ends[acceptor]
        number = end.ask(what, body, heard, timeout_ns=timeout_ns, again=again)
        self._set_timer()
        try:
            return await future
        finally:
            end.forget(number)

    async def ask_all(
        self, what: str, body: bytes = b"", *, timeout_ns: int = TIMEOUT_NS, again: bool = False
    ) -> list[Reply]:
        """Asks all acceptors. Returns their replies in order."""
        acceptors = range(len(self.ends))
        asked = (self.ask(acceptor, what, body, timeout_ns=timeout_ns, again=again) for acceptor in acceptors)
        return list(await asyncio.gather(*asked))

    # --- the event loop ---------------------------------------------------------------------------------------------

    def watch(self, fd: int, ready: Callable[[], None], writing: bool) -> None:
        self._loop.add_reader(fd, ready)
        if writing:
            self._loop.add_writer(fd, ready)
        else:
            self._loop.remove_writer(fd)

    def forget(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        self._loop.remove_writer(fd)

    def _serve(self, acceptor: int, handler: Handler, asked: Asked) -> None:
        task = self._loop.create_task(_answer(acceptor, handler, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waits = [wait for end in self.ends if (wait := end.wait_ns()) != FOREVER]
        if waits:
            self._timer = self._loop.call_later(min(waits) / 1e9, self._expire)

    def _expire(self) -> None:
        self._timer = None
        for end in self.ends:
            end.expire()
        self._set_timer()


async def _answer(acceptor: int, handler: Handler, asked: Asked) -> None:
    """Answers a call. An exception fails only this call."""
    try:
        asked.answer(await handler(acceptor, asked.body))
    except Exception:
        log.exception("cannot answer %s of acceptor %d", asked.what, acceptor)
        asked.answer(b"", Status.FAILED)
