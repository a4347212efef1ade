"""JWTs of accounts from a server that has them (`resolver: URL(...)`): asked over HTTP, on a thread.

    GET URL + the account's public key      200 and the JWT, or there is none
"""

from __future__ import annotations

import logging
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Final

from mq_shards.acceptor.protocols.nats.jwt import MAX_BYTES

THREADS: Final = 2
MAX_WAITING: Final = 1024  # accounts; one more is not there
TIMEOUT_S: Final = 1.9

Found = Callable[[str], None]

log = logging.getLogger(__name__)


class UrlResolver:
    """Not for use by several threads; `poke` is called on one of its own when settle() has something to do."""

    def __init__(self, url: str, poke: Callable[[], None]) -> None:
        self._url = url
        self._poke = poke
        self._waiting: dict[str, list[Found]] = {}  # by account
        self._wanted: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def fetch(self, account: str, found: Found) -> None:
        """`found` is given the JWT, from settle() or at once; "" if there is none."""
        if account in self._waiting:
            self._waiting[account].append(found)
            return
        if len(self._waiting) >= MAX_WAITING:
            found("")
            return
        self._waiting[account] = [found]
        if not self._threads:
            self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(THREADS)]
            for thread in self._threads:
                thread.start()
        self._wanted.put(account)

    def settle(self) -> None:
        while True:
            try:
                account, jwt = self._found.get_nowait()
            except queue.Empty:
                return
            for found in self._waiting.pop(account, ()):
                found(jwt)

    def close(self) -> None:
        """What is under way comes to an end by itself."""
        for _ in self._threads:
            self._wanted.put(None)
        self._threads = []

    def _work(self) -> None:
        while (account := self._wanted.get()) is not None:
            self._found.put((account, self._get(account)))
            self._poke()

    def _get(self, account: str) -> str:
        try:
            with urllib.request.urlopen(self._url + account, timeout=TIMEOUT_S) as answer:
                body = answer.read(MAX_BYTES + 1)
            return str(body.decode("ascii")) if len(body) <= MAX_BYTES else ""
        except (urllib.error.URLError, OSError, ValueError) as error:
            log.warning("cannot fetch account %s: %s", account, error)
            return ""
