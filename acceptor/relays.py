"""Encrypted connections that another process serves for a while. Their TLS stays here, since its state cannot be handed
over with the socket: the decrypted bytes pass between the client and the other process through a socket pair.

    relays.begin(conn)             returns the far end for the other process, the relay's name, and the unused input
    relays.end(name, far, ...)     the other process has returned the far end: the codec goes on
"""

from __future__ import annotations

import secrets
import socket

from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.relay import Relay
from mq_shards.acceptor.upgrade import Upgrades
from mq_shards.acceptor.watched import Watched


class Relays:
    def __init__(self, engine: Engine, watched: Watched, upgrades: Upgrades) -> None:
        self._engine = engine
        self._watched = watched
        self._upgrades = upgrades
        self._relays: dict[str, Relay] = {}
        self._names: dict[int, str] = {}

    def begin(self, conn: int) -> tuple[socket.socket, str, bytes]:
        """Starts to relay a connection whose command Python has. OSError when there are no descriptors left."""
        near, far = socket.socketpair()
        near.setblocking(False)
        name = secrets.token_hex(8)
        relay = Relay(self._engine, self._watched, conn, near, lambda: self.closed(conn))
        self._relays[name], self._names[conn] = relay, name
        if self._upgrades.relay(conn, relay):
            relay.end_input()
        return far, name, self._engine.take_input(conn)

    def undo(self, name: str, received: bytes) -> None:
        """Ends a relay whose far end could not be handed over; `received` goes back to the codec's input."""
        relay = self._relays.pop(name)
        del self._names[relay.conn]
        relay.undo(received)
        self._upgrades.relay(relay.conn, None)

    def end(self, name: str, far: socket.socket, received: bytes) -> int | None:
        """Ends a relay; `received` was read from `far` and is input for the codec. Returns the connection (its command
        is done), or None when it has closed. Closes `far`."""
        with far:
            relay = self._relays.pop(name, None)
            if relay is None:
                return None
            del self._names[relay.conn]
            self._upgrades.relay(relay.conn, None)
            relay.give_back(far, received)
            if relay.has_ended:
                self._upgrades.end(relay.conn)
            return relay.conn

    def closed(self, conn: int) -> None:
        name = self._names.pop(conn, None)
        if name is not None:
            self._relays.pop(name).close()
            self._upgrades.relay(conn, None)

    def close(self) -> None:
        for conn in list(self._names):
            self.closed(conn)
