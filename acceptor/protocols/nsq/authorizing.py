"""Who a client is, and what it may: AUTH, where there are users or an auth server (auth.py), or both."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import orjson
from mq_shards.acceptor.access.logins import Said
from mq_shards.acceptor.access.rights import CONSUME, PUBLISH, Login
from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.protocol import Broker, Settings
from mq_shards.acceptor.protocols.go_quote import quoted
from mq_shards.acceptor.protocols.nsq.client import ERROR, RESPONSE, Asking, Client, WhenAsked, frame
from mq_shards.acceptor.protocols.nsq.identify import ClientError
from mq_shards.acceptor.protocols.nsq.nsq import Nsq
from mq_shards.acceptor.upgrade import Upgrades

if TYPE_CHECKING:
    # Imported only when needed: most brokers use none of them.
    from mq_shards.acceptor.protocols.nsq.auth import AuthClient, Authorizations, Outcome

log = logging.getLogger(__name__)


class Authorizing(Nsq):
    """The part of an acceptor's NSQ that serving.py goes by: it has the clients, and knows how a command ends."""

    _upgrades: Upgrades

    def __init__(
        self, engine: Engine, settings: Settings, broker: Broker, *, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        super().__init__(engine, settings, broker)
        self._now_ns = now_ns
        self._clients: dict[int, Client] = {}
        self._auth: AuthClient | None = None
        if settings["auth-http-address"]:
            from mq_shards.acceptor.protocols.nsq import auth as nsq_auth
            from mq_shards.acceptor.protocols.nsq import tls as nsq_tls

            self._auth = nsq_auth.AuthClient(
                settings["auth-http-address"],
                connect_timeout_ns=settings["http-client-connect-timeout"],
                request_timeout_ns=settings["http-client-request-timeout"],
                context=nsq_tls.client_context(settings),
                poke=engine.poke,
                now_ns=now_ns,
            )
        engine.set("nsq.auth", int(self._auth is not None))

    def close(self) -> None:
        """Called before the engine is closed."""
        if self._auth is not None:
            self._auth.close()

    def poked(self) -> None:
        """Continues the commands for which the auth server has answered."""
        if self._auth is None:
            return
        for question, outcome in self._auth.outcomes():
            client = self._clients.get(question.conn)
            if client is None or client.asking is None or client.asking.question is not question:
                continue
            then = client.asking.then
            client.asking = None
            try:
                then(outcome)
            except ClientError as error:
                self._refuse(question.conn, error)
            except Exception:
                log.exception("cannot handle an answer of the auth server for connection %#x", question.conn)
                self.failed(question.conn)

    def _authenticate(self, conn: int, client: Client, words: list[bytes], secret: bytes) -> None:
        if client.subscribed:
            raise ClientError("E_INVALID", "cannot AUTH in current state")
        if len(words) != 1:
            raise ClientError("E_INVALID", "AUTH invalid number of parameters")
        if client.authorized:
            raise ClientError("E_INVALID", "AUTH already set")
        client.secret = secret
        access = self.access
        said = Said.of_secret(secret.decode(errors="replace"), self.certificate_names(conn))
        if access is not None and access.guards(conn) and (self._auth is None or access.concerns(said)):
            access.login(self.name, conn, said, self._engine.remote(conn), partial(self._proven, conn, client))
        elif self._auth is None:
            raise ClientError("E_AUTH_DISABLED", "AUTH disabled")
        else:
            self._ask_who(conn, client, self._auth)

    def _proven(self, conn: int, client: Client, login: Login | None) -> None:
        """The login has been checked, perhaps later: by then another connection may have this number."""
        if self._clients.get(conn) is not client:
            return
        if login is not None:
            client.login = login
            granted = sum(len(login.user.patterns(right)) for right in (PUBLISH, CONSUME))
            answer = {"identity": login.user.name, "identity_url": "", "permission_count": granted}
            self._done(conn, orjson.dumps(answer))
        else:
            self._refuse(conn, ClientError("E_AUTH_FAILED", "AUTH failed"))

    def _refuse_still(self, conn: int, client: Client, error: ClientError) -> None:
        """Called perhaps later, when another connection may have this number."""
        if self._clients.get(conn) is client:
            self._refuse(conn, error)

    def _ask_who(self, conn: int, client: Client, auth: AuthClient) -> None:
        from mq_shards.acceptor.protocols.nsq import auth as nsq_auth

        def heard(outcome: Outcome) -> None:
            try:
                authorizations = self._heard(conn, client, outcome)
                if not authorizations.entries:
                    raise ClientError("E_UNAUTHORIZED", "AUTH no authorizations found")
            except ClientError as error:
                if isinstance(outcome, Exception) and not isinstance(outcome, nsq_auth.RefusedError):
                    raise  # no server has answered, which says nothing of the secret
                self.refuse_login(self._engine.remote(conn), "", partial(self._refuse_still, conn, client, error))
                return
            answer = {
                "identity": authorizations.identity,
                "identity_url": authorizations.identity_url,
                "permission_count": len(authorizations.entries),
            }
            self._done(conn, orjson.dumps(answer))

        self._ask_auth_server(conn, client, auth, heard)

    def _ask_auth_server(self, conn: int, client: Client, auth: AuthClient, then: WhenAsked) -> None:
        from mq_shards.acceptor.protocols.nsq import auth as nsq_auth

        remote_ip = self._engine.remote(conn).rpartition(":")[0].strip("[]")
        tls = self._upgrades.tls(conn)
        common_name = tls.common_name if tls is not None else ""
        question = nsq_auth.Question(conn, remote_ip, client.secret, tls is not None, common_name)
        client.asking = Asking(question, then)
        auth.ask(question)

    def _heard(self, conn: int, client: Client, outcome: Outcome) -> Authorizations:
        if isinstance(outcome, Exception):
            # A client that fails to authenticate is told nothing about our servers.
            self._upgrades.remark(conn, f"AUTH failed: {outcome}", logging.WARNING)
            raise ClientError("E_AUTH_FAILED", "AUTH failed")
        client.authorizations = outcome
        self._engine.call(conn, "authorized-until-ns", outcome.expires_ns)
        return outcome

    def _when_allowed(
        self, conn: int, client: Client, command: str, topic: bytes, channel: bytes, then: Callable[[], None]
    ) -> None:
        """Calls `then` if the client is allowed, now or once the auth server was asked again. An empty channel: to
        publish."""
        if self._is_guarded(conn) and self._login_of(conn, client) is not None:
            self._check_right(client, command, topic, channel)
            then()
            return
        if self._auth is None:
            if self._is_guarded(conn):
                raise ClientError("E_AUTH_FIRST", f"AUTH required before {command}")
            then()
            return
        authorizations = client.authorizations
        if authorizations is None or not authorizations.entries:
            raise ClientError("E_AUTH_FIRST", f"AUTH required before {command}")

        def decide(authorizations: Authorizations) -> None:
            # decode() cannot fail: names are ASCII.
            if not authorizations.allows(topic.decode(), channel.decode()):
                raise ClientError("E_UNAUTHORIZED", f"AUTH failed for {command} on {quoted(topic)} {quoted(channel)}")
            then()

        if authorizations.expired(self._now_ns()):
            self._ask_auth_server(conn, client, self._auth, lambda outcome: decide(self._heard(conn, client, outcome)))
        else:
            decide(authorizations)

    def _is_guarded(self, conn: int) -> bool:
        """Whether the client of this connection must be a user."""
        return self.access is not None and self.access.guards(conn)

    def _login_of(self, conn: int, client: Client) -> Login | None:
        """The login by AUTH; without an AUTH the one by the certificate or the listener."""
        access = self.access
        if client.login is None and client.authorizations is None and access is not None:
            client.login = access.users.of_certificate(self.certificate_names(conn)) or access.of_listener(conn)
        return client.login

    def _check_right(self, client: Client, command: str, topic: bytes, channel: bytes) -> None:
        assert client.login is not None and self.access is not None
        user, right, name = client.login.user, CONSUME if channel else PUBLISH, topic.decode()
        if not user.may(right, name):
            self.access.refused(self.name, user, right, name)
            raise ClientError("E_UNAUTHORIZED", f"AUTH failed for {command} on {quoted(topic)} {quoted(channel)}")

    def certificate_names(self, conn: int) -> tuple[str, ...]:
        tls = self._upgrades.tls(conn)
        # Only a verified certificate has these; an unverified one could be anybody's.
        found = getattr(tls, "certificate_names", ())
        return tuple(found) or super().certificate_names(conn)

    def users_changed(self) -> None:
        self._engine.set("nsq.auth", 1)
        access = self.access
        assert access is not None
        for conn, client in list(self._clients.items()):
            if client.login is None or not access.guards(conn):
                continue
            user, topic = client.login.user, client.consumes.decode()
            client.login = login = access.users.again(client.login)
            self._engine.call(conn, "forget-authorized")
            if login is None or (topic and not login.user.may(CONSUME, topic)):
                access.refused(self.name, user, CONSUME, topic)
                self._refuse(conn, ClientError("E_UNAUTHORIZED", "AUTH is not valid any more"))

    # --- how a command ends -----------------------------------------------------------------------------------------

    def _done(self, conn: int, answer: bytes) -> None:
        self._engine.reply(conn, frame(RESPONSE, answer))
        self._engine.resume(conn)

    def _refuse(self, conn: int, error: ClientError) -> None:
        log.debug("%s: %s", self._engine.remote(conn), error)
        self._engine.reply(conn, frame(ERROR, str(error).encode()))
        self._engine.close_connection(conn)
