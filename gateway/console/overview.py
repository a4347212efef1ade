"""The broker as a whole: its health, rates, processes, workers, shards and disk."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from mq_shards.acceptor.engine import Engine
from mq_shards.gateway.broker import Broker, worker_title
from mq_shards.gateway.console.figures import SAMPLE_S, Figures, Sample, aside, by_shard
from mq_shards.gateway.processes import processes

DISK_S: Final = 10.0  # how often the sizes of all shards are measured
PROCESSES_S: Final = 1.0
SHARD: Final = "shard-{:04d}"


class Identity(NamedTuple):
    """What does not change while the broker runs."""

    version: str
    broker: str
    started_wall_ns: int
    data_dir: str  # "": messages are in memory only
    sync: str
    addresses: list[str]
    supervisor: int


class Overview:
    def __init__(self, engine: Engine, broker: Broker, figures: Figures, identity: Identity) -> None:
        self._engine = engine
        self._broker = broker
        self._figures = figures
        self._identity = identity
        self._cpu: dict[str, float] = {}
        self._processes: list[dict[str, Any]] = []
        self._processes_at = -PROCESSES_S
        self._disk: dict[str, Any] = {}
        self._disk_at = -DISK_S
        self._looking = asyncio.Lock()

    def health(self) -> dict[str, Any]:
        return {"health": self._broker.health, "draining": self._broker.draining}

    async def json(self, sample: Sample) -> dict[str, Any]:
        figures, totals = self._figures, self._engine.totals()
        shards = await aside(len(sample.rows), by_shard, sample.rows.values(), self._engine.shards)
        async with self._looking:
            used = await self._used()
            disk = await self._sizes()
        missing = set(self._broker.workers.missing)
        silent = self._broker.silent
        workers = [self._worker(worker, worker not in missing, shards, used) for worker in range(self._engine.workers)]
        return {
            **self._identity._asdict(),
            "now_wall_ns": time.time_ns(),
            **self.health(),
            "health": self._broker.health_beside(silent),
            "silent": silent,
            "topics": len(sample.rows),
            "totals": totals._asdict(),
            "rates": {
                "in": round(figures.rate_in, 1),
                "delivered": round(figures.rate_delivered, 1),
                "out": round(figures.rate_out, 1),
            },
            "backlog": int(sum(one[2] for one in shards)),
            "history": {
                "step_s": SAMPLE_S,
                "in": figures.published.values(),
                "delivered": figures.delivered.values(),
                "out": figures.finished.values(),
                "backlog": figures.backlog.values(),
                "connections": figures.connections.values(),
            },
            "workers": workers,
            "processes": used,
            "shards": [
                {"topics": int(one[0]), "in": round(one[1], 1), "backlog": int(one[2]), "bytes": size}
                for one, size in zip(shards, disk.get("shards") or [0] * len(shards), strict=True)
            ],
            "disk": {name: disk[name] for name in ("free", "all", "log") if name in disk},
        }

    def _worker(
        self, worker: int, is_up: bool, shards: Sequence[list[float]], used: list[dict[str, Any]]
    ) -> dict[str, Any]:
        own = [shards[shard] for shard in range(worker, self._engine.shards, self._engine.workers)]
        process = next((one for one in used if one["name"] == worker_title(worker)), {})
        return {
            "worker": worker,
            "up": is_up,
            "shards": len(own),
            "topics": int(sum(one[0] for one in own)),
            "in": round(sum(one[1] for one in own), 1),
            "backlog": int(sum(one[2] for one in own)),
            "cpu": process.get("cpu", 0.0),
            "memory": process.get("memory", 0),
        }

    async def _used(self) -> list[dict[str, Any]]:
        """What the processes use; CPU in percent of a core, since the last time."""
        now = time.monotonic()
        passed = now - self._processes_at
        if passed >= PROCESSES_S:
            found = await asyncio.to_thread(lambda: list(processes(self._identity.supervisor)))
            self._processes = [
                {
                    "name": one.name,
                    "cpu": round(100 * max(0.0, one.cpu_s - self._cpu.get(one.name, one.cpu_s)) / passed, 1),
                    "memory": one.resident_bytes,
                    "files": one.open_files,
                }
                for one in found
            ]
            self._cpu = {one.name: one.cpu_s for one in found}
            self._processes_at = now
        return self._processes

    async def _sizes(self) -> Mapping[str, Any]:
        now = time.monotonic()
        if self._identity.data_dir and now >= self._disk_at + DISK_S:
            self._disk = await asyncio.to_thread(sizes, Path(self._identity.data_dir), self._engine.shards)
            self._disk_at = now
        return self._disk


def sizes(data_dir: Path, shards: int) -> dict[str, Any]:
    """Bytes of the file system, and of each shard's folder."""
    of_shards = [_folder_bytes(data_dir / SHARD.format(shard)) for shard in range(shards)]
    disk = os.statvfs(data_dir)
    return {
        "free": disk.f_bavail * disk.f_frsize,
        "all": disk.f_blocks * disk.f_frsize,
        "log": sum(of_shards),
        "shards": of_shards,
    }


def _folder_bytes(folder: Path) -> int:
    """The bytes that a folder's files take up on disk, which is less than their lengths where they were not written."""
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    total += entry.stat().st_blocks * 512
                except OSError:
                    continue  # retention has removed it meanwhile
    except OSError:
        pass
    return total
