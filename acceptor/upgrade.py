"""Connections with TLS, compression, or compression inside TLS, between their sockets and the codec.

    upgrades.begin(conn)              from now on the connection's bytes pass through here
    upgrades.shake_hands(conn, tls)   adds TLS next to the socket; calls `shaken` or `refused` later, or at once
    upgrades.add(conn, filter)        adds a filter on top of the others, next to the codec

Owns the chains of filters, and the handshakes under way, whose time is limited. Knows no wire protocol: the protocol
decides what a client is told.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from mq_shards.acceptor.engine import FOREVER, Engine
from mq_shards.acceptor.filters import Chain, Filter, FilterError
from mq_shards.acceptor.remarks import Remarks

if TYPE_CHECKING:
    from mq_shards.acceptor.filters.tls import Tls
    from mq_shards.acceptor.relay import Relay

HANDSHAKE_NS: Final = 5_000_000_000

Shaken: TypeAlias = Callable[[int], None]
Refused: TypeAlias = Callable[[int, bytes, str], None]

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class Upgrade:
    """A connection's state. Without a chain nothing passes: a handshake is under way, or the connection is closing."""

    chain: Chain | None = field(default_factory=Chain)
    tls: Tls | None = None
    until_ns: int = 0
    relay: Relay | None = None  # to the process that serves the connection for a while
    hears_out: bool = False  # a client that hangs up still gets the answers to what it has sent
    hung_up: bool = False


