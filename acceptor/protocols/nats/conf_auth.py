"""The block "authorization" of nats-server's configuration file: users and their permissions.

Users are stored in Conf.content["who"], in the form that who.py reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mq_shards.acceptor.option_kinds import MINUTE, SECOND
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.conf import Value
from mq_shards.acceptor.protocols.nats.conf_callout import take_callout
from mq_shards.acceptor.protocols.nats.conf_takers import Conf, Taker, option, take_block, unsupported
from mq_shards.acceptor.protocols.nats.conf_users import Fields, name_of, read_user, take_names
from mq_shards.acceptor.protocols.nats.transforms import is_subject
from mq_shards.acceptor.protocols.nats.who import CONNECTION_TYPES, GLOBAL_ACCOUNT, Responses

# --- subjects ---------------------------------------------------------------------------------------------------------


def _check_subject(value: Value, text: str, queues: bool) -> str:
    if is_subject(text):
        return text
    words = text.split()
    if not queues or len(words) != 2 or not all(is_subject(word) for word in words):
        raise value.error(f'"{text}" is not a subject')
    return " ".join(words)


def _subjects(value: Value, queues: bool) -> list[str]:
    texts = [value.text()] if isinstance(value.content, str) else value.texts()
    return [_check_subject(value, text, queues) for text in texts]


# --- permissions ------------------------------------------------------------------------------------------------------


def _limits(value: Value, queues: bool) -> dict[str, list[str]]:
    if not isinstance(value.content, dict):
        allow = _subjects(value, queues)
        return {"allow": allow} if allow else {}
    found: dict[str, list[str]] = {}
    for key, subjects in value.content.items():
        if key.lower() in ("allow", "deny"):
            # An empty list means the same as none, as in nats-server.
            if patterns := _subjects(subjects, queues):
                found[key.lower()] = patterns
        elif not subjects.referenced:
            raise subjects.error(f'unknown key "{key}" in permissions: there are allow and deny')
    return found


def _responses(value: Value) -> dict[str, int] | None:
    usual = Responses()
    found = {"max": usual.max, "expires_ns": usual.expires_ns}
    if isinstance(value.content, bool):
        return found if value.content else None
    for key, limit in value.block().items():
        # 0 means the default, a negative number no limit.
        if key.lower() in ("max", "max_msgs", "max_messages", "max_responses"):
            found["max"] = max(limit.whole() or usual.max, 0)
        elif key.lower() in ("expires", "expiration", "ttl"):
            found["expires_ns"] = max(limit.duration_ns() or usual.expires_ns, 0)
        elif not limit.referenced:
            raise limit.error(f'unknown key "{key}" in allow_responses')
    return found


def permissions(value: Value) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, limits in value.block().items():
        match key.lower():
            case "pub" | "publish" | "import":
                found["publish"] = _limits(limits, queues=False)
            case "sub" | "subscribe" | "export":
                found["subscribe"] = _limits(limits, queues=True)
            case "publish_allow_responses" | "allow_responses":
                found["responses"] = _responses(limits)
            case _ if not limits.referenced:
                raise limits.error(f'unknown key "{key}" in permissions')
    return found


# --- users ------------------------------------------------------------------------------------------------------------


def _connection_types(value: Value) -> list[str]:
    said = [value.text()] if isinstance(value.content, str) else value.texts()
    found = [text.upper() for text in said]
    for text in found:
        if text not in CONNECTION_TYPES:
            raise value.error(f'"{text}" is not a type of connection')
    return found


FIELDS: Final[Fields] = {
    "nkey": ("nkey", Value.text),
    **dict.fromkeys(("permission", "permissions", "authorization"), ("permissions", permissions)),
    **dict.fromkeys(
        ("allowed_connection_types", "connection_types", "clients"), ("connection_types", _connection_types)
    ),
}


def _user(value: Value, account: str) -> dict[str, Any]:
    found = read_user(value, account, "a user", FIELDS)
    nkey = found.get("nkey", "")
    if not nkey and not found.get("name"):
        raise value.error("a user needs a name")
    if nkey and not nats_nkeys.is_public(nats_nkeys.USER, nkey):
        raise value.error(f'"{nkey}" is not the public key of a user')
    if nkey and (found.get("name") or found.get("password")):
        raise value.error("a user that has a key has no name and no password")
    return found


def take_users(conf: Conf, value: Value, account: str) -> list[dict[str, Any]]:
    """Reads users. A user may occur only once in all accounts together."""
    found = [_user(item, account) for item in value.items()]
    take_names(found, value, conf.user_names)
    conf.users.extend(found)
    return found


def apply_defaults(users: list[dict[str, Any]], defaults: dict[str, Any] | None) -> None:
    for user in users if defaults is not None else ():
        user.setdefault("permissions", defaults)


# --- the block --------------------------------------------------------------------------------------------------------


def _take_timeout(conf: Conf, value: Value) -> None:
    """A number means seconds."""
    number = value.content
    if isinstance(number, int | float) and not isinstance(number, bool):
        ns = int(number * SECOND)
    else:
        ns = value.duration_ns()
    if ns > MINUTE:
        conf.warn(value, "a timeout of more than a minute is long: a connection that says nothing is kept for so long")
    conf.set("auth-timeout", value, f"{ns}ns" if ns else 0)


def _do_nothing(conf: Conf, value: Value) -> None:
    """take_authorization() reads this key when it has read the others."""


AUTHORIZATION: Final[Mapping[str, Taker]] = {
    "user": option("user", Value.text),
    "username": option("user", Value.text),
    "pass": option("password", Value.text),
    "password": option("password", Value.text),
    "token": option("token", Value.text),
    "timeout": _take_timeout,
    "users": lambda conf, value: apply_defaults(take_users(conf, value, GLOBAL_ACCOUNT), None),
    "default_permission": _do_nothing,
    "default_permissions": _do_nothing,
    "permissions": _do_nothing,
    "auth_callout": take_callout,
    "auth_hook": take_callout,
    "proxy_required": unsupported("proxy_required", "there are no trusted proxies", Value.flag),
}


def take_authorization(conf: Conf, value: Value) -> None:
    block = value.block()
    before = len(conf.users)
    conf.has_authorization = True
    take_block(conf, block, AUTHORIZATION, " in authorization")
    for key in ("default_permission", "default_permissions", "permissions"):
        for name, default in block.items():
            if name.lower() == key:
                apply_defaults(conf.users[before:], permissions(default))
    if ("user" in conf.options or "password" in conf.options) and "token" in conf.options:
        raise value.error("authorization has a user and a token: it is one or the other")


def take_no_auth_user(conf: Conf, value: Value) -> None:
    conf.no_auth_user = value


def finish(conf: Conf) -> None:
    """Call after the whole file has been read."""
    for name, what in (("user", "a single user"), ("token", "a token")):
        if conf.users and name in conf.options:
            raise conf.error_at(conf.options[name][0], f"authorization has {what} and users: it is one or the other")
    if "password" in conf.options and "user" not in conf.options:
        conf.options.pop("password")
    who = conf.content.setdefault("who", {})
    who["users"] = conf.users
    if conf.no_auth_user is not None and conf.no_auth_user.text():
        name = conf.no_auth_user.text()
        if name not in {name_of(user) for user in conf.users}:
            raise conf.no_auth_user.error(f'there is no user "{name}"')
        who["no_auth_user"] = name
