"""The gateway's requests to the broker: publish, and change and list topics and channels. Callers use names only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from mq_shards.acceptor import engine as engine_module
from mq_shards.acceptor.engine import Answer, Engine, WorkerRequest
from mq_shards.csrc._core import ffi, lib
from mq_shards.gateway import catalog
from mq_shards.gateway.catalog import Topic
from mq_shards.gateway.live import Live, with_size, without_headers
from mq_shards.gateway.names import MAX_TOPIC_BYTES, bytes_of
from mq_shards.gateway.survey import WITHIN_S, Survey, Surveys
from mq_shards.gateway.turns import sorted_by_name
from mq_shards.gateway.workers import LOOK_S, Workers, WorkersError

# The priority of a message whose publisher cannot name one.
PRIORITY: Final = 1024
# A catalog may be large, so only this many are asked for at a time.
CATALOGS_AT_ONCE: Final = 4

MAKE: Final[int] = lib.CHANGE_MAKE
DELETE: Final[int] = lib.CHANGE_DELETE
EMPTY: Final[int] = lib.CHANGE_EMPTY
PAUSE: Final[int] = lib.CHANGE_PAUSE
UNPAUSE: Final[int] = lib.CHANGE_UNPAUSE


class BrokerError(Exception):
    """A request was not done. (After a WorkersError it may have been: the worker or its disk failed.)"""


class TopicNotFoundError(BrokerError):
    pass


class ChannelNotFoundError(BrokerError):
    pass


class DiskError(BrokerError):
    """The worker's disk, or a limit on it, refuses the write."""


class DrainingError(BrokerError):
    """New messages are refused until the broker is started again."""


class BadTopicError(BrokerError):
    """No topic can have this name, now or later."""


class TooManyTopicsError(WorkersError):
    """A worker has reached its limit of topics."""


class OutOfTurnError(BrokerError):
    """The part before this one has not been published."""


@dataclass(frozen=True, slots=True)
class ProducerPart:
    """Identifies a part of an idempotent producer's batch. The parts of a batch for one shard are numbered from 0."""

    key: int  # the producer's
    batch: int
    part: int

    def encode(self) -> bytes:
        """The struct producer_part that precedes the bodies."""
        part = ffi.new("struct producer_part *", {"key": self.key, "batch": self.batch, "part": self.part})
        return bytes(ffi.buffer(part))


class Ring(NamedTuple):
    """The two rings between a worker and an acceptor: bytes that wait in each, and its size. "in" is to the worker."""

    acceptor: int
    in_bytes: int
    in_room: int
    out_bytes: int
    out_room: int
    overflow_bytes: int  # bytes that wait for room in the ring to the acceptor
    overflow_peak_bytes: int


def worker_title(worker: int) -> str:
    return f"mq-worker-{worker}"


def acceptor_title(acceptor: int) -> str:
    return f"mq-acceptor-{acceptor}"


