"""Hubs: the servers that this one connects to as a leaf node. Each connection joins one account here to one of the hub.
docs/leaves.md has an overview.

nats_leaf.c, the C half, handles messages and subscriptions. It hands the rest to this module:

    (nothing)          the connection has been opened
    INFO {...}         first who the hub is, perhaps again once compression is on; then the account and what may pass;
                       later what has changed
    PONG               the answer to a PING, which shows the round-trip time
    -ERR ...           an error, perhaps the reason why the hub is about to close

One acceptor has all hubs. This server sends what a nats-server sends as a leaf node.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor.engine import FOREVER, Engine, protocol_number
from mq_shards.acceptor.option_kinds import SECOND
from mq_shards.acceptor.protocol import Broker, Settings
from mq_shards.acceptor.protocols.go_json import DecodeError
from mq_shards.acceptor.protocols.nats.client import NATS_SERVER_VERSION, LeafNode, json_line, server_id_of
from mq_shards.acceptor.protocols.nats.dial import Dialer, Wish
from mq_shards.acceptor.protocols.nats.leaf_compression import Compression
from mq_shards.acceptor.protocols.nats.leaf_options import JETSTREAM, RESERVED_CLUSTER
from mq_shards.acceptor.protocols.nats.loops import loop_of
from mq_shards.acceptor.protocols.nats.monitor import Known, certificates_row, tls_row
from mq_shards.acceptor.protocols.nats.reasons import CLIENT_CLOSED, KICKED, OLD_VERSION, TLS_HANDSHAKE, leaf_reason
from mq_shards.acceptor.protocols.nats.remotes import HubTls, HubUrl, Remote, RemoteError, Servers, read
from mq_shards.acceptor.protocols.nats.route_compression import NOT_SUPPORTED
from mq_shards.acceptor.protocols.nats.route_figures import figures_of
from mq_shards.acceptor.protocols.nats.route_info import SERVER_PROTOCOL, Info
from mq_shards.acceptor.protocols.nats.routing import HEADERS, TRACES
from mq_shards.acceptor.protocols.nats.serving import NatsServing
from mq_shards.acceptor.protocols.nats.user_info import asker
from mq_shards.acceptor.protocols.nats.websocket_upgrade import FRAME_BYTES
from mq_shards.acceptor.protocols.nats.who import Limits, Permissions, User
from mq_shards.acceptor.remarks import Remarks
from mq_shards.acceptor.upgrade import Upgrades
from mq_shards.csrc._core import lib

if TYPE_CHECKING:
    from mq_shards.acceptor.filters.tls import VerifyingTls

ANSWER_NS: Final = 5 * SECOND  # from CONNECT to the INFO that names the account, at most
DELAY_NS: Final = 30 * SECOND  # added before a hub is tried again that forms a loop
OLD_DELAY_NS: Final = 5 * SECOND  # ... or that accepts only leaf nodes of a later version
# Errors of a hub that will recur, so that the next attempt is delayed.
LASTING: Final = ("Loop detected", "remote leafnode has same cluster name")

log = logging.getLogger(__name__)


class HubError(Exception):
    """Why a connection is closed: the error that the hub is sent; empty: none is sent."""


@dataclass(slots=True, eq=False)
class HubWish(Wish):
    servers: Servers | None = None


@dataclass(slots=True, eq=False)
class Hub:
    """A connection to a hub."""

    conn: int
    wish: HubWish
    servers: Servers
    client_id: int
    address: str  # the hub's
    began_wall_ns: int = field(default_factory=time.time_ns)
    info: Info | None = None  # the hub's first INFO, or the one after compression began
    until_ns: int = 0  # deadline for the hub's next INFO; 0: none is awaited
    is_joined: bool = False
    is_ended: bool = False  # this side is closing it
    reason: int = 0  # why, for monitoring
    delay_ns: int = 0  # in addition to the usual delay before it is tried again
    compression: Compression = field(default_factory=Compression)
    is_compressing: bool = False  # compression has begun, and the hub sends INFO once more

    @property
    def remote(self) -> Remote:
        return self.servers.remote

    @property
    def urls_key(self) -> str:
        """The field of INFO that lists the hub's other URLs."""
        return "leafnode_urls" if self.remote.websocket is None else "ws_connect_urls"

    @property
    def name(self) -> str:
        return "" if self.info is None else self.info.text("server_name") or self.info.server_id

    @property
    def cluster(self) -> str:
        return "" if self.info is None else self.info.text("cluster")


