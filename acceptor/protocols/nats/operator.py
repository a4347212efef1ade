"""Operator mode: accounts and users are defined by JWTs that trusted keys have signed, not by a file.

    operator.prove(client, done)      calls done(user) now or later; None: authentication failed
    operator.again(client)            the current user of a connected client, or why it has to be closed
    operator.update(name, jwt)        replaces an account's JWT

Owns the known accounts. Those of a resolver in memory are known from the start; other resolvers are asked for an
account when a client first needs it. The client is admitted only when all acceptors know the account, since clients of
other acceptors may publish to it. Clients are admitted and refused as by nats-server.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from mq_shards.acceptor.pauses import Pause, no_pause
from mq_shards.acceptor.protocols.nats import json_fields
from mq_shards.acceptor.protocols.nats import jwt as nats_jwt
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.claims import Account, account_of, is_from, is_now, user_of
from mq_shards.acceptor.protocols.nats.claims_shares import Shared, imported_accounts, may_jetstream, shares_something
from mq_shards.acceptor.protocols.nats.client import Client
from mq_shards.acceptor.protocols.nats.fetches import Fetches
from mq_shards.acceptor.protocols.nats.jwt import JwtError, Token
from mq_shards.acceptor.protocols.nats.reasons import VIOLATION
from mq_shards.acceptor.protocols.nats.resolver import AT_ONCE
from mq_shards.acceptor.protocols.nats.who import AccountLimits, User
from mq_shards.acceptor.remarks import Remarks

USER_EXPIRED: Final = "User Authentication Expired"
ACCOUNT_EXPIRED: Final = "Account Authentication Expired"
REVOKED: Final = "User Authentication Revoked"
MAX_ACCOUNTS: Final = 1 << 14
WANT_AGAIN_S: Final = 30.0  # until accounts that others import from are fetched again after a failure

log = logging.getLogger(__name__)

Done = Callable[[User | None], None]
Found = Callable[[Account | None], None]


class Resolver(Protocol):
    """Fetches accounts that are not known."""

    def fetch(self, account: str, found: Callable[[str], None]) -> None:
        """Calls `found` with the JWT, later; "" if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a connected client has to be closed."""

    text: str


class Operator:
    def __init__(
        self,
        content: Mapping[str, Any],
        resolver: Resolver | None,
        changed: Callable[[Mapping[str, dict[str, Any]], set[str] | None], None],
        spread: Callable[[str, str], None] | None = None,
        now_s: Callable[[], float] = time.time,
        poke: Callable[[], None] = lambda: None,
        remarks: Remarks | None = None,
        pause: Pause = no_pause,
    ) -> None:
        """`content`: from conf_operator.py. `resolver` None: `content` has all accounts. `changed` is called with what
        all accounts share and the names of those whose shares have changed; None: any may have. `spread` tells all
        acceptors a fetched JWT, after which learned() is called; None: there is one acceptor. `poke` is called when
        settle() has something to do. `remarks`: the caller's, who also expires them. `pause` is called often amid long
        work."""
        self.system_account: Final[str] = content["system_account"]
        self._trusted = frozenset(content["trusted_keys"])
        self._strict = frozenset(content["strict"])
        self._pinned = frozenset(content["pinned"])
        self._sentinel: str = content["sentinel"]
        self._fetches = Fetches(resolver.fetch, AT_ONCE, poke) if resolver is not None else None
        self._remarks = remarks if remarks is not None else Remarks(log)
        self._changed = changed
        self._spread = spread
        self._now_s = now_s
        self._spreading: dict[str, list[Found]] = {}
        self._is_serving = False
        self._accounts: dict[str, Account] = {}
        self._wanted: set[str] = set()  # accounts fetched because others import from them
        self._missing: set[str] = set()  # those of them that could not be fetched
        self._want_again_s = 0.0
        self._has_jetstream = False
        self._pause = pause
        self._shared = Shared(pause)
        for name, jwt in content["preload"].items():
            self._take(name, jwt)

    def start(self, fetched: Mapping[str, Account]) -> None:
        """Calls `changed` from now on. `fetched`: the accounts known before a reconfiguration."""
        if self._fetches is not None:
            for name, account in fetched.items():
                if account.token.issuer in self._trusted:
                    self._accounts.setdefault(name, account)
        self._is_serving = True
        self._share()

    @property
    def accounts(self) -> Mapping[str, Account]:
        return self._accounts

    def counts(self, account: Account) -> bool:
        return account.token.counts_at(self._now_s())

    def limits(self, user: User) -> AccountLimits:
        """The limits of a user and its account, the lower of each."""
        account = self._accounts.get(user.account)
        theirs = account.limits if account is not None else AccountLimits()
        return AccountLimits(
            theirs.connections,
            _least(user.limits.subscriptions, theirs.subscriptions),
            _least(user.limits.payload, theirs.payload),
            theirs.leaf_nodes,
        )

    # --- accounts ---------------------------------------------------------------------------------------------------

    def _take(self, name: str, jwt: str) -> Account | None:
        account = self._read(name, jwt)
        if account is not None:
            self._accounts[name] = account
        return account

    def _read(self, name: str, jwt: str) -> Account | None:
        """Reads an account's JWT; None, with a remark, when it is not valid."""
        try:
            account = account_of(jwt, name, strict=self._strict)
            if account.token.issuer not in self._trusted:
                raise JwtError("Account JWT not signed by trusted operator")
            if name not in self._accounts and len(self._accounts) >= MAX_ACCOUNTS:
                raise JwtError("there are too many accounts")
        except JwtError as error:
            self._remarks.say(logging.WARNING, name, f"account {name}: {error}")
            return None
        return account

    def refusal(self, name: str, jwt: str) -> str | None:
        """Why an account's JWT cannot be updated to this one; "" if the account is not known here; None: it can."""
        try:
            if not jwt:
                raise JwtError("request body is empty")
            if nats_jwt.decode(jwt, nats_jwt.ACCOUNT).subject != name:
                raise JwtError("subject does not match jwt content")
            if name not in self._accounts:
                return ""
            if account_of(jwt, name, strict=self._strict).token.issuer not in self._trusted:
                raise JwtError("account jwt not signed by a trusted operator")
        except JwtError as error:
            return str(error)
        return None

    def why_not(self, name: str, jwt: str) -> str | None:
        """Why a JWT is not valid for an account, known or not; None: it is valid."""
        try:
            issuer = account_of(jwt, name, strict=self._strict).token.issuer
        except JwtError as error:
            return str(error)
        if issuer in self._trusted:
            return None
        if issuer in self._strict:
            return "operator requires issuer to be a signing key"
        return "account jwt not signed by a trusted operator"

    def trusts(self, key: str) -> bool:
        return key in self._trusted

    def matters(self, name: str) -> bool:
        """Whether an account is known, or others import from it."""
        return name in self._accounts or name in self._wanted

    def says_otherwise(self, name: str, jwt: str) -> bool:
        """Whether a JWT is valid, its account matters, and it differs from the known one."""
        return self.matters(name) and self._read(name, jwt) not in (None, self._accounts.get(name))

    def meet_jetstream(self) -> None:
        """Other servers of the cluster have JetStream: from now on accounts share its API."""
        self._has_jetstream = True
        if self._is_serving:
            self._share()

    def forget(self, name: str) -> None:
        """An account was deleted: makes it expired, so that its clients are closed and new ones need a fetch."""
        account = self._accounts.get(name)
        if account is not None:
            over = replace(account.token, expires_s=1, nats={})
            self._accounts[name] = replace(account, token=over, signing_keys={})
            self._share_if_it_does(account)

    def update(self, name: str, jwt: str) -> None:
        """Replaces the JWT of an account that is known or could be fetched; ignores invalid JWTs."""
        refusal = self.refusal(name, jwt)
        is_known = refusal is None or (refusal == "" and self._fetches is not None)
        if is_known:
            self._know(name, jwt)

    def _share(self) -> None:
        self._shared = Shared(self._pause)
        self._shared.look(self._accounts, self._now_s())
        self._changed(self._shared.rows, None)
        self._want(self._needed())

    def _share_some(self, names: list[str]) -> None:
        """The JWTs of these accounts have changed: looks at their shares again."""
        changed = self._shared.look_at(names, self._accounts, self._now_s())
        if changed is None:
            self._share()
            return
        self._changed(self._shared.rows, changed)
        self._want({one for name in names for one in imported_accounts(self._accounts[name])})

    def _needed(self) -> set[str]:
        """Accounts that are needed even without clients: exporters, and the system account."""
        imported = {name for account in self._accounts.values() for name in imported_accounts(account)}
        return imported | {self.system_account}

    def _want(self, names: set[str]) -> None:
        if self._fetches is None:
            return
        self._fetches.met("")  # trusted, so that fetches for unknown clients cannot take up their places
        for name in names - self._accounts.keys() - self._wanted:
            if nats_nkeys.is_public(nats_nkeys.ACCOUNT, name) and len(self._wanted) < MAX_ACCOUNTS:
                self._wanted.add(name)
                self._fetch(name, "", partial(self._heard_of, name))

    def _heard_of(self, name: str, account: Account | None) -> None:
        """If the fetch failed, plans another: the account may appear later, or the resolver be back."""
        if account is None:
            self._missing.add(name)
            self._want_again_s = self._want_again_s or self._now_s() + WANT_AGAIN_S

    def _fetch(self, name: str, address: str, found: Found) -> None:
        def heard(jwt: str) -> None:
            if not jwt or self._read(name, jwt) is None:
                found(None)
            elif self._spread is None:
                found(self._know(name, jwt))
            elif name in self._spreading:
                self._spreading[name].append(found)
            else:
                self._spreading[name] = [found]
                self._spread(name, jwt)

        assert self._fetches is not None
        self._fetches.fetch(name, address, heard)

    def _know(self, name: str, jwt: str) -> Account | None:
        before, account = self._accounts.get(name), self._take(name, jwt)
        if account is not None:
            self._share_if_it_does(before, account)
        return account

    def _share_if_it_does(self, *accounts: Account | None) -> None:
        """Looks at shares again, unless it shares nothing. `accounts`: one account, before and after a change."""
        there = [one for one in accounts if one is not None]
        if self._is_serving and any(self._shares(one) for one in there):
            self._share_some([there[0].name])

    def _shares(self, account: Account) -> bool:
        """Whether a change of this account must be looked at: it shares something, or has a callout service."""
        is_asked = "authorization" in account.token.nats
        return is_asked or shares_something(account) or (self._has_jetstream and may_jetstream(account))

    def learned(self, name: str, jwt: str) -> None:
        """An acceptor, perhaps this one, has told all the JWT that it fetched."""
        account = self._know(name, jwt)
        for found in self._spreading.pop(name, ()):
            found(account)

    def find(self, name: str, address: str, found: Found) -> None:
        """Calls `found` with an account, now or after a fetch for a client of that address; None: there is none."""
        account = self._accounts.get(name)
        is_old = account is None or not account.token.counts_at(self._now_s())
        if is_old and self._fetches is not None and nats_nkeys.is_public(nats_nkeys.ACCOUNT, name):
            self._fetch(name, address, found)
        else:
            found(account)

    # --- users ------------------------------------------------------------------------------------------------------

    def prove(self, client: Client, done: Done) -> None:
        try:
            token = nats_jwt.decode(self.jwt_of(client), nats_jwt.USER)
            if not token.lets_in_at(self._now_s()):
                raise JwtError("User JWT no longer valid")
            if self._pinned and token.issuer_account not in self._pinned:
                raise JwtError(f"Account {token.issuer_account} not listed as operator pinned account")
        except JwtError as error:
            self._refuse(client, error, done)
            return

        def found(account: Account | None) -> None:
            try:
                if account is None:
                    raise JwtError(f"there is no account {token.issuer_account}")
                user = self._user(token, account, client)
                if not user.bearer and not _is_signed(token, client):
                    raise JwtError("Signature not verified")
            except JwtError as error:
                self._refuse(client, error, done)
                return
            if self._fetches is not None:
                self._fetches.met(client.host)
            done(user)

        self.find(token.issuer_account, client.host, found)

    def jwt_of(self, client: Client) -> str:
        """The JWT that a client is known by: its own or the default sentinel."""
        return str(client.options.get("jwt") or self._sentinel)

    def _refuse(self, client: Client, error: JwtError, done: Done) -> None:
        self._remarks.of_client(client.remote, str(error))
        done(None)

    def _user(self, token: Token, account: Account, client: Client) -> User:
        """The user of a valid token. Raises JwtError when it is refused."""
        now_s = self._now_s()
        user = user_of(token, account)
        if not account.token.counts_at(now_s):
            raise JwtError("Account JWT has expired")
        if user.bearer and json_fields.block(account.token.nats, "limits").get("disallow_bearer"):
            raise JwtError("Account does not allow bearer tokens")
        if user.connection_types and client.connection_type not in user.connection_types:
            raise JwtError("Connection type not allowed")
        if nats_jwt.is_revoked(json_fields.block(account.token.nats, "revocations"), token.subject, token.issued_s):
            raise JwtError(REVOKED)
        said = account.signing_keys[token.issuer] or token.nats
        if not is_from(said, client.host):
            raise JwtError(f"Bad src Ip {client.host}")
        there, for_s = is_now(said, now_s)
        if not there:
            raise JwtError("Outside connect times")
        until_s = token.user_end_s(now_s, for_s)
        return user._replace(until_s=until_s, token_name=token.name, tags=token.tags, issuer=token.issuer)

    def again(self, client: Client) -> User | Ended:
        """Checks a connected client again, whose account may have changed."""
        user = client.user
        account = self._accounts.get(user.account) if user is not None else None
        if user is None or account is None:
            return Ended(VIOLATION)
        now_s = self._now_s()
        if not account.token.counts_at(now_s):
            return Ended(ACCOUNT_EXPIRED)
        if user.is_over(now_s):
            return Ended(USER_EXPIRED)
        if user.is_called_out:
            revocations = json_fields.block(account.token.nats, "revocations")
            if nats_jwt.is_revoked(revocations, user.nkey, user.issued_s):
                return Ended(REVOKED)
            return user if user.issuer in account.signing_keys else Ended(VIOLATION)
        try:
            token = nats_jwt.decode(self.jwt_of(client), nats_jwt.USER)
            return self._user(token, account, client)._replace(until_s=user.until_s)
        except JwtError as error:
            return Ended(REVOKED if str(error) == REVOKED else VIOLATION)

    # --- time -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        if self._fetches is not None:
            self._fetches.settle()

    def ends_s(self, user: User) -> float:
        """When a client has to be closed; 0: never."""
        account = self._accounts.get(user.account)
        ends = [user.until_s, account.token.expires_s if account is not None else 0]
        return min((one for one in ends if one), default=0)

    def wait_s(self) -> float:
        """The time until expire() has something to do; negative: never."""
        ends = [end for end in (self._shared.end_s, self._want_again_s) if end]
        return max(min(ends) - self._now_s(), 0) if ends else -1

    def expire(self) -> None:
        if over := self._shared.over(self._now_s()):
            self._share_some(over)
        left_s = self._want_again_s - self._now_s()
        if self._want_again_s and not 0 < left_s <= WANT_AGAIN_S:  # the second test: the clock was set back
            missing, self._missing, self._want_again_s = self._missing, set(), 0.0
            self._wanted -= missing
            self._want(missing & self._needed())


def _is_signed(token: Token, client: Client) -> bool:
    signature = nats_nkeys.signature_of(client.options.get("sig", ""))
    return bool(signature) and nats_nkeys.verify(token.subject, client.nonce.encode(), signature or b"")


def _least(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)
