"""/metrics: the broker's figures in Prometheus's text form.

Topics and channels are strangers' names, so only those with the most messages are shown: a scrape's size has a limit,
whatever is made. Counters begin with 0 when the process that counts is started again, as Prometheus expects of them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from mq_shards.acceptor.engine import Durations, Engine
from mq_shards.gateway.broker import Broker
from mq_shards.gateway.catalog import Topic
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.processes import processes
from mq_shards.gateway.workers import WorkersError

if TYPE_CHECKING:
    from prometheus_client import Metric

CATALOG_S: Final = 2.0

# Of the board's totals: what they are called, whether they only rise, and what they say.
_TOTALS: Final = (
    ("connections", False, "connections_open", "Connections that are open."),
    ("total_connections", True, "connections", "Connections that were accepted."),
    ("ready", False, "jobs_ready", "Jobs of tubes that can be reserved."),
    ("reserved", False, "jobs_reserved", "Jobs of tubes that clients have reserved."),
    ("delayed", False, "jobs_delayed", "Jobs of tubes whose delay is not over."),
    ("buried", False, "jobs_buried", "Jobs of tubes that are buried."),
    ("topics", False, "topics", "Topics and tubes."),
    ("timeouts", True, "timeouts", "Messages whose time to be finished was over."),
    ("published", True, "published", "Messages that were published, to whatever topic or tube."),
    ("records_written", True, "log_records_written", "Records that were written to logs."),
    ("records_migrated", True, "log_records_moved", "Records that compaction has moved."),
    ("unreadable", True, "messages_unreadable", "Messages left out because the medium under their log has failed."),
)
_DURATIONS: Final = (
    ("turn", "turn_seconds", "Turns of workers in which there was something to do."),
    ("publish", "publish_seconds", "From when a worker takes in what is published until it is answered."),
    ("sync", "sync_seconds", "Rounds of syncs of logs to disk."),
)
_TOPIC: Final = (
    ("messages", True, "topic_published", "Messages that were published to the topic."),
    ("message_bytes", True, "topic_published_bytes", "Bytes of those messages."),
    ("depth", False, "topic_depth", "Messages that wait for a channel, or for the end of a pause."),
    ("jobs", False, "topic_jobs", "Jobs of the topic's tube, in all states."),
    ("paused", False, "topic_paused", "1: nothing of the topic is handed out."),
)
_CHANNEL: Final = (
    ("depth", False, "channel_depth", "Messages that wait for a consumer of the channel."),
    ("in_flight", False, "channel_in_flight", "Messages that consumers have and have not finished."),
    ("deferred", False, "channel_deferred", "Messages that are to be delivered later."),
    ("messages", True, "channel_messages", "Messages that came to the channel."),
    ("requeues", True, "channel_requeued", "Messages that consumers gave back."),
    ("timeouts", True, "channel_timed_out", "Messages whose time to be finished was over."),
    ("consumer_count", False, "channel_consumers", "Consumers of the channel."),
    ("paused", False, "channel_paused", "1: nothing of the channel is handed out."),
)


More: TypeAlias = Callable[[Sequence[Topic]], Awaitable[list["Metric"]]]


class Metrics:
    def __init__(
        self, engine: Engine, broker: Broker, supervisor: int, data_dir: Path | None, most_topics: int,
        refused: Callable[[], Awaitable[tuple[Mapping[str, int], Mapping[str, int]]]],
    ) -> None:  # fmt: skip
        """`refused`: by protocol, logins and what users may not do."""
        self._engine = engine
        self._broker = broker
        self._supervisor = supervisor
        self._data_dir = data_dir
        self.most_topics = most_topics
        self._refused = refused
        self._one_at_a_time = asyncio.Lock()  # a scrape costs as much as it has names

    async def answer(self, request: Request, fields: dict[str, str]) -> Answer:
        return await self.scrape()

    async def scrape(self, more: More | None = None) -> Answer:
        """`more`: what else there is to say of the topics, under a protocol's own names."""
        async with self._one_at_a_time:
            topics = await self._topics()
            beside = await more(topics) if more is not None and topics is not None else []
            totals = self._engine.totals()
            up = [worker not in self._broker.workers.missing for worker in range(self._engine.workers)]
            figures = {name: float(getattr(totals, name)) for name, *_ in _TOTALS}
            refused = await self._refused()
            return await asyncio.to_thread(self._written, topics, figures, totals.draining, up, refused, beside)

    async def _topics(self) -> list[Topic] | None:
        """None when a worker is not there or does not answer: what else there is to say is most wanted then."""
        if self._broker.workers.missing:
            return None
        try:
            return await asyncio.wait_for(self._broker.topics(), CATALOG_S)
        except (WorkersError, TimeoutError):
            return None

    def _written(
        self, topics: Sequence[Topic] | None, totals: dict[str, float], draining: bool, up: Sequence[bool],
        refused: tuple[Mapping[str, int], Mapping[str, int]], beside: Sequence[Metric],
    ) -> Answer:  # fmt: skip
        # Not before it is asked for: it takes time and memory that a broker without Prometheus need not have.
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

        families = [*self._of_broker(totals, draining, up), *_of_refused(*refused), *self._of_processes()]
        families += [*(self._of_topics(topics) if topics is not None else ()), *beside]

        class Collected:
            def collect(self) -> Iterable[Metric]:
                return families

        return Answer(200, generate_latest(Collected()), {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    def _of_broker(self, totals: dict[str, float], draining: bool, up: Sequence[bool]) -> Iterator[Metric]:
        for figure, rises, name, help_text in _TOTALS:
            yield _metric(rises, name, help_text, (), [((), totals[figure])])
        yield _metric(False, "draining", "1: no new messages are taken.", (), [((), float(draining))])
        rows = [((str(worker),), float(is_up)) for worker, is_up in enumerate(up)]
        yield _metric(False, "worker_up", "1: the worker is there.", ("worker",), rows)
        for what, name, help_text in _DURATIONS:
            yield _histogram(name, help_text, self._engine.durations(what))
        if self._data_dir is not None:
            disk = os.statvfs(self._data_dir)
            sizes = [
                (("free",), float(disk.f_bavail * disk.f_frsize)),
                (("all",), float(disk.f_blocks * disk.f_frsize)),
            ]
            yield _metric(False, "disk_bytes", "Of the file system of the data directory.", ("which",), sizes)

    def _of_topics(self, topics: Sequence[Topic]) -> Iterator[Metric]:
        shown = nlargest(self.most_topics, topics, key=lambda topic: (topic.messages, topic.name))
        shown.sort(key=lambda topic: topic.name)
        yield _metric(False, "topics_not_shown", "Topics and tubes that have no figures of their own here.", (),
                      [((), float(len(topics) - len(shown)))])  # fmt: skip
        for figure, rises, name, help_text in _TOPIC:
            rows = [((topic.name,), float(getattr(topic, figure))) for topic in shown]
            yield _metric(rises, name, help_text, ("topic",), rows)
        # A topic may have thousands of channels: those with the most to do, as many as topics.
        channels = [(topic.name, channel) for topic in shown for channel in topic.channels]
        hidden = max(0, len(channels) - self.most_topics)
        if hidden:
            channels = nlargest(self.most_topics, channels, key=lambda one: (one[1].depth, one[1].messages))
            channels.sort(key=lambda one: (one[0], one[1].name))
        yield _metric(False, "channels_not_shown", "Channels of those topics that have no figures of their own here.",
                      (), [((), float(hidden))])  # fmt: skip
        for figure, rises, name, help_text in _CHANNEL:
            named = [((topic, channel.name), float(getattr(channel, figure))) for topic, channel in channels]
            yield _metric(rises, name, help_text, ("topic", "channel"), named)

    def _of_processes(self) -> Iterator[Metric]:
        found = list(processes(self._supervisor))
        yield _metric(True, "process_cpu_seconds", "CPU time, of the user and the kernel.", ("process",),
                      [((one.name,), one.cpu_s) for one in found])  # fmt: skip
        yield _metric(False, "process_resident_bytes", "Memory that is resident, with what is shared.", ("process",),
                      [((one.name,), float(one.resident_bytes)) for one in found])  # fmt: skip
        yield _metric(False, "process_open_files", "Descriptors that are open.", ("process",),
                      [((one.name,), float(one.open_files)) for one in found])  # fmt: skip


def _of_refused(logins: Mapping[str, int], actions: Mapping[str, int]) -> Iterator[Metric]:
    for name, help_text, counts in (
        ("refused_logins", "Logins that were wrong.", logins),
        ("refused_actions", "What users asked for that they may not.", actions),
    ):
        rows = [((protocol,), float(count)) for protocol, count in sorted(counts.items())]
        yield _metric(True, name, help_text, ("protocol",), rows)


def _metric(
    rises: bool, name: str, help_text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    family = (CounterMetricFamily if rises else GaugeMetricFamily)(f"mq_shards_{name}", help_text, labels=labels)
    for values, value in rows:
        family.add_metric(list(values), value)
    return family


def _histogram(name: str, help_text: str, found: Durations) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily

    ends = [*(f"{end:.9g}" for end in found.ends_s), "+Inf"]
    counts = [float(count) for count in accumulate(found.counts)]
    buckets = list(zip(ends, counts, strict=True))
    return HistogramMetricFamily(f"mq_shards_{name}", help_text, buckets=buckets, sum_value=found.sum_s)
