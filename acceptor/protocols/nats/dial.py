"""Connects to other servers, and decides which to try again, and when.

    dialer.dial(Wish(url, explicit=True))   connects now, and again after each failure
    dialer.opened(conn)                     the wish that a connection is made for; None: it was accepted
    dialer.ended(conn)                      a connection is closed; if the server never answered, it is tried again

Names are looked up on a thread and connecting does not block, so an acceptor's loop never waits. A server that the
configuration names is tried for ever, one that other servers told of as often as an option says. Owns no connection.
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
from mq_shards.acceptor.protocols.nats.server_url import RouteUrl
from mq_shards.ringbuf.time_units import SECOND_NS

CONNECT_NS: Final = SECOND_NS  # between two attempts
ANSWER_NS: Final = 5 * SECOND_NS  # from connecting to INFO, at most
MOST_DELAY_NS: Final = 30 * SECOND_NS
# A random delay, so that two servers do not connect to each other at the same time again.
JITTER_NS: Final = SECOND_NS // 10
# Wishes for servers that others told of, since each costs a thread for its name, or a socket.
MAX_IMPLICIT: Final = 256
MANY: Final = 1 << 40  # attempts, so many that no further one is made

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Wish:
    """A connection to a server that is wanted, and the state of the attempts to make it."""

    url: RouteUrl
    explicit: bool  # the configuration names the server
    account: str = ""  # for a dedicated route of that account
    gossip_mode: int = 0
    every_ns: int = CONNECT_NS  # between two attempts
    answer_ns: int = ANSWER_NS
    next_url: Callable[[], RouteUrl] | None = None  # the URL to try next, if there are several
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
        """`adopt` takes over a connecting socket and returns its connection number, or raises OSError. `give_up` closes
        it. `poke`, called on a thread, must make the loop call poked(). `is_own` tells whether an address
        is this server's."""
        self._adopt, self._give_up, self._poke, self._is_own = adopt, give_up, poke, is_own
        self._retries, self._backoff = 0, False
        self._now_ns = now_ns
        self._due: list[tuple[int, int, Wish, int]] = []  # a heap; 0: to dial, else a connection whose INFO is due
        self._numbers = itertools.count()
        self._found: queue.SimpleQueue[tuple[Wish, str]] = queue.SimpleQueue()
        self._looked_up: list[Wish] = []  # their names are being looked up
        self._connecting: dict[int, Wish] = {}
        self._closed = False

    def set(self, retries: int, *, backoff: bool) -> None:
        self._retries, self._backoff = retries, backoff

    def keep(self, wanted: Callable[[Wish], bool]) -> None:
        """Gives up all wishes that are not `wanted`: they are not tried again."""
        self._due = [one for one in self._due if one[3] or wanted(one[2])]
        heapq.heapify(self._due)
        for wish in [*self._looked_up, *self._connecting.values()]:
            if not wanted(wish):
                wish.explicit, wish.attempts = False, MANY

    def dial(self, wish: Wish, delay_ns: int = 0) -> None:
        """Dials after a delay; ignored at MAX_IMPLICIT, unless the configuration names the server."""
        if not self._closed and (wish.explicit or self._implicit() < MAX_IMPLICIT):
            heapq.heappush(self._due, (self._now_ns() + delay_ns, next(self._numbers), wish, 0))

    def again(self, wish: Wish, soon: bool = False) -> None:
        """Dials again after a connection has ended. `soon`: without the usual delay, as both sides may have closed a
        duplicate."""
        wish.attempts, wish.delay_ns = 0, wish.every_ns
        self.dial(wish, random.randrange(JITTER_NS) + (wish.every_ns if wish.explicit and not soon else 0))

    def opened(self, conn: int) -> Wish | None:
        """The wish of a connection that this side has begun and the server has not answered yet."""
        return self._connecting.get(conn)

    def heard(self, conn: int) -> None:
        """The server has sent INFO."""
        wish = self._connecting.pop(conn, None)
        if wish is not None:
            wish.attempts, wish.delay_ns = 0, wish.every_ns

    def ended(self, conn: int) -> bool:
        """A connection is closed. Returns whether it was an attempt that failed, and tries that again."""
        wish = self._connecting.pop(conn, None)
        if wish is not None:
            self._failed(wish, "it was closed before the server had said INFO")
        return wish is not None

    def forget(self, conn: int) -> None:
        self._connecting.pop(conn, None)

    def has(self, url: RouteUrl, account: str) -> bool:
        """Whether a connection to that server, for that account, is wanted or being made."""
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
        """Runs on a thread of its own."""
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
        """Connects to a random one of the server's addresses, except this server's own."""
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
    """Whether this is an address of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True
