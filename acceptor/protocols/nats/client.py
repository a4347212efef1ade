"""What Python keeps of a NATS client, and how this server describes itself to clients."""

from __future__ import annotations

import base64
import itertools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

import orjson
from mq_shards.acceptor.access.rights import Login
from mq_shards.acceptor.protocols.nats.who import (
    GLOBAL_ACCOUNT,
    LEAF_NODE,
    LEAF_NODE_WEBSOCKET,
    STANDARD,
    WEBSOCKET,
    User,
)

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine

# The nats-server version whose client protocol this is: clients derive from it what a server can do.
NATS_SERVER_VERSION: Final = "2.15.2"
API_LEVEL: Final = 5  # of JetStream: nats-server sends it even without JetStream
# JetStream's feature flags, as a nats-server without JetStream sends them.
FEATURE_FLAGS: Final = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,
    "js_snapshot_sources": False,
}

# enum nats_flag, csrc/acceptor/protocols/nats/nats_state.h
VERBOSE: Final = 1
PEDANTIC: Final = 2
ECHO: Final = 4
HEADERS: Final = 8
NO_RESPONDERS: Final = 16
MUST_CONNECT: Final = 32
MAY_BE_NOBODY: Final = 1024

TIME_BITS: Final = 64
PORT_BITS: Final = 16

# The options of a client that has not sent CONNECT yet, as with nats-server.
DEFAULTS: Final[Mapping[str, Any]] = {"verbose": True, "pedantic": True, "echo": True}

# Fields of CONNECT, and the options that name the cookies that may hold them instead.
COOKIES: Final = {
    "jwt": "websocket-jwt-cookie", "user": "websocket-user-cookie", "pass": "websocket-pass-cookie",
    "auth_token": "websocket-token-cookie",
}  # fmt: skip


def client_ids(acceptor: int, connections_before: int) -> Iterator[int]:
    """Ids of an acceptor's clients, leaf nodes and hubs: unique among all acceptors, and those that were there before
    under its number, of which each id was of a connection that is counted."""
    return (number << 6 | acceptor for number in itertools.count(connections_before + 1))


class Identity(NamedTuple):
    """The server's identity, the same at all acceptors of a broker: to clients they are one server."""

    server_id: str
    server_name: str
    host: str
    port: int
    max_payload: int
    headers: bool = True

    def info(self) -> dict[str, Any]:
        return {
            "server_id": self.server_id,
            "server_name": self.server_name,
            "version": NATS_SERVER_VERSION,
            "proto": 1,
            "go": "mq-shards",
            "host": self.host,
            "port": self.port,
            "headers": self.headers,
            "max_payload": self.max_payload,
            "api_lvl": API_LEVEL,
        }


def server_id_of(instance: str) -> str:
    """A server ID in the form that clients and tools expect: N and 55 characters of base32; new at each start of the
    broker. It is not a digest because loading hashlib takes half a MB, which most acceptors do without."""
    return "N" + base64.b32encode(instance.encode() * 3).decode()[:55]


