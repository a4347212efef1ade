"""The bare server (bare.c), built with all protocols."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perf import load
from perf.brokers import START_LIMIT_S, Keeping, Wire
from perf.table import MEASURED

SOURCES: Final = tuple(name for each in MEASURED.values() for name in each.bare)
PROGRAM: Final = load.Program("bare", ("bare.c", "measure.c", *SOURCES))


@dataclass(frozen=True, slots=True)
class Bare:
    """The least that a server can do: no broker can be cheaper. It keeps nothing on disk, and nothing of what is in
    flight."""

    protocol: Wire
    name: str = "bare"
    start_limit_s: float = START_LIMIT_S

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]:
        return [str(load.build(PROGRAM)), self.protocol.name, str(port)]

    def version(self) -> str:
        return "of this checkout"
