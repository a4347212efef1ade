"""nsqd's HTTP API in an acceptor: what its codec, nsq_http.c, leaves to Python. The codec hands over three kinds of
commands:

    empty           the next request is not plainly a publish: the gateway serves the connection until a publish
    a topic         the gateway must prepare the topic before anything is published to it
    ? topic login   where users are configured: may this client publish to the topic?

The gateway also answers a client that may not publish. Only a wrong login is answered here: it must not be tried twice.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor.access import arrival
from mq_shards.acceptor.access.arrival import Arrival
from mq_shards.acceptor.access.logins import Said
from mq_shards.acceptor.access.rights import PUBLISH, Login
from mq_shards.acceptor.engine import FOREVER, Engine, EngineError
from mq_shards.acceptor.option_kinds import MS
from mq_shards.acceptor.protocol import Broker, Settings
from mq_shards.acceptor.protocols.nsq.nsq_http import NsqHttp
from mq_shards.acceptor.protocols.nsq.options import is_http_forbidden
from mq_shards.ringbuf.calls import Reply
from mq_shards.ringbuf.handover import MOST_BYTES, Handover

# The codec's options by the nsqd options that they are set from.
ENGINE_OPTIONS: Final = {
    "max-msg-size": "max-msg-size",
    "max-body-size": "max-body-size",
    "max-req-timeout": "max-req-timeout-ns",
    "msg-timeout": "msg-timeout-ns",
}
RETRY_NS: Final = 20 * MS
WHO: Final = b"?"  # begins a question whether a client may publish

if TYPE_CHECKING:
    from mq_shards.acceptor.relays import Relays

log = logging.getLogger(__name__)


class NsqHttpServing(NsqHttp):
    def __init__(self, engine: Engine, settings: Settings, broker: Broker) -> None:
        super().__init__(engine, settings, broker)
        for ours, theirs in ENGINE_OPTIONS.items():
            engine.set(f"nsq-http.{theirs}", settings[ours])
        engine.set("nsq-http.serves", int(not is_http_forbidden(settings)))
        self._handover: Handover | None = None
        self._relays: Relays | None = None  # of encrypted connections
        self._waiting: dict[int, None] = {}  # connections to hand to the gateway, in order
        self._retry_at_ns = FOREVER
        self._ask_before_new_topics(bool(settings["lookupd-tcp-address"]))

    def hand_over_by(self, handover: Handover) -> None:
        self._handover = handover
        assert self._broker.watched is not None
        self._broker.watched.watch(handover.fileno(), self._take_back)
        self._give_waiting()

    def shared(self, what: str, message: Mapping[str, Any]) -> None:
        if what == "lookupds":
            self._ask_before_new_topics(message["any"])

    def _ask_before_new_topics(self, wanted: bool) -> None:
        self._engine.configure(self._number, "prepares", int(wanted))

    def command(self, conn: int, command: bytes) -> None:
        if command.startswith(WHO):
            topic, _, said = command.removeprefix(WHO).partition(b"\n")
            self._decide(conn, topic.decode(), said.decode("latin-1"))
        elif command:
            self._prepare(conn, command)
        else:
            self._waiting[conn] = None
            self._give_waiting()

    def closed(self, conn: int) -> None:
        self._waiting.pop(conn, None)
        if self._relays is not None:
            self._relays.closed(conn)

    # --- rights -----------------------------------------------------------------------------------------------------

    def users_changed(self) -> None:
        self._engine.configure(self._number, "users")

    def _decide(self, conn: int, topic: str, header: str) -> None:
        """Decides whether a client may publish. The codec applies the decision to all connections with the same login
        until users change."""
        access = self.access
        if access is None or not access.guards(conn):
            self._say(conn, "open")
            return
        said = Said.of_authorization(header) if header else Said()
        if said.user or said.token:
            remote = self._engine.remote(conn)
            access.login(self.name, conn, said, remote, lambda login: self._proven(conn, topic, login))
            return
        login = None
        if not header:
            login = access.users.of_certificate(self.certificate_names(conn)) or access.of_listener(conn)
        self._allow(conn, topic, login)

    def _proven(self, conn: int, topic: str, login: Login | None) -> None:
        """The login has been checked, perhaps later: by then the connection may be closed."""
        if login is None:
            self._say(conn, "unknown")
        else:
            self._allow(conn, topic, login)

    def _allow(self, conn: int, topic: str, login: Login | None) -> None:
        self._say(conn, "grant" if login is not None and login.user.may(PUBLISH, topic) else "leave")

    def _say(self, conn: int, what: str) -> None:
        if self._engine.call(conn, what):
            self._engine.resume(conn)

    # --- new topics -------------------------------------------------------------------------------------------------

    def _prepare(self, conn: int, topic: bytes) -> None:
        """Has the gateway prepare the topic. The message is published even without an answer, so that it does not wait
        long for the gateway."""

        def heard(reply: Reply) -> None:
            self._say(conn, "admit")

        timeout_ns = self._settings["http-client-connect-timeout"] + self._settings["http-client-request-timeout"]
        assert self._broker.calls is not None
        self._broker.calls.ask("nsq.prepare", topic, heard, timeout_ns=timeout_ns)

    # --- connections ------------------------------------------------------------------------------------------------

    def _give_waiting(self) -> None:
        """Hands over as many connections as the socket pair has room for. The others wait, their input in the
        engine."""
        self._retry_at_ns = FOREVER
        while self._waiting and self._handover is not None:
            conn = next(iter(self._waiting))
            give = self._relay if self._engine.is_filtered(conn) else self._give
            if not give(self._handover, conn):
                self._retry_at_ns = time.monotonic_ns() + RETRY_NS
                return
            self._waiting.pop(conn, None)

    def _give(self, handover: Handover, conn: int) -> bool:
        """Hands a connection to the gateway. False: it must be tried again later."""
        found = self._engine.socket_of(conn)
        if found is not None:
            if len(found[1]) > MOST_BYTES:
                self._engine.close_connection(conn)
                return True
            if not handover.give(*found, self._arrival(conn).encode()):
                return False
            self._engine.forget(conn)
        return True

    def _relay(self, handover: Handover, conn: int) -> bool:
        """Hands over an encrypted connection, whose bytes continue to pass through this process."""
        relays = self._relays_made()
        try:
            far, name, received = relays.begin(conn)
        except OSError as error:
            log.debug("a connection cannot be relayed: %s", error)
            return False
        arrival = self._arrival(conn)._replace(
            is_encrypted=True,
            peer=self._engine.remote(conn).rpartition(":")[0].strip("[]"),
            certificate_names=self.certificate_names(conn),
            relay=name,
        )
        with far:
            if len(received) > MOST_BYTES:
                self._engine.close_connection(conn)
                return True
            if handover.give(far.fileno(), received, arrival.encode()):
                return True
        relays.undo(name, received)
        return False

    def _relays_made(self) -> Relays:
        if self._relays is None:
            from mq_shards.acceptor.relays import Relays

            assert self.secured is not None and self._broker.watched is not None
            self._relays = Relays(self._engine, self._broker.watched, self.secured.upgrades)
        return self._relays

    def _arrival(self, conn: int) -> Arrival:
        access = self.access
        return Arrival(is_open=True) if access is None else access.arrival(conn)

    def _take_back(self) -> None:
        """Takes back a connection whose next request is a publish."""
        assert self._handover is not None
        found = self._handover.take()
        if found is None:
            return
        sock, received, came = found
        came_by = arrival.decode(came)
        if came_by.relay:
            # A relay of an earlier acceptor process has lost its client with that process.
            conn = None if self._relays is None else self._relays.end(came_by.relay, sock, received)
            if conn is not None:
                self._engine.resume(conn)
            return
        listener = 0 if self.access is None else self.access.listener_like(came_by)
        if listener is None:
            sock.close()
            return
        fd = sock.detach()
        try:
            self._engine.adopt(fd, self._number, received, listener)
        except EngineError as error:
            log.debug("a connection that came back cannot be kept: %s", error)
            socket.close(fd)

    def wait_ns(self) -> int:
        return FOREVER if self._retry_at_ns == FOREVER else max(0, self._retry_at_ns - time.monotonic_ns())

    def expire(self) -> None:
        if self._retry_at_ns != FOREVER and time.monotonic_ns() >= self._retry_at_ns:
            self._give_waiting()

    def close(self) -> None:
        if self._relays is not None:
            self._relays.close()
        if self._handover is not None:
            self._handover.close()


SERVING: Final = NsqHttpServing
