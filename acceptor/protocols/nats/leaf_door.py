"""Leaf nodes on websockets: the acceptor that has accepted one unpacks its frames, and passes their content to the
acceptor that has all leaf nodes.

    door.bring(conn, remote)   relays a websocket whose request was granted

Owns the relays of this acceptor. The other acceptor serves the leaf nodes.
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
        """`here` takes a descriptor if this acceptor has the leaf nodes; otherwise `handover` passes it to that one."""
        self._engine, self._here, self._handover = engine, here, handover
        self._relays = Relays(engine, watched, upgrades)

    def bring(self, conn: int, remote: str) -> None:
        """Relays a connection. `remote`: the leaf node's address."""
        try:
            far, _, received = self._relays.begin(conn)
        except OSError:
            self._engine.close_connection(conn)  # no descriptors left: the leaf node will connect again
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
