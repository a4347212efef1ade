"""Leaf nodes that come by websocket: from the acceptor they have come to, which has their frames, to the one that has
leaf nodes.

    door.bring(conn, remote)   a connection whose request was granted: what is in its frames passes on from now on

Owns the relays here. What comes of a connection is the other acceptor's affair.
"""

from __future__ import annotations

from collections.abc import Callable

from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.relay import Relays
from mq_shards.acceptor.upgrade import Upgrades
from mq_shards.acceptor.watched import Watched
from mq_shards.ringbuf.handover import Handover


class LeafDoor:
    def __init__(
        self, engine: Engine, watched: Watched, upgrades: Upgrades, here: Callable[[int, str], None] | None,
        handover: Handover | None,
    ) -> None:  # fmt: skip
        """`here` takes a descriptor where this acceptor has the leaf nodes; else `handover` leads to that one."""
        self._engine, self._here, self._handover = engine, here, handover
        self._relays = Relays(engine, watched, upgrades)

    def bring(self, conn: int, remote: str) -> None:
        """`remote`: the address that it has come from."""
        try:
            far, _, received = self._relays.begin(conn)
        except OSError:
            self._engine.close_connection(conn)  # for want of descriptors: it comes again
            return
        assert not received, "who asks for a websocket says nothing before the answer"
        if self._here is not None:
            self._here(far.detach(), remote)
            return
        with far:
            if self._handover is None or not self._handover.give(far.fileno(), b"", remote.encode()):
                self._engine.close_connection(conn)

    def closed(self, conn: int) -> None:
        self._relays.closed(conn)
