"""The control side's requests to workers: make, delete and terminate topics, positions, single messages, figures.

Topics are named as in the core (TopicName.core). Methods raise RefusedError when a worker does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mq_shards.acceptor import engine as engine_module
from mq_shards.acceptor.engine import Answer, Engine, WorkerRequest
from mq_shards.acceptor.protocols.pulsar.names import COMPACTION, RETENTION
from mq_shards.acceptor.protocols.pulsar.position import Position, position_of
from mq_shards.csrc._core import ffi, lib
from mq_shards.gateway import catalog
from mq_shards.gateway.catalog import Channel
from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.names import shown
from mq_shards.gateway.pulsar.refusals import RefusedError, too_many, unavailable
from mq_shards.gateway.workers import Workers, WorkersError

EARLIEST: Final[int] = lib.START_EARLIEST
LATEST: Final[int] = lib.START_LATEST
AT_SEQ: Final[int] = lib.START_SEQ
AT_TIME: Final[int] = lib.START_TIME

_OF_COMMAND: Final = 1 << 63  # PULSAR_TXN_OF_COMMAND in pulsar_scan.h
_TRANSACTION_BYTES: Final = ffi.sizeof("struct transaction_figures")

# Requests that are repeated if the worker dies before it answers: reads, and changes that do nothing the second time.
# Without that a client would see an error, and some clients give up then. A worker whose disk is full gives the same
# status, hence the pauses.
_READS: Final = frozenset(
    {
        lib.MSG_POSITION,
        lib.MSG_CATALOG,
        lib.MSG_PEEK_SEQ,
        lib.MSG_SCAN,
        lib.MSG_TXN_LIST,
        lib.MSG_TXN_PENDING,
        lib.MSG_BACKLOG,
    }
)
_MAKES: Final = frozenset({lib.CHANGE_RETAIN, lib.CHANGE_MAKE, lib.CHANGE_MAKE_AT})
PAUSES_S: Final = (0.05, 0.2, 0.5)

# The most requests for one count of a backlog. A worker looks at 512 messages for each; most may be finished.
MAX_BACKLOG_REQUESTS: Final = 1000
MAX_BACKLOGS: Final = 4  # that are counted at the same time

# How long the names of all topics are used although they may have changed: pattern consumers ask again and again.
NAMES_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A message as it is stored."""

    seq: int
    time_ns: int
    tag: int  # says what its headers are; 0: it has none
    headers: bytes
    body: bytes | memoryview  # all of it, unless less was asked for
    whole_bytes: int  # of headers and body


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction of which a worker has messages or acks, in one topic."""

    topic: str
    id: int
    of_command: bool = False  # of its batches only the commands name it, which a producer's later ones may do too
    start: str | None = field(default=None, compare=False)  # ledger:entry of its first message in the topic


@dataclass(frozen=True, slots=True)
class Pending:
    """What open transactions would acknowledge in a subscription."""

    upto: int | None  # a cumulative ack of one transaction: up to this seq
    whole: bool  # of the message asked for: all of it
    parts: int  # or of its batch of so many messages some; 0: none
    bits: tuple[int, ...] = ()  # those whose bits are set, 64 in a word


@dataclass(frozen=True, slots=True)
class Backlog:
    """Messages that a subscription has not finished, as far as they were counted."""

    entries: int = 0
    messages: int = 0  # a batch is one entry, and each of its messages
    first: tuple[int, int] | None = None  # ledger and entry of the first and of the last one
    last: tuple[int, int] | None = None
    whole: bool = True  # all were counted


class NoSubscriptionError(Exception):
    pass


class NoTopicError(Exception):
    pass


class Core:
    def __init__(self, engine: Engine, workers: Workers) -> None:
        self._engine = engine
        self._workers = workers
        self._names: list[str] = []
        self._names_at = -NAMES_S
        self._names_after = 0  # the value of _changes when they were asked for
        # The versions for which they hold, with and without tubes; None: never asked.
        self._names_of: tuple[int, ...] | None = None
        self._topics_of: tuple[int, ...] | None = None
        self._changes = 0
        self._naming = asyncio.Lock()
        self._counting = asyncio.Semaphore(MAX_BACKLOGS)
        self.keeping: set[str] = set()  # topics that have retention, as names() last saw them

    # --- changes ----------------------------------------------------------------------------------------------------

    async def make(self, topic: str) -> int:
        """Makes a topic that retains its messages, unless it exists. Returns its incarnation."""
        return (await self._change(lib.CHANGE_RETAIN, topic)).incarnation

    async def delete(self, topic: str) -> bool:
        """Deletes a topic. False: there was none."""
        return await self._done(lib.CHANGE_DELETE, topic)

    async def terminate(self, topic: str) -> None:
        await self._change(lib.CHANGE_TERMINATE, topic)

    async def make_subscription(self, topic: str, name: str) -> None:
        await self._change(lib.CHANGE_MAKE, topic, name)

    async def begin_subscription(self, topic: str, name: str, start: int, at: int = 0) -> None:
        """Makes a subscription, unless it exists; it begins at EARLIEST, LATEST, or AT_SEQ or AT_TIME with `at`."""
        await self._change(lib.CHANGE_MAKE_AT, topic, name, delay_ns=start, ttr_ns=at)

    async def delete_subscription(self, topic: str, name: str) -> bool:
        return await self._done(lib.CHANGE_DELETE, topic, name)

    async def empty_subscription(self, topic: str, name: str) -> bool:
        return await self._done(lib.CHANGE_EMPTY, topic, name)

    async def seek(self, topic: str, subscription: str, start: int, at: int) -> None:
        """Moves a subscription, and dismisses its consumers. Raises NoTopicError, NoSubscriptionError."""
        await self._move(topic, subscription, start, at, lib.MSG_DISMISS)

    async def expire(self, topic: str, subscription: str, before_ns: int) -> None:
        """Finishes messages that were published before that time; consumers keep others that they have in flight.

        Raises NoTopicError, NoSubscriptionError.
        """
        await self._move(topic, subscription, AT_TIME, before_ns, lib.MSG_UPTO)

    async def evict(self, topic: str, subscription: str, before_seq: int) -> None:
        """Like expire(), for messages before a seq."""
        await self._move(topic, subscription, AT_SEQ, before_seq, lib.MSG_UPTO)

    async def _move(self, topic: str, subscription: str, start: int, at: int, flags: int) -> None:
        number = self._bind(topic)
        request = WorkerRequest(
            lib.MSG_SEEK, topic=number, pri=start, ttr_ns=at, flags=flags, body=subscription.encode()
        )
        _check(await self._ask(self._engine.worker_of_topic(number), request))

    # --- retention --------------------------------------------------------------------------------------------------

    async def keep(self, topic: str) -> None:
        """Keeps what is published from now on, even when every subscription has finished it."""
        await self.make_subscription(topic, RETENTION)

    async def keep_no_more(self, topic: str) -> None:
        await self.delete_subscription(topic, RETENTION)

    # --- compaction -------------------------------------------------------------------------------------------------

    async def scan(self, topic: str, seq: int) -> tuple[bytes, int]:
        """Messages from `seq` on that compaction has to see (struct scanned[] of csrc/ringbuf/message.h), and the seq
        from which to continue. Raises NoTopicError.
        """
        number = self._bind(topic)
        request = WorkerRequest(lib.MSG_SCAN, topic=number, ttr_ns=seq)
        answer = await self._ask(self._engine.worker_of_topic(number), request)
        _check(answer)
        return answer.body, answer.seq

    async def compact(self, topic: str, verdicts: bytes, until: int) -> None:
        """Extends the topic's compacted view up to `until`, and removes from it what `verdicts` say is superseded."""
        number = self._bind(topic)
        request = WorkerRequest(lib.MSG_COMPACT, topic=number, ttr_ns=until, body=verdicts)
        answer = await self._ask(self._engine.worker_of_topic(number), request)
        _check(answer)

    # --- transactions -----------------------------------------------------------------------------------------------

    async def end_transaction(self, topic: str, id: int, *, commit: bool) -> None:
        """Commits or aborts what the topic has of a transaction. RefusedError: to be repeated."""
        await self._end_transaction(topic, id, commit=commit)
        await self._end_transaction(topic, id | _OF_COMMAND, commit=commit)

    async def end_unknown(self, one: OpenTransaction) -> None:
        """Ends one that is over, or never was. Its batches that only name it in their commands are not of it."""
        await self._end_transaction(one.topic, one.id | (_OF_COMMAND * one.of_command), commit=one.of_command)

    async def _end_transaction(self, topic: str, number: int, *, commit: bool) -> None:
        topic_number = self._bind(topic)
        worker = self._engine.worker_of_topic(topic_number)
        _check(await self._ask(worker, WorkerRequest(lib.MSG_TXN_END, topic=topic_number, id=number, pri=int(commit))))

    async def transactions(self) -> list[OpenTransaction]:
        asked = (self._ask(worker, WorkerRequest(lib.MSG_TXN_LIST)) for worker in range(self._engine.workers))
        return [one for answer in await asyncio.gather(*asked) for one in _transactions(answer.body)]

    async def pending(self, topic: str, subscription: str, id: int, seq: int = lib.NO_PLACE) -> Pending:
        """What transaction `id` would acknowledge, and what any transaction would of the message with seq `seq`.

        Raises NoTopicError, NoSubscriptionError.
        """
        number = self._bind(topic)
        request = WorkerRequest(lib.MSG_TXN_PENDING, topic=number, id=id, ttr_ns=seq, body=subscription.encode())
        answer = await self._ask(self._engine.worker_of_topic(number), request)
        _check(answer)
        pending = ffi.from_buffer("struct pending_figures *", answer.body)
        upto = None if answer.seq == lib.NO_PLACE else answer.seq
        return Pending(upto, bool(pending.whole), pending.parts, tuple(pending.bits) if pending.parts else ())

    # --- questions --------------------------------------------------------------------------------------------------

    async def position(self, topic: str, subscription: str = "") -> Position:
        """Positions of a topic, or of a subscription. Raises NoTopicError, NoSubscriptionError."""
        number = self._bind(topic)
        worker = self._engine.worker_of_topic(number)
        answer = await self._ask(worker, WorkerRequest(lib.MSG_POSITION, topic=number, body=subscription.encode()))
        _check(answer)
        try:
            return position_of(answer.body)
        except ValueError:
            raise unavailable("a worker's answer is cut off") from None

    async def backlog(self, topic: str, subscription: str, seq: int, all_until: int, most: int) -> Backlog:
        """Counts messages from `seq` on: those that the subscription has not finished, and all before `all_until`. It
        stops when there are `most` entries or more, or when many messages have been looked at.

        Raises NoTopicError, NoSubscriptionError.
        """
        number, found = self._bind(topic), Backlog()
        async with self._counting:
            for _ in range(MAX_BACKLOG_REQUESTS):
                request = WorkerRequest(
                    lib.MSG_BACKLOG, topic=number, ttr_ns=seq, id=all_until, body=subscription.encode()
                )
                answer = await self._ask(self._engine.worker_of_topic(number), request)
                _check(answer)
                one = ffi.from_buffer("struct backlog_figures *", answer.body)
                first = found.first
                if one.entries:
                    first = first or (answer.incarnation, int(one.first_seq))
                    found = Backlog(
                        found.entries + int(one.entries), found.messages + int(one.messages), first,
                        (answer.incarnation, int(one.last_seq)),
                    )  # fmt: skip
                if answer.seq <= seq:
                    return found
                seq = answer.seq
                if found.entries >= most:
                    break
        return replace(found, whole=False)

    async def entry(
        self, topic: str, seq: int, *, or_next: bool = False, head: bool = False, most: int = 0
    ) -> Entry | None:
        """`or_next`: if that message is not there, the next one that is; `head`: what it contains is not wanted;
        `most`: of one that has more bytes, at most as many from its beginning (0: all)."""
        number = self._bind(topic)
        worker = self._engine.worker_of_topic(number)
        flags = lib.MSG_HEADERS | (lib.MSG_HEAD if head else 0)
        request = WorkerRequest(lib.MSG_PEEK_SEQ, topic=number, id=most, pri=int(or_next), ttr_ns=seq, flags=flags)
        answer = await self._ask(worker, request)
        if answer.status != engine_module.OK:
            return None
        return _entry(answer)

    async def figures(self, topic: str, *, consumers: bool = False) -> Figures | None:
        """A topic's figures, without its retention subscription. None: no worker has the topic."""
        name = topic.encode()
        worker = self._engine.worker_of_name(name)
        answer = await self._ask(worker, WorkerRequest(lib.MSG_CATALOG, pri=int(consumers), body=name))
        found = catalog.decode(answer.body)
        for one in found:
            one.channels[:] = [channel for channel in one.channels if channel.name != RETENTION]
        return in_text(found[0]) if found else None

    async def names(self, *, tubes: bool = True) -> list[str]:
        """Names of all topics; of tubes, those that have jobs, or are used or watched and have had jobs. The list must
        not be changed. It is the same object as before if the names are the same, so that callers can tell whether what
        they derived from it is valid. `tubes` False: it need not say which tubes there are (none has a name in a
        namespace, as ':' is not in tubes' names)."""
        async with self._naming:  # a second caller waits, and gets what the first one was told
            now, changes = asyncio.get_running_loop().time(), self._changes
            if now < self._names_at + NAMES_S and changes == self._names_after:
                return self._names
            version = (*self._engine.names_versions(), self._workers.attachments)
            topics = (*self._engine.catalog_versions(), self._workers.attachments)
            if version == self._names_of or (not tubes and topics == self._topics_of):
                return self._names
            asked = (self._ask(worker, WorkerRequest(lib.MSG_CATALOG)) for worker in range(self._engine.workers))
            names: list[str] = []
            keeping: set[str] = set()
            before = iter(self._names)
            as_before = True
            for answer in await asyncio.gather(*asked):
                async for topic in catalog.each(answer.body):
                    name = shown(topic.name)
                    as_before = as_before and next(before, None) == name
                    names.append(name)
                    if any(channel.name == RETENTION for channel in topic.channels):
                        keeping.add(name)
            if not as_before or len(names) != len(self._names):
                self._names = names
            self._names_at, self._names_after, self.keeping = now, changes, keeping
            self._names_of, self._topics_of = version, topics
            return self._names

    # --- asking -----------------------------------------------------------------------------------------------------

    def _bind(self, topic: str) -> int:
        number = self._engine.bind(topic.encode())
        if number == 0:
            raise unavailable("there are as many topics as there may be")
        return number

    async def _change(self, what: int, topic: str, subscription: str | None = None, **more: int) -> Answer:
        """Raises NoTopicError, NoSubscriptionError, RefusedError."""
        name = topic.encode()
        body = name if subscription is None else name + b"\n" + subscription.encode()
        shard = self._engine.shard_of_name(name)
        worker = self._engine.worker_of_name(name)
        answer = await self._ask(worker, WorkerRequest(lib.MSG_CHANGE, id=shard, pri=what, body=body, **more))
        _check(answer)
        self._changes += 1
        return answer

    async def _done(self, what: int, topic: str, subscription: str | None = None) -> bool:
        try:
            await self._change(what, topic, subscription)
        except (NoTopicError, NoSubscriptionError):
            return False
        return True

    async def _ask(self, worker: int, request: WorkerRequest) -> Answer:
        repeats = request.kind in _READS or (request.kind == lib.MSG_CHANGE and request.pri in _MAKES)
        pauses = iter(PAUSES_S if repeats else ())
        while True:
            try:
                answer = await self._workers.ask(worker, request, looks=request.kind == lib.MSG_CATALOG)
            except WorkersError as error:
                raise unavailable(str(error)) from None
            if answer.status != engine_module.FAILED:
                return answer
            pause_s = next(pauses, None)
            if pause_s is None:
                raise unavailable("a worker died, or its disk failed, before it answered")
            await asyncio.sleep(pause_s)


