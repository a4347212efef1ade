"""Bodies of requests: how long one may take, and how much of all of them, over both HTTP APIs, is held at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from mq_shards.gateway.http_answers import HttpError

if TYPE_CHECKING:
    from mq_shards.gateway.http_server import Request

BODIES_BYTES: Final = 128 << 20
BODY_S: Final = 60.0
BODY_PAUSE_S: Final = 10.0  # between two parts of a body
PART_BYTES: Final = 256 << 10


class BodyError(HttpError):
    """It has not come, or is not to be had now: 408, 413, 503, or 400 when it came only in part."""


class Bodies:
    """The one window of bytes: what strangers have sent and nobody is done with."""

    def __init__(self, largest_bytes: int = 0, limit_bytes: int | None = None) -> None:
        """There is room for four of the largest, whatever the limit."""
        self._limit = max(BODIES_BYTES if limit_bytes is None else limit_bytes, 4 * largest_bytes)
        self._held = 0

    def take(self, size: int) -> bool:
        """False: there is no room. Then it is not taken."""
        if self._held + size > self._limit:
            return False
        self._held += size
        return True

    def give(self, size: int) -> None:
        self._held -= size

    @asynccontextmanager
    async def read(self, request: Request, limit: int) -> AsyncIterator[bytes]:
        """At most `limit` bytes of it, which count as held as long as the context is entered. Raises BodyError."""
        parts: list[bytes] = []
        try:
            await self._receive(request, limit, parts)
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            size = len(body)
            parts.clear()
        except BaseException:
            self.give(sum(map(len, parts)))
            raise
        try:
            yield body
        finally:
            self.give(size)

    @asynccontextmanager
    async def read_whole(self, request: Request, limit: int) -> AsyncIterator[bytes]:
        """As read; one with more than `limit` bytes is refused: 413."""
        if (request.content_length or 0) > limit:
            raise BodyError(413, f"a body has {limit} bytes at most")
        async with self.read(request, limit + 1) as body:
            if len(body) > limit:
                raise BodyError(413, f"a body has {limit} bytes at most")
            yield body

    async def _receive(self, request: Request, limit: int, parts: list[bytes]) -> None:
        left = limit
        try:
            while left > 0 and (part := request.part_now(left)):
                left -= self._keep(part, parts)
            if left == 0 or request.body_ended:
                return  # all came with the head, as a rule
            async with asyncio.timeout(BODY_S):
                while left > 0:
                    async with asyncio.timeout(BODY_PAUSE_S):
                        part = await request.part(min(left, PART_BYTES))
                    if not part:
                        return
                    left -= self._keep(part, parts)
        except TimeoutError:
            request.keeps_alive = False
            raise BodyError(408, f"the body has not come within {BODY_S:g} s") from None
        except OSError:
            request.keeps_alive = False
            raise BodyError(400, "the body came only in part") from None

    def _keep(self, part: bytes, parts: list[bytes]) -> int:
        if not self.take(len(part)):
            raise BodyError(503, "too many bodies are being read already")
        parts.append(part)
        return len(part)
