"""Routes of NATS: connections between the servers of a cluster. Without a listener for them this does nothing.

Their rare commands are handled by routing.py, which only the acceptor with routes loads; docs/clusters.md has an
overview.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.protocol import Protocol, Settings

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nats.routing import Routing


class NatsRoute(Protocol):
    name = "nats-route"
    section = "nats"
    port = 6222
    example = "nc -w 1 {host} {port}"
    meshed = True
    single = True
    usual = False

    @classmethod
    def is_guarded(cls, settings: Settings, content: bytes) -> bool:
        return bool(settings["cluster-user"] or settings["cluster-tls-cert-file"])

    @classmethod
    def leads_to_topics(cls, settings: Settings) -> bool:
        return bool(settings["topics"])

    _routing: Routing | None = None
    _others: Mapping[str, Protocol] = {}

    def meet(self, others: Mapping[str, Protocol]) -> None:
        self._others = others

    def listening(self, host: str, port: int) -> None:
        if self._routing is not None:
            return  # one address is enough for other servers
        from mq_shards.acceptor.protocols.nats.routing import Routing
        from mq_shards.acceptor.protocols.nats.serving import NatsServing

        found = self._others.get("nats")
        nats = found if isinstance(found, NatsServing) else None
        self._routing = Routing(self._engine, self._settings, self._broker, nats, host, port, self.refuse_login)

    def routes(self) -> list[dict[str, Any]]:
        """The rows of /routez, of this acceptor."""
        return self._routing.routes() if self._routing is not None else []

    def reload(self, settings: Settings) -> None:
        self._settings = settings
        if self._routing is not None:
            self._routing.reload(settings)

    def lame_duck(self) -> None:
        if self._routing is not None:
            self._routing.lame_duck()

    def parting(self) -> None:
        if self._routing is not None:
            self._routing.parting()

    def close(self) -> None:
        if self._routing is not None:
            self._routing.close()

    def command(self, conn: int, command: bytes) -> None:
        assert self._routing is not None
        self._routing.command(conn, command)

    def input(self, conn: int, data: bytes) -> None:
        if self._routing is not None:
            self._routing.input(conn, data)

    def output(self, conn: int, data: bytes) -> None:
        if self._routing is not None:
            self._routing.output(conn, data)

    def last_words(self, conn: int, words: bytes) -> None:
        if self._routing is not None:
            self._routing.damaged(conn, words.decode())

    def closed(self, conn: int) -> None:
        if self._routing is not None:
            self._routing.closed(conn)

    def poked(self) -> None:
        if self._routing is not None:
            self._routing.poked()

    def wait_ns(self) -> int:
        return self._routing.wait_ns() if self._routing is not None else FOREVER

    def expire(self) -> None:
        if self._routing is not None:
            self._routing.expire()


PROTOCOL: Final = NatsRoute
