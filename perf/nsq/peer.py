"""The real nsqd, and where it and NSQ's tools are."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perf.brokers import START_LIMIT_S, Keeping, Wire, first_line
from perf.nsq.wire import HTTP, MAX_RDY, WIRE

# `make` puts programs there if it finds none.
BUILT = Path(__file__).resolve().parents[2] / "build" / "nsq"
GO_BIN = Path.home() / "go" / "bin"
MEMORY_MESSAGES: Final = 4_000_000  # for each of these nsqd takes 8 bytes at once, in each topic and channel


@dataclass(frozen=True, slots=True)
class Nsqd:
    """nsqd with its own defaults, but for the largest RDY. Of each topic and channel it keeps up to 10,000 messages in
    memory, and writes any more to its directory, synced every 2,500 messages or 2 s."""

    program: str = "nsqd"
    name: str = "nsqd"
    protocol: Wire = WIRE
    start_limit_s: float = START_LIMIT_S

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]:
        tcp, http = (0, port) if self.protocol == HTTP else (port, 0)
        command = [self.program, "-tcp-address", f"127.0.0.1:{tcp}", "-http-address", f"127.0.0.1:{http}"]
        command += ["-data-path", str(directory), "-max-rdy-count", str(MAX_RDY)]
        if not keeping.on_disk:
            command += ["-mem-queue-size", str(MEMORY_MESSAGES)]
        if keeping.sync_always:
            command += ["-mem-queue-size", "0", "-sync-every", "1"]
        return command

    def version(self) -> str:
        return first_line([self.program, "-version"])


def installed() -> Nsqd | None:
    program = nsq_program("nsqd")
    return Nsqd(program) if program else None


def nsq_program(name: str) -> str | None:
    """Returns the path of nsqd, nsqlookupd, nsqadmin, nsq_stat, ...; None if it is not installed.

    The first of: the directory $NSQ_BIN, build/nsq, $PATH, ~/go/bin.
    """
    places = [os.environ.get("NSQ_BIN", ""), str(BUILT), os.environ.get("PATH", ""), str(GO_BIN)]
    return shutil.which(name, path=os.pathsep.join(place for place in places if place))
