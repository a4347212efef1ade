"""Connections to a listener for websockets before their first frame: perhaps TLS, then an HTTP request.

    websockets.opened(conn)     a new, filtered connection, whose command Python has until it is `upgraded` or closed
    websockets.upgrades         for the upcalls of such connections

After that the engine handles frames (csrc/acceptor/framing.c), except compressed ones, which pass through Python
(acceptor/filters/websocket.py). Requests are answered as by nats-server.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from mq_shards.acceptor.engine import FOREVER, Engine
from mq_shards.acceptor.filters.websocket import PythonWebsocket
from mq_shards.acceptor.protocols.nats.greeting import HANDSHAKE_BYTE
from mq_shards.acceptor.protocols.nats.leaf_door import UNFRAMED, Arrival
from mq_shards.acceptor.protocols.nats.websocket_options import PREFIX, tls_settings
from mq_shards.acceptor.protocols.nats.websocket_upgrade import (
    BROWSER_FRAME_BYTES,
    FRAME_BYTES,
    MAX_HEAD_BYTES,
    Terms,
    Upgraded,
    UpgradeError,
    too_large,
    upgrade,
)
from mq_shards.acceptor.upgrade import Upgrades
from mq_shards.csrc._core import lib

if TYPE_CHECKING:
    from mq_shards.acceptor.filters.tls import VerifyingTls
    from mq_shards.acceptor.protocols.nats.leaf_door import LeafDoor
    from mq_shards.acceptor.protocols.nats.tls import TlsTerms


class Handshake:
    """A filter that waits for a request, and then passes data through the websocket that it led to, if any."""

    def __init__(self, asked: Callable[[bytes | None], PythonWebsocket | bool | None]) -> None:
        """`asked` is called with the head of a request, or None when it is too long. It returns the filter for frames,
        None for no filter, or False to wait for another request."""
        self._asked = asked
        self._head = b""
        self._done = False
        self.websocket: PythonWebsocket | None = None

    @property
    def ended(self) -> bool:
        return self.websocket is not None and self.websocket.ended

    @property
    def pending(self) -> bool:
        return self.websocket is not None and self.websocket.pending

    def decode(self, data: bytes) -> bytes:
        if self._done:
            return data if self.websocket is None else self.websocket.decode(data)
        self._head += data
        while not self._done:
            head, end, rest = self._head.partition(b"\r\n\r\n")
            if not end and len(head) <= MAX_HEAD_BYTES:
                return b""
            self._head = rest
            found = self._asked(head if end else None)
            self._done = found is not False
            self.websocket = found if isinstance(found, PythonWebsocket) else None
        return b""

    @property
    def has_more(self) -> bool:
        """Whether data followed the request before it was answered."""
        return bool(self._head)

    def encode(self, data: bytes) -> bytes:
        return data if self.websocket is None else self.websocket.encode(data)


class MayEncrypt(Upgrades):
    """Upgrades where TLS is optional: a connection's first byte decides."""

    def __init__(self, decided: Callable[[int, bool], None], *args: Any) -> None:  # noqa: ANN401
        """`decided` is told whether a connection begins with a handshake; its first bytes are used afterwards."""
        super().__init__(*args)
        self._decided = decided
        self._undecided: set[int] = set()

    def wait_for(self, conn: int) -> None:
        self._undecided.add(conn)

    def input(self, conn: int, data: bytes) -> bool:
        if conn in self._undecided and data:
            self._undecided.discard(conn)
            self._decided(conn, data[0] == HANDSHAKE_BYTE)
        return super().input(conn, data)

    def closed(self, conn: int) -> None:
        self._undecided.discard(conn)
        super().closed(conn)


