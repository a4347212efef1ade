"""Scenarios of the NSQ protocol, beside the real nsqd. See scenarios.py for how products are compared.

Both brokers keep messages on disk: nsqd those beyond 10,000 of a topic or channel, mq-shards all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from perf import load
from perf.brokers import DISK, Broker, MqShards, Nsqd, Product
from perf.figures import Figures
from perf.scenarios import BODY_BYTES, Measurement, Plan, Scenario, Units, in_turn

BODY: Final = ("--body", str(BODY_BYTES))
FILL: Final = ("--mode", "publish", "--producers", "4", "--batch", "200", "--depth", "4", "--channels", "1", *BODY)
BACKLOG_PER_S: Final = 300_000  # about what nsqd delivers in a second
CONSUMED: Final = 0.9  # share of a backlog: the last messages wait for an output buffer's timeout, not for the broker
BATCH: Final = 200

UNITS: Final[Units] = {
    "rate": ("messages/s", "higher", True),
    "cpu_us_per_message": ("us", "lower", True),
    "publish_p50": ("us", "lower", True),
    "publish_p99": ("us", "lower", True),
    "own_cpu_us_per_message": ("us", "lower", False),  # of the load generator: shows whether it was the limit
}
LATENCY_UNITS: Final[Units] = {
    "rate": ("messages/s", "higher", False),  # the rate is given, not measured
    "message_p50": ("us", "lower", True),
    "message_p99": ("us", "lower", True),
    "message_max": ("us", "lower", False),
    "cpu_us_per_message": ("us", "lower", True),
    "own_cpu_us_per_message": ("us", "lower", False),
}


@dataclass(frozen=True, slots=True)
class Traffic:
    """Puts load on one broker for a time. Targets are ratios to the other product."""

    name: str
    variant: str
    arguments: tuple[str, ...]
    targets: Mapping[str, float]

    def measure(self, plan: Plan) -> Figures:
        def once(product: Product) -> Measurement:
            with Broker(product, DISK, plan.base) as broker:
                result = load.run_nsq(broker.port, (*self.arguments, *_window(plan), *BODY), broker.pids())
            return _measured(plan, product, result)

        return in_turn(plan, self.name, self.variant, once, UNITS, self.targets, limit=plan.limit)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Measures how fast waiting messages are consumed."""

    name: str
    variant: str
    consumers: int
    targets: Mapping[str, float]

    def measure(self, plan: Plan) -> Figures:
        batches = max(int(BACKLOG_PER_S * plan.seconds) // BATCH, 10)
        consume = ("--mode", "consume", "--consumers", str(self.consumers), "--rdy", "1000")
        taken = ("--messages", str(int(batches * CONSUMED) * BATCH))

        def once(product: Product) -> Measurement:
            with Broker(product, DISK, plan.base) as broker:
                load.run_nsq(broker.port, (*FILL, "--messages", str(batches * BATCH)))
                broker.wait_until_quiet()
                result = load.run_nsq(broker.port, (*consume, *taken, *BODY), broker.pids())
            return _measured(plan, product, result)

        return in_turn(plan, self.name, self.variant, once, UNITS, self.targets, limit=plan.limit)


@dataclass(frozen=True, slots=True)
class Latency:
    """Measures the time from when a message is due to be published to its delivery. The rate is half of the highest
    that the last product reaches with the same connections in a closed loop."""

    name: str
    variant: str
    arguments: tuple[str, ...]
    targets: Mapping[str, float]

    def measure(self, plan: Plan) -> Figures:
        arguments = ("--producers", "4", "--consumers", "4", *self.arguments, *_window(plan), *BODY)
        rate = self._highest(plan, arguments) / 2
        # At this depth producers wait only if the broker is far behind.
        paced = (*arguments, "--rate", str(rate), "--depth", "2000")

        def once(product: Product) -> Measurement:
            with Broker(product, DISK, plan.base) as broker:
                result = load.run_nsq(broker.port, paced, broker.pids())
            measured = dict(_measured(plan, product, result))
            latency = result.message
            assert latency is not None  # every message that was delivered has a stamp
            plan.say(f"{'':14}p50 {latency.p50:,.0f} us, p99 {latency.p99:,.0f} us, max {latency.max:,.0f} us")
            return measured | {
                "message_p50": latency.p50, "message_p99": latency.p99, "message_max": latency.max,
            }  # fmt: skip

        return in_turn(plan, self.name, self.variant, once, LATENCY_UNITS, self.targets, limit=plan.limit)

    def _highest(self, plan: Plan, arguments: tuple[str, ...]) -> float:
        plan.say(f"{self.name}, {self.variant}: the highest rate")
        found: list[float] = []
        for _ in range(plan.rounds):
            with Broker(plan.products[-1], DISK, plan.base) as broker:
                result = load.run_nsq(broker.port, (*arguments, "--depth", "64", "--max-ready", "5000"), broker.pids())
            found.append(_measured(plan, plan.products[-1], result)["rate"])
        return max(found)


@dataclass(frozen=True, slots=True)
class Http:
    """Posts to /pub on connections that are kept, each with one request at a time."""

    name: str
    variant: str
    arguments: tuple[str, ...]
    targets: Mapping[str, float]

    def measure(self, plan: Plan) -> Figures:
        def once(product: Product) -> Measurement:
            assert isinstance(product, MqShards | Nsqd)
            with Broker(replace(product, protocol="nsq-http"), DISK, plan.base) as broker:
                result = load.run_http(broker.port, (*self.arguments, *_window(plan), *BODY), broker.pids())
            return _measured(plan, product, result)

        return in_turn(plan, self.name, self.variant, once, UNITS, self.targets)


@dataclass(frozen=True, slots=True)
class Spread:
    """Puts the same load on 8 workers and 4 acceptors, and on one of each: shows what it costs to have more processes
    than the load needs. The ratio is that of the many to the one."""

    name: str
    variant: str
    arguments: tuple[str, ...]

    def measure(self, plan: Plan) -> Figures:
        one = plan.products[0]
        if not isinstance(one, MqShards):
            return {}
        many = replace(one, workers=8, more=(*one.more, "--acceptors", "4"), name="8-and-4")
        one = replace(one, workers=1)

        def once(product: Product) -> Measurement:
            with Broker(product, DISK, plan.base) as broker:
                result = load.run_nsq(broker.port, (*self.arguments, *_window(plan), *BODY), broker.pids())
            return _measured(plan, product, result)

        units = {name: UNITS[name] for name in ("rate", "cpu_us_per_message", "own_cpu_us_per_message")}
        both = replace(plan, products=[many, one])
        return in_turn(both, self.name, self.variant, once, units, {"cpu_us_per_message": 1.2})


def _window(plan: Plan) -> tuple[str, ...]:
    return ("--seconds", str(plan.seconds), "--warmup", str(plan.warmup))


def _measured(plan: Plan, product: Product, result: load.Nsq | load.Http) -> Measurement:
    if result.messages == 0:
        raise load.LoadError(f"{product.name} answered nothing in the window")
    assert result.server_cpu_us_per_message is not None
    measured = {
        "rate": result.rate,
        "cpu_us_per_message": result.server_cpu_us_per_message,
        "own_cpu_us_per_message": result.own_cpu_us_per_message,
    }
    if result.publish is not None:
        measured |= {"publish_p50": result.publish.p50, "publish_p99": result.publish.p99}
    plan.say(
        f"  {product.name:<12}{result.rate:>10,.0f} messages/s {result.server_cpu_us_per_message:>8.2f} us CPU/message"
        f" (load generator: {result.own_cpu_us_per_message:.2f}, {own_share(result):.0%} of a core)"
    )
    return measured


def own_share(result: load.Nsq | load.Http) -> float:
    """Returns how much of one core the load generator used."""
    return result.own_cpu_us_per_message * result.messages / result.seconds / 1e6


MPUB: Final = ("--mode", "publish", "--producers", "4", "--batch", str(BATCH), "--depth", "4")
PUB: Final = ("--mode", "publish", "--batch", "1")
MPUB_CONSUMED: Final = ("--batch", str(BATCH), "--depth", "4", "--max-ready", "20000")
FAN_OUT: Final = ("--producers", "4", "--batch", "20", "--depth", "4", "--max-ready", "5000")
AS_FAST: Final[Mapping[str, float]] = {"rate": 1.0}
THRICE: Final[Mapping[str, float]] = {"rate": 3.0}
THRICE_AND_A_THIRD: Final[Mapping[str, float]] = {"rate": 3.0, "cpu_us_per_message": 1 / 3}

LOADS: Final = (
    Traffic("nsq-mpub", "no channel", (*MPUB, "--channels", "0"), THRICE_AND_A_THIRD),
    Traffic("nsq-mpub-channel", "unread channel", (*MPUB, "--channels", "1"), THRICE_AND_A_THIRD),
    Traffic("nsq-pub", "64 outstanding", (*PUB, "--producers", "4", "--depth", "64"), {"rate": 4.0}),
    Traffic("nsq-pub-wait", "20 connections", (*PUB, "--producers", "20", "--depth", "1"), {"rate": 1.5}),
    Http("nsq-http-pub-one", "1 connection", ("--connections", "1"), AS_FAST),
    Http("nsq-http-pub", "20 connections", ("--connections", "20"), AS_FAST),
    Http("nsq-http-pub-many", "100 connections", ("--connections", "100"), AS_FAST),
    Backlog("nsq-consume", "4 consumers", 4, THRICE),
    Backlog("nsq-consume-one", "1 consumer", 1, THRICE),
    Latency("nsq-latency", "default buffer", (), {"message_p99": 1.0}),
    Latency("nsq-latency-unbuffered", "no buffer", ("--output-buffer", "-1"), {"message_p99": 1.0}),
    Traffic("nsq-channels", "8 channels", (*FAN_OUT, "--channels", "8", "--consumers", "8"), THRICE),
    Spread("nsq-spread-pub", "64 outstanding", (*PUB, "--producers", "8", "--depth", "64")),
    Spread("nsq-spread-mpub", "8 consumers", (*MPUB_CONSUMED, "--producers", "8", "--consumers", "8")),
)

SCENARIOS: Final[Mapping[str, Scenario]] = {each.name: each.measure for each in LOADS}
