"""Routes: connections to the other servers of a cluster. docs/clusters.md has an overview.

nats_route.c, the C half, handles messages and subscriptions. It hands the rest to this module:

    (nothing)          the connection is new, accepted or made by us
    CONNECT {...}      who the server is that has connected to us
    INFO {...}         a server's description of itself; later also changes, and servers that have connected to it
    -ERR ...           why the other server is about to close
    PONG               the answer to a PING that this module has asked for

One acceptor has all routes. This server accepts, refuses and sends what a nats-server does.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor.engine import FOREVER, Engine, protocol_number
from mq_shards.acceptor.option_kinds import SECOND
from mq_shards.acceptor.protocol import Broker, Settings
from mq_shards.acceptor.protocols.go_json import DecodeError
from mq_shards.acceptor.protocols.nats import write_timeout
from mq_shards.acceptor.protocols.nats.account_routes import AccountRoutes
from mq_shards.acceptor.protocols.nats.admission import ROUTES_SET
from mq_shards.acceptor.protocols.nats.client import NATS_SERVER_VERSION, json_line, server_id_of
from mq_shards.acceptor.protocols.nats.cluster import Cluster, Route
from mq_shards.acceptor.protocols.nats.cluster_options import advertised
from mq_shards.acceptor.protocols.nats.dial import Dialer, Wish, is_ours
from mq_shards.acceptor.protocols.nats.gossip import Gossip
from mq_shards.acceptor.protocols.nats.reasons import VIOLATION
from mq_shards.acceptor.protocols.nats.route_compression import is_negotiated, mode_of
from mq_shards.acceptor.protocols.nats.route_figures import figures_of
from mq_shards.acceptor.protocols.nats.route_info import Info, Own, read_connect
from mq_shards.acceptor.protocols.nats.route_negotiation import Negotiation
from mq_shards.acceptor.protocols.nats.server_url import RouteUrl, route_url
from mq_shards.acceptor.protocols.nats.serving import NatsServing
from mq_shards.acceptor.remarks import Remarks
from mq_shards.acceptor.upgrade import Upgrades

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nats.route_tls import RouteEncryption

# enum nats_route_flag, csrc/acceptor/protocols/nats/nats_route_state.h
HEADERS: Final = 2
NO_POOL: Final = 4
ORIGINS: Final = 1024
LEAF_MESSAGES: Final = 2048
TRACES: Final = 4096
LEAVES: Final = 8192

SYSTEM_ACCOUNT: Final = "$SYS"
COMPRESSION: Final = frozenset({"cluster-compression", "cluster-compression-rtt"})
# Options that change what clients are told of the cluster.
ADVERTISED: Final = frozenset({
    "cluster-name", "cluster-no-advertise", "client-advertise", "websocket-advertise",
})  # fmt: skip
WILDCARD_HOSTS: Final = ("", "0.0.0.0", "::")

log = logging.getLogger(__name__)


class RouteError(Exception):
    """Why a route is closed: the error that the other server is sent; empty: none is sent."""


class WrongLoginError(RouteError):
    """Its text is the name that the other server gave, perhaps empty."""


class Routing:
    def __init__(
        self, engine: Engine, settings: Settings, broker: Broker, nats: NatsServing | None, host: str, port: int,
        refuse: Callable[[str, str, Callable[[], None]], None],
    ) -> None:  # fmt: skip
        """`host` and `port`: where other servers connect. `refuse`, given the address and the name of a wrong login,
        calls back when it may be answered."""
        self._engine, self._settings, self._refuse = engine, settings, refuse
        self._nats = nats
        if nats is not None:
            nats.list_routes, nats.shown_cluster = self.routes, self.shown
            nats.route_permissions = lambda: self._own.permissions
        self._bound = host, port
        server_id = server_id_of(broker.instance)
        # Stays the same while the broker runs, even if the process with the routes is replaced.
        dynamic = hashlib.sha256(broker.instance.encode()).hexdigest()[:22]
        name = settings["cluster-name"]
        self._own = Own(
            server_id=server_id, server_name=settings["server-name"] or server_id, version=NATS_SERVER_VERSION,
            host=host, port=port, max_payload=settings["max-payload"], cluster=name or dynamic, dynamic=not name,
            auth_required=False, tls=False, pool_size=0,
        )  # fmt: skip
        self._routes: dict[int, Route] = {}
        self._remarks = Remarks(log)
        self._cluster = Cluster(self._own)
        self._dialer = Dialer(self._adopt, engine.close_connection, engine.poke, self._is_own)
        self._begun = False
        self._met = False  # clients were told of another server
        self._others = self._jetstream = False  # there is or was another server, or one with JetStream
        self._upgrades = Upgrades(engine, self._shaken, self._refused)
        self._encryption: RouteEncryption | None = None
        self._urls: tuple[RouteUrl, ...] = ()
        self._account_routes = AccountRoutes(engine, self._cluster, self._dial_for)
        self._gossip = Gossip(engine, self._own, self._cluster, self._dialer)
        self._compression = Negotiation(engine, self._own, self._say_info, self._remark)
        self._pinned: tuple[str, ...] = ()
        self._set_options(settings)
        self._pinned = self._gossip.pinned = self._accounts_pinned()
        self._account_routes.have(self._pinned)

    # --- options ----------------------------------------------------------------------------------------------------

    def _set_options(self, settings: Settings) -> None:
        own, engine = self._own, self._engine
        self._settings = settings
        own.auth_required = bool(settings["cluster-user"])
        own.max_payload, own.pool_size = settings["max-payload"], settings["cluster-pool-size"]
        own.compression = mode_of(settings)
        self._urls = tuple(url for url in map(route_url, settings["routes"]) if url is not None)
        self._gossip.set(settings, self._urls)
        self._compression.set(settings)
        self._dialer.set(settings["cluster-connect-retries"], backoff=settings["cluster-connect-backoff"])
        self._set_tls()
        self._set_permissions()
        engine.set("nats-route.ping-interval-ns", settings["cluster-ping-interval"])
        engine.set("nats-route.max-interest", settings["cluster-max-interest"])
        engine.set("nats-route.ping-max", settings["cluster-ping-max"])
        engine.set("nats-route.write-deadline-ns", settings["cluster-write-deadline"])
        retries = write_timeout.retries(settings["cluster-write-timeout"], is_client=False)
        engine.set("nats-route.write-retries", int(retries))
        own.host, own.port = self._bound
        own.advertised = ""
        if settings["cluster-advertise"]:
            own.host, own.port = advertised(settings["cluster-advertise"], own.port)
            own.advertised = str(RouteUrl(own.host, own.port))

    def _accounts_pinned(self) -> tuple[str, ...]:
        """The accounts with dedicated routes; with pools, the system account is always one."""
        pinned = tuple(self._settings["cluster-accounts"])
        system = self._nats.system_account if self._nats is not None else SYSTEM_ACCOUNT
        return (*pinned, system) if self._own.pool_size > 0 and system not in pinned else pinned

    def _set_tls(self) -> None:
        if self._encryption is None and not self._settings["cluster-tls-cert-file"]:
            return
        from mq_shards.acceptor.protocols.nats.route_tls import RouteEncryption, terms

        if self._encryption is None:
            self._encryption = RouteEncryption(self._engine, self._upgrades)
        self._encryption.set(terms(self._settings), self._urls)
        self._own.tls = self._encryption.terms is not None

    def _set_permissions(self) -> None:
        """Sets the imports and exports of routes, for INFO and for the codec."""
        lines = []
        self._own.permissions = {}
        for name, letter in (("import", "p"), ("export", "s")):
            limits = {which: self._settings[f"cluster-{name}-{which}"] for which in ("allow", "deny")}
            if limits := {which: subjects for which, subjects in limits.items() if subjects}:
                self._own.permissions[name] = limits
            lines += [f"{letter}{which[0]} {subject}\n" for which in limits for subject in limits[which]]
        number = protocol_number("nats")
        self._engine.configure(number, "permissions", ROUTES_SET, "".join(lines).encode(errors="surrogateescape"))

    def reload(self, settings: Settings) -> None:
        """Applies new settings: to connected routes where that is possible, else by closing them, to be made anew."""
        before, urls, tls, permissions = self._settings, self._urls, self._own.tls, self._own.permissions
        self._set_options(settings)
        changed = {name for name in settings if settings[name] != before[name]}
        if settings["cluster-name"] and "cluster-name" in changed:
            self._own.cluster, self._own.dynamic = settings["cluster-name"], False
        if changed & ADVERTISED:
            self._advertise()
        anew = "cluster-name" in changed or tls != self._own.tls
        pools_anew = anew or "cluster-pool-size" in changed
        for route in list(self._routes.values()):
            gone = route.explicit and route.url in set(urls) - set(self._urls)
            if gone:
                route.no_reconnect = True
            if gone or anew or (pools_anew and (not route.account or self._own.pool_size < 1)):
                self._engine.close_connection(route.conn)
            elif route.wish is None and route.said is not None and not self._is_authorized(route, route.said):
                route.no_reconnect = True
                self._end(route, VIOLATION)
            elif permissions != self._own.permissions and route.registered:
                self._engine.call(route.conn, "permissions", ROUTES_SET)
                self._engine.reply(route.conn, json_line("INFO", self._own.info()))
            elif changed & COMPRESSION and route.registered:
                self._compression.change(route)
        self._dialer.keep(lambda wish: not wish.explicit or wish.url in self._urls)
        self._pin_others(at_once=pools_anew)
        known = set() if pools_anew else set(urls)
        for url in self._urls:
            if url not in known:
                self._dial_all(url)

    def _pin_others(self, *, at_once: bool) -> None:
        """Moves accounts to and from dedicated routes. `at_once`: no handshake, as pooled routes are closed anyway."""
        before, self._pinned = self._pinned, self._accounts_pinned()
        self._gossip.pinned = self._pinned
        added = [account for account in self._pinned if account not in before]
        removed = [account for account in before if account not in self._pinned]
        self._dialer.keep(lambda wish: wish.account not in removed)
        if removed:
            self._account_routes.give_up(removed)
        if at_once:
            self._account_routes.have(added)
        elif added:
            self._account_routes.move(added, self._own.pool_size)

    def _advertise(self) -> None:
        if self._nats is not None:
            told = not self._settings["cluster-no-advertise"]
            self._own.connect_urls = self._nats.own_urls() if told else ()
            self._own.ws_connect_urls = self._nats.own_websocket_urls() if told else ()
            # As nats-server does, only one of this server's own URLs.
            self._own.leafnode_urls = self._nats.leaves.own_urls[:1] if self._nats.leaves is not None else ()
        self._tell_clients()

    def _dial_all(self, url: RouteUrl) -> None:
        for account in ("", *self._pinned):
            self._dial(url, account)

    def _dial_for(self, account: str) -> None:
        for url in self._urls:
            self._dial(url, account)

    def _dial(self, url: RouteUrl, account: str) -> None:
        if not self._dialer.has(url, account):
            self._dialer.dial(Wish(url, explicit=True, account=account))

    # --- time -------------------------------------------------------------------------------------------------------

    def parting(self) -> None:
        """Ends all routes: other servers choose no clients here when they hear the end. What they send until then is
        still handed out."""
        self._dialer.close()
        for conn, route in self._routes.items():
            if route.registered:
                self._engine.part(conn)
            else:
                self._engine.close_connection(conn)

    def close(self) -> None:
        self._dialer.close()

    def wait_ns(self) -> int:
        if not self._begun:
            return 0
        waits = [self._dialer.wait_ns(), self._auth_wait_ns(), self._upgrades.wait_ns()]
        waits += [self._account_routes.wait_ns(), self._remarks.wait_ns()]
        return min((wait for wait in waits if wait != FOREVER), default=FOREVER)

    def expire(self) -> None:
        self._begin()
        self._dialer.expire()
        self._upgrades.expire()
        self._account_routes.expire()
        self._remarks.expire()
        now_ns = time.monotonic_ns()
        for route in list(self._routes.values()):
            if 0 < route.auth_by_ns <= now_ns:
                self._end(route, "Authentication Timeout")

    def poked(self) -> None:
        self._dialer.poked()

    def _auth_wait_ns(self) -> int:
        due = min((route.auth_by_ns for route in self._routes.values() if route.auth_by_ns), default=0)
        return max(due - time.monotonic_ns(), 0) if due else FOREVER

    def _begin(self) -> None:
        """Once all protocols are there, and before the first route is told where clients reach this server."""
        if self._begun:
            return
        self._begun = True
        self._advertise()
        log.info("the cluster is %s%s", self._own.cluster, ", a name that was made up" if self._own.dynamic else "")
        for url in self._urls:
            self._dial_all(url)

    def _adopt(self, fd: int) -> int:
        return self._engine.adopt(fd, protocol_number("nats-route"))

    def _is_own(self, host: str, port: int) -> bool:
        bound_host, bound_port = self._bound
        return port == bound_port and (host == bound_host if bound_host not in WILDCARD_HOSTS else is_ours(host))

    # --- upcalls ----------------------------------------------------------------------------------------------------

    def command(self, conn: int, command: bytes) -> None:
        self._begin()
        if not command:
            self._opened(conn)
            return
        if (route := self._routes.get(conn)) is not None:
            try:
                self._hear(route, command)
            except WrongLoginError as error:
                self._refuse(route.remote, str(error), partial(self._end_wrong, route))
                return
            except RouteError as error:
                self._end(route, str(error))
                return
        self._engine.resume(conn)

    def _hear(self, route: Route, command: bytes) -> None:
        word = command[:4].upper()
        try:
            if word == b"CONN":
                self._connect(route, command[len("CONNECT") :].strip(b" \t"))
            elif word == b"INFO":
                self._info(route, Info.read(command[len("INFO") :].strip(b" \t")))
            elif word == b"PONG":
                self._solicit_next(route)
                self._compression.adapt(route)
            else:
                self._remark(logging.WARNING, route, f"said {command.decode(errors='replace')}")
                raise RouteError("")
        except DecodeError as error:
            raise RouteError("") from error

    def input(self, conn: int, data: bytes) -> None:
        self._upgrades.input(conn, data)

    def output(self, conn: int, data: bytes) -> None:
        self._upgrades.output(conn, data)

    def damaged(self, conn: int, why: str) -> None:
        """The other server has sent invalid compressed data; closed() is next."""
        if (route := self._routes.get(conn)) is not None:
            self._remark(logging.ERROR, route, f"what came is no stream of S2: {why}")

    def closed(self, conn: int) -> None:
        self._upgrades.closed(conn)
        route = self._routes.pop(conn, None)
        if route is None:
            self._dialer.ended(conn)
            return
        failed = self._dialer.ended(conn)
        gone = self._cluster.remove(route)
        self._account_routes.ended(conn)
        if gone:
            self._remark(logging.INFO, route, "the route is gone")
            self._tell_clients()
        if failed or not self._begun or route.no_reconnect or route.remote_id == self._own.server_id:
            return
        again = route.wish
        if again is None and route.retry and route.url is not None:
            again = Wish(route.url, explicit=route.explicit, account=route.account)
        if again is not None:
            again.explicit = again.explicit or route.explicit
            self._again(route, again, gone)

    def _again(self, route: Route, wish: Wish, gone: bool) -> None:
        """Dials again after a route has ended, unless the server is still connected or a pooled route dials next."""
        if not route.account and self._own.pool_size < 1 and self._cluster.has(route.remote_id):
            return
        # In a pool each route opens the next one.
        if route.pool and not gone and self._cluster.next_is_due(route.remote_id):
            return
        if not self._dialer.has(wish.url, wish.account):
            self._dialer.again(Wish(wish.url, wish.explicit, wish.account), soon=route.retry)

    def _remark(self, level: int, route: Route, text: str) -> None:
        """Logs a remark; their number is limited for each server, or address if the server is not known."""
        name = f"{route.remote_name} ({route.remote})" if route.remote_name else route.remote
        self._remarks.say(level, route.remote_name or route.remote.rpartition(":")[0], f"{name}: {text}")

    def _end(self, route: Route, text: str) -> None:
        if text:
            self._remark(logging.WARNING, route, text)
            self._engine.reply(route.conn, f"-ERR '{text}'\r\n".encode())
        self._engine.close_connection(route.conn)

    def _end_wrong(self, route: Route) -> None:
        """Called perhaps later, when the route may be gone and its connection number be used again."""
        if self._routes.get(route.conn) is route:
            self._end(route, VIOLATION)

    # --- greeting ---------------------------------------------------------------------------------------------------

    def _opened(self, conn: int) -> None:
        wish = self._dialer.opened(conn)
        route = self._routes[conn] = Route(conn, wish, self._engine.remote(conn) or (str(wish.url) if wish else "?"))
        if self._encryption is not None and self._encryption.terms is not None:
            self._encryption.begin(conn, wish.url.host if wish is not None else "")
        else:
            self._greet(route)

    def _shaken(self, conn: int) -> None:
        if (route := self._routes.get(conn)) is None or self._encryption is None:
            return
        if self._encryption.is_pinned(conn):
            self._greet(route)
        else:
            self._remark(logging.ERROR, route, "the TLS handshake failed: certificate not pinned")
            self._engine.close_connection(conn)

    def _refused(self, conn: int, alert: bytes, why: str) -> None:
        self._engine.send(conn, alert)
        self._engine.close_connection(conn)

    def _greet(self, route: Route) -> None:
        self._say_first(route)
        self._engine.resume(route.conn)

    def _say_first(self, route: Route) -> None:
        conn, wish = route.conn, route.wish
        self._compression.begin(route)
        if wish is None:
            if self._own.auth_required:
                route.auth_by_ns = time.monotonic_ns() + self._settings["cluster-auth-timeout"]
            self._say_info(route)
            return
        route.url, route.account, route.explicit = wish.url, wish.account, wish.explicit
        self._engine.call(conn, "solicited")
        self._engine.reply(conn, json_line("CONNECT", self._own.connect(wish.url.user, wish.url.password)))
        # The free index in the pool, and the compression, are known only after the other server's INFO.
        if not self._delays_info(route):
            self._say_info(route)

    def _delays_info(self, route: Route) -> bool:
        if route.wish is None:
            return False
        return is_negotiated(self._own.compression) or (self._own.pool_size > 0 and not route.account)

    def _say_info(self, route: Route, pool_index: int = 0) -> None:
        mode = route.wish.gossip_mode if route.wish is not None else 0
        nonce, compression = secrets.token_urlsafe(11), self._compression.said(route)
        info = self._own.info(nonce, pool_index, route.account, mode, compression)
        self._engine.reply(route.conn, json_line("INFO", info))

    def _connect(self, route: Route, body: bytes) -> None:
        said = route.said = read_connect(body)
        route.auth_by_ns = 0
        if not self._is_authorized(route, said):
            raise WrongLoginError(said.get("user", ""))
        if said.get("lang"):
            raise RouteError("attempted to connect to route port")
        if said.get("gateway"):
            raise RouteError(f'Rejecting connection from gateway "{said["gateway"]}" on the Route port')
        route.headers = bool(said.get("headers"))
        name = said.get("cluster", "")
        # Old servers, from before clusters had names, send none.
        if name and name != self._own.cluster and not self._takes_name(name, bool(said.get("cluster_dynamic")), route):
            raise RouteError(f'Rejecting connection, cluster name "{name}" does not match "{self._own.cluster}"')

    def _is_authorized(self, route: Route, said: Mapping[str, Any]) -> bool:
        terms = self._encryption.terms if self._encryption is not None else None
        if self._encryption is not None and terms is not None and terms.names_who:
            return self._encryption.is_known(route.conn, self._urls)
        if not self._own.auth_required:
            return True
        known = _same(said.get("user", ""), self._settings["cluster-user"])
        return _same(said.get("pass", ""), self._settings["cluster-password"]) and known

    def _takes_name(self, name: str, dynamic: bool, route: Route) -> bool:
        """Takes over the other server's cluster name: a generated name yields to a configured one, or a greater one."""
        if not self._own.dynamic or (dynamic and self._own.cluster >= name):
            return False
        log.info("the cluster is %s", name)
        self._own.cluster, self._own.dynamic = name, dynamic
        for other in list(self._routes.values()):
            if other is not route and other.registered and other.remote_id != route.remote_id:
                self._engine.close_connection(other.conn)
        self._tell_clients()
        return True

    # --- INFO -------------------------------------------------------------------------------------------------------

    def _info(self, route: Route, info: Info) -> None:
        if info.server_id == self._own.server_id:
            route.remote_id, route.no_reconnect = info.server_id, True
            self._dialer.forget(route.conn)
            raise RouteError("")
        name = info.text("cluster")
        if name and name != self._own.cluster and not self._takes_name(name, info.flag("cluster_dynamic"), route):
            raise RouteError("")
        if route.registered:
            self._hear_more(route, info)
            return
        if route.wish is None and info.text("server_name") == self._own.server_name and self._own.server_name:
            self._remark(logging.ERROR, route, f'it has the name of this server: "{self._own.server_name}"')
            raise RouteError("")
        self._dialer.heard(route.conn)
        try:
            is_on_from_here = self._compression.agree(route, info.text("compression"))
        except ValueError as error:
            raise RouteError(str(error)) from None
        if not is_on_from_here:  # else another INFO comes, compressed
            self._register(route, info)

    def _register(self, route: Route, info: Info) -> None:
        route.take(info)
        first, index = self._place(route, info)
        if self._delays_info(route):
            self._say_info(route, index)
        flags = (HEADERS if info.flag("headers") else 0) | (0 if route.pool or route.account else NO_POOL)
        flags |= TRACES if info.traces else 0
        has_all = info.flag("ln")  # what is newer implies the rest
        flags |= ORIGINS if info.flag("lnocu") or has_all else 0
        flags |= LEAF_MESSAGES if info.flag("lnoc") or has_all else 0
        flags |= LEAVES if has_all else 0
        size = max(self._own.pool_size, 0)
        self._engine.call(route.conn, "permissions", ROUTES_SET)
        try:
            joined = self._engine.call(route.conn, "join", flags | index << 16 | size << 32, route.account.encode())
        except ValueError:
            self._remark(logging.ERROR, route, "there are as many routes as there can be")
            raise RouteError("") from None
        if not joined:
            return
        self._engine.call(route.conn, "name", 0, info.text("server_name").encode())
        route.registered = True
        self._compression.follow_rtt(route)
        if first:
            self._remark(logging.INFO, route, "there is a route")
            self._tell_clients()
        if route.account:
            self._account_routes.joined(route.account)
        if first or route.account:
            self._gossip.tell(route, info)
        if route.wish is not None and route.pool and not route.account and not self._cluster.is_full(route.remote_id):
            route.brings_next = True
            self._engine.call(route.conn, "ping")

    def _place(self, route: Route, info: Info) -> tuple[bool, int]:
        """Returns whether this is the first route to its server, and its index in the pool. Raises RouteError."""
        refused = self._cluster.refusal(route, info)
        if refused:
            route.no_reconnect = route.no_reconnect or bool(route.account)
            raise RouteError(refused)
        placed = self._cluster.place(route, info)
        if placed is None:
            log.debug("%s is connected already", route.remote)
            raise RouteError("")
        return placed

    def _solicit_next(self, route: Route) -> None:
        if route.brings_next and route.url is not None and route.wish is not None:
            route.brings_next = False
            if not self._cluster.is_full(route.remote_id):
                self._dialer.dial(Wish(route.url, route.explicit, gossip_mode=route.wish.gossip_mode))

    def _hear_more(self, route: Route, info: Info) -> None:
        if info.values.get("route_acc_add_reqid"):
            self._account_routes.hear(route, info)
        elif info.server_id != route.remote_id:
            self._gossip.hear(route, info)
        elif info.flag("ldm") and route.info is not None:
            # The server is about to end: clients must not be told of it any more.
            self._cluster.leave(route)
            self._tell_clients()
        elif route.info is not None and info.limits() != route.info.limits():
            # Its permissions have changed: it may need interest that it was not sent before.
            route.info.values.update(info.limits())
            self._engine.call(route.conn, "tell-again")

    # --- clients ----------------------------------------------------------------------------------------------------

    def lame_duck(self) -> None:
        """Tells the other servers, which then no longer send clients here."""
        self._own.ldm = True
        for route in self._cluster.one_of_each(""):
            self._engine.reply(route.conn, json_line("INFO", self._own.info()))

    def _tell_clients(self) -> None:
        """Tells all acceptors, and thereby clients, the cluster's name and the other servers' URLs."""
        if self._nats is not None:
            told = not self._settings["cluster-no-advertise"]
            urls = self._cluster.connect_urls() if told else ()
            ws_urls = self._cluster.connect_urls("ws_connect_urls") if told else ()
            self._met = told and (self._met or bool(urls))
            # These stay set, as a server may only be away for a moment.
            self._others = self._others or any(self._cluster.one_of_each(""))
            self._jetstream = self._jetstream or self._cluster.has_jetstream()
            more: dict[str, object] = {"met": self._met, "others": self._others, "jetstream": self._jetstream}
            more["leaf_urls"] = list(self._cluster.connect_urls("leafnode_urls"))
            self._nats.cluster_changed(urls, ws_urls, self._own.cluster, **more)

    # --- figures ----------------------------------------------------------------------------------------------------

    def routes(self) -> list[dict[str, Any]]:
        """The rows of /routez."""
        there = [route for route in self._routes.values() if route.registered]
        return [{**route.shown(), **figures_of(self._engine, route.conn)} for route in there]

    def shown(self) -> dict[str, Any]:
        """The cluster's settings, as /varz shows them."""
        settings, own = self._settings, self._own
        optional: dict[str, Any] = {
            "urls": [f"{url.host}:{url.port}" for url in self._urls],
            "tls_timeout": settings["cluster-tls-timeout"] / SECOND,
            "tls_required": own.tls, "tls_verify": own.tls, "pool_size": settings["cluster-pool-size"],
            "write_deadline": settings["cluster-write-deadline"],
            **write_timeout.shown(settings["cluster-write-timeout"]),
        }  # fmt: skip
        return {
            "name": own.cluster, "addr": self._bound[0], "cluster_port": self._bound[1],
            "auth_timeout": settings["cluster-auth-timeout"] / SECOND,
            **{name: value for name, value in optional.items() if value},
        }  # fmt: skip


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())
