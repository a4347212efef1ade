"""Scenarios of Pulsar's binary protocol, beside a real standalone broker. See perf/scenarios.py for how products are
compared.

Both keep their messages on disk and sync them after the receipt. To a broker a topic is what a partition is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from perf.brokers import DISK, MEMORY, Broker, Product
from perf.figures import Figures
from perf.memory_in_use import MemoryInUse
from perf.pulsar import generator
from perf.pulsar.peer import PulsarStandalone
from perf.scenarios import (
    LATENCY_UNITS,
    MESSAGE_UNITS,
    Measurement,
    Plan,
    Scenario,
    Units,
    in_turn,
    measured,
    message_latency,
    once_each,
)

BATCH: Final = 100
RATE: Final = 10_000
BACKLOG_PER_S: Final = 100_000  # bodies of 1 KB: some 100 MB a second
WARMUP_S: Final = 6.0  # a JVM compiles hot code meanwhile
FILL_LIMIT_S: Final = 120.0
TOPICS_PER_CONNECTION: Final = 10

TARGETS: Final[Mapping[str, float]] = {"rate": 5.0, "cpu_us_per_message": 0.1}
MEMORY_TARGET: Final = 4096.0


@dataclass(frozen=True, slots=True)
class Publish:
    """Measures producers whose topics have no consumers."""

    name: str
    variant: str
    arguments: tuple[str, ...]

    def measure(self, plan: Plan) -> Figures:
        arguments = ("--mode", "publish", *self.arguments, "--seconds", str(plan.seconds))

        def once(product: Product) -> Measurement:
            with Broker(product, DISK, plan.base) as broker:
                memory.free()
                result = generator.run(broker.port, (*arguments, *_warmup(plan, product)), broker.pids())
            memory.hold()
            return measured(plan, product, result)

        with MemoryInUse(plan.seconds) as memory:
            return in_turn(plan, self.name, self.variant, once, MESSAGE_UNITS, TARGETS)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Measures how fast waiting messages are consumed."""

    name: str
    variant: str
    consumers: int
    batch: int = 1

    def measure(self, plan: Plan) -> Figures:
        shape = ("--batch", str(self.batch), "--keys", "1000")
        fill = ("--mode", "fill", "--producers", "4", "--depth", "250" if self.batch == 1 else "10", *shape)
        consume = ("--mode", "consume", "--type", self.variant, "--consumers", str(self.consumers), *shape)
        messages = max(int(BACKLOG_PER_S * plan.seconds) // BATCH, 1) * BATCH
        number = ("--messages", str(messages))

        def once(product: Product) -> Measurement:
            with Broker(product, DISK, plan.base) as broker:
                if isinstance(product, PulsarStandalone):  # a first run, for its compiler
                    few = ("--topic", "warm", "--messages", str(messages // 2 // BATCH * BATCH))
                    generator.run(broker.port, (*fill, *few), limit_s=FILL_LIMIT_S)
                    generator.run(broker.port, (*consume, *few), limit_s=FILL_LIMIT_S)
                generator.run(broker.port, (*fill, *number), limit_s=FILL_LIMIT_S)
                broker.wait_until_quiet()
                result = generator.run(broker.port, (*consume, *number), broker.pids(), limit_s=FILL_LIMIT_S)
            return measured(plan, product, result)

        return in_turn(plan, self.name, self.variant, once, MESSAGE_UNITS, TARGETS)


@dataclass(frozen=True, slots=True)
class Latency:
    """Measures the time from when a message is due to be sent to its delivery, at a given rate, or at half of the
    highest that the last product reaches with the same connections in a closed loop."""

    name: str
    variant: str
    arguments: tuple[str, ...]
    rate: float = 0.0
    depth: int = 250  # SENDs outstanding of each producer, in the closed loop

    def measure(self, plan: Plan) -> Figures:
        rate = self.rate or self._highest(plan) / 2
        paced = (*self.arguments, "--depth", "2000", "--rate", str(rate), "--seconds", str(plan.seconds))

        def once(product: Product) -> Measurement:
            with Broker(product, DISK, plan.base) as broker:
                if isinstance(product, PulsarStandalone):
                    # For its compiler: a backlog from before it is fast would stay, as it is slower at reading one.
                    fast = ("--topic", "warm", "--depth", str(self.depth), "--seconds", str(WARMUP_S))
                    generator.run(broker.port, (*self.arguments, *fast))
                result = generator.run(broker.port, (*paced, *_warmup(plan, product)), broker.pids())
            return measured(plan, product, result) | message_latency(plan, result.message)

        targets = {"message_p99": 0.25}
        return in_turn(plan, self.name, self.variant, once, LATENCY_UNITS, targets)

    def _highest(self, plan: Plan) -> float:
        plan.say(f"{self.name}, {self.variant}: the highest rate")
        product = plan.products[-1]
        window = ("--depth", str(self.depth), "--seconds", str(plan.seconds), *_warmup(plan, product))
        with Broker(product, DISK, plan.base) as broker:
            result = generator.run(broker.port, (*self.arguments, *window), broker.pids())
        return measured(plan, product, result)["rate"]


def measure_topics(plan: Plan) -> Figures:
    """Measures what a topic with a producer and a consumer costs in memory, over connections of ten topics each;
    without what the kernel keeps for sockets."""

    def once(product: Product) -> Measurement:
        connections = plan.connections // (10 if isinstance(product, PulsarStandalone) else 1)  # more take too long
        with Broker(product, MEMORY, plan.base) as broker:
            before = broker.memory()
            with generator.idle_connections(broker.port, connections, TOPICS_PER_CONNECTION):
                held = (broker.memory().held - before.held) / (connections * TOPICS_PER_CONNECTION)
        plan.say(f"  {product.name:<12}{held:8.1f} bytes/topic")
        return {"held_per_topic": held}

    units: Units = {"held_per_topic": ("bytes", "lower", True)}
    return in_turn(once_each(plan), "pulsar-topics", MEMORY.name, once, units, {})


def _warmup(plan: Plan, product: Product) -> tuple[str, ...]:
    return ("--warmup", str(WARMUP_S if isinstance(product, PulsarStandalone) else plan.warmup))


def _publish(name: str, variant: str, body: int, batch: int, topics: int) -> Publish:
    # As many outstanding messages over all topics as a client allows by default for one: 1,000.
    depth = {(1, 1): 250, (1, 16): 64, (BATCH, 1): 10, (BATCH, 16): 2}[batch, topics]
    shape = ("--body", str(body), "--batch", str(batch), "--topics", str(topics), "--depth", str(depth))
    return Publish(name, variant, ("--producers", "4", *shape))


LOADS: Final = (
    _publish("pulsar-publish-1k", "1 KB", 1024, 1, 1),
    _publish("pulsar-publish-1k-16", "1 KB, 16 topics", 1024, 1, 16),
    _publish("pulsar-publish-100", "100 B", 100, 1, 1),
    _publish("pulsar-publish-100-16", "100 B, 16 topics", 100, 1, 16),
    _publish("pulsar-batch-1k", "1 KB, batches", 1024, BATCH, 1),
    _publish("pulsar-batch-1k-16", "1 KB, batches, 16 topics", 1024, BATCH, 16),
    _publish("pulsar-batch-100", "100 B, batches", 100, BATCH, 1),
    _publish("pulsar-batch-100-16", "100 B, batches, 16 topics", 100, BATCH, 16),
    Publish("pulsar-publish-wait", "one outstanding", ("--producers", "1", "--depth", "1")),
    Backlog("pulsar-consume", "exclusive", 1),
    Backlog("pulsar-consume-shared", "shared", 4),
    Backlog("pulsar-consume-key-shared", "key-shared", 4),
    Backlog("pulsar-consume-batches", "exclusive", 1, BATCH),
    Latency("pulsar-latency", "10,000/s", ("--producers", "4", "--consumers", "4"), RATE),
    Latency("pulsar-latency-half", "half of the highest", ("--producers", "4", "--consumers", "4")),
    Latency(
        "pulsar-latency-batches",
        "half of the highest, 100 B, batches",
        ("--producers", "4", "--consumers", "4", "--body", "100", "--batch", str(BATCH)),
        depth=10,
    ),
)

SCENARIOS: Final[Mapping[str, Scenario]] = {
    **{each.name: each.measure for each in LOADS},
    "pulsar-topics": measure_topics,
}
