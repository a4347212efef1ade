"""Leaf nodes that connect to this server. docs/leaves.md has an overview.

nats_leaf.c, the C half, handles messages and subscriptions. It hands the rest to this module:

    (nothing)          the connection is new, and must be sent INFO
    CONNECT {...}      who the leaf node is
    INFO {...}         before CONNECT, to agree on compression; ignored later
    PONG               the answer to a PING, which shows the round-trip time
    -ERR ...           an error, perhaps the reason why the leaf node is about to close

One acceptor has all leaf nodes. This server accepts, refuses and sends what a nats-server does.
"""

from __future__ import annotations

import base64
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor.engine import FOREVER, Engine, EngineError, protocol_number
from mq_shards.acceptor.option_kinds import SECOND
from mq_shards.acceptor.protocol import Broker, Settings
from mq_shards.acceptor.protocols.go_json import DecodeError, fields, flag, int64, items, loads, text
from mq_shards.acceptor.protocols.nats import write_timeout
from mq_shards.acceptor.protocols.nats.addresses import own_urls
from mq_shards.acceptor.protocols.nats.client import API_LEVEL, NATS_SERVER_VERSION, LeafNode, json_line, server_id_of
from mq_shards.acceptor.protocols.nats.expiry import Expiries
from mq_shards.acceptor.protocols.nats.greeting import Greetings
from mq_shards.acceptor.protocols.nats.leaf_compression import Compression
from mq_shards.acceptor.protocols.nats.leaf_options import (
    JETSTREAM,
    PREFIX,
    RESERVED_CLUSTER,
    tls_settings,
    version_of,
)
from mq_shards.acceptor.protocols.nats.leaf_users import LeafUsers
from mq_shards.acceptor.protocols.nats.loops import loop_of
from mq_shards.acceptor.protocols.nats.monitor import Known, certificates_row, tls_row
from mq_shards.acceptor.protocols.nats.reasons import CLIENT_CLOSED, KICKED, OLD_VERSION, VIOLATION, leaf_reason
from mq_shards.acceptor.protocols.nats.route_compression import NOT_SUPPORTED, is_negotiated, mode_of, thresholds_of
from mq_shards.acceptor.protocols.nats.route_figures import figures_of
from mq_shards.acceptor.protocols.nats.route_info import SERVER_PROTOCOL, Info
from mq_shards.acceptor.protocols.nats.routing import HEADERS, TRACES
from mq_shards.acceptor.protocols.nats.serving import NONCE_BYTES, NatsServing
from mq_shards.acceptor.protocols.nats.user_info import asker
from mq_shards.acceptor.protocols.nats.websocket_upgrade import FRAME_BYTES
from mq_shards.acceptor.protocols.nats.who import Limits, Permissions, User
from mq_shards.acceptor.remarks import Remarks

if TYPE_CHECKING:
    from mq_shards.acceptor.protocols.nats.leaf_door import Arrival
    from mq_shards.acceptor.upgrade import Upgrades

CONNECT_FIELDS: Final = {
    "version": text, "nkey": text, "jwt": text, "sig": text, "user": text, "pass": text, "auth_token": text,
    "name": text, "cluster": text, "is_hub": flag, "headers": flag, "deny_pub": items(text, ""), "isolate": flag,
    "gateway": text, "remote_account": text, "lang": text, "compress_mode": text, "protocol": int64,
}  # fmt: skip
MOST_STRANGERS: Final = 256  # leaf nodes that are not authenticated yet

log = logging.getLogger(__name__)


class LeafError(Exception):
    """Why a leaf node is refused: the error that it is sent; empty: none is sent."""


@dataclass(slots=True, eq=False)
class Leaf:
    conn: int
    client: LeafNode  # for authentication, as of clients
    remote: str  # the leaf node's address
    auth_by_ns: int = 0
    said: Mapping[str, Any] = field(default_factory=dict)  # the fields of CONNECT
    is_joined: bool = False
    is_ended: bool = False  # this side is closing it, once the error is sent
    reason: int = 0  # why, for monitoring
    compression: Compression = field(default_factory=Compression)
    began_wall_ns: int = field(default_factory=time.time_ns)

    @property
    def name(self) -> str:
        return str(self.said.get("name", ""))

    def is_same(self, other: Leaf) -> bool:
        """Whether both are the same server, which has connected again for the same account of its own."""
        names = ("name", "cluster", "remote_account")
        same = all(self.said.get(name, "") == other.said.get(name, "") for name in names)
        return same and self.client.account == other.client.account and bool(self.said.get("remote_account"))


