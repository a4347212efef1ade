"""How fast topics may be published to and consumed from, by policies of their namespaces and their own. What that comes
to is C's (csrc/acceptor/protocols/pulsar/pulsar_rates.c), which knows a rate by a number; they are given out here."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.protocols.pulsar.clients import Desk
from mq_shards.acceptor.protocols.pulsar.names import TopicName

SECOND_NS: Final = 1_000_000_000
MAX_PERIOD_S: Final = 3600
MAX_COUNT: Final = 1 << 50
MAX_RATES: Final = 16384  # PULSAR_MAX_RATES, csrc/acceptor/protocols/pulsar/pulsar.h
# struct rate_wish, csrc/acceptor/protocols/pulsar/pulsar_rates.c
_WISH: Final = struct.Struct("=QQQ")

Key: TypeAlias = tuple[str, str]  # the core's name of a topic; what of it


@dataclass(frozen=True, slots=True)
class Rate:
    """So many in a period; 0: any number."""

    messages: int = 0
    bytes: int = 0
    period_s: int = 1


NO_RATE: Final = Rate()


def rate_of(told: Any) -> Rate:  # noqa: ANN401
    """Of what the gateway says: messages, bytes, seconds; nothing: none."""
    if not told:
        return NO_RATE
    messages, count, period_s = (int(number) for number in told)
    if messages <= 0 and count <= 0:
        return NO_RATE
    period_s = min(max(period_s, 1), MAX_PERIOD_S)
    return Rate(min(max(messages, 0), MAX_COUNT), min(max(count, 0), MAX_COUNT), period_s)


class Rates:
    def __init__(self, engine: Engine, protocol: int, desk: Desk) -> None:
        self._engine = engine
        self._protocol = protocol
        self._desk = desk
        self._there: dict[Key, tuple[int, Rate]] = {}
        self._free: list[int] = []
        self._next = 1

    def of_producers(self, topic: TopicName, policies: dict[str, Any]) -> int:
        """The number of the rate of all of a topic's producers; 0: there is none."""
        rate = rate_of((policies.get("publish_messages", 0), policies.get("publish_bytes", 0), 1))
        return self._number((topic.core, "publish"), rate)

    def of_consumers(self, topic: TopicName, subscription: str, policies: dict[str, Any]) -> tuple[int, int]:
        """Of all consumers of the topic, and of those of the subscription."""
        own = policies.get("subscription_rates", {}).get(subscription)
        of_one = rate_of(own or policies.get("subscription_dispatch"))
        return (
            self._number((topic.core, "dispatch"), rate_of(policies.get("dispatch"))),
            self._number((topic.core, f"dispatch/{subscription}"), of_one),
        )

    def _number(self, key: Key, rate: Rate) -> int:
        number, before = self._there.get(key, (0, NO_RATE))
        if rate == before:
            return number
        if rate == NO_RATE:
            del self._there[key]
            self._free.append(number)
            return 0
        number = number or self._new()
        if number == 0:
            return 0
        wish = _WISH.pack(rate.messages, rate.bytes, rate.period_s * SECOND_NS)
        if self._engine.configure(self._protocol, "rate", number, wish) == 0:
            self._free.append(number)
            self._there.pop(key, None)
            return 0
        self._there[key] = number, rate
        return number

    def _new(self) -> int:
        """0: there are as many as there may be. Those of topics that nobody uses here any more go then."""
        if not self._free and self._next >= MAX_RATES:
            for key in [key for key in self._there if not self._desk.used[key[0]]]:
                self._free.append(self._there.pop(key)[0])
        if self._free:
            return self._free.pop()
        if self._next >= MAX_RATES:
            return 0
        self._next += 1
        return self._next - 1
