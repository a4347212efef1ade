"""Runs the load generator of beanstalkd's protocol (generator.c)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from perf import load
from perf.load import Latency

PROGRAM: Final = load.Program("load_beanstalk", ("beanstalk/generator.c", *load.GENERATOR))


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """What one run measured in its window. A job is one cycle of put, reserve, delete, or one put without consumers."""

    jobs: int
    seconds: float
    rate: float
    server_cpu_us_per_job: float | None = None  # None if no processes were named
    own_cpu_us_per_job: float
    puts: int
    reserves: int
    deletes: int
    put: Latency | None = None  # put sent to INSERTED
    job: Latency | None = None  # put sent to RESERVED


def run(port: int, arguments: Sequence[str] = (), pids: Sequence[int] = (), limit_s: float = load.GRACE_S) -> Jobs:
    """See perf.load.run."""
    return load.run(PROGRAM, Jobs, port, arguments, pids, limit_s)


def idle_connections(port: int, count: int) -> load.IdleConnections:
    return load.IdleConnections(PROGRAM, port, ("--idle", str(count)))
