"""The transaction coordinator: which transactions are open, what takes part in them, and how they end.

A commit is decided when it is in the catalog's log; it is told to the workers until each has done it, also by the next
process. Everything else is memory: a transaction that nobody knows any more is aborted. What workers still have of such
ones is looked for every few seconds.

Must never: commit what was not decided, or end a transaction in two ways.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Final

from mq_shards.gateway.pulsar.catalog import Json
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import OpenTransaction
from mq_shards.gateway.pulsar.refusals import RefusedError, too_many, unavailable
from mq_shards.gateway.pulsar.store import StoreError

MAX_OPEN: Final = 50_000
MAX_PARTICIPANTS: Final = 10_000  # of one
MAX_TIMEOUT_MS: Final = 24 * 3600 * 1000
RESERVED_IDS: Final = 10_000  # at once: the log says from where on none has been given out
RETRY_S: Final = 0.1
SWEEP_S: Final = 2.0
ABORT_TRIES: Final = 20  # then the sweep does it

OPEN: Final = "OPEN"
COMMITTING: Final = "COMMITTING"
ABORTING: Final = "ABORTING"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Transaction:
    id: int
    timeout_ms: int
    opened_ms: int  # wall clock
    owner: str
    status: str = OPEN
    topics: set[str] = field(default_factory=set)  # whole names
    subscriptions: set[tuple[str, str]] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None
    ending: asyncio.Task[None] | None = None


def not_found(id: int) -> RefusedError:
    return RefusedError(404, "TransactionNotFound", f"The transaction with this txdID `(0,{id})`not found ")


class Coordinator:
    """To be made where the event loop runs; serves when the catalog is open."""

    def __init__(self, control: Control, now_s: Callable[[], float] = time.time) -> None:
        self._control = control
        self._now_s = now_s
        self.open: dict[int, Transaction] = {}
        self._next = self._reserved = 0
        self._stale: set[OpenTransaction] = set()  # seen at workers by the last sweep, and nobody's
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts = {"created": 0, "committed": 0, "aborted": 0, "timeout": 0}
        self.started_ms = int(now_s() * 1000)

    def start(self) -> None:
        catalog = self._control.store.catalog
        self._next = self._reserved = catalog.transactions_from
        for id, topics in catalog.commits.items():
            self._do(self._finish(id, topics))
        self._do(self._sweep())

    def _do(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        for transaction in self.open.values():
            if transaction.timer is not None:
                transaction.timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- figures ----------------------------------------------------------------------------------------------------

    def figures(self) -> Json:
        """As a real broker's coordinatorStats."""
        last = self._next - 1
        return {
            "state": "Ready", "leastSigBits": last, "lowWaterMark": min(self.open, default=self._next) - 1,
            "ongoingTxnSize": len(self.open), "recoverStartTime": self.started_ms, "recoverEndTime": self.started_ms,
        }  # fmt: skip

    def slow(self, for_ms: int) -> list[Transaction]:
        """Those that are open for so long."""
        since_ms = self._now_s() * 1000 - for_ms
        return [one for one in self.open.values() if one.opened_ms <= since_ms]

    # --- what clients ask -------------------------------------------------------------------------------------------

    async def begin(self, asked: Json) -> Json:
        timeout_ms = int(asked["timeout_ms"])
        if len(self.open) >= MAX_OPEN:
            raise too_many("There are as many open transactions as there may be")
        if not 0 <= timeout_ms <= MAX_TIMEOUT_MS:
            raise RefusedError(412, "NotAllowedError", "A transaction is open for 24 h at most")
        if self._next >= self._reserved:
            until = max(self._reserved, self._control.store.catalog.transactions_from) + RESERVED_IDS
            self._next, self._reserved = max(self._next, self._reserved), until
            await self._control.store.commit({"do": "transactions-from", "id": until})
        id = self._next
        self._next += 1
        opened_ms = int(self._now_s() * 1000)
        transaction = self.open[id] = Transaction(id, timeout_ms, opened_ms, asked.get("owner") or "")
        loop = asyncio.get_running_loop()
        transaction.timer = loop.call_later(timeout_ms / 1000, self._expire, id)
        self.counts["created"] += 1
        return {"id": id}

    async def add(self, asked: Json) -> Json:
        transaction = self._of(asked)
        if transaction.status != OPEN:
            raise _wrong_status(transaction)
        topics = {str(self._control.name(text)) for text in asked.get("topics", ())}
        subscriptions = {(str(self._control.name(text)), name) for text, name in asked.get("subscriptions", ())}
        count = len(transaction.topics) + len(transaction.subscriptions) + len(topics) + len(subscriptions)
        if count > MAX_PARTICIPANTS:
            raise too_many("There is as much in this transaction as there may be")
        transaction.topics |= topics
        transaction.subscriptions |= subscriptions
        return {}

    async def end(self, asked: Json) -> Json:
        id, commit = int(asked["id"]), bool(asked["commit"])
        if id not in self.open and id in self._control.store.catalog.commits and commit:
            # Decided by the process before this one; being done.
            return {}
        transaction = self._of(asked)
        if transaction.status == OPEN:
            transaction.status = COMMITTING if commit else ABORTING
            transaction.ending = self._do(self._end(transaction))
        elif (transaction.status == COMMITTING) != commit:
            raise _wrong_status(transaction)
        assert transaction.ending is not None
        await asyncio.shield(transaction.ending)
        return {}

    def _of(self, asked: Json) -> Transaction:
        """Who began it is who goes on with it."""
        transaction = self.open.get(int(asked["id"]))
        if transaction is None or transaction.owner != (asked.get("owner") or ""):
            raise not_found(int(asked["id"]))
        return transaction

    def _expire(self, id: int) -> None:
        transaction = self.open.get(id)
        if transaction is None or transaction.status != OPEN:
            return
        log.info("transaction (0,%d) is aborted: it was open for %d ms", id, transaction.timeout_ms)
        self.counts["timeout"] += 1
        transaction.status = ABORTING
        transaction.ending = self._do(self._end(transaction))

    # --- the end of one ---------------------------------------------------------------------------------------------

    def _cores(self, transaction: Transaction) -> list[str]:
        names = transaction.topics | {topic for topic, _ in transaction.subscriptions}
        return sorted(self._control.name(name).core for name in names)

    async def _end(self, transaction: Transaction) -> None:
        if transaction.timer is not None:
            transaction.timer.cancel()
        topics = self._cores(transaction)
        try:
            if transaction.status == COMMITTING:
                if topics:
                    await self._control.store.commit({"do": "commit", "id": transaction.id, "topics": topics})
                    await self._finish(transaction.id, topics)
                self.counts["committed"] += 1
            else:
                await self._tell(transaction.id, topics, commit=False)
                self.counts["aborted"] += 1
        except StoreError as error:
            # Whether it was decided shows when the log is read again: as long as this process lives it was not.
            self._do(self._tell(transaction.id, topics, commit=False))
            raise unavailable(str(error)) from None
        finally:
            self.open.pop(transaction.id, None)

    async def _finish(self, id: int, topics: list[str]) -> None:
        """What is decided is done, however long that takes; then nobody needs to know of it."""
        await self._tell(id, topics, commit=True)
        self._control.store.change({"do": "no-commit", "id": id})

    async def _tell(self, id: int, topics: Iterable[str], *, commit: bool) -> None:
        for result in await asyncio.gather(*(self._tell_one(id, topic, commit=commit) for topic in topics)):
            assert result is None

    async def _tell_one(self, id: int, topic: str, *, commit: bool) -> None:
        tries = 0
        while True:
            try:
                await self._control.core.end_transaction(topic, id, commit=commit)
                return
            except RefusedError as error:
                tries += 1
                if not commit and tries >= ABORT_TRIES:
                    return
                log.debug("transaction (0,%d) of %s: %s", id, topic, error.reason)
            await asyncio.sleep(RETRY_S)

    # --- what nobody knows of any more ------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.sweep()
            except RefusedError as error:
                log.debug("transactions: %s", error.reason)
            except Exception:
                log.exception("cannot look after transactions")

    async def sweep(self) -> None:
        """What a worker has and nobody knows is aborted when that is so for the second time."""
        catalog = self._control.store.catalog
        found = [one for one in await self._control.core.transactions()
                 if one.id not in self.open and one.id not in catalog.commits]  # fmt: skip
        for one in found:
            if one in self._stale:
                log.info("transaction (0,%d) of %s is aborted: nobody knows it", one.id, one.topic)
                await self._control.core.end_transaction(one.topic, one.id, commit=False)
        self._stale = set(found)


def _wrong_status(transaction: Transaction) -> RefusedError:
    return RefusedError(
        409, "InvalidTxnStatus", f"Transaction (0,{transaction.id}) is {transaction.status} and not {OPEN}"
    )
