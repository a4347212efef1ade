"""Accounts whose JWTs are in a directory (directory.py). A thread reads and writes it, because disks may be slow.

If the directory lacks an account, other servers of the cluster are asked for it (claims_requests.py).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from mq_shards.acceptor.protocols.nats.directory import Directory, StoreError

MAX_JOBS: Final = 1024  # unfinished, above which requests of others are not answered
DONE_AT_ONCE: Final = 64  # results handled in one turn

T = TypeVar("T")
Found = Callable[[str], None]
Failure = OSError | StoreError
Lookup = Callable[[str, Found], None]

log = logging.getLogger(__name__)


class DirResolver:
    """To be used by one thread only; but it calls `poke` on its own thread when settle() has something to do."""

    def __init__(
        self, terms: Mapping[str, Any], poke: Callable[[], None], lookup: Lookup, before: DirResolver | None = None
    ) -> None:
        """`lookup` asks other servers. `before`: a closed resolver whose thread may still use the directory."""
        self.directory: Final = Directory(terms)
        self._poke = poke
        self._lookup = lookup
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._done: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._is_closed = False
        is_same = before is not None and before.directory.path == self.directory.path
        self._before = before._thread if before is not None and is_same else None

    def fetch(self, account: str, found: Found) -> None:
        """Calls `found` with the JWT from settle() or a lookup; "" if there is none."""

        def loaded(jwt: str | Failure) -> None:
            if isinstance(jwt, str) and jwt:
                found(jwt)
            else:
                self._lookup(account, found)

        self.do(lambda: self.directory.load(account), loaded)

    def do(self, job: Callable[[], T], done: Callable[[T | Failure], None]) -> None:
        """Runs `job` on the thread, then calls `done` from settle() with its result or error."""

        def run() -> None:
            found: T | Failure
            try:
                found = job()
            except (OSError, StoreError) as error:
                log.warning("accounts' directory: %s", error)
                found = error
            except Exception:  # otherwise the thread would end, and no job be done any more
                log.exception("accounts' directory")
                found = StoreError("it cannot be done")
            self._done.put(lambda: done(found))
            self._poke()

        self._waiting += 1
        self._jobs.put(run)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    @property
    def is_busy(self) -> bool:
        return self._waiting >= MAX_JOBS

    def settle(self) -> None:
        for _ in range(DONE_AT_ONCE):
            try:
                done = self._done.get_nowait()
            except Empty:
                return
            self._waiting -= 1
            done()
        self._poke()

    def close(self) -> None:
        """Drops all jobs that have not begun, and all callbacks."""
        self._is_closed = True
        self._jobs.put(None)

    def _run(self) -> None:
        if self._before is not None:
            self._before.join()
            self._before = None
        while (job := self._jobs.get()) is not None and not self._is_closed:
            job()