class Broker:
    def __init__(
        self,
        engine: Engine,
        workers: Workers,
        message_timeout_ns: int,
        live: Live | None = None,
    ) -> None:
        self.workers: Final = workers
        self._engine = engine
        self._live = live
        self._message_timeout_ns = message_timeout_ns
        self._catalogs = asyncio.Semaphore(CATALOGS_AT_ONCE)
        self._surveys = Surveys(self._catalog_of)
        # What the supervisor says: the processes that do not answer it, how often each has not, and why workers refuse
        # writes.
        self.hanging: Sequence[str] = ()
        self.hangs: Mapping[str, int] = {}
        self.refusing: Mapping[int, str] = {}

    def hear(self, hanging: Sequence[str], hangs: Mapping[str, int], refusing: Mapping[int, str]) -> None:
        """What the supervisor says."""
        self.hanging, self.hangs, self.refusing = hanging, hangs, refusing
        self.workers.hang([worker for worker in range(self._engine.workers) if worker_title(worker) in hanging])

    @property
    def health(self) -> str:
        """OK, or NOK and the reason."""
        return self.health_beside(self.hanging)

    def health_beside(self, silent: Sequence[str]) -> str:
        """OK, or NOK and the reason; `silent`: processes that do not answer."""
        if missing := self.workers.missing:
            return f"NOK - worker {missing[0]} is being restarted"
        if silent:
            return f"NOK - {', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer"
        if self.refusing:
            worker, why = min(self.refusing.items())
            return f"NOK - worker {worker} refuses writes: {why}"
        return "OK"

    @property
    def silent(self) -> list[str]:
        """The processes that do not answer, by what the supervisor says and by what was asked here."""
        return sorted({*self.hanging, *map(worker_title, self._surveys.silent)})

    @property
    def draining(self) -> bool:
        return self._engine.draining()

    async def publish(self, topic: str, body: bytes, delay_ns: int = 0) -> None:
        """Publishes one message. Raises BrokerError, WorkersError."""
        await self._publish(lib.MSG_PUBLISH, topic, PRIORITY, body, delay_ns, count=1)
        if self._live is not None and self._live.wants(topic):
            await self._live.tell(topic, with_size(body))

    async def publish_many(
        self,
        topic: str,
        count: int,
        bodies: bytes | memoryview,
        of: ProducerPart | None = None,
        *,
        has_headers: bool = False,
        delay_ns: int = 0,
        priority: int | None = None,
    ) -> None:
        """Publishes all messages or none. `bodies` has the size of each, big-endian in 4 bytes, before it. Raises as
        publish does.

        With `of` a part that was published before is not written again. OutOfTurnError when the part before it is
        missing.
        """
        flags = lib.MSG_DURABLE
        before: list[bytes] = []
        if priority is not None:
            before.append(bytes(ffi.buffer(ffi.new("struct publish_priority *", {"pri": priority}))))
            flags |= lib.MSG_PRIORITY
        if of is not None:
            before.append(of.encode())
            flags |= lib.MSG_IDEMPOTENT
        message = b"".join((*before, bodies))  # bytes alone are not copied
        if has_headers:
            flags |= lib.MSG_HEADERS
        await self._publish(lib.MSG_PUBLISH_MANY, topic, count, message, delay_ns, count, flags)
        if self._live is not None and self._live.wants(topic):
            await self._live.tell(topic, without_headers(bodies) if has_headers else bodies)

    def shard_of(self, topic: str) -> int:
        return self._engine.shard_of_name(bytes_of(topic))

    def worker_of(self, topic: str) -> int:
        """The worker of a topic, by its name in the form of a catalog."""
        return self._engine.worker_of_name(topic.encode("latin-1"))

    async def _publish(
        self, kind: int, topic: str, pri: int, body: bytes, delay_ns: int, count: int, flags: int = lib.MSG_DURABLE
    ) -> None:
        if self.draining:
            raise DrainingError
        name = bytes_of(topic)
        if not 0 < len(name) <= MAX_TOPIC_BYTES:
            raise BadTopicError(f"a topic's name has 1 to {MAX_TOPIC_BYTES} bytes, this has {len(name)}")
        number = self._engine.bind(name)
        if number == 0:
            raise TooManyTopicsError("there are as many topics as there may be")
        worker = self._engine.worker_of_topic(number)
        # The parts of a batch for one shard must be sent in order.
        order = self._engine.shard_of_name(name) if flags & lib.MSG_IDEMPOTENT else None
        request = WorkerRequest(
            kind, topic=number, id=self._engine.take_ids(number, count), pri=pri, flags=flags,
            delay_ns=delay_ns, ttr_ns=self._message_timeout_ns, body=body,
        )  # fmt: skip
        answer = await self.workers.ask(worker, request, order=order)
        check_answer(worker, answer)

    async def change(self, what: int, topic: str, channel: str | None = None, *, ephemeral: bool = False) -> None:
        """Makes, deletes, empties, pauses or unpauses a topic, or a channel of it. Raises BrokerError, WorkersError.

        The names must be valid: they are not checked here. `ephemeral`: so is the channel, if this makes it.
        """
        name = bytes_of(topic)
        worker = self._engine.worker_of_name(name)
        body = name if channel is None else name + b"\n" + channel.encode()
        shard = self._engine.shard_of_name(name)
        flags = lib.MSG_CHANNEL_EPHEMERAL if ephemeral else 0
        request = WorkerRequest(lib.MSG_CHANGE, id=shard, pri=what, flags=flags, body=body)
        check_answer(worker, await self.workers.ask(worker, request))

    async def topic(self, name: str, consumers: bool = False, within_s: float | None = None) -> list[Topic]:
        """The topic or tube, if there is one. Raises WorkersError."""
        worker = self._engine.worker_of_name(name.encode())
        answer = await self._catalog(worker, name.encode(), consumers, within_s)
        return await catalog.decode_in_pieces(answer.body)

    async def topics(self, consumers: bool = False) -> tuple[list[Topic], list[str]]:
        """All topics, those of tubes too, sorted by name; and workers, by title, whose topics are missing."""
        found: list[Topic] = []
        silent: list[str] = []
        for worker, answer in enumerate(await self._catalogs_of_all(consumers)):
            if answer is None:
                silent.append(worker_title(worker))
            else:
                found += await catalog.decode_in_pieces(answer.body)
        return await sorted_by_name(found, lambda one: one.name), silent

    async def survey(self, within_s: float = WITHIN_S) -> Survey:
        """The topics of all workers that answer in time."""
        missing = frozenset(self.workers.missing)
        found = await self._surveys.take((w for w in range(self._engine.workers) if w not in missing), within_s)
        return replace(found, silent=found.silent | missing)

    async def _catalog_of(self, worker: int) -> bytes:
        return (await self._catalog(worker)).body

    async def each_topic(self) -> AsyncIterator[Topic]:
        """Yields all topics, in no order, for callers that do not keep them. Raises WorkersError before the first."""
        answers = await self._catalogs_of_all(consumers=False)
        if None in answers:
            raise WorkersError("a worker does not answer")
        for answer in filter(None, answers):
            async for topic in catalog.each(answer.body):
                yield topic

    async def _catalogs_of_all(self, consumers: bool) -> list[Answer | None]:
        """By worker; None: it does not answer."""
        missing = frozenset(self.workers.missing)

        async def ask(worker: int) -> Answer | None:
            try:
                return await self._catalog(worker, consumers=consumers, within_s=LOOK_S if worker in missing else None)
            except WorkersError:
                return None

        async with self._catalogs:
            return await asyncio.gather(*map(ask, range(self._engine.workers)))

    async def _catalog(
        self, worker: int, name: bytes = b"", consumers: bool = False, within_s: float | None = None
    ) -> Answer:
        request = WorkerRequest(lib.MSG_CATALOG, pri=int(consumers), body=name)
        answer = await self.workers.ask(worker, request, within_s=within_s, looks=True)
        if answer.status == engine_module.FAILED:
            raise WorkersError(f"worker {worker} died while it was asked")
        return answer

    async def oldest_ns(self, topic: str, channel: str | None = None) -> int | None:
        """When the oldest message that the channel has not finished was published. Without a channel: the oldest one
        that waits for the topic's first channel, or the tube's next job. None: there is none. Raises WorkersError.
        """
        name = topic.encode("latin-1")
        body = name if channel is None else name + b"\n" + channel.encode("latin-1")
        answer = await self.workers.ask(self._engine.worker_of_name(name), WorkerRequest(lib.MSG_OLDEST, body=body))
        return answer.incarnation if answer.status == engine_module.OK else None

    async def rings(self, worker: int) -> list[Ring]:
        """The rings between a worker and each acceptor, including the gateway. Raises WorkersError."""
        answer = await self.workers.ask(worker, WorkerRequest(lib.MSG_RINGS))
        figures = ffi.from_buffer("struct ring_figures[]", answer.body)
        return [Ring(*(int(getattr(one, name)) for name in Ring._fields)) for one in figures]


def check_answer(worker: int, answer: Answer) -> None:
    match answer.status:
        case engine_module.OK:
            return
        case engine_module.NOT_FOUND:
            raise TopicNotFoundError
        case engine_module.NONE:
            raise ChannelNotFoundError
        case engine_module.EARLY:
            raise OutOfTurnError
        case engine_module.TOO_MANY:
            raise TooManyTopicsError("there are as many topics as there may be")
        case engine_module.NO_SPACE:
            raise DiskError(f"worker {worker} refuses writes")
        case _:
            raise WorkersError(f"worker {worker} died, or its disk failed, before it answered")
