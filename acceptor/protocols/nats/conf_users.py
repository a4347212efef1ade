"""Lists of users in nats-server's configuration file, of clients and of leaf nodes, in the form that who.py reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mq_shards.acceptor.protocols.nats.conf import Value

# By key: the field of the user, and what reads it.
Fields = Mapping[str, tuple[str, Callable[[Value], Any]]]

CREDENTIALS: Final[Fields] = {
    "user": ("name", Value.text),
    "username": ("name", Value.text),
    "pass": ("password", Value.text),
    "password": ("password", Value.text),
}


def read_user(value: Value, account: str, what: str, more: Fields) -> dict[str, Any]:
    """`what`: a word for such a user; `more`: what else than a name and a password it may have."""
    found: dict[str, Any] = {"account": account}
    for key, item in value.block().items():
        lower = key.lower()
        if (known := CREDENTIALS.get(lower) or more.get(lower)) is not None:
            field, read = known
            found[field] = read(item)
        elif lower == "proxy_required":
            if item.flag():
                raise item.error("proxy_required is not supported")
        elif not item.referenced:
            raise item.error(f'unknown key "{key}" of {what}')
    return found


def name_of(user: Mapping[str, Any]) -> str:
    return user.get("nkey") or str(user.get("name", ""))


def take_names(users: list[dict[str, Any]], value: Value, taken: set[str], whose: str = "") -> None:
    """Adds the users' names to those that are taken already. Raises an error at `value` if one is there twice."""
    for name in map(name_of, users):
        if name in taken:
            raise value.error(f'user "{name}"{whose} is there twice')
        taken.add(name)