class Leaves:
    def __init__(
        self, engine: Engine, settings: Settings, broker: Broker, nats: NatsServing,
        hub_accounts: Callable[[], list[str]], host: str, port: int,
    ) -> None:  # fmt: skip
        """`host` and `port`: where leaf nodes connect. `hub_accounts` returns the accounts of connected hubs, which an
        account's limit of leaf nodes includes."""
        self._hub_accounts = hub_accounts
        self._engine, self._settings, self._nats = engine, settings, nats
        self._bound = host, port
        self._server_id = server_id_of(broker.instance)
        self._leaves: dict[int, Leaf] = {}
        self._arrivals: dict[int, str] = {}  # new leaf nodes on websockets, and their addresses
        self._remarks = Remarks(log)
        self._expiries = Expiries()
        self._greetings = Greetings(engine, self._info_line, self._greeted)
        self._users = LeafUsers(nats.logins, nats.passwords, self._greetings.tls)
        self._is_lame = False
        self._reloads = 0
        nats.logins.meet_others(lambda conn: (self._greetings.tls(conn), False) if conn in self._leaves else None)
        self._set_options(settings)
        self._told_urls = self._urls(), self._websocket_urls()
        self._seen = nats.cluster

    def _set_options(self, settings: Settings) -> None:
        terms = None
        if settings["leaf-tls-cert-file"]:
            from mq_shards.acceptor.protocols.nats import tls as nats_tls

            # First of all: if a file cannot be used, this fails with nothing changed, so TLS is not turned off.
            terms = nats_tls.terms(tls_settings(settings), PREFIX)
        self._settings, self._greetings.terms = settings, terms
        self._users.learn(self._nats.leaf_content, settings)
        # The addresses at which leaf nodes reach this server.
        told = not settings["leaf-no-advertise"]
        self.own_urls = tuple(own_urls(*self._bound, settings["leaf-advertise"])) if told else ()
        self._engine.set("nats-leaf.write-deadline-ns", settings["leaf-write-deadline"])
        retries = write_timeout.retries(settings["leaf-write-timeout"], is_client=False)
        self._engine.set("nats-leaf.write-retries", int(retries))
        self._engine.set("nats-leaf.max-interest", settings["cluster-max-interest"])

    def reload(self, settings: Settings) -> None:
        self._set_options(settings)
        self._reloads += 1
        self.look_again()
        self._look_around()

    @property
    def _upgrades(self) -> Upgrades:
        return self._greetings.upgrades

    def input(self, conn: int, data: bytes) -> None:
        self._upgrades.input(conn, data)

    def output(self, conn: int, data: bytes) -> None:
        self._upgrades.output(conn, data)

    @property
    def _cluster_name(self) -> str:
        return str(self._nats.cluster.get("name", ""))

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        if self._is_news():
            return 0
        due = min((leaf.auth_by_ns for leaf in self._leaves.values() if leaf.auth_by_ns), default=0)
        auth_ns = max(due - time.monotonic_ns(), 0) if due else FOREVER
        waits = auth_ns, self._upgrades.wait_ns(), self._expiries.wait_ns(), self._remarks.wait_ns()
        return min((wait for wait in waits if wait != FOREVER), default=FOREVER)

    def expire(self) -> None:
        self._upgrades.expire()
        self._remarks.expire()
        if self._is_news():
            self._look_around()
        for conn in self._expiries.over():
            self._look_at(self._leaves[conn])
        now_ns = time.monotonic_ns()
        for leaf in list(self._leaves.values()):
            if 0 < leaf.auth_by_ns <= now_ns:
                self._end(leaf, "Authentication Timeout")

    # --- upcalls ----------------------------------------------------------------------------------------------------

    def command(self, conn: int, command: bytes) -> None:
        if not command:
            self._opened(conn)
            return
        if self._greetings.takes(conn, command):
            return
        leaf = self._leaves[conn]
        word = command[:4].upper()
        try:
            if word == b"CONN":
                self._connect(leaf, command[len("CONNECT") :].strip(b" \t"))
                return
            if word == b"INFO" and leaf.compression.is_open and not leaf.said:
                self._compress(leaf, command[len("INFO") :].strip(b" \t"))
            if word == b"PONG":
                leaf.compression.adapt(self._engine, conn, figures_of(self._engine, leaf.conn)["rtt_ns"])
            if word == b"-ERR":
                self._remark(logging.WARNING, leaf, f"said {command.decode(errors='replace')}")
                if b"Loop detected" in command:
                    raise LeafError("")
        except LeafError as error:
            self._end(leaf, str(error), leaf_reason(str(error)))
            return
        self._engine.resume(conn)

    def ended(self, conn: int, words: bytes) -> None:
        if (leaf := self._leaves.get(conn)) is not None:
            self._nats.say_ended(self._known(leaf), words, leaf.reason, is_joined=leaf.is_joined)

    def closed(self, conn: int) -> None:
        self._arrivals.pop(conn, None)
        self._greetings.closed(conn)
        self._expiries.gone(conn)
        self._nats.admission.gone(conn)
        self._nats.admission.gone(-conn)
        leaf = self._leaves.pop(conn, None)
        if leaf is None or not leaf.is_joined:
            return
        self._remark(logging.INFO, leaf, "the leaf node is gone")

    def _there(self) -> list[Leaf]:
        return [leaf for leaf in self._leaves.values() if leaf.is_joined and not leaf.is_ended]

    def _remark(self, level: int, leaf: Leaf, words: str) -> None:
        name = f"{leaf.name} ({leaf.remote})" if leaf.name else leaf.remote
        self._remarks.say(level, leaf.name or leaf.remote.rpartition(":")[0], f"{name}: {words}")

    def _end(self, leaf: Leaf, words: str, reason: int = 0) -> None:
        leaf.reason = reason or (leaf_reason(words) if words else CLIENT_CLOSED)
        if words:
            self._remark(logging.WARNING, leaf, words)
            self._engine.reply(leaf.conn, f"-ERR '{words}'\r\n".encode())
        leaf.is_ended, leaf.auth_by_ns = True, 0
        self._engine.close_connection(leaf.conn)

    # --- greeting ---------------------------------------------------------------------------------------------------

    def arrived(self, fd: int, arrival: Arrival) -> None:
        """Serves a leaf node on a websocket; `fd` carries its frames or, if they are not made here, what is in them.
        Owns `fd` from then on."""
        try:
            conn = self._engine.adopt(fd, protocol_number("nats-leaf"))
        except EngineError as error:
            log.warning("%s: a leaf node cannot be kept: %s", arrival.remote, error)
            os.close(fd)
            return
        self._engine.reply(conn, arrival.answer)
        if arrival.is_framed and not self._engine.websocket(conn, FRAME_BYTES, arrival.flags):
            self._engine.close_connection(conn)
        self._arrivals[conn] = arrival.remote

    def _opened(self, conn: int) -> None:
        arrival = self._arrivals.pop(conn, "")
        remote = arrival or self._engine.remote(conn)
        client = LeafNode.of(next(self._nats.client_ids), time.time_ns(), remote)
        client.is_websocket = arrival != ""
        client.nonce = base64.urlsafe_b64encode(os.urandom(NONCE_BYTES)).decode().rstrip("=")
        leaf = self._leaves[conn] = Leaf(conn, client, remote)
        settings = self._settings
        # nats-server compresses around a websocket's frames, not inside them. The websocket itself may be compressed.
        mode = mode_of(settings, PREFIX) if arrival == "" else NOT_SUPPORTED
        leaf.compression = Compression(mode, thresholds_of(settings, PREFIX))
        if is_negotiated(leaf.compression.wanted):
            # The codec sends nothing of its own until compression is decided; the leaf node may send INFO first.
            self._engine.call(conn, "negotiates", 1)
        # The deadline also covers one that may begin a handshake but sends nothing.
        leaf.auth_by_ns = time.monotonic_ns() + self._settings["leaf-tls-timeout"] + self._settings["leaf-auth-timeout"]
        if self._is_lame:
            self._end(leaf, "")
            return
        # Unauthenticated leaf nodes must not keep others out: the oldest is closed.
        strangers = [other for other in self._leaves.values() if not other.is_joined and not other.is_ended]
        if len(strangers) > MOST_STRANGERS:
            self._end(strangers[0], "maximum connections exceeded")
        if arrival == "":
            self._greetings.opened(conn)
            return
        # No TLS here: the listener for websockets does it.
        self._engine.reply(conn, self._info_line(conn, tls_required=False))
        self._greeted(conn)

    def _greeted(self, conn: int) -> None:
        self._leaves[conn].auth_by_ns = time.monotonic_ns() + self._settings["leaf-auth-timeout"]
        self._engine.resume(conn)

    def _urls(self) -> list[str]:
        return list(dict.fromkeys([*self.own_urls, *self._nats.cluster.get("leaf_urls", ())]))

    def _websocket_urls(self) -> list[str]:
        """The websocket URLs of all servers; empty as long as there was no other server."""
        nats = self._nats
        return [*nats.own_websocket_urls(), *nats.cluster.get("ws_urls", ())] if nats.cluster.get("met") else []

    def _info(self, leaf: Leaf) -> dict[str, Any]:
        """The fields of INFO, in nats-server's order; empty ones are left out."""
        terms, identity = self._greetings.terms, self._nats.identity
        optional: dict[str, Any] = {
            "tls_required": terms is not None and terms.required, "tls_verify": terms is not None and terms.verify,
            "max_payload": self._settings["max-payload"], "ip": next(iter(self.own_urls), ""),
            "client_id": leaf.client.client_id, "cluster": self._cluster_name,
            "ws_connect_urls": self._websocket_urls(),
        }  # fmt: skip
        return {
            "server_id": self._server_id, "server_name": identity.server_name, "version": NATS_SERVER_VERSION,
            "proto": SERVER_PROTOCOL, "go": "mq-shards", "host": self._bound[0], "port": self._bound[1],
            "headers": identity.headers, "auth_required": True,
            **{name: value for name, value in optional.items() if value},
            "api_lvl": API_LEVEL, "info_on_connect": True, "leafnode_urls": self._urls(),
        }  # fmt: skip

    def _info_line(self, conn: int, tls_required: bool) -> bytes:
        leaf = self._leaves[conn]
        said = {"compression": leaf.compression.offer} if leaf.compression.offer else {}
        return json_line("INFO", {**self._info(leaf), **said, "nonce": leaf.client.nonce})

    def _compress(self, leaf: Leaf, body: bytes) -> None:
        compression = leaf.compression
        try:
            is_on = compression.agree(Info.read(body).text("compression"))
        except DecodeError as error:
            raise LeafError("") from error
        except ValueError as error:
            raise LeafError(str(error)) from None
        self._engine.call(leaf.conn, "negotiates", 0)
        if is_on:
            # The leaf node expects INFO again, compressed.
            compression.begin(self._engine, leaf.conn)
            self._engine.reply(leaf.conn, self._info_line(leaf.conn, tls_required=False))

    def damaged(self, conn: int, why: str) -> None:
        """The leaf node has sent invalid compressed data; closed() is next."""
        if (leaf := self._leaves.get(conn)) is not None:
            self._remark(logging.ERROR, leaf, f"what came is no stream of S2: {why}")

    def _tell_urls(self) -> None:
        for leaf in self._there():
            self._engine.reply(leaf.conn, json_line("INFO", self._info(leaf)))

    # --- CONNECT ----------------------------------------------------------------------------------------------------

    def _connect(self, leaf: Leaf, body: bytes) -> None:
        if leaf.is_joined:
            raise LeafError("")
        try:
            leaf.said = fields(loads(body), CONNECT_FIELDS)
        except DecodeError as error:
            raise LeafError("") from error
        leaf.client.options = {**leaf.said, "protocol": 1}
        self._engine.call(leaf.conn, "negotiates", 0)
        leaf.compression.leave_out(leaf.said.get("compress_mode", ""))
        leaf.auth_by_ns = 0
        self._prove(leaf)

    def _prove(self, leaf: Leaf) -> None:
        self._users.prove(leaf.conn, leaf.client, partial(self._proven, leaf, self._reloads))

    def _proven(self, leaf: Leaf, reloads: int, user: User | None) -> None:
        """Called perhaps later, when the leaf node may be gone and its connection number be used again. `reloads`: how
        many there had been when the proof began. An account's JWT may change too, but it is looked at in the end."""
        if self._leaves.get(leaf.conn) is not leaf or leaf.is_ended:
            return
        if reloads != self._reloads:
            self._prove(leaf)  # by the users that there are now
            return
        try:
            if user is None:
                raise LeafError(VIOLATION)
            leaf.client.user = user
            self._check(leaf)
            self._check_version(leaf, user)
            self._join(leaf, user)
        except LeafError as error:
            self._end(leaf, str(error), leaf_reason(str(error)))
            return
        self._engine.resume(leaf.conn)

    def _check(self, leaf: Leaf) -> None:
        said, cluster = leaf.said, leaf.said.get("cluster", "")
        if said.get("lang"):
            raise LeafError("attempted to connect to leaf node port")
        if " " in cluster:
            raise LeafError("cluster name cannot contain spaces")
        if cluster == RESERVED_CLUSTER:
            raise LeafError("cluster name is reserved")
        if cluster and cluster == self._cluster_name:
            raise LeafError("remote leafnode has same cluster name")
        if gateway := said.get("gateway"):
            raise LeafError(f'Rejecting connection from gateway "{gateway}" on the leafnode port')
        if said.get("is_hub"):
            raise LeafError("this server cannot be the spoke of a leaf node")
        if self._is_lame:
            raise LeafError("")

    def _check_version(self, leaf: Leaf, user: User) -> None:
        oldest = version_of(self._settings["leaf-min-version"])
        if oldest is not None and (version_of(leaf.said.get("version", "")) or ()) < oldest:
            # INFO comes first, as from a nats-server: to a leaf node that waits for it an error is a failed login.
            said = self._connected(user, user.permissions or Permissions())
            self._engine.reply(leaf.conn, json_line("INFO", {**self._info(leaf), **said}))
            raise LeafError(f'{OLD_VERSION} "{self._settings["leaf-min-version"]}"')

    def _join(self, leaf: Leaf, user: User) -> None:
        engine, conn, admission = self._engine, leaf.conn, self._nats.admission
        # A leaf node that replaces its own last connection is not counted twice.
        others = [other for other in self._there() if not leaf.is_same(other)]
        if len(others) >= self._settings["leaf-max-connections"]:
            raise LeafError("maximum connections exceeded")
        admission.account(user.account)
        most = self._nats.logins.limits(user).leaf_nodes
        there = len([name for name in (*self.accounts(), *self._hub_accounts()) if name == user.account])
        if most is not None and there >= most:
            raise LeafError("maximum account active connections exceeded")
        self._replace(leaf)
        permissions = user.permissions or Permissions()
        try:
            engine.call(conn, "publishing", admission.hold(-conn, Permissions(publish=permissions.publish)))
            engine.call(conn, "permissions", admission.hold(conn, _across(permissions, leaf.said)))
        except ValueError:
            self._remark(logging.WARNING, leaf, "its permissions are not valid")
            raise LeafError(VIOLATION) from None
        engine.reply(conn, json_line("INFO", {**self._info(leaf), **self._connected(user, permissions)}))
        flags = HEADERS if leaf.said.get("headers") else 0
        flags |= TRACES if leaf.said.get("protocol", 0) >= SERVER_PROTOCOL else 0
        # The cluster is told too: its members pass messages to each other, and get none of each other from here.
        what = f"{loop_of(self._server_id, user.account)} {leaf.said.get('cluster', '')} {user.account}"
        engine.call(conn, "info", 0, asker(leaf.client, leaf.name, self._cluster_name))
        try:
            joined = engine.call(conn, "join", flags, what.encode(errors="surrogateescape"))
        except ValueError:
            raise LeafError("maximum connections exceeded") from None
        if not joined:
            return
        leaf.is_joined = True
        if self._nats.events is not None:
            self._nats.events.connected(self._known(leaf), self._nats.server_row())
        engine.call(conn, "name", 0, leaf.name.encode(errors="surrogateescape"))
        leaf.compression.watch(engine, conn)
        self._expiries.set(conn, self._nats.logins.ends_s(user))
        self._remark(logging.INFO, leaf, f"there is a leaf node of account {user.account}")

    def _connected(self, user: User, permissions: Permissions) -> dict[str, Any]:
        """The fields of INFO that tell a leaf node its account and its permissions there."""
        found: dict[str, Any] = {"connect_info": True, "remote_account": user.account}
        if user.account == self._nats.system_account:
            found["acc_is_sys"] = True
        for name, limits in (("import", permissions.subscribe), ("export", permissions.publish)):
            if limits != Limits():
                found[name] = _limits_row(limits)
        return found

    def _replace(self, leaf: Leaf) -> None:
        """Closes the last connection of a leaf node that has connected again, if it has not ended yet."""
        for other in self._there():
            if other is not leaf and leaf.is_same(other):
                self._end(other, "Duplicate Remote LeafNode Connection")

    # --- changes ----------------------------------------------------------------------------------------------------

    def _is_news(self) -> bool:
        return self._seen is not self._nats.cluster

    def _look_around(self) -> None:
        """Tells leaf nodes the URLs of this cluster if they have changed."""
        self._seen = self._nats.cluster
        if (urls := (self._urls(), self._websocket_urls())) != self._told_urls:
            self._told_urls = urls
            self._tell_urls()

    def look_again(self) -> None:
        """Users or permissions have changed: closes leaf nodes that are no longer admitted, and those with other
        permissions now, which will connect again."""
        for leaf in self._there():
            self._look_at(leaf)

    def _look_at(self, leaf: Leaf) -> None:
        before = leaf.client.user
        user = self._users.now(leaf.conn, leaf.client)
        if user is None:
            self._end(leaf, VIOLATION)
        elif user != before:
            self._end(leaf, "")
        else:
            self._expiries.set(leaf.conn, self._nats.logins.ends_s(user))  # the account's JWT may be another one

    def shares_changed(self, accounts: set[str]) -> None:
        """Imports or mappings of these accounts have changed: closes their leaf nodes, which learn of it in a new
        connection."""
        for leaf in self._there():
            if leaf.client.account in accounts:
                self._end(leaf, "")

    def parting(self) -> None:
        """Ends all connections: see Routing.parting()."""
        for conn, leaf in self._leaves.items():
            if leaf.is_joined and not leaf.is_ended:
                self._engine.part(conn)
            else:
                self._engine.close_connection(conn)

    def lame_duck(self) -> None:
        """Admits no new leaf nodes; those connected stay until the process ends."""
        self._is_lame = True

    # --- figures ----------------------------------------------------------------------------------------------------

    def clusters(self) -> set[tuple[str, str]]:
        """The accounts and clusters of all connected leaf nodes."""
        return {(leaf.client.account, leaf.said.get("cluster", "")) for leaf in self._there()}

    def accounts(self) -> list[str]:
        return [leaf.client.account for leaf in self._there()]

    def kick(self, cid: int) -> bool:
        """Closes a leaf node, or returns False."""
        found = next((leaf for leaf in self._there() if leaf.client.client_id == cid), None)
        if found is not None:
            self._end(found, "", KICKED)
        return found is not None

    def rows(self) -> list[dict[str, Any]]:
        """The rows of /leafz, and what /connz shows besides."""
        return [self._row(leaf) for leaf in self._there()]

    def _known(self, leaf: Leaf) -> Known:
        client, said, tls = leaf.client, leaf.said, self._greetings.tls(leaf.conn)
        row: dict[str, Any] = {"kind": "Leafnode", "ip": client.host, "port": client.port}
        row |= {name: said[name] for name in ("name", "lang", "version") if said.get(name)}
        row |= tls_row(tls, self._greetings.is_tls_first(leaf.conn))
        auth = self._nats.logins.shown(client)
        if client.user is None:
            auth.pop("name_tag", None)
        return Known(client.client_id, client.account, leaf.began_wall_ns, row, auth, tls)

    def _row(self, leaf: Leaf) -> dict[str, Any]:
        known = self._known(leaf)
        return {
            "id": leaf.client.client_id, "rid": leaf.conn, "name": leaf.name, "is_spoke": False,
            "account": leaf.client.account, "ip": leaf.client.host, "port": leaf.client.port,
            "compression": leaf.compression.mode, "started_wall_ns": leaf.began_wall_ns, "row": known.row,
            "auth": known.auth | certificates_row(known.tls),
            **figures_of(self._engine, leaf.conn),
        }  # fmt: skip

    def shown(self) -> dict[str, Any]:
        """The settings of the block leafnodes, as /varz shows them."""
        settings, terms = self._settings, self._greetings.terms
        found: dict[str, Any] = {
            "host": self._bound[0], "port": self._bound[1], "auth_timeout": settings["leaf-auth-timeout"] / SECOND,
            "tls_timeout": settings["leaf-tls-timeout"] / SECOND, "tls_required": terms is not None and terms.required,
            "tls_verify": terms is not None and terms.verify, "write_deadline": settings["leaf-write-deadline"],
            **write_timeout.shown(settings["leaf-write-timeout"]),
        }  # fmt: skip
        return {name: value for name, value in found.items() if value}


def _across(permissions: Permissions, said: Mapping[str, Any]) -> Permissions:
    """The permissions of the connection: the user's, without JetStream's subjects and those that CONNECT denies."""
    publish, subscribe = permissions.publish, permissions.subscribe
    deny = (*subscribe.deny, *JETSTREAM, *said.get("deny_pub", ()))
    return Permissions(
        publish=publish._replace(deny=(*publish.deny, *JETSTREAM)), subscribe=subscribe._replace(deny=deny)
    )


def _limits_row(limits: Limits) -> dict[str, list[str]]:
    found = {"allow": list(limits.allow or ()), "deny": list(limits.deny)}
    return {name: subjects for name, subjects in found.items() if subjects}
