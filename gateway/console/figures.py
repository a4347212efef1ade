"""The broker's figures for the console: samples of all topics, their rates, and the values of the last minutes.

A sample is shared by all clients that look, and taken so rarely that sampling costs the gateway at most a twentieth of
its time. While no client looks, samples are only taken if they are cheap, and one of many topics is let go. What is
remembered has a limit.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import Any, Final, TypeVar

from mq_shards.acceptor.engine import Engine
from mq_shards.gateway.ages import Name, waits_in_channel, waits_in_topic
from mq_shards.gateway.broker import Broker, worker_title
from mq_shards.gateway.catalog import Topic
from mq_shards.gateway.console.history import History
from mq_shards.gateway.console.waits import Waits
from mq_shards.gateway.names import shown

SAMPLE_S: Final = 2.0
COST: Final = 20  # after a sample that took a second, the pause in seconds
LOOKED_S: Final = 15.0  # sampling ends so long after the last request,
CHEAP_S: Final = 0.005  # unless a sample takes less than this: then a new client sees the last minutes
HISTORIES: Final = 1000  # topics whose last minutes are remembered: the most active ones
AT_ONCE: Final = 5000  # topics that are sorted in the event loop
PLACES: Final = 8  # channels of a topic for which the age of the oldest message is asked
PIECE: Final = 500  # topics that are processed in one turn of the event loop

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """One topic. Rates are messages a second, since the sample before."""

    name: str
    shard: int
    published: int
    published_bytes: int
    delivered: int  # by all channels and the tube; this and `finished` count from the worker's start
    finished: int
    backlog: int  # of the channel with the longest one; of the topic if it has no channel
    jobs: int
    in_flight: int
    deferred: int
    channels: int
    consumers: int
    paused: bool
    requeued: int
    timed_out: int
    waiting: tuple[Name, ...]  # places with waiting messages, whose age can be asked for
    rate_in: float = 0.0
    rate_delivered: float = 0.0
    rate_out: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    at: float  # monotonic
    rows: dict[str, Row]  # those of workers that were silent are from an earlier sample
    cost_s: float
    heard: dict[int, float]  # when each worker answered the last time
    silent: list[str]  # the names of workers that did not
    lists: dict[Any, list[Row]] = field(default_factory=dict)  # made of it, by what was asked for (listing.py)


class Figures:
    def __init__(
        self, engine: Engine, broker: Broker, waits: Waits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """To be made where the event loop runs."""
        self._engine = engine
        self._broker = broker
        self._waits = waits
        self._clock = clock
        self._sample: Sample | None = None
        self._topics: dict[str, tuple[History, History]] = {}  # rates of publishing, and backlogs
        self.published = History()
        self.delivered = History()
        self.finished = History()
        self.backlog = History()
        self.connections = History()
        self.rate_in = 0.0
        self.rate_delivered = 0.0
        self.rate_out = 0.0
        self._looked_at = -LOOKED_S
        self._sampling = asyncio.Lock()

    async def run(self) -> None:
        """Takes samples until it is cancelled."""
        while True:
            now = self._clock()
            is_looked_at = now < self._looked_at + LOOKED_S
            if self._sample is not None and not is_looked_at and len(self._sample.rows) > AT_ONCE:
                self._let_go()
            is_wanted = is_looked_at or (self._sample is not None and self._sample.cost_s < CHEAP_S)
            if is_wanted and (self._sample is None or now >= _next_at(self._sample)):
                await self._take()
            next_at = now + SAMPLE_S if self._sample is None else _next_at(self._sample)
            await asyncio.sleep(min(SAMPLE_S, max(0.1, next_at - self._clock())))

    def _let_go(self) -> None:
        """Frees what was made of many topics, and what lies between it and would keep whole MiBs of Python's memory:
        names that are remembered, and connections whose cycles nobody has collected."""
        self._sample = None
        self._topics = {}
        self._waits.forget()
        gc.collect()

    async def sample(self) -> Sample:
        """The last sample, or a new one if that is too old."""
        now = self._clock()
        self._looked_at = now
        sample = self._sample
        if sample is None or now > _next_at(sample) + SAMPLE_S:
            sample = await self._take()
        return sample

    def history(self, topic: str) -> tuple[list[float], list[float]]:
        found = self._topics.get(topic)
        return ([], []) if found is None else (found[0].values(), found[1].values())

    def rates(self, topic: str) -> dict[str, float]:
        """A topic's rates in the last sample; 0 for a topic made since."""
        row = self._sample.rows.get(topic) if self._sample is not None else None
        found = (0.0, 0.0, 0.0) if row is None else (row.rate_in, row.rate_delivered, row.rate_out)
        return {name: round(rate, 1) for name, rate in zip(("in", "delivered", "out"), found, strict=True)}

    async def _take(self) -> Sample:
        async with self._sampling:
            before = self._sample
            now = self._clock()
            if before is not None and now < before.at + 0.5:
                return before  # it was taken while we waited for the lock
            found = await self._broker.survey()
            topics = found.topics
            asked = self._clock()
            heard = {w: asked for w in range(self._engine.workers) if w not in found.silent}
            rows = {} if before is None else self._as_before(before, found.silent)
            for begin in range(0, len(topics), PIECE):
                for topic in topics[begin : begin + PIECE]:
                    row = self._row(topic, before, asked)
                    rows[row.name] = row
                await asyncio.sleep(0)
            # The time that was waited for a silent worker cost nothing.
            cost_s = found.took_s + self._clock() - asked
            earlier = {} if before is None else before.heard
            self._sample = sample = Sample(
                asked, rows, cost_s, {**earlier, **heard}, [worker_title(worker) for worker in sorted(found.silent)]
            )
            await aside(len(rows), self._remember, sample)
            return sample

    def _as_before(self, before: Sample, silent: frozenset[int]) -> dict[str, Row]:
        """The topics of silent workers, as these said the last time."""
        if not silent:
            return {}
        rows = (row for row in before.rows.values() if row.shard % self._engine.workers in silent)
        return {row.name: replace(row, waiting=(), rate_in=0.0, rate_delivered=0.0, rate_out=0.0) for row in rows}

    def _row(self, topic: Topic, before: Sample | None, now: float) -> Row:
        channels = topic.channels
        delivered = topic.reserves + sum(c.delivered for c in channels)
        finished = topic.deletes + sum(c.finished for c in channels)
        name = shown(topic.name)
        shard = self._engine.shard_of_name(topic.name.encode("latin-1"))
        rate_in = rate_delivered = rate_out = 0.0
        if before is not None and (earlier := before.rows.get(name)) is not None:
            since_s = max(0.001, now - before.heard.get(shard % self._engine.workers, before.at))
            rate_in = max(0, topic.messages - earlier.published) / since_s
            rate_delivered = max(0, delivered - earlier.delivered) / since_s
            rate_out = max(0, finished - earlier.finished) / since_s
        return Row(
            name=name,
            shard=shard,
            published=topic.messages,
            published_bytes=topic.message_bytes,
            delivered=delivered,
            finished=finished,
            backlog=max((c.depth + c.deferred for c in channels), default=0) if channels else topic.depth,
            jobs=topic.jobs,
            in_flight=sum(c.in_flight for c in channels),
            deferred=sum(c.deferred for c in channels),
            channels=len(channels),
            consumers=sum(c.consumer_count for c in channels),
            paused=topic.paused or any(c.paused for c in channels),
            requeued=sum(c.requeues for c in channels),
            timed_out=sum(c.timeouts for c in channels),
            waiting=places(topic),
            rate_in=rate_in,
            rate_delivered=rate_delivered,
            rate_out=rate_out,
        )

    def _remember(self, sample: Sample) -> None:
        rows = sample.rows.values()
        self.rate_in = sum(row.rate_in for row in rows)
        self.rate_delivered = sum(row.rate_delivered for row in rows)
        self.rate_out = sum(row.rate_out for row in rows)
        self.published.add(self.rate_in)
        self.delivered.add(self.rate_delivered)
        self.connections.add(self._engine.totals().connections)
        self.finished.add(self.rate_out)
        self.backlog.add(sum(max(row.backlog, row.jobs) for row in rows))
        most = rows if len(rows) <= HISTORIES else nlargest(HISTORIES, rows, key=activity)
        remembered: dict[str, tuple[History, History]] = {}
        for row in most:
            one = remembered[row.name] = self._topics.get(row.name) or (History(), History())
            one[0].add(row.rate_in)
            one[1].add(max(row.backlog, row.jobs))
        self._topics = remembered


