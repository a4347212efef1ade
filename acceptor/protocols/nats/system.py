"""The server's part in the system account, where it has a client of its own (own_client.py).

    $SYS.REQ.SERVER.PING[.X], $SYS.REQ.SERVER.<id>.X, $SYS.REQ.ACCOUNT.<name>.X    requests that the gateway answers
    $SYS.REQ.ACCOUNT.<name>.CLAIMS.UPDATE                                          an account's JWT: operator_mode.py
    $SYS.ACCOUNT.<name>.CONNECT, .DISCONNECT                                       events, from each acceptor
    $SYS.SERVER.<id>.CLIENT.AUTH.ERR                                               a client failed to authenticate
    $SYS.SERVER.ACCOUNT.<name>.CONNS, $SYS.ACCOUNT.<name>.SERVER.CONNS             the account's number of connections
    $SYS.SERVER.<id>.STATSZ                                                        at first often, then every 10 s
    $SYS.SERVER.<id>.LAMEDUCK, .SHUTDOWN                                           the server is about to end, or ends

It exists only if there can be users of the system account. The gateway's half is gateway/nats/system.py.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson
from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.protocols.go_time import instant
from mq_shards.acceptor.protocols.nats.monitor import REFUSALS
from mq_shards.acceptor.protocols.nats.own_client import OwnClient

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.protocols.nats.client import Client
    from mq_shards.acceptor.protocols.nats.monitor import Known
    from mq_shards.acceptor.watched import Watched
    from mq_shards.ringbuf.calls import Calls, Reply

UNDER_WAY: Final = 256  # requests to the gateway; further ones are not answered
OPEN: Final = 256  # questions to the other servers whose answers are passed on; the oldest ends for a further one
CONNECT_TYPE: Final = "io.nats.server.advisory.v1.client_connect"
DISCONNECT_TYPE: Final = "io.nats.server.advisory.v1.client_disconnect"
CONNS_TYPE: Final = "io.nats.server.advisory.v1.account_connections"
FIRST_STATSZ_NS: Final = 250_000_000
STATSZ_NS: Final = 1_000_000_000  # then doubled each time, up to the next constant
LONGEST_STATSZ_NS: Final = 10_000_000_000

# Subjects of JWT updates, new and old. The account is the third token from the end.
CLAIMS: Final = ("$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", "$SYS.ACCOUNT.*.CLAIMS.UPDATE")

Row = dict[str, Any]
Claims = Callable[[str, str, bytes], bool]


class System:
    def __init__(
        self,
        engine: Engine,
        protocol: int,
        watched: Watched,
        calls: Calls,
        server_id: str,
        *,
        answers: bool,
        account: str,
        claims: Claims | None = None,
    ) -> None:
        """`answers`: this is the one acceptor that answers requests. `claims` is called first with each message
        (subject, reply, content), and returns whether it has handled it because it was about JWTs."""
        self.client: Final = OwnClient(engine, protocol, watched, account, self._heard)
        self._calls = calls
        self._server_id = server_id
        self._claims = claims
        self._under_way = 0
        self._sequence = 0
        # Where the other servers answer: of this server, and of this acceptor.
        self._own_inboxes: Final = f"$SYS._INBOX.{server_id}."
        self._inbox: Final = f"{self._own_inboxes}{os.urandom(8).hex()}."
        self._open: dict[str, Callable[[bytes], None]] = {}  # by where they are answered, the oldest first
        self._asked_all = 0
        self._changed: dict[str, bool] = {}  # accounts being counted: whether they changed meanwhile
        self._statsz_ns = STATSZ_NS
        self._next_statsz_ns = time.monotonic_ns() + FIRST_STATSZ_NS if answers else FOREVER
        if answers:
            subjects = "$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.*", f"$SYS.REQ.SERVER.{server_id}.*"
            for subject in (*subjects, "$SYS.REQ.ACCOUNT.*.*", *(CLAIMS if claims is not None else ())):
                self.client.subscribe(subject)

    def publish(self, subject: str, content: bytes) -> None:
        self.client.publish(subject, content)

    # --- periodic statistics ----------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        if self._next_statsz_ns == FOREVER:
            return FOREVER
        return max(self._next_statsz_ns - time.monotonic_ns(), 0)

    def expire(self) -> None:
        now = time.monotonic_ns()
        if self._next_statsz_ns == FOREVER or now < self._next_statsz_ns:
            return
        self._next_statsz_ns = now + self._statsz_ns
        self._statsz_ns = min(2 * self._statsz_ns, LONGEST_STATSZ_NS)
        said = self._publish_at(f"$SYS.SERVER.{self._server_id}.STATSZ")
        self.ask(f"$SYS.REQ.SERVER.{self._server_id}.STATSZ", b"", said)

    # --- events -----------------------------------------------------------------------------------------------------

    def connected(self, known: Known, server: Row) -> None:
        event = self._event(CONNECT_TYPE, server, client_row(known))
        self.publish(f"$SYS.ACCOUNT.{known.account}.CONNECT", orjson.dumps(event))
        self._count(known.account)

    def ended(self, client: Client, known: Known, server: Row, row: Mapping[str, Any]) -> None:
        """`row`: what monitoring keeps of the ended connection."""
        is_refused = row["reason"] in REFUSALS  # it was never authenticated
        if is_refused:
            known.auth.setdefault("authorized_user", client.options.get("user", ""))
            self._ended(f"$SYS.SERVER.{self._server_id}.CLIENT.AUTH.ERR", known, server, row)
        if client.connects:
            self.disconnected(known, server, row, counts=not is_refused)

    def disconnected(self, known: Known, server: Row, row: Mapping[str, Any], *, counts: bool = True) -> None:
        """A client, leaf node or hub of an account has gone. `counts`: it was one of the account's connections."""
        self._ended(f"$SYS.ACCOUNT.{known.account}.DISCONNECT", known, server, row)
        if counts:
            self._count(known.account)

    def server_event(self, what: str, server: Row) -> tuple[str, bytes]:
        """The subject and the body of an event of the server: LAMEDUCK or SHUTDOWN."""
        self._sequence += 1
        row = {**server, "seq": self._sequence, "time": instant(time.time_ns())}
        return f"$SYS.SERVER.{self._server_id}.{what}", orjson.dumps(row)

    def _ended(self, subject: str, known: Known, server: Row, row: Mapping[str, Any]) -> None:
        event = self._event(DISCONNECT_TYPE, server, client_row(known, row))
        # Seen from the client.
        event["sent"] = {"msgs": row["in_messages"], "bytes": row["in_bytes"]}
        event["received"] = {"msgs": row["out_messages"], "bytes": row["out_bytes"]}
        event["reason"] = row["reason"]
        self.publish(subject, orjson.dumps(event))

    def _count(self, account: str) -> None:
        """Publishes an account's number of connections. One question at a time: fast changes are combined."""
        is_asked = account in self._changed
        self._changed[account] = is_asked
        if not is_asked and not self._ask(f"$SYS.REQ.ACCOUNT.{account}.CONNS", b"", self._counted(account)):
            del self._changed[account]

    def _counted(self, account: str) -> Callable[[Reply], None]:
        def counted(answer: Reply) -> None:
            self._under_way -= 1
            has_changed = self._changed.pop(account)
            if answer.ok and answer.body:
                content = orjson.loads(answer.body)
                event = {**event_head(CONNS_TYPE), **content}
                for subject in (f"$SYS.SERVER.ACCOUNT.{account}.CONNS", f"$SYS.ACCOUNT.{account}.SERVER.CONNS"):
                    self.publish(subject, orjson.dumps(event))
            if has_changed:
                self._count(account)

        return counted

    def _event(self, kind: str, server: Row, client: Row) -> Row:
        self._sequence += 1
        head = event_head(kind)
        stamp = {"seq": self._sequence, "time": head["timestamp"]}
        return {**head, "server": {**server, **stamp}, "client": client}

    # --- requests ---------------------------------------------------------------------------------------------------

    def _heard(self, subject: str, reply: str, body: bytes) -> None:
        if subject.startswith(self._inbox):
            if (answered := self._open.get(subject)) is not None:
                answered(body)
            return
        if reply.startswith(self._own_inboxes):
            return  # of another acceptor of this server, which has asked the gateway itself
        is_of_claims = self._claims is not None and self._claims(subject, reply, body)
        if reply and not is_of_claims:
            self._asked(subject, reply, body)

    def _asked(self, subject: str, reply: str, body: bytes) -> None:
        self.ask(subject, body, self._publish_at(reply))

    def _ask(self, subject: str, body: bytes, heard: Callable[[Reply], None]) -> bool:
        """Asks the gateway. False when too many requests are under way."""
        if self._under_way >= UNDER_WAY:
            return False
        self._under_way += 1
        question = orjson.dumps({"subject": subject, "body": body.decode(errors="replace")})
        self._calls.ask("nats.system", question, heard, again=True)
        return True

    def ask(self, subject: str, body: bytes, answered: Callable[[bytes], None]) -> None:
        """Asks the gateway as a user of the system account would. `answered` is not called if there is no answer."""

        def heard(answer: Reply) -> None:
            self._under_way -= 1
            if answer.ok and answer.body:
                answered(answer.body)

        self._ask(subject, body, heard)

    def ask_all(self, subject: str, body: bytes, answered: Callable[[bytes], None]) -> None:
        """Asks the gateway, and the other servers of the cluster. `answered` is called with each answer."""
        self.ask(subject, body, answered)
        self._asked_all += 1
        reply = f"{self._inbox}{self._asked_all}"
        if len(self._open) >= OPEN:
            del self._open[next(iter(self._open))]
        self._open[reply] = answered
        self.client.subscribe(f"{self._inbox}*")
        self.client.publish(subject, body, reply)

    def _publish_at(self, subject: str) -> Callable[[bytes], None]:
        return lambda content: self.publish(subject, content)


