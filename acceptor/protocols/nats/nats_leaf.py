"""Leaf nodes of NATS: servers that share one account with this one. Without a listener for them there is nothing here
but a name.

What is rare about them is in leaves.py, which the acceptor that has them loads; docs/leaves.md tells all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import orjson
from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.protocol import Protocol, Settings

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nats.leaves import Leaves


class NatsLeaf(Protocol):
    name = "nats-leaf"
    section = "nats"
    port = 7422
    example = "nc -w 1 {host} {port}"
    meshed = True
    single = True
    usual = False

    @classmethod
    def is_guarded(cls, settings: Settings, content: bytes) -> bool:
        from mq_shards.acceptor.protocols.nats.nats import Nats

        own = settings["leaf-user"] or settings["leaf-nkey"] or settings["leaf-tls-verify"]
        users = orjson.loads(content).get("leaf", {}).get("users") if content else ()
        return bool(own or users) or Nats.is_guarded(settings, content)

    @classmethod
    def leads_to_topics(cls, settings: Settings) -> bool:
        return bool(settings["topics"])

    _leaves: Leaves | None = None
    _others: Mapping[str, Protocol] = {}

    def meet(self, others: Mapping[str, Protocol]) -> None:
        self._others = others

    def listening(self, host: str, port: int) -> None:
        if self._leaves is not None:
            return  # one address is told to leaf nodes
        from mq_shards.acceptor.protocols.nats.leaves import Leaves
        from mq_shards.acceptor.protocols.nats.nats import Nats

        nats = self._others["nats"]
        assert isinstance(nats, Nats)
        self._leaves = Leaves(self._engine, self._settings, self._broker, nats, host, port)

    def reload(self, settings: Settings) -> None:
        self._settings = settings
        if self._leaves is not None:
            self._leaves.reload(settings)

    def users_changed(self) -> None:
        if self._leaves is not None:
            self._leaves.look_again()

    def lame_duck(self) -> None:
        if self._leaves is not None:
            self._leaves.lame_duck()

    def command(self, conn: int, command: bytes) -> None:
        assert self._leaves is not None
        self._leaves.command(conn, command)

    def input(self, conn: int, data: bytes) -> None:
        if self._leaves is not None:
            self._leaves.upgrades.input(conn, data)

    def output(self, conn: int, data: bytes) -> None:
        if self._leaves is not None:
            self._leaves.upgrades.output(conn, data)

    def closed(self, conn: int) -> None:
        if self._leaves is not None:
            self._leaves.closed(conn)

    def wait_ns(self) -> int:
        return self._leaves.wait_ns() if self._leaves is not None else FOREVER

    def expire(self) -> None:
        if self._leaves is not None:
            self._leaves.expire()


PROTOCOL: Final = NatsLeaf
