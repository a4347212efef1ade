"""Retention: topics keep messages that every subscription has finished, by their own or their namespace's policy, so
that a seek can deliver them again.

Each such topic has a subscription that no client consumes from. It is advanced as time goes by. Messages after its
cursor are kept, moved with the log and preserved over restarts, as those of any subscription are.
"""

from __future__ import annotations

import logging
from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import (
    DEFAULT_NAMESPACE,
    PERSISTENT,
    RETENTION,
    TopicName,
    topic_of_core,
)
from mq_shards.acceptor.protocols.pulsar.position import kept_from
from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.pulsar.catalog import Json
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import NoSubscriptionError, NoTopicError
from mq_shards.gateway.pulsar.policies import is_kept
from mq_shards.gateway.pulsar.refusals import RefusedError
from mq_shards.gateway.pulsar.sizes import entry_bytes

POLICY: Final = "retention_policies"
FOR_EVER: Final = -1
MB: Final = 1 << 20
MINUTE_NS: Final = 60 * 1_000_000_000

log = logging.getLogger(__name__)


class Retention:
    def __init__(self, control: Control) -> None:
        self._control = control
        self._keeping: set[str] | None = None  # topics that have such a subscription; None: not known yet
        self._is_first = True  # until the end of the first round

    async def begin(self) -> None:
        """Begins a round."""
        if self._keeping is None:
            await self._control.core.names()
            self._keeping = set()
        self._keeping |= self._control.core.keeping

    async def look_after(self, name: TopicName, figures: Figures, policies: Json) -> None:
        if name.domain != PERSISTENT or not is_kept(policies):
            return
        core, found = self._control.core, policies[POLICY]
        try:
            where = await core.position(name.core, RETENTION)
        except NoSubscriptionError:
            if self._keeping is not None:  # first: the subscription may be made even if the answer is lost
                self._keeping.add(name.core)
            await core.keep(name.core)
            where = await core.position(name.core, RETENTION)
        if self._keeping is not None:
            self._keeping.add(name.core)
        minutes, megabytes = int(found["retentionTimeInMinutes"]), int(found["retentionSizeInMB"])
        if minutes != FOR_EVER:
            before_ns = max(0, int(self._control.now_s() * 1e9) - minutes * MINUTE_NS)
            await core.expire(name.core, RETENTION, before_ns)
        if megabytes != FOR_EVER and figures.messages:
            kept = int(megabytes * MB / max(entry_bytes(figures), 1.0))
            if where.messages > kept:
                await core.evict(name.core, RETENTION, kept_from(where, kept))

    async def end(self) -> None:
        """Ends a round: removes retention from topics without the policy, whether or not the round visited them."""
        for topic in list(self._keeping or ()):
            if self._is_wanted(topic) or (self._is_first and await self._was_of_default(topic)):
                continue
            try:
                await self._control.core.keep_no_more(topic)
            except (NoTopicError, RefusedError) as error:
                log.debug("%s: %s", topic, error)
                continue
            if self._keeping is not None:
                self._keeping.discard(topic)
            self._control.core.keeping.discard(topic)
        self._is_first = False

    async def _was_of_default(self, topic: str) -> bool:
        """Whether an earlier release kept its messages, because its name was one of the default namespace: it has a
        namespace with a cluster now, which nobody has made. That gets the policies which held."""
        name, catalog = topic_of_core(topic), self._control.store.catalog
        default = catalog.namespaces.get(DEFAULT_NAMESPACE)
        if name is None or "://" in topic or catalog.namespace(name.namespace) is None or default is None:
            return False
        is_made = name.namespace in catalog.namespaces and catalog.namespaces[name.namespace].is_made
        if is_made or not is_kept(default.policies):
            return False
        await self._control.set_policies(name.namespace, default.policies)
        return True

    def _is_wanted(self, topic: str) -> bool:
        name = topic_of_core(topic)
        if name is None or name.domain != PERSISTENT:
            return False
        if self._control.store.catalog.namespace(name.namespace) is None:
            return False
        return is_kept(self._control.policies_of(name))
