"""The transaction coordinator: which transactions are open, what takes part in them, and how they end.

All of that is in the catalog's log before any client is told, so the next process knows it too. An open transaction
stays open until its timeout. A decision is repeated to the workers until each has carried it out. Every few seconds it
looks for transactions at workers that it does not know, and aborts them.

Must never: do what was not decided, or end a transaction in two ways.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import MAX_PARTICIPANTS, TOO_MANY_PARTICIPANTS
from mq_shards.gateway.pulsar.catalog import (
    ABORTING,
    COMMITTING,
    OPEN,
    Json,
    Transaction,
    encode,
    transaction_part_record,
    transaction_record,
)
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import OpenTransaction
from mq_shards.gateway.pulsar.refusals import RefusedError, subscription_name, too_many, unavailable
from mq_shards.gateway.pulsar.store import StoreError

MAX_OPEN: Final = 50_000
MAX_PART_BYTES: Final = 4 << 20  # of these, in the log: less than a record may have
MAX_TIMEOUT_MS: Final = 24 * 3600 * 1000
RESERVED_IDS: Final = 10_000  # ids reserved by one record, which says from where on none has been given out
RETRY_S: Final = 0.1
SWEEP_S: Final = 2.0
# How long a transaction that is over is remembered: a client that lost its connection may ask again.
KEPT_S: Final = 10.0
# How much longer one is open than its client said, who counts from the answer on: Java's is to find out for itself that
# its time is over (TIME_OUT), not by what a commit is told (ERROR). A real broker looks every 0.1 s.
LATE_S: Final = 0.1

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Over:
    at_s: float  # when, by the loop's clock
    told: str | None = None  # the client that got the answer


def not_found(id: int) -> RefusedError:
    return RefusedError(404, "TransactionNotFound", f"The transaction with this txdID `(0,{id})`not found ")


class Coordinator:
    """To be made where the event loop runs. Serves once the catalog is open."""

    def __init__(self, control: Control, now_s: Callable[[], float] = time.time) -> None:
        self._control = control
        self._now_s = now_s
        self._next = self._reserved = 0
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._endings: dict[int, asyncio.Task[None]] = {}
        self._over: dict[int, _Over] = {}  # ended at every worker, oldest first
        self._stale: set[OpenTransaction] = set()  # unknown transactions that the last sweep found at workers
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts = {"created": 0, "committed": 0, "aborted": 0, "timeout": 0}
        self.started_ms = int(now_s() * 1000)

    @property
    def _all(self) -> dict[int, Transaction]:
        return self._control.store.catalog.transactions

    def start(self) -> None:
        # No id may be given out twice, even if the log is missing or its last record of ids was lost to damage: workers
        # may still have messages of earlier transactions. So ids begin at the time of day at least.
        since = int(self._now_s() * 1_000_000)
        self._next = self._reserved = max(self._control.store.catalog.transactions_from, since)
        self._control.store.on_undone.append(self._undone)
        self._resume()
        self._do(self._sweep())

    def _undone(self) -> None:
        """Changes of the catalog were undone, or it could not be read before: it is now what the disk has."""
        self._next = max(self._next, self._control.store.catalog.transactions_from)
        self._reserved = min(self._reserved, self._control.store.catalog.transactions_from)
        self._resume()

    def _resume(self) -> None:
        """Continues with the transactions in the catalog."""
        for id, transaction in self._all.items():
            if transaction.status != OPEN:
                self._go_on(id)
            elif id not in self._timers:
                left_ms = transaction.opened_ms + transaction.timeout_ms - self._now_s() * 1000
                self._expire_in(id, min(max(left_ms, 0), transaction.timeout_ms) / 1000)

    def _do(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, RefusedError):
            log.error("a transaction cannot be ended", exc_info=error)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- figures ----------------------------------------------------------------------------------------------------

    @property
    def open(self) -> dict[int, Transaction]:
        """The transactions that are not over."""
        return {id: one for id, one in self._all.items() if id not in self._over}

    def find(self, id: int) -> Transaction | None:
        return None if id in self._over else self._all.get(id)

    def was_aborted(self, id: int) -> bool:
        """Whether a transaction is being aborted, or was a moment ago."""
        one = self._all.get(id)
        return one is not None and one.status == ABORTING

    async def abort(self, id: int) -> None:
        """Aborts a transaction for an administrator, whoever owns it."""
        one = self.find(id)
        if one is None:
            raise not_found(id)
        await self.end({"id": id, "commit": False, "owner": one.owner})

    def figures(self) -> Json:
        """Figures in the form of a real broker's coordinatorStats."""
        last, going_on = self._next - 1, self.open
        return {
            "state": "Ready", "leastSigBits": last, "lowWaterMark": min(going_on, default=self._next) - 1,
            "ongoingTxnSize": len(going_on), "recoverStartTime": self.started_ms, "recoverEndTime": self.started_ms,
        }  # fmt: skip

    def slow(self, for_ms: int) -> list[Transaction]:
        """The transactions that have been open for so long."""
        since_ms = self._now_s() * 1000 - for_ms
        return [one for one in self.open.values() if one.opened_ms <= since_ms]

    # --- what clients ask -------------------------------------------------------------------------------------------

    async def begin(self, asked: Json) -> Json:
        timeout_ms = int(asked["timeout_ms"])
        if len(self._all) - len(self._over) >= MAX_OPEN:
            raise too_many("There are as many open transactions as there may be")
        if not 0 <= timeout_ms <= MAX_TIMEOUT_MS:
            raise RefusedError(412, "NotAllowedError", "A transaction is open for 24 h at most")
        if self._next >= self._reserved:
            until = max(self._next, self._reserved, self._control.store.catalog.transactions_from) + RESERVED_IDS
            self._next, self._reserved = max(self._next, self._reserved), until
            await self._control.store.commit({"do": "transactions-from", "id": until})
        id = self._next
        self._next += 1
        record = transaction_record(id, timeout_ms, int(self._now_s() * 1000), asked.get("owner") or "")
        await self._control.store.commit(record)
        self._expire_in(id, timeout_ms / 1000)
        self.counts["created"] += 1
        return {"id": id}

    async def add(self, asked: Json) -> Json:
        transaction = self._of(asked)
        if transaction.status != OPEN:
            raise _wrong_status(transaction)
        topics = {str(self._control.name(text)) for text in asked.get("topics", ())} - transaction.topics
        named = asked.get("subscriptions", ())
        subscriptions = {(str(self._control.name(text)), subscription_name(name)) for text, name in named}
        subscriptions -= transaction.subscriptions
        count = len(transaction.topics) + len(transaction.subscriptions) + len(topics) + len(subscriptions)
        if count > MAX_PARTICIPANTS:
            raise too_many(TOO_MANY_PARTICIPANTS)
        if topics or subscriptions:
            record = transaction_part_record(transaction.id, topics, subscriptions)
            if transaction.part_bytes + len(encode(record)) > MAX_PART_BYTES:
                raise too_many(TOO_MANY_PARTICIPANTS)
            self._control.store.change(record)
            given = [*asked.get("topics", ()), *(text for text, _ in named)]
            said = {whole: text for text in given if (whole := str(self._control.name(text))) != text}
            if said:
                transaction.said = said | (transaction.said or {})
        await self._control.store.settled()
        return {}

    async def end(self, asked: Json) -> Json:
        id, commit, client = int(asked["id"]), bool(asked["commit"]), asked.get("client")
        transaction = self._of(asked)
        if transaction.status == OPEN:
            self._decide(transaction, commit=commit)
        elif (transaction.status == COMMITTING) != commit:
            raise _wrong_status(transaction)
        self._go_on(id)
        if id in self._endings:
            await asyncio.shield(self._endings[id])
        if id not in self._over:
            raise unavailable(f"Transaction (0,{id}) is not ended yet")
        self._over[id].told = client
        return {}

    def _of(self, asked: Json) -> Transaction:
        """Finds a transaction of this owner. One that is over is found only by a client that has not got its answer."""
        id = int(asked["id"])
        transaction, over = self._all.get(id), self._over.get(id)
        if transaction is None or transaction.owner != (asked.get("owner") or ""):
            raise not_found(id)
        if over is not None:
            same = asked.get("commit") == (transaction.status == COMMITTING)
            if not same or over.told == asked.get("client"):
                raise not_found(id)
        return transaction

    def _expire_in(self, id: int, seconds: float) -> None:
        self._timers[id] = asyncio.get_running_loop().call_later(seconds + LATE_S, self._expire, id)

    def _expire(self, id: int) -> None:
        self._timers.pop(id, None)
        transaction = self._all.get(id)
        if transaction is None or transaction.status != OPEN:
            return
        log.info("transaction (0,%d) is aborted: it was open for %d ms", id, transaction.timeout_ms)
        try:
            self._decide(transaction, commit=False)
            self.counts["timeout"] += 1
        except StoreError as error:
            log.error("transaction (0,%d) cannot be aborted: %s", id, error)

    # --- the end of one ---------------------------------------------------------------------------------------------

    def _cores(self, transaction: Transaction) -> list[str]:
        names = transaction.topics | {topic for topic, _ in transaction.subscriptions}
        return sorted(self._control.name(name).core for name in names)

    def _decide(self, transaction: Transaction, *, commit: bool) -> None:
        """Decides a transaction; the decision is valid once it is in the log. Raises StoreError."""
        what = "commit" if commit else "abort"
        self._control.store.change({"do": what, "id": transaction.id, "topics": self._cores(transaction)})
        self._go_on(transaction.id)

    def _go_on(self, id: int) -> None:
        if id not in self._endings and id not in self._over:
            self._endings[id] = self._do(self._end(id))

    async def _end(self, id: int) -> None:
        """Carries out a decision. RefusedError: the decision was not written, and the transaction is open."""
        try:
            await self._written(id)
            transaction = self._all[id]
            commit = transaction.status == COMMITTING
            await self._tell(id, transaction.told, commit=commit)
            self.counts["committed" if commit else "aborted"] += 1
            self._over[id] = _Over(asyncio.get_running_loop().time())
        finally:
            self._endings.pop(id, None)
            self._forget_timer(id)

    def _forget_timer(self, id: int) -> None:
        transaction = self._all.get(id)
        if transaction is not None and transaction.status == OPEN:
            # Its decision was not written: the client asks again, or the timer aborts it.
            if id not in self._timers:
                self._expire_in(id, SWEEP_S)
        elif (timer := self._timers.pop(id, None)) is not None:
            timer.cancel()

    async def _written(self, id: int) -> None:
        """Waits until a decision is in the log. If the disk refused it, it is void: the log has been read again and
        says what holds. If the log cannot be read nothing is known, and no worker is told. Raises RefusedError.
        """
        why = "the decision is not in the log"
        while True:
            try:
                await self._control.store.settled()
                written = True
            except StoreError as error:
                why, written = str(error), False
            transaction = self._all.get(id)
            if transaction is None or transaction.status == OPEN:
                raise unavailable(why)
            if written:
                return
            try:
                self._control.store.check()
            except StoreError as error:
                raise unavailable(str(error)) from None

    async def _tell(self, id: int, topics: Iterable[str], *, commit: bool) -> None:
        await asyncio.gather(*(self._tell_one(id, topic, commit=commit) for topic in topics))

    async def _tell_one(self, id: int, topic: str, *, commit: bool) -> None:
        """Repeats until the worker has done it, however long that takes."""
        while True:
            try:
                await self._control.core.end_transaction(topic, id, commit=commit)
                return
            except RefusedError as error:
                log.debug("transaction (0,%d) of %s: %s", id, topic, error.reason)
            await asyncio.sleep(RETRY_S)

    # --- transactions that are over, or unknown ----------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                self.forget(before_s=asyncio.get_running_loop().time() - KEPT_S)
                await self.sweep()
            except (RefusedError, StoreError) as error:
                log.debug("transactions: %s", error)
            except Exception:
                log.exception("cannot look after transactions")

    def forget(self, before_s: float) -> None:
        """Forgets transactions that were over before that time."""
        gone = [id for id, over in self._over.items() if over.at_s < before_s]
        self._control.store.change(*({"do": "no-transaction", "id": id} for id in gone))
        for id in gone:
            del self._over[id]

    async def sweep(self) -> None:
        """Aborts transactions of workers that are unknown here now and were at the last sweep. Messages of none,
        though their commands name one that is over, are delivered.
        """
        found = [one for one in await self._control.core.transactions() if self.find(one.id) is None]
        for one in found:
            if one.of_command:
                await self._control.core.end_unknown(one)
            elif one in self._stale:
                log.info("transaction (0,%d) of %s is aborted: nobody knows it", one.id, one.topic)
                await self._control.core.end_unknown(one)
        self._stale = set(found)


def _wrong_status(transaction: Transaction) -> RefusedError:
    return RefusedError(
        409, "InvalidTxnStatus", f"Transaction (0,{transaction.id}) is {transaction.status} and not {OPEN}"
    )
