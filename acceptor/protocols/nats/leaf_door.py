"""Leaf nodes on websockets: the acceptor that has accepted one passes it to the acceptor that has all leaf nodes.

    door.give(conn, arrival)    passes on the socket of a leaf node whose request is granted
    door.relay(conn, arrival)   passes on what comes over it, and stays in between

The socket itself is passed on if nothing but frames goes over it. Otherwise this acceptor stays between the leaf node
and the other one, and encrypts, or compresses and makes the frames. Owns these relays. The other acceptor serves the
leaf nodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, NamedTuple

from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.relays import Relays
from mq_shards.acceptor.upgrade import Upgrades
from mq_shards.acceptor.watched import Watched
from mq_shards.csrc._core import lib
from mq_shards.ringbuf.handover import Handover

UNFRAMED: Final = lib.WEBSOCKET_BY_PYTHON  # among the flags: frames are made here, and only their content passes


class Arrival(NamedTuple):
    """How a leaf node has arrived."""

    remote: str  # its address
    flags: int  # how its websocket is served, of enum websocket_flag
    answer: bytes = b""  # to its request, if that was not sent yet

    def packed(self) -> bytes:
        return f"{self.flags} {self.remote}".encode()

    @classmethod
    def of(cls, packed: bytes, answer: bytes) -> Arrival:
        flags, _, remote = packed.decode().partition(" ")
        return cls(remote, int(flags), answer)

    @property
    def is_framed(self) -> bool:
        return not self.flags & UNFRAMED


class LeafDoor:
    def __init__(
        self, engine: Engine, watched: Watched, upgrades: Upgrades, here: Callable[[int, Arrival], None] | None,
        handover: Handover | None,
    ) -> None:  # fmt: skip
        """`here` takes a descriptor if this acceptor has the leaf nodes; otherwise `handover` passes it to that one."""
        self._engine, self._here, self._handover = engine, here, handover
        self._relays = Relays(engine, watched, upgrades)

    def give(self, conn: int, arrival: Arrival) -> bool:
        """Passes on the socket of a connection that is not encrypted, with the answer to its request. False, with
        nothing done, when something that was sent before has not left yet."""
        found = self._engine.socket_of(conn)
        if found is None:
            return False
        fd, received = found
        assert not received, "who asks for a websocket says nothing before the answer"
        try:
            far = os.dup(fd)
        except OSError:
            self._engine.close_connection(conn)  # no descriptors left: the leaf node will connect again
            return True
        if self._pass_on(far, arrival):
            self._engine.forget(conn)
        else:
            self._engine.close_connection(conn)
        return True

    def relay(self, conn: int, arrival: Arrival) -> None:
        """Stays between the leaf node and the acceptor that serves it. The answer to its request was sent."""
        try:
            far, _, received = self._relays.begin(conn)
        except OSError:
            self._engine.close_connection(conn)  # no descriptors left: the leaf node will connect again
            return
        assert not received, "who asks for a websocket says nothing before the answer"
        if not self._pass_on(far.detach(), arrival):
            self._engine.close_connection(conn)

    def _pass_on(self, fd: int, arrival: Arrival) -> bool:
        """Owns `fd` from then on. False when it could not be passed on, and is closed."""
        if self._here is not None:
            self._here(fd, arrival)
            return True
        try:
            return self._handover is not None and self._handover.give(fd, arrival.answer, arrival.packed())
        finally:
            os.close(fd)

    def closed(self, conn: int) -> None:
        self._relays.closed(conn)
