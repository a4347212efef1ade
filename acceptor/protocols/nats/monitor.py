"""What an acceptor knows of its NATS clients, for whoever asks over calls (docs/calls.md): the gateway puts together
what several acceptors say, as nats-server's monitoring shows it.

    nats.server        who and how we are, of a JSON object: see Monitor._server
    nats.figures       figures of connections from a place on, as C has them (nats_figures.c)
    nats.clients       of some connections, what Python has of them
    nats.subscriptions from a place on
    nats.wanted        by a server behind a route, of whatever acceptor: what of that it has been sent from here
    nats.closed        of connections that have ended, the last ones
    nats.accounts      figures by account
    nats.kept          what is kept of earlier matches

Each answer is of a bounded piece; whoever asks goes on from where it ended. Nothing is kept for this but what there was
of connections that have ended, and of those so many and so many bytes.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.filters.tls import VerifyingTls
    from mq_shards.ringbuf.calls import Asked, Calls

NAMED_BIT: Final = 32  # nats_figures.c
INDEX_BITS: Final = 20  # of a connection's number: its place in the table (csrc/acceptor/engine.h)

# struct nats_figures and nats_subscription_figures, csrc/acceptor/protocols/nats/nats_figures.c
FIGURES: Final = struct.Struct("<4I9Q")
SUBSCRIPTION: Final = struct.Struct("<2Q4I")
ACCOUNT: Final = struct.Struct("<13Q")
KEPT: Final = struct.Struct("<5Q")
PLACE_SHIFT: Final = 32  # nats_figures.c

FIGURES_AT_ONCE: Final = 4096
CLIENTS_AT_ONCE: Final = 256
SUBSCRIPTIONS_BYTES: Final = 64 << 10
ACCOUNTS_BYTES: Final = 256 << 10
LISTED_SUBSCRIPTIONS: Final = 10_000  # of one connection
CLOSED_AT_ONCE: Final = 500
# Of all connections that have ended, here.
CLOSED_BYTES: Final = 16 << 20

REASONS: Final[Mapping[int, str]] = {
    0: "Client Closed", 1: "Client Closed", 2: "Authentication Timeout", 3: "Authentication Failure",
    4: "TLS Handshake Failure", 5: "Slow Consumer (Pending Bytes)", 6: "Slow Consumer (Write Deadline)",
    7: "Write Error", 8: "Read Error", 9: "Parse Error", 10: "Stale Connection", 11: "Protocol Violation",
    12: "Bad Client Protocol Version", 13: "Incorrect Port", 14: "Maximum Account Connections Exceeded",
    15: "Maximum Connections Exceeded", 16: "Maximum Message Payload Exceeded", 17: "Maximum Control Line Exceeded",
    18: "Maximum Subscriptions Exceeded", 21: "Server Shutdown", 22: "Authentication Expired", 24: "Missing Account",
    25: "Credentials Revoked", 27: "Message Header Violation", 28: "No Responders Requires Headers", 34: "Kicked",
}  # fmt: skip

# Of one that has not proven who it is.
REFUSALS: Final = (REASONS[2], REASONS[3])


class Figures(NamedTuple):
    """Of one connection. The account is a number; bytes are of payloads."""

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
    """Of earlier matches, in some accounts; it goes on at `account` and `place`, unless `account` is 0."""

    account: int
    place: int
    subjects: int
    fanout: int
    max_fanout: int


class Subscription(NamedTuple):
    subject: str
    queue: str
    sid: str
    delivered: int
    max: int
    place: int


def figures_of(data: bytes) -> list[Figures]:
    return [Figures(*found) for found in FIGURES.iter_unpack(data)]


def subscriptions_of(data: bytes) -> Iterator[Subscription]:
    at = 0
    while at < len(data):
        delivered, most, subject_bytes, queue_bytes, sid_bytes, place = SUBSCRIPTION.unpack_from(data, at)
        at += SUBSCRIPTION.size
        texts = []
        for size in (subject_bytes, queue_bytes, sid_bytes):
            texts.append(data[at : at + size].decode(errors="replace"))
            at += size
        yield Subscription(texts[0], texts[1], texts[2], delivered, most, place)


class Known(NamedTuple):
    """What Python has of a connection: `row` is what a nats-server shows beside its figures."""

    cid: int
    account: str
    start_ns: int
    row: dict[str, Any]
    auth: dict[str, Any]  # that is shown when it is asked for


class Monitor:
    def __init__(
        self,
        engine: Engine,
        protocol: int,
        known: Callable[[int], Known | None],
        server: Callable[[bool], dict[str, Any]],
        account: Callable[[str], dict[str, Any]],
        wall_ns: Callable[[], int],
        max_closed: int,
    ) -> None:
        """`known` is given the number of a connection. `server`: what there is to say of it, with all accounts or not.
        `account`: what is shown of one beside its figures. At most `max_closed` connections that ended are kept."""
        self._engine = engine
        self._protocol = protocol
        self._known = known
        self._server = server
        self._account = account
        self._wall_ns = wall_ns
        self._max_closed = max_closed
        self._closed: deque[tuple[int, bytes]] = deque()  # by the number of their end, and JSON
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
            "account": lambda asked: orjson.dumps(self._account(asked["name"])),
        }
        for what, answer in questions.items():
            calls.serve(f"nats.{what}", lambda asked, answer=answer: _answer(asked, answer))  # type: ignore[misc]

    # --- connections that have ended --------------------------------------------------------------------------------

    def ended(self, conn: int, words: bytes) -> dict[str, Any] | None:
        """Keeps what there was of it, and returns that."""
        known = self._known(conn)
        if known is None or self._max_closed == 0:
            return None
        figures = Figures(*FIGURES.unpack_from(words))
        subscriptions = [_detail(one, known.cid) for one in subscriptions_of(words[FIGURES.size :])]
        now_ns = self._wall_ns()
        row = {
            **_numbers(figures, known),
            "now_ns": now_ns,
            "stop_ns": now_ns,
            "reason": REASONS.get(figures.reason, "Unknown State"),
            "row": known.row,
            "auth": known.auth,
            "account": known.account,
            "subs": subscriptions,
        }
        self._ended += 1
        # A copy: what orjson makes has room for 4 KiB, whatever it holds.
        self._closed.append((self._ended, bytes(memoryview(orjson.dumps(row)))))
        self._closed_bytes += len(self._closed[-1][1])
        while len(self._closed) > self._max_closed or self._closed_bytes > CLOSED_BYTES:
            self._closed_bytes -= len(self._closed.popleft()[1])
        return row

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answer_server(self, asked: dict[str, Any]) -> bytes:
        return orjson.dumps({**self._server(not asked.get("brief")), "closed": len(self._closed)})

    def _answer_figures(self, asked: dict[str, Any]) -> bytes:
        room = FIGURES_AT_ONCE * FIGURES.size
        return self._engine.ask(self._protocol, "figures", int(asked["from"]), most=room)

    def _answer_clients(self, asked: dict[str, Any]) -> bytes:
        """In the order in which they were asked for; null if it is gone."""
        found: list[dict[str, Any] | None] = []
        for conn in asked["conns"][:CLIENTS_AT_ONCE]:
            known = self._known(conn)
            if known is None:
                found.append(None)
                continue
            row: dict[str, Any] = {"start_ns": known.start_ns, "row": known.row, "account": known.account}
            row["auth"] = known.auth
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
        """Of one connection, from a place on; the last piece is empty."""
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
        """From a number on, of the last so many."""
        wanted = int(asked["from"])
        first = self._closed[0][0] if self._closed else 1
        rows = []
        for at in range(max(0, wanted - first), min(len(self._closed), max(0, wanted - first) + CLOSED_AT_ONCE)):
            rows.append(b'{"number":%d,"closed":%b}' % self._closed[at])
        return b"[" + b",".join(rows) + b"]"

    def _answer_accounts(self, asked: dict[str, Any]) -> bytes:
        """By name; from a number on, the last piece is empty. Or the one that is named."""
        name = asked.get("name", "").encode(errors="surrogateescape")
        room = ACCOUNT.size + len(name) if name else ACCOUNTS_BYTES
        data = self._engine.ask(self._protocol, "accounts", int(asked.get("from", 0)), name, most=room)
        found = {}
        at = 0
        while at < len(data):
            figures = AccountFigures(*ACCOUNT.unpack_from(data, at))
            at += ACCOUNT.size + figures.name_bytes
            found[data[at - figures.name_bytes : at].decode(errors="replace")] = figures._asdict()
        return orjson.dumps(found)

    def _answer_kept(self, asked: dict[str, Any]) -> bytes:
        """From an account and a place on, or of the account that is named."""
        name = asked.get("name", "").encode(errors="surrogateescape")
        start = int(asked.get("account", 0)) | int(asked.get("place", 0)) << PLACE_SHIFT
        data = self._engine.ask(self._protocol, "kept", start, name, most=KEPT.size)
        return orjson.dumps(Kept(*KEPT.unpack(data))._asdict())


def _answer(asked: Asked, answer: Callable[[dict[str, Any]], bytes]) -> None:
    asked.answer(answer(orjson.loads(asked.body or b"{}")))


def _numbers(figures: Figures, known: Known) -> dict[str, Any]:
    return {
        "cid": known.cid,
        "start_ns": known.start_ns,
        **{name: value for name, value in figures._asdict().items() if name not in ("conn", "account", "reason")},
    }


def _detail(one: Subscription, cid: int) -> dict[str, Any]:
    """As nats-server shows a subscription of a client."""
    row: dict[str, Any] = {"subject": one.subject}
    if one.queue:
        row["qgroup"] = one.queue
    row |= {"sid": one.sid, "msgs": one.delivered}
    if one.max:
        row["max"] = one.max
    row["cid"] = cid
    return row


RESPONSES: Final = {"single": "Singleton", "stream": "Streamed", "chunk": "Chunked"}


def account_row(account: Mapping[str, Any]) -> dict[str, Any]:
    """What is shown of what an account shares (shares.py), as nats-server does."""
    exports = [
        {
            "subject": one["subject"],
            "type": one["kind"],
            **({"approved_accounts": one["accounts"]} if one.get("accounts") is not None else {}),
            **({"response_type": RESPONSES[one.get("response", "single")]} if one["kind"] == "service" else {}),
            **({"account_token_position": place} if (place := one.get("token_position")) else {}),
        }
        for one in account.get("exports", ())
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
        }
        for one in account.get("imports", ())
    ]
    found = {"mappings": account.get("mappings"), "exports": exports, "imports": imports}
    return {name: value for name, value in found.items() if value}


def system_imports(account: str, system_account: str) -> list[dict[str, Any]]:
    """What every account has of the system account: questions about itself."""
    kinds = ("ACCOUNT.PING", "CONNZ"), ("SERVER.PING", "CONNZ"), ("ACCOUNT.PING", "STATZ"), ("USER", "INFO")
    return [
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
        for where, what in kinds
    ]


def tls_row(tls: VerifyingTls | None, first: bool) -> dict[str, Any]:
    """What is shown of a connection that is encrypted."""
    if tls is None:
        return {}
    row: dict[str, Any] = {"tls_version": tls.version.removeprefix("TLS"), "tls_cipher_suite": tls.cipher}
    if first:
        row["tls_first"] = True
    return row
