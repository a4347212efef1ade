"""Bodies of requests: how large one may be, how long it may take, and how much of all of them is held at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from mq_shards.gateway.http_answers import HttpError

MAX_BODY_BYTES: Final = 32 << 20
BODIES_BYTES: Final = 128 << 20
BODY_S: Final = 60.0


class Bodies:
    def __init__(self) -> None:
        self._held = 0

    @asynccontextmanager
    async def read(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """It counts as held as long as the context is entered. Raises HttpError."""
        body, size = bytearray(), 0
        try:
            try:
                await self._receive(request, body)
            finally:
                size = len(body)
            whole = bytes(body)
            body.clear()
            yield whole
        finally:
            self._held -= size

    async def _receive(self, request: web.BaseRequest, body: bytearray) -> None:
        if (request.content_length or 0) > MAX_BODY_BYTES:
            raise HttpError(413, f"a body has {MAX_BODY_BYTES} bytes at most")
        try:
            async with asyncio.timeout(BODY_S):
                if request.headers.get("Expect", "").lower() == "100-continue":
                    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                while part := await request.content.readany():
                    body += part
                    self._held += len(part)
                    if len(body) > MAX_BODY_BYTES:
                        raise HttpError(413, f"a body has {MAX_BODY_BYTES} bytes at most")
                    if self._held > BODIES_BYTES:
                        raise HttpError(503, "too many bodies are being read already")
        except TimeoutError:
            raise HttpError(408, f"the body has not come within {BODY_S:g} s") from None
        except (OSError, web.RequestPayloadError):
            raise HttpError(400, "the body came only in part") from None