class Upgrades:
    def __init__(
        self,
        engine: Engine,
        shaken: Shaken,
        refused: Refused,
        now_ns: Callable[[], int] = time.monotonic_ns,
        *,
        hears_out: bool = False,
    ) -> None:
        """`shaken` is called when a handshake is done. `refused` is called when it failed, with an alert to be sent and
        the reason; it must close the connection. `hears_out`: clients are heard out from the handshake on."""
        self._engine = engine
        self._shaken = shaken
        self._refused = refused
        self._now_ns = now_ns
        self._hears_out = hears_out
        self._remarks = Remarks(log, now_ns)
        self._upgrades: dict[int, Upgrade] = {}
        self._handshakes: dict[int, Upgrade] = {}
        # A heap of (deadline, connection) of handshakes. The entry of one that is done stays until it is the first.
        self._deadlines: list[tuple[int, int]] = []
        self._ending: list[int] = []  # connections whose filter has reached the end of its stream

    def __contains__(self, conn: int) -> bool:
        return conn in self._upgrades

    def begin(self, conn: int) -> None:
        """Makes the connection filtered. Output that already waits, and what Engine.send() is given, leaves as it
        is."""
        self._upgrades[conn] = Upgrade()
        self._engine.filter(conn)

    def adopt(self, conn: int) -> None:
        """Takes on a connection that was filtered from the beginning."""
        self._upgrades[conn] = Upgrade()

    def shake_hands(self, conn: int, tls: Tls, timeout_ns: int = HANDSHAKE_NS, *, speaks_first: bool = False) -> None:
        """`speaks_first`: this side has connected, so it sends the first bytes."""
        upgrade = self._upgrades[conn]
        upgrade.chain, upgrade.tls = None, tls
        upgrade.until_ns = self._now_ns() + timeout_ns
        self._handshakes[conn] = upgrade
        heapq.heappush(self._deadlines, (upgrade.until_ns, conn))
        if speaks_first:
            tls.handshake(b"")
            self._engine.send(conn, tls.outgoing())

    def add(self, conn: int, filter: Filter) -> None:
        chain = self._upgrades[conn].chain
        assert chain is not None
        chain.add(filter)

    def relay(self, conn: int, relay: Relay | None) -> bool:
        """Sends input to the relay instead of the codec; None: to the codec again. Whether the client has hung up."""
        upgrade = self._upgrades[conn]
        upgrade.relay = relay
        return upgrade.hung_up

    def end(self, conn: int) -> None:
        """The client sends nothing after what the codec was fed."""
        self._ending.append(conn)

    def hear_out(self, conn: int) -> None:
        """From now on what the client has sent before it hangs up counts, though Python has a command of it then."""
        self._upgrades[conn].hears_out = True
        self._engine.hear_out(conn)

    def say(self, conn: int, data: bytes) -> None:
        """Sends bytes to the client through its filters, ahead of all output that is waiting."""
        self.output(conn, data)

    def tls(self, conn: int) -> Tls | None:
        """The TLS of an encrypted connection after its handshake; None when there is none."""
        upgrade = self._upgrades.get(conn)
        return upgrade.tls if upgrade is not None and conn not in self._handshakes else None

    def remark(self, conn: int, text: str, level: int = logging.INFO) -> None:
        """Logs a line about the connection's client; limited in number, as a client can return as often as it likes."""
        self._remarks.of_client(self._engine.remote(conn), text, level)

    # --- upcalls ----------------------------------------------------------------------------------------------------

    def input(self, conn: int, data: bytes) -> bool:
        """Returns True when bytes were passed to the codec and nothing else happened that must be followed up."""
        upgrade = self._upgrades.get(conn)
        if upgrade is None:
            return False
        if conn in self._handshakes:
            assert upgrade.tls is not None
            self._go_on(conn, upgrade, upgrade.tls, data)
        elif upgrade.chain is not None:
            upgrade.hung_up = upgrade.hung_up or (upgrade.hears_out and not data and not upgrade.chain.pending)
            return self._pass_input(conn, upgrade, upgrade.chain, data)
        return False

    def output(self, conn: int, data: bytes) -> bool:
        """Passes output to the socket; returns True as input() does."""
        upgrade = self._upgrades.get(conn)
        # Without a chain it is closing: in a handshake Python has the command, and the codec writes nothing then.
        if upgrade is not None and upgrade.chain is not None:
            self._engine.send(conn, upgrade.chain.encode(data))
            if upgrade.relay is None:
                return True
            upgrade.relay.left(len(data))
        return False

    def closed(self, conn: int) -> None:
        self._upgrades.pop(conn, None)
        self._handshakes.pop(conn, None)

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        """How long the engine may run before expire() has something to do."""
        if self._ending:
            return 0
        while self._deadlines and self._deadlines[0][1] not in self._handshakes:
            heapq.heappop(self._deadlines)
        remarks_ns = self._remarks.wait_ns()
        if not self._deadlines:
            return remarks_ns
        wait_ns = max(self._deadlines[0][0] - self._now_ns(), 0)
        return wait_ns if remarks_ns == FOREVER else min(wait_ns, remarks_ns)

    def expire(self) -> None:
        """To be called after a run of the engine, before its upcalls are handled."""
        self._remarks.expire()
        # By now the engine has used what it was fed.
        for conn in self._ending:
            upgrade = self._upgrades.get(conn)
            is_heard_out = upgrade is not None and upgrade.hears_out
            (self._engine.end_input if is_heard_out else self._engine.close_connection)(conn)
        self._ending.clear()
        while self._deadlines and self._deadlines[0][0] <= self._now_ns():
            until_ns, conn = heapq.heappop(self._deadlines)
            upgrade = self._handshakes.get(conn)
            if upgrade is not None and upgrade.until_ns == until_ns:
                self._fail(conn, b"", "i/o timeout")

    # --- handshakes and bytes ---------------------------------------------------------------------------------------

    def _go_on(self, conn: int, upgrade: Upgrade, tls: Tls, data: bytes) -> None:
        try:
            done = tls.handshake(data)
        except FilterError as error:
            self._fail(conn, tls.outgoing(), str(error))
            return
        self._engine.send(conn, tls.outgoing())
        if not done:
            self._engine.feed(conn, b"")
            return
        del self._handshakes[conn]
        upgrade.chain = Chain()
        upgrade.chain.add(tls)
        if self._hears_out:
            self.hear_out(conn)
        self._shaken(conn)
        # Passes on what came after the handshake.
        self._pass_input(conn, upgrade, upgrade.chain)

    def _fail(self, conn: int, alert: bytes, why: str) -> None:
        self.remark(conn, f"the TLS handshake failed: {why}")
        del self._handshakes[conn]
        self._refused(conn, alert, why)

    def _pass_input(self, conn: int, upgrade: Upgrade, chain: Chain, data: bytes = b"") -> bool:
        """Decodes input and feeds it to the codec or the relay. Returns what input() returns."""
        try:
            plain = chain.decode(data)
        except FilterError as error:
            self.remark(conn, str(error))
            plain = None
        # An alert, or something else that TLS itself has to send.
        if upgrade.tls is not None and (alert := upgrade.tls.outgoing()):
            self._engine.send(conn, alert)
        if plain is None:
            upgrade.chain = None
            self._engine.close_connection(conn)
            return False
        if upgrade.relay is not None:
            upgrade.relay.received(plain, more=chain.pending, ended=upgrade.hung_up or chain.ended)
            return False
        self._engine.feed(conn, plain, more=chain.pending)
        if chain.ended:
            self._ending.append(conn)
            return False
        return not upgrade.hung_up
