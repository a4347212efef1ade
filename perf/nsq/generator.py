"""Runs the load generator of the NSQ protocol (generator.c)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from perf import load
from perf.load import Latency, Messages

PROGRAM: Final = load.Program("load_nsq", ("nsq/generator.c", *load.GENERATOR))


@dataclass(frozen=True, slots=True, kw_only=True)
class Nsq(Messages):
    """A message is one delivery that was finished, or one message published without consumers."""

    published: int
    finished: int
    redelivered: int
    message: Latency | None = None  # message sent, or due in an open loop, to delivery


def run(port: int, arguments: Sequence[str] = (), pids: Sequence[int] = (), limit_s: float = load.GRACE_S) -> Nsq:
    """See perf.load.run."""
    return load.run(PROGRAM, Nsq, port, arguments, pids, limit_s)
