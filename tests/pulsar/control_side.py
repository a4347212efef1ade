"""The catalog's side without processes around it: what acceptors ask, what they are told, and small peers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import orjson
from mq_shards.gateway.catalog import DURABLE, Channel
from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.pulsar.clients import Connected
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.core import Core, NoSubscriptionError
from mq_shards.gateway.pulsar.questions import Questions
from mq_shards.gateway.pulsar.roles import Roles
from mq_shards.gateway.pulsar.store import Store
from mq_shards.gateway.pulsar.transactions import Coordinator
from mq_shards.gateway.pulsar.watches import Watches

T = "persistent://public/default/"


class SmallCore:
    """What workers have."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.keeping: set[str] = set()
        self.begun: list[tuple[str, str, int]] = []
        self.consumers = 0  # of each subscription

    async def make(self, topic: str) -> int:
        self.topics.add(topic)
        return 1

    async def delete(self, topic: str) -> bool:
        self.topics.discard(topic)
        return True

    async def figures(self, topic: str) -> Figures | None:
        if topic not in self.topics:
            return None
        channels = [Channel(n, 0, self.consumers, *[0] * 6) for of, n, _ in self.begun if of == topic]
        return Figures(topic, DURABLE, 0, 0, 0, 0, channels)

    async def position(self, topic: str, subscription: str = "") -> None:
        if not any((of, name) == (topic, subscription) for of, name, _ in self.begun):
            raise NoSubscriptionError

    async def names(self, *, tubes: bool = True) -> list[str]:
        return sorted(self.topics)

    async def begin_subscription(self, topic: str, name: str, start: int, at: int = 0) -> None:
        self.begun.append((topic, name, start))


class SmallClients:
    def __init__(self) -> None:
        self.connected: dict[str, Connected] = {}

    async def of(self, topics: list[str]) -> dict[str, Connected]:
        return {topic: self.connected.get(topic, Connected()) for topic in topics}

    async def close(self, topics: list[str], subscription: str | None = None) -> int:
        return sum(self.connected.pop(topic, None) is not None for topic in topics)


class SmallCalls:
    """The gateway's ends: what is served, and what was told."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[int, bytes], Awaitable[bytes]]] = {}
        self.told: list[tuple[str, Any]] = []
        self.ends = [self]

    def serve(self, what: str, handler: Callable[[int, bytes], Awaitable[bytes]]) -> None:
        self.handlers[what] = handler

    def tell(self, what: str, body: bytes) -> None:
        self.told.append((what, orjson.loads(body)))

    def tell_lost(self) -> None:
        self.told.append(("lost", None))


class Side:
    """The control side without processes around it."""

    def __init__(self, data_dir: Path | None) -> None:
        self.core, self.clients, self.calls = SmallCore(), SmallClients(), SmallCalls()
        self.store = Store(data_dir)
        self.watches = Watches(cast(Any, self.calls))
        self.control = Control(self.store, cast(Core, self.core), cast(Any, self.clients))
        settings = {"authorization-enabled": False, "super-user-roles": [], "proxy-roles": []}
        roles = Roles(settings, lambda: self.store.catalog, lambda: None)
        Questions(self.control, cast(Any, self.calls), self.watches, roles, Coordinator(self.control))

    async def ask(self, what: str, **fields: object) -> Any:  # noqa: ANN401
        if what == "open":
            fields = {"action": "produce", **fields}
        return orjson.loads(await self.calls.handlers[f"pulsar.{what}"](0, orjson.dumps(fields)))


Run = Callable[[Callable[[Side], Awaitable[None]]], None]


def around(test: Callable[[Side], Awaitable[None]], data_dir: Path | None) -> None:
    async def run() -> None:
        side = Side(data_dir)
        await side.store.open()
        try:
            await test(side)
        finally:
            side.watches.close()
            side.control.schema_checks.close()
            await side.store.close()

    asyncio.run(run())


def schema(fields: str, kind: str = "AVRO") -> dict[str, Any]:
    text = f'{{"type": "record", "name": "R", "fields": [{fields}]}}'
    return {"type": kind, "name": "R", "data": base64.b64encode(text.encode()).decode(), "properties": {}}


A = '{"name": "a", "type": "int"}'


B = '{"name": "b", "type": ["null", "string"], "default": null}'


C = '{"name": "c", "type": "string"}'
