"""Converts users of the broker, which all protocols share (acceptor/access/), to NATS users: their rights to topics
become permissions for subjects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mq_shards.acceptor.access.logins import Said
from mq_shards.acceptor.access.rights import CONSUME, PUBLISH, Login
from mq_shards.acceptor.access.rights import User as CommonUser
from mq_shards.acceptor.protocols.nats.client import Client
from mq_shards.acceptor.protocols.nats.who import Limits, Permissions, Responses, User

NOTHING: Final = Limits(deny=(">",))


def user_of(login: Login) -> User:
    return User(name=login.user.name, permissions=permissions_of(login.user))


def said_by(client: Client, certificate: tuple[str, ...]) -> Said:
    options = client.options
    name, password, token = options.get("user", ""), options.get("pass", ""), options.get("auth_token", "")
    if name and not password and not token:
        return Said(token=name, certificate=certificate)  # as nats://TOKEN@HOST is understood by clients
    return Said(name, password, token, certificate)


def permissions_of(user: CommonUser) -> Permissions:
    """A user that may consume may also answer requests, without other rights to publish."""
    publish = _limits(user, PUBLISH)
    is_limited = publish.allow is not None or bool(publish.deny)
    answers = Responses() if user.patterns(CONSUME) and is_limited else None
    if answers is not None and publish == NOTHING:
        publish = Limits()  # Responses allow nothing else
    return Permissions(publish, _limits(user, CONSUME), answers)


def _limits(user: CommonUser, right: str) -> Limits:
    if user.may_all(right):
        return Limits()
    allow = tuple(dict.fromkeys(subject for text in user.patterns(right) for subject in _subjects(text)))
    return Limits(allow) if allow else NOTHING


def _subjects(pattern: str) -> Iterable[str]:
    """The NATS patterns for a pattern of topics; none when it can match no subject. Tokens are matched as a whole."""
    found = [pattern]
    if pattern.endswith(".*"):
        found = [pattern[:-1] + ">"]
    elif pattern.endswith("*"):
        found = [pattern[:-1], pattern[:-1] + ".>"]
    return [one for one in found if _is_subject(one)]


def _is_subject(text: str) -> bool:
    tokens = text.removesuffix(".>").split(".")
    return not any(not token or token in ("*", ">") or any(letter.isspace() for letter in token) for token in tokens)
