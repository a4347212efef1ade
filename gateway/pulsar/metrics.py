"""Metrics of topics, subscriptions and transactions in Prometheus's form, under the names that a real broker's
/metrics has.

Only the topics with the most messages have metrics of their own, as in ../metrics.py, which passes in the figures.
Metrics of a namespace or of the broker cover all topics. Rates are averages since the scrape before, if that was not
long ago.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from mq_shards.acceptor.protocols.pulsar.names import NON_PERSISTENT, TopicName, topic_of_core
from mq_shards.gateway.catalog import Channel
from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.metrics_topics import order_of
from mq_shards.gateway.pulsar.catalog import CLUSTER, Json
from mq_shards.gateway.pulsar.clients import Clients, Connected
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import NoTopicError, in_text, used_channels
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.sizes import bytes_in, entries_in, entry_bytes, messages_in
from mq_shards.gateway.pulsar.transactions import Coordinator

if TYPE_CHECKING:
    from prometheus_client import Metric

RATE_S: Final = (1.0, 300.0)  # the shortest and longest time between two scrapes that give rates


@dataclass(frozen=True, slots=True)
class Kept:
    """What is known of a topic beside its counters. `entries`: those that are stored; None if other protocols' clients
    made it, as a tube keeps its jobs from then on that its worker is asked for them."""

    entries: int | None
    quota_bytes: int
    quota_s: int


Counts = dict[tuple[str, ...], float]
Rows = list[tuple[tuple[str, ...], float]]
Named = tuple[TopicName, Figures]


class PulsarMetrics:
    def __init__(
        self,
        clients: Clients,
        coordinator: Coordinator,
        most_topics: int,
        kept: Callable[[Sequence[TopicName]], Awaitable[Sequence[Kept]]],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients = clients
        self._kept = kept
        self._coordinator = coordinator
        self._most_topics = most_topics
        self._clock_s = clock_s
        self._before: Counts = {}  # counts at the scrape before
        self._before_s = -RATE_S[1]
        self._rates: Counts = {}  # those of the last scrape that gave rates

    async def families(self, topics: Sequence[Figures]) -> list[Metric]:
        # What is done with each topic is done in a thread, since there may be a million.
        named, shown = await asyncio.to_thread(_choose, topics, self._most_topics)
        try:
            connected = await self._clients.of([str(name) for name, _ in shown])
        except RefusedError:  # an acceptor does not answer: just then the other metrics matter most
            connected = {}
        kept = await self._kept([name for name, _ in shown])
        seconds = self._clock_s() - self._before_s
        sheet = _Sheet(self._before, seconds, self._rates)
        await asyncio.to_thread(sheet.of_all, named)
        for (name, topic), of_it in zip(shown, kept, strict=True):
            sheet.of_topic(name, topic, connected.get(str(name), Connected()), of_it)
        if seconds >= RATE_S[0]:
            self._before, self._before_s, self._rates = sheet.counts, self._clock_s(), sheet.rates
        return [*sheet.families(), *_of_transactions(self._coordinator)]


async def kept_of(control: Control, names: Sequence[TopicName]) -> list[Kept]:
    found, answers = [], True
    for name in names:
        quotas: Json = {}
        with contextlib.suppress(RefusedError):  # its namespace has been deleted since
            quotas = control.policies_of(name).get("backlog_quota_map") or {}
        is_stored = name.domain != NON_PERSISTENT
        is_pulsars = control.store.catalog.topic(name.namespace, str(name.base)) is not None
        entries = None if is_stored else 0
        if answers and is_stored and is_pulsars:
            try:
                entries = (await control.core.position(name.core)).messages
            except NoTopicError:
                entries = 0
            except RefusedError:  # a worker does not answer: the others are not waited for
                answers = False
        size, age = (quotas.get(kind) or {} for kind in ("destination_storage", "message_age"))
        found.append(Kept(entries, int(size.get("limitSize", -1)), int(age.get("limitTime", -1))))
    return found


def _choose(topics: Sequence[Figures], most: int) -> tuple[list[Named], list[Named]]:
    """All topics that have a name here, and those with metrics of their own, sorted by name."""
    in_utf8 = map(in_text, topics)
    named = [(name, topic) for topic in in_utf8 if (name := topic_of_core(topic.name)) is not None]
    shown = nlargest(most, named, key=lambda one: order_of(one[1]))
    shown.sort(key=lambda one: one[1].name)
    return named, shown


class _Sheet:
    def __init__(self, before: Counts, seconds: float, rates: Counts) -> None:
        """`rates`: the last ones, which are shown again if the last scrape was a moment ago."""
        self.counts: Counts = {}
        self.rates: Counts = {}
        self._before = before
        self._seconds = seconds
        self._last = rates if seconds < RATE_S[0] else {}
        self._rows: dict[str, Rows] = {}

    def of_all(self, named: Iterable[Named]) -> None:
        topics: Counter[str] = Counter()
        subscriptions = consumers = backlog = messages = message_bytes = delivered = 0
        for name, topic in named:
            topics[name.namespace] += 1
            messages += messages_in(topic, persistent=name.domain != NON_PERSISTENT)
            message_bytes += bytes_in(topic)
            for channel in used_channels(topic):
                subscriptions += 1
                consumers += channel.consumer_count
                backlog += _backlog(channel)
                delivered += channel.delivered
        for namespace, count in sorted(topics.items()):
            self._put("pulsar_topics_count", (namespace,), count)
        for figure, value in (
            ("topics_count", topics.total()), ("subscriptions_count", subscriptions),
            ("consumers_count", consumers), ("msg_backlog", backlog),
            ("rate_in", self._rate(("in",), messages)), ("throughput_in", self._rate(("in_bytes",), message_bytes)),
            ("rate_out", self._rate(("out",), delivered)),
        ):  # fmt: skip
            self._put(f"pulsar_broker_{figure}", (), value)

    def of_topic(self, name: TopicName, topic: Figures, connected: Connected, kept: Kept) -> None:
        key = name.namespace, str(name)
        channels = used_channels(topic)
        persistent = name.domain != NON_PERSISTENT
        messages = messages_in(topic, persistent=persistent)
        average, size = bytes_in(topic) / messages if messages else 0.0, entry_bytes(topic)
        backlog = max((_backlog(channel) for channel in channels), default=0)
        delivered = sum(channel.delivered for channel in channels)
        for figure, value in (
            ("subscriptions_count", len(channels)),
            ("producers_count", len(connected.producers)),
            ("consumers_count", sum(channel.consumer_count for channel in channels)),
            ("rate_in", self._rate((*key, "in"), messages)),
            ("throughput_in", self._rate((*key, "in_bytes"), bytes_in(topic))),
            ("rate_out", self._rate((*key, "out"), delivered)),
            ("throughput_out", self._rate((*key, "out_bytes"), delivered * average)),
            ("msg_backlog", backlog), ("storage_backlog_size", round(backlog * size)),
            ("average_msg_size", average),
            ("in_messages_total", messages), ("in_bytes_total", bytes_in(topic)),
            ("storage_write_rate", self._rate((*key, "entries"), entries_in(topic, persistent=persistent))),
            ("storage_offloaded_size", 0), ("storage_backlog_quota_limit", kept.quota_bytes),
            ("storage_backlog_quota_limit_time", kept.quota_s),
        ):  # fmt: skip
            self._put(f"pulsar_{figure}", key, value)
        if kept.entries is not None:
            for figure in ("storage_size", "storage_logical_size"):
                self._put(f"pulsar_{figure}", key, round(kept.entries * size))
        for channel in channels:
            self._of_subscription((*key, channel.name), channel, average)

    def _of_subscription(self, key: tuple[str, str, str], channel: Channel, average: float) -> None:
        rate = self._rate((*key, "out"), channel.delivered)
        for figure, value in (
            ("back_log", _backlog(channel)), ("back_log_no_delayed", _backlog(channel) - channel.deferred),
            ("delayed", channel.deferred), ("unacked_messages", channel.in_flight_parts),
            ("consumers_count", channel.consumer_count), ("msg_rate_out", rate),
            ("msg_throughput_out", rate * average),
            ("msg_rate_redeliver", self._rate((*key, "again"), channel.requeues)),
        ):  # fmt: skip
            self._put(f"pulsar_subscription_{figure}", key, value)
        self._put("pulsar_out_messages_total", key, channel.delivered)
        self._put("pulsar_out_bytes_total", key, round(channel.delivered * average))

    def _rate(self, key: tuple[str, ...], count: float) -> float:
        self.counts[key] = count
        before = self._before.get(key)
        if before is None or not RATE_S[0] <= self._seconds <= RATE_S[1]:
            return self._last.get(key, 0.0)
        self.rates[key] = max(0.0, count - before) / self._seconds
        return self.rates[key]

    def _put(self, name: str, key: tuple[str, ...], value: float) -> None:
        self._rows.setdefault(name, []).append((key, float(value)))

    def families(self) -> list[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        found: list[Metric] = []
        for name, rows in self._rows.items():
            labels = ("namespace", "topic", "subscription")[: len(rows[0][0])]
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(name, name, labels=("cluster", *labels))
            for key, value in rows:
                family.add_metric([CLUSTER, *key], value)
            found.append(family)
        return found


def _of_transactions(coordinator: Coordinator) -> Iterable[Metric]:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    counts = {f"{what}_total": count for what, count in coordinator.counts.items()}
    for figure, value in {"active_count": len(coordinator.open), **counts}.items():
        name = f"pulsar_txn_{figure}"
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(name, name, labels=("cluster", "coordinator_id"))
        family.add_metric([CLUSTER, "0"], float(value))
        yield family


def _backlog(channel: Channel) -> int:
    return channel.depth + channel.in_flight + channel.deferred
