"""Options that are read anew because somebody ordered it over the network: the supervisor does that as on SIGHUP, and
says what became of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from mq_shards.ringbuf.control import Message

TIMEOUT_S: Final = 5.0


class OrderError(Exception):
    """One line: why it was not done."""


class Reloads:
    def __init__(self, say: Callable[[Message], object]) -> None:
        """`say`: to the supervisor, which answers in turn."""
        self._say = say
        self._waiting: deque[asyncio.Future[str]] = deque()

    async def order(self) -> None:
        """Raises OrderError: nothing is changed then, or it is not known."""
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
