"""Authenticates clients that send CONNECT, or a command before it, and gives them their user's permissions and limits;
does so again when users or accounts change, and when a user's time is over. logins.py decides who a client is.

A judgement may last: a hash takes a while, and a service is asked. Only the latest one of a client counts, so
that a client is never admitted by what held before a reload, or before it sent CONNECT again.

Owns the clients' `user` and `connects`, and the time at which they must be closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mq_shards.acceptor.protocols.go_json import DecodeError
from mq_shards.acceptor.protocols.nats import logged, reasons
from mq_shards.acceptor.protocols.nats.client import flags_of
from mq_shards.acceptor.protocols.nats.connects import Connects, refusal_of
from mq_shards.acceptor.protocols.nats.expiry import Expiries
from mq_shards.acceptor.protocols.nats.options import payload_limit

if TYPE_CHECKING:
    from mq_shards.acceptor.engine import Engine
    from mq_shards.acceptor.protocol import Settings
    from mq_shards.acceptor.protocols.nats.admission import Admission
    from mq_shards.acceptor.protocols.nats.client import Client
    from mq_shards.acceptor.protocols.nats.logins import Logins
    from mq_shards.acceptor.protocols.nats.who import User


class Authentication:
    def __init__(
        self, engine: Engine, clients: Mapping[int, Client], logins: Logins, admission: Admission,
        described: Callable[[Client], bytes], connected: Callable[[int], None], *, has_headers: bool,
    ) -> None:  # fmt: skip
        """`described` returns what services are told of a client. `connected` is called for a client whose CONNECT has
        succeeded. `has_headers` False: see Connects."""
        self._engine = engine
        self._clients = clients
        self._logins = logins
        self._admission = admission
        self._described = described
        self._connected = connected
        self._connects = Connects(has_headers)
        self._expiries = Expiries()
        self._settings: Mapping[str, Any] = {}

    def set(self, settings: Settings) -> None:
        self._settings = settings

    # --- CONNECT ----------------------------------------------------------------------------------------------------

    def connect(self, conn: int, body: bytes) -> None:
        client = self._clients[conn]
        try:
            client.options = self._connects.read(client.options, body)
        except DecodeError:
            self._end(conn, "")
            return
        if client.connects:
            self._engine.call(conn, "let-go")
        client.connects += 1
        self._engine.call(conn, "must-connect-by-ns", 0)
        client.take_cookies(self._settings)
        self._judge(conn, client)

    def _judge(self, conn: int, client: Client) -> None:
        """Judges a client by its CONNECT."""
        judgement = self._begin(client)
        client.is_connecting = self._logins.required(conn, client)
        if client.is_connecting:
            self._logins.prove(conn, client, partial(self._proven, conn, client, judgement))
        else:
            self._admit(conn, client, None)

    def _begin(self, client: Client) -> int:
        """Begins a judgement of a client, which may last; an earlier one counts no more."""
        client.judgements += 1
        return client.judgements

    def _is_stale(self, conn: int, client: Client, judgement: int) -> bool:
        """Whether the client is gone, and its connection number perhaps used again, or a later judgement has begun."""
        return self._clients.get(conn) is not client or client.judgements != judgement

    def _proven(self, conn: int, client: Client, judgement: int, user: User | None) -> None:
        if self._is_stale(conn, client, judgement):
            return
        client.is_connecting = False
        if user is None:
            self._end(conn, reasons.VIOLATION)
        else:
            self._admit(conn, client, user)

    def _admit(self, conn: int, client: Client, user: User | None) -> None:
        options = client.options
        if refusal := refusal_of(options) or self._join(conn, user):
            self._end(conn, refusal)
            return
        client.user = user
        self.limit(conn)
        self._engine.call(conn, "flags", flags_of(options))
        if options["verbose"]:
            if logged.is_on(self._settings):
                logged.write_sent(client, "OK")
            self._engine.reply(conn, b"+OK\r\n")
        self._engine.resume(conn)
        if options.get("name") or client.connects > 1:
            self._engine.call(conn, "name", 0, options.get("name", "").encode(errors="surrogateescape"))
        self._connected(conn)

    def admit_nobody(self, conn: int) -> None:
        """Admits a client that has sent another command before CONNECT, if a user for that is configured."""
        client = self._clients[conn]
        user = self._logins.for_nobody(conn, client)
        if user is None:
            self._end(conn, reasons.VIOLATION)
            return
        client.user = user
        client.connects += 1
        self._engine.call(conn, "must-connect-by-ns", 0)
        if refusal := self._join(conn, user):
            self._end(conn, refusal)
            return
        self._engine.call(conn, "flags", flags_of(client.options))
        self._engine.resume(conn)

    def _join(self, conn: int, user: User | None) -> str:
        return self._admission.admit(conn, user, self._logins.limits(user).connections)

    # --- clients that are connected ---------------------------------------------------------------------------------

    def look_again(self, conn: int, client: Client) -> None:
        """Closes a client that is not admitted now; updates the permissions of others. Newer ones come first, so that
        they are closed if there are too many."""
        if client.is_connecting:
            self._judge(conn, client)  # the users by which it was judged may be gone
        elif client.connects and (self._logins.required(conn, client) or self._logins.has_moved(client)):
            self._look_again(conn, client)

    def _look_again(self, conn: int, client: Client) -> None:
        self._logins.again(conn, client, partial(self._known_again, conn, client, self._begin(client)))

    def _known_again(self, conn: int, client: Client, judgement: int, user: User | str) -> None:
        if self._is_stale(conn, client, judgement):
            return
        if isinstance(user, str):
            self._end(conn, user, reasons.CLIENT_CLOSED)
            return
        if user != client.user or self._logins.limits(user).connections is not None:
            client.user = user
            if refusal := self._join(conn, user):
                self._end(conn, refusal)
                return
        self.limit(conn)  # the account's limits may have changed, too

    def limit(self, conn: int) -> None:
        """Sets a client's limits, general or its account's if lower, and its end; and what services are told of it."""
        client = self._clients[conn]
        self._expiries.set(conn, self._logins.ends_s(client.user))
        limits, subscriptions = self._logins.limits(client.user), self._settings["max-subscriptions"]
        if limits.subscriptions is not None:  # 0: no limit
            subscriptions = min(subscriptions or limits.subscriptions, limits.subscriptions)
        self._engine.call(conn, "max-payload", payload_limit(self._logins.payload(client)))
        self._engine.call(conn, "max-subscriptions", subscriptions)
        self._engine.call(conn, "info", 0, self._described(client))

    def _end(self, conn: int, text: str, otherwise: int = reasons.PROTOCOL_VIOLATION) -> None:
        reasons.end(self._engine, conn, text, otherwise)

    # --- upcalls and time -------------------------------------------------------------------------------------------

    def closed(self, conn: int) -> None:
        self._admission.gone(conn)
        self._expiries.gone(conn)

    def wait_ns(self) -> int:
        return self._expiries.wait_ns()

    def expire(self) -> None:
        for conn in self._expiries.over():
            if not (client := self._clients[conn]).is_connecting:
                self._look_again(conn, client)
