"""Dispatch rates that are relative to the rate of publishing: how fast topics with such a rate are published to, as
each look of upkeep.py finds it. Until the first two looks that is 0, as with a real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from mq_shards.acceptor.protocols.pulsar.names import TopicName
from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.pulsar.catalog import Json
from mq_shards.gateway.pulsar.sizes import bytes_in, messages_in

PUBLISHED: Final = "published"  # among a topic's own policies: messages and bytes a second
_RATES: Final = ("topicDispatchRate", "subscriptionDispatchRate", "dispatchRateOfSubscriptions")  # by cluster or name


def is_relative(policies: Json) -> bool:
    return any(
        rate.get("relativeToPublishRate") for key in _RATES for rate in (policies.get(key) or {}).values() if rate
    )


class _Look(NamedTuple):
    at_s: float
    messages: int
    message_bytes: int
    found: tuple[int, int]  # a second


class RelativeRates:
    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._looks: dict[TopicName, _Look] = {}
        self._seen: set[TopicName] = set()
        self._told: dict[str, tuple[int, int]] = {}  # by a topic's whole name; of partitions the fastest

    def begin(self) -> None:
        self._seen.clear()

    def look_at(self, name: TopicName, figures: Figures) -> None:
        """A topic, or a partition, with a relative rate."""
        messages, size, now_s = messages_in(figures), bytes_in(figures), self._clock_s()
        before, found = self._looks.get(name), (0, 0)
        if before is not None and now_s > before.at_s and messages >= before.messages:
            seconds = now_s - before.at_s
            found = int((messages - before.messages) / seconds), int((size - before.message_bytes) / seconds)
        self._looks[name] = _Look(now_s, messages, size, found)
        self._seen.add(name)

    def end(self) -> list[TopicName]:
        """Returns the topics whose rate is another than before this round."""
        self._looks = {name: look for name, look in self._looks.items() if name in self._seen}
        found: dict[TopicName, tuple[int, int]] = {}
        for name, look in self._looks.items():
            there = found.get(name.base, (0, 0))
            found[name.base] = max(there[0], look.found[0]), max(there[1], look.found[1])
        changed = [name for name, rates in found.items() if rates != self._told.get(str(name), (0, 0))]
        self._told = {str(name): rates for name, rates in found.items()}
        return changed

    def of(self, name: TopicName) -> Json:
        """What counts as a policy of the topic's own."""
        found = self._told.get(str(name.base))
        return {} if found is None else {PUBLISHED: found}
