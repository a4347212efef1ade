"""The known users and their permissions, and which of them a client claims to be.

A Who is made of the options and a configuration file, and never changes: a new one replaces it when the file is read
again. It compares no secrets: a Claim holds what has to be compared, which may take long (secrets.py).

A client's user is looked up in nats-server's order: by key, by name, then the credentials common to all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mq_shards.acceptor.pauses import Pause, no_pause

GLOBAL_ACCOUNT: Final = "$G"
SYSTEM_ACCOUNT: Final = "$SYS"

STANDARD: Final = "STANDARD"
WEBSOCKET: Final = "WEBSOCKET"
LEAF_NODE: Final = "LEAFNODE"
LEAF_NODE_WEBSOCKET: Final = "LEAFNODE_WS"
# Types of connection that users may be limited to; some of them are not supported here, so they never occur.
CONNECTION_TYPES: Final = (STANDARD, WEBSOCKET, LEAF_NODE, LEAF_NODE_WEBSOCKET, "MQTT", "MQTT_WS", "IN_PROCESS")


class Limits(NamedTuple):
    """Patterns; `allow` None allows all. Those for subscribing may be followed by a blank and a queue group."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class Responses(NamedTuple):
    """A user may answer each request `max` times (0: no limit), within `expires_ns` (0: for ever)."""

    max: int = 1
    expires_ns: int = 120_000_000_000


class Permissions(NamedTuple):
    publish: Limits = Limits()
    subscribe: Limits = Limits()
    responses: Responses | None = None

    def lines(self) -> bytes:
        """The codec's form: csrc/acceptor/protocols/nats/nats_permissions.h. ValueError: a subject has a line feed."""
        lines = [f"pa {subject}" for subject in self.publish.allow or ()]
        lines += [f"pd {subject}" for subject in self.publish.deny]
        lines += [f"sa {subject}" for subject in self.subscribe.allow or ()]
        lines += [f"sd {subject}" for subject in self.subscribe.deny]
        if self.responses is not None:
            lines.append(f"r {self.responses.max} {self.responses.expires_ns}")
            lines.append("p")  # denies all other publishing, unless it is allowed
        if any("\n" in line for line in lines):
            raise ValueError("a subject has a line feed")
        return "".join(line + "\n" for line in lines).encode(errors="surrogateescape")


class AccountLimits(NamedTuple):
    """None: no limit. `subscriptions` and `payload`, in bytes, limit each connection."""

    connections: int | None = None
    subscriptions: int | None = None
    payload: int | None = None
    leaf_nodes: int | None = None


class User(NamedTuple):
    """A user, known by name and password or by public key."""

    name: str = ""
    password: str = ""
    nkey: str = ""
    account: str = GLOBAL_ACCOUNT
    permissions: Permissions | None = None
    connection_types: tuple[str, ...] = ()  # none: any
    # Only of users that are known by a JWT:
    limits: AccountLimits = AccountLimits()  # in addition to the account's
    bearer: bool = False  # the JWT suffices, without a signature
    until_s: float = 0  # by the wall clock; 0: for ever
    issuer: str = ""
    token_name: str = ""
    tags: tuple[str, ...] = ()
    issued_s: int = 0
    is_called_out: bool = False  # admitted by the service of an auth callout: callout.py

    def is_over(self, now_s: float) -> bool:
        return self.until_s != 0 and self.until_s <= now_s


# The subject on which services of auth callouts are asked.
ASKED_AT: Final = "$SYS.REQ.USER.AUTH"


def fenced(user: User | None, account: str) -> User | None:
    """Denies a user of the callout service's account to publish such requests: only the server may."""
    if user is None or user.account != account:
        return user
    before = user.permissions or Permissions()
    publish = Limits(before.publish.allow, (*before.publish.deny, ASKED_AT))
    return user._replace(permissions=before._replace(publish=publish))