def _transactions(body: bytes) -> Iterator[OpenTransaction]:
    at = 0
    while at + _TRANSACTION_BYTES <= len(body):
        one = ffi.from_buffer("struct transaction_figures *", memoryview(body)[at:])
        at += _TRANSACTION_BYTES
        start = None if one.first_seq == lib.NO_PLACE else f"{one.incarnation}:{one.first_seq}"
        topic = body[at : at + one.name_bytes].decode(errors="replace")
        yield OpenTransaction(topic, one.number & ~_OF_COMMAND, one.number >= _OF_COMMAND, start)
        at += one.name_bytes


def in_text(figures: Figures) -> Figures:
    """Figures with names in UTF-8, as Pulsar's clients use them."""
    if figures.name.isascii() and all(channel.name.isascii() for channel in figures.channels):
        return figures
    channels = [replace(channel, name=shown(channel.name)) for channel in figures.channels]
    return replace(figures, name=shown(figures.name), channels=channels)


def shown_channels(topic: Figures) -> list[Channel]:
    """The subscriptions that clients see, also those that are not durable."""
    return [channel for channel in topic.channels if channel.name != RETENTION]


def durable_channels(topic: Figures) -> list[Channel]:
    return [channel for channel in shown_channels(topic) if not channel.flags & lib.FIGURES_EPHEMERAL]


