"""What the scenarios of all protocols share. A scenario runs brokers, puts load on them and returns figures.

A scenario compares products in turn, A B A B ..., each round with brokers started anew in empty directories: a
machine's speed drifts over minutes by more than the differences to be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

from perf.brokers import Product
from perf.figures import LIMIT_RATIO, RATIO, Better, Figure, Figures, Name, ratio
from perf.load import Latency, LoadError, Messages

BODY_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. `products` are ours first, then the one it is compared with, if that is installed. `limit`:
    the bare server, measured beside them where there is load and nothing has to be synced."""

    products: Sequence[Product]
    limit: Product | None
    rounds: int
    seconds: float
    warmup: float
    recovery_jobs: int
    memory_jobs: int
    connections: int
    subscriptions: int
    spark_messages: int
    base: Path | None  # where the brokers' directories go
    say: Callable[[str], None]


Scenario: TypeAlias = Callable[[Plan], Figures]
Measurement: TypeAlias = Mapping[str, float]
Units: TypeAlias = Mapping[str, tuple[str, Better, bool]]  # by metric: unit, better direction, whether it is judged

MESSAGE_UNITS: Final[Units] = {
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


def window(plan: Plan) -> tuple[str, ...]:
    """Returns the options of a load generator that say how long it measures."""
    return ("--seconds", str(plan.seconds), "--warmup", str(plan.warmup))


def measured(plan: Plan, product: Product, result: Messages) -> dict[str, float]:
    """Returns MESSAGE_UNITS of a run. Raises LoadError if there was no message in its window."""
    if result.messages == 0:
        raise LoadError(f"{product.name} answered or delivered nothing in the window")
    assert result.server_cpu_us_per_message is not None
    found = {
        "rate": result.rate,
        "cpu_us_per_message": result.server_cpu_us_per_message,
        "own_cpu_us_per_message": result.own_cpu_us_per_message,
    }
    if result.publish is not None:
        found |= {"publish_p50": result.publish.p50, "publish_p99": result.publish.p99}
    plan.say(
        f"  {product.name:<12}{result.rate:>10,.0f} messages/s {result.server_cpu_us_per_message:>8.3f} us CPU/message"
        f" (load generator: {result.own_cpu_us_per_message:.3f}, {result.own_share:.0%} of a core)"
    )
    return found


def half_of_the_highest(plan: Plan, scenario: str, variant: str, once: Callable[[Product], Messages]) -> float:
    """The rate at which latencies are measured: half of the highest that the last product reaches in a closed loop."""
    plan.say(f"{scenario}, {variant}: the highest rate")
    last = plan.products[-1]
    return max(measured(plan, last, once(last))["rate"] for _ in range(plan.rounds)) / 2


def message_latency(plan: Plan, latency: Latency | None) -> dict[str, float]:
    """Returns what LATENCY_UNITS has of the time to delivery."""
    assert latency is not None  # every message that was delivered has a stamp
    plan.say(f"{'':14}p50 {latency.p50:,.0f} us, p99 {latency.p99:,.0f} us, max {latency.max:,.0f} us")
    return {"message_p50": latency.p50, "message_p99": latency.p99, "message_max": latency.max}


def without_limit(plan: Plan) -> Plan:
    """For what the bare server cannot do."""
    return replace(plan, limit=None)


def once_each(plan: Plan) -> Plan:
    """For what takes long and hardly differs from round to round, as memory does."""
    return replace(plan, limit=None, rounds=1)


def in_turn(
    plan: Plan,
    scenario: str,
    variant: str,
    once: Callable[[Product], Measurement],
    units: Units,
    targets: Mapping[str, float],
    limit_targets: Mapping[str, float] = MappingProxyType({}),
) -> Figures:
    """Measures the products in turn, and adds the ratios of the first to each. Targets are of these ratios;
    `limit_targets` of those to the bare server."""
    plan.say(f"{scenario}, {variant}")
    products = [*plan.products, *([plan.limit] if plan.limit else [])]
    measured: dict[str, list[Measurement]] = {product.name: [] for product in products}
    for _ in range(plan.rounds):
        for product in products:
            measured[product.name].append(once(product))
    figures: Figures = {}
    for metric, (unit, better, judged) in units.items():
        found: dict[str, Figure] = {}
        for who, runs in measured.items():
            values = tuple(run[metric] for run in runs if metric in run)
            if values:
                found[who] = Figure(values, unit, better, judged=judged and who == products[0].name)
                figures[Name(scenario, variant, who, metric)] = found[who]
        ours = found.get(products[0].name)
        for product in products[1:]:
            theirs = found.get(product.name)
            # A figure that is a difference may be negative, and has no ratio then.
            if ours and theirs and all(value > 0 for value in (*ours.rounds, *theirs.rounds)):
                who, wanted = (LIMIT_RATIO, limit_targets) if product is plan.limit else (RATIO, targets)
                figures[Name(scenario, variant, who, metric)] = ratio(ours, theirs, wanted.get(metric))
    return figures
