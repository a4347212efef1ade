"""Logins of all protocols: compares what a client says with what is kept, and slows down addresses with too many wrong
attempts.

    logins.prove(Said(token="..."), "10.0.0.1:40960", done)    done(Login) or done(None), now or later

Owns the comparison of passwords (on threads) and the logins that wait for it. A login that would wait too long is
refused unchecked.
"""

from __future__ import annotations

import base64
import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from mq_shards.acceptor.access.attempts import MAX_WAIT_S, Attempts
from mq_shards.acceptor.access.rights import Login, Users
from mq_shards.acceptor.access.secrets import Secrets

FOREVER: Final = -1
MAX_WAITING: Final = 4096  # logins that wait for their turn; further ones are refused unchecked
MAX_DELAYED: Final = 4096  # refusals that wait; further ones are sent at once
# The hash of no password: it makes a login of an unknown user take as long as that of a known one.
NOBODYS: Final = "$2b$12$C6UzMDM.H6dfI/f/IKcEeOzJXrKpJcFkgZN5PVyUjCYQf8sTDhQ2C"

Done = Callable[[Login | None], None]
CallLater = Callable[[float, Callable[[], None]], object]


@dataclass(slots=True, eq=False, repr=False)
class Said:
    """What a client has said of itself. The certificate's names were verified."""

    user: str = ""
    password: str = ""
    token: str = ""
    certificate: tuple[str, ...] = ()

    @classmethod
    def of_secret(cls, secret: str, certificate: tuple[str, ...] = ()) -> Said:
        """For protocols with a single secret: a token, or NAME:PASSWORD."""
        user, colon, password = secret.partition(":")
        return cls(user, password, certificate=certificate) if colon else cls(token=secret, certificate=certificate)

    @classmethod
    def of_authorization(cls, header: str, certificate: tuple[str, ...] = ()) -> Said:
        """For the Authorization header of an HTTP request: Bearer or Basic. Any other kind makes a login that fails."""
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
        # If the user is empty, the password is a token.
        return cls(user, password, certificate=certificate) if user else cls(token=password, certificate=certificate)


class Logins:
    """To be used by one thread only. `poke` is called on another one when settle() has something to do."""

    def __init__(
        self, users: Callable[[], Users], poke: Callable[[], None], call_later: CallLater, attempts: Attempts
    ) -> None:  # fmt: skip
        self._users = users
        self._call_later = call_later
        self._secrets = Secrets(poke)
        self._waiting = 0
        self._delayed = 0  # apart from those that wait, as one address can have any number of them
        self._attempts = attempts

    def prove(self, said: Said, address: str, done: Done) -> None:
        """Checks a login and calls `done` now or later. `address`: HOST:PORT, or "" if unknown."""
        users = self._users()
        found = users.of_token(said.token) if said.token else None
        if found is None and not said.token and not said.user:
            found = users.of_certificate(said.certificate)
        if found is not None:
            done(found)
        elif said.user:
            self._prove_password(said, address, done)
        else:
            self.refuse(address, partial(done, None))

    def refuse(self, address: str, refused: Callable[[], None]) -> None:
        """A login was checked, and was wrong: calls `refused` when it may be answered, now or later."""
        self._later(self._attempts.failed(address), refused)

    def _prove_password(self, said: Said, address: str, done: Done) -> None:
        user = self._users().by_name.get(said.user)
        login = None if user is None or not user.password else Login(user, user.password)
        if login is not None and self._secrets.is_known(login.by, said.password):
            done(login)
            return
        wait_s = self._attempts.begin(address)
        if wait_s is None or (wait_s > 0 and self._waiting >= MAX_WAITING):
            # Later, because a client that is refused at once tries again at once.
            self._later(MAX_WAIT_S, partial(done, None))
            return

        def compared(right: bool) -> None:
            self._attempts.end(address, right=right and login is not None)
            # The users may have changed during the comparison.
            done(self._users().again(login) if right and login is not None else None)

        def compare() -> None:
            right = self._secrets.compare(NOBODYS if login is None else login.by, said.password, compared)
            if right is not None:
                compared(right)

        if wait_s <= 0:
            compare()
            return
        self._waiting += 1

        def turn() -> None:
            self._waiting -= 1
            compare()

        self._call_later(wait_s, turn)

    def _later(self, wait_s: float, refused: Callable[[], None]) -> None:
        if wait_s <= 0 or self._delayed >= MAX_DELAYED:
            refused()
            return
        self._delayed += 1

        def refuse() -> None:
            self._delayed -= 1
            refused()

        self._call_later(wait_s, refuse)

    def settle(self) -> None:
        """Finishes the logins whose passwords have been compared meanwhile."""
        self._secrets.settle()

    def close(self) -> None:
        self._secrets.close()


class Timers:
    """Work to be done later, for a loop that asks how long it may wait."""

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
