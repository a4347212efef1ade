"""Users and their rights. These objects only answer questions and keep no other state. They are made from a file
(users_file.py) and sent to the other processes as JSON.
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


class Patterns:
    """Names of topics, and prefixes of names followed by a *."""

    def __init__(self, texts: tuple[str, ...] = ()) -> None:
        self.texts: Final = texts
        self._names = frozenset(text for text in texts if not text.endswith("*"))
        self._beginnings = tuple(text[:-1] for text in texts if text.endswith("*"))

    def match(self, topic: str) -> bool:
        return topic in self._names or topic.startswith(self._beginnings)

    @property
    def everything(self) -> bool:
        return ALL in self.texts


@dataclass(slots=True, eq=False, repr=False)
class User:
    """A user, and what may be done in its name."""

    name: str
    password: str = ""  # hashed by bcrypt
    tokens: tuple[str, ...] = ()  # hashed
    certificates: tuple[str, ...] = ()
    rights: Mapping[str, Patterns] = field(default_factory=dict)

    def may(self, right: str, topic: str) -> bool:
        found = self.rights.get(right)
        return found is not None and found.match(topic)

    def may_all(self, right: str) -> bool:
        """Whether the user has that right to every topic, and to what concerns the whole broker."""
        found = self.rights.get(right)
        return found is not None and found.everything

    def patterns(self, right: str) -> tuple[str, ...]:
        found = self.rights.get(right)
        return () if found is None else found.texts


@dataclass(slots=True, eq=False, repr=False)
class Login:
    """Who a client is, and the proof as it is kept: a hash or a certificate's name; empty if the listener names the
    user."""

    user: User
    by: str = ""


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
        """The user of the first known name; `names` are those of a verified certificate."""
        for name in names:
            if name in self._certificates:
                return Login(self._certificates[name], name)
        return None

    def concerns(self, name: str, token: str) -> bool:
        """Whether a user has that name or that token."""
        return name in self.by_name or (bool(token) and self.of_token(token) is not None)

    def of_listener(self, name: str) -> Login | None:
        user = self.by_name.get(name)
        return None if user is None else Login(user)

    def again(self, login: Login) -> Login | None:
        """The same login after users have changed; None if its user or its proof is no longer valid."""
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
