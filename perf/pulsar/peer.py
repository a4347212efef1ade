"""A real Pulsar standalone broker, as a product to be compared with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perf.brokers import Keeping, Wire, free_port
from perf.pulsar import standalone
from perf.pulsar.wire import WIRE


@dataclass(frozen=True, slots=True)
class PulsarStandalone:
    """Pulsar's standalone broker with a bookie of its own. It syncs its journal only with SYNCED."""

    name: str = "pulsar"
    protocol: Wire = WIRE
    start_limit_s: float = 120.0

    def command(self, port: int, keeping: Keeping, directory: Path) -> list[str]:
        # Its own defaults for this memory and two cores; the tests use smaller values.
        more = {"managedLedgerCacheSizeMB": "200", "numIOThreads": "4"}
        more["journalSyncData"] = "true" if keeping.sync_always else "false"
        return standalone.command(port, free_port(), directory, more=more)

    def version(self) -> str:
        return f"Pulsar {standalone.VERSION}"


def installed() -> PulsarStandalone | None:
    return PulsarStandalone() if standalone.missing("broker") is None else None
