"""Authenticates clients by what they send in CONNECT.

    logins.who(client)                 the users that such a client may be
    logins.prove(conn, client, done)   calls done(user) now or later; None: authentication failed

Owns the users of options and of the configuration file. Does not apply their permissions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mq_shards.acceptor.access.secrets import Secrets
from mq_shards.acceptor.pauses import Pause, no_pause
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.client import Client
from mq_shards.acceptor.protocols.nats.options import payload_limit
from mq_shards.acceptor.protocols.nats.reasons import VIOLATION
from mq_shards.acceptor.protocols.nats.users import said_by, user_of
from mq_shards.acceptor.protocols.nats.who import (
    GLOBAL_ACCOUNT,
    LEAF_NODE,
    STANDARD,
    SYSTEM_ACCOUNT,
    WEBSOCKET,
    AccountLimits,
    Claim,
    User,
    Who,
    fenced,
    who_of,
)

if TYPE_CHECKING:
    from mq_shards.acceptor.access.access import Access
    from mq_shards.acceptor.access.rights import Login
    from mq_shards.acceptor.filters.tls import VerifyingTls
    from mq_shards.acceptor.protocols.nats.callout_terms import FileTerms
    from mq_shards.acceptor.protocols.nats.callouts import Callouts
    from mq_shards.acceptor.protocols.nats.operator import Operator

Done = Callable[[User | None], None]
# Given the address and the name of a wrong login, calls back when it may be answered.
Refuse = Callable[[str, str, Callable[[], None]], None]


class Encryption(Protocol):
    """Looks up the TLS of a connection."""

    def __call__(self, conn: int) -> tuple[VerifyingTls | None, bool]:
        """Returns the TLS, None if not encrypted, and whether certificates name users."""
        ...


class Logins:
    def __init__(
        self, secrets: Secrets, encryption: Encryption, access: Callable[[], Access | None], refuse: Refuse
    ) -> None:
        """`access` returns the users of the broker, which all protocols share; None: there are none."""
        self.operator: Operator | None = None  # set in operator mode, where JWTs decide
        self.callouts: Callouts | None = None  # set if services of auth callouts may be asked
        self._secrets = secrets
        self._access = access
        self._refuse = refuse
        self._encryption = encryption
        self._found: Mapping[str, Any] | None = None
        self._common = ("", "", "")
        self.plain = self._of_file = Who()
        self._websockets = Who()
        self._timeout_ns = self._max_payload = 0
        self._mapped: tuple[str, ...] = ()

    def meet_others(self, encryption: Callable[[int], tuple[VerifyingTls | None, bool] | None]) -> None:
        """Adds a lookup for connections that are not clients; it returns None for others."""
        of_clients = self._encryption
        self._encryption = lambda conn: encryption(conn) or of_clients(conn)

    def learn(self, found: Mapping[str, Any], settings: Mapping[str, Any], pause: Pause = no_pause) -> None:
        """`found`: the part "who" of a configuration file."""
        common = settings["user"], settings["password"], settings["token"]
        if found is not self._found or common != self._common:
            self._found, self._common, self._of_file = found, common, who_of(found, *common, pause)
        self.plain = self._of_file
        if self.operator is not None:
            self.plain = replace(self.plain, by_jwt=True, system_account=self.operator.system_account or SYSTEM_ACCOUNT)
        self._websockets = _for_websockets(self.plain, settings)
        self._timeout_ns, self._max_payload = settings["auth-timeout"], settings["max-payload"]
        self._mapped = _mapped(settings)

    def who(self, client: Client) -> Who:
        return self._websockets if client.is_websocket else self.plain

    def required(self, conn: int, client: Client) -> bool:
        """Whether a client must authenticate."""
        return self.who(client).required or self._guards(conn)

    def announced(self, conn: int, client: Client) -> bool:
        """Whether INFO says that authentication is required."""
        return self.who(client).announced or (self._guards(conn) and self.for_nobody(conn, client) is None)

    def _guards(self, conn: int) -> bool:
        access = self._access()
        return access is not None and access.guards(conn)

    def for_nobody(self, conn: int, client: Client) -> User | None:
        """The user of a client without credentials or CONNECT; None: it has to authenticate."""
        found, access = self.who(client).for_nobody(client.connection_type), self._access()
        terms = self._asks()
        if found is not None and terms is not None:
            return fenced(None if terms.is_for(found.name) else found, terms.account)
        if found is not None or access is None or self.who(client).required:
            return found
        login = access.users.of_certificate(self._certificate(conn)) or access.of_listener(conn)
        if client.login is None:
            client.login = login
        return None if login is None else user_of(login)

    def again(self, conn: int, client: Client, done: Callable[[User | str], None]) -> None:
        """Calls `done`, now or later, with the current state of a client's user, or the error with which the client
        must be closed; "": without one. A client that had to say nothing is judged by what it said all the same."""
        needed_none = client.user is None and client.login is None and self.operator is None and self._asks() is None
        claim = None
        if needed_none and self.who(client).required and not self.has_moved(client):
            claim = self._claim(conn, client)
        if claim is None:
            done(self.now(client))
        else:
            self._compare(claim, client, lambda user: done(user or VIOLATION))

    def now(self, client: Client) -> User | str:
        """What again() passes on, for a client that is not judged by what it said."""
        if self._is_to_be_asked(client):
            return ""
        access = self._access()
        if client.login is not None and access is not None:
            client.login = access.users.again(client.login)
            return VIOLATION if client.login is None else user_of(client.login)
        if self.operator is not None:
            found = self.operator.again(client)
            return found if isinstance(found, User) else found.text
        user, terms = client.user, self._asks()
        if user is not None and user.is_called_out:
            return "User Authentication Expired" if user.is_over(time.time()) else user
        user = self.who(client).now(user)
        user = fenced(user, terms.account) if terms is not None else user
        return user or ("" if self.has_moved(client) else VIOLATION)

    def _is_to_be_asked(self, client: Client) -> bool:
        """Whether the file's auth callout, which there was not when the client logged in, would decide about it."""
        user, terms = client.user, self._asks()
        if terms is None or (user is not None and user.is_called_out):
            return False
        if client.login is not None:
            return True
        return user is not None and terms.decides(user, user.nkey or user.name)

    def has_moved(self, client: Client) -> bool:
        """Whether a client has to log in anew, since the user that it named is gone or has another account now, or is
        needed now and is not there."""
        who = self.who(client)
        return (client.user is not None or who.required) and who.has_moved(client.user, client.options)

    def _asks(self) -> FileTerms | None:
        """The terms of the file's auth callout; None if it has none."""
        return self.callouts.file if self.callouts is not None else None

    def ends_s(self, user: User | None) -> float:
        """When a client has to be closed; 0: never."""
        if user is None:
            return 0
        return self.operator.ends_s(user) if self.operator is not None else user.until_s

    def has_system_users(self) -> bool:
        """Whether there may be users of the system account."""
        if self.operator is not None and self.operator.system_account:
            return True
        return any(user.account == self.plain.system_account for user in self.plain.users)

    def has_system_account(self) -> bool:
        """Whether there is one: in operator mode, only if one is named."""
        return self.operator is None or bool(self.operator.system_account)

    def account_names(self) -> list[str]:
        """All accounts that users are of, and those that always exist."""
        of_jwts = self.operator.accounts if self.operator is not None else ()
        users = {user.account for user in self.plain.users}
        return sorted({GLOBAL_ACCOUNT, self.plain.system_account, *of_jwts, *users})

    def shown(self, client: Client) -> dict[str, Any]:
        """The fields of monitoring about who a client is or claimed to be."""
        user, said = client.user, client.options
        name = (user.nkey or user.name) if user is not None else ""
        name = name or said.get("nkey") or said.get("user") or ("[REDACTED]" if said.get("auth_token") else "")
        found: dict[str, Any] = {"authorized_user": name} if name else {}
        if user is not None and user.issuer:
            found |= {} if user.is_called_out else {"jwt": said.get("jwt", "")}
            found["issuer_key"] = user.issuer
        found["name_tag"] = self.shown_account(client.account).get("name_tag", client.account)
        if user is not None and user.tags:
            found["tags"] = list(user.tags)
        return found

    def shown_account(self, name: str) -> dict[str, Any]:
        """The fields of monitoring from an account's JWT."""
        account = self.operator.accounts.get(name) if self.operator is not None else None
        if account is None or self.operator is None:
            return {}
        found: dict[str, Any] = {"issuer_key": account.token.issuer, "expired": not self.operator.counts(account)}
        found |= {"name_tag": account.token.name} if account.token.name else {}
        found |= {"tags": list(account.token.tags)} if account.token.tags else {}
        revoked = account.token.nats.get("revocations")
        return {**found, "revoked_user": revoked} if revoked else found

    def limits(self, user: User | None) -> AccountLimits:
        if self.operator is not None and user is not None:
            return self.operator.limits(user)
        return self.plain.limits.get(user.account if user is not None else GLOBAL_ACCOUNT, AccountLimits())

    def payload(self, client: Client) -> int:
        """The largest payload in bytes that a client may send, as max-payload says it."""
        most, of_account = self._max_payload, self.limits(client.user).payload
        return most if of_account is None else min(payload_limit(most), of_account)

    def prove(self, conn: int, client: Client, done: Done) -> None:
        of_common, done = done, partial(self.decide, client, done)
        if self.operator is not None:
            self.operator.prove(client, partial(self._known_by_jwt, client, self._encryption(conn)[0], done))
            return
        terms = self._asks()
        claim = self._claim(conn, client) if self.who(client).required else None
        if terms is not None:
            claimed = "" if claim is None else claim.user.nkey or claim.user.name
            done = partial(self._call_out, client, self._encryption(conn)[0], claimed, done)
        if claim is None:
            if terms is not None:
                done(None)  # the service decides, not the broker's users
            else:
                self._prove_common(conn, client, of_common)
        else:
            self._compare(claim, client, done)

    def _compare(self, claim: Claim, client: Client, done: Done) -> None:
        user = claim.user
        right: bool | None = claim.proven
        if claim.nkey and not claim.proven:
            signature = nats_nkeys.signature_of(claim.signature)
            right = signature is not None and nats_nkeys.verify(claim.nkey, client.nonce.encode(), signature)
        elif not claim.proven:
            right = self._secrets.compare(claim.secret, claim.said, lambda right: done(user if right else None))
        if right is not None:
            done(user if right else None)

    def decide(self, client: Client, done: Done, user: User | None) -> None:
        """Passes on the user of a login that was checked here, or by a service; None, when that may be answered."""
        if user is not None:
            done(user)
        else:
            said = client.options
            self._refuse(client.remote, said.get("user") or said.get("nkey") or "", partial(done, None))

    def _call_out(self, client: Client, tls: VerifyingTls | None, claimed: str, done: Done, user: User | None) -> None:
        """`claimed`: the user of the file that the client claims to be; `user`: that user, if proven."""
        terms, callouts = self._asks(), self.callouts
        if terms is None or callouts is None:
            done(user)
        elif terms.decides(user, claimed):
            client.login = None
            callouts.ask(client, tls, self._timeout_ns, done)
        else:
            done(fenced(user, terms.account))

    def _known_by_jwt(self, client: Client, tls: VerifyingTls | None, done: Done, user: User | None) -> None:
        if user is None or self.callouts is None:
            done(user)
        else:
            self.callouts.ask_account(user, client, tls, self._timeout_ns, done)

    def _prove_common(self, conn: int, client: Client, done: Done) -> None:
        """Authenticates a client as a user of the broker, whom all protocols know."""
        access = self._access()
        if access is None or not access.guards(conn):
            self.decide(client, done, None)
            return

        def proven(login: Login | None) -> None:
            client.login = login
            done(None if login is None else user_of(login))

        access.login("nats", conn, said_by(client, self._certificate(conn)), client.remote, proven)

    def _certificate(self, conn: int) -> tuple[str, ...]:
        tls = self._encryption(conn)[0]
        return () if tls is None else tls.certificate_names

    def _claim(self, conn: int, client: Client) -> Claim | None:
        who, options = self.who(client), client.options
        tls, maps = self._encryption(conn)
        if not maps or not who.users or options.get("nkey"):
            claim = who.claim(options, client.connection_type)
            return None if claim is not None and not maps and self._needs_certificate(claim) else claim
        if tls is None:
            return None
        from mq_shards.acceptor.protocols.nats import tls as nats_tls

        certificate = tls.certificate_fields
        subject = nats_tls.subject_of(certificate)
        names = nats_tls.names_of(certificate)
        user = who.named_by(names, lambda name: nats_tls.parse_subject(name) == subject, client.connection_type)
        return None if user is None else Claim(user, user.password, options.get("pass", ""))

    def _needs_certificate(self, claim: Claim) -> bool:
        """Whether a user without a password is one whom a certificate names, at some listener: its name is no proof."""
        user = claim.user
        if claim.proven or user.nkey or user.password or not self.plain.users:
            return False
        return any(not user.connection_types or kind in user.connection_types for kind in self._mapped)


def _mapped(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The types of connections at which certificates name the users that all of them share."""
    own = settings["leaf-user"] or settings["leaf-nkey"]
    kinds = {
        STANDARD: settings["tls-verify-and-map"],
        WEBSOCKET: settings["websocket-tls-verify-and-map"],
        LEAF_NODE: settings["leaf-tls-verify-and-map"] and not own,
    }
    return tuple(kind for kind, maps in kinds.items() if maps)


def _for_websockets(who: Who, settings: Mapping[str, Any]) -> Who:
    """The users for websockets: options for websockets replace the general ones."""
    user, token = settings["websocket-user"], settings["websocket-token"]
    nobody = settings["websocket-no-auth-user"]
    if not user and not token and not nobody:
        return who
    password = settings["websocket-password"]
    return replace(who, user=user, password=password, token=token, no_auth_user=nobody, no_auth_is_ours=False)