def event_head(kind: str) -> Row:
    number = base64.b32encode(hashlib.sha256(os.urandom(16)).digest()).decode()[:22]
    return {"type": kind, "id": number, "timestamp": instant(time.time_ns())}


def client_row(known: Known, ended: Mapping[str, Any] | None = None) -> Row:
    """The field `client` of an event. `ended`: what monitoring keeps of the connection, if it has ended."""
    shown, account = known.row, known.account
    found: Row = {"start": instant(known.start_ns), "host": shown["ip"], "id": known.cid, "acc": account}
    if user := known.auth.get("authorized_user"):
        found["user"] = user
    named = {"name": shown.get("name"), "lang": shown.get("lang"), "ver": shown.get("version")}
    found |= {name: value for name, value in named.items() if value}
    if ended is not None:
        found |= {"rtt": ended["rtt_ns"]} if ended["rtt_ns"] else {}
        found["stop"] = instant(ended["stop_ns"])
    found |= {"name_tag": account, "kind": shown.get("kind", "Client")}
    return found if "type" not in shown else {**found, "client_type": shown["type"]}


def has_users(content: bytes) -> bool:
    """Whether a configuration file has users of the system account."""
    found = orjson.loads(content)
    if found.get("operator", {}).get("system_account"):
        return True
    who = found.get("who", {})
    return any(user.get("account") == who.get("system_account", "$SYS") for user in who.get("users", ()))
