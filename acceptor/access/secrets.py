"""Compares passwords and tokens: with a plain secret, or with a bcrypt hash, which takes a tenth of a second.

bcrypt runs on a thread, without Python's lock, so that an acceptor's loop never waits for it. Right secrets are
remembered for a while, as keyed digests: so clients that all reconnect at once do not wait minutes for each other's
comparisons.
"""

from __future__ import annotations

import os
import queue
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

THREADS: Final = 2
# Comparisons that wait for a thread; further ones count as wrong at once.
MAX_WAITING: Final = 4096
MAX_KNOWN: Final = 4096
BCRYPT: Final = r"\$2[abxy]\$[0-9]{2}\$.*"
BCRYPT_BYTES: Final = 72  # bcrypt reads no more of a password

Done: TypeAlias = Callable[[bool], None]


def is_hashed(secret: str) -> bool:
    return re.match(BCRYPT, secret) is not None


class Secrets:
    """To be used by one thread only; `poke` is called on another one when settle() has something to do."""

    def __init__(self, poke: Callable[[], None]) -> None:
        self._poke = poke
        self._wanted: queue.Queue[tuple[str, str, Done] | None] = queue.Queue(MAX_WAITING)
        self._found: queue.SimpleQueue[tuple[bytes, bool, Done]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._key = os.urandom(32)
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def compare(self, secret: str, said: str, done: Done) -> bool | None:
        """Whether `said` matches the secret; None if settle() will call `done` with the result."""
        if not is_hashed(secret):
            from hmac import compare_digest  # loads OpenSSL, which most brokers do not need

            return compare_digest(secret.encode(errors="replace"), said.encode(errors="replace"))
        if self.is_known(secret, said):
            return True
        if not self._threads:
            self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(THREADS)]
            for thread in self._threads:
                thread.start()
        try:
            self._wanted.put_nowait((secret, said, done))
        except queue.Full:
            return False
        return None

    def is_known(self, secret: str, said: str) -> bool:
        """Whether this was right before and is still remembered."""
        return bool(self._known) and self._digest(secret, said) in self._known

    def settle(self) -> None:
        """Calls `done` for finished comparisons. To be called by the loop after a poke."""
        while True:
            try:
                digest, right, done = self._found.get_nowait()
            except queue.Empty:
                return
            if right:
                self._known[digest] = None
                if len(self._known) > MAX_KNOWN:
                    self._known.popitem(last=False)
            done(right)

    def close(self) -> None:
        while self._threads:
            try:
                self._wanted.get_nowait()
            except queue.Empty:
                break
        for _ in self._threads:
            self._wanted.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _digest(self, secret: str, said: str) -> bytes:
        text = f"{secret}\0{said}".encode(errors="replace")
        import hashlib

        return hashlib.blake2b(text, key=self._key, digest_size=32).digest()

    def _work(self) -> None:
        import bcrypt

        while (wanted := self._wanted.get()) is not None:
            secret, said, done = wanted
            try:
                right = bcrypt.checkpw(said.encode(errors="replace")[:BCRYPT_BYTES], secret.encode())
            except ValueError:
                right = False
            self._found.put((self._digest(secret, said), right, done))
            self._poke()
