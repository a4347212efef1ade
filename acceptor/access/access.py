"""Users in an acceptor: which user a listener or a login stands for, and counts of what was refused.

Whether users are configured at all is fixed for the life of a process; the users and their rights can change at any
time. A protocol calls `login` to find out who a client is, and `User.may` for what it may do. Protocol.users_changed()
tells it that both may have changed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import orjson
from mq_shards.acceptor.access import rights
from mq_shards.acceptor.access.arrival import Arrival
from mq_shards.acceptor.access.attempts import Attempts
from mq_shards.acceptor.access.logins import FOREVER, Done, Logins, Said, Timers
from mq_shards.acceptor.access.rights import Login, User, Users
from mq_shards.acceptor.remarks import Remarks
from mq_shards.ringbuf.calls import Asked, Calls

REFUSED: Final = "access.refused"  # the gateway's call for the counts
SAID_BYTES: Final = 200  # the most bytes of a name in a log line
NOBODY: Final = "no user"

log = logging.getLogger(__name__)


class Access:
    def __init__(self, poke: Callable[[], None], listener_of: Callable[[int], int], attempts: Attempts) -> None:
        """`listener_of`: the listener that accepted a connection."""
        self.on = False  # users are configured
        self.users = Users()
        self._listener_of = listener_of
        self._named: dict[int, str] = {}  # by listener: the user of its clients that do not log in
        self._open: set[int] = set()  # listeners that ask for no login
        self._plain: set[int] = set()  # listeners that are not encrypted from the first byte
        self._timers = Timers()
        self.logins: Final = Logins(lambda: self.users, poke, self._timers.call_later, attempts)
        self._remarks = Remarks(log)
        self._refused_logins: Counter[str] = Counter()
        self._refused_actions: Counter[str] = Counter()

    def learn(self, content: bytes) -> None:
        self.users = rights.decode(content)
        self.on = True

    def listening(self, listener: int, user: str, *, is_open: bool, is_encrypted: bool = False) -> None:
        """`user`: the user of clients there that do not log in. `is_open`: clients there need not be users."""
        if not is_encrypted:
            self._plain.add(listener)
        if user:
            self._named[listener] = user
        if is_open:
            self._open.add(listener)

    def guards(self, conn: int) -> bool:
        """Whether the client of this connection must be a user."""
        return self.on and self._listener_of(conn) not in self._open

    def arrival(self, conn: int) -> Arrival:
        """How the connection was accepted, for the process that takes it over."""
        listener = self._listener_of(conn)
        return Arrival(self._named.get(listener, ""), listener in self._open)

    def listener_like(self, arrival: Arrival) -> int | None:
        """An unencrypted listener with the same user and openness as that arrival; None if there is none."""
        for listener in sorted(self._plain):
            if (self._named.get(listener, ""), listener in self._open) == (arrival.user, arrival.is_open):
                return listener
        return None

    def of_listener(self, conn: int) -> Login | None:
        """The user of clients that do not log in, by the listener of the connection; None if it names none."""
        name = self._named.get(self._listener_of(conn), "")
        return self.users.of_listener(name) if name else None

    def concerns(self, said: Said) -> bool:
        """Whether a login, right or wrong, is meant for a user of ours, where another authority checks logins too."""
        if not (said.user or said.token):
            return self.users.of_certificate(said.certificate) is not None
        return self.users.concerns(said.user, said.token)

    def login(self, protocol: str, conn: int, said: Said, address: str, done: Done) -> None:
        """Finds out who the client of a guarded connection is: by what it said, else by its certificate, else by its
        listener. Calls `done` now or later."""

        def proven(login: Login | None) -> None:
            if login is None:
                self.count_refused(protocol, address, said.user)
            done(login)

        if not (said.user or said.token) and (named := self.of_listener(conn)) is not None:
            of_certificate = self.users.of_certificate(said.certificate)
            done(named if of_certificate is None else of_certificate)
            return
        self.logins.prove(said, address, proven)

    def refuse(self, protocol: str, address: str, who: str, refused: Callable[[], None]) -> None:
        """A protocol has checked a login by itself, and it was wrong: counts and logs it, and calls `refused` when it
        may be answered, now or later."""
        self.count_refused(protocol, address, who)
        self.logins.refuse(address, refused)

    def count_refused(self, protocol: str, address: str, who: str) -> None:
        """Counts and logs a wrong login."""
        self._refused_logins[protocol] += 1
        self._remarks.of_client(address, f"{protocol}: a login was refused ({who[:SAID_BYTES] or NOBODY})")

    def count_action(self, protocol: str) -> None:
        """Counts an action that was refused because the client has no right to it."""
        self._refused_actions[protocol] += 1

    def refused(self, protocol: str, user: User | None, right: str, topic: str) -> None:
        """Counts a refused action, and logs it at level debug."""
        self.count_action(protocol)
        name = "nobody" if user is None else user.name
        log.debug("%s: %s may not %s %.*s", protocol, name, right, SAID_BYTES, topic)

    def serve(self, calls: Calls, by_codecs: Callable[[], Mapping[str, int]]) -> None:
        """Answers the gateway's call for the counts. `by_codecs`: actions that codecs refused themselves, by
        protocol, of all protocols."""

        def answer(asked: Asked) -> None:
            of_codecs = by_codecs()
            none = dict.fromkeys(of_codecs, 0)  # a counter that is not there until it counts has a rate only afterwards
            actions = {**none, **(self._refused_actions + Counter(of_codecs))}
            asked.answer(orjson.dumps({"logins": {**none, **self._refused_logins}, "actions": actions}))

        calls.serve(REFUSED, answer)

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        """How long the engine may run before expire() has something to do."""
        waits = self._timers.wait_ns(), self._remarks.wait_ns()
        return min((wait_ns for wait_ns in waits if wait_ns != FOREVER), default=FOREVER)

    def expire(self) -> None:
        self._timers.expire()
        self._remarks.expire()

    def close(self) -> None:
        self.logins.close()
