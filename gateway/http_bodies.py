"""Bodies: limits how long one of a request may take, and how many bytes of them all HTTP APIs together hold; and of
answers, how many wait for clients to read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Protocol

from mq_shards.gateway.http_answers import HttpError

BODIES_BYTES: Final = 128 << 20
BODY_S: Final = 60.0
BODY_PAUSE_S: Final = 10.0  # between two parts of a body
PART_BYTES: Final = 256 << 10
SMALL_ANSWER_BYTES: Final = 64 << 10  # of all places together a few tens of MiB
TOO_MANY: Final = "too many bodies are being read already"
TOO_MANY_ANSWERS: Final = "too much of other answers has not been read yet"


class Source(Protocol):
    """A request whose body is read (Request, http_server.py)."""

    body_ended: bool
    keeps_alive: bool

    @property
    def content_length(self) -> int | None: ...

    def part_now(self, most: int) -> bytes: ...

    async def part(self, most: int) -> bytes: ...


class BodyError(HttpError):
    """A body that was not received: 408, too late; 413, too large; 503, no room for it; 400, only a part came."""


class Bodies:
    """Counts the bytes of bodies that are held: received, and not done with yet; and apart from these, of answers."""

    def __init__(self, largest_bytes: int = 0, limit_bytes: int | None = None) -> None:
        """The limit is raised to four of the largest bodies, if it is lower."""
        self.limit: Final = max(BODIES_BYTES if limit_bytes is None else limit_bytes, 4 * largest_bytes)
        self._held = 0
        self._unread = 0  # bytes of answers

    @contextmanager
    def answering(self, size: int) -> Iterator[bool]:
        """Counts an answer, until the context ends. False: there is no room for it. One that is alone may have any
        size."""
        if size <= SMALL_ANSWER_BYTES:
            yield True
        elif self._unread and self._unread + size > self.limit:
            yield False
        else:
            self._unread += size
            try:
                yield True
            finally:
                self._unread -= size

    def take(self, size: int) -> bool:
        """Counts `size` more bytes as held. False, with nothing counted, when there is no room."""
        if self._held + size > self.limit:
            return False
        self._held += size
        return True

    def give(self, size: int) -> None:
        self._held -= size

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """Counts what is made of a body, until the context ends. Raises BodyError."""
        if not self.take(size):
            raise BodyError(503, TOO_MANY)
        try:
            yield
        finally:
            self.give(size)

    @asynccontextmanager
    async def read(self, request: Source, limit: int) -> AsyncIterator[bytes]:
        """Reads at most `limit` bytes, which count as held until the context ends. Raises BodyError."""
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
    async def read_whole(self, request: Source, limit: int) -> AsyncIterator[bytes]:
        """Does the same as read(), but a body of more than `limit` bytes is refused with 413."""
        if (request.content_length or 0) > limit:
            raise BodyError(413, f"a body has {limit} bytes at most")
        async with self.read(request, limit + 1) as body:
            if len(body) > limit:
                raise BodyError(413, f"a body has {limit} bytes at most")
            yield body

    async def _receive(self, request: Source, limit: int, parts: list[bytes]) -> None:
        left = limit
        try:
            while left > 0 and (part := request.part_now(left)):
                left -= self._keep(part, parts)
            if left == 0 or request.body_ended:
                return  # the usual case: the whole body came with the head
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
            raise BodyError(503, TOO_MANY)
        parts.append(part)
        return len(part)
