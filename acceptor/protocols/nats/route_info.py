"""INFO and CONNECT of routes, as this server sends them and as it reads those of other servers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from mq_shards.acceptor.protocols.go_json import DecodeError, fields, flag, int64, items, loads, text

# Values of INFO's field gossip_mode.
GOSSIP_DEFAULT: Final = 0
GOSSIP_DISABLED: Final = 1
GOSSIP_OVERRIDE: Final = 2
# The protocol of servers that trace messages: what INFO's field proto says.
SERVER_PROTOCOL: Final = 3

URLS: Final = items(text, "")
# This server supports LMSG, LS+ and LS-, which name the cluster of a leaf node, or say that it belongs to none ("ln").
ORIGINS: Final = {"lnoc": True, "lnocu": True, "ln": True}


def anything(value: object) -> object:
    return value


INFO_FIELDS: Final = {
    "server_id": text, "server_name": text, "version": text, "proto": int64, "host": text, "port": int64,
    "headers": flag, "auth_required": flag, "tls_required": flag, "max_payload": int64, "ip": text, "nonce": text,
    "cluster": text, "cluster_dynamic": flag, "connect_urls": URLS, "ws_connect_urls": URLS, "ldm": flag,
    "compression": text, "import": anything, "export": anything, "lnoc": flag, "lnocu": flag, "ln": flag,
    "route_pool_size": int64, "route_pool_idx": int64, "route_account": text, "route_acc_add_reqid": text,
    "gossip_mode": int64, "gateway": text, "leafnode_urls": URLS,
    "jetstream": flag, "client_id": int64, "info_on_connect": flag, "connect_info": flag, "remote_account": text,
}  # fmt: skip
CONNECT_FIELDS: Final = {
    "echo": flag, "verbose": flag, "pedantic": flag, "user": text, "pass": text, "auth_token": text,
    "tls_required": flag, "headers": flag, "name": text, "cluster": text, "cluster_dynamic": flag, "lnoc": flag,
    "lnocu": flag, "ln": flag, "gateway": text, "lang": text, "version": text,
}  # fmt: skip


@dataclass(slots=True)
class Info:
    """INFO of another server. `said` is the original object, to be passed on to other servers."""

    said: dict[str, Any]
    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, body: bytes) -> Info:
        """Parses an INFO. Raises DecodeError."""
        said = loads(body)
        if not isinstance(said, dict):
            raise DecodeError("INFO is not an object")
        return cls(said, fields(said, INFO_FIELDS))

    def text(self, name: str) -> str:
        return str(self.values.get(name, ""))

    def number(self, name: str) -> int:
        return int(self.values.get(name, 0))

    def flag(self, name: str) -> bool:
        return bool(self.values.get(name, False))

    def urls(self, name: str) -> tuple[str, ...]:
        return tuple(self.values.get(name, ()))

    @property
    def server_id(self) -> str:
        return self.text("server_id")

    @property
    def traces(self) -> bool:
        """Whether it traces messages."""
        return self.number("proto") >= SERVER_PROTOCOL

    def limits(self) -> dict[str, Any]:
        """Its permissions: the subjects that it imports and exports."""
        return {name: self.values.get(name) for name in ("import", "export")}

    def forwarded(self, ip: str, gossip_mode: int) -> dict[str, Any]:
        """The INFO that tells other servers of this one."""
        told = {name: value for name, value in self.said.items() if name not in ("nonce", "gossip_mode")}
        told["ip"] = ip
        if gossip_mode:
            told["gossip_mode"] = gossip_mode
        return told


def read_connect(body: bytes) -> dict[str, Any]:
    """Parses a CONNECT. Raises DecodeError."""
    return fields(loads(body), CONNECT_FIELDS)


@dataclass(slots=True)
class Own:
    """This server, as it describes itself on all routes."""

    server_id: str
    server_name: str
    version: str
    host: str
    port: int
    max_payload: int
    cluster: str
    dynamic: bool
    auth_required: bool
    tls: bool
    pool_size: int
    compression: str = "accept"
    advertised: str = ""
    connect_urls: tuple[str, ...] = ()
    ws_connect_urls: tuple[str, ...] = ()
    leafnode_urls: tuple[str, ...] = ()
    ldm: bool = False
    permissions: dict[str, Any] = field(default_factory=dict)

    def info(
        self, nonce: str = "", pool_index: int = 0, account: str = "", gossip_mode: int = 0, compression: str = ""
    ) -> dict[str, Any]:
        """The fields of INFO, in nats-server's order; empty ones are left out."""
        optional: dict[str, Any] = {
            "auth_required": self.auth_required, "tls_required": self.tls, "tls_verify": self.tls,
            "max_payload": self.max_payload, "ip": self.advertised, "nonce": nonce, "cluster": self.cluster,
            "cluster_dynamic": self.dynamic, "connect_urls": list(self.connect_urls),
            "ws_connect_urls": list(self.ws_connect_urls), "leafnode_urls": list(self.leafnode_urls), "ldm": self.ldm,
            "compression": compression, **self.permissions, **ORIGINS, "route_pool_size": max(self.pool_size, 0),
            "route_pool_idx": pool_index, "route_account": account, "gossip_mode": gossip_mode,
        }  # fmt: skip
        return {
            "server_id": self.server_id, "server_name": self.server_name, "version": self.version,
            "proto": SERVER_PROTOCOL, "go": "mq-shards", "host": self.host, "port": self.port, "headers": True,
            **{name: value for name, value in optional.items() if value},
        }  # fmt: skip

    def connect(self, user: str, password: str) -> dict[str, Any]:
        who = {"user": user, "pass": password}
        return {
            "echo": True, "verbose": False, "pedantic": False, **{name: said for name, said in who.items() if said},
            "tls_required": self.tls, "headers": True, "name": self.server_id, "cluster": self.cluster,
            **({"cluster_dynamic": True} if self.dynamic else {}), "lnoc": True, "ln": True,
        }  # fmt: skip
