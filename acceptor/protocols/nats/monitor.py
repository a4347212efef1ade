"""Answers calls (docs/calls.md) about this acceptor's NATS clients. The gateway combines the answers of all acceptors
into what nats-server's monitoring shows.

    nats.server        a JSON object about the server: see Nats._described
    nats.figures       figures of connections, starting at a place, as C packs them (nats_figures.c)
    nats.clients       what Python knows of some connections
    nats.subscriptions a connection's subscriptions, starting at a place
    nats.wanted        what a server behind a route wants, and how much it was sent from this acceptor
    nats.closed        the last connections that have ended
    nats.accounts      figures by account
    nats.kept          figures of the cache of matches
    nats.account       what one account shares

Each answer is limited in size; the caller asks again from where it ended. The only state kept for this are ended
connections, limited in number and bytes.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from mq_shards.acceptor.pauses import Pause, each_with, no_pause
from mq_shards.acceptor.protocols.nats.shares import Exports, ShareError, export_of
from mq_shards.csrc._core import ffi, lib
from mq_shards.csrc.structs import struct_in, structs_in

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.filters.tls import VerifyingTls
    from mq_shards.ringbuf.calls import Asked, Calls

NAMED_BIT: Final = 32  # nats_figures.c
INDEX_BITS: Final = 20  # of a connection's number that are its index in the table (csrc/acceptor/engine.h)

FIGURES_BYTES: Final[int] = ffi.sizeof("struct nats_figures")
SUBSCRIPTION_BYTES: Final[int] = ffi.sizeof("struct nats_subscription_figures")
ACCOUNT_BYTES: Final[int] = ffi.sizeof("struct nats_account_figures")
KEPT_BYTES: Final[int] = ffi.sizeof("struct nats_kept_figures")
PLACE_SHIFT: Final = 32  # nats_figures.c

FIGURES_AT_ONCE: Final = 4096
CLIENTS_AT_ONCE: Final = 256
SUBSCRIPTIONS_BYTES: Final = 64 << 10
ACCOUNTS_BYTES: Final = 256 << 10
LISTED_SUBSCRIPTIONS: Final = 10_000  # of one connection
CLOSED_AT_ONCE: Final = 500
# Of all ended connections that this acceptor keeps.
CLOSED_BYTES: Final = 16 << 20

LOOPED: Final[int] = lib.NATS_LOOPED
DAMAGED: Final[int] = lib.NATS_DAMAGED
REASONS: Final[Mapping[int, str]] = {
    0: "Client Closed", 1: "Client Closed", 2: "Authentication Timeout", 3: "Authentication Failure",
    4: "TLS Handshake Failure", 5: "Slow Consumer (Pending Bytes)", 6: "Slow Consumer (Write Deadline)",
    7: "Write Error", 8: "Read Error", 9: "Parse Error", 10: "Stale Connection", 11: "Protocol Violation",
    12: "Bad Client Protocol Version", 13: "Incorrect Port", 14: "Maximum Account Connections Exceeded",
    15: "Maximum Connections Exceeded", 16: "Maximum Message Payload Exceeded", 17: "Maximum Control Line Exceeded",
    18: "Maximum Subscriptions Exceeded", 21: "Server Shutdown", 22: "Authentication Expired", 23: "Wrong Gateway",
    24: "Missing Account", 25: "Credentials Revoked", 27: "Message Header Violation",
    28: "No Responders Requires Headers", 30: "Duplicate Remote LeafNode Connection", 32: "Minimum Version Required",
    33: "Cluster Names Identical", 34: "Kicked", LOOPED: "Protocol Violation", DAMAGED: "Read Error",
}  # fmt: skip

# Reasons for connections that were never authenticated.
REFUSALS: Final = (REASONS[2], REASONS[3])


class Figures(NamedTuple):
    """struct nats_figures, of one connection. The account is a number; bytes count payloads only."""

    conn: int
    account: int
    subscriptions: int
    reason: int
    in_messages: int
    in_bytes: int
    out_messages: int
    out_bytes: int
    pending_bytes: int
    rtt_ns: int
    idle_ns: int
    opened_ns: int
    client_id: int


class AccountFigures(NamedTuple):
    """struct nats_account_figures."""

    number: int
    taken_messages: int
    taken_bytes: int
    given_messages: int
    given_bytes: int
    slow_consumers: int
    subscriptions: int
    inserts: int
    removes: int
    looked: int
    hits: int
    members: int
    name_bytes: int


class Kept(NamedTuple):
    """struct nats_kept_figures, of the cache of matches. The next piece starts at `account` and `place`; `account` 0:
    there is none."""

    account: int
    place: int
    subjects: int
    fanout: int
    max_fanout: int


_figures_in, _account_in, _kept_in = (attrgetter(*each._fields) for each in (Figures, AccountFigures, Kept))


class Subscription(NamedTuple):
    subject: str
    queue: str
    sid: str
    delivered: int
    max: int
    place: int


def figures_of(data: bytes) -> list[Figures]:
    return [Figures._make(_figures_in(one)) for one in structs_in("nats_figures", data)]


def subscriptions_of(data: bytes) -> Iterator[Subscription]:
    at = 0
    while at < len(data):
        found = struct_in("nats_subscription_figures", data, at)
        at += SUBSCRIPTION_BYTES
        texts = []
        for size in (found.subject_bytes, found.queue_bytes, found.sid_bytes):
            texts.append(data[at : at + size].decode(errors="replace"))
            at += size
        yield Subscription(texts[0], texts[1], texts[2], found.delivered, found.max, found.place)


class Known(NamedTuple):
    """What Python knows of a connection. `row` holds the fields that a nats-server shows beside its figures."""

    cid: int
    account: str
    start_ns: int
    row: dict[str, Any]
    auth: dict[str, Any]  # fields shown only on request
    tls: VerifyingTls | None = None


class Monitor:
    def __init__(
        self,
        engine: Engine,
        protocol: int,
        known: Callable[[int], Known | None],
        server: Callable[[bool], dict[str, Any]],
        account: Callable[[str, int], dict[str, Any]],
        wall_ns: Callable[[], int],
        max_closed: int,
    ) -> None:
        """`known` looks up a connection by its number. `server` describes the server, with or without the names of all
        accounts. `account` describes an account, beside its figures. Keeps at most `max_closed` ended connections."""
        self._engine = engine
        self._protocol = protocol
        self._known = known
        self._server = server
        self._account = account
        self._wall_ns = wall_ns
        self._max_closed = max_closed
        self._closed: deque[tuple[int, bytes]] = deque()  # consecutive numbers, and JSON
        self._closed_bytes = 0
        self._ended = 0

    def serve(self, calls: Calls) -> None:
        questions: Mapping[str, Callable[[dict[str, Any]], bytes]] = {
            "server": self._answer_server,
            "figures": self._answer_figures,
            "clients": self._answer_clients,
            "subscriptions": self._answer_subscriptions,
            "wanted": self._answer_wanted,
            "closed": self._answer_closed,
            "accounts": self._answer_accounts,
            "kept": self._answer_kept,
            "account": lambda asked: orjson.dumps(self._account(asked["name"], int(asked["from"]))),
        }
        for what, answer in questions.items():
            calls.serve(f"nats.{what}", lambda asked, answer=answer: _answer(asked, answer))  # type: ignore[misc]

    # --- connections that have ended --------------------------------------------------------------------------------

    def ended(self, conn: int, words: bytes) -> dict[str, Any] | None:
        """Stores what is known of a client that goes, and returns it; None: not a client."""
        known = self._known(conn)
        return None if known is None else self.keep(known, words)

    def keep(self, known: Known, words: bytes, reason: int = 0) -> dict[str, Any]:
        """Stores what is known of a connection that ends, if any are kept, and returns it. `words`: figures and
        subscriptions, from the codec. `reason`: its number, if the codec does not know it."""
        (figures,) = figures_of(words[:FIGURES_BYTES])
        subscriptions = [_detail(one, known.cid) for one in subscriptions_of(words[FIGURES_BYTES:])]
        now_ns = self._wall_ns()
        row = {
            **_numbers(figures, known),
            "now_ns": now_ns,
            "stop_ns": now_ns,
            "reason": REASONS.get(figures.reason or reason, "Unknown State"),
            "row": known.row,
            "auth": known.auth,
            "account": known.account,
            "subs": subscriptions,
        }
        if self._max_closed > 0:
            self._store(row)
        return row

    def _store(self, row: dict[str, Any]) -> None:
        self._ended += 1
        # A copy, because orjson's result takes up 4 KiB even if it is shorter.
        self._closed.append((self._ended, bytes(memoryview(orjson.dumps(row)))))
        self._closed_bytes += len(self._closed[-1][1])
        while len(self._closed) > self._max_closed or self._closed_bytes > CLOSED_BYTES:
            self._closed_bytes -= len(self._closed.popleft()[1])

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answer_server(self, asked: dict[str, Any]) -> bytes:
        return orjson.dumps({**self._server(not asked.get("brief")), "closed": len(self._closed)})

    def _answer_figures(self, asked: dict[str, Any]) -> bytes:
        room = FIGURES_AT_ONCE * FIGURES_BYTES
        return self._engine.ask(self._protocol, "figures", int(asked["from"]), most=room)

    def _answer_clients(self, asked: dict[str, Any]) -> bytes:
        """Rows in the order of the question; null for a connection that is gone."""
        found: list[dict[str, Any] | None] = []
        for conn in asked["conns"][:CLIENTS_AT_ONCE]:
            known = self._known(conn)
            if known is None:
                found.append(None)
                continue
            row: dict[str, Any] = {"start_ns": known.start_ns, "row": known.row, "account": known.account}
            row["auth"] = known.auth | certificates_row(known.tls)
            if asked.get("subs"):
                row["subs"] = [_detail(one, known.cid) for one in self._subscriptions(conn)]
            found.append(row)
        return orjson.dumps({"now_ns": self._wall_ns(), "clients": found})

    def _subscriptions(self, of: int, what: str = "subscriptions") -> list[Subscription]:
        found: list[Subscription] = []
        while len(found) < LISTED_SUBSCRIPTIONS:
            start = struct.pack("<I", found[-1].place + 1 if found else 0)
            piece = self._engine.ask(self._protocol, what, of, start, most=SUBSCRIPTIONS_BYTES)
            if not piece:
                break
            found += subscriptions_of(piece)
        return found

    def _answer_subscriptions(self, asked: dict[str, Any]) -> bytes:
        """Subscriptions of one connection, starting at a place; the last piece is empty."""
        conn = int(asked["conn"])
        known = self._known(conn)
        if known is None:
            return b"[]"
        start = struct.pack("<I", int(asked["from"]))
        piece = self._engine.ask(self._protocol, "subscriptions", conn, start, most=SUBSCRIPTIONS_BYTES)
        account = {"account": known.account}
        return orjson.dumps(
            [{**_detail(one, known.cid), **account, "place": one.place} for one in subscriptions_of(piece)]
        )

    def _answer_wanted(self, asked: dict[str, Any]) -> bytes:
        wanted = self._subscriptions(int(asked["route"]) | bool(asked["named"]) << NAMED_BIT, "wanted")
        return orjson.dumps([_detail(one, int(asked["rid"])) for one in wanted])

    def _answer_closed(self, asked: dict[str, Any]) -> bytes:
        """Ended connections, starting at a number."""
        wanted = int(asked["from"])
        first = self._closed[0][0] if self._closed else 1
        rows = []
        for at in range(max(0, wanted - first), min(len(self._closed), max(0, wanted - first) + CLOSED_AT_ONCE)):
            rows.append(b'{"number":%d,"closed":%b}' % self._closed[at])
        return b"[" + b",".join(rows) + b"]"

    def _answer_accounts(self, asked: dict[str, Any]) -> bytes:
        """Figures by account name, starting at an account's number; the last piece is empty. Or those of one named
        account."""
        name = asked.get("name", "").encode(errors="surrogateescape")
        room = ACCOUNT_BYTES + len(name) if name else ACCOUNTS_BYTES
        data = self._engine.ask(self._protocol, "accounts", int(asked.get("from", 0)), name, most=room)
        found = {}
        at = 0
        while at < len(data):
            figures = AccountFigures._make(_account_in(struct_in("nats_account_figures", data, at)))
            at += ACCOUNT_BYTES + figures.name_bytes
            found[data[at - figures.name_bytes : at].decode(errors="replace")] = figures._asdict()
        return orjson.dumps(found)

    def _answer_kept(self, asked: dict[str, Any]) -> bytes:
        """Figures of the cache of matches, starting at an account and place, or those of one named account."""
        name = asked.get("name", "").encode(errors="surrogateescape")
        start = int(asked.get("account", 0)) | int(asked.get("place", 0)) << PLACE_SHIFT
        data = self._engine.ask(self._protocol, "kept", start, name, most=KEPT_BYTES)
        return orjson.dumps(Kept._make(_kept_in(struct_in("nats_kept_figures", data)))._asdict())


def _answer(asked: Asked, answer: Callable[[dict[str, Any]], bytes]) -> None:
    asked.answer(answer(orjson.loads(asked.body or b"{}")))


def _numbers(figures: Figures, known: Known) -> dict[str, Any]:
    return {
        "cid": known.cid,
        "start_ns": known.start_ns,
        **{name: value for name, value in figures._asdict().items() if name not in ("conn", "account", "reason")},
    }


def _detail(one: Subscription, cid: int) -> dict[str, Any]:
    """A client's subscription, as nats-server shows it."""
    row: dict[str, Any] = {"subject": one.subject}
    if one.queue:
        row["qgroup"] = one.queue
    row |= {"sid": one.sid, "msgs": one.delivered}
    if one.max:
        row["max"] = one.max
    row["cid"] = cid
    return row