class Claim(NamedTuple):
    """The user that a client claims to be, and the proof to check: a secret, or the nonce's signature by its key."""

    user: User
    secret: str = ""  # as configured: perhaps a bcrypt hash
    said: str = ""
    nkey: str = ""
    signature: str = ""
    proven: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Who:
    """The users, and how to claim to be one: see above."""

    users: tuple[User, ...] = ()
    # The credentials common to all clients, if there are no users: a token, or a user and a password.
    user: str = ""
    password: str = ""
    token: str = ""
    no_auth_user: str = ""
    no_auth_is_ours: bool = False  # no_auth_user is not configured but added: INFO does not show it
    system_account: str = SYSTEM_ACCOUNT
    by_jwt: bool = False  # operator mode: operator.py
    limits: Mapping[str, AccountLimits] = field(default_factory=dict)  # by account
    _names: Mapping[str, User] = field(init=False)
    _nkeys: Mapping[str, User] = field(init=False)

    def __post_init__(self) -> None:
        self._names = {user.name: user for user in self.users if not user.nkey}
        self._nkeys = {user.nkey: user for user in self.users if user.nkey}

    @property
    def required(self) -> bool:
        """Whether clients must authenticate."""
        return bool(self.users or self.user or self.token or self.by_jwt)

    @property
    def announced(self) -> bool:
        """Whether INFO says that authentication is required."""
        return self.required and (not self.no_auth_user or self.no_auth_is_ours)

    @property
    def nonce(self) -> bool:
        """Whether INFO has a nonce to sign."""
        return bool(self._nkeys) or self.by_jwt

    def claim(self, said: Mapping[str, Any], connection_type: str = STANDARD) -> Claim | None:
        """`said`: the fields of CONNECT. None when no user matches."""
        name, password = said.get("user", ""), said.get("pass", "")
        nkey, token = said.get("nkey", ""), said.get("auth_token", "")
        says_nothing = not (name or password or token)
        if self._nkeys and not nkey and says_nothing and self.no_auth_user in self._nkeys:
            nkey = self.no_auth_user
        if self._nkeys and nkey:
            found = self._nkeys.get(nkey)
            if found is None or not _may_come(found, connection_type):
                return None
            return Claim(found, nkey=nkey, signature=said.get("sig", ""), proven=nkey == self.no_auth_user)
        if self._names and says_nothing and self.no_auth_user in self._names:
            name, password = self.no_auth_user, self._names[self.no_auth_user].password
            found = self._names[name]
            return Claim(found, proven=True) if _may_come(found, connection_type) else None
        if self._names and name:
            found = self._names.get(name)
            return Claim(found, found.password, password) if found and _may_come(found, connection_type) else None
        if self.token:
            return Claim(self._anybody, self.token, token)
        return Claim(self._anybody, self.password, password) if self.user and self.user == name else None

    @property
    def _anybody(self) -> User:
        """The user of all clients, if there are no users."""
        return User(self.user, self.token or self.password)

    def named_by(
        self, names: Sequence[str], is_subject: Callable[[str], bool], connection_type: str = STANDARD
    ) -> User | None:
        """The user of a certificate: one whose name is in `names`, or is the certificate's subject."""
        users = [self._names[name] for name in names if name in self._names]
        users += [user for name, user in self._names.items() if is_subject(name)]
        return next((user for user in users if _may_come(user, connection_type)), None)

    def for_nobody(self, connection_type: str = STANDARD) -> User | None:
        """The user of a client that does not begin with CONNECT; None: it must."""
        found = self._names.get(self.no_auth_user) if self.no_auth_user else None
        return found if found is not None and _may_come(found, connection_type) else None

    def now(self, user: User | None) -> User | None:
        """The current state of a user, perhaps with other permissions. None when it is gone or has other credentials:
        its clients must be closed."""
        if user is None:
            return None
        if not self.users:
            return user if user == self._anybody else None
        found = self._nkeys.get(user.nkey) if user.nkey else self._names.get(user.name)
        same = found is not None and found._replace(permissions=user.permissions) == user
        return found if same else None

    def has_moved(self, user: User | None, said: Mapping[str, Any]) -> bool:
        """Whether a user is in no account any more, or in another one. `said`: the fields of CONNECT; all that is known
        of a client that needed no user."""
        nkey = said.get("nkey", "") if user is None else user.nkey
        name = nkey or (user.name if user is not None else "") or said.get("user", "")
        found = (self._nkeys if nkey else self._names).get(name)
        account = GLOBAL_ACCOUNT if user is None else user.account
        return bool(name) and (found is None or found.account != account)


def _may_come(user: User, connection_type: str) -> bool:
    return not user.connection_types or connection_type in user.connection_types


# --- from JSON, in which acceptors are sent a configuration file ------------------------------------------------------


def who_of(
    content: Mapping[str, Any], user: str = "", password: str = "", token: str = "", pause: Pause = no_pause
) -> Who:
    """`content`: from conf_auth.py and conf_accounts.py; empty if there is no file."""
    users: list[User] = []
    for found in content.get("users", ()):
        users.append(user_of(found))
        pause()
    return Who(
        users=tuple(users),
        user=user,
        password=password,
        token=token,
        no_auth_user=content.get("no_auth_user", ""),
        no_auth_is_ours=content.get("no_auth_is_ours", False),
        system_account=content.get("system_account", SYSTEM_ACCOUNT),
        limits={
            account["name"]: _account_limits_of(account["limits"])
            for account in content.get("accounts", ())
            if "limits" in account
        },
    )


def _account_limits_of(found: Mapping[str, int]) -> AccountLimits:
    names = "connections", "subscriptions", "payload", "leafnodes"
    return AccountLimits(*(found.get(name) for name in names))


def user_of(found: Mapping[str, Any]) -> User:
    permissions = found.get("permissions")
    return User(
        name=found.get("name", ""),
        password=found.get("password", ""),
        nkey=found.get("nkey", ""),
        account=found.get("account", GLOBAL_ACCOUNT),
        permissions=None if permissions is None else permissions_of(permissions),
        connection_types=tuple(found.get("connection_types", ())),
    )


def permissions_of(found: Mapping[str, Any]) -> Permissions:
    responses = found.get("responses")
    return Permissions(
        publish=_limits_of(found.get("publish") or {}),
        subscribe=_limits_of(found.get("subscribe") or {}),
        responses=None if responses is None else Responses(responses["max"], responses["expires_ns"]),
    )


def _limits_of(found: Mapping[str, Sequence[str] | None]) -> Limits:
    allow = found.get("allow")
    return Limits(None if allow is None else tuple(allow), tuple(found.get("deny") or ()))
