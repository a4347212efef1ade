"""Dedicated routes: an account can have its own route to each server, instead of sharing the pooled routes.

An account can be moved to dedicated routes while servers run, with nats-server's handshake: the first server that is
configured so tells the others on the pooled route that the account has used. All servers forget the interest that was
sent there for the account, and send it again on the dedicated route. Other accounts are not affected.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from typing import Final

from mq_shards.acceptor.engine import FOREVER, Engine, protocol_number
from mq_shards.acceptor.option_kinds import SECOND
from mq_shards.acceptor.protocols.nats.client import json_line
from mq_shards.acceptor.protocols.nats.cluster import Cluster, Route
from mq_shards.acceptor.protocols.nats.route_info import Info

# enum nats_account_routes, csrc/acceptor/protocols/nats/nats_account_state.h
POOLED: Final = 0
MOVING: Final = 1
DEDICATED: Final = 2

ANSWER_NS: Final = 2 * SECOND  # how long the other servers have to confirm a move


class AccountRoutes:
    def __init__(
        self,
        engine: Engine,
        cluster: Cluster,
        dial: Callable[[str], None],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`dial` opens dedicated routes of an account to the other servers."""
        self._engine, self._cluster, self._dial, self._now_ns = engine, cluster, dial, now_ns
        self._moving: tuple[str, ...] = ()
        self._heard_of: set[str] = set()  # accounts that another server is moving to dedicated routes
        self._request = ""
        self._awaited: list[int] = []  # routes with an unconfirmed move; a route is listed once for each account
        self._until_ns = 0

    def _set(self, account: str, routes: int) -> None:
        self._engine.configure(protocol_number("nats"), "account-routes", routes, encoded(account))
        change = self._cluster.pinned - {account}
        self._cluster.pinned = change if routes == POOLED else change | {account}

    def have(self, accounts: Iterable[str]) -> None:
        """Gives accounts dedicated routes without the handshake, as all routes are about to be made anew."""
        for account in accounts:
            self._set(account, DEDICATED)

    # --- accounts that get dedicated routes -------------------------------------------------------------------------

    def move(self, accounts: Iterable[str], pool_size: int) -> None:
        self._finish()
        self._moving = tuple(accounts)
        self._request = secrets.token_hex(11)
        self._until_ns = self._now_ns() + ANSWER_NS
        for account in self._moving:
            self._set(account, MOVING)
            self._forget(account)
            said = {"route_pool_size": pool_size, "route_account": account, "route_acc_add_reqid": self._request}
            for route in self._cluster.at_place(place_in_pool(account, pool_size)):
                self._engine.reply(route.conn, json_line("INFO", said))
                self._awaited.append(route.conn)
        if not self._awaited:
            self._finish()

    def hear(self, route: Route, info: Info) -> None:
        account = info.text("route_account")
        if not account:
            if info.text("route_acc_add_reqid") == self._request:
                self.ended(route.conn, all_of_it=False)
            return
        # Another server cannot create accounts here.
        if self._engine.configure(protocol_number("nats"), "find-account", 0, encoded(account)) == 0:
            return
        if account not in self._cluster.pinned:
            self._set(account, MOVING)
            self._heard_of.add(account)
        self._forget(account)
        self._engine.reply(route.conn, json_line("INFO", {**info.said, "route_account": ""}))

    def joined(self, account: str) -> None:
        """Call when a dedicated route of the account has been registered."""
        if account in self._heard_of:
            self._heard_of.discard(account)
            self._set(account, DEDICATED)

    def ended(self, conn: int, *, all_of_it: bool = True) -> None:
        """Stops waiting for confirmations of a route: for all if it is closed, or for the one that has come."""
        while conn in self._awaited:
            self._awaited.remove(conn)
            if not self._awaited:
                self._finish()
            if not all_of_it:
                return

    def _forget(self, account: str) -> None:
        for route in self._cluster.pooled():
            self._engine.call(route.conn, "forget-account", 0, encoded(account))

    def _finish(self) -> None:
        moved, self._moving, self._request, self._awaited = self._moving, (), "", []
        for account in moved:
            self._set(account, DEDICATED)
            self._dial(account)

    # --- accounts that lose dedicated routes ------------------------------------------------------------------------

    def give_up(self, accounts: Iterable[str]) -> None:
        self._finish()
        for account in accounts:
            for route in self._cluster.routes_of(account):
                route.no_reconnect = True
                self._engine.close_connection(route.conn)
            self._heard_of.discard(account)
            self._set(account, POOLED)
            for route in self._cluster.pooled():
                self._engine.call(route.conn, "tell-account", 0, encoded(account))

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        return max(self._until_ns - self._now_ns(), 0) if self._awaited else FOREVER

    def expire(self) -> None:
        """Completes a move whose time is over, although some servers have not confirmed it."""
        if self._awaited and self._until_ns <= self._now_ns():
            self._finish()


def encoded(account: str) -> bytes:
    return account.encode(errors="surrogateescape")


def place_in_pool(account: str, pool_size: int) -> int:
    """The index of the pooled route that an account uses: FNV-1a, the same at all servers. See nats_account.c.

    >>> place_in_pool("$G", 3)
    2
    """
    number = 2166136261
    for byte in encoded(account):
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return number % pool_size
