"""What is measured of the NATS protocol, beside the real nats-server. See scenarios.py for how products are compared.

Core NATS keeps nothing, so there is no disk in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from perf import load
from perf.brokers import MEMORY, Broker, Product
from perf.figures import Figures
from perf.scenarios import Measurement, Plan, Scenario, Units, in_turn

PACED_WINDOW: Final = 100_000  # messages: publishers hold nothing back unless the broker is far behind

UNITS: Final[Units] = {
    "rate": ("messages/s", "higher", True),
    "cpu_us_per_message": ("us", "lower", True),
    "own_cpu_us_per_message": ("us", "lower", False),  # of the load generator: see whether it was the limit
}
REQUEST_UNITS: Final[Units] = {
    **UNITS,
    "request_p50": ("us", "lower", True),
    "request_p99": ("us", "lower", False),
}
LATENCY_UNITS: Final[Units] = {
    "rate": ("messages/s", "higher", False),  # given, not found
    "message_p50": ("us", "lower", True),
    "message_p99": ("us", "lower", True),
    "message_max": ("us", "lower", False),
    "cpu_us_per_message": ("us", "lower", True),
    "own_cpu_us_per_message": ("us", "lower", False),
}
# Ratios to nats-server, and to the bare server.
TARGETS: Final[Mapping[str, float]] = {"rate": 2.0, "cpu_us_per_message": 0.5}
LIMIT_TARGETS: Final[Mapping[str, float]] = {"cpu_us_per_message": 2.0}


@dataclass(frozen=True, slots=True)
class Traffic:
    """Load on one broker for a time."""

    name: str
    variant: str
    arguments: tuple[str, ...]
    is_request: bool = False

    def measure(self, plan: Plan) -> Figures:
        def once(product: Product) -> Measurement:
            with Broker(product, MEMORY, plan.base) as broker:
                result = load.run_nats(broker.port, (*self.arguments, *_window(plan)), broker.pids())
            measured = _measured(plan, product, result)
            if self.is_request and (latency := result.latency) is not None:
                measured |= {"request_p50": latency.p50, "request_p99": latency.p99}
            return measured

        units = REQUEST_UNITS if self.is_request else UNITS
        return in_turn(
            plan, self.name, self.variant, once, units, TARGETS, limit=plan.limit, limit_targets=LIMIT_TARGETS
        )


@dataclass(frozen=True, slots=True)
class Latency:
    """From when a message is due to be published to its delivery, at half of the highest rate that the last product
    reaches with the same connections in a closed loop."""

    name: str
    variant: str
    arguments: tuple[str, ...]

    def measure(self, plan: Plan) -> Figures:
        arguments = (*self.arguments, *_window(plan))
        rate = self._highest(plan, arguments) / 2
        paced = (*arguments, "--rate", str(rate), "--window", str(PACED_WINDOW))

        def once(product: Product) -> Measurement:
            with Broker(product, MEMORY, plan.base) as broker:
                result = load.run_nats(broker.port, paced, broker.pids())
            measured = _measured(plan, product, result)
            latency = result.latency
            assert latency is not None  # every message that was delivered has a stamp
            plan.say(f"{'':14}p50 {latency.p50:,.0f} us, p99 {latency.p99:,.0f} us, max {latency.max:,.0f} us")
            return measured | {
                "message_p50": latency.p50, "message_p99": latency.p99, "message_max": latency.max,
            }  # fmt: skip

        return in_turn(
            plan, self.name, self.variant, once, LATENCY_UNITS, {"message_p99": 1.0}, limit=plan.limit
        )  # fmt: skip

    def _highest(self, plan: Plan, arguments: tuple[str, ...]) -> float:
        plan.say(f"{self.name}, {self.variant}: the highest rate")
        found: list[float] = []
        for _ in range(plan.rounds):
            with Broker(plan.products[-1], MEMORY, plan.base) as broker:
                result = load.run_nats(broker.port, arguments, broker.pids())
            found.append(_measured(plan, plan.products[-1], result)["rate"])
        return max(found)


def measure_connections(plan: Plan) -> Figures:
    """What an idle connection costs in memory, without what the kernel keeps for its socket."""
    return _held(plan, "nats-connections", "held_per_connection", plan.connections, 0)


def measure_subscriptions(plan: Plan) -> Figures:
    """What a subscription costs in memory: each of a subject of its own, on four connections."""
    return _held(plan, "nats-subscriptions", "held_per_subscription", 4, plan.subscriptions)


def _held(plan: Plan, name: str, metric: str, connections: int, subscriptions: int) -> Figures:
    def once(product: Product) -> Measurement:
        with Broker(product, MEMORY, plan.base) as broker:
            before = broker.memory()
            with load.IdleConnections(broker.port, connections, "nats", subscriptions):
                held = (broker.memory().held - before.held) / (subscriptions or connections)
        plan.say(f"  {product.name:<12}{held:8.1f} bytes")
        return {metric: held}

    return in_turn(plan, name, MEMORY.name, once, {metric: ("bytes", "lower", True)}, {}, rounds=1)


def _window(plan: Plan) -> tuple[str, ...]:
    return ("--seconds", str(plan.seconds), "--warmup", str(plan.warmup))


def _measured(plan: Plan, product: Product, result: load.Nats) -> dict[str, float]:
    if result.messages == 0:
        raise load.LoadError(f"{product.name} delivered nothing in the window")
    assert result.server_cpu_us_per_message is not None
    plan.say(
        f"  {product.name:<12}{result.rate:>10,.0f} messages/s {result.server_cpu_us_per_message:>8.3f} us CPU/message"
        f" (load generator: {result.own_cpu_us_per_message:.3f}, {own_share(result):.0%} of a core)"
    )
    return {
        "rate": result.rate,
        "cpu_us_per_message": result.server_cpu_us_per_message,
        "own_cpu_us_per_message": result.own_cpu_us_per_message,
    }


def own_share(result: load.Nats) -> float:
    """Of one core, how much the load generator used."""
    return result.own_cpu_us_per_message * result.messages / result.seconds / 1e6


BODY: Final = ("--body", "128")
ASK: Final = ("--mode", "request", *BODY)

LOADS: Final = (
    Traffic("nats-unwanted", "16 B", ("--mode", "publish", "--body", "16")),
    Traffic("nats-one-16", "16 B", ("--body", "16")),
    Traffic("nats-one-128", "128 B", BODY),
    Traffic("nats-one-4096", "4 KB", ("--body", "4096")),
    Traffic("nats-fan-out", "8 subscribers", ("--subscribers", "8", *BODY)),
    Traffic("nats-queue", "8 members", ("--subscribers", "8", "--queue", *BODY)),
    Traffic("nats-request", "1 client", ASK, is_request=True),
    Traffic("nats-request-many", "50 clients", (*ASK, "--publishers", "50"), is_request=True),
    Traffic("nats-subjects", "100,000 subjects", ("--subjects", "100000", *BODY)),
    Latency("nats-latency", "half of the highest rate", BODY),
)

SCENARIOS: Final[Mapping[str, Scenario]] = {
    **{each.name: each.measure for each in LOADS},
    "nats-connections": measure_connections,
    "nats-subscriptions": measure_subscriptions,
}
