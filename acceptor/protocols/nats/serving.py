"""NATS's rare commands, which come once or so in a client's life; authentication.py handles CONNECT.

nats.c, the C half, handles all other commands. It hands over the following, and takes no more of a connection's input
until this half calls resume():

    (nothing)          the connection is new, and must be sent INFO
    PROXY ...          a proxy's header with the client's address; PROXY alone: the client sent no header
    SNIFFx             x is the first byte, for which a greeting has waited; SNIFF alone: none came in time
    CONNECT {...}      the client's options and credentials
    NOBODY             the client sent another command before CONNECT, where that is allowed: which user is it?
    PING               its first after CONNECT, which C has answered: INFO tells the account that it is connected to
    ASK WHAT REPLY     the client asks about itself or its account, to be answered at REPLY; options follow the line

This server accepts, refuses and sends what a nats-server does.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson
from mq_shards.acceptor.access.secrets import Secrets
from mq_shards.acceptor.engine import FOREVER, Engine
from mq_shards.acceptor.newest import Newest
from mq_shards.acceptor.protocol import Broker, Settings
from mq_shards.acceptor.protocols.nats import logged, orders, reasons, write_timeout
from mq_shards.acceptor.protocols.nats import options as nats_options
from mq_shards.acceptor.protocols.nats import tls_options as nats_tls_options
from mq_shards.acceptor.protocols.nats import topics as nats_topics
from mq_shards.acceptor.protocols.nats.admission import Admission
from mq_shards.acceptor.protocols.nats.askers import Askers
from mq_shards.acceptor.protocols.nats.authentication import Authentication
from mq_shards.acceptor.protocols.nats.client import (
    Client,
    Identity,
    client_ids,
    describe,
    first_flags,
    info_line,
    labels,
    server_id_of,
    server_row,
)
from mq_shards.acceptor.protocols.nats.cluster_options import advertised
from mq_shards.acceptor.protocols.nats.greeting import Greetings
from mq_shards.acceptor.protocols.nats.logins import Logins
from mq_shards.acceptor.protocols.nats.monitor import Known, Monitor, account_row, system_shares, tls_row
from mq_shards.acceptor.protocols.nats.nats import Nats
from mq_shards.acceptor.protocols.nats.operator_mode import OperatorMode
from mq_shards.acceptor.protocols.nats.own_client import OwnClients
from mq_shards.acceptor.protocols.nats.questions import Questions
from mq_shards.acceptor.protocols.nats.rounds import Rounds
from mq_shards.acceptor.protocols.nats.shares import Exports

if TYPE_CHECKING:
    from mq_shards.acceptor.filters.tls import VerifyingTls
    from mq_shards.acceptor.protocols.nats.callouts import Callouts
    from mq_shards.acceptor.protocols.nats.lame_duck import LameDuck
    from mq_shards.acceptor.protocols.nats.leaf_door import LeafDoor
    from mq_shards.acceptor.protocols.nats.leaf_nodes import LeafNodes
    from mq_shards.acceptor.protocols.nats.system import System
    from mq_shards.acceptor.protocols.nats.websocket import Websockets
    from mq_shards.acceptor.protocols.nats.websocket_upgrade import Upgraded
    from mq_shards.acceptor.upgrade import Upgrades

NONCE_BYTES: Final = 11
PONG: Final = b"PONG\r\n"
TOLD: Final = ("name", "met", "urls", "ws_urls")  # what INFO says of the cluster


class NatsServing(Nats):
    def __init__(self, engine: Engine, settings: Settings, broker: Broker) -> None:
        super().__init__(engine, settings, broker)
        self._clients: dict[int, Client] = {}
        has_headers = not settings["no-header-support"]
        self.client_ids: Final = client_ids(broker.acceptor, engine.totals().total_connections)
        server_id = server_id_of(broker.instance)
        name = settings["server-name"] or server_id
        self.identity = Identity(server_id, name, "", 0, settings["max-payload"], has_headers)
        self._accounts: dict[str, Mapping[str, Any]] = {}  # what accounts share
        self._content = b""  # the configuration file as it was read
        self._found: Mapping[str, Any] = {}  # "who" of the configuration file: users and accounts
        self.leaf_content: Mapping[str, Any] = {}  # "leaf" of it: users of leaf nodes, and hubs
        self._config_digest = ""  # of the whole file
        self.admission = Admission(engine, self._number)
        self._own = OwnClients(engine, self.admission)
        self._askers = Askers(engine, self._number, broker, self._own, self.admission)
        self.passwords = Secrets(engine.poke)
        self._greetings = Greetings(engine, self._info_line, self._greeted, self._clients.__getitem__)
        self._websockets: Websockets | None = None
        self._address = self._websocket_address = ("", 0)
        self.logins = Logins(self.passwords, self._encryption, lambda: self.access, self.refuse_login)
        self._authentication = Authentication(
            engine, self._clients, self.logins, self.admission, self._told, self._say_connected,
            has_headers=has_headers,
        )  # fmt: skip
        self._rounds = Rounds(self._clients)
        self._by_jwt = OperatorMode(
            engine, broker, self.name, self.server_row, self._share_some, lambda: bool(self.cluster.get("others"))
        )
        self.events: System | None = None
        self._lame_duck: LameDuck | None = None
        self._given = Exports()  # while an account is shown
        self.cluster: Mapping[str, Any] = {"name": settings["cluster-name"]}  # see cluster_changed
        self._cluster_news = Newest(lambda said: broker.share(self.name, "cluster", said))
        self.shown_cluster: Callable[[], dict[str, Any]] = dict
        self.route_permissions: Callable[[], Mapping[str, Any]] = dict
        self.list_routes: Callable[[], list[dict[str, Any]]] = list  # replaced in the acceptor that has routes
        self.leaves: LeafNodes | None = None  # set in the acceptor that has leaf nodes or hubs
        self.leaf_door: Callable[[Upgrades], LeafDoor | None] = lambda upgrades: None
        self.monitor = Monitor(
            engine, self._number, self._known, self._described, self._account, time.time_ns,
            -(-settings["max-closed-clients"] // broker.acceptors),
        )  # fmt: skip
        self._questions = Questions(engine, self._clients, self.server_row)
        if broker.calls is not None:
            self.monitor.serve(broker.calls)
            orders.serve(broker.calls, self._clients, self._kick, self._say_lame_duck, lambda: self.leaves)
        self._set_options(settings)

    def _set_options(self, settings: Settings) -> None:
        engine, terms = self._engine, None
        if nats_tls_options.are_set(settings):
            from mq_shards.acceptor.protocols.nats import tls as nats_tls

            # First of all: if a file cannot be used, this fails with nothing changed, so TLS is not turned off.
            terms = nats_tls.terms(settings)
        self._settings, self._greetings.terms = settings, terms
        self._authentication.set(settings)
        self._set_who()
        engine.set("nats.max-payload", nats_options.payload_limit(settings["max-payload"]))
        for option in ("control-line", "pending", "subscriptions", "sub-tokens"):
            engine.set(f"nats.max-{option}", settings[f"max-{option}"])
        engine.set("nats.ping-max", settings["ping-max"])
        if self._websockets is not None:
            self._websockets.configure(settings)
        nats_topics.bind(engine, self._number, settings)
        engine.set("nats.write-deadline-ns", settings["write-deadline"])
        engine.set("nats.write-retries", int(write_timeout.retries(settings["write-timeout"], is_client=True)))
        engine.set("nats.ping-interval-ns", settings["ping-interval"])
        engine.configure(self._number, "log", logged.terms(settings))

    # --- what the supervisor says -----------------------------------------------------------------------------------

    def configure(self, content: bytes) -> None:
        if content == self._content and self.logins.operator is None:
            return  # very many accounts and users take long to read
        found = orjson.loads(content)
        self._found, self.leaf_content = found.get("who", {}), found.get("leaf", {})
        self._config_digest = found.get("digest", "")
        before = self.logins.operator
        self._by_jwt.configure(found.get("operator"))
        self.logins.operator = self._by_jwt.operator
        self._set_who()
        if self.logins.operator is None:
            self._share(self._found.get("accounts", ()))
        elif before is not None:
            self._by_jwt.start(before.accounts)
        self._content = content

    def serving(self) -> None:
        self._by_jwt.start({})

    def _share_some(self, accounts: Mapping[str, Mapping[str, Any]], names: set[str] | None) -> None:
        """The shares of the accounts `names` have changed; None: those of any may have."""
        if names is None or not self.admission.share_some(self.cluster.get("name", ""), accounts, names):
            self._share(list(accounts.values()))
            return
        self._accounts.update({name: accounts[name] for name in names})
        self._shares_changed(names)

    def _share(self, accounts: Sequence[Mapping[str, Any]] | None = None) -> None:
        accounts = self.admission.share(self.cluster.get("name", ""), accounts)
        self._accounts = {account["name"]: account for account in accounts}
        self._shares_changed(None)

    def _shares_changed(self, names: set[str] | None) -> None:
        if self._askers.learn(self._accounts, names, self.system_account):
            self._rounds.begin(self._limit)
        if self.logins.callouts is not None:
            self.logins.callouts.accounts_changed()

    def _set_who(self) -> None:
        self.logins.learn(self._found, self._settings, self._engine.pause)
        self._set_system()
        self._set_callouts()

    def reload(self, settings: Settings) -> None:
        before = self._settings
        self._set_options(settings)
        self.identity = self.identity._replace(max_payload=settings["max-payload"])
        self._rounds.begin(self._reloaded)
        for conn in orders.excess(list(self._clients), self._connections(), settings["max-connections"]):
            reasons.end(self._engine, conn, "maximum connections exceeded")
        self._set_identity()
        is_told = "max-payload", *(("client-advertise",) if self.cluster.get("met") else ())
        if any(before[name] != settings[name] for name in is_told):
            self._say_info_again()

    def _reloaded(self, conn: int, client: Client) -> None:
        if client.user is not None and client.user.is_called_out:
            self._engine.call(conn, "end", reasons.CLIENT_CLOSED)  # so that the service is asked again
        else:
            self._authentication.limit(conn)
        self._authentication.look_again(conn, client)

    def _limit(self, conn: int, client: Client) -> None:
        self._authentication.limit(conn)

    def users_changed(self) -> None:
        self._rounds.begin(self._authentication.look_again)

    def _connections(self) -> int:
        """The number of clients of all acceptors."""
        return self._engine.counters(self._number)["connections"]

    def lame_duck(self) -> None:
        from mq_shards.acceptor.protocols.nats.lame_duck import LameDuck

        self._say_event("LAMEDUCK")
        for conn in self._clients:
            self._say_lame_duck(conn)
        self._lame_duck = LameDuck(
            self._clients,
            self._retire,
            lambda conn: self._engine.call(conn, "end", reasons.SERVER_SHUTDOWN),
            lambda: self._broker.say({"did": "lame-duck-over"}),
            self._settings["lame-duck-grace-period"],
            self._settings["lame-duck-duration"],
        )

    def _say_lame_duck(self, conn: int) -> bool:
        return self._say_info(conn, {"ldm": True, "connect_urls": self._urls_of_others(self._clients[conn])})

    def _retire(self, conn: int) -> None:
        place = 0
        while (place := self._engine.call(conn, "retire", place)) > 1:
            self._engine.pause()

    def _kick(self, conn: int) -> bool:
        self._engine.call(conn, "end", reasons.KICKED)
        return True

    @property
    def system_account(self) -> str:
        return self.logins.plain.system_account

    def own_urls(self) -> tuple[str, ...]:
        """The URLs at which clients reach this server."""
        from mq_shards.acceptor.protocols.nats.addresses import own_urls

        return tuple(own_urls(*self._address, self._settings["client-advertise"]))

    def own_websocket_urls(self) -> tuple[str, ...]:
        """The URLs for websockets."""
        from mq_shards.acceptor.protocols.nats.addresses import own_urls

        host, port = self._websocket_address
        return tuple(own_urls(host, port, self._settings["websocket-advertise"])) if port else ()

    def cluster_changed(self, urls: Sequence[str], ws_urls: Sequence[str], name: str, **more: object) -> None:
        """Tells all acceptors the other servers' URLs and the cluster's name; called by the acceptor that has routes.
        `more` are `others`: there are or were other servers; `met`: there are or were some that clients are told of;
        `jetstream`: some have JetStream; `leaf_urls`: the other servers' URLs for leaf nodes."""
        self._cluster_news.tell({"urls": list(urls), "ws_urls": list(ws_urls), "name": name, **more})

    def shared(self, what: str, message: Mapping[str, Any]) -> None:
        if what == "cluster":
            before, self.cluster = self.cluster, message
            is_news = bool(message["jetstream"]) and self.admission.take_jetstream(self.system_account)
            if is_news or before.get("name") != message.get("name"):
                self._share()  # mappings may depend on the cluster's name
                describe(self._engine, self._number, self.server_row())
            if is_news:
                self._by_jwt.meet_jetstream()
                self._rounds.begin(self._limit)
            if any((before.get(key) or "") != (message[key] or "") for key in TOLD):
                self._say_info_again()
            self._cluster_news.heard()
        elif account := self._by_jwt.took(what, message):
            if self.leaves is not None:
                self.leaves.look_again()
            known = (each for each in self._clients.items() if each[1].connects and not each[1].is_connecting)
            self._rounds.begin(self._authentication.look_again, (each for each in known if each[1].account == account))

    def _say_info_again(self) -> None:
        self._rounds.begin(self._say_info_to)

    def _say_info_to(self, conn: int, client: Client) -> None:
        self._say_info(conn, {})

    def _say_info(self, conn: int, more: Mapping[str, Any]) -> bool:
        """Sends INFO to a client that accepts it at any time. Returns whether it does."""
        if self._clients[conn].connect_info:
            self._engine.reply(conn, self._later_info(conn, more))
        return self._clients[conn].connect_info

    def _later_info(self, conn: int, more: Mapping[str, Any]) -> bytes:
        client = self._clients[conn]
        known = {"auth_required": self.logins.required(conn, client), "max_payload": self.logins.payload(client)}
        return info_line({**self._info(conn, client, self._requires_tls(conn)), **known, **more})

    def _say_event(self, what: str) -> None:
        """Sends an event of the server to the system account's users at this acceptor; all acceptors do so."""
        if self.events is not None:
            subject, content = self.events.server_event(what, self.server_row())
            self._engine.call(self.events.client.conn, "answer", 1, subject.encode() + b" " + content)

    def stopping(self) -> None:
        self._say_event("SHUTDOWN")
        for conn, client in self._clients.items():
            if client.is_websocket:
                self._engine.call(conn, "end", reasons.SERVER_SHUTDOWN)

    def close(self) -> None:
        self._by_jwt.close()
        self.passwords.close()
        if self.logins.callouts is not None:
            self.logins.callouts.close()
        self._own.close()

    def poked(self) -> None:
        self.passwords.settle()
        self._by_jwt.settle()

    # --- the system account -----------------------------------------------------------------------------------------

    def _set_system(self) -> None:
        """Starts the server's own client in the system account, once that may have users."""
        broker = self._broker
        is_wanted = self.events is None and self.logins.has_system_users()
        if not is_wanted or broker.calls is None or broker.watched is None:
            return
        from mq_shards.acceptor.protocols.nats.system import System

        self.events = System(
            self._engine, self._number, broker.watched, broker.calls, self.identity.server_id,
            answers=broker.acceptor == 0, account=self.system_account,
            claims=None if self.logins.operator is None else self._by_jwt.heard,
        )  # fmt: skip
        self._by_jwt.attach(self.events)
        self._own.add(self.events.client)
        self._engine.set("nats.answers-all", 1)

    def _set_callouts(self) -> None:
        """Sets up the services of auth callouts."""
        logins, broker = self.logins, self._broker
        content = self._found.get("callout")
        if logins.callouts is None and (content or logins.operator is not None) and broker.watched is not None:
            from mq_shards.acceptor.protocols.nats.callouts import Callouts

            logins.callouts = Callouts(
                self._engine, self._number, broker.watched, self._own, self.server_row, lambda: logins.operator
            )
        if logins.callouts is not None:
            logins.callouts.set_file(content, logins.account_names)

    def _told(self, client: Client) -> bytes:
        return self._askers.described(client, self.identity.server_name, self.cluster.get("name", ""))

    def _say_connected(self, conn: int) -> None:
        known = self._known(conn)
        if self.events is not None and known is not None:
            self.events.connected(known, self.server_row())

    def say_ended(self, known: Known, words: bytes, reason: int, *, is_joined: bool) -> None:
        """A connection of a leaf node or hub ends; `words` are the codec's last."""
        row = self.monitor.keep(known, words, reason)
        if is_joined and self.events is not None:
            self.events.disconnected(known, self.server_row(), row)

    def server_row(self) -> dict[str, Any]:
        return server_row({**self.identity.info(), "cluster": self.cluster.get("name", ""), **labels(self._settings)})

    # --- monitoring -------------------------------------------------------------------------------------------------

    def _known(self, conn: int) -> Known | None:
        client = self._clients.get(conn)
        if client is None or (self._websockets is not None and self._websockets.is_awaited(conn)):
            return None
        tls = self._encryption(conn)[0]
        row = client.row() | tls_row(tls, self._greetings.is_tls_first(conn))
        auth = self.logins.shown(client)
        return Known(client.client_id, client.account, client.connected_wall_ns, row, auth, tls)

    def _account(self, name: str, first: int) -> dict[str, Any]:
        if first == 0:
            self._given = Exports()
        known = account_row(self._accounts.get(name, {}), self._accounts, first, self._given, self._engine.pause)
        if first > 0:
            return known
        if self.events is not None:
            for what, shares in system_shares(name, self.system_account).items():
                known[what] = [*known.get(what, ()), *shares]
        return {**known, **self.logins.shown_account(name)}

    def _described(self, with_accounts: bool) -> dict[str, Any]:
        """The description of this server for the gateway: see monitor.py."""
        terms = self._greetings.terms
        routes, who, leaves = self.list_routes(), self.logins.plain, self.leaves
        return {
            **self.identity.info(),
            **labels(self._settings),
            "routes": len(routes),
            "route_list": routes,
            "route_permissions": self.route_permissions(),
            "cluster": self.cluster.get("name", ""),
            "cluster_options": self.shown_cluster(),
            **({"leaf_list": leaves.rows(), "leaf_options": leaves.shown()} if leaves is not None else {}),
            "auth_required": who.required,
            "config_digest": self._config_digest,
            "tls_required": terms is not None and terms.required,
            "tls_verify": terms is not None and terms.verify,
            "connect_urls": self._connect_urls(is_websocket=False),
            "websocket": self._websocket_address,
            "accounts": sorted({*self.logins.account_names(), *self._accounts}) if with_accounts else [],
            "system_account": who.system_account if self.logins.has_system_account() else "",
        }

    def _set_identity(self) -> None:
        """INFO and the events say where clients are to connect, which may be what is advertised."""
        (host, port), advertise = self._address, self._settings["client-advertise"]
        host, port = advertised(advertise, port) if advertise else (host, port)
        self.identity = self.identity._replace(host=host, port=port)

    # --- what the engine says ---------------------------------------------------------------------------------------

    def listening(self, host: str, port: int) -> None:
        self._address = (self.host_name or host, port)
        self._set_identity()
        describe(self._engine, self._number, self.server_row())

    def listening_otherwise(self, scheme: str, host: str, port: int) -> None:
        """Listens for websockets."""
        self._websocket_address = (self.host_name or host, port)
        if self._websockets is None:
            from mq_shards.acceptor.protocols.nats.websocket import Websockets

            self._websockets = Websockets(self._engine, self._settings, self._upgraded, self.leaf_door)

    def command(self, conn: int, command: bytes) -> None:
        if not command:
            self._opened(conn)
            return
        if command.startswith(logged.COMMAND):
            logged.write(self._clients.get(conn), command[len(logged.COMMAND) :])
            return
        if self._greetings.takes(conn, command):
            return
        if (word := command[:4].upper()) in (b"PING", b"ASK "):
            if word == b"PING":
                self._first_ping(conn)
            else:
                self._questions.asked(conn, self.events, *command[4:].split(b"\r\n", 1))
            self._engine.resume(conn)
            return
        if command == b"NOBODY":
            self._authentication.admit_nobody(conn)
        else:
            self._authentication.connect(conn, command[len("CONNECT") :].strip(b" \t"))

    def last_words(self, conn: int, words: bytes) -> None:
        row, known = self.monitor.ended(conn, words), self._known(conn)
        if self.events is not None and row is not None and known is not None:
            self.events.ended(self._clients[conn], known, self.server_row(), row)

    def closed(self, conn: int) -> None:
        self._clients.pop(conn, None)
        if self._lame_duck is not None and not self._clients:
            self._lame_duck.end()
        self._authentication.closed(conn)
        self._greetings.closed(conn)
        if self._websockets is not None:
            self._websockets.closed(conn)
        self._own.closed(conn)

    def _upgrades(self, conn: int) -> Upgrades:
        websockets = self._websockets
        return websockets.upgrades if websockets and conn in websockets.upgrades else self._greetings.upgrades

    def input(self, conn: int, data: bytes) -> None:
        self._upgrades(conn).input(conn, data)

    def output(self, conn: int, data: bytes) -> None:
        self._upgrades(conn).output(conn, data)

    def closing(self, conn: int, frame: bytes) -> None:
        if self._websockets is not None:
            self._websockets.closing(conn, frame)

    def _encryption(self, conn: int) -> tuple[VerifyingTls | None, bool]:
        """See logins.py."""
        websockets = self._websockets
        if websockets is not None and self._clients[conn].is_websocket:
            return websockets.encryption(conn), websockets.tls is not None and websockets.tls.maps
        terms = self._greetings.terms
        return self._greetings.tls(conn), terms is not None and terms.maps

    def wait_ns(self) -> int:
        waits = [self._greetings.wait_ns(), self._authentication.wait_ns(), self._rounds.wait_ns()]
        waits += [each.wait_ns() for each in self._parts() if each is not None]
        return min((wait for wait in waits if wait != FOREVER), default=FOREVER)

    def _parts(self) -> tuple[Websockets | LameDuck | System | Callouts | OperatorMode | Askers | None, ...]:
        return self._websockets, self._lame_duck, self.events, self.logins.callouts, self._by_jwt, self._askers

    def expire(self) -> None:
        self._authentication.expire()
        self._rounds.expire()
        self._greetings.expire()
        for each in self._parts():
            if each is not None:
                each.expire()

    # --- INFO -------------------------------------------------------------------------------------------------------

    def _opened(self, conn: int) -> None:
        if self._own.admit(conn):
            return
        client = Client.of(next(self.client_ids), time.time_ns(), self._engine.remote(conn))
        client.is_websocket = self._websockets is not None and self._engine.is_filtered(conn)
        client.is_unknown = self._settings["proxy-protocol"] and not client.is_websocket
        self._clients[conn] = client
        self._engine.call(conn, "client-id", client.client_id)
        if self.logins.who(client).nonce:
            client.nonce = base64.urlsafe_b64encode(os.urandom(NONCE_BYTES)).decode().rstrip("=")
        if client.is_websocket:
            assert self._websockets is not None
            self._websockets.opened(conn)
        elif not self._is_too_many(conn):
            self._greetings.opened(conn)

    def _upgraded(self, conn: int, found: Upgraded) -> None:
        """The connection has become a websocket."""
        self._clients[conn].upgraded(found.cookies)
        if found.is_leaf and self._websockets is not None:
            self._websockets.bring(conn, found, self._clients.pop(conn).remote)
        elif not self._is_too_many(conn):
            self._engine.reply(conn, self._info_line(conn, self._requires_tls(conn)))
            self._greeted(conn)

    def _is_too_many(self, conn: int) -> bool:
        if not orders.is_excess(self._connections(), self._settings["max-connections"]):
            return False
        self._engine.reply(conn, self._info_line(conn, self._requires_tls(conn)))
        reasons.end(self._engine, conn, "maximum connections exceeded")
        return True

    def _greeted(self, conn: int) -> None:
        """INFO was sent, and the TLS handshake is over if there is one: the codec goes on."""
        client = self._clients[conn]
        if self.logins.required(conn, client):
            self._engine.call(conn, "flags", first_flags(self.logins.for_nobody(conn, client) is not None))
            timeout_ns = self._settings["auth-timeout"]
            if client.is_websocket:
                timeout_ns = self._settings["websocket-auth-timeout"] or timeout_ns
            self._engine.call(conn, "must-connect-by-ns", time.monotonic_ns() + timeout_ns)
        self._engine.resume(conn)

    def _info_line(self, conn: int, tls_required: bool) -> bytes:
        client = self._clients[conn]
        first = {"auth_required": self.logins.announced(conn, client), "nonce": client.nonce}
        return info_line({**self._info(conn, client, tls_required), **first})

    def _info(self, conn: int, client: Client, tls_required: bool) -> dict[str, Any]:
        info = self.identity.info()
        if client.is_websocket:
            info["host"], info["port"] = self._websocket_address
            info |= {"tls_required": True, "tls_available": True} if tls_required else {}
        elif (tls := self._greetings.terms) is not None:
            info |= {"tls_required": tls_required, "tls_verify": tls.verify, "tls_available": not tls.required}
        return info | {
            "cluster": self.cluster.get("name"),
            "connect_urls": self._connect_urls(client.is_websocket),
            "client_id": client.client_id,
            "client_ip": "" if client.is_unknown else client.host,
        }

    def _urls_of_others(self, client: Client) -> list[str]:
        return list(self.cluster.get("ws_urls" if client.is_websocket else "urls", ()))

    def _connect_urls(self, is_websocket: bool) -> list[str]:
        """URLs of all servers; none until there was another server. Those of a server that is gone are left out."""
        if not self.cluster.get("met"):
            return []
        if is_websocket:
            return [*self.own_websocket_urls(), *self.cluster.get("ws_urls", ())]
        return [*self.own_urls(), *self.cluster["urls"]]

    def _first_ping(self, conn: int) -> None:
        """PONG and INFO leave together: a client that has heard PONG may take a later INFO for news."""
        client, info = self._clients[conn], b""
        if client.options.get("protocol", 0) >= 1:
            client.connect_info = True
            of_system = {"acc_is_sys": True} if client.account == self.logins.plain.system_account else {}
            info = self._later_info(conn, {"connect_info": True, "remote_account": client.account, **of_system})
        if logged.is_on(self._settings):
            logged.write_sent(client, "PONG")
        self._engine.reply(conn, PONG + info)

    def _requires_tls(self, conn: int) -> bool:
        if self._clients[conn].is_websocket:
            return self._websockets is not None and self._websockets.encryption(conn) is not None
        terms = self._greetings.terms
        return terms is not None and (terms.required or self._greetings.is_tls_first(conn))


SERVING: Final = NatsServing
