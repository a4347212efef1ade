"""The catalog and its log together: what was changed is durable before anybody is told of it.

A change is made in memory at once, so that the next one is checked against it, and is on its way to the disk with all
that came meanwhile (group commit). commit() and settled() come back when the disk has it. If the disk refuses, what was
not written is undone by reading the log again, and whoever waited is told so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mq_shards.gateway.pulsar.catalog import FIRST, Catalog, CatalogError, Record, decode, encode
from mq_shards.gateway.pulsar.journal import Journal, JournalError
from mq_shards.gateway.pulsar.leftovers import FILE
from mq_shards.gateway.pulsar.replay import replay

# The log is written anew when it is larger than this, and than so many times what it would be then.
REWRITE_BYTES: Final = 4 << 20
REWRITE_FACTOR: Final = 4
MAX_NAMED: Final = 64  # lines of what is made again

log = logging.getLogger(__name__)


class StoreError(Exception):
    """Not written, or perhaps; or there is no catalog, because it cannot be read."""


class Store:
    """To be made where the event loop runs."""

    def __init__(self, data_dir: Path | None) -> None:
        """Without a directory all is in memory."""
        self.catalog = Catalog()
        self.on_undone: list[Callable[[], None]] = []  # called when the catalog is another than it was
        self._journal = None if data_dir is None else Journal(data_dir / FILE)
        self._threads = ThreadPoolExecutor(1, "catalog")
        self._opened = asyncio.Event()
        self._why_not: str | None = None  # why there is no catalog
        self._queued: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._writing: asyncio.Task[None] | None = None
        self._under_way: list[asyncio.Future[None]] = []
        self._fresh_bytes = 0  # of the log, had it been written anew when it was last read or written so

    async def open(self) -> None:
        """What cannot be read is said in the journal, and in every StoreError from then on."""
        loop = asyncio.get_running_loop()
        try:
            self.catalog = await loop.run_in_executor(self._threads, self._read)
        except (JournalError, CatalogError, OSError) as error:
            self._why_not = str(error)
            log.error("Pulsar's catalog cannot be served: %s", error)
        self._opened.set()

    async def opened(self) -> None:
        """Before that nothing may be asked of it."""
        await self._opened.wait()

    def _read(self) -> Catalog:
        """In the thread."""
        if self._journal is None:
            return Catalog.new()
        payloads, damages = self._journal.open()
        for damage in damages:
            log.error("%s", damage)
        if not payloads and not self._journal.is_damaged:
            payloads = [encode(record) for record in FIRST]
            self._journal.append(payloads)
        found = replay(map(decode, payloads), is_damaged=self._journal.is_damaged)
        path, left_out = self._journal.path, found.left_out
        if left_out:
            log.error("%s: %d records are left out, the first of them: %s", path, len(left_out), left_out[0])
        for lost in found.made_again[:MAX_NAMED]:
            log.error("%s: %s was lost, and is made again without its policies and roles", path, lost)
        if len(found.made_again) > MAX_NAMED:
            log.error("%s: and so are %d more", path, len(found.made_again) - MAX_NAMED)
        catalog = found.catalog
        if self._journal.is_damaged or not found.is_whole:
            self._journal.rewrite(encode(record) for record in catalog.records())
        self._fresh_bytes = self._journal.bytes
        if self._fresh_bytes > REWRITE_BYTES:
            self._fresh_bytes = sum(len(encode(record)) for record in catalog.records())
        return catalog

    async def close(self) -> None:
        while self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        await asyncio.to_thread(self._threads.shutdown)
        if self._journal is not None:
            self._journal.close()

    # --- changes ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises StoreError when there is no catalog."""
        if self._why_not is not None:
            raise StoreError(self._why_not)

    def change(self, *records: Record) -> None:
        """All of them, now, in memory; settled() says when that holds."""
        self.check()
        if not records:
            return
        for record in records:
            self.catalog.apply(record)
        if self._journal is not None:
            self._queued += [encode(record) for record in records]
            if self._writing is None:
                self._writing = asyncio.get_running_loop().create_task(self._write())

    async def commit(self, *records: Record) -> None:
        """Raises StoreError: it was not done, or perhaps."""
        self.change(*records)
        await self.settled()

    async def settled(self) -> None:
        """When all that the catalog says now is durable. Raises StoreError."""
        self.check()
        if self._writing is None:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting if self._queued else self._under_way).append(future)
        await future

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        assert self._journal is not None
        await asyncio.sleep(0)  # others of this turn come along
        while self._queued:
            queued, self._queued = self._queued, []
            self._under_way += self._waiting
            self._waiting = []
            try:
                # Whatever else is to be changed meanwhile: what is queued now is in the catalog, and nothing but that.
                outgrown = self._journal.bytes > max(REWRITE_BYTES, REWRITE_FACTOR * self._fresh_bytes)
                anew = self.catalog.copy() if outgrown else None
                await loop.run_in_executor(self._threads, self._put, queued, anew)
                self._settle(None)
            except Exception as error:  # whatever it is, whoever waits is told, and the next change is written
                await self._undo(error)
        self._writing = None

    def _put(self, queued: list[bytes], anew: Catalog | None) -> None:
        """In the thread. `anew`: the log becomes one that says this, which has what is queued; if that cannot be, the
        log as it is will do."""
        assert self._journal is not None
        if anew is not None:
            try:
                self._journal.rewrite([encode(record) for record in anew.records()])
                self._fresh_bytes = self._journal.bytes
                return
            except Exception as error:
                log.warning("Pulsar's catalog cannot be written anew: %s", error)
            self._fresh_bytes = self._journal.bytes
        self._journal.append(queued)

    async def _undo(self, error: Exception) -> None:
        log.error("Pulsar's catalog cannot be written: %r", error)
        self._under_way += self._waiting
        self._queued, self._waiting = [], []
        try:
            self.catalog = await asyncio.get_running_loop().run_in_executor(self._threads, self._read)
        except Exception as worse:
            self._why_not = str(worse) or repr(worse)
            log.error("Pulsar's catalog cannot be read again: %s", worse)
        self._under_way += self._waiting  # of what came while it was read
        self._queued, self._waiting = [], []
        self._settle(StoreError(f"the catalog cannot be written: {error}"))
        for undone in self.on_undone:
            undone()

    def _settle(self, error: StoreError | None) -> None:
        settled, self._under_way = self._under_way, []
        for future in settled:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
