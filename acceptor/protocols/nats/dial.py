"""Connections to other servers: whom to try again, and when.

    dialer.dial(Wish(url, explicit=True))   now, and if it fails again and again
    dialer.opened(conn)                     the wish that a connection fulfils; None: it was accepted
    dialer.failed(wish)                     it did not come to anything

A name is looked up on a thread, so that an acceptor's loop never waits for it; connecting does not block. A server of
the configuration is tried for ever, one that was found through others as often as an option says. Owns no connection.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import ipaddress
import itertools
import logging
import queue
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.protocols.nats.cluster_options import RouteUrl

SECOND_NS: Final = 1_000_000_000
CONNECT_NS: Final = SECOND_NS  # between two attempts
ANSWER_NS: Final = 5 * SECOND_NS  # for INFO to come
MOST_DELAY_NS: Final = 30 * SECOND_NS
# Two servers that have connected to each other at the same time do not do it again at the same time.
JITTER_NS: Final = SECOND_NS // 10
# Of servers that others tell of: a name is looked up on a thread, an address is a socket.
MAX_IMPLICIT: Final = 256
MANY: Final = 1 << 40  # more attempts than anybody wants

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Wish:
    """That there be a connection to a server."""

    url: RouteUrl
    explicit: bool  # by the configuration
    account: str = ""  # it is to be for that one alone
    gossip_mode: int = 0
    every_ns: int = CONNECT_NS  # between two attempts
    answer_ns: int = ANSWER_NS
    next_url: Callable[[], RouteUrl] | None = None  # where there are several: whose turn it is
    attempts: int = 0
    delay_ns: int = 0
    addresses: tuple[tuple[int, Any], ...] = ()


class Dialer:
    def __init__(
        self,
        adopt: Callable[[int], int],
        give_up: Callable[[int], None],
        poke: Callable[[], None],
        is_own: Callable[[str, int], bool],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`adopt`: takes a socket that is connecting, and returns its number; OSError. `give_up`: ends that. `poke`:
        there are names that were looked up. `is_own`: nobody else is at that address."""
        self._adopt, self._give_up, self._poke, self._is_own = adopt, give_up, poke, is_own
        self._retries, self._backoff = 0, False
        self._now_ns = now_ns
        self._due: list[tuple[int, int, Wish, int]] = []  # soonest first; with the number of what may take no longer
        self._numbers = itertools.count()
        self._found: queue.SimpleQueue[tuple[Wish, str]] = queue.SimpleQueue()
        self._looked_up: list[Wish] = []  # whose names are being
        self._connecting: dict[int, Wish] = {}
        self._closed = False

    def set(self, retries: int, *, backoff: bool) -> None:
        self._retries, self._backoff = retries, backoff

    def keep(self, wanted: Callable[[Wish], bool]) -> None:
        """Only that is tried again."""
        self._due = [one for one in self._due if one[3] or wanted(one[2])]
        heapq.heapify(self._due)
        for wish in [*self._looked_up, *self._connecting.values()]:
            if not wanted(wish):
                wish.explicit, wish.attempts = False, MANY

    def dial(self, wish: Wish, delay_ns: int = 0) -> None:
        """One of the configuration is never forgotten, whatever others tell of."""
        if not self._closed and (wish.explicit or self._implicit() < MAX_IMPLICIT):
            heapq.heappush(self._due, (self._now_ns() + delay_ns, next(self._numbers), wish, 0))

    def again(self, wish: Wish, soon: bool = False) -> None:
        """Its connection has ended; `soon`: perhaps only because each side had closed another one for it."""
        wish.attempts, wish.delay_ns = 0, wish.every_ns
        self.dial(wish, random.randrange(JITTER_NS) + (wish.every_ns if wish.explicit and not soon else 0))

    def opened(self, conn: int) -> Wish | None:
        """Of a connection that is being made."""
        return self._connecting.get(conn)

    def heard(self, conn: int) -> None:
        """The server has answered."""
        wish = self._connecting.pop(conn, None)
        if wish is not None:
            wish.attempts, wish.delay_ns = 0, wish.every_ns

    def ended(self, conn: int) -> bool:
        """The connection is closed; whether that was an attempt that failed, which is seen to here."""
        wish = self._connecting.pop(conn, None)
        if wish is not None:
            self._failed(wish, "it was closed before the server had said INFO")
        return wish is not None

    def forget(self, conn: int) -> None:
        self._connecting.pop(conn, None)

    def has(self, url: RouteUrl, account: str) -> bool:
        """It is under way."""
        wanted = url.host, url.port, account
        return any((wish.url.host, wish.url.port, wish.account) == wanted for wish in self._under_way())

    def is_under_way(self, wish: Wish) -> bool:
        return any(one is wish for one in self._under_way())

    def _under_way(self) -> list[Wish]:
        waiting = [wish for _, _, wish, conn in self._due if not conn]
        return [*waiting, *self._looked_up, *self._connecting.values()]

    def _implicit(self) -> int:
        return sum(not wish.explicit for wish in self._under_way())

    def close(self) -> None:
        self._closed = True
        self._due.clear()
        self._connecting.clear()

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        if not self._due:
            return FOREVER
        return max(self._due[0][0] - self._now_ns(), 0)

    def expire(self) -> None:
        while self._due and self._due[0][0] <= self._now_ns():
            _, _, wish, conn = heapq.heappop(self._due)
            if conn == 0:
                self._look_up(wish)
            elif self._connecting.pop(conn, None) is not None:
                self._give_up(conn)
                self._failed(wish, "it does not answer")

    def _failed(self, wish: Wish, why: str) -> None:
        wish.attempts += 1
        said = log.warning if wish.attempts == 1 or wish.attempts % 60 == 0 else log.debug
        said("cannot connect to %s (attempt %d): %s", wish.url, wish.attempts, why)
        if not wish.explicit and wish.attempts > self._retries:
            return
        delay_ns = wish.delay_ns or wish.every_ns
        self.dial(wish, delay_ns)
        if self._backoff:
            wish.delay_ns = min(2 * delay_ns, MOST_DELAY_NS)

    # --- names ------------------------------------------------------------------------------------------------------

    def _look_up(self, wish: Wish) -> None:
        if wish.next_url is not None:
            wish.url = wish.next_url()
        try:
            ipaddress.ip_address(wish.url.host)
        except ValueError:
            self._looked_up.append(wish)
            threading.Thread(target=self._ask, args=(wish,), daemon=True).start()
        else:
            self._resolve(wish)
            self._connect(wish)

    def _ask(self, wish: Wish) -> None:
        """On a thread of its own."""
        why = self._resolve(wish)
        self._found.put((wish, why))
        with contextlib.suppress(Exception):
            self._poke()

    def _resolve(self, wish: Wish) -> str:
        try:
            found = socket.getaddrinfo(wish.url.host, wish.url.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            wish.addresses = ()
            return str(error)
        wish.addresses = tuple((int(entry[0]), entry[4]) for entry in found)
        return ""

    def poked(self) -> None:
        while not self._found.empty():
            wish, why = self._found.get()
            self._looked_up.remove(wish)
            if self._closed:
                return
            if why:
                self._failed(wish, why)
            else:
                self._connect(wish)

    # --- connecting -------------------------------------------------------------------------------------------------

    def _connect(self, wish: Wish) -> None:
        """To one of its addresses, but not to ourselves."""
        others = [one for one in wish.addresses if not self._is_own(str(one[1][0]), int(one[1][1]))]
        if not others:
            log.debug("%s is this server", wish.url)
            return
        family, address = random.choice(others)
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            error = sock.connect_ex(address)
            if error not in (0, errno.EINPROGRESS):
                raise OSError(error, "cannot connect")
            conn = self._adopt(sock.fileno())
        except OSError as error:
            sock.close()
            self._failed(wish, error.strerror or str(error))
            return
        sock.detach()
        self._connecting[conn] = wish
        heapq.heappush(self._due, (self._now_ns() + wish.answer_ns, next(self._numbers), wish, conn))


def is_ours(host: str) -> bool:
    """Whether that is an address of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True
