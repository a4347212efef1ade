"""Fetches account JWTs from a server (`resolver: URL(...)`) over HTTP, on a thread of its own.

    GET URL + the account's public key      200 and the JWT; any other status: there is none

Anybody can make a key that causes a fetch, so fetches.py limits how many are made at once. Each fetch has a timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from mq_shards.acceptor.protocols.nats.jwt import MAX_BYTES
from mq_shards.acceptor.remarks import Remarks

if TYPE_CHECKING:
    import ssl

    import aiohttp

AT_ONCE: Final = 256  # fetches, of all hosts together
TIMEOUT_S: Final = 1.9  # for a whole fetch

Found = Callable[[str], None]


class UrlResolver:
    """To be used by one thread only; but it calls `poke` on its own thread when settle() has something to do."""

    def __init__(self, url: str, poke: Callable[[], None], remarks: Remarks, tls: ssl.SSLContext | None) -> None:
        """`tls`: for https; None: the system's certificates are trusted."""
        self._url = url
        self._poke = poke
        self._remarks = remarks
        self._tls = tls
        self._found: SimpleQueue[tuple[Found, str, str]] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None
        self._fetches: set[asyncio.Task[None]] = set()  # used only on the thread

    def fetch(self, account: str, found: Found) -> None:
        """Calls `found` with the JWT from settle(); "" if there is none."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(self._loop,), daemon=True).start()
        self._loop.call_soon_threadsafe(self._begin, account, found)

    def settle(self) -> None:
        while True:
            try:
                found, jwt, complaint = self._found.get_nowait()
            except Empty:
                return
            if complaint:
                self._remarks.say(logging.WARNING, self._url, complaint)
            found(jwt)

    def close(self) -> None:
        """Cancels all fetches; their callbacks are not called."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end)
        self._loop = None

    # --- on its thread ----------------------------------------------------------------------------------------------

    def _begin(self, account: str, found: Found) -> None:
        task = asyncio.get_running_loop().create_task(self._fetch(account, found))
        self._fetches.add(task)
        task.add_done_callback(self._fetches.discard)

    async def _fetch(self, account: str, found: Found) -> None:
        jwt = complaint = ""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                jwt = await self._get(account)
        except (OSError, ValueError, TimeoutError) as error:
            complaint = f"cannot fetch account {account}: {error or 'it takes too long'}"
        self._found.put((found, jwt, complaint))
        self._poke()

    async def _get(self, account: str) -> str:
        """Fetches a JWT. Raises OSError or ValueError."""
        import aiohttp  # imported here: that takes long, but this thread keeps nobody waiting

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=AT_ONCE, ssl=True if self._tls is None else self._tls)
            )
        try:
            async with self._session.get(self._url + account) as answer:
                if answer.status != 200:
                    raise OSError(f"it answers {answer.status}")
                body = bytearray()
                async for piece in answer.content.iter_any():
                    body += piece
                    if len(body) > MAX_BYTES:
                        raise ValueError("it is too large")
        except aiohttp.ClientError as error:
            raise OSError(str(error)) from error
        return body.decode("ascii")

    def _end(self) -> None:
        asyncio.get_running_loop().create_task(self._stop())

    async def _stop(self) -> None:
        for task in self._fetches:
            task.cancel()
        with contextlib.suppress(OSError):
            if self._session is not None:
                await self._session.close()
        self._session = None
        asyncio.get_running_loop().stop()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    import aiohttp  # noqa: F401  it takes long, which must not count towards the timeout

    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
