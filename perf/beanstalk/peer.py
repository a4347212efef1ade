"""The real beanstalkd."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from perf.beanstalk.wire import WIRE
from perf.brokers import START_LIMIT_S, Keeping, Wire, first_line


@dataclass(frozen=True, slots=True)
class Beanstalkd:
    program: str = "beanstalkd"
    name: str = "beanstalkd"
    protocol: Wire = WIRE
    start_limit_s: float = START_LIMIT_S

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]:
        command = [self.program, "-l", "127.0.0.1", "-p", str(port)]
        if keeping.on_disk:
            command += ["-b", str(directory)]  # beanstalkd syncs every 50 ms unless told otherwise
        if keeping.sync_always:
            command += ["-f0"]
        return command

    def version(self) -> str:
        return first_line([self.program, "-v"])


def installed() -> Beanstalkd | None:
    program = shutil.which("beanstalkd")
    return Beanstalkd(program) if program else None
