"""Users, as an acceptor has them: who comes by which listener, who logs in, and what was refused.

There are users or there are none, for as long as a process lives; which, and what they may, can change at any time. A
protocol asks `login` for who somebody is, `User.may` for what is allowed, and hears by Protocol.users_changed() that
both may be otherwise.
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

REFUSED: Final = "access.refused"  # the gateway asks for that
SAID_BYTES: Final = 200  # of a name in the journal

log = logging.getLogger(__name__)


class Access:
    def __init__(self, poke: Callable[[], None], listener_of: Callable[[int], int], attempts: Attempts) -> None:
        """`listener_of`: by which a connection came."""
        self.on = False  # there are users
        self.users = Users()
        self._listener_of = listener_of
        self._named: dict[int, str] = {}  # listeners that say who comes there
        self._open: set[int] = set()  # those where nobody has to be anybody
        self._plain: set[int] = set()  # those that are not encrypted from the first byte
        self._timers = Timers()
        self.logins: Final = Logins(lambda: self.users, poke, self._timers.call_later, attempts)
        self._remarks = Remarks(log)
        self._refused_logins: Counter[str] = Counter()
        self._refused_actions: Counter[str] = Counter()

    def learn(self, content: bytes) -> None:
        self.users = rights.decode(content)
        self.on = True

    def listening(self, listener: int, user: str, *, is_open: bool, is_encrypted: bool = False) -> None:
        """`user` comes there, who says nothing else; or whoever does is not asked."""
        if not is_encrypted:
            self._plain.add(listener)
        if user:
            self._named[listener] = user
        if is_open:
            self._open.add(listener)

    def guards(self, conn: int) -> bool:
        """Somebody has to be somebody there."""
        return self.on and self._listener_of(conn) not in self._open

    def arrival(self, conn: int) -> Arrival:
        """How it came, of one that goes elsewhere."""
        listener = self._listener_of(conn)
        return Arrival(self._named.get(listener, ""), listener in self._open)

    def listener_like(self, arrival: Arrival) -> int | None:
        """One by which others come as that one did, and which is not encrypted; None if there is none."""
        for listener in sorted(self._plain):
            if (self._named.get(listener, ""), listener in self._open) == (arrival.user, arrival.is_open):
                return listener
        return None

    def of_listener(self, conn: int) -> Login | None:
        """Who comes there and says nothing."""
        name = self._named.get(self._listener_of(conn), "")
        return self.users.of_listener(name) if name else None

    def concerns(self, said: Said) -> bool:
        """Beside others who know somebody: that one is a user of ours, right or wrong."""
        return self.users.concerns(said.user, said.token)

    def login(self, protocol: str, conn: int, said: Said, address: str, done: Done) -> None:
        """Of a connection that is guarded; what was said counts, then by which listener it came. `done` now or
        later."""

        def proven(login: Login | None) -> None:
            if login is None:
                self.count_refused(protocol, address, said.user or "no user")
            done(login)

        if not (said.user or said.token) and (named := self.of_listener(conn)) is not None:
            of_certificate = self.users.of_certificate(said.certificate)
            done(named if of_certificate is None else of_certificate)
            return
        self.logins.prove(said, address, proven)

    def count_refused(self, protocol: str, address: str, who: str) -> None:
        """A login that was wrong."""
        self._refused_logins[protocol] += 1
        self._remarks.of_client(address, f"{protocol}: a login was refused ({who[:SAID_BYTES]})")

    def count_action(self, protocol: str) -> None:
        """Something that was refused to who has no right to it."""
        self._refused_actions[protocol] += 1

    def refused(self, protocol: str, user: User | None, right: str, topic: str) -> None:
        """Counted, and said to who wants to know."""
        self.count_action(protocol)
        name = "nobody" if user is None else user.name
        log.debug("%s: %s may not %s %.*s", protocol, name, right, SAID_BYTES, topic)

    def serve(self, calls: Calls, by_codecs: Callable[[], Mapping[str, int]]) -> None:
        """`by_codecs`: actions that they have refused themselves, by protocol."""

        def answer(asked: Asked) -> None:
            actions = self._refused_actions + Counter(by_codecs())
            asked.answer(orjson.dumps({"logins": self._refused_logins, "actions": actions}))

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
