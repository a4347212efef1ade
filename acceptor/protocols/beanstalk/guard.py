"""Which users the clients are, and what they may do, where users are configured. The codec remembers the decisions:
csrc/acceptor/protocols/beanstalk/beanstalk_access.c.

The protocol has no login: the user is that of the client's certificate, or of the listener.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from mq_shards.acceptor.access.access import Access
from mq_shards.acceptor.access.rights import CONSUME, PUBLISH, Login
from mq_shards.acceptor.engine import Engine

QUESTION: Final = b"\0"  # the first byte of a question from the codec
NOBODY: Final = "nobody"
# enum beanstalk_verdict
UNDECIDED: Final = 0
ALLOWED: Final = 1
REFUSED: Final = 2

log = logging.getLogger(__name__)


class Guard:
    def __init__(
        self, engine: Engine, protocol: str, access: Access, certificate_names: Callable[[int], tuple[str, ...]]
    ) -> None:
        self._engine = engine
        self._protocol = protocol
        self._access = access
        self._certificate_names = certificate_names
        self._logins: dict[int, Login] = {}
        engine.set(f"{protocol}.guarded", 1)

    def closed(self, conn: int) -> None:
        self._logins.pop(conn, None)

    def introduce(self, conn: int) -> bool:
        """Finds out the user at the connection's first command. False: it is none, so the client is refused."""
        if not self._access.guards(conn):
            self._engine.call(conn, "trusted")
            return True
        names = self._certificate_names(conn)
        login = self._access.users.of_certificate(names) or self._access.of_listener(conn)
        if login is None:
            self._access.count_refused(self._protocol, self._engine.remote(conn), names[0] if names else NOBODY)
            return False
        self._logins[conn] = login
        self._tell(conn, login)
        topics = self._engine.call_for_list(conn, "watched")
        for topic, name in zip(topics, self._engine.topic_names(topics), strict=True):
            if not login.user.may(CONSUME, name.decode(errors="replace")):
                self._engine.call(conn, "unwatch", topic)
        self._engine.call(conn, "introduced")
        return True

    def may(self, conn: int, right: str, tube: bytes) -> bool:
        """Whether the connection's user has that right. A connection without a user is trusted: its listener is
        open."""
        login, name = self._logins.get(conn), tube.decode(errors="replace")
        if login is None or login.user.may(right, name):
            return True
        self._access.refused(self._protocol, login.user, right, name)
        return False

    def is_guarded(self, conn: int) -> bool:
        return conn in self._logins

    def say_verdict(self, conn: int, *, allowed: bool) -> None:
        """Answers the codec's question about a line."""
        self._engine.call(conn, "verdict", ALLOWED if allowed else REFUSED)

    def say_may_put(self, conn: int) -> None:
        """Tells the codec whether the client may put into the tube that it uses."""
        used = self._engine.topic_name(self._engine.call(conn, "used"))
        allowed = self.may(conn, PUBLISH, used)
        self._engine.call(conn, "may-put", ALLOWED if allowed else REFUSED)

    def users_changed(self) -> None:
        """Closes connections whose user is gone, or that watch a tube they may no longer consume: so their reserved
        jobs become ready again."""
        for conn, before in list(self._logins.items()):
            login = self._access.users.again(before)
            watched = self._engine.topic_names(self._engine.call_for_list(conn, "watched"))
            if login is None or not all(login.user.may(CONSUME, name.decode(errors="replace")) for name in watched):
                self._access.refused(self._protocol, before.user, CONSUME, "any more")
                self._logins.pop(conn)
                self._engine.close_connection(conn)
            else:
                self._logins[conn] = login
                self._tell(conn, login)

    def _tell(self, conn: int, login: Login) -> None:
        self._engine.call(conn, "consumes-all", int(login.user.may_all(CONSUME)))
        self._engine.call(conn, "may-put", UNDECIDED)