def labels(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The server's tags and metadata of the configuration file."""
    metadata = dict(one.split(": ", 1) for one in settings["server-metadata"])
    found = {"tags": settings["server-tags"], "metadata": dict(sorted(metadata.items()))}
    return {name: value for name, value in found.items() if value}


def server_row(server: Mapping[str, Any]) -> dict[str, Any]:
    """The field `server` of events and replies in the system account, made from the acceptors' description of it."""
    named = {"cluster": server.get("cluster"), "ver": server["version"]}
    named |= {name: server[name] for name in ("tags", "metadata") if name in server}
    return {
        "name": server["server_name"],
        "host": server["host"],
        "id": server["server_id"],
        **{name: value for name, value in named.items() if value},
        "feature_flags": FEATURE_FLAGS,
        "jetstream": False,
        "flags": 0,
    }


def describe(engine: Engine, protocol: int, row: Mapping[str, Any]) -> None:
    """Tells the codec what its events say of this server; it adds their number and time."""
    engine.configure(protocol, "described", 0, go_json(row).removesuffix(b"}"))


@dataclass(slots=True, eq=False, repr=False)
class Client:
    """What Python keeps of a connection."""

    is_leaf: ClassVar[bool] = False  # a leaf node or hub, not a client

    _fixed: int  # its id, when it connected and its port: see below
    host: str  # its address
    options: Mapping[str, Any] = field(default_factory=lambda: DEFAULTS)  # see connects.py
    connects: int = 0
    judgements: int = 0  # so many have begun: see authentication.py
    is_connecting: bool = False  # its CONNECT is judged
    user: User | None = None  # None: not authenticated, or no users are configured
    login: Login | None = None  # set for a user of the broker, whom all protocols know
    nonce: str = ""  # that the client has to sign
    connect_info: bool = False  # the INFO with connect_info was sent
    is_websocket: bool = False
    is_unknown: bool = False  # a proxy may be in front, and has not sent the client's address yet

    @classmethod
    def of(cls, client_id: int, connected_wall_ns: int, remote: str) -> Self:
        """Equal addresses are stored once. All connections of a Unix socket have the same address, without a port.

        >>> Client.of(1, 0, "[::1]:4222").host, Client.of(1, 0, "@").host
        ('::1', '@')
        """
        host, _, port = remote.rpartition(":") if ":" in remote else (remote, "", "")
        fixed = (client_id << TIME_BITS | connected_wall_ns) << PORT_BITS | int(port or 0)
        return cls(fixed, sys.intern(host.strip("[]")))

    # As three objects, and fields for them, an idle connection would take 80 bytes more.

    @property
    def client_id(self) -> int:
        return self._fixed >> (TIME_BITS + PORT_BITS)

    @property
    def connected_wall_ns(self) -> int:
        return self._fixed >> PORT_BITS & (1 << TIME_BITS) - 1

    @property
    def port(self) -> int:
        return self._fixed & (1 << PORT_BITS) - 1

    def introduce(self, header: bytes) -> None:
        """Takes the client's address from a proxy's header, if it has one. Raises ValueError."""
        from mq_shards.acceptor.protocols.nats.proxied import address_of

        host, port = address_of(header) or (self.host, self.port)
        self._fixed ^= self.port ^ port
        self.host, self.is_unknown = sys.intern(host), False

    def upgraded(self, cookies: Mapping[str, str]) -> None:
        """Stores the cookies of a websocket's request."""
        if cookies:
            self.options = {**self.options, "cookies": cookies}

    def row(self) -> dict[str, Any]:
        """The client's fields in monitoring."""
        found = {"type": "websocket" if self.is_websocket else "nats", "ip": self.host, "port": self.port}
        return found | {name: value for name in ("name", "lang", "version") if (value := self.options.get(name))}

    @property
    def remote(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def connection_type(self) -> str:
        if self.is_leaf:
            return LEAF_NODE_WEBSOCKET if self.is_websocket else LEAF_NODE
        return WEBSOCKET if self.is_websocket else STANDARD

    def take_cookies(self, settings: Mapping[str, Any]) -> None:
        """Fills in fields that CONNECT has left out from the cookies of the websocket's request."""
        cookies = self.options.get("cookies", {})
        for name, option in COOKIES.items():
            if not self.options.get(name) and (found := cookies.get(settings[option])):
                self.options = {**self.options, name: found}

    @property
    def account(self) -> str:
        return self.user.account if self.user is not None else GLOBAL_ACCOUNT


class LeafNode(Client):
    """What Python keeps of a leaf node or hub."""

    __slots__ = ()
    is_leaf = True


def go_json(value: Mapping[str, Any]) -> bytes:
    """JSON with <, > and & escaped, as Go's encoder does."""
    return orjson.dumps(value).replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def json_line(verb: str, value: Mapping[str, Any]) -> bytes:
    """A protocol line with JSON; it ends with a space, as nats-server's do."""
    return verb.encode() + b" " + go_json(value) + b" \r\n"


# The fields of a client's INFO, in nats-server's order; most are left out when they are empty.
INFO_ORDER: Final = (
    "server_id", "server_name", "version", "proto", "go", "host", "port", "headers", "auth_required", "tls_required",
    "tls_verify", "tls_available", "max_payload", "client_id", "client_ip", "nonce", "cluster", "connect_urls", "ldm",
    "connect_info", "remote_account", "acc_is_sys", "api_lvl",
)  # fmt: skip
INFO_ALWAYS: Final = frozenset(("headers", "max_payload"))


def info_line(said: Mapping[str, Any]) -> bytes:
    return json_line("INFO", {name: said[name] for name in INFO_ORDER if name in INFO_ALWAYS or said.get(name)})


def first_flags(may_be_nobody: bool) -> int:
    """Of a client that has to authenticate."""
    return VERBOSE | PEDANTIC | ECHO | MUST_CONNECT | (MAY_BE_NOBODY if may_be_nobody else 0)


def flags_of(options: Mapping[str, Any]) -> int:
    named = {
        "verbose": VERBOSE, "pedantic": PEDANTIC, "echo": ECHO, "headers": HEADERS, "no_responders": NO_RESPONDERS,
    }  # fmt: skip
    return sum(bit for name, bit in named.items() if options.get(name))
