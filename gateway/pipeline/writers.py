"""Writers: each of their batches is published exactly once, whatever request is repeated and whatever process dies.

A batch is decided (its staged files are made durable, then the decision is), carried out, and then marked published, or
failed if it can never be published whole. A process that finds a decision that was not carried out to the end continues
it. A writer has one batch under way at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from mq_shards.gateway.broker import Broker, DrainingError
from mq_shards.gateway.byte_window import ByteWindow
from mq_shards.gateway.pipeline import decisions
from mq_shards.gateway.pipeline.carrying import Carrying, HopelessError, Parts, find_parts
from mq_shards.gateway.pipeline.decisions import FAILED, PUBLISHED, PUBLISHING, DamagedError, Decision
from mq_shards.gateway.pipeline.staging import Staging, StagingError

MAX_WRITERS: Final = 4096
BATCHES_AT_ONCE: Final = 16  # a shard remembers more (SHARD_PRODUCERS, csrc/shards/producers.h)
WINDOW_BYTES: Final = 24 << 20  # of messages in flight to workers
WAIT_S: Final = 10.0
ONCE_S: Final = 3600.0  # for how long a writer of a single batch is remembered
PAUSE_S: Final = 5.0
TIDY_S: Final = 60.0
WAITING: Final = "waiting"

log = logging.getLogger(__name__)

T = TypeVar("T")


class TooManyWritersError(Exception):
    pass


class NotOwnerError(Exception):
    """One line: what does not belong to this user."""


class UnderWayError(Exception):
    """A batch of this writer is being published."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a client wants to be published."""

    writer: str
    number: int
    staged: Sequence[tuple[str, int]]  # names and bytes
    once: bool
    owner: str = ""  # the user who publishes it; "": there are no users
    may: Callable[[str], bool] = lambda topic: True  # whether that user may publish to the topic


@dataclass(frozen=True, slots=True)
class Shown:
    writer: str
    batch: int
    state: str
    messages: int
    changed_ns: int
    error: str = ""  # why it failed, or makes no progress
    owner: str = ""


