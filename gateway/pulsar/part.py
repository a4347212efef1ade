"""The gateway's part for Pulsar's clients."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from mq_shards.gateway.browsers import Browsers
from mq_shards.gateway.part import Part, Shared
from mq_shards.gateway.pulsar.service import PulsarService


class PulsarPart(Part):
    name = "pulsar"

    def __init__(self, shared: Shared) -> None:
        self._broker_began = not shared.start["again"]
        self._service = service = PulsarService(shared)
        self.servers = {"pulsar-http": service.server}
        hosts = shared.start["settings"]["http"]["hosts"]
        service.server.refusal = Browsers(hosts, reading_from_anywhere=False).refusal
        # It refuses in its own way, and may know clients that are not users.
        shared.access.gate(service.server, "pulsar-http", others=lambda: service.knows_others)

    def work(self) -> Sequence[Coroutine[Any, Any, None]]:
        return [self._service.open(broker_began=self._broker_began)]

    def acceptor_came(self, acceptor: int) -> None:
        self._service.acceptor_came(acceptor)

    def reload(self, settings: Mapping[str, Any]) -> None:
        self._service.reload(settings["pulsar"])

    async def end(self, timeout_s: float) -> None:
        await self._service.close(timeout_s)
