"""Users and their rights. What is here decides and remembers nothing; it is made of a file (users_file.py), and goes
to the other processes as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from mq_shards.acceptor.access.hashes import token_hash

PUBLISH: Final = "publish"
CONSUME: Final = "consume"
READ: Final = "read"
MANAGE: Final = "manage"
RIGHTS: Final = (PUBLISH, CONSUME, READ, MANAGE)
ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class Patterns:
    """Names of topics, and beginnings of names with a * behind them."""

    texts: tuple[str, ...] = ()
    _names: frozenset[str] = field(init=False, repr=False, compare=False)
    _beginnings: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", frozenset(text for text in self.texts if not text.endswith("*")))
        object.__setattr__(self, "_beginnings", tuple(text[:-1] for text in self.texts if text.endswith("*")))

    def match(self, topic: str) -> bool:
        return topic in self._names or topic.startswith(self._beginnings)

    @property
    def everything(self) -> bool:
        return ALL in self.texts


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password: str = field(default="", repr=False)  # as bcrypt makes it
    tokens: tuple[str, ...] = field(default=(), repr=False)  # hashed
    certificates: tuple[str, ...] = ()
    rights: Mapping[str, Patterns] = field(default_factory=dict)

    def may(self, right: str, topic: str) -> bool:
        found = self.rights.get(right)
        return found is not None and found.match(topic)

    def may_all(self, right: str) -> bool:
        """With every topic, and what concerns the whole broker."""
        found = self.rights.get(right)
        return found is not None and found.everything

    def patterns(self, right: str) -> tuple[str, ...]:
        found = self.rights.get(right)
        return () if found is None else found.texts


@dataclass(frozen=True, slots=True)
class Login:
    """Who somebody is, and what proved it, as it is kept: nothing where the listener says so."""

    user: User
    by: str = field(default="", repr=False)


class Users:
    def __init__(self, users: Iterable[User] = ()) -> None:
        self.by_name: Final = {user.name: user for user in users}
        self._tokens = {token: user for user in self.by_name.values() for token in user.tokens}
        self._certificates = {name: user for user in self.by_name.values() for name in user.certificates}

    def of_token(self, token: str) -> Login | None:
        kept = token_hash(token)
        user = self._tokens.get(kept)
        return None if user is None else Login(user, kept)

    def of_certificate(self, names: Iterable[str]) -> Login | None:
        """`names`: those that a certificate has which somebody has verified."""
        for name in names:
            if name in self._certificates:
                return Login(self._certificates[name], name)
        return None

    def concerns(self, name: str, token: str) -> bool:
        """There is a user of that name, or of that token."""
        return name in self.by_name or (bool(token) and self.of_token(token) is not None)

    def of_listener(self, name: str) -> Login | None:
        user = self.by_name.get(name)
        return None if user is None else Login(user)

    def again(self, login: Login) -> Login | None:
        """What has become of it: None if nobody would be let in by that any more."""
        user = self.by_name.get(login.user.name)
        if user is None:
            return None
        from hmac import compare_digest  # see secrets.py

        proofs = (user.password, *user.tokens, *user.certificates)
        if login.by and not any(compare_digest(login.by.encode(), one.encode()) for one in proofs):
            return None
        return Login(user, login.by)

    def encode(self) -> bytes:
        return orjson.dumps([_encoded(user) for user in self.by_name.values()])


def decode(content: bytes) -> Users:
    return Users(
        User(
            found["name"], found["password"], tuple(found["tokens"]), tuple(found["certificates"]),
            {right: Patterns(tuple(texts)) for right, texts in found["rights"].items()},
        )
        for found in orjson.loads(content)
    )  # fmt: skip


def _encoded(user: User) -> dict[str, Any]:
    return {
        "name": user.name, "password": user.password, "tokens": user.tokens, "certificates": user.certificates,
        "rights": {right: patterns.texts for right, patterns in user.rights.items()},
    }  # fmt: skip
