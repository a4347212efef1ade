"""The servers of a cluster and their routes: one to each server, or a pool and dedicated routes of accounts.

    cluster.refusal(route, info)    why a route is against the rules; "" if it is not
    cluster.place(route, info)      puts a route in its place; None: the place is taken, the route must be closed
    cluster.remove(route)           the route has been closed

Owns no connection and sends nothing. The rules are nats-server's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from mq_shards.acceptor.protocols.nats.dial import Wish
from mq_shards.acceptor.protocols.nats.route_info import Info, Own
from mq_shards.acceptor.protocols.nats.server_url import RouteUrl

MAX_POOL: Final = 256
MAX_URLS: Final = 1024  # URLs of other servers that clients are sent


@dataclass(slots=True, eq=False)
class Route:
    """A connection to another server of the cluster."""

    conn: int
    wish: Wish | None  # why this side has connected; None: the other server has
    remote: str  # the other server's address
    url: RouteUrl | None = None  # where the other server accepts routes
    account: str = ""  # of a dedicated route
    explicit: bool = False  # the configuration names the other server
    retry: bool = False  # replaced a duplicate: connect again when it ends, as both sides may have closed one
    no_reconnect: bool = False
    auth_by_ns: int = 0
    said: dict[str, Any] | None = None  # the fields of CONNECT
    headers: bool = True
    remote_id: str = ""
    remote_name: str = ""
    info: Info | None = None
    ip: str = ""
    pool: bool = False  # belongs to a pool, unless it is dedicated
    pool_index: int = 0
    registered: bool = False
    brings_next: bool = False
    negotiated: bool = False  # both sides have agreed on compression
    compression: str = ""
    compressed: bool = False  # both directions are S2 streams
    began_ns: int = field(default_factory=time.monotonic_ns)
    began_wall_ns: int = field(default_factory=time.time_ns)

    @property
    def is_in_pool(self) -> bool:
        return self.pool and self.registered

    def take(self, info: Info) -> None:
        """Stores what the other server's INFO says."""
        self.info = info
        self.remote_id, self.remote_name = info.server_id, info.text("server_name")
        if self.wish is None:
            self.account = info.text("route_account")
        host = self.remote.rpartition(":")[0].strip("[]")
        self.ip = info.text("ip") or str(RouteUrl(host, info.number("port")))
        if self.url is None:
            self.url = RouteUrl(info.text("host"), info.number("port"))

    def adopt(self, other: Route) -> None:
        """Takes over the purpose of another route to the same server, which is closed as a duplicate."""
        if other.wish is not None and (self.wish is None or (other.explicit and not self.explicit)):
            self.url = other.url
        if other.wish is not None and self.wish is None:
            self.wish = Wish(other.wish.url, other.explicit, other.account)
        self.explicit = self.explicit or other.explicit
        self.retry = True

    def shown(self) -> dict[str, Any]:
        info = self.info
        assert info is not None
        host, _, port = self.remote.rpartition(":")
        return {
            "rid": self.conn, "remote_id": self.remote_id, "remote_name": self.remote_name,
            "did_solicit": self.wish is not None, "is_configured": self.explicit, "ip": host.strip("[]"),
            "port": int(port) if port.isdigit() else 0, "started_wall_ns": self.began_wall_ns,
            "import": info.values.get("import"), "export": info.values.get("export"), "account": self.account,
            "pool_index": self.pool_index, "compression": self.compression,
        }  # fmt: skip


@dataclass(slots=True)
class Server:
    """Another server of the cluster."""

    routes: list[Route | None]
    pool_size: int  # as configured at the other server; 0: it has no pools
    urls: dict[str, tuple[str, ...]]
    accounts: dict[str, Route] = field(default_factory=dict)

    def connected(self) -> list[Route]:
        return [route for route in self.routes if route is not None]


