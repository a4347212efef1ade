"""Policies that take effect with time: messages that are too old, backlogs that are too large, subscriptions and topics
that no client uses. In each round all topics that have such a policy are visited, one after another.

It remembers since when subscriptions and topics are idle. That begins anew with the process, which can only delay a
deletion.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import COMPACTION as COMPACTED
from mq_shards.acceptor.protocols.pulsar.names import PERSISTENT, PulsarNameError, TopicName, topic_name
from mq_shards.acceptor.protocols.pulsar.position import kept_from
from mq_shards.gateway.catalog import Channel
from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.pulsar.admission import EXCEPTION, HOLD
from mq_shards.gateway.pulsar.catalog import Json, Namespace
from mq_shards.gateway.pulsar.compaction import RUNNING, Compaction
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import NoSubscriptionError, NoTopicError, used_channels
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.relative_rates import is_relative
from mq_shards.gateway.pulsar.retention import POLICY as RETENTION
from mq_shards.gateway.pulsar.retention import Retention
from mq_shards.gateway.pulsar.sizes import entry_bytes
from mq_shards.gateway.pulsar.store import StoreError
from mq_shards.ringbuf.time_units import SECOND_NS

TTL: Final = "message_ttl_in_seconds"
QUOTAS: Final = "backlog_quota_map"
EXPIRATION: Final = "subscription_expiration_time_minutes"
INACTIVE: Final = "inactive_topic_policies"
COMPACTION: Final = "compaction_threshold"
TIMED: Final = (TTL, QUOTAS, EXPIRATION, INACTIVE, COMPACTION, RETENTION)
CAUGHT_UP: Final = "delete_when_subscriptions_caught_up"
EVICTED_TO: Final = 0.9  # of a quota, as a real broker does

log = logging.getLogger(__name__)


class Upkeep:
    def __init__(
        self, control: Control, compaction: Compaction, interval_s: float, clock_s: Callable[[], float]
    ) -> None:
        """`clock_s` is monotonic."""
        self._control = control
        self._compaction = compaction
        self._retention = Retention(control)
        self._interval_s = interval_s
        self._clock_s = clock_s
        self._idle: dict[tuple[str, str], float] = {}  # by topic, and subscription or "": since when it is idle
        self._seen: set[tuple[str, str]] = set()  # keys of _idle that were checked in this round
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.round()
            except (RefusedError, StoreError) as error:
                log.debug("policies: %s", error)
            except Exception:
                log.exception("cannot look after topics")

    async def round(self) -> None:
        """Visits all topics to which a policy applies that takes effect with time."""
        over: dict[str, str] = {}
        self._control.store.check()
        await self._retention.begin()
        self._control.relative_rates.begin()
        self._seen = set()
        async for name, policies in self._topics():
            try:
                await self._look_after(name, policies, over)
            except (NoTopicError, NoSubscriptionError, RefusedError, StoreError) as error:
                log.debug("%s: %s", name, error)
            except Exception:  # concerns one topic: the others are looked after
                log.exception("cannot look after %s", name)
        await self._retention.end()
        for name in self._control.relative_rates.end():
            self._control.policies_changed(name.namespace, str(name))
        await self._tell_producers(over)
        self._idle = {key: since for key, since in self._idle.items() if key in self._seen}
        while await self._control.subscription_properties.drop_deleted():  # clients may delete many between two rounds
            pass

    async def _topics(self) -> AsyncIterator[tuple[TopicName, Json]]:
        catalog = self._control.store.catalog
        for namespace_name in list(catalog.namespaces):
            try:
                names = await self._timed(catalog.namespaces[namespace_name], namespace_name)
            except (KeyError, RefusedError, StoreError) as error:  # the others are looked after
                log.debug("%s: %s", namespace_name, error)
                continue
            for text in names:
                try:
                    found = [(part, self._control.policies_of(part)) for part in self._control.parts(topic_name(text))]
                except (PulsarNameError, RefusedError):
                    continue  # it, or its namespace, has been deleted since
                for one in found:
                    yield one
                await asyncio.sleep(0)

    async def _timed(self, namespace: Namespace, name: str) -> list[str]:
        """The topics of a namespace to which a policy applies that takes effect with time."""
        if _is_timed(self._control.of_namespace(namespace)):
            return await self._control.topics(name, PERSISTENT)
        return [name for name, topic in namespace.topics.items() if _is_timed(topic.policies)]

    async def trim(self, name: TopicName) -> None:
        """Removes at once what a topic's retention policy no longer keeps."""
        figures = await self._control.core.figures(name.core)
        if figures is not None:
            await self._retention.look_after(name, figures, self._control.policies_of(name))

    # --- one topic --------------------------------------------------------------------------------------------------

    async def _look_after(self, name: TopicName, policies: Json, over: dict[str, str]) -> None:
        figures = await self._control.core.figures(name.core)
        if figures is None:
            return
        ttl_s = int(policies.get(TTL) or 0)
        if ttl_s > 0:
            await self._expire(name, figures, ttl_s)
        await self._retention.look_after(name, figures, policies)
        if is_relative(policies):
            self._control.relative_rates.look_at(name, figures)
        await self._look_at_quotas(name, figures, policies.get(QUOTAS) or {}, over)
        minutes = int(policies.get(EXPIRATION) or 0)
        if minutes > 0:
            await self._drop_subscriptions(name, figures, minutes * 60.0)
        threshold = int(policies.get(COMPACTION) or 0)
        if threshold > 0:
            await self._compact(name, figures, threshold)
        inactive = policies.get(INACTIVE) or {}
        if inactive.get("deleteWhileInactive"):
            await self._delete_inactive(name, figures, inactive)

    async def _expire(self, name: TopicName, figures: Figures, age_s: int) -> None:
        before_ns = int(self._control.now_s() * 1e9) - age_s * SECOND_NS
        for channel in used_channels(figures):
            if _backlog(channel) and await self._oldest_ns(name, channel) < before_ns:
                await self._control.core.expire(name.core, channel.name, before_ns)

    async def _oldest_ns(self, name: TopicName, channel: Channel) -> int:
        """When the first unfinished message was published; 2^63 if there is none."""
        where = await self._control.core.position(name.core, channel.name)
        entry = None
        if where.unfinished < where.next_seq:
            entry = await self._control.core.entry(name.core, where.unfinished, head=True)
        return 1 << 63 if entry is None else entry.time_ns

    async def _look_at_quotas(self, name: TopicName, figures: Figures, quotas: Json, over: dict[str, str]) -> None:
        for kind, quota in quotas.items():
            limit = quota["limitTime"] if kind == "message_age" else quota["limitSize"]
            if limit < 0 or (kind == "message_age" and limit == 0):
                continue
            for channel in used_channels(figures):
                if not await self._is_over(name, figures, channel, kind, limit):
                    continue
                if quota["policy"] in (HOLD, EXCEPTION):
                    over[str(name)] = quota["policy"]
                elif kind == "message_age":
                    before_ns = int((self._control.now_s() - limit) * 1e9)
                    await self._control.core.expire(name.core, channel.name, before_ns)
                else:
                    await self._evict(name, figures, channel, limit)

    async def _is_over(self, name: TopicName, figures: Figures, channel: Channel, kind: str, limit: int) -> bool:
        if not _backlog(channel):
            return False
        if kind == "message_age":
            return await self._oldest_ns(name, channel) < int((self._control.now_s() - limit) * 1e9)
        return _backlog(channel) * entry_bytes(figures) > limit

    async def _evict(self, name: TopicName, figures: Figures, channel: Channel, limit: int) -> None:
        kept = int(limit * EVICTED_TO / max(entry_bytes(figures), 1.0))
        where = await self._control.core.position(name.core, channel.name)
        await self._control.core.evict(name.core, channel.name, max(kept_from(where, kept), where.unfinished))

    async def _compact(self, name: TopicName, figures: Figures, threshold: int) -> None:
        backlog = await self._compaction.backlog(name)
        if backlog * entry_bytes(figures) > threshold and self._compaction.of(name).status != RUNNING:
            self._compaction.start(name)

    async def _drop_subscriptions(self, name: TopicName, figures: Figures, after_s: float) -> None:
        for channel in used_channels(figures):
            if channel.consumer_count == 0 and self._is_idle((str(name), channel.name), after_s):
                log.info("%s: subscription %s is deleted, which nobody has used", name, channel.name)
                await self._control.core.delete_subscription(name.core, channel.name)
                self._control.admission.was_made(name, channel.name)

    async def _delete_inactive(self, name: TopicName, figures: Figures, inactive: Json) -> None:
        """Deletes an idle topic, unless it is a partition: partitions are deleted together or not at all."""
        channels = [channel for channel in figures.channels if channel.name != COMPACTED]
        if inactive.get("inactiveTopicDeleteMode") == CAUGHT_UP:
            in_use = any(channel.consumer_count or _backlog(channel) for channel in channels)
        else:
            in_use = bool(channels)
        if in_use or name.partition >= 0:
            return
        connected = (await self._control.clients.of([str(name)]))[str(name)]
        if connected.producers or connected.consumers:
            return
        if self._is_idle((str(name), ""), float(inactive["maxInactiveDurationSeconds"])):
            log.info("%s is deleted, which nobody has used", name)
            await self._control.delete(name, force=False)

    def _is_idle(self, key: tuple[str, str], after_s: float) -> bool:
        """Whether it has been idle for so long. A key that is not checked in some round was in use then."""
        self._seen.add(key)
        return self._clock_s() - self._idle.setdefault(key, self._clock_s()) >= after_s

    # --- quotas and producers ---------------------------------------------------------------------------------------

    async def _tell_producers(self, over: dict[str, str]) -> None:
        """Closes the producers of topics that are newly over quota; none is admitted until the topic is below it."""
        known = self._control.admission.over_quota
        new = [name for name in over if name not in known]
        known.clear()
        known.update(over)
        if new:
            log.info("over their backlog quota: %s", ", ".join(new[:10]))
            await self._control.clients.close_producers(new)


def _is_timed(policies: Json) -> bool:
    return any(policies.get(key) for key in TIMED) or is_relative(policies)


def _backlog(channel: Channel) -> int:
    return channel.depth + channel.in_flight + channel.deferred
