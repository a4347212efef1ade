"""NATS's rare commands: INFO, CONNECT, and who a client is.

csrc/acceptor/protocols/nats.c has the others, and takes no more of a connection's input until a command of this half is
done with:

    (nothing)          the connection is new: INFO is due
    SNIFFx             x is its first byte, which somebody wanted to know; SNIFF: none came in time
    CONNECT {...}      what the client can do, and who it is
    NOBODY             something else comes before CONNECT, where that may be: who is that?
    PING               its first after CONNECT, which C has answered: INFO says once more what it is connected to

What is accepted and said is nats-server's.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
from mq_shards.acceptor.engine import FOREVER, Engine
from mq_shards.acceptor.option_kinds import MAX_BODY, MINUTE, MS, SECOND, YEAR, Duration, Kind, Number, Setting, Text
from mq_shards.acceptor.protocol import Broker, OwnConfig, Protocol, Settings
from mq_shards.acceptor.protocols import nats_cluster_options, nats_nkeys, nats_tls_options, nats_topics
from mq_shards.acceptor.protocols.go_json import DecodeError, fields, flag, int64, loads, text
from mq_shards.acceptor.protocols.nats_admission import Admission
from mq_shards.acceptor.protocols.nats_greeting import Greetings
from mq_shards.acceptor.protocols.nats_monitor import Known, Monitor, tls_row
from mq_shards.acceptor.protocols.nats_secrets import Secrets
from mq_shards.acceptor.protocols.nats_shares import needs_info
from mq_shards.acceptor.protocols.nats_who import GLOBAL_ACCOUNT, AccountLimits, Claim, User, who_of

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nats_lame_duck import LameDuck
    from mq_shards.acceptor.protocols.nats_system import System

# The nats-server whose clients' side this is, to the letter: clients look at it to know what a server can do.
NATS_SERVER_VERSION: Final = "2.15.2"

# enum nats_flag, csrc/acceptor/protocols/nats.h
VERBOSE: Final = 1
PEDANTIC: Final = 2
ECHO: Final = 4
HEADERS: Final = 8
NO_RESPONDERS: Final = 16
MUST_CONNECT: Final = 32
MAY_BE_NOBODY: Final = 1024

NONCE_BYTES: Final = 11

CONNECT_FIELDS: Final = {
    "verbose": flag, "pedantic": flag, "tls_required": flag, "echo": flag, "headers": flag, "no_responders": flag,
    "user": text, "pass": text, "auth_token": text, "nkey": text, "sig": text, "jwt": text,
    "name": text, "lang": text, "version": text, "protocol": int64, "account": text, "new_account": flag,
}  # fmt: skip
# What nats-server begins with before a client has said what it wants.
DEFAULTS: Final[Mapping[str, Any]] = {"verbose": True, "pedantic": True, "echo": True}


OPTIONS: Final[Mapping[str, Kind]] = {
    "server-name": Text("", "what INFO calls server_name; empty: the server's ID"),
    "user": Text("", "every client must say this user and password"),
    "password": Text("", "see user"),
    "token": Text("", "every client must say this token"),
    "auth-timeout": Duration(2 * SECOND, MS, YEAR, "for a CONNECT to come, where one must"),
    "max-payload": Number(1 << 20, 1, MAX_BODY, "bytes of the largest message"),
    "max-control-line": Number(4096, 64, 64 << 10, "bytes of the longest line's arguments"),
    "max-subscriptions": Number(0, 0, (1 << 32) - 1, "subscriptions of one connection; 0: any number"),
    "max-pending": Number(64 << 20, 1 << 10, 1 << 40, "bytes that may wait for one client before it is cut off"),
    "write-deadline": Duration(10 * SECOND, MS, YEAR, "a client that takes no output for so long is cut off"),
    "ping-interval": Duration(2 * MINUTE, MS, YEAR, "a client that is silent for so long is sent a PING"),
    "ping-max": Number(2, 0, 1 << 20, "unanswered PINGs; one more, and the client is cut off"),
    "max-closed-clients": Number(10_000, 0, 1 << 20, "connections that have ended and are shown by monitoring"),
    "http-base-path": Text("", "what the paths of monitoring begin with", "a path"),
    "max-connections": Number(64 << 10, 0, 1 << 31, "clients of all acceptors together; 0: any number"),
    "client-advertise": Text("", "HOST[:PORT] that INFO's connect_urls says of this server"),
    "lame-duck-duration": Duration(2 * MINUTE, MS, YEAR, "on SIGUSR2: until all clients are cut off"),
    "lame-duck-grace-period": Duration(10 * SECOND, MS, YEAR, "and until the first is"),
    "pid-file": Text("", "a file that the process's number is written to", "a path"),
    "ports-file-dir": Text("", "where to write a file that says what is listened on", "a path"),
    **nats_tls_options.OPTIONS,
    **nats_topics.OPTIONS,
    **nats_cluster_options.OPTIONS,
}


# Of nats-server's reasons for the end of a connection (enum nats_reason has those of C).
AUTHENTICATION_VIOLATION: Final = 3
TLS_HANDSHAKE: Final = 4
PROTOCOL_VIOLATION: Final = 11
MAX_CONNECTIONS: Final = 15
SERVER_SHUTDOWN: Final = 21
REASONS: Final[Mapping[str, int]] = {
    "Authorization Violation": AUTHENTICATION_VIOLATION,
    "invalid client protocol": 12,
    "no responders requires headers support": 28,
    "maximum connections exceeded": MAX_CONNECTIONS,
}


class NatsError(Exception):
    """What a client is told before it is cut off; without a word if it is empty."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What all acceptors of a broker say of it: to clients they are one server."""

    server_id: str
    server_name: str
    host: str
    port: int
    max_payload: int

    def info(self) -> dict[str, Any]:
        return {
            "server_id": self.server_id,
            "server_name": self.server_name,
            "version": NATS_SERVER_VERSION,
            "proto": 1,
            "go": "mq-shards",
            "host": self.host,
            "port": self.port,
            "headers": True,
            "max_payload": self.max_payload,
        }