class Cluster:
    def __init__(self, own: Own) -> None:
        self._own = own
        self.pinned: frozenset[str] = frozenset()  # accounts with dedicated routes
        self._servers: dict[str, Server] = {}
        self._accounts: dict[tuple[str, str], Route] = {}  # dedicated routes, by account and server ID

    # --- new routes -------------------------------------------------------------------------------------------------

    def _pooled(self, info: Info) -> bool:
        return info.number("route_pool_size") > 0 and self._own.pool_size > 0

    def _size(self, info: Info) -> int:
        return min(max(self._own.pool_size, info.number("route_pool_size"), 1), MAX_POOL)

    def refusal(self, route: Route, info: Info) -> str:
        """The error that the other server is sent when a route is against the rules; "" when it is not."""
        account = route.account
        index = info.number("route_pool_idx")
        if not self._pooled(info):
            if account:
                return f'Not possible to have a dedicated route for account "{account}" between those servers'
        elif route.wish is not None:
            if index != 0:
                return f"Route pool index should not be set but is set to {index}"
        elif not 0 <= index < self._size(info):
            size = info.number("route_pool_size")
            return f"Invalid route pool index: {index} - pool size is {size}"
        if account and account not in self.pinned:
            return f'No route for account "{account}"'
        return ""

    def place(self, route: Route, info: Info) -> tuple[bool, int] | None:
        """Returns whether this is the server's first route, and its index in the pool. None: close the route."""
        if route.account:
            return self._place_account(route)
        route.pool = self._pooled(info)
        server = self._servers.get(info.server_id)
        if server is None:
            urls = {name: info.urls(name) for name in ("connect_urls", "ws_connect_urls", "leafnode_urls")}
            size = self._size(info) if route.pool else 1
            server = self._servers[info.server_id] = Server([None] * size, info.number("route_pool_size"), urls)
        index = self._place_pooled(server, route, info) if route.pool else self._place_single(server, route)
        if index is None:
            return None
        first = not server.connected()
        server.routes[index] = route
        route.pool_index = index
        return first, index

    def _place_account(self, route: Route) -> tuple[bool, int] | None:
        key = route.account, route.remote_id
        if (other := self._accounts.get(key)) is not None:
            other.adopt(route)
            route.no_reconnect = True
            return None
        self._accounts[key] = route
        return False, 0

    def _place_single(self, server: Server, route: Route) -> int | None:
        other = server.routes[0]
        if other is None:
            return 0
        other.adopt(route)
        # Not to be retried: with a pool configured here, a second route would be tried for ever.
        route.no_reconnect = True
        return None

    def _place_pooled(self, server: Server, route: Route, info: Info) -> int | None:
        server.routes.extend([None] * (self._size(info) - len(server.routes)))
        if route.wish is None:
            index = info.number("route_pool_idx")
            if (other := server.routes[index]) is not None:
                other.adopt(route)
                return None
            wanted = next((other for other in server.connected() if other.wish is not None), None)
            if wanted is not None:
                route.adopt(wanted)
                route.retry = False
            return index
        for other in server.connected():
            if other.wish is None:
                other.adopt(route)
                other.retry = False
        free = next((i for i, other in enumerate(server.routes) if other is None), None)
        if free is None:
            route.no_reconnect = True
        return free

    # --- closed routes ----------------------------------------------------------------------------------------------

    def remove(self, route: Route) -> bool:
        """Removes a route. Returns whether it was the last one to its server, dedicated ones aside."""
        if route.account:
            if self._accounts.get((route.account, route.remote_id)) is route:
                del self._accounts[route.account, route.remote_id]
            return False
        server = self._servers.get(route.remote_id)
        if server is None or route not in server.routes:
            return False
        server.routes[server.routes.index(route)] = None
        if server.connected():
            return False
        del self._servers[route.remote_id]
        return True

    def leave(self, route: Route) -> None:
        """The route's server is shutting down: its URLs are no longer given to clients."""
        if (server := self._servers.get(route.remote_id)) is not None:
            server.urls.clear()

    # --- questions --------------------------------------------------------------------------------------------------

    def has(self, server_id: str) -> bool:
        return server_id in self._servers

    def knows(self, server_id: str, account: str) -> bool:
        if server_id == self._own.server_id:
            return True
        return (account, server_id) in self._accounts if account else self.has(server_id)

    def has_jetstream(self) -> bool:
        routes = (route for server in self._servers.values() for route in server.connected())
        return any(route.info is not None and route.info.flag("jetstream") for route in routes)

    def is_full(self, server_id: str) -> bool:
        server = self._servers.get(server_id)
        return server is None or None not in server.routes

    def next_is_due(self, server_id: str) -> bool:
        """Whether a route to this server is about to open the next one of the pool."""
        server = self._servers.get(server_id)
        return server is not None and any(route.brings_next for route in server.connected())

    def one_of_each(self, account: str) -> Iterator[Route]:
        """One route to each server: the account's dedicated one if there is one."""
        for server_id, server in self._servers.items():
            route = self._accounts.get((account, server_id)) if account else None
            connected = server.connected()
            if route is not None or connected:
                yield route or connected[0]

    def pooled(self) -> list[Route]:
        """All registered routes that belong to pools."""
        return [route for server in self._servers.values() for route in server.connected() if route.is_in_pool]

    def at_place(self, place: int) -> list[Route]:
        return [route for route in self.pooled() if route.pool_index == place]

    def routes_of(self, account: str) -> list[Route]:
        """The dedicated routes of an account."""
        return [route for (name, _), route in self._accounts.items() if name == account]

    def connect_urls(self, name: str = "connect_urls") -> tuple[str, ...]:
        """The URLs at which clients reach the other servers."""
        found = dict.fromkeys(url for server in self._servers.values() for url in server.urls.get(name, ()))
        return tuple(found)[:MAX_URLS]
