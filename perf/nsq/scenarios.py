"""Scenarios of the NSQ protocol, beside the real nsqd. See perf/scenarios.py for how products are compared.

Both brokers keep messages on disk: nsqd those beyond 10,000 of a topic or channel, mq-shards all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from perf.brokers import DISK, Broker, MqShards, Product
from perf.figures import Figures
from perf.nsq import generator, http_generator
from perf.nsq.peer import Nsqd
from perf.nsq.wire import HTTP
from perf.scenarios import (
    BODY_BYTES,
    LATENCY_UNITS,
    MESSAGE_UNITS,
    Measurement,
    Plan,
    Scenario,
    half_of_the_highest,
    in_turn,
    measured,
    message_latency,
    window,
    without_limit,
)

BODY: Final = ("--body", str(BODY_BYTES))
FILL: Final = ("--mode", "publish", "--producers", "4", "--batch", "200", "--depth", "4", "--channels", "1", *BODY)
BACKLOG_PER_S: Final = 300_000  # about what nsqd delivers in a second
CONSUMED: Final = 0.9  # share of a backlog: the last messages wait for an output buffer's timeout, not for the broker
BATCH: Final = 200


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
                result = generator.run(broker.port, (*self.arguments, *window(plan), *BODY), broker.pids())
            return measured(plan, product, result)

        return in_turn(plan, self.name, self.variant, once, MESSAGE_UNITS, self.targets)


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
                generator.run(broker.port, (*FILL, "--messages", str(batches * BATCH)))
                broker.wait_until_quiet()
                result = generator.run(broker.port, (*consume, *taken, *BODY), broker.pids())
            return measured(plan, product, result)

        return in_turn(plan, self.name, self.variant, once, MESSAGE_UNITS, self.targets)


@dataclass(frozen=True, slots=True)
class Latency:
    """Measures the time from when a message is due to be published to its delivery. The rate is half of the highest
    that the last product reaches with the same connections in a closed loop."""

    name: str
    variant: str
    arguments: tuple[str, ...]
    targets: Mapping[str, float]

    def measure(self, plan: Plan) -> Figures:
        arguments = ("--producers", "4", "--consumers", "4", *self.arguments, *window(plan), *BODY)

        def unpaced(product: Product) -> generator.Nsq:
            with Broker(product, DISK, plan.base) as broker:
                return generator.run(broker.port, (*arguments, "--depth", "64", "--max-ready", "5000"), broker.pids())

        rate = half_of_the_highest(plan, self.name, self.variant, unpaced)
        # At this depth producers wait only if the broker is far behind.
        paced = (*arguments, "--rate", str(rate), "--depth", "2000")

        def once(product: Product) -> Measurement:
            with Broker(product, DISK, plan.base) as broker:
                result = generator.run(broker.port, paced, broker.pids())
            return measured(plan, product, result) | message_latency(plan, result.message)

        return in_turn(plan, self.name, self.variant, once, LATENCY_UNITS, self.targets)


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
            with Broker(replace(product, protocol=HTTP), DISK, plan.base) as broker:
                result = http_generator.run(broker.port, (*self.arguments, *window(plan), *BODY), broker.pids())
            return measured(plan, product, result)

        return in_turn(without_limit(plan), self.name, self.variant, once, MESSAGE_UNITS, self.targets)


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
                result = generator.run(broker.port, (*self.arguments, *window(plan), *BODY), broker.pids())
            return measured(plan, product, result)

        units = {name: MESSAGE_UNITS[name] for name in ("rate", "cpu_us_per_message", "own_cpu_us_per_message")}
        both = replace(plan, products=[many, one], limit=None)
        return in_turn(both, self.name, self.variant, once, units, {"cpu_us_per_message": 1.2})


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
