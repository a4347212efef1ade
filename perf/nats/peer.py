"""The real nats-server."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perf.brokers import START_LIMIT_S, Keeping, Wire, first_line
from perf.nats.wire import WIRE

BUILT: Final = Path(__file__).resolve().parents[2] / "build" / "nats"  # `make` puts it there


@dataclass(frozen=True, slots=True)
class NatsServer:
    """nats-server with its own defaults, and without JetStream: it keeps nothing."""

    program: str = "nats-server"
    name: str = "nats-server"
    protocol: Wire = WIRE
    more: tuple[str, ...] = ()  # options
    start_limit_s: float = START_LIMIT_S

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]:
        return [self.program, "-a", "127.0.0.1", "-p", str(port), *self.more]

    def version(self) -> str:
        return first_line([self.program, "--version"])


def installed() -> NatsServer | None:
    program = nats_server()
    return NatsServer(program) if program else None


def nats_server() -> str | None:
    """Returns the path of a nats-server: named by $NATS_SERVER_BIN, built by make, or installed."""
    for program in (os.environ.get("NATS_SERVER_BIN"), str(BUILT / "nats-server"), "nats-server"):
        if program and (found := shutil.which(program)):
            return found
    return None
