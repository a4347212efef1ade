"""Logins, as all protocols have them: what somebody says, compared with what is kept, and slowed down where too much
was wrong.

    logins.prove(Said(token="..."), "10.0.0.1:40960", done)    done(Login) or done(None), now or later

Owns the comparison of passwords (on threads) and who waits for it. Whoever waits for too long is refused unseen.
"""

from __future__ import annotations

import base64
import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from mq_shards.acceptor.access.attempts import Attempts
from mq_shards.acceptor.access.rights import Login, Users
from mq_shards.acceptor.access.secrets import Secrets

FOREVER: Final = -1
MAX_WAITING: Final = 4096  # for their turn; beyond, one is refused unseen
# Who does not exist takes as long as who does. Of no password.
NOBODYS: Final = "$2b$12$C6UzMDM.H6dfI/f/IKcEeOzJXrKpJcFkgZN5PVyUjCYQf8sTDhQ2C"

Done = Callable[[Login | None], None]
CallLater = Callable[[float, Callable[[], None]], object]


@dataclass(frozen=True, slots=True)
class Said:
    """What somebody has said of himself; a certificate has been verified."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    certificate: tuple[str, ...] = ()

    @classmethod
    def of_secret(cls, secret: str, certificate: tuple[str, ...] = ()) -> Said:
        """Where there is room for one word: a token, or NAME:PASSWORD."""
        user, colon, password = secret.partition(":")
        return cls(user, password, certificate=certificate) if colon else cls(token=secret, certificate=certificate)


    @classmethod
    def of_authorization(cls, header: str, certificate: tuple[str, ...] = ()) -> Said:
        """An HTTP request's Authorization: Bearer or Basic; of another kind, what is not right."""
        kind, _, given = header.partition(" ")
        given = given.strip()
        if kind.lower() == "bearer":
            return cls(token=given, certificate=certificate)
        if kind.lower() != "basic":
            return cls(token=header)
        try:
            user, _, password = base64.b64decode(given, validate=True).decode(errors="replace").partition(":")
        except ValueError:
            return cls(token=header)
        # A token is a user without a name, or a password that no user needs.
        return cls(user, password, certificate=certificate) if user else cls(token=password, certificate=certificate)


class Logins:
    """Not for use by several threads. `poke` is called on one of its own when settle() has something to do."""

    def __init__(
        self, users: Callable[[], Users], poke: Callable[[], None], call_later: CallLater, attempts: Attempts
    ) -> None:  # fmt: skip
        self._users = users
        self._call_later = call_later
        self._secrets = Secrets(poke)
        self._waiting = 0
        self._attempts = attempts

    def prove(self, said: Said, address: str, done: Done) -> None:
        """`address`: HOST:PORT, or "" where there is none."""
        users = self._users()
        found = users.of_token(said.token) if said.token else None
        if found is None and not said.token and not said.user:
            found = users.of_certificate(said.certificate)
        if found is not None:
            done(found)
        elif said.user:
            self._prove_password(said, address, done)
        else:
            self._later(self._attempts.failed(address), partial(done, None))

    def _prove_password(self, said: Said, address: str, done: Done) -> None:
        user = self._users().by_name.get(said.user)
        login = None if user is None or not user.password else Login(user, user.password)
        if login is not None and self._secrets.is_known(login.by, said.password):
            done(login)
            return
        wait_s = self._attempts.begin(address)
        if wait_s is None or self._waiting >= MAX_WAITING:
            self._later(0.0, partial(done, None))
            return

        def compared(right: bool) -> None:
            self._attempts.end(address, right=right and login is not None)
            # Users may have changed meanwhile.
            done(self._users().again(login) if right and login is not None else None)

        def compare() -> None:
            right = self._secrets.compare(NOBODYS if login is None else login.by, said.password, compared)
            if right is not None:
                compared(right)

        self._later(wait_s, compare)

    def _later(self, wait_s: float, work: Callable[[], None]) -> None:
        if wait_s <= 0 or self._waiting >= MAX_WAITING:
            work()
            return
        self._waiting += 1

        def run() -> None:
            self._waiting -= 1
            work()

        self._call_later(wait_s, run)

    def settle(self) -> None:
        """What has been compared since."""
        self._secrets.settle()

    def close(self) -> None:
        self._secrets.close()


class Timers:
    """What is to be done later, for a loop that asks how long it may wait."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def call_later(self, wait_s: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self._now_s() + wait_s, next(self._numbers), work))

    def wait_ns(self) -> int:
        return max(int((self._due[0][0] - self._now_s()) * 1e9), 0) + 1 if self._due else FOREVER

    def expire(self) -> None:
        while self._due and self._due[0][0] <= self._now_s():
            heapq.heappop(self._due)[2]()
