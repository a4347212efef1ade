"""An encrypted connection that another process serves for a while: decrypted bytes between the client and that process.

Owns the near end of the pair. Nothing piles up: more input is read from the client only when the pair has taken the
last, and the pair is read only while little output waits for the client.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Final

from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.watched import Watched

READ_BYTES: Final = 64 << 10
AHEAD_BYTES: Final = 128 << 10  # bytes read from the pair that have not passed the filter yet


class Relay:
    def __init__(
        self, engine: Engine, watched: Watched, conn: int, near: socket.socket, over: Callable[[], None]
    ) -> None:
        self.conn: Final = conn
        self.has_ended = False  # the client has hung up
        self._engine = engine
        self._watched = watched
        self._near = near
        self._over = over
        self._waiting = memoryview(b"")  # client input that did not fit into the pair yet
        self._owes_input = False  # the engine has not been told yet that its last input was used,
        self._more = False  # and the filter can make more of that input
        self._ahead = 0
        self._watches = (False, False)
        self._listen()

    # --- the client -------------------------------------------------------------------------------------------------

    def received(self, plain: bytes, *, more: bool, ended: bool) -> None:
        self._waiting, self._owes_input, self._more = memoryview(plain), True, more
        self.has_ended = self.has_ended or ended
        self._pass_on()

    def left(self, count: int) -> None:
        """`count` bytes of output have passed the filter on their way to the client."""
        self._ahead -= count
        self._listen()

    def end_input(self) -> None:
        """All input of the client is in the pair: shuts down this direction."""
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
            self._waiting = memoryview(b"")  # the far end is closed; what it wrote before can still be read
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
        """Watches only for events that can be handled now: once the far end is closed, the pair is always readable."""
        watches = (self._ahead < AHEAD_BYTES, bool(self._waiting))
        if watches == self._watches:
            return
        self._watches = watches
        if any(watches):
            self._watched.watch(self._near.fileno(), self._ready, reading=watches[0], writing=watches[1])
        else:
            self._watched.forget(self._near.fileno())

    # --- ending -----------------------------------------------------------------------------------------------------

    def give_back(self, far: socket.socket, received: bytes) -> None:
        """Moves what is left in the pair on: output to the client, input to the codec."""
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
    """Reads what the socket holds now, which is at most the kernel's buffer of a pair."""
    parts = []
    with contextlib.suppress(OSError):
        while part := sock.recv(READ_BYTES, socket.MSG_DONTWAIT):
            parts.append(part)
    return b"".join(parts)
