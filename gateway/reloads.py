"""Reloads of options that a client orders over the network: the supervisor does them as on SIGHUP, and reports the
outcome."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from mq_shards.ringbuf.control import Message

TIMEOUT_S: Final = 5.0


class OrderError(Exception):
    """One line: why the reload was not done."""


class Reloads:
    def __init__(self, say: Callable[[Message], object]) -> None:
        """`say`: sends a message to the supervisor, which answers them in order."""
        self._say = say
        self._waiting: deque[asyncio.Future[str]] = deque()

    async def order(self) -> None:
        """Has the supervisor reload, and waits for it. Raises OrderError: nothing was changed, or there is no answer
        yet."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._say({"did": "reload"})
        try:
            async with asyncio.timeout(TIMEOUT_S):
                error = await answer
        except TimeoutError:
            raise OrderError("no answer yet") from None
        if error:
            raise OrderError(error)

    def heard(self, error: str) -> None:
        answer = self._waiting.popleft()
        if not answer.done():
            answer.set_result(error)
