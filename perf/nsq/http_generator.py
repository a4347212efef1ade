"""Runs the load generator of nsqd's HTTP API (http_generator.c). A message is one that was answered OK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from perf import load
from perf.load import Messages

PROGRAM: Final = load.Program("load_http", ("nsq/http_generator.c", *load.GENERATOR))


def run(port: int, arguments: Sequence[str] = (), pids: Sequence[int] = (), limit_s: float = load.GRACE_S) -> Messages:
    """See perf.load.run."""
    return load.run(PROGRAM, Messages, port, arguments, pids, limit_s)
