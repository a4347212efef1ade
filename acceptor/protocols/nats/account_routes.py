"""Accounts that have routes of their own to each server, in place of one that they share with others.

While servers run an account comes to have them as nats-server has it: the server that is told so first tells the
others, on the connection that the account has had; all forget what was said of it there, and say it again on the new
one. Other accounts are not concerned.
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

# enum nats_account_routes, csrc/acceptor/protocols/nats/nats.h
POOLED: Final = 0
MOVING: Final = 1
DEDICATED: Final = 2

ANSWER_NS: Final = 2 * SECOND  # for the other servers to say that they have heard


class AccountRoutes:
    def __init__(
        self,
        engine: Engine,
        cluster: Cluster,
        dial: Callable[[str], None],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`dial`: connects to the other servers for that account alone."""
        self._engine, self._cluster, self._dial, self._now_ns = engine, cluster, dial, now_ns
        self._moving: tuple[str, ...] = ()
        self._heard_of: set[str] = set()  # accounts that come to have routes, by another server's word
        self._request = ""
        self._awaited: list[int] = []  # connections whose servers are to answer, each as often as it is here
        self._until_ns = 0

    def _set(self, account: str, routes: int) -> None:
        self._engine.configure(protocol_number("nats"), "account-routes", routes, encoded(account))
        change = self._cluster.pinned - {account}
        self._cluster.pinned = change if routes == POOLED else change | {account}

    def have(self, accounts: Iterable[str]) -> None:
        """Whatever servers have been told: their connections are made anew."""
        for account in accounts:
            self._set(account, DEDICATED)

    # --- routes of their own from now on ----------------------------------------------------------------------------

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
        # Strangers do not make accounts.
        if self._engine.configure(protocol_number("nats"), "find-account", 0, encoded(account)) == 0:
            return
        if account not in self._cluster.pinned:
            self._set(account, MOVING)
            self._heard_of.add(account)
        self._forget(account)
        self._engine.reply(route.conn, json_line("INFO", {**info.said, "route_account": ""}))

    def joined(self, account: str) -> None:
        """A connection for it is there."""
        if account in self._heard_of:
            self._heard_of.discard(account)
            self._set(account, DEDICATED)

    def ended(self, conn: int, *, all_of_it: bool = True) -> None:
        """It is closed: nothing is awaited there any more."""
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

    # --- none any more ----------------------------------------------------------------------------------------------

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
        """Who has not answered by now is not waited for."""
        if self._awaited and self._until_ns <= self._now_ns():
            self._finish()


def encoded(account: str) -> bytes:
    return account.encode(errors="surrogateescape")


def place_in_pool(account: str, pool_size: int) -> int:
    """FNV-1a, as all servers have it; see nats_account.c.

    >>> place_in_pool("$G", 3)
    2
    """
    number = 2166136261
    for byte in encoded(account):
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return number % pool_size