RESPONSES: Final = {"single": "Singleton", "stream": "Streamed", "chunk": "Chunked"}


# What there may be very much of in an account, and how much of each is told at once: a subject has 4 KiB at most.
SHARED: Final = ("mappings", "exports", "imports")
SHARED_AT_ONCE: Final = 512


def account_row(
    account: Mapping[str, Any],
    accounts: Mapping[str, Mapping[str, Any]],
    first: int,
    given: Exports,
    pause: Pause = no_pause,
) -> dict[str, Any]:
    """What an account shares (shares.py), in the form of nats-server's monitoring: a piece of it."""
    end = first + SHARED_AT_ONCE
    exports = [
        {
            "subject": one["subject"],
            "type": one["kind"],
            **({"approved_accounts": one["accounts"]} if one.get("accounts") is not None else {}),
            **({"response_type": RESPONSES[one.get("response", "single")]} if one["kind"] == "service" else {}),
            **_latency_row("service_latency", one),
            **({"account_token_position": place} if (place := one.get("token_position")) else {}),
        }
        for one in account.get("exports", ())[first:end]
    ]
    imports = [
        {
            "subject": one["subject"],
            "account": one["account"],
            **({"to": one["to"]} if one["kind"] == "service" else {}),
            "local_subject": one["to"],
            "type": one["kind"],
            "invalid": False,
            "share": bool(one.get("share")),
            "tracking": False,
            **_latency_row("latency", _export_of(given, one, account["name"], accounts)),
        }
        for one in each_with(pause, account.get("imports", ())[first:end])
    ]
    mappings = dict(itertools.islice(account.get("mappings", {}).items(), first, end))
    found = {"mappings": mappings, "exports": exports, "imports": imports}
    return {name: value for name, value in found.items() if value}


