"""Reads the JWTs of accounts and their users: limits, permissions and signing keys.

Does not check whether a client is who it claims to be: operator.py does. Claims mean what they mean to nats-server.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from mq_shards.acceptor.protocols.nats import jwt as nats_jwt
from mq_shards.acceptor.protocols.nats.json_fields import block, blocks, flag, number, text, texts
from mq_shards.acceptor.protocols.nats.jwt import JwtError, Token
from mq_shards.acceptor.protocols.nats.who import (
    CONNECTION_TYPES,
    AccountLimits,
    Limits,
    Permissions,
    Responses,
    User,
)

MAX_EXPANSIONS: Final = 4096  # subjects that one list of templates may expand to
TEMPLATE: Final = re.compile(r"\{\{.*?\}\}")
EVERYTHING: Final = ">"
# Claims that a user must not make itself when its signing key has a scope, which sets them.
SCOPED: Final = (
    "pub", "sub", "resp", "src", "times", "times_location", "subs", "data", "payload", "bearer_token",
    "proxy_required", "allowed_connection_types",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Account:
    token: Token
    # Keys whose signatures count, each with its scope; None: its users' JWTs say themselves what they may do.
    signing_keys: Mapping[str, Mapping[str, Any] | None]
    limits: AccountLimits
    default_permissions: Permissions | None

    @property
    def name(self) -> str:
        return self.token.subject


def account_of(jwt: str, name: str, *, strict: frozenset[str] = frozenset()) -> Account:
    """`strict`: operators whose accounts must not sign with their own identity key. Raises JwtError."""
    token = nats_jwt.decode(jwt, nats_jwt.ACCOUNT)
    if token.subject != name:
        raise JwtError(f"it is of account {token.subject}")
    keys: dict[str, Mapping[str, Any] | None] = dict.fromkeys(texts(token.nats, "signing_keys"))
    for scope in blocks(token.nats, "signing_keys"):
        keys[text(scope, "key")] = block(scope, "template")
    if token.issuer not in strict:
        keys[name] = None
    limits = block(token.nats, "limits")
    _check_counts(token.nats, limits)
    return Account(
        token, keys,
        AccountLimits(*(_limit(limits, name) for name in ("conn", "subs", "payload", "leaf"))),
        permissions_of(block(token.nats, "default_permissions")),
    )  # fmt: skip


def _limit(limits: Mapping[str, Any], name: str) -> int | None:
    """A missing limit is 0; a negative one is None, no limit."""
    found = number(limits, name)
    return None if found < 0 else found


def _check_counts(nats: Mapping[str, Any], limits: Mapping[str, Any]) -> None:
    for name in ("imports", "exports"):
        most = _limit(limits, name)
        if most is not None and len(blocks(nats, name)) > most:
            raise JwtError(f"the account contains more {name} than allowed by the operator")
    if _limit(limits, "exports") is not None and not flag(limits, "wildcards"):
        subjects = (text(one, "subject").split(".") for one in blocks(nats, "exports"))
        if any({"*", ">"} & set(tokens) for tokens in subjects):
            raise JwtError("the account contains wildcard exports that are not allowed by the operator")


# --- users ------------------------------------------------------------------------------------------------------------


def permissions_of(said: Mapping[str, Any]) -> Permissions | None:
    """None when the claims hold no permissions."""
    publish, subscribe = (_limits_of(block(said, name)) for name in ("pub", "sub"))
    response = said.get("resp")
    if publish == Limits() and subscribe == Limits() and not isinstance(response, dict):
        return None
    responses = None
    if isinstance(response, dict):
        usual = Responses()
        most, ttl = number(response, "max") or usual.max, number(response, "ttl") or usual.expires_ns
        responses = Responses(max(most, 0), max(ttl, 0))
    return Permissions(publish, subscribe, responses)


def _limits_of(said: Mapping[str, Any]) -> Limits:
    allow = texts(said, "allow")
    return Limits(tuple(allow) if allow else None, tuple(texts(said, "deny")))


def user_of(token: Token, account: Account) -> User:
    """The user that a token describes. Raises JwtError when the account does not admit it."""
    if token.issuer not in account.signing_keys:
        raise JwtError("User JWT issuer is not known")
    said: Mapping[str, Any] = token.nats
    scope = account.signing_keys[token.issuer]
    if scope is not None:
        if any(said.get(name) for name in SCOPED):
            raise JwtError("User JWT is not valid: its signing key says what its users may")
        said = _expanded(scope, token, account)
    known = connection_types_of(said)
    if flag(said, "proxy_required"):
        raise JwtError("there are no trusted proxies")
    return User(
        nkey=token.subject,
        account=account.name,
        permissions=permissions_of(said) or account.default_permissions,
        connection_types=known,
        limits=AccountLimits(None, _limit(said, "subs"), _limit(said, "payload")),
        bearer=flag(said, "bearer_token"),
    )


def connection_types_of(said: Mapping[str, Any]) -> tuple[str, ...]:
    """The known types of connection that are allowed; empty: any. Raises JwtError when only unknown ones are named."""
    types = [one.upper() for one in texts(said, "allowed_connection_types")]
    known = tuple(one for one in types if one in CONNECTION_TYPES)
    if types and not known:
        raise JwtError("Connection type not allowed")
    return known


def is_from(said: Mapping[str, Any], host: str) -> bool:
    """Whether a user may connect from this address."""
    networks = said.get("src") or []
    if isinstance(networks, str):
        networks = [one.strip() for one in networks.split(",")]
    if not networks:
        return True
    try:
        address = ipaddress.ip_address(host)
        return any(address in ipaddress.ip_network(one, strict=False) for one in networks)
    except (ValueError, TypeError):
        return False


def is_now(said: Mapping[str, Any], now_s: float) -> tuple[bool, float]:
    """Whether a user may connect at this time, and for how many seconds it may stay; 0: for ever."""
    spans = blocks(said, "times")
    if not spans:
        return True, 0
    try:
        zone = zoneinfo.ZoneInfo(text(said, "times_location")) if said.get("times_location") else None
        now = datetime.fromtimestamp(now_s, UTC).astimezone(zone)
        return max((_span(one, now) for one in spans), default=(False, 0.0))
    except (ValueError, OSError, KeyError, zoneinfo.ZoneInfoNotFoundError):
        return False, 0


def _span(said: Mapping[str, Any], now: datetime) -> tuple[bool, float]:
    """As is_now(), of one span of time. A span whose end is before its start lasts until the next day."""
    start, end = (
        datetime.combine(now.date(), datetime.strptime(text(said, name), "%H:%M:%S").time(), now.tzinfo)
        for name in ("start", "end")
    )
    if start > end and end <= now:
        end += timedelta(days=1)
    elif start > end:
        start -= timedelta(days=1)
    return (True, (end - now).total_seconds()) if start < now < end else (False, 0.0)


# --- templates of signing keys ----------------------------------------------------------------------------------------


def _expanded(scope: Mapping[str, Any], token: Token, account: Account) -> Mapping[str, Any]:
    """Returns a scope with the templates in its subjects expanded."""
    found = dict(scope)
    for kind in ("pub", "sub"):
        said = block(scope, kind)
        allow = _subjects(texts(said, "allow"), token, account, strict=False)
        deny = _subjects(texts(said, "deny"), token, account, strict=True)
        # An empty list would allow everything, so one whose templates expand to nothing must deny everything.
        if said.get("allow") and not allow:
            deny.append(EVERYTHING)
        found[kind] = {"allow": allow, "deny": deny}
    return found


def _subjects(patterns: list[str], token: Token, account: Account, *, strict: bool) -> list[str]:
    """Expands templates. A subject that cannot be made is left out, but raises JwtError if `strict`."""
    found: list[str] = []
    for pattern in patterns:
        asked = TEMPLATE.findall(pattern)
        values = [_values(one[2:-2].strip(), token, account) for one in asked]
        if strict and not all(values):
            raise JwtError("User JWT generated invalid permissions")
        for combination in itertools.islice(itertools.product(*values), MAX_EXPANSIONS + 1):
            subject = pattern
            for one, value in zip(asked, combination, strict=True):
                subject = subject.replace(one, value)
            if all(subject.split(".")) and not set(subject) & set(" \t\r\n\f"):
                found.append(subject)
            elif strict or not asked:
                raise JwtError("User JWT generated invalid permissions")
        if len(found) > MAX_EXPANSIONS:
            raise JwtError("User JWT generated invalid permissions")
    return found


def _values(asked: str, token: Token, account: Account) -> list[str]:
    simple = {
        "name()": token.name, "subject()": token.subject, "account-name()": account.token.name,
        "account-subject()": account.name,
    }  # fmt: skip
    if asked.lower() in simple:
        return [simple[asked.lower()]]
    match = re.fullmatch(r"(account-)?tag\((.*)\)", asked, re.IGNORECASE)
    if match is None:
        raise JwtError("User JWT generated invalid permissions")
    prefix = f"{match[2].lower()}:"
    tags = (account.token if match[1] else token).tags
    return [tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)]
