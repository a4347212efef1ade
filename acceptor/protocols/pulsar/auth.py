"""Authentication of Pulsar clients, with CONNECT and again when a token has expired. What their roles may do is for the
gateway to decide (gateway/pulsar/roles.py)."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from mq_shards.acceptor.access.access import Access
from mq_shards.acceptor.access.logins import Said
from mq_shards.acceptor.access.rights import Login
from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.protocols.pulsar.clients import (
    AUTHENTICATION_ERROR,
    AUTHORIZATION_ERROR,
    Client,
    Desk,
    PulsarError,
    Request,
)
from mq_shards.acceptor.protocols.pulsar.credentials import BASIC, TOKEN, Credentials, CredentialsError, Identity
from mq_shards.acceptor.protocols.pulsar.expiries import Expiries
from mq_shards.acceptor.protocols.pulsar.messages import Message
from mq_shards.ringbuf.time_units import SECOND_NS

NOBODY: Final = (1 << 64) - 1  # the request id in an error that answers no request
# How long a client has to send a new token.
REFRESH_NS: Final = 60 * SECOND_NS
# How late it may be noticed that the wall clock was set forward.
LOOK_S: Final = 5.0
FAILED: Final = "Failed to authenticate"
REFRESH: Final = b"PulsarAuthRefresh"

log = logging.getLogger(__name__)


class Authentication:
    """Authenticates the clients of an acceptor."""

    def __init__(
        self, desk: Desk, settings: Mapping[str, Any], server_version: str,
        certificate: Callable[[int], tuple[str, ...]], access: Callable[[], Access | None],
        refuse: Callable[[str, str, Callable[[], None]], None],
    ) -> None:  # fmt: skip
        """`certificate` returns the names in a connection's certificate; `access` the users that all protocols share,
        if there are any; `refuse`, given the address and the name of a wrong login, calls back when it may be
        answered."""
        self._desk = desk
        self._credentials = Credentials.of(settings)
        self._authorizes = bool(settings["authorization-enabled"])
        self._proxies = frozenset(settings["proxy-roles"])
        self._server_version = server_version
        self._certificate = certificate
        self._access = access
        self._refuse = refuse
        self._expiries = Expiries()
        self._challenged: deque[tuple[int, int]] = deque()  # deadline, connection

    def learn(self, credentials: Credentials | None) -> None:
        """Sets the credentials for later logins; None only if there were none before."""
        self._credentials = credentials

    def admit(self, client: Client, body: Message, done: Callable[[PulsarError | None], None]) -> None:
        """Authenticates a client that connects. Calls `done` at once or later."""
        access = self._access()
        guarded = access is not None and access.guards(client.conn)
        said = self._said(client, body.auth_method_name, body.auth_data)
        known_here = self._credentials is not None and (access is None or not access.concerns(said))
        if access is not None and guarded and not known_here:

            def proven(login: Login | None) -> None:
                client.login, client.role = login, "" if login is None else login.user.name
                done(None if login is not None else PulsarError(AUTHENTICATION_ERROR, FAILED))

            access.login("pulsar", client.conn, said, self._desk.engine.remote(client.conn), proven)
            return
        client.is_open = not guarded and self._credentials is None
        try:
            self._admit_here(client, body)
        except PulsarError as error:
            if error.code == AUTHENTICATION_ERROR:
                self._refuse(self._desk.engine.remote(client.conn), said.user, partial(done, error))
            else:
                done(error)
        else:
            done(None)

    def _said(self, client: Client, method: str, data: bytes) -> Said:
        text, certificate = data.decode(errors="replace"), self._certificate(client.conn)
        if method == BASIC:
            user, _, password = text.partition(":")
            return Said(user, password, certificate=certificate)
        return Said(token=text if method == TOKEN else "", certificate=certificate)

    def users_changed(self, end: Callable[[Client], None]) -> None:
        access = self._access()
        for client in list(self._desk.clients.values()):
            if access is not None and client.login is not None:
                client.login = access.users.again(client.login)
                if client.login is None:
                    end(client)

    def _admit_here(self, client: Client, body: Message) -> None:
        """Authenticates by Pulsar's own credentials. Raises PulsarError."""
        if self._credentials is None:
            return
        client.refreshes = bool(body.feature_flags.supports_auth_refresh)
        if self._learn(client, body.auth_method_name, body.auth_data).is_anonymous:
            return  # as with a real broker, it acts for nobody, whatever it says
        if self._authorizes and (client.role in self._proxies) != bool(body.original_principal):
            raise PulsarError(AUTHORIZATION_ERROR, "Invalid roles.")
        if self._authorizes and body.original_principal in self._proxies:
            raise PulsarError(AUTHORIZATION_ERROR, "Invalid roles.")
        client.original = body.original_principal

    def _learn(self, client: Client, method: str, data: bytes) -> Identity:
        assert self._credentials is not None
        try:
            common_name = next(iter(self._certificate(client.conn)), "")
            found = self._credentials.identity(method, data, common_name)
        except CredentialsError as error:
            log.debug("%s: %s", self._desk.engine.remote(client.conn), error)
            raise PulsarError(AUTHENTICATION_ERROR, FAILED) from None
        client.role = found.role
        client.challenged_until_ns = 0
        if found.expires_s is not None:
            self._expiries.note(client.conn, found.expires_s)
        else:
            self._expiries.forget(client.conn)
        return found

    def refresh(self, request: Request, end: Callable[[Client], None]) -> None:
        """AUTH_RESPONSE. Invalid credentials, or those of another role, end the connection."""
        client, before = request.client, request.client.role
        request.done()
        if client.login is not None:
            return
        if self._credentials is None:  # nobody was asked for anything
            if request.body.HasField("response"):
                self._desk.say(client, "error", request_id=NOBODY, error=AUTHENTICATION_ERROR, message=FAILED)
                self._desk.engine.close_connection(client.conn)
            else:
                end(client)
            return
        answer = request.body.response
        try:
            self._learn(client, answer.auth_method_name or TOKEN, answer.auth_data)
        except PulsarError:
            self._refuse(self._desk.engine.remote(client.conn), client.role, lambda: None)  # counts; does not wait
            client.role = ""
        if client.role != before:
            end(client)

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        waits = []
        if (soonest_s := self._expiries.soonest_s()) is not None:
            waits.append(int(min(max(soonest_s - time.time(), 0.0), LOOK_S) * SECOND_NS) + 1)
        if self._challenged:
            waits.append(max(self._challenged[0][0] - time.monotonic_ns(), 0) + 1)
        return min(waits, default=FOREVER)

    def closed(self, conn: int) -> None:
        self._expiries.forget(conn)

    def expire(self, end: Callable[[Client], None]) -> None:
        now_ns = time.monotonic_ns()
        for conn in self._expiries.over(time.time()):
            client = self._desk.clients.get(conn)
            if client is None:
                continue
            if not client.refreshes:
                end(client)
                continue
            client.challenged_until_ns = now_ns + REFRESH_NS
            self._challenged.append((client.challenged_until_ns, conn))
            self._desk.say(
                client, "authChallenge", server_version=self._server_version,
                protocol_version=client.protocol_version,
                challenge={"auth_method_name": TOKEN, "auth_data": REFRESH},
            )  # fmt: skip
        while self._challenged and self._challenged[0][0] <= now_ns:
            until_ns, conn = self._challenged.popleft()
            client = self._desk.clients.get(conn)
            if client is not None and client.challenged_until_ns == until_ns:
                end(client)