@dataclass(slots=True)
class _Run:
    carrying: Carrying
    task: asyncio.Task[None] | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Writers:
    def __init__(
        self,
        root: Path,
        staging: Staging,
        broker: Broker,
        prepare_topic: Callable[[str], Awaitable[None]],
        threads: Executor,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Continues batches that were decided before. To be made where the event loop runs."""
        self._root = root
        self._staging = staging
        self._broker = broker
        self._prepare_topic = prepare_topic
        self._threads = threads
        self._clock = clock
        self._window = ByteWindow(WINDOW_BYTES)
        self._places = asyncio.Semaphore(BATCHES_AT_ONCE)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._runs: dict[str, _Run] = {}
        self._deciding: set[asyncio.Task[Decision]] = set()
        self._closing = asyncio.Event()
        self._decisions: dict[str, Decision] = {}
        self._damaged: dict[str, str] = {}  # by writer: what is wrong with its file
        self._unknown = ""  # why it is not known what any writer has published; then none may publish
        try:
            decided = list(decisions.load_all(root))
        except OSError as error:
            decided, self._unknown = [], f"what was decided cannot be read until the gateway is started again: {error}"
            log.error("no writer publishes: %s", self._unknown)
        for writer, found in decided:
            if isinstance(found, DamagedError):
                self._damaged[writer] = str(found)
                log.error("writer %s: %s", writer, found)
                continue
            self._decisions[writer] = found
            if found.is_over:
                staging.remove_left(found.staged)
            else:
                log.info("writer %s: goes on with batch %d", writer, found.batch)
                staging.claim_again(found.staged)
                self._start(found, None)

    async def run(self) -> None:
        """Forgets what need not be remembered, every TIDY_S, until it is cancelled."""
        while True:
            await self._tidy()
            await asyncio.sleep(TIDY_S)

    async def close(self) -> None:
        """Stops batches that are under way; they continue after the next start."""
        self._closing.set()
        await asyncio.gather(*self._deciding, return_exceptions=True)
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what clients ask for ---------------------------------------------------------------------------------------

    def list(self) -> list[Shown]:
        return [self._shown(decision) for _, decision in sorted(self._decisions.items())]

    def get(self, writer: str) -> Shown | None:
        """None: there is no such writer. Raises WriterNameError, DamagedError."""
        self._check(writer)
        decision = self._decisions.get(writer)
        return None if decision is None else self._shown(decision)

    async def delete(self, writer: str) -> bool:
        """Forgets a writer. False: there is none. Raises WriterNameError, UnderWayError, OSError."""
        decisions.check_name(writer)
        if writer in self._runs:
            raise UnderWayError(f"batch {self._decisions[writer].batch} of {writer} is being published")
        async with self._lock(writer):
            if writer in self._runs:
                raise UnderWayError(f"batch {self._decisions[writer].batch} of {writer} is being published")
            if writer not in self._decisions and writer not in self._damaged:
                return False
            await self._in_thread(decisions.delete, self._root, writer)
            self._decisions.pop(writer, None)
            self._damaged.pop(writer, None)
            return True

    async def publish(self, batch: Batch) -> Shown:
        """Publishes a batch. Returns its state: over; after WAIT_S also publishing, or waiting: nothing is decided yet.

        Raises WriterNameError, DamagedError, NotOwnerError, TooManyWritersError, DrainingError, StagingError,
        SectionsError, OSError.
        """
        self._check(batch.writer)
        self.check_owner(batch.writer, batch.owner)
        until = asyncio.get_running_loop().time() + WAIT_S
        lock = self._lock(batch.writer)
        if not await self._within(until, lock.acquire()):
            return self._waiting(batch)
        deciding: asyncio.Task[Decision] | None = None
        try:
            self.check_owner(batch.writer, batch.owner)  # another user may have been first
            while self._is_new(batch) and (run := self._runs.get(batch.writer)) is not None:
                if not await self._within(until, run.done.wait()):
                    return self._waiting(batch)
            if self._is_new(batch):
                if not await self._within(until, self._places.acquire()):
                    return self._waiting(batch)
                # A task of its own, so that a client that disconnects does not leave it half done.
                deciding = asyncio.create_task(self._decide(batch))
                self._deciding.add(deciding)
                deciding.add_done_callback(self._deciding.discard)
                deciding.add_done_callback(lambda _: lock.release())
                decision = await asyncio.shield(deciding)
            else:
                decision = self._decisions[batch.writer]
                await self._drop_staged(batch)
        finally:
            if deciding is None:
                lock.release()
        if (run := self._runs.get(batch.writer)) is not None:
            await self._within(until, run.done.wait())
        return self._shown(self._decisions.get(batch.writer, decision))

    def check_owner(self, writer: str, user: str) -> None:
        """A writer belongs to the user who first published with it. Raises NotOwnerError."""
        last = self._decisions.get(writer)
        if user and last is not None and last.owner and last.owner != user:
            raise NotOwnerError(f"writer {writer} is another user's")

    def owner_of(self, writer: str) -> str:
        last = self._decisions.get(writer)
        return "" if last is None else last.owner

    def _is_new(self, batch: Batch) -> bool:
        last = self._decisions.get(batch.writer)
        return last is None or batch.number > last.batch

    def _waiting(self, batch: Batch) -> Shown:
        last = self._decisions.get(batch.writer)
        if last is not None and batch.number <= last.batch:
            return self._shown(last)
        error = "" if last is None else self._shown(last).error
        return Shown(batch.writer, batch.number, WAITING, 0, self._now_ns(), error)

    def _shown(self, decision: Decision) -> Shown:
        run = self._runs.get(decision.writer)
        error = decision.error if run is None else run.carrying.error
        return Shown(
            decision.writer, decision.batch, decision.state, decision.messages, decision.changed_ns, error,
            decision.owner,
        )  # fmt: skip

    def _check(self, writer: str) -> None:
        decisions.check_name(writer)
        if why := self._damaged.get(writer, self._unknown):
            raise DamagedError(why)

    def _lock(self, writer: str) -> asyncio.Lock:
        return self._locks.setdefault(writer, asyncio.Lock())

    async def _within(self, until: float, wait: Awaitable[Any]) -> bool:
        """Waits for `wait` up to the time `until`. False: it did not come by then, or the process is ending."""
        wanted = asyncio.ensure_future(wait)
        closing = asyncio.ensure_future(self._closing.wait())
        left = until - asyncio.get_running_loop().time()
        try:
            await asyncio.wait((wanted, closing), timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
            return wanted.done()
        finally:
            closing.cancel()
            if not wanted.done():
                wanted.cancel()

    # --- deciding ---------------------------------------------------------------------------------------------------

    async def _decide(self, batch: Batch) -> Decision:
        """Decides a batch and starts it. The caller has acquired a place, which is released when the batch is over."""
        names = [name for name, _ in batch.staged]
        last = self._decisions.get(batch.writer)
        try:
            if last is None and len(self._decisions) + len(self._deciding) > MAX_WRITERS:  # this batch is in _deciding
                raise TooManyWritersError(f"there are {MAX_WRITERS} writers, as many as there may be: drop some")
            if self._broker.draining:
                raise DrainingError
            stamps = await self._staging.claim(batch.staged)
            try:
                files = [(self._staging.path(stamp.name), stamp.size) for stamp in stamps]
                parts = await self._in_thread(find_parts, files, self._broker.shard_of)
                for topic in parts.topics:
                    if not batch.may(topic):
                        raise NotOwnerError(f"{batch.owner} may not publish {topic:.200}")
                key = secrets.randbits(64) if last is None else last.key
                decision = Decision(
                    batch.writer, key, batch.number, PUBLISHING, parts.messages, batch.once, self._now_ns(),
                    tuple(stamps), owner=batch.owner or ("" if last is None else last.owner),
                )  # fmt: skip
                await self._in_thread(decisions.save, self._root, decision)
            except BaseException:
                self._staging.release(names)
                raise
        except BaseException:
            self._places.release()
            raise
        self._decisions[batch.writer] = decision
        self._start(decision, parts)
        return decision

    async def _drop_staged(self, batch: Batch) -> None:
        """Drops the files that a batch named which is not new, except files that are being published."""
        for name, _ in batch.staged:
            with contextlib.suppress(StagingError):
                await self._staging.drop(name)

    # --- carrying out -----------------------------------------------------------------------------------------------

    def _start(self, decision: Decision, parts: Parts | None) -> None:
        """Starts a decided batch. `parts` None: an earlier process decided it, so it has no place yet."""
        paths = [self._staging.path(stamp.name) for stamp in decision.staged]
        carrying = Carrying(decision, paths, self._broker, self._prepare_topic, self._window, self._threads)
        run = self._runs[decision.writer] = _Run(carrying)
        run.task = asyncio.create_task(self._carry_out(run, decision, parts))

    async def _carry_out(self, run: _Run, decision: Decision, parts: Parts | None) -> None:
        if parts is None:
            await self._places.acquire()
        try:
            while True:
                try:
                    over = await self._carried(run, decision, parts)
                    await self._in_thread(decisions.save, self._root, over)
                    break
                except Exception:  # whatever is wrong, the batch must not be given up
                    log.exception("writer %s: batch %d is not published yet", decision.writer, decision.batch)
                await asyncio.sleep(PAUSE_S)
            self._decisions[decision.writer] = over
            try:
                await self._staging.remove(decision.staged)
            except OSError as error:
                log.warning("what is published cannot be removed: %s", error)
        finally:
            self._places.release()
        del self._runs[decision.writer]
        run.done.set()

    async def _carried(self, run: _Run, decision: Decision, parts: Parts | None) -> Decision:
        """Carries out a batch, and returns the decision as it is then: published, or failed for good."""
        try:
            await run.carrying.run(parts)
            return replace(decision, state=PUBLISHED, changed_ns=self._now_ns())
        except HopelessError as error:
            log.error(
                "writer %s: batch %d has failed, and may be published in part: %s",
                decision.writer, decision.batch, error,
            )  # fmt: skip
            return replace(decision, state=FAILED, changed_ns=self._now_ns(), error=str(error))

    async def _tidy(self) -> None:
        now_ns = self._now_ns()
        old_ns = now_ns - int(ONCE_S * 1e9)
        done = []
        for decision in [d for d in self._decisions.values() if d.once and d.is_over]:
            if decision.changed_ns < old_ns:
                done.append(decision)
            elif decision.changed_ns > now_ns:  # the clock was set back: its ONCE_S begin anew
                self._decisions[decision.writer] = replace(decision, changed_ns=now_ns)
        try:
            for decision in done:
                with contextlib.suppress(UnderWayError):
                    await self.delete(decision.writer)
            await self._staging.drop_untouched()
        except OSError as error:
            log.warning("cannot tidy up: %s", error)

    def _now_ns(self) -> int:
        return int(self._clock() * 1e9)

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
