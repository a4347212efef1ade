"""Runs the load generator of Pulsar's binary protocol (generator.c)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from perf import load
from perf.load import Latency, Messages

FRAMES: Final = ("pulsar/block.c", "pulsar/frames.c")
PROGRAM: Final = load.Program("load_pulsar", ("pulsar/generator.c", *FRAMES, *load.GENERATOR, "../csrc/base/crc32c.c"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulsar(Messages):
    """A message is one that was delivered and acknowledged, or one that got a receipt without consumers."""

    published: int
    consumed: int
    redelivered: int
    message: Latency | None = None  # message sent, or due in an open loop, to delivery


def run(port: int, arguments: Sequence[str] = (), pids: Sequence[int] = (), limit_s: float = load.GRACE_S) -> Pulsar:
    """See perf.load.run."""
    return load.run(PROGRAM, Pulsar, port, arguments, pids, limit_s)


def idle_connections(port: int, count: int, topics: int = 1) -> load.IdleConnections:
    """Connections that have introduced themselves, with a producer and a consumer on each of so many topics of their
    own."""
    return load.IdleConnections(PROGRAM, port, ("--mode", "idle", "--producers", str(count), "--topics", str(topics)))