def used_channels(topic: Figures) -> list[Channel]:
    """The subscriptions to which policies apply: all but the compacted view."""
    return [channel for channel in durable_channels(topic) if channel.name != COMPACTION]


def _check(answer: Answer) -> None:
    match answer.status:
        case engine_module.OK:
            return
        case engine_module.NOT_FOUND:
            raise NoTopicError
        case engine_module.NONE:
            raise NoSubscriptionError
        case engine_module.NO_SPACE:
            raise unavailable("a worker refuses writes: its disk, or a limit")
        case engine_module.TOO_MANY:
            raise too_many("there are as many topics as there may be")
        case lib.STATUS_INVALID:
            raise RefusedError(501, "NotAllowedError", "this broker cannot do that yet")
        case status:
            raise unavailable(f"a worker answers with status {status}")


def _entry(answer: Answer) -> Entry:
    body, tag, headers = memoryview(answer.body), 0, b""  # it may be large, so it is not copied
    if answer.flags & lib.MSG_HEADERS:
        head: Any = ffi.new("struct headers *")
        size = ffi.sizeof("struct headers")
        ffi.memmove(head, body[:size], size)
        tag = int(head.tag)
        headers, body = bytes(body[size : size + int(head.bytes)]), body[size + int(head.bytes) :]
    return Entry(answer.seq, answer.incarnation, tag, headers, body, answer.pri)
