"""The gateway's part for NATS's clients. Any web page may read the monitoring, as with nats-server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mq_shards.gateway.nats.http import MonitoringHttp
from mq_shards.gateway.nats.monitoring import Monitoring
from mq_shards.gateway.nats.system import System
from mq_shards.gateway.part import Part, Shared


class NatsPart(Part):
    name = "nats"

    def __init__(self, shared: Shared) -> None:
        settings = shared.start["settings"]["nats"]
        self._monitoring = Monitoring(
            shared.start, shared.engine, shared.calls, shared.supervisor, shared.reloads.order
        )
        shared.calls.serve("nats.system", System(self._monitoring).answer)
        self._server = MonitoringHttp(self._monitoring, shared.bodies, settings["http-base-path"]).server
        self.servers = {"nats-http": self._server}
        shared.access.gate(self._server, "nats-http", "/healthz")

    def reload(self, settings: Mapping[str, Any]) -> None:
        self._monitoring.reload(settings["nats"])

    async def close(self, timeout_s: float) -> None:
        await self._server.close(timeout_s)