def _next_at(sample: Sample) -> float:
    return sample.at + max(SAMPLE_S, COST * sample.cost_s)


def places(topic: Topic) -> tuple[Name, ...]:
    """The places of a topic where messages wait; of many channels, those with the most messages."""
    channels = [channel for channel in topic.channels if waits_in_channel(channel)]
    if len(channels) > PLACES:
        channels = nlargest(PLACES, channels, key=lambda channel: channel.depth + channel.in_flight)
    own: tuple[Name, ...] = ((topic.name,),) if waits_in_topic(topic) else ()
    return own + tuple((topic.name, channel.name) for channel in channels)


async def aside(topics: int, work: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401
    """Runs `work` at once or, if there are many topics, in a thread, so that the event loop is not held up."""
    if topics <= AT_ONCE:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


def activity(row: Row) -> tuple[float, int, int]:
    return row.rate_in + row.rate_out, max(row.backlog, row.jobs), row.published


def by_shard(rows: Iterable[Row], shards: int) -> Sequence[list[float]]:
    """For each shard: topics, messages published a second, backlog."""
    found = [[0.0, 0.0, 0.0] for _ in range(shards)]
    for row in rows:
        one = found[row.shard]
        one[0] += 1
        one[1] += row.rate_in
        one[2] += max(row.backlog, row.jobs)
    return found