def _export_of(
    given: Exports, one: Mapping[str, Any], importer: str, accounts: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    try:
        return export_of(given, accounts[one["account"]], one["kind"], one["subject"], importer)
    except (KeyError, ShareError):
        return {}


def _latency_row(name: str, export: Mapping[str, Any]) -> dict[str, Any]:
    latency = export.get("latency")
    if latency is None:
        return {}
    return {name: {"sampling": latency["percent"] or "headers", "results": latency["subject"]}}


SYSTEM_EXPORTS: Final = [
    {"subject": subject, "type": "service", "response_type": RESPONSES[response]}
    for subject, response in (
        ("$SYS.REQ.ACCOUNT.*.CONNZ", "stream"),
        ("$SYS.REQ.ACCOUNT.*.STATZ", "stream"),
        ("$SYS.REQ.USER.*.INFO", "single"),
        ("$SYS.DEBUG.SUBSCRIBERS", "single"),
    )
]


def system_shares(account: str, system_account: str) -> dict[str, Any]:
    """The services that every account imports from the system account: questions about itself."""
    is_system = account == system_account
    kinds = [("ACCOUNT.PING", "CONNZ"), ("SERVER.PING", "CONNZ"), ("ACCOUNT.PING", "STATZ"), ("USER", "INFO")]
    imports = [
        {
            "subject": f"$SYS.REQ.{'USER' if what == 'INFO' else 'ACCOUNT'}.{account}.{what}",
            "account": system_account,
            "to": f"$SYS.REQ.{where}.{what}",
            "local_subject": f"$SYS.REQ.{where}.{what}",
            "type": "service",
            "invalid": False,
            "share": what == "INFO",
            "tracking": False,
        }
        for where, what in (kinds[-1:] if is_system else kinds)
    ]
    return {"imports": imports, **({"exports": SYSTEM_EXPORTS} if is_system else {})}


def certificates_row(tls: VerifyingTls | None) -> dict[str, Any]:
    """The field about the client's certificates, if it has shown any."""
    certificates = tls.certificates if tls is not None else []
    if not certificates:
        return {}
    from mq_shards.acceptor.protocols.nats.peer_certs import peer_cert

    return {"tls_peer_certs": [peer_cert(one) for one in certificates]}


def tls_row(tls: VerifyingTls | None, first: bool) -> dict[str, Any]:
    """The fields about a connection's TLS; empty when it is not encrypted."""
    if tls is None:
        return {}
    row: dict[str, Any] = {"tls_version": tls.version.removeprefix("TLS"), "tls_cipher_suite": tls.cipher}
    if first:
        row["tls_first"] = True
    return row
