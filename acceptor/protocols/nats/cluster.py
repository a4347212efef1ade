"""Which servers a cluster has, and by which connections: one, or a pool and some for single accounts.

    cluster.refusal(route, info)    why a connection cannot be, if so
    cluster.place(route, info)      its place among those to that server; None: there is one already
    cluster.remove(route)           it has ended

Owns no connection, and says nothing to anybody. The rules are nats-server's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from mq_shards.acceptor.protocols.nats.cluster_options import RouteUrl
from mq_shards.acceptor.protocols.nats.dial import Wish
from mq_shards.acceptor.protocols.nats.route_info import Info, Own

MAX_POOL: Final = 256
MAX_URLS: Final = 1024  # of all servers, that clients are told


@dataclass(slots=True, eq=False)
class Route:
    """A connection to a server."""

    conn: int
    wish: Wish | None  # None: it has connected to us
    remote: str  # its address
    url: RouteUrl | None = None  # where it can be connected to
    account: str = ""  # it is for that one alone
    explicit: bool = False  # the configuration wants it
    retry: bool = False  # it took another's place: if it ends, both sides may have closed the wrong one
    no_reconnect: bool = False
    auth_by_ns: int = 0
    said: dict[str, Any] | None = None  # by CONNECT
    headers: bool = True
    remote_id: str = ""
    remote_name: str = ""
    info: Info | None = None
    ip: str = ""
    pool: bool = False  # one of several
    pool_index: int = 0
    registered: bool = False
    brings_next: bool = False
    negotiated: bool = False  # how it is compressed
    compression: str = ""
    compressed: bool = False  # what both say is in streams of S2
    began_ns: int = field(default_factory=time.monotonic_ns)
    began_wall_ns: int = field(default_factory=time.time_ns)

    @property
    def is_in_pool(self) -> bool:
        return self.pool and self.registered

    def take(self, info: Info) -> None:
        """What is kept of what it said."""
        self.info = info
        self.remote_id, self.remote_name = info.server_id, info.text("server_name")
        if self.wish is None:
            self.account = info.text("route_account")
        host = self.remote.rpartition(":")[0].strip("[]")
        self.ip = info.text("ip") or str(RouteUrl(host, info.number("port")))
        if self.url is None:
            self.url = RouteUrl(info.text("host"), info.number("port"))

    def adopt(self, other: Route) -> None:
        """Another connection to the same server is closed for this one: what it was wanted for, this one is."""
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
    pool_size: int  # its own
    urls: dict[str, tuple[str, ...]]
    accounts: dict[str, Route] = field(default_factory=dict)

    def connected(self) -> list[Route]:
        return [route for route in self.routes if route is not None]


class Cluster:
    def __init__(self, own: Own) -> None:
        self._own = own
        self.pinned: frozenset[str] = frozenset()  # accounts that have routes of their own
        self._servers: dict[str, Server] = {}
        self._accounts: dict[tuple[str, str], Route] = {}  # by account and server

    # --- coming -----------------------------------------------------------------------------------------------------

    def _pooled(self, info: Info) -> bool:
        return info.number("route_pool_size") > 0 and self._own.pool_size > 0

    def _size(self, info: Info) -> int:
        return min(max(self._own.pool_size, info.number("route_pool_size"), 1), MAX_POOL)

    def refusal(self, route: Route, info: Info) -> str:
        """What the server is told when a connection is against the rules."""
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
        """Whether this is the server's first connection, and its index in the pool. None: it is to be closed."""
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
        # It is there; a server with a pool would try for ever to have a second one.
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

    # --- going ------------------------------------------------------------------------------------------------------

    def remove(self, route: Route) -> bool:
        """Whether that was the last connection to its server."""
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
        """It will end soon: clients are not to be sent there."""
        if (server := self._servers.get(route.remote_id)) is not None:
            server.urls.clear()

    # --- looking ----------------------------------------------------------------------------------------------------

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
        """A connection to it will bring another."""
        server = self._servers.get(server_id)
        return server is not None and any(route.brings_next for route in server.connected())

    def one_of_each(self, account: str) -> Iterator[Route]:
        """A connection to each server; the account's where there is one."""
        for server_id, server in self._servers.items():
            route = self._accounts.get((account, server_id)) if account else None
            connected = server.connected()
            if route is not None or connected:
                yield route or connected[0]

    def pooled(self) -> list[Route]:
        """Connections of pools."""
        return [route for server in self._servers.values() for route in server.connected() if route.is_in_pool]

    def at_place(self, place: int) -> list[Route]:
        return [route for route in self.pooled() if route.pool_index == place]

    def routes_of(self, account: str) -> list[Route]:
        """That are for it alone."""
        return [route for (name, _), route in self._accounts.items() if name == account]

    def connect_urls(self, name: str = "connect_urls") -> tuple[str, ...]:
        """Where clients find the other servers."""
        found = dict.fromkeys(url for server in self._servers.values() for url in server.urls.get(name, ()))
        return tuple(found)[:MAX_URLS]
