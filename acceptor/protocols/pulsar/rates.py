"""How fast clients may publish to a topic and consume from it, by the policies of the topic and its namespace. Rates
are enforced in C (csrc/acceptor/protocols/pulsar/pulsar_rates.c), over all acceptors: they find a rate on the board by
its key. A rate that is changed gets another key, so it begins anew."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from mq_shards.acceptor.protocols.pulsar.names import TopicName
from mq_shards.ringbuf.time_units import SECOND_NS

MAX_PERIOD_S: Final = 3600
MAX_COUNT: Final = 1 << 50


class Rate(NamedTuple):
    """How many are allowed in a period; 0: any number. `of` names what is limited; empty: nothing is."""

    of: tuple[str, ...] = ()
    messages: int = 0
    body_bytes: int = 0
    period_s: int = 1

    def fields(self) -> dict[str, int]:
        """Those of a struct pulsar_rate."""
        if not self.of:
            return {}
        import hashlib  # most brokers have no rate

        text = repr((self.of, self.messages, self.body_bytes, self.period_s)).encode()
        key = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") or 1
        period_ns = self.period_s * SECOND_NS
        return {"key": key, "messages": self.messages, "bytes": self.body_bytes, "period_ns": period_ns}


NO_RATE: Final = Rate()


def _rate(told: Any, *of: str) -> Rate:  # noqa: ANN401
    """`told`: messages, bytes, seconds, as the gateway has them; empty: there is no rate."""
    if not told:
        return NO_RATE
    messages, count, period_s = (int(number) for number in told)
    if messages <= 0 and count <= 0:
        return NO_RATE
    period_s = min(max(period_s, 1), MAX_PERIOD_S)
    return Rate(of, min(max(messages, 0), MAX_COUNT), min(max(count, 0), MAX_COUNT), period_s)


# The three that hold together for a producer or a consumer.
Rates: TypeAlias = tuple[Rate, Rate, Rate]
NO_RATES: Final[Rates] = (NO_RATE, NO_RATE, NO_RATE)


def rates_of_producers(topic: TopicName, policies: dict[str, Any]) -> Rates:
    """The rates of all producers of a topic together, of those of all topics of its namespace's resource group, and of
    all of the broker."""
    told = policies.get("publish_messages", 0), policies.get("publish_bytes", 0), 1
    group = policies.get("group")
    return (
        _rate(told, topic.core, "publish"),
        _rate((group[1], group[2], 1), "", "group", group[0]) if group else NO_RATE,
        _rate(policies.get("broker_publish"), "", "broker", "publish"),
    )


def rates_of_consumers(topic: TopicName, subscription: str, policies: dict[str, Any]) -> Rates:
    """The rates of all consumers of the topic together, of those of the subscription, and of all of the broker."""
    own = policies.get("subscription_rates", {}).get(subscription)
    return (
        _rate(policies.get("dispatch"), topic.core, "dispatch"),
        _rate(own or policies.get("subscription_dispatch"), topic.core, "dispatch", subscription),
        _rate(policies.get("broker_dispatch"), "", "broker", "dispatch"),
    )
