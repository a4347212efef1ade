"""Pulsar's control side as a whole: made by the gateway's process when a listener of Pulsar's is there."""

from __future__ import annotations

from pathlib import Path

from mq_shards.acceptor.engine import Engine
from mq_shards.gateway.calls import AcceptorCalls
from mq_shards.gateway.pulsar.clients import Clients
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import Core
from mq_shards.gateway.pulsar.questions import Questions
from mq_shards.gateway.pulsar.store import Store
from mq_shards.gateway.pulsar.watches import Watches
from mq_shards.gateway.workers import Workers


class PulsarService:
    """To be made where the event loop runs."""

    def __init__(self, engine: Engine, workers: Workers, calls: AcceptorCalls, data_dir: Path | None) -> None:
        self._store = Store(data_dir)
        self._watches = Watches(calls)
        self._control = Control(self._store, Core(engine, workers), Clients(calls))
        self._questions = Questions(self._control, calls, self._watches)

    async def open(self) -> None:
        """Before anything is asked of it."""
        await self._store.open()

    def acceptor_came(self, acceptor: int) -> None:
        """Another process than before."""
        self._watches.forget(acceptor)

    async def close(self) -> None:
        self._watches.close()
        await self._store.close()
