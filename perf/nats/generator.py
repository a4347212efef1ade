"""Runs the load generator of the NATS protocol (generator.c)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from perf import load
from perf.load import Latency, Messages

PROGRAM: Final = load.Program("load_nats", ("nats/generator.c", *load.GENERATOR))


@dataclass(frozen=True, slots=True, kw_only=True)
class Nats(Messages):
    """A message is one delivery, one request that was answered, or one message published that nobody wants."""

    published: int
    delivered: int
    latency: Latency | None = None  # from sending (in an open loop: from when it is due) to delivery, or to the answer


def run(port: int, arguments: Sequence[str] = (), pids: Sequence[int] = (), limit_s: float = load.GRACE_S) -> Nats:
    """See perf.load.run."""
    return load.run(PROGRAM, Nats, port, arguments, pids, limit_s)


def idle_connections(port: int, count: int, subscriptions: int = 0) -> load.IdleConnections:
    """Connections that have introduced themselves, and have subscribed to so many subjects together."""
    arguments = ("--mode", "idle", "--subscribers", str(count), "--subscriptions", str(subscriptions))
    return load.IdleConnections(PROGRAM, port, arguments)
