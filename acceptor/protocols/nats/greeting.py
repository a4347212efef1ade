"""A NATS connection before its first line: sends INFO, and does the TLS handshake before it, after it or not at all.

    greetings.opened(conn)          a new connection, whose first command Python has until it is `greeted` or closed
    greetings.takes(conn, command)  the codec has seen the first byte, or a proxy's header
    greetings.upgrades              for the upcalls of encrypted connections

Owns the TLS of encrypted connections. The caller makes INFO.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from mq_shards.acceptor.engine import FOREVER, Engine
from mq_shards.acceptor.protocols.nats import reasons
from mq_shards.acceptor.remarks import Remarks
from mq_shards.acceptor.upgrade import Upgrades
from mq_shards.ringbuf.time_units import SECOND_NS

if TYPE_CHECKING:
    from mq_shards.acceptor.filters.tls import VerifyingTls
    from mq_shards.acceptor.protocols.nats.client import Client
    from mq_shards.acceptor.protocols.nats.tls import TlsTerms

# The first byte of a TLS handshake.
HANDSHAKE_BYTE: Final = 0x16
# What the codec hands over when the first byte has come (SNIFF and the byte), or when none has (SNIFF alone).
SNIFF: Final = b"SNIFF"
SILENCE: Final = b""
# Starts of a proxy's header, versions 1 and 2. The codec hands over the first alone if there was no header.
PROXY: Final = (b"PROXY ", b"\r\n\r\n\x00")

THROTTLED: Final = b"-ERR 'Connection throttling is active. Please try again later.'\r\n"
PROXY_NS: Final = 10 * SECOND_NS  # how long to wait for a proxy's header

log = logging.getLogger(__name__)


class Greetings:
    def __init__(
        self,
        engine: Engine,
        info: Callable[[int, bool], bytes],
        greeted: Callable[[int], None],
        client: Callable[[int], Client] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`info` makes a connection's line INFO, given whether TLS is required. `greeted` must let the codec go on.
        No connection is encrypted until `terms` is set. `client`: the client whose address a proxy may tell."""
        self.terms: TlsTerms | None = None
        self.upgrades: Final = Upgrades(engine, self._shaken, self._refused, now_ns, hears_out=True)
        self._engine = engine
        self._info = info
        self._greeted = greeted
        self._client = client
        self._now_ns = now_ns
        self._untold: set[int] = set()  # get INFO after the handshake
        self._first: set[int] = set()  # had the handshake before INFO
        self._waiting: dict[int, TlsTerms] = {}  # wait for the first byte
        self._next: dict[int, Callable[[], None]] = {}  # the next step, after the proxy's header
        self._second = self._in_second = 0  # the current second, and the handshakes begun in it
        self._remarks = Remarks(log, now_ns)

    def opened(self, conn: int) -> None:
        terms = self.terms
        if terms is None:
            self._say_info(conn, required=False)
            self._introduce(conn, partial(self._greeted, conn))
        elif terms.first_ns == 0:
            self._untold.add(conn)
            self._introduce(conn, partial(self._shake_hands, conn, terms))
        elif terms.first_ns > 0:
            self._untold.add(conn)
            self._wait(conn, terms, terms.first_ns)
        else:
            self._say_info(conn, required=terms.required)
            self._go_on(conn, terms)

    def takes(self, conn: int, command: bytes) -> bool:
        """Handles a command of the codec that belongs to the greeting. False when it is another command."""
        if command.startswith(SNIFF):
            self._sniffed(conn, command[len(SNIFF) :])
        elif command.startswith(PROXY):
            self._introduced(conn, command)
        else:
            return False
        return True

    def _sniffed(self, conn: int, what: bytes) -> None:
        """`what`: the first byte, or SILENCE."""
        terms = self._waiting.pop(conn)
        if conn in self._untold:
            if what != SILENCE:
                self._introduce(conn, partial(self._shake_hands, conn, terms))
                return
            self._untold.discard(conn)
            self._say_info(conn, required=terms.required)
            self._go_on(conn, terms)
        elif what[:1] == bytes([HANDSHAKE_BYTE]):
            self._shake_hands(conn, terms)
        else:
            self._greeted(conn)

    def tls(self, conn: int) -> VerifyingTls | None:
        """The TLS of an encrypted connection; None when it is not encrypted."""
        tls = self.upgrades.tls(conn)
        return cast("VerifyingTls | None", tls)

    def is_tls_first(self, conn: int) -> bool:
        return conn in self._first

    def closed(self, conn: int) -> None:
        self._untold.discard(conn)
        self._first.discard(conn)
        self._waiting.pop(conn, None)
        self._next.pop(conn, None)
        self.upgrades.closed(conn)

    def wait_ns(self) -> int:
        waits = self.upgrades.wait_ns(), self._remarks.wait_ns()
        return min((wait for wait in waits if wait != FOREVER), default=FOREVER)

    def expire(self) -> None:
        self.upgrades.expire()
        self._remarks.expire()

    # --- steps ------------------------------------------------------------------------------------------------------

    def _say_info(self, conn: int, *, required: bool) -> None:
        self._engine.reply(conn, self._info(conn, required))

    def _introduce(self, conn: int, then: Callable[[], None]) -> None:
        """Calls `then`, after the proxy's header if there may be one."""
        if self._client is None or not self._client(conn).is_unknown:
            then()
            return
        self._next[conn] = then
        self._engine.call(conn, "proxied-until-ns", self._now_ns() + PROXY_NS)
        self._engine.resume(conn)

    def _introduced(self, conn: int, header: bytes) -> None:
        assert self._client is not None
        client = self._client(conn)
        try:
            client.introduce(header)
        except ValueError as error:
            self._remarks.say(logging.WARNING, client.host, f"{client.remote}: a header of the PROXY protocol: {error}")
            self._engine.call(conn, "end", reasons.PROTOCOL_VIOLATION)
            return
        self._next.pop(conn)()

    def _go_on(self, conn: int, terms: TlsTerms) -> None:
        """Goes on after INFO was sent unencrypted: with a handshake if required, else depending on the first byte."""
        wait = partial(self._wait, conn, terms, terms.timeout_ns)
        self._introduce(conn, partial(self._shake_hands, conn, terms) if terms.required else wait)

    def _wait(self, conn: int, terms: TlsTerms, wait_ns: int) -> None:
        self._waiting[conn] = terms
        self._engine.call(conn, "sniff-until-ns", self._now_ns() + wait_ns)
        self._engine.resume(conn)

    def _shake_hands(self, conn: int, terms: TlsTerms) -> None:
        if self._is_too_many(terms):
            self._engine.reply(conn, THROTTLED)  # unencrypted, even if the client expects TLS
            self._engine.close_connection(conn)
            return
        self.upgrades.begin(conn)
        self.upgrades.shake_hands(conn, terms.make(), terms.timeout_ns)

    def _is_too_many(self, terms: TlsTerms) -> bool:
        second = self._now_ns() // SECOND_NS
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        return 0 < terms.rate_limit < self._in_second

    def _shaken(self, conn: int) -> None:
        tls = self.tls(conn)
        if tls is not None and self.terms is not None and self.terms.refuses(tls):
            self.upgrades.remark(conn, "the TLS handshake failed: certificate not pinned")
            self._engine.close_connection(conn)
            return
        if conn in self._untold:
            self._untold.discard(conn)
            self._first.add(conn)
            self._say_info(conn, required=True)
        self._greeted(conn)

    def _refused(self, conn: int, alert: bytes, why: str) -> None:
        self._engine.send(conn, alert)
        self._engine.close_connection(conn)
