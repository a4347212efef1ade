"""Whether a connection is alive. Before a client is refused because another has the name or the exclusive place, the
other is sent a PING. If it sends nothing for a while it is disconnected, and the client is accepted. Without this,
clients that reconnect would fail.

The gateway passes the question on to other acceptors. Without a gateway their connections count as alive: the client is
refused, and tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import Final, TypeAlias

import orjson
from mq_shards.acceptor.engine import FOREVER, Engine
from mq_shards.ringbuf.calls import Asked, Calls, Reply

WAIT_NS: Final = 5_000_000_000
# Longer than another acceptor waits.
ELSEWHERE_NS: Final = WAIT_NS + 2_000_000_000

Then: TypeAlias = Callable[[bool], None]


class Liveness:
    def __init__(
        self,
        engine: Engine,
        clients: Container[int],
        acceptor: int,
        calls: Calls | None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`clients`: the connections of Pulsar clients that are open. `acceptor`: the number of this acceptor."""
        self._engine = engine
        self._clients = clients
        self._acceptor = acceptor
        self._calls = calls
        self._now_ns = now_ns
        self._until_ns: dict[int, int] = {}  # by connection; soonest first, as all wait equally long
        self._then: dict[int, list[Then]] = {}
        if calls is not None:
            calls.serve("pulsar.look", self._asked)

    def is_here(self, acceptor: int) -> bool:
        return acceptor == self._acceptor

    def look_at(self, acceptor: int, conn: int, then: Then) -> None:
        """As `look`, for a connection of any acceptor."""
        if self.is_here(acceptor):
            self.look(conn, then)
            return

        def heard(reply: Reply) -> None:
            then(not reply.ok or bool(orjson.loads(reply.body)["alive"]))

        if self._calls is None:
            then(True)
            return
        body = orjson.dumps({"acceptor": acceptor, "conn": conn})
        self._calls.ask("pulsar.alive", body, heard, timeout_ns=ELSEWHERE_NS)

    def _asked(self, asked: Asked) -> None:
        self.look(orjson.loads(asked.body)["conn"], lambda alive: asked.answer(orjson.dumps({"alive": alive})))

    def look(self, conn: int, then: Then) -> None:
        """Calls `then` with whether the connection is alive, mostly later. It has been closed if not."""
        if conn not in self._until_ns:
            # A number that a client had may be that of another protocol's connection by now.
            if conn not in self._clients or not self._engine.call(conn, "is-alive"):
                then(False)
                return
            self._until_ns[conn] = self._now_ns() + WAIT_NS
        self._then.setdefault(conn, []).append(then)

    def alive(self, conn: int) -> None:
        self._tell(conn, True)

    def closed(self, conn: int) -> None:
        self._tell(conn, False)

    def _tell(self, conn: int, alive: bool) -> None:
        self._until_ns.pop(conn, None)
        for then in self._then.pop(conn, ()):
            then(alive)

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        if not self._until_ns:
            return FOREVER
        return max(next(iter(self._until_ns.values())) - self._now_ns(), 0)

    def expired(self) -> list[int]:
        """Connections that have not answered in time. The caller closes them and calls closed()."""
        now = self._now_ns()
        return [conn for conn, until in self._until_ns.items() if until <= now]