def server_id_of(instance: str) -> str:
    """Of a form that clients and tools take apart: N and 55 characters of base32; one for each start of the broker."""
    return "N" + base64.b32encode(hashlib.sha512(instance.encode()).digest()).decode()[:55]


@dataclass(slots=True)
class Client:
    """What is kept of a connection."""

    client_id: int
    connected_wall_ns: int
    remote: str
    options: dict[str, Any] = field(default_factory=lambda: dict(DEFAULTS))
    connects: int = 0
    user: User | None = None  # nobody in particular, as long as nobody has to be
    nonce: str = ""  # that it has to sign
    connect_info: bool = False  # has been told what it is connected to

    @property
    def account(self) -> str:
        return self.user.account if self.user is not None else GLOBAL_ACCOUNT


def json_line(verb: str, value: Mapping[str, Any]) -> bytes:
    """As Go writes JSON, and a space before the line's end."""
    body = orjson.dumps(value).replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    return verb.encode() + b" " + body + b" \r\n"


class Nats(Protocol):
    name = "nats"
    port = 4222
    example = "printf 'SUB greetings 1\\r\\nPUB greetings 5\\r\\nhello\\r\\nPING\\r\\n' | nc -w 1 {host} {port}"
    options = OPTIONS
    meshed = True
    has_lame_duck = True
    reloadable = frozenset(OPTIONS) - {
        "server-name", "pid-file", "ports-file-dir", "max-closed-clients", "http-base-path",
        *nats_cluster_options.OPTIONS,
    }  # fmt: skip
    secrets = frozenset({"user", "password", "token", "routes", "cluster-user", "cluster-password"})
    config_of = "nats-server"

    @classmethod
    def read_config(cls, path: str) -> OwnConfig:
        from mq_shards.acceptor.protocols.nats_conf_keys import read_conf

        conf = read_conf(path)
        listen = [f"{scheme}://{conf.address(scheme)}" for scheme in conf.ports]
        return OwnConfig(conf.options, listen, orjson.dumps(conf.content), conf.warnings)

    @classmethod
    def check(cls, settings: dict[str, Setting]) -> None:
        if bool(settings["user"]) != bool(settings["password"]):
            raise ValueError("nats.user and nats.password go together")
        if settings["user"] and settings["token"]:
            raise ValueError("nats.user and nats.token: it is one or the other")
        grace, duration = settings["lame-duck-grace-period"], settings["lame-duck-duration"]
        assert isinstance(grace, int) and isinstance(duration, int)
        if grace >= duration:
            raise ValueError("nats.lame-duck-grace-period is not less than nats.lame-duck-duration")
        nats_cluster_options.check(settings)
        if nats_tls_options.are_set(settings):
            from mq_shards.acceptor.protocols import nats_tls

            nats_tls.terms(settings)

    @classmethod
    def write_files(cls, settings: Settings, listening: Sequence[tuple[str, str]]) -> Sequence[str]:
        if not settings["pid-file"] and not settings["ports-file-dir"]:
            return ()
        from mq_shards.acceptor.protocols import nats_files

        return nats_files.write(settings["pid-file"], settings["ports-file-dir"], listening)

    def __init__(self, engine: Engine, settings: Settings, broker: Broker) -> None:
        super().__init__(engine, settings, broker)
        self._clients: dict[int, Client] = {}
        self._made = 0
        server_id = server_id_of(broker.instance)
        self._identity = Identity(server_id, settings["server-name"] or server_id, "", 0, settings["max-payload"])
        self._told_of_askers: set[str] = set()  # accounts whose requests say who makes them
        self._found: Mapping[str, Any] = {}  # in a configuration file, of who may what
        self._admission = Admission(engine, self._number)
        self._secrets = Secrets(engine.poke)
        self._greetings = Greetings(engine, self._info_line, self._greeted)
        self._system: System | None = None
        self._lame_duck: LameDuck | None = None
        self._cluster: Mapping[str, Any] = {}  # see cluster_changed
        self.list_routes: Callable[[], list[dict[str, Any]]] = list  # where this acceptor has any
        self._monitor = Monitor(
            engine, self._number, self._known, self._described, time.time_ns,
            -(-settings["max-closed-clients"] // broker.acceptors),
        )  # fmt: skip
        if broker.calls is not None:
            self._monitor.serve(broker.calls)
        self._set_options(settings)

    def _set_options(self, settings: Settings) -> None:
        engine = self._engine
        self._settings = settings
        self._set_who()
        self._greetings.terms = None
        if nats_tls_options.are_set(settings):
            from mq_shards.acceptor.protocols import nats_tls

            self._greetings.terms = nats_tls.terms(settings)
        for option in ("max-payload", "max-control-line", "max-pending", "max-subscriptions", "ping-max"):
            engine.set(f"nats.{option}", settings[option])
        nats_topics.bind(engine, self._number, settings)
        engine.set("nats.write-deadline-ns", settings["write-deadline"])
        engine.set("nats.ping-interval-ns", settings["ping-interval"])

    # --- what the supervisor says -----------------------------------------------------------------------------------

    def configure(self, content: bytes) -> None:
        self._found = orjson.loads(content).get("who", {})
        self._set_who()
        self._admission.share(self._found.get("accounts", ()))
        self._told_of_askers = {one["name"] for one in self._found.get("accounts", ()) if needs_info(one)}

    def _set_who(self) -> None:
        settings = self._settings
        self._who = who_of(self._found, settings["user"], settings["password"], settings["token"])
        self._set_system()

    def reload(self, settings: Settings) -> None:
        before = self._settings
        self._set_options(settings)
        self._identity = replace(self._identity, max_payload=settings["max-payload"])
        for conn in list(self._clients):
            self._limit(conn)
        self._cut_forbidden()
        self._cut_excess()
        if any(before[name] != settings[name] for name in ("max-payload", "client-advertise")):
            self._say_info_again()

    def _cut_forbidden(self) -> None:
        """Those that would not be let in any more; what others may is what it is now."""
        for conn, client in list(self._clients.items()):
            if not client.connects or not self._who.required:
                continue
            user = self._who.now(client.user)
            if user is None:
                self._end(conn, "Authorization Violation")
            elif user != client.user:
                client.user = user
                self._admission.admit(conn, user)

    def _cut_excess(self) -> None:
        """Of what are too many clients now, this acceptor's part."""
        most = self._settings["max-connections"]
        all_clients = self._connections()
        if most and all_clients > most:
            import random

            part = -(-(all_clients - most) * len(self._clients) // all_clients)
            for conn in random.sample(list(self._clients), min(part, len(self._clients))):
                self._end(conn, "maximum connections exceeded")

    def _connections(self) -> int:
        """Of all acceptors."""
        return self._engine.counters(self._number)["connections"]

    def lame_duck(self) -> None:
        from mq_shards.acceptor.protocols.nats_lame_duck import LameDuck

        for conn in self._clients:
            self._say_info(conn, {"ldm": True, "connect_urls": list(self._cluster.get("urls", ()))})
        self._lame_duck = LameDuck(
            self._clients,
            lambda conn: self._engine.call(conn, "end", SERVER_SHUTDOWN),
            lambda: self._broker.say({"did": "lame-duck-over"}),
            self._settings["lame-duck-grace-period"],
            self._settings["lame-duck-duration"],
        )

    @property
    def system_account(self) -> str:
        return self._who.system_account

    def own_urls(self) -> tuple[str, ...]:
        """Where clients find this server."""
        from mq_shards.acceptor.protocols.nats_addresses import own_urls

        return tuple(own_urls(self._identity.host, self._identity.port, self._settings["client-advertise"]))

    def cluster_changed(self, urls: Sequence[str], ws_urls: Sequence[str] = (), name: str = "") -> None:
        """The other servers of the cluster, whose clients' addresses these are, have changed, or its name; to be called
        by the acceptor that has the routes, for all."""
        self._broker.share(self.name, "cluster", {"urls": list(urls), "ws_urls": list(ws_urls), "name": name})

    def shared(self, what: str, message: Mapping[str, Any]) -> None:
        if what == "cluster":
            self._cluster = message
            self._say_info_again()

    def _say_info_again(self) -> None:
        for conn in self._clients:
            self._say_info(conn, {})

    def _say_info(self, conn: int, more: Mapping[str, Any]) -> None:
        """To a client that expects it at any time."""
        client = self._clients[conn]
        if client.connect_info:
            info = {**self._info(conn, client, self._requires_tls(conn)), **more}
            self._engine.reply(conn, json_line("INFO", info))

    def close(self) -> None:
        self._secrets.close()
        if self._system is not None:
            self._system.close()

    def poked(self) -> None:
        self._secrets.settle()

    # --- the system account -----------------------------------------------------------------------------------------

    @classmethod
    def asks_gateway(cls, content: bytes) -> bool:
        from mq_shards.acceptor.protocols.nats_system import has_users

        return has_users(content)

    def _set_system(self) -> None:
        """The server is there as long as anybody else can be."""
        broker = self._broker
        is_wanted = any(user.account == self._who.system_account for user in self._who.users)
        if self._system is not None or not is_wanted or broker.calls is None or broker.watched is None:
            return
        from mq_shards.acceptor.protocols.nats_system import System

        answers = broker.acceptor == 0
        server_id = self._identity.server_id
        self._system = System(self._engine, self._number, broker.watched, broker.calls, server_id, answers=answers)

    def _admit_system(self, conn: int) -> None:
        self._engine.call(conn, "of-server")
        self._engine.call(conn, "flags", 0)
        self._admission.admit(conn, User(account=self._who.system_account))
        self._engine.resume(conn)

    def _say_connected(self, conn: int) -> None:
        known = self._known(conn)
        if self._system is not None and known is not None:
            self._system.connected(known, self._server_row())

    def _server_row(self) -> dict[str, Any]:
        identity = self._identity
        cluster = {"cluster": self._cluster["name"]} if self._cluster.get("name") else {}
        named = {"name": identity.server_name, "host": identity.host, "id": identity.server_id}
        return {**named, **cluster, "ver": NATS_SERVER_VERSION, "jetstream": False, "flags": 0}

    # --- what monitoring shows --------------------------------------------------------------------------------------

    def _known(self, conn: int) -> Known | None:
        client = self._clients.get(conn)
        if client is None:
            return None
        host, _, port = client.remote.rpartition(":")
        row: dict[str, Any] = {"type": "nats", "ip": host.strip("[]"), "port": int(port or 0)}
        row |= {name: value for name in ("name", "lang", "version") if (value := client.options.get(name))}
        row |= tls_row(self._greetings.tls(conn), self._greetings.is_tls_first(conn))
        user = client.user
        auth = {"authorized_user": name} if user is not None and (name := user.nkey or user.name) else {}
        return Known(client.client_id, client.account, client.connected_wall_ns, row, auth)

    def _described(self) -> dict[str, Any]:
        """What the gateway is told of this server: see nats_monitor.py."""
        terms = self._greetings.terms
        routes = self.list_routes()
        return {
            **self._identity.info(),
            "routes": len(routes),
            "route_list": routes,
            "auth_required": self._who.announced,
            "tls_required": terms is not None and terms.required,
            "tls_verify": terms is not None and terms.verify,
            "connect_urls": self._connect_urls(),
            "accounts": sorted({GLOBAL_ACCOUNT, self._who.system_account, *(user.account for user in self._who.users)}),
            "system_account": self._who.system_account,
        }

    # --- what the engine says ---------------------------------------------------------------------------------------

    def listening(self, host: str, port: int) -> None:
        self._identity = replace(self._identity, host=host, port=port)

    def command(self, conn: int, command: bytes) -> None:
        if not command:
            self._opened(conn)
            return
        if command[:5] == b"SNIFF":
            self._greetings.sniffed(conn, command[5:])
            return
        if command[:4].upper() == b"PING":
            self._first_ping(conn)
            self._engine.resume(conn)
            return
        try:
            if command == b"NOBODY":
                self._admit_nobody(conn)
            else:
                self._connect(conn, command[len("CONNECT") :].strip(b" \t"))
        except NatsError as error:
            self._end(conn, str(error))

    def last_words(self, conn: int, words: bytes) -> None:
        row, known = self._monitor.ended(conn, words), self._known(conn)
        if self._system is not None and row is not None and known is not None and self._clients[conn].connects:
            self._system.disconnected(known, self._server_row(), row)

    def closed(self, conn: int) -> None:
        self._clients.pop(conn, None)
        if self._lame_duck is not None and not self._clients:
            self._lame_duck.end()
        self._admission.gone(conn)
        self._greetings.closed(conn)

    def input(self, conn: int, data: bytes) -> None:
        self._greetings.upgrades.input(conn, data)

    def output(self, conn: int, data: bytes) -> None:
        self._greetings.upgrades.output(conn, data)

    def wait_ns(self) -> int:
        waits = [self._greetings.upgrades.wait_ns()]
        if self._lame_duck is not None:
            waits.append(self._lame_duck.wait_ns())
        return min((wait for wait in waits if wait != FOREVER), default=FOREVER)

    def expire(self) -> None:
        self._greetings.upgrades.expire()
        if self._lame_duck is not None:
            self._lame_duck.expire()

    # --- INFO -------------------------------------------------------------------------------------------------------

    def _opened(self, conn: int) -> None:
        if self._system is not None and conn == self._system.conn:
            self._admit_system(conn)
            return
        self._made += 1
        # A number of its own among all acceptors.
        client = Client(self._made << 6 | self._broker.acceptor, time.time_ns(), self._engine.remote(conn))
        self._clients[conn] = client
        self._engine.call(conn, "client-id", client.client_id)
        if self._who.nonce:
            client.nonce = base64.urlsafe_b64encode(os.urandom(NONCE_BYTES)).decode().rstrip("=")
        most = self._settings["max-connections"]
        if most and self._connections() > most:
            self._engine.reply(conn, self._info_line(conn, self._requires_tls(conn)))
            self._end(conn, "maximum connections exceeded")
        else:
            self._greetings.opened(conn)

    def _greeted(self, conn: int) -> None:
        """INFO has been said; TLS is behind it, or not to be."""
        if self._who.required:
            nobody = MAY_BE_NOBODY if self._who.for_nobody() is not None else 0
            self._engine.call(conn, "flags", VERBOSE | PEDANTIC | ECHO | MUST_CONNECT | nobody)
            self._engine.call(conn, "must-connect-by-ns", time.monotonic_ns() + self._settings["auth-timeout"])
        self._engine.resume(conn)

    def _info_line(self, conn: int, tls_required: bool) -> bytes:
        return json_line("INFO", self._info(conn, self._clients[conn], tls_required))

    def _info(self, conn: int, client: Client, tls_required: bool) -> dict[str, Any]:
        info = self._identity.info()
        if (tls := self._greetings.terms) is not None:
            # The first two are left out where they are not so.
            wanted = {"tls_required": tls_required, "tls_verify": tls.verify, "tls_available": not tls.required}
            info |= {name: True for name, so in wanted.items() if so}
        if self._who.announced:
            info["auth_required"] = True
        if self._cluster.get("name"):
            info["cluster"] = self._cluster["name"]
        if urls := self._connect_urls():
            info["connect_urls"] = urls
        info["client_id"] = client.client_id
        if client.nonce:
            info["nonce"] = client.nonce
        info["client_ip"] = client.remote.rpartition(":")[0].strip("[]")
        return info

    def _connect_urls(self) -> list[str]:
        """None as long as there is nobody else."""
        others = self._cluster.get("urls")
        if not others:
            return []
        return [*self.own_urls(), *others]

    def _first_ping(self, conn: int) -> None:
        client = self._clients[conn]
        if client.options.get("protocol", 0) < 1:
            return
        client.connect_info = True
        of_system = {"acc_is_sys": True} if client.account == self._who.system_account else {}
        self._say_info(conn, {"connect_info": True, "remote_account": client.account, **of_system})

    def _requires_tls(self, conn: int) -> bool:
        terms = self._greetings.terms
        return terms is not None and (terms.required or self._greetings.is_tls_first(conn))

    # --- CONNECT ----------------------------------------------------------------------------------------------------

    def _connect(self, conn: int, body: bytes) -> None:
        client = self._clients[conn]
        try:
            client.options.update(fields(loads(body), CONNECT_FIELDS))
        except DecodeError as error:
            raise NatsError("") from error
        options = client.options
        if client.connects:
            self._engine.call(conn, "let-go")
        client.connects += 1
        self._engine.call(conn, "must-connect-by-ns", 0)
        if not self._who.required:
            self._admit(conn, client, None)
            return
        claim = self._claim(conn, options)
        if claim is None:
            raise NatsError("Authorization Violation")
        right: bool | None = claim.proven
        if claim.nkey and not claim.proven:
            signature = nats_nkeys.signature_of(claim.signature)
            right = signature is not None and nats_nkeys.verify(claim.nkey, client.nonce.encode(), signature)
        elif not claim.proven:

            def compared(right: bool) -> None:
                self._compared(conn, client, claim.user, right)

            right = self._secrets.compare(claim.secret, claim.said, compared)
        if right is not None:
            self._proven(conn, client, claim.user, right)

    def _claim(self, conn: int, options: Mapping[str, Any]) -> Claim | None:
        terms, tls = self._greetings.terms, self._greetings.tls(conn)
        if terms is None or not terms.maps or not self._who.users or options.get("nkey"):
            return self._who.claim(options)
        if tls is None:
            return None
        from mq_shards.acceptor.protocols import nats_tls

        certificate = tls.certificate_fields
        subject = nats_tls.subject_of(certificate)
        user = self._who.named_by(
            nats_tls.names_of(certificate), lambda name: nats_tls.parse_subject(name) == subject
        )
        return None if user is None else Claim(user, proven=True)

    def _compared(self, conn: int, client: Client, user: User, right: bool) -> None:
        """Later: it may be gone, and another be there by its number."""
        if self._clients.get(conn) is not client:
            return
        try:
            self._proven(conn, client, user, right)
        except NatsError as error:
            self._end(conn, str(error))

    def _proven(self, conn: int, client: Client, user: User, right: bool) -> None:
        if not right:
            raise NatsError("Authorization Violation")
        self._admit(conn, client, user)

    def _admit(self, conn: int, client: Client, user: User | None) -> None:
        options = client.options
        if options.get("account") or options.get("new_account"):
            raise NatsError("Authorization Violation")
        if options.get("protocol", 0) not in (0, 1):
            raise NatsError("invalid client protocol")
        if options.get("no_responders") and not options.get("headers"):
            raise NatsError("no responders requires headers support")
        limit = self._limits_of(user).connections
        if user is not None and limit is not None and self._admission.members(user.account, conn) >= limit:
            raise NatsError("maximum account active connections exceeded")
        client.user = user
        self._admission.admit(conn, user)
        self._limit(conn)
        self._engine.call(conn, "info", 0, self._asker(conn, client))
        self._engine.call(conn, "flags", _flags(options))
        if options["verbose"]:
            self._engine.reply(conn, b"+OK\r\n")
        self._engine.resume(conn)
        self._say_connected(conn)

    def _asker(self, conn: int, client: Client) -> bytes:
        """What services of other accounts are told of it, where that is to be: JSON around the time to its answers."""
        if client.account not in self._told_of_askers:
            return b""
        options = client.options
        started = datetime.fromtimestamp(client.connected_wall_ns / 1e9, UTC).isoformat().replace("+00:00", "Z")
        first = {
            "start": started, "host": self._engine.remote(conn).rpartition(":")[0].strip("[]"), "id": client.client_id,
            "acc": client.account, "user": client.user.name or client.user.nkey if client.user else "",
            "name": options.get("name", ""), "lang": options.get("lang", ""), "ver": options.get("version", ""),
        }  # fmt: skip
        last = {
            "server": self._identity.server_name, "cluster": self._cluster.get("name", ""),
            "kind": "Client", "client_type": "nats",
        }  # fmt: skip
        before = orjson.dumps({key: value for key, value in first.items() if value}).rstrip(b"}")
        behind = orjson.dumps({key: value for key, value in last.items() if value}).replace(b"{", b",", 1)
        return before + b"\n" + behind

    def _limits_of(self, user: User | None) -> AccountLimits:
        return self._who.limits.get(user.account if user is not None else GLOBAL_ACCOUNT, AccountLimits())

    def _limit(self, conn: int) -> None:
        """What all connections may, or less where its account may less. 0 subscriptions are any number."""
        limits = self._limits_of(self._clients[conn].user)
        payload, subscriptions = self._settings["max-payload"], self._settings["max-subscriptions"]
        if limits.payload is not None:
            payload = min(payload, limits.payload)
        if limits.subscriptions is not None:
            subscriptions = min(subscriptions or limits.subscriptions, limits.subscriptions)
        self._engine.call(conn, "max-payload", payload)
        self._engine.call(conn, "max-subscriptions", subscriptions)

    def _admit_nobody(self, conn: int) -> None:
        user = self._who.for_nobody()
        if user is None:
            raise NatsError("Authorization Violation")
        client = self._clients[conn]
        client.user = user
        client.connects += 1
        self._engine.call(conn, "must-connect-by-ns", 0)
        self._admission.admit(conn, user)
        self._engine.call(conn, "flags", _flags(client.options))
        self._engine.resume(conn)

    def _end(self, conn: int, text: str) -> None:
        self._engine.call(conn, "end", REASONS.get(text, PROTOCOL_VIOLATION), text.encode())


def _flags(options: Mapping[str, Any]) -> int:
    named = {
        "verbose": VERBOSE, "pedantic": PEDANTIC, "echo": ECHO, "headers": HEADERS, "no_responders": NO_RESPONDERS,
    }  # fmt: skip
    return sum(bit for name, bit in named.items() if options.get(name))


PROTOCOL: Final = Nats