class Hubs:
    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        broker: Broker,
        nats: NatsServing,
        leaves: Callable[[], Collection[tuple[str, str]]],
    ) -> None:
        """`leaves` returns the accounts and clusters of this server's leaf nodes."""
        self._engine, self._settings, self._nats, self._leaves = engine, settings, nats, leaves
        self._server_id = server_id_of(broker.instance)
        self._hubs: dict[int, Hub] = {}
        self._servers: dict[Remote, Servers] = {}  # of all configured remotes
        self._encryptions: dict[Remote, HubTls] = {}
        self._remarks = Remarks(log)
        self._upgrades = Upgrades(engine, self._shaken, self._refused)
        self._dialer = Dialer(self._adopt, engine.close_connection, engine.poke, lambda host, port: False)
        self._dialer.set(0, backoff=False)
        self._due: list[tuple[int, int]] = []  # a heap: deadlines of awaited INFOs, and their connections
        self._set(settings, [remote for remote in self._wanted(settings) if self._can_be_used(remote)])

    def _wanted(self, settings: Settings) -> list[Remote]:
        return read(settings, self._nats.leaf_content)

    def _can_be_used(self, remote: Remote) -> bool:
        """Whether a remote's TLS files can be used. At a start, a remote whose files cannot be is left out."""
        try:
            if remote.tls is not None:
                remote.encryption()
        except ValueError as error:
            log.error("%s: there is no connection to this hub: %s", remote.urls[0], error)
            return False
        return True

    def reload(self, settings: Settings) -> None:
        """Applies new settings. Raises ValueError, with nothing changed, when a file cannot be used."""
        self._set(settings, self._wanted(settings))

    def _set(self, settings: Settings, wanted: list[Remote]) -> None:
        encryptions = {remote: remote.encryption() for remote in wanted if remote.tls is not None}
        self._settings, self._encryptions = settings, encryptions
        before, self._servers = self._servers, {one: self._servers.get(one) or Servers(one) for one in wanted}
        self._dialer.keep(lambda wish: isinstance(wish, HubWish) and self._is_wanted(wish.servers))
        for hub in list(self._hubs.values()):
            hub.wish.every_ns = settings["leaf-reconnect"]
            if hub.remote not in self._servers:
                self._end(hub, "")
        for remote, servers in self._servers.items():
            if remote not in before:
                self._dialer.dial(self._wish(servers))

    def _is_wanted(self, servers: Servers | None) -> bool:
        return servers is not None and self._servers.get(servers.remote) is servers

    def _wish(self, servers: Servers) -> HubWish:
        remote = servers.remote
        return HubWish(
            remote.urls[0], explicit=True, every_ns=self._settings["leaf-reconnect"],
            answer_ns=remote.dial_ns + remote.first_info_ns, next_url=servers.next_url, servers=servers,
        )  # fmt: skip

    def _adopt(self, fd: int) -> int:
        return self._engine.adopt(fd, protocol_number("nats-leaf"))

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        answer_ns = max(self._due[0][0] - time.monotonic_ns(), 0) if self._due else FOREVER
        waits = answer_ns, self._dialer.wait_ns(), self._upgrades.wait_ns(), self._remarks.wait_ns()
        return min((wait for wait in waits if wait != FOREVER), default=FOREVER)

    def expire(self) -> None:
        self._dialer.expire()
        self._upgrades.expire()
        self._remarks.expire()
        now_ns = time.monotonic_ns()
        while self._due and self._due[0][0] <= now_ns:
            until_ns, conn = heapq.heappop(self._due)
            hub = self._hubs.get(conn)
            if hub is not None and hub.until_ns == until_ns and not hub.is_ended:
                self._end(hub, "Stale Leaf Node Connection - Closing")

    def poked(self) -> None:
        self._dialer.poked()

    def lame_duck(self) -> None:
        """Keeps connections until the process ends, but makes no new ones."""
        self._dialer.close()

    close = lame_duck

    def parting(self) -> None:
        """Ends all connections: see Routing.parting()."""
        self._dialer.close()
        for conn, hub in self._hubs.items():
            if hub.is_joined and not hub.is_ended:
                self._engine.part(conn)
            else:
                self._engine.close_connection(conn)

    # --- upcalls ----------------------------------------------------------------------------------------------------

    def has(self, conn: int) -> bool:
        return conn in self._hubs or self._dialer.opened(conn) is not None

    def command(self, conn: int, command: bytes) -> None:
        hub = self._hubs.get(conn)
        if hub is None:
            self._opened(conn)
            return
        word = command[:4].upper()
        try:
            if word == b"INFO" and not self._hear(hub, Info.read(command[len("INFO") :].strip(b" \t"))):
                return
            if word == b"-ERR":
                self._complained(hub, command.decode(errors="replace"))
            if word == b"PONG":
                hub.compression.adapt(self._engine, conn, figures_of(self._engine, hub.conn)["rtt_ns"])
        except (DecodeError, HubError) as error:
            words = str(error) if isinstance(error, HubError) else ""
            self._end(hub, words, leaf_reason(words))
            return
        self._engine.resume(conn)

    def input(self, conn: int, data: bytes) -> None:
        self._upgrades.input(conn, data)

    def output(self, conn: int, data: bytes) -> None:
        self._upgrades.output(conn, data)

    def ended(self, conn: int, words: bytes) -> None:
        hub = self._hubs.get(conn)
        if hub is not None and hub.info is not None:  # somebody was there
            self._nats.say_ended(self._known(hub), words, hub.reason, is_joined=hub.is_joined)

    def closed(self, conn: int) -> None:
        self._upgrades.closed(conn)
        for number in (conn, -conn):
            self._nats.admission.gone(number)
        self._dialer.ended(conn)
        hub = self._hubs.pop(conn, None)
        if hub is None:
            return
        if hub.is_joined:
            self._remark(logging.INFO, hub, "the hub is gone")
        # A hub that has not sent INFO in time is tried again by the dialer itself.
        if self._is_wanted(hub.servers) and not self._dialer.is_under_way(hub.wish):
            hub.wish.attempts = 0
            self._dialer.dial(hub.wish, hub.wish.every_ns + hub.delay_ns)

    def _remark(self, level: int, hub: Hub, words: str) -> None:
        name = f"{hub.name} ({hub.wish.url})" if hub.name else str(hub.wish.url)
        self._remarks.say(level, str(hub.wish.url), f"{name}: {words}")

    def _end(self, hub: Hub, words: str, reason: int = 0) -> None:
        hub.reason = reason or (leaf_reason(words) if words else CLIENT_CLOSED)
        if words:
            self._remark(logging.WARNING, hub, words)
            self._engine.reply(hub.conn, f"-ERR '{words}'\r\n".encode())
        hub.is_ended, hub.until_ns = True, 0
        # The dialer must not count this as a failed attempt.
        self._dialer.forget(hub.conn)
        self._engine.close_connection(hub.conn)

    def _complained(self, hub: Hub, words: str) -> None:
        self._remark(logging.WARNING, hub, f"said {words}")
        if any(one in words for one in LASTING):
            self._delay(hub)
        elif OLD_VERSION in words:
            self._delay(hub, OLD_DELAY_NS)
        if LASTING[0] in words:
            raise HubError("")

    def looped(self, conn: int) -> None:
        """The hub has sent this server's own `$LDS.` subject, so there is a loop. closed() is next."""
        if (hub := self._hubs.get(conn)) is not None:
            self._remark(logging.WARNING, hub, f"there is a circle of leaf nodes in account {hub.remote.account}")
            self._delay(hub)

    def _delay(self, hub: Hub, delay_ns: int = DELAY_NS) -> None:
        hub.delay_ns = delay_ns
        self._remark(logging.WARNING, hub, f"it is not tried again for {delay_ns // SECOND} s")

    # --- greeting ---------------------------------------------------------------------------------------------------

    def _opened(self, conn: int) -> None:
        wish = self._dialer.opened(conn)
        assert isinstance(wish, HubWish) and wish.servers is not None
        address = self._engine.remote(conn) or wish.servers.remote.urls[0].address
        hub = self._hubs[conn] = Hub(conn, wish, wish.servers, next(self._nats.client_ids), address)
        # nats-server compresses around a websocket's frames, not inside them, which is not supported here.
        mode = hub.remote.compression if hub.remote.websocket is None else NOT_SUPPORTED
        hub.compression = Compression(mode, hub.remote.thresholds_ns)
        if not self._is_wanted(hub.servers):
            self._end(hub, "")
            return
        self._engine.call(conn, "solicited")
        # The codec must send nothing before CONNECT, which follows INFO.
        self._engine.call(conn, "negotiates", 1)
        terms = self._encryptions.get(hub.remote)
        is_websocket = hub.remote.websocket is not None
        if terms is not None and (terms.is_first or is_websocket):
            self._shake_hands(hub, terms)
        elif is_websocket:
            self._upgrades.begin(conn)
            self._ask(hub)
        else:
            self._engine.resume(conn)

    def _ask(self, hub: Hub) -> None:
        """Sends a websocket's request; INFO comes in its frames."""
        from mq_shards.acceptor.protocols.nats.websocket_ask import Asked

        def begin(masks: bool, rest: bytes) -> bytes:
            return self._begin_frames(conn, rest, masks=masks)

        how, url, conn = hub.remote.websocket, hub.wish.url, hub.conn
        assert how is not None and isinstance(url, HubUrl)

        def say(data: bytes) -> None:
            tls = self._upgrades.tls(conn)
            self._engine.send(conn, data if tls is None else tls.encode(data))

        asked = Asked(url.address, url.path, begin, say, compresses=how.compresses, masks=how.masks)
        self._upgrades.add(conn, asked)
        say(asked.request)
        self._engine.resume(conn)

    def _begin_frames(self, conn: int, rest: bytes, *, masks: bool) -> bytes:
        """The engine handles frames from now on. `rest` has come of them; returns what is still to be fed of it."""
        is_encrypted = self._upgrades.tls(conn) is not None
        flags = lib.WEBSOCKET_UNMASKED
        flags |= lib.WEBSOCKET_MASKS if masks else 0
        flags |= lib.WEBSOCKET_BY_FILTER if is_encrypted else 0
        if not self._engine.websocket(conn, FRAME_BYTES, flags):
            self._engine.close_connection(conn)
        if is_encrypted:
            return rest
        self._upgrades.closed(conn)
        self._engine.give_input(conn, rest)
        return b""

    def _shake_hands(self, hub: Hub, terms: HubTls) -> None:
        from mq_shards.acceptor.filters.tls import VerifyingTls

        self._upgrades.begin(hub.conn)
        tls = VerifyingTls(terms.context, server_hostname=hub.servers.host_of(hub.wish.url))
        self._upgrades.shake_hands(hub.conn, tls, terms.timeout_ns, speaks_first=True)

    def _shaken(self, conn: int) -> None:
        hub = self._hubs[conn]
        if not self._is_pinned(hub):
            self._end(hub, "")
            self._remark(logging.WARNING, hub, "the TLS handshake failed: certificate not pinned")
            return
        if hub.remote.websocket is not None:
            self._ask(hub)
            return
        if hub.info is not None:
            try:
                self._say_who(hub, hub.info)
            except HubError as error:
                self._end(hub, str(error), leaf_reason(str(error)))
                return
        self._engine.resume(conn)

    def _is_pinned(self, hub: Hub) -> bool:
        terms = self._encryptions.get(hub.remote)
        if terms is None or not terms.pinned:
            return True
        from mq_shards.acceptor.protocols.nats.tls import key_digest

        tls: VerifyingTls | None = self._upgrades.tls(hub.conn)  # type: ignore[assignment]
        certificate = tls.certificate if tls is not None else None
        return certificate is not None and key_digest(certificate) in terms.pinned

    def _refused(self, conn: int, alert: bytes, why: str) -> None:
        hub = self._hubs[conn]
        self._remark(logging.WARNING, hub, f"the TLS handshake failed: {why}")
        self._engine.send(conn, alert)
        self._end(hub, "", TLS_HANDSHAKE)

    # --- INFO -------------------------------------------------------------------------------------------------------

    def _hear(self, hub: Hub, info: Info) -> bool:
        """Handles an INFO. Returns whether the codec goes on at once. Raises HubError."""
        if hub.info is None:
            return self._hear_first(hub, info)
        hub.servers.learn(info.urls(hub.urls_key))
        if hub.is_compressing:
            hub.is_compressing, hub.until_ns, hub.info = False, 0, info
            self._say_who(hub, info)
        elif not hub.is_joined and info.flag("connect_info"):
            self._join(hub, info)
        elif hub.is_joined and info.limits() != {"import": None, "export": None}:
            self._permit(hub, info)
        return not hub.is_ended

    def _hear_first(self, hub: Hub, info: Info) -> bool:
        self._dialer.heard(hub.conn)
        hub.info = info
        if info.number("client_id") == 0 or not ("leafnode_urls" in info.said or info.flag("info_on_connect")):
            self._remark(logging.WARNING, hub, "attempted to connect to wrong port")
            raise HubError("")
        if " " in info.text("cluster"):
            raise HubError("cluster name cannot contain spaces")
        if info.text("cluster") == RESERVED_CLUSTER:
            raise HubError("cluster name is reserved")
        hub.servers.learn(info.urls(hub.urls_key))
        terms = self._encryptions.get(hub.remote)
        # In a websocket nothing is encrypted again, though INFO may say that the hub's other leaf nodes have to.
        is_settled = hub.remote.websocket is not None or hub.conn in self._upgrades
        if is_settled or (terms is None and not info.flag("tls_required")):
            self._say_who(hub, info)
            return True
        if terms is None:
            # The hub requires TLS, and nothing is configured: use the defaults.
            terms = self._encryptions[hub.remote] = hub.remote.encryption()
        self._shake_hands(hub, terms)
        return False

    @property
    def _cluster_name(self) -> str:
        """The cluster's name; a server without a cluster uses the name that it was given."""
        return str(self._nats.cluster.get("name", "")) or str(self._settings["server-name"])

    def _compress(self, hub: Hub, info: Info) -> bool:
        """Agrees on compression. Returns whether it is on from here, and INFO comes again. Raises HubError."""
        compression = hub.compression
        try:
            is_on = compression.is_open and compression.agree(info.text("compression"))
        except ValueError as error:
            raise HubError(str(error)) from None
        if not is_on:
            return False
        said = {"server_id": self._server_id, "server_name": self._nats.identity.server_name}
        said |= {"version": NATS_SERVER_VERSION, "compression": compression.offer}
        self._engine.reply(hub.conn, json_line("INFO", said))
        compression.begin(self._engine, hub.conn)
        hub.is_compressing = True
        self._wait_for(hub)
        return True

    def damaged(self, conn: int, why: str) -> None:
        """The hub has sent invalid compressed data; closed() is next."""
        if (hub := self._hubs.get(conn)) is not None:
            self._remark(logging.ERROR, hub, f"what came is no stream of S2: {why}")

    def _wait_for(self, hub: Hub) -> None:
        hub.until_ns = time.monotonic_ns() + ANSWER_NS
        heapq.heappush(self._due, (hub.until_ns, hub.conn))

    def _say_who(self, hub: Hub, info: Info) -> None:
        if self._compress(hub, info):
            return
        remote, identity = hub.remote, self._nats.identity
        try:
            proofs = remote.proves(info.text("nonce"), hub.wish.url)
        except RemoteError as error:
            self._remark(logging.ERROR, hub, str(error))
            raise HubError("") from None
        said = {
            "version": NATS_SERVER_VERSION, **proofs, "server_id": self._server_id, "name": identity.server_name,
            "cluster": self._cluster_name, "headers": identity.headers and info.flag("headers"),
            "deny_pub": list(remote.deny_imports), "compress_mode": hub.compression.mode,
            "remote_account": remote.account, "protocol": SERVER_PROTOCOL,
        }  # fmt: skip
        line = json_line("CONNECT", {name: value for name, value in said.items() if value})
        self._engine.reply(hub.conn, line)
        self._engine.call(hub.conn, "negotiates", 0)
        if not info.flag("info_on_connect"):
            self._join(hub, info)
            return
        self._wait_for(hub)

    def _join(self, hub: Hub, info: Info) -> None:
        hub.until_ns = 0
        account = hub.remote.account
        if hub.cluster and (account, hub.cluster) in self._leaves():
            self._loop(hub)
        most = self._nats.logins.limits(User(account=account)).leaf_nodes
        there = sum(name == account for name, _ in self._leaves())
        there += sum(other.is_joined and other.remote.account == account for other in self._hubs.values())
        if most is not None and there >= most:
            raise HubError("maximum account active connections exceeded")
        self._nats.admission.account(account)
        self._permit(hub, info)
        assert hub.info is not None
        flags = HEADERS if self._nats.identity.headers and hub.info.flag("headers") else 0
        flags |= TRACES if hub.info.traces else 0
        what = f"{loop_of(self._server_id, account)} {hub.cluster} {account}".encode(errors="surrogateescape")
        who = LeafNode.of(hub.client_id, hub.began_wall_ns, hub.address)
        who.user = User(account=account)
        self._engine.call(hub.conn, "info", 0, asker(who, hub.name, self._cluster_name))
        try:
            joined = self._engine.call(hub.conn, "join", flags, what)
        except ValueError:
            self._remark(logging.ERROR, hub, "there are as many hubs as there can be")
            raise HubError("") from None
        if not joined:
            return
        hub.is_joined = True
        if self._nats.events is not None:
            self._nats.events.connected(self._known(hub), self._nats.server_row())
        self._engine.call(hub.conn, "name", 0, hub.name.encode(errors="surrogateescape"))
        hub.compression.watch(self._engine, hub.conn)
        self._remark(logging.INFO, hub, f"this is its leaf node, for account {account}")

    def _loop(self, hub: Hub) -> None:
        """Refuses a hub whose cluster has a leaf node of this server in the same account. Raises HubError."""
        self._delay(hub)
        account = f'"{hub.remote.account}"'
        raise HubError(f"Loop detected for leafnode account={account}. Delaying attempt to reconnect for 30s")

    def _permit(self, hub: Hub, info: Info) -> None:
        """Sets what may pass: what the hub's INFO permits, without what this server denies."""
        remote, admission = hub.remote, self._nats.admission
        coming = _limits(info.values.get("import"), remote.deny_imports)
        going = _limits(info.values.get("export"), remote.deny_exports)
        try:
            may_send = admission.hold(-hub.conn, Permissions(publish=coming))
            may_pass = admission.hold(hub.conn, Permissions(publish=coming, subscribe=going))
        except ValueError:
            self._remark(logging.ERROR, hub, "the permissions that it says are not valid")
            raise HubError("") from None
        self._engine.call(hub.conn, "publishing", may_send)
        self._engine.call(hub.conn, "permissions", may_pass)

    # --- changes, and monitoring ------------------------------------------------------------------------------------

    def shares_changed(self, accounts: set[str]) -> None:
        """Imports or mappings of these accounts have changed: reconnects their hubs, so that interest is sent anew."""
        for hub in list(self._hubs.values()):
            if hub.is_joined and not hub.is_ended and hub.remote.account in accounts:
                self._end(hub, "")

    def kick(self, cid: int) -> bool:
        """Closes the connection to a hub, or returns False."""
        found = next((hub for hub in self._hubs.values() if hub.client_id == cid and not hub.is_ended), None)
        if found is not None:
            self._end(found, "", KICKED)
        return found is not None

    def rows(self) -> list[dict[str, Any]]:
        """The rows of /leafz, and what /connz shows besides."""
        return [self._row(hub) for hub in self._hubs.values() if hub.is_joined and not hub.is_ended]

    def accounts(self) -> list[str]:
        return [hub.remote.account for hub in self._hubs.values() if hub.is_joined and not hub.is_ended]

    def _known(self, hub: Hub) -> Known:
        """Like nats-server, does not name the hub."""
        client = LeafNode.of(hub.client_id, 0, hub.address)
        tls: VerifyingTls | None = self._upgrades.tls(hub.conn)  # type: ignore[assignment]
        row: dict[str, Any] = {"kind": "Leafnode", "ip": client.host, "port": client.port} | tls_row(tls, first=False)
        account = hub.remote.account
        return Known(hub.client_id, account, hub.began_wall_ns, row, {"name_tag": account}, tls)

    def _row(self, hub: Hub) -> dict[str, Any]:
        known = self._known(hub)
        return {
            "id": hub.client_id, "rid": hub.conn, "name": hub.name, "is_spoke": True,
            "account": hub.remote.account, "ip": known.row["ip"], "port": known.row["port"],
            "compression": hub.compression.mode, "started_wall_ns": hub.began_wall_ns, "row": known.row,
            "auth": known.auth | certificates_row(known.tls), **figures_of(self._engine, hub.conn),
        }  # fmt: skip

    def shown(self) -> dict[str, Any]:
        """The options, as /varz shows them."""
        return {"remotes": [remote.shown() for remote in self._servers]} if self._servers else {}


def _limits(said: object, deny: tuple[str, ...]) -> Limits:
    """Reads permissions of INFO; malformed parts are ignored."""
    found: Mapping[str, Any] = said if isinstance(said, dict) else {}
    lists = {name: value for name in ("allow", "deny") if isinstance(value := found.get(name), list)}
    words = {name: tuple(word for word in value if isinstance(word, str)) for name, value in lists.items()}
    allow = words.get("allow") or None
    return Limits(allow=allow, deny=(*words.get("deny", ()), *deny, *JETSTREAM))
