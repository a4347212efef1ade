"""Gossip: servers of a cluster tell each other of servers that have connected to them, so that each has routes to all.

Whoever is told of a server connects to it, unless it is known or configured. INFO's `gossip_mode` says whether the one
who is told passes it on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mq_shards.acceptor.protocols.nats.client import json_line
from mq_shards.acceptor.protocols.nats.dial import Wish
from mq_shards.acceptor.protocols.nats.route_info import GOSSIP_DISABLED, GOSSIP_OVERRIDE, Info, Own
from mq_shards.acceptor.protocols.nats.server_url import RouteUrl, route_url

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.protocol import Settings
    from mq_shards.acceptor.protocols.nats.cluster import Cluster, Route
    from mq_shards.acceptor.protocols.nats.dial import Dialer


class Gossip:
    def __init__(self, engine: Engine, own: Own, cluster: Cluster, dialer: Dialer) -> None:
        self._engine = engine
        self._own = own
        self._cluster = cluster
        self._dialer = dialer
        self._settings: Mapping[str, Any] = {}
        self._urls: tuple[RouteUrl, ...] = ()  # of the configured servers
        self.pinned: tuple[str, ...] = ()  # the accounts with dedicated routes

    def set(self, settings: Settings, urls: tuple[RouteUrl, ...]) -> None:
        self._settings, self._urls = settings, urls

    def hear(self, route: Route, info: Info) -> None:
        """Connects to a server that the one behind `route` tells of, unless that is known or configured."""
        account = info.text("route_account")
        if account and self._own.pool_size < 1:
            return
        if self._cluster.knows(info.server_id, account) or self._is_configured(info):
            return
        url = route_url(info.text("ip"))
        if url is None:
            return
        self._solicit(info, url.host, url.port, account)
        if not route.pool and not account:
            for pinned in self.pinned:
                self._solicit(info, url.host, url.port, pinned)

    def _solicit(self, info: Info, host: str, port: int, account: str) -> None:
        url = RouteUrl(host, port)
        if info.flag("auth_required"):
            url = RouteUrl(host, port, self._settings["cluster-user"], self._settings["cluster-password"])
        if not self._dialer.has(url, account):
            self._dialer.dial(Wish(url, explicit=False, account=account, gossip_mode=info.number("gossip_mode")))

    def _is_configured(self, info: Info) -> bool:
        port = info.number("port")
        url = route_url(info.text("ip"))
        hosts = {info.text("host")} | ({url.host} if url is not None else set())
        return any(configured.is_at(host, port) for configured in self._urls for host in hosts)

    def tell(self, route: Route, info: Info) -> None:
        """Tells the other servers of a new one, unless they have told us of it."""
        wish = route.wish
        heard_of = wish is not None and not route.explicit
        if heard_of and wish is not None and wish.gossip_mode != GOSSIP_OVERRIDE:
            return
        if info.number("gossip_mode") == GOSSIP_DISABLED:
            return
        for other in self._cluster.one_of_each(route.account):
            if other.remote_id == route.remote_id or (route.account and not (other.pool or other.account)):
                continue
            mode = _gossip_mode(other, solicited=wish is not None, explicit=route.explicit)
            self._engine.reply(other.conn, json_line("INFO", info.forwarded(route.ip, mode)))


def _gossip_mode(other: Route, solicited: bool, explicit: bool) -> int:
    """The gossip_mode for a server that is told of another one: whether it passes that on."""
    if (not solicited and other.explicit) or (solicited and explicit):
        return GOSSIP_OVERRIDE
    return 0 if solicited else GOSSIP_DISABLED
