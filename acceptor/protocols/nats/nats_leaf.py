"""Leaf nodes of NATS: servers that share one account with this one, and connect to it, or are its hubs, to which it
connects. Without a listener for them and without hubs this does nothing.

Their rare commands are handled by leaves.py and hubs.py, which only one acceptor loads; docs/leaves.md has an overview.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson
from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.protocol import Protocol, Settings

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nats.hubs import Hubs
    from mq_shards.acceptor.protocols.nats.leaf_door import LeafDoor
    from mq_shards.acceptor.protocols.nats.leaves import Leaves
    from mq_shards.acceptor.protocols.nats.serving import NatsServing
    from mq_shards.acceptor.upgrade import Upgrades
    from mq_shards.ringbuf.handover import Handover

    Half: TypeAlias = Leaves | Hubs

THE_FIRST: Final = 0  # the acceptor that has all leaf nodes and hubs, as it has all routes


class NatsLeaf(Protocol):
    name = "nats-leaf"
    section = "nats"
    port = 7422
    example = "nc -w 1 {host} {port}"
    meshed = True
    single = True
    comes_by_others = True
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

    @classmethod
    def acts_by_itself(cls, settings: Settings) -> bool:
        return bool(settings["leaf-remotes"])

    _leaves: Leaves | None = None
    _hubs: Hubs | None = None
    _nats: NatsServing | None = None
    _is_serving = False
    _to_first: Handover | None = None
    _from_others: tuple[Handover, ...] = ()

    def meet(self, others: Mapping[str, Protocol]) -> None:
        from mq_shards.acceptor.protocols.nats.serving import NatsServing

        found = others.get("nats")
        self._nats = found if isinstance(found, NatsServing) else None
        if self._nats is not None:
            self._nats.leaf_door = self.door

    def hand_over_by(self, handover: Handover) -> None:
        if self._broker.acceptor != THE_FIRST:
            self._to_first = handover
            return
        assert self._broker.watched is not None
        self._from_others = (*self._from_others, handover)
        self._broker.watched.watch(handover.fileno(), partial(self._take, handover))

    def _take(self, handover: Handover) -> None:
        if (found := handover.take()) is None:
            return
        sock, answer, arrival = found
        if self._leaves is None:
            sock.close()
        else:
            from mq_shards.acceptor.protocols.nats.leaf_door import Arrival

            self._leaves.arrived(sock.detach(), Arrival.of(arrival, answer))

    def door(self, upgrades: Upgrades) -> LeafDoor | None:
        """Makes the door for leaf nodes on websockets; None when leaf nodes cannot connect."""
        if self._leaves is None and self._to_first is None:
            return None
        from mq_shards.acceptor.protocols.nats.leaf_door import LeafDoor

        assert self._broker.watched is not None
        here = self._leaves.arrived if self._leaves is not None else None
        return LeafDoor(self._engine, self._broker.watched, upgrades, here, self._to_first)

    def listening(self, host: str, port: int) -> None:
        if self._leaves is not None:
            return  # leaf nodes are told only one address
        from mq_shards.acceptor.protocols.nats.leaves import Leaves

        assert self._nats is not None
        self._leaves = Leaves(
            self._engine, self._settings, self._broker, self._nats, self._hub_accounts, host, port
        )  # fmt: skip
        self._nats.leaves = self

    def serving(self) -> None:
        self._is_serving = True
        self._look_for_hubs()
        nats = self._nats
        if self._hubs is not None and nats is not None and not nats.shown_cluster():
            # As with nats-server, a leaf node without a cluster is one by itself, if the server was given a name.
            name = self._settings["server-name"]
            nats.cluster_changed((), (), name, met=False, others=False, jetstream=False, leaf_urls=())

    def _look_for_hubs(self) -> None:
        """Creates `_hubs` when hubs are configured for the first time."""
        nats = self._nats
        if self._hubs is not None or nats is None or not self._is_serving or self._broker.acceptor != THE_FIRST:
            return
        if not self._settings["leaf-remotes"] and not nats.leaf_content.get("remotes"):
            return
        from mq_shards.acceptor.protocols.nats.hubs import Hubs

        self._hubs = Hubs(self._engine, self._settings, self._broker, nats, self._clusters)
        nats.leaves = self

    def _clusters(self) -> set[tuple[str, str]]:
        return self._leaves.clusters() if self._leaves is not None else set()

    def _hub_accounts(self) -> list[str]:
        return self._hubs.accounts() if self._hubs is not None else []

    def _halves(self) -> list[Half]:
        return [half for half in (self._leaves, self._hubs) if half is not None]

    def _half_of(self, conn: int) -> Half | None:
        return self._hubs if self._hubs is not None and self._hubs.has(conn) else self._leaves

    # --- what the supervisor says -----------------------------------------------------------------------------------

    def reload(self, settings: Settings) -> None:
        self._settings = settings
        for half in self._halves():
            half.reload(settings)
        self._look_for_hubs()

    def lame_duck(self) -> None:
        for half in self._halves():
            half.lame_duck()

    def parting(self) -> None:
        for half in self._halves():
            half.parting()

    def close(self) -> None:
        if self._hubs is not None:
            self._hubs.close()
        for handover in (*self._from_others, self._to_first):
            if handover is not None:
                handover.close()

    # --- LeafNodes --------------------------------------------------------------------------------------------------

    @property
    def own_urls(self) -> tuple[str, ...]:
        return self._leaves.own_urls if self._leaves is not None else ()

    def look_again(self) -> None:
        if self._leaves is not None:
            self._leaves.look_again()

    def kick(self, cid: int) -> bool:
        return any(half.kick(cid) for half in self._halves())

    def rows(self) -> list[dict[str, Any]]:
        return [row for half in self._halves() for row in half.rows()]

    def shown(self) -> dict[str, Any]:
        return {name: value for half in self._halves() for name, value in half.shown().items()}

    # --- what the engine says ---------------------------------------------------------------------------------------

    def command(self, conn: int, command: bytes) -> None:
        half = self._half_of(conn)
        assert half is not None
        half.command(conn, command)

    def input(self, conn: int, data: bytes) -> None:
        if (half := self._half_of(conn)) is not None:
            half.input(conn, data)

    def output(self, conn: int, data: bytes) -> None:
        if (half := self._half_of(conn)) is not None:
            half.output(conn, data)

    def last_words(self, conn: int, words: bytes) -> None:
        """`words`: figures, with subscriptions or with why input could not be decompressed."""
        from mq_shards.acceptor.protocols.nats.monitor import DAMAGED, FIGURES_BYTES, LOOPED, figures_of

        half = self._half_of(conn)
        if half is None:
            return
        (figures,) = figures_of(words[:FIGURES_BYTES])
        if figures.reason == DAMAGED:
            half.damaged(conn, words[FIGURES_BYTES:].decode())
            words = words[:FIGURES_BYTES]
        elif figures.reason == LOOPED and half is self._hubs:
            self._hubs.looped(conn)
        half.ended(conn, words)

    def closed(self, conn: int) -> None:
        if (half := self._half_of(conn)) is not None:
            half.closed(conn)

    def poked(self) -> None:
        if self._hubs is not None:
            self._hubs.poked()

    def wait_ns(self) -> int:
        if self._nats is not None and self._halves() and self._nats.admission.has_reshared():
            return 0
        waits = [wait for half in self._halves() if (wait := half.wait_ns()) != FOREVER]
        return min(waits, default=FOREVER)

    def expire(self) -> None:
        for half in self._halves():
            half.expire()
        if self._nats is None or not self._halves() or not self._nats.admission.has_reshared():
            return
        accounts = self._nats.admission.reshared()
        for half in self._halves():
            half.shares_changed(accounts)


PROTOCOL: Final = NatsLeaf
