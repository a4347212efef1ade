"""Encrypted connections that another process serves for a while: what is said there passes through here, in the clear
over a socket pair, since the state of TLS cannot go with a socket.

    relays.begin(conn)             the other process's end of the pair, its name, and what has come
    relays.end(name, far, ...)     it gives that end back: the codec goes on

Owns the near ends. Nothing piles up: the client is asked for more when the pair has taken what it said, and the pair is
read while little waits for the client.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable
from typing import Final

from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.upgrade import Upgrades
from mq_shards.acceptor.watched import Watched

READ_BYTES: Final = 64 << 10
AHEAD_BYTES: Final = 128 << 10  # that are read, and have not passed the filter


class Relays:
    def __init__(self, engine: Engine, watched: Watched, upgrades: Upgrades) -> None:
        self._engine = engine
        self._watched = watched
        self._upgrades = upgrades
        self._relays: dict[str, Relay] = {}
        self._names: dict[int, str] = {}

    def begin(self, conn: int) -> tuple[socket.socket, str, bytes]:
        """Of one whose command Python has. OSError when there is no room for it now."""
        near, far = socket.socketpair()
        near.setblocking(False)
        name = secrets.token_hex(8)
        relay = Relay(self._engine, self._watched, conn, near, lambda: self.closed(conn))
        self._relays[name], self._names[conn] = relay, name
        if self._upgrades.relay(conn, relay):
            relay.end_input()
        return far, name, self._engine.take_input(conn)

    def undo(self, name: str, received: bytes) -> None:
        """It could not be given away."""
        relay = self._relays.pop(name)
        del self._names[relay.conn]
        relay.undo(received)
        self._upgrades.relay(relay.conn, None)

    def end(self, name: str, far: socket.socket, received: bytes) -> int | None:
        """`received` has come out of `far`, and is the codec's. The connection, whose command is done; None when it is
        gone. Closes `far`."""
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


class Relay:
    """One of them."""

    def __init__(
        self, engine: Engine, watched: Watched, conn: int, near: socket.socket, over: Callable[[], None]
    ) -> None:
        self.conn: Final = conn
        self.has_ended = False  # the client's side
        self._engine = engine
        self._watched = watched
        self._near = near
        self._over = over
        self._waiting = memoryview(b"")  # for room in the pair
        self._owes_input = False  # the engine waits to be told that what has come is taken,
        self._more = False  # of which there is more
        self._ahead = 0
        self._watches = (False, False)
        self._listen()

    # --- the client -------------------------------------------------------------------------------------------------

    def received(self, plain: bytes, *, more: bool, ended: bool) -> None:
        self._waiting, self._owes_input, self._more = memoryview(plain), True, more
        self.has_ended = self.has_ended or ended
        self._pass_on()

    def left(self, count: int) -> None:
        """Through the filter, towards the client."""
        self._ahead -= count
        self._listen()

    def end_input(self) -> None:
        """All that the client has said is in the pair."""
        self.has_ended = True
        with contextlib.suppress(OSError):
            self._near.shutdown(socket.SHUT_WR)

    def _pass_on(self) -> None:
        try:
            while self._waiting:
                self._waiting = self._waiting[self._near.send(self._waiting) :]
        except BlockingIOError:
            self._listen()
            return
        except OSError:
            self._waiting = memoryview(b"")  # nobody takes it; what was answered before is still to be read
        if self.has_ended:
            self.end_input()
        self._owes_input = False
        self._engine.feed(self.conn, b"", more=self._more)
        self._listen()

    # --- the other process ------------------------------------------------------------------------------------------

    def _ready(self) -> None:
        if self._owes_input:
            self._pass_on()
        if self._ahead < AHEAD_BYTES:
            self._read()

    def _read(self) -> None:
        try:
            data = self._near.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._over()
            self._engine.close_connection(self.conn)
            return
        self._ahead += len(data)
        self._engine.reply(self.conn, data)
        self._listen()

    def _listen(self) -> None:
        """For what there is something to do with: a pair is readable for ever when the other end is gone."""
        watches = (self._ahead < AHEAD_BYTES, bool(self._waiting))
        if watches == self._watches:
            return
        self._watches = watches
        if any(watches):
            self._watched.watch(self._near.fileno(), self._ready, reading=watches[0], writing=watches[1])
        else:
            self._watched.forget(self._near.fileno())

    # --- the end of it ----------------------------------------------------------------------------------------------

    def give_back(self, far: socket.socket, received: bytes) -> None:
        """What is still in the pair goes where it was to go."""
        self._engine.reply(self.conn, _drain(self._near))
        self.undo(received + _drain(far) + bytes(self._waiting))

    def undo(self, received: bytes) -> None:
        self.close()
        self._engine.give_input(self.conn, received)
        if self._owes_input:
            self._engine.feed(self.conn, b"", more=self._more)

    def close(self) -> None:
        if any(self._watches):
            self._watched.forget(self._near.fileno())
        self._near.close()


def _drain(sock: socket.socket) -> bytes:
    """What is there now: no more than the kernel holds for a pair."""
    parts = []
    with contextlib.suppress(OSError):
        while part := sock.recv(READ_BYTES, socket.MSG_DONTWAIT):
            parts.append(part)
    return b"".join(parts)
