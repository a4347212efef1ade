"""The block "authorization" of nats-server's configuration file: who may connect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mq_shards.acceptor.option_kinds import MINUTE, SECOND
from mq_shards.acceptor.protocols.nats_conf import Value
from mq_shards.acceptor.protocols.nats_conf_takers import Conf, Taker, option, refused, take_block, unsupported


def _take_timeout(conf: Conf, value: Value) -> None:
    """A number is of seconds."""
    number = value.content
    if isinstance(number, int | float) and not isinstance(number, bool):
        ns = int(number * SECOND)
    else:
        ns = value.duration_ns()
    if ns > MINUTE:
        conf.warn(value, "a timeout of more than a minute is long: a connection that says nothing is kept for so long")
    conf.set("auth-timeout", value, f"{ns}ns" if ns else 0)


AUTHORIZATION: Final[Mapping[str, Taker]] = {
    "user": option("user", Value.text),
    "username": option("user", Value.text),
    "pass": option("password", Value.text),
    "password": option("password", Value.text),
    "token": option("token", Value.text),
    "timeout": _take_timeout,
    "users": refused("users"),
    "default_permission": refused("default_permissions"),
    "default_permissions": refused("default_permissions"),
    "permissions": refused("default_permissions"),
    "auth_callout": refused("auth_callout"),
    "auth_hook": refused("auth_callout"),
    "proxy_required": unsupported("proxy_required", "there are no trusted proxies"),
}


def take_authorization(conf: Conf, value: Value) -> None:
    take_block(conf, value.block(), AUTHORIZATION, " in authorization")
    if ("user" in conf.options or "password" in conf.options) and "token" in conf.options:
        raise value.error("authorization has a user and a token: it is one or the other")
