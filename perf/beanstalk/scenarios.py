"""Scenarios of the beanstalkd protocol, beside the real beanstalkd; and of the ring alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from perf import ring
from perf.beanstalk import generator
from perf.beanstalk.wire import with_ready
from perf.brokers import DISK, MEMORY, SYNCED, Broker, Keeping, Product
from perf.figures import Figure, Figures, Name
from perf.scenarios import (
    BODY_BYTES,
    Measurement,
    Plan,
    Scenario,
    Units,
    in_turn,
    once_each,
    window,
    without_limit,
)

FILL: Final = ("--mode", "put-only", "--body", str(BODY_BYTES))
FILL_LIMIT_S: Final = 120.0
RECOVERY_LIMIT_S: Final = 120.0

TRAFFIC_UNITS: Final[Units] = {
    "rate": ("jobs/s", "higher", True),
    "cpu_us_per_job": ("us", "lower", True),
    "put_p50": ("us", "lower", True),
    "put_p99": ("us", "lower", True),
    "put_p999": ("us", "lower", False),
    "job_p50": ("us", "lower", False),  # shows how full the queue was kept more than how fast it is
    "job_p99": ("us", "lower", False),
    "job_p999": ("us", "lower", False),
}


@dataclass(frozen=True, slots=True)
class Traffic:
    """Puts load on one broker for a time. Targets are ratios to the other product."""

    name: str
    keepings: tuple[Keeping, ...]
    arguments: tuple[str, ...]
    targets: Mapping[str, float]
    bare: bool = True  # the bare server can do it

    def measure(self, plan: Plan) -> Figures:
        figures: Figures = {}
        for keeping in self.keepings:
            once = lambda product, keeping=keeping: self._once(plan, product, keeping)  # noqa: E731
            comparable = plan if self.bare and not keeping.sync_always else without_limit(plan)
            figures |= in_turn(comparable, self.name, keeping.name, once, TRAFFIC_UNITS, self.targets)
        return figures

    def _once(self, plan: Plan, product: Product, keeping: Keeping) -> Measurement:
        arguments = (*self.arguments, *window(plan), "--body", str(BODY_BYTES))
        with Broker(product, keeping, plan.base) as broker:
            result = generator.run(broker.port, arguments, broker.pids())
        assert result.server_cpu_us_per_job is not None
        measured = {"rate": result.rate, "cpu_us_per_job": result.server_cpu_us_per_job}
        for name, latency in (("put", result.put), ("job", result.job)):
            if latency is not None:
                measured |= {f"{name}_p50": latency.p50, f"{name}_p99": latency.p99, f"{name}_p999": latency.p999}
        plan.say(
            f"  {product.name:<12}{result.rate:>10,.0f} jobs/s {result.server_cpu_us_per_job:>8.2f} us CPU/job"
            f" (load generator: {result.own_cpu_us_per_job:.2f})"
        )
        return measured


def _connections(producers: int, consumers: int, depth: int, max_ready: int) -> tuple[str, ...]:
    """Keeps the queue small, so that in the window each job costs a put, a reserve and a delete, and no more puts."""
    numbers = {"producers": producers, "consumers": consumers, "depth": depth, "max-ready": max_ready}
    return tuple(word for name, number in numbers.items() for word in (f"--{name}", str(number)))


TRAFFIC: Final = (
    Traffic(
        "pipelined", (DISK, MEMORY), _connections(20, 20, 64, 5000), {"rate": 8.0, "cpu_us_per_job": 1 / 6}
    ),
    Traffic("unpipelined", (DISK, MEMORY), _connections(20, 20, 1, 1000), {"rate": 2.0, "cpu_us_per_job": 0.8}),
    # Workers of Laravel and others ask how often a job was tried.
    Traffic(
        "stats-job", (DISK,), (*_connections(20, 20, 64, 5000), "--stats-job"), {"rate": 8.0, "cpu_us_per_job": 1 / 6},
        bare=False,
    ),
    Traffic("single", (DISK, MEMORY), _connections(1, 1, 1, 100), {"rate": 1.0}),
    Traffic("sync-always", (SYNCED,), _connections(20, 20, 1, 1000), {"rate": 4.0}),
    Traffic("sync-always-puts", (SYNCED,), ("--mode", "put-only", "--producers", "20", "--depth", "1"), {"rate": 4.0}),
)  # fmt: skip


def measure_ring(plan: Plan) -> Figures:
    """Measures the ring alone, without a broker around it."""
    plan.say("ring")
    runs = [ring.run(1) for _ in range(plan.rounds)]
    return {
        Name("ring", "alone", "mq-shards", metric): Figure(tuple(run[metric] for run in runs), unit, "higher")
        for metric, unit in (("records_per_s", "100 B"), ("bytes_per_s", "4 KiB"))
    }


def measure_recovery(plan: Plan) -> Figures:
    """Measures the time from a start after SIGKILL to being served, with jobs on disk; and that of an empty broker."""

    def once(product: Product) -> Measurement:
        broker = Broker(product, DISK, plan.base)
        try:
            empty_s = _start(broker, 0)
            generator.run(broker.port, (*FILL, "--jobs", str(plan.recovery_jobs)), limit_s=FILL_LIMIT_S)
            broker.kill()
            full_s = _start(broker, plan.recovery_jobs)
        finally:
            broker.stop()
        plan.say(f"  {product.name:<12}{full_s:8.2f} s with {plan.recovery_jobs:,} jobs, {empty_s:.2f} s with none")
        rate = plan.recovery_jobs / max(full_s - empty_s, 1e-3)
        return {"start_empty": empty_s, "start_full": full_s, "recovered_per_s": rate}

    units: Units = {
        "start_empty": ("s", "lower", True),
        "start_full": ("s", "lower", True),
        "recovered_per_s": ("jobs/s", "higher", True),
    }
    return in_turn(once_each(plan), "recovery", DISK.name, once, units, {})


def _start(broker: Broker, ready_jobs: int) -> float:
    began = time.monotonic()
    broker.start()
    broker.wait_until_served(with_ready(ready_jobs), RECOVERY_LIMIT_S)
    return time.monotonic() - began


def measure_memory(plan: Plan) -> Figures:
    """Measures what a ready job costs in memory that cannot be reclaimed. Without a directory the body is in that
    memory, and is subtracted; with one, where the body is kept is the broker's own choice."""
    figures: Figures = {}
    for keeping in (DISK, MEMORY):
        bodies = 0 if keeping.on_disk else BODY_BYTES

        def once(product: Product, keeping: Keeping = keeping, bodies: int = bodies) -> Measurement:
            with Broker(product, keeping, plan.base) as broker:
                before = broker.memory()
                generator.run(broker.port, (*FILL, "--jobs", str(plan.memory_jobs)), limit_s=FILL_LIMIT_S)
                after = broker.memory()
            held = (after.held - before.held) / plan.memory_jobs - bodies
            plan.say(f"  {product.name:<12}{held:8.1f} bytes/job{'' if keeping.on_disk else ' beside the body'}")
            return {"held_per_job": held, "mapped_file_per_job": (after.file - before.file) / plan.memory_jobs}

        units: Units = {"held_per_job": ("bytes", "lower", True), "mapped_file_per_job": ("bytes", "lower", False)}
        figures |= in_turn(once_each(plan), "memory", keeping.name, once, units, {})
    return figures


def measure_connections(plan: Plan) -> Figures:
    """Measures what an idle connection costs in memory, without what the kernel keeps for its socket."""

    def once(product: Product) -> Measurement:
        with Broker(product, MEMORY, plan.base) as broker:
            before = broker.memory()
            with generator.idle_connections(broker.port, plan.connections):
                held = (broker.memory().held - before.held) / plan.connections
        plan.say(f"  {product.name:<12}{held:8.1f} bytes/connection")
        return {"held_per_connection": held}

    units: Units = {"held_per_connection": ("bytes", "lower", True)}
    return in_turn(once_each(plan), "connections", MEMORY.name, once, units, {})


SCENARIOS: Final[Mapping[str, Scenario]] = {
    **{traffic.name: traffic.measure for traffic in TRAFFIC},
    "ring": measure_ring,
    "recovery": measure_recovery,
    "memory": measure_memory,
    "connections": measure_connections,
}