class Websockets:
    def __init__(
        self,
        engine: Engine,
        settings: Mapping[str, Any],
        upgraded: Callable[[int, Upgraded], None],
        leaf_door: Callable[[Upgrades], LeafDoor | None] = lambda upgrades: None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`upgraded` is called when a request was granted: output is in frames from then on, and the codec gets input
        when it returns. For a leaf node it must call bring(), which also answers the request. `leaf_door` makes the
        door for leaf nodes, or returns None when they cannot connect."""
        self.upgrades: Final = MayEncrypt(self._decided, engine, self._shaken, self._refused, now_ns)
        self._engine = engine
        self._upgraded, self._leaf_door = upgraded, leaf_door
        self._door: LeafDoor | None = None
        self._now_ns = now_ns
        self._handshakes: dict[int, Handshake] = {}
        self._waiting: dict[int, int] = {}  # deadlines for the request
        self._deadlines: list[tuple[int, int]] = []
        self.tls: TlsTerms | None = None
        self.configure(settings)

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Sets what new connections use."""
        self._timeout_ns: int = settings["websocket-handshake-timeout"]
        self.tls = None
        if settings["websocket-tls-cert-file"]:
            from mq_shards.acceptor.protocols.nats import tls as nats_tls

            self.tls = nats_tls.terms(tls_settings(settings), PREFIX)
        self._terms = Terms(
            encrypted=False,  # set for each connection
            takes_leaves=False,  # set for each connection
            same_origin=settings["websocket-same-origin"],
            allowed_origins=tuple(settings["websocket-allowed-origins"]),
            compression=settings["websocket-compression"],
            headers=tuple(settings["websocket-headers"]),
        )

    def opened(self, conn: int) -> None:
        self.upgrades.adopt(conn)
        until_ns = self._now_ns() + self._timeout_ns
        self._waiting[conn] = until_ns
        heapq.heappush(self._deadlines, (until_ns, conn))
        if self.tls is None:
            self._expect_request(conn)
        elif self.tls.required:
            self.upgrades.shake_hands(conn, self.tls.make(), self._timeout_ns)
        else:
            self.upgrades.wait_for(conn)

    def _decided(self, conn: int, encrypts: bool) -> None:
        # If TLS was turned off meanwhile, the handshake is answered as a malformed request.
        if encrypts and self.tls is not None:
            self.upgrades.shake_hands(conn, self.tls.make(), self._timeout_ns)
        else:
            self._expect_request(conn)

    def is_awaited(self, conn: int) -> bool:
        """Whether it has not become a websocket yet; perhaps it never will."""
        return conn in self._waiting

    def encryption(self, conn: int) -> VerifyingTls | None:
        return cast("VerifyingTls | None", self.upgrades.tls(conn))

    def closing(self, conn: int, frame: bytes) -> None:
        """Sends the last frame of a connection whose frames are made in Python."""
        handshake = self._handshakes.get(conn)
        if handshake is not None and handshake.websocket is not None:
            handshake.websocket.end(frame)

    def closed(self, conn: int) -> None:
        self._handshakes.pop(conn, None)
        self._waiting.pop(conn, None)
        if self._door is not None:
            self._door.closed(conn)
        self.upgrades.closed(conn)

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        wait = self.upgrades.wait_ns()
        while self._deadlines and self._waiting.get(self._deadlines[0][1]) != self._deadlines[0][0]:
            heapq.heappop(self._deadlines)
        if not self._deadlines:
            return wait
        own = max(self._deadlines[0][0] - self._now_ns(), 0)
        return own if wait == FOREVER else min(wait, own)

    def expire(self) -> None:
        self.upgrades.expire()
        while self._deadlines and self._deadlines[0][0] <= self._now_ns():
            until_ns, conn = heapq.heappop(self._deadlines)
            if self._waiting.get(conn) == until_ns:
                self.upgrades.remark(conn, "no websocket came of it in time")
                self._engine.close_connection(conn)

    # --- steps ------------------------------------------------------------------------------------------------------

    def _shaken(self, conn: int) -> None:
        tls = self.encryption(conn)
        if tls is not None and self.tls is not None and self.tls.refuses(tls):
            self.upgrades.remark(conn, "the TLS handshake failed: certificate not pinned")
            self._engine.close_connection(conn)
            return
        self._expect_request(conn)

    def _refused(self, conn: int, alert: bytes, why: str) -> None:
        self._engine.send(conn, alert)
        self._engine.close_connection(conn)

    def _expect_request(self, conn: int) -> None:
        handshake = self._handshakes[conn] = Handshake(lambda head: self._asked(conn, head))
        self.upgrades.add(conn, handshake)

    def _say(self, conn: int, data: bytes) -> None:
        """Sends bytes outside of frames."""
        tls = self.encryption(conn)
        self._engine.send(conn, data if tls is None else tls.encode(data))

    def _asked(self, conn: int, head: bytes | None) -> PythonWebsocket | bool | None:
        try:
            if head is None:
                raise too_large()
            found = upgrade(head, self._terms_of(conn))
            if self._handshakes[conn].has_more:
                # A client must wait for the answer; data before it may be smuggled in by somebody else.
                raise UpgradeError("client sent data before handshake is complete", b"", ends=True)
        except UpgradeError as error:
            self.upgrades.remark(conn, str(error))
            self._say(conn, error.answer)
            if error.ends:
                self._engine.close_connection(conn)
            return None if error.ends else False
        return self._begin(conn, found)

    def _terms_of(self, conn: int) -> Terms:
        is_encrypted = self.encryption(conn) is not None
        return replace(self._terms, encrypted=is_encrypted, takes_leaves=self._door_for_leaves() is not None)

    def _door_for_leaves(self) -> LeafDoor | None:
        """The door, made late because leaf nodes may be set up after this object."""
        if self._door is None:
            self._door = self._leaf_door(self.upgrades)
        return self._door

    def bring(self, conn: int, found: Upgraded, remote: str) -> None:
        """Passes a leaf node's connection to the acceptor that has leaf nodes. `remote`: the leaf node's address."""
        assert self._door is not None
        self._engine.call(conn, "of-server")
        flags = lib.WEBSOCKET_UNMASKED if found.unmasked else 0
        is_plain = not found.compressed and self.encryption(conn) is None
        if not is_plain or not self._door.give(conn, Arrival(remote, flags, found.answer)):
            self._say(conn, found.answer)
            self._door.relay(conn, Arrival(remote, flags | (UNFRAMED if found.compressed else 0)))

    def _begin(self, conn: int, found: Upgraded) -> PythonWebsocket | None:
        del self._waiting[conn]
        frame_bytes = BROWSER_FRAME_BYTES if found.browser else FRAME_BYTES
        websocket = None
        if found.compressed:
            most = 1 << 20 if found.whole_compressed else frame_bytes
            websocket = PythonWebsocket(
                lambda data: self._say(conn, data), unmasked=found.unmasked, frame_bytes=most,
                ended=None if found.is_leaf else lambda payload: self._engine.websocket_ended(conn, payload),
            )  # fmt: skip
        if found.is_leaf:
            # The content of its frames is for another protocol, and perhaps for another acceptor.
            self._upgraded(conn, found)
            return websocket
        self._say(conn, found.answer)
        flags = lib.WEBSOCKET_UNMASKED if found.unmasked else 0
        if websocket is not None:
            flags |= lib.WEBSOCKET_BY_FILTER | lib.WEBSOCKET_BY_PYTHON
        elif self.encryption(conn) is not None:
            flags |= lib.WEBSOCKET_BY_FILTER
        if not self._engine.websocket(conn, frame_bytes, flags):
            self._engine.close_connection(conn)
            return None
        if flags & lib.WEBSOCKET_BY_FILTER:
            self.upgrades.hear_out(conn)
        else:
            self._handshakes.pop(conn)
            self.upgrades.closed(conn)
        self._upgraded(conn, found)
        return websocket
