"""The catalog together with its log: a change is durable before any client is told of it.

A change is made in memory at once, so that the next one is checked against it. It is written to disk together with all
others that came while the disk was busy (group commit). commit() and settled() return when the disk has it. If the disk
refuses, changes that were not written are undone by reading the log again, and callers that waited get StoreError. A
catalog that cannot be read is tried again until it can: a disk may fail for a while only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mq_shards.gateway.pulsar.catalog import FIRST, Catalog, CatalogError, Record, decode, encode
from mq_shards.gateway.pulsar.journal import MAX_RECORD_BYTES, Journal, JournalError
from mq_shards.gateway.pulsar.leftovers import FILE
from mq_shards.gateway.pulsar.refusals import precondition, too_many
from mq_shards.gateway.pulsar.replay import replay

# The log is rewritten when it is larger than both this size and this multiple of its size after a rewrite.
REWRITE_BYTES: Final = 4 << 20
REWRITE_FACTOR: Final = 4
# Strangers describe tenants, namespaces and topics: names, policies, properties, permissions.
MAX_DESCRIBED_BYTES: Final = 512 << 20
MAX_NAMED: Final = 64  # tenants and namespaces made again that are logged by name
AGAIN_S: Final = 1.0  # before a catalog that cannot be read is tried again; each time it is twice as long, up to ...
AGAIN_MOST_S: Final = 30.0

log = logging.getLogger(__name__)


class StoreError(Exception):
    """A change was not written, or may not have been; or the catalog cannot be read."""


class Store:
    """To be made where the event loop runs."""

    def __init__(self, data_dir: Path | None) -> None:
        """Without a directory the catalog is only in memory."""
        self.catalog = Catalog()
        self.on_undone: list[Callable[[], None]] = []  # called when the catalog is another than before
        self._journal = None if data_dir is None else Journal(data_dir / FILE)
        self._threads = ThreadPoolExecutor(1, "catalog")
        self._opened = asyncio.Event()
        self._why_not: str | None = None  # why the catalog cannot be read; None: it can
        self._trying: asyncio.Task[None] | None = None  # ... and tries it again
        self._queued: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._writing: asyncio.Task[None] | None = None
        self._under_way: list[asyncio.Future[None]] = []
        self._fresh_bytes = 0  # what a rewrite would have left when the log was last read or rewritten

    async def open(self, *, broker_began: bool = False) -> None:
        """Reads the catalog. If that fails, logs why; until it can be read check() raises StoreError with the reason.

        `broker_began`: nobody has used any topic yet, so those that a broker does not keep are deleted."""
        read = self._read_first if broker_began else self._read
        try:
            self.catalog = await asyncio.get_running_loop().run_in_executor(self._threads, read)
        except (JournalError, CatalogError, OSError) as error:
            self._try_again(error, read)
        self._opened.set()

    def _try_again(self, error: Exception, read: Callable[[], Catalog]) -> None:
        self._why_not = str(error) or repr(error)
        log.error("Pulsar's catalog cannot be served: %s", self._why_not)
        self._trying = asyncio.get_running_loop().create_task(self._until_read(read))

    async def _until_read(self, read: Callable[[], Catalog]) -> None:
        pause_s = AGAIN_S
        while self._why_not is not None:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_MOST_S)
            try:
                self.catalog = await asyncio.get_running_loop().run_in_executor(self._threads, read)
            except Exception as error:  # of any kind, as it is said and tried again
                why = str(error) or repr(error)
                if why != self._why_not:
                    log.error("Pulsar's catalog cannot be served: %s", why)
                self._why_not = why
            else:
                self._why_not = None
        log.info("Pulsar's catalog is served again")
        for undone in self.on_undone:
            undone()

    async def opened(self) -> None:
        """Waits for open(), which must come before any use of the catalog."""
        await self._opened.wait()

    def _read_first(self) -> Catalog:
        """Reads the catalog, and deletes from it what a broker does not keep. Runs in the thread."""
        catalog = self._read()
        unkept = list(catalog.unkept())
        if self._journal is None or not unkept:
            return catalog
        try:
            self._journal.append(encode(record) for record in unkept)
        except OSError as error:  # the broker serves although the disk is full
            log.warning("topics that are not persistent stay in Pulsar's catalog: %s", error)
            return self._read()
        for record in unkept:
            catalog.apply(record)
        return catalog

    def _read(self) -> Catalog:
        """Reads the catalog, repairing the log if need be. Runs in the thread."""
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
        for namespace, before in list(found.moved.items())[:MAX_NAMED]:
            log.info("%s: topics of %s whose names begin with %s are in that namespace now", path, before, namespace)
        catalog = found.catalog
        if self._journal.is_damaged or not found.is_whole or found.moved:
            self._journal.rewrite(encode(record) for record in catalog.records())
        self._fresh_bytes = self._journal.bytes
        if self._fresh_bytes > REWRITE_BYTES:
            self._fresh_bytes = sum(len(encode(record)) for record in catalog.records())
        return catalog

    async def close(self) -> None:
        while self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        if self._trying is not None:
            self._trying.cancel()
        self._why_not = "the broker stops"  # acceptors may still ask
        if self._trying is not None:
            await asyncio.gather(self._trying, return_exceptions=True)
        await asyncio.to_thread(self._threads.shutdown)
        if self._journal is not None:
            self._journal.close()

    # --- changes ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises StoreError if the catalog cannot be read."""
        if self._why_not is not None:
            raise StoreError(f"the catalog cannot be served: {self._why_not}")

    def change(self, *records: Record) -> None:
        """Applies all records in memory, at once. settled() waits until they are durable. Raises RefusedError, with
        nothing applied: a record is larger than the log takes."""
        self.check()
        if not records:
            return
        encoded = [] if self._journal is None else [encode(record) for record in records]
        if any(len(payload) > MAX_RECORD_BYTES for payload in encoded):
            raise precondition(f"a change of the catalog has {MAX_RECORD_BYTES} bytes at most")
        growth = sum(self.catalog.growth(record) for record in records)
        if growth > 0 and self.catalog.described_bytes + growth > MAX_DESCRIBED_BYTES:
            raise too_many(f"what is said of tenants, namespaces and topics is more than {MAX_DESCRIBED_BYTES} bytes")
        for record in records:
            self.catalog.apply(record)
        if self._journal is not None:
            self._queued += encoded
            if self._writing is None:
                self._writing = asyncio.get_running_loop().create_task(self._write())

    async def commit(self, *records: Record) -> None:
        """Applies records durably. Raises RefusedError, see change(), and StoreError: they were not written, or may not
        have been."""
        self.change(*records)
        await self.settled()

    async def settled(self) -> None:
        """Waits until all that the catalog says now is durable. Raises StoreError."""
        self.check()
        if self._writing is None:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting if self._queued else self._under_way).append(future)
        await future

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        assert self._journal is not None
        await asyncio.sleep(0)  # so that other changes of this turn of the loop are written too
        while self._queued:
            queued, self._queued = self._queued, []
            self._under_way += self._waiting
            self._waiting = []
            try:
                # Copied before the next await: now the catalog has what is queued, and no change beyond that.
                outgrown = self._journal.bytes > max(REWRITE_BYTES, REWRITE_FACTOR * self._fresh_bytes)
                anew = self.catalog.copy() if outgrown else None
                await loop.run_in_executor(self._threads, self._put, queued, anew)
                self._settle(None)
            except Exception as error:  # of any kind: callers that wait are told, and the next change is written
                await self._undo(error)
        self._writing = None

    def _put(self, queued: list[bytes], anew: Catalog | None) -> None:
        """Writes queued records. `anew`: a copy of the catalog that includes them, as which the log is rewritten; if
        that fails they are appended to the log as it is. Runs in the thread."""
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
            self._try_again(worse, self._read)
        self._under_way += self._waiting  # changes made while the log was read are lost too
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
