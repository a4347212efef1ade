"""The acceptor process: its main loop, and the supervisor's messages (described in supervisor/supervisor.py)."""

from __future__ import annotations

import logging
import os
import resource
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mq_shards.acceptor import engine, named_files
from mq_shards.acceptor.access.access import Access
from mq_shards.acceptor.access.attempts import Attempts
from mq_shards.acceptor.engine import FOREVER, Engine, Upcall, protocol_number
from mq_shards.acceptor.protocol import Broker, Protocol
from mq_shards.acceptor.protocols.table import PROTOCOLS, family
from mq_shards.acceptor.watched import Watched
from mq_shards.ringbuf import listening
from mq_shards.ringbuf.calls import Asked, Calls
from mq_shards.ringbuf.control import STDERR, Control, Message
from mq_shards.ringbuf.handover import Handover
from mq_shards.ringbuf.time_units import SECOND_NS

# A stop waits for nobody any longer than so many seconds from its beginning: until other servers have left, other
# acceptors have sent all that came from those, and all replies have been sent. And how often that is looked at.
PARTED_S: Final = 1.0
QUIET_S: Final = 1.5
FLUSHED_S: Final = 2.0
STOP_STEP_NS: Final = 10_000_000
# How long Python may handle upcalls before the engine, which moves the messages, runs again.
TURN_NS: Final = 1_000_000
# After so long without a look at the sockets, what has come is handled before timers that are due (like STALL_NS in
# csrc/acceptor/bounds.h), but not for longer than that.
STALL_NS: Final = 100_000_000
CATCH_UP_NS: Final = 1_000_000_000
# How often at most it is logged that no connection can be accepted.
FULL_SAID_S: Final = 60.0
# Descriptors that are no connection's: so many, and so many for each worker and acceptor.
SPARE_DESCRIPTORS: Final = 128
PEER_DESCRIPTORS: Final = 4
# How much of a command that could not be handled is logged.
LOGGED_BYTES: Final = 200

if TYPE_CHECKING:
    from mq_shards.acceptor.secure import SecureConnections, SecureContexts

NAME_OF: Final = {protocol_number(name): name for name in PROTOCOLS}

log = logging.getLogger(__name__)


class AcceptorProcess:
    def __init__(self, control: Control, start: Message, board_fd: int, wake_fd: int) -> None:
        self._control = control
        self._engine = Engine(start["index"], start["workers"], start["shards"], board_fd, wake_fd)
        settings = start["settings"]
        self._engine.set("acceptors", start["acceptors"])
        most = settings["broker"]["max-connections"]
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        fits = connections_that_fit(descriptors, start["workers"] + start["acceptors"])
        self._engine.set("max-connections", min(most, fits))
        self._what_is_short = "broker.max-connections allows" if most <= fits else "its file descriptors allow"
        self._engine.set("max-buffered-bytes", settings["broker"]["max-buffered-bytes"])
        self._engine.set("spin-ns", settings["broker"]["acceptor-spin-us"] * 1000)
        self._watched = Watched()
        self._access = Access(self._engine.poke, self._engine.listener, Attempts(self._engine.login_attempts()))
        self._calls = Calls(self._watched, time.monotonic_ns, expected=start["gateway"])
        identity = start["instance"], start["started_wall_ns"], start["index"], start["acceptors"]
        self._broker = Broker(*identity, self._calls, control.send, self._watched, self._access)
        self._settings: Mapping[str, Any] = settings
        self._protocols: dict[int, Protocol] = {}  # those that are spoken, see _protocol()
        self._has_users = False  # the supervisor has said who may do what
        self._calls.serve("published", self._published)
        self._access.serve(self._calls, self._refused_by_codecs)
        self._tls = settings["tls"]
        self._secure_contexts: SecureContexts | None = None  # None until a listener is encrypted
        self._secure: dict[int, SecureConnections] = {}  # by protocol: connections encrypted from the first byte
        self._serving = False
        self._to_listen: list[tuple[socket.socket, int]] = []  # sockets that do not listen yet, each with its backlog
        self._stopping = False
        self._full_said_at = -FULL_SAID_S
        self._gave_way_said_at, self._gave_way = -FULL_SAID_S, 0
        self._more = False  # upcalls may be left
        self._due_ns = FOREVER  # when the first timer expires; valid if `timed`
        self._timed = False
        self._looked_ns = time.monotonic_ns()  # when the engine was last run
        self._touched = True  # upcalls were handled that _expire() may have to follow up after the next run
        self._speak_those_that_act()

    # --- the protocols ----------------------------------------------------------------------------------------------

    def _protocol(self, number: int) -> Protocol:
        """Makes the protocol if nobody has needed it yet: each is code to load and memory to hold."""
        found = self._protocols.get(number)
        if found is None:
            self._speak(NAME_OF[number])
            found = self._protocols[number]
        return found

    def _speak_those_that_act(self) -> None:
        for name, protocol in PROTOCOLS.items():
            if protocol.acts_by_itself(protocol.settings_of(self._settings)):
                self._protocol(protocol_number(name))

    def _speak(self, name: str) -> None:
        """Makes the protocol and those of its family, which know each other."""
        made = {
            other: protocol.serving_class()(self._engine, protocol.settings_of(self._settings), self._broker)
            for other, protocol in PROTOCOLS.items()
            if family(other) == family(name)
        }
        self._protocols.update({protocol_number(other): protocol for other, protocol in made.items()})
        for protocol in made.values():
            protocol.meet(made)
        for protocol in made.values():
            if self._has_users:
                protocol.users_changed()
            if self._serving:
                protocol.serving()
        self._timed, self._touched = False, True

    # --- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serves until told to stop. EOFError when the supervisor is gone."""
        while not self._serving and not self._stopping:
            self._do(*self._control.receive())
        self._watched.watch(self._control.fileno(), self._hear)
        self._engine.control(self._watched.fileno())
        while not self._stopping:
            self._turns(FOREVER)
        self._stop()

    def _stop(self) -> None:
        """Clients say nothing more, at any acceptor; then other servers are sent the rest of it, and leave; and when
        those have said their last, what all that means for clients is sent to them."""
        engine, protocols, began = self._engine, list(self._protocols.values()), time.monotonic()
        engine.stop_listening()
        engine.quiesce()
        if engine.servers():
            self._turns_until(engine.others_are_quiet, began + PARTED_S)
            for protocol in protocols:
                protocol.parting()
            self._turns_until(lambda: not engine.servers(), began + PARTED_S)
        engine.say_quiet()
        self._turns_until(engine.others_are_quiet, began + QUIET_S)
        for protocol in protocols:
            protocol.stopping()
        self._turns_until(lambda: not engine.busy(), began + FLUSHED_S)
        for protocol in self._protocols.values():
            protocol.close()
        self._access.close()
        self._calls.close()
        self._engine.close()
        self._watched.close()
        self._control.send({"did": "stopped"})

    def _turns_until(self, is_over: Callable[[], object], deadline: float) -> None:
        while not is_over() and time.monotonic() < deadline:
            self._turns(STOP_STEP_NS)

    def _turns(self, max_wait_ns: int) -> None:
        """Runs the engine, and handles its upcalls for TURN_NS at most, so that other connections do not wait long."""
        if not self._timed:
            wait_ns, self._timed = self._timers_wait_ns(), True
            self._due_ns = FOREVER if wait_ns == FOREVER else time.monotonic_ns() + wait_ns
        if self._due_ns != FOREVER:
            max_wait_ns = sooner(max_wait_ns, max(self._due_ns - time.monotonic_ns(), 0))
        looked_ns, self._looked_ns = self._looked_ns, time.monotonic_ns()
        self._engine.run(0 if self._more else max_wait_ns)
        now_ns = time.monotonic_ns()
        if self._touched or (self._due_ns != FOREVER and now_ns >= self._due_ns):
            if now_ns - looked_ns >= STALL_NS:
                self._catch_up(now_ns + CATCH_UP_NS)
            self._expire()
        self._handle_upcalls()

    def _handle_upcalls(self) -> bool:
        """Returns whether there were any."""
        until_ns = time.monotonic_ns() + TURN_NS
        self._more, found = False, False
        for upcall in self._engine.upcalls():
            found = True
            self._handle(upcall)
            if time.monotonic_ns() > until_ns:
                self._more = True  # perhaps there are more
                break
        return found

    def _catch_up(self, until_ns: int) -> None:
        """If the process has stood still, what its clients have sent meanwhile may be what they are waited for."""
        self._handle_upcalls()
        is_new = True
        while is_new and time.monotonic_ns() < until_ns:
            self._engine.run(0)  # the run before may have been interrupted
            is_new = self._handle_upcalls()

    def _timers_wait_ns(self) -> int:
        """How long the engine may run before _expire() has something to do."""
        wait_ns = sooner(self._calls.wait_ns(), self._access.wait_ns())
        for protocol in self._protocols.values():
            wait_ns = sooner(wait_ns, protocol.wait_ns())
        for secure in self._secure.values():
            wait_ns = sooner(wait_ns, secure.upgrades.wait_ns())
        return wait_ns

    def _expire(self) -> None:
        self._timed = self._touched = False
        self._calls.expire()
        self._access.expire()
        for protocol in self._protocols.values():
            guarded(protocol, protocol.expire)
        for secure in self._secure.values():
            secure.upgrades.expire()

    def _handle(self, upcall: Upcall) -> None:
        if upcall.kind in (engine.INPUT, engine.OUTPUT) and (secure := self._secure.get(upcall.protocol)) is not None:
            self._pass(upcall, secure)
            return
        self._timed, self._touched = False, True
        if upcall.kind == engine.BROKEN:
            # Our workers write no such ring, so it is damaged. A new process gets new rings.
            raise RuntimeError(f"the ring from worker {upcall.conn} is broken")
        if upcall.kind == engine.CONTROL:
            self._watched.run()
        elif upcall.kind == engine.CANNOT_ACCEPT:
            self._say_full(upcall.conn)
        elif upcall.kind == engine.GAVE_WAY:
            self._say_gave_way(upcall.conn)
        elif upcall.kind == engine.POKED:
            self._access.logins.settle()
            for protocol in self._protocols.values():
                guarded(protocol, protocol.poked)
        else:
            self._serve(upcall)

    def _hear(self) -> None:
        arrived = self._control.receive_now()
        if arrived is not None:
            self._do(*arrived)

    def _say_full(self, why: int) -> None:
        """Logs, at most once a minute, that new clients wait in the kernel's queue."""
        now = time.monotonic()
        if now >= self._full_said_at + FULL_SAID_S:
            self._full_said_at = now
            reason = os.strerror(why) if why else f"there are as many as {self._what_is_short}"
            log.warning("new connections wait: %s", reason)

    def _say_gave_way(self, count: int) -> None:
        """Logs, at most once a minute, that new clients have the places of strangers."""
        self._gave_way += count
        now = time.monotonic()
        if now >= self._gave_way_said_at + FULL_SAID_S:
            self._gave_way_said_at = now
            which = f"{self._gave_way} that" if self._gave_way > 1 else "one that"
            log.warning("there are more connections than places: %s had said nothing made room for new ones", which)
            self._gave_way = 0

    def _serve(self, upcall: Upcall) -> None:
        """Handles an upcall. An exception fails only its connection, so that a defect costs no other client its own."""
        protocol = self._protocol(upcall.protocol)
        try:
            if upcall.answer is not None:
                protocol.answer(upcall.conn, upcall.answer)
            elif upcall.kind == engine.COMMAND:
                protocol.command(upcall.conn, upcall.line)
            elif upcall.kind == engine.CLOSED:
                if upcall.line:
                    protocol.last_words(upcall.conn, upcall.line)
                protocol.closed(upcall.conn)
                if (secure := self._secure.get(upcall.protocol)) is not None:
                    secure.upgrades.closed(upcall.conn)
            elif upcall.kind == engine.INPUT:
                protocol.input(upcall.conn, upcall.line)
            elif upcall.kind == engine.CLOSING:
                protocol.closing(upcall.conn, upcall.line)
            elif upcall.kind == engine.OUTPUT:
                protocol.output(upcall.conn, upcall.line)
        except Exception:
            what = upcall.answer or upcall.line[:LOGGED_BYTES]
            log.exception("cannot handle %r of connection %#x", what, upcall.conn)
            protocol.failed(upcall.conn)

    def _pass(self, upcall: Upcall, secure: SecureConnections) -> None:
        """Handles bytes of a connection that is encrypted from the first byte. As long as they only pass through, no
        timer changes, so the timers are not checked: that would take longer than the encryption."""
        try:
            passes = secure.input if upcall.kind == engine.INPUT else secure.upgrades.output
            if passes(upcall.conn, upcall.line):
                return
        except Exception:
            log.exception("cannot pass %d bytes of connection %#x", len(upcall.line), upcall.conn)
            self._protocols[upcall.protocol].failed(upcall.conn)
        self._timed, self._touched = False, True

    def _refused_by_codecs(self) -> dict[str, int]:
        return {name: self._engine.refused(protocol_number(name)) for name in PROTOCOLS}

    def _published(self, asked: Asked) -> None:
        """Messages were published through the gateway. The body has the topic's name and the messages, each behind its
        size (4 bytes, big-endian)."""
        parts = []
        at = 0
        while at < len(asked.body):
            end = at + 4 + int.from_bytes(asked.body[at : at + 4], "big")
            parts.append(asked.body[at + 4 : end])
            at = end
        for body in parts[1:]:
            self._engine.tell_published(parts[0], body)
        asked.answer(b"")

    def _send_clients_away(self) -> None:
        for number, protocol in self._protocols.items():
            if protocol.has_lame_duck:
                self._engine.stop_listening(number)
            protocol.lame_duck()

    def _listen(self, message: Message, fd: int) -> None:
        number = protocol_number(message["protocol"])
        protocol, host, port = self._protocol(number), message["host"], message["port"]
        scheme = message.get("scheme", protocol.name)
        otherwise = scheme != protocol.name and not message["secure"]
        protocol.host_name = message.get("name", "")
        if otherwise:
            protocol.listening_otherwise(scheme, host, port)
        else:
            protocol.listening(host, port)
        listener = self._engine.listen(fd, number, filtered=message["secure"] or otherwise)
        if message["secure"]:
            self._encrypt(number, protocol, listener, message)
        self._access.listening(
            listener, message.get("user", ""), is_open=message.get("open", False), is_encrypted=message["secure"]
        )

    def _begin_to_listen(self) -> None:
        """Only when all is loaded: a client that gets through is served at once."""
        for sock, backlog in self._to_listen:
            with sock:
                listening.begin(sock, backlog)
        self._to_listen.clear()

    def _encrypt(self, number: int, protocol: Protocol, listener: int, message: Message) -> None:
        from mq_shards.acceptor.secure import SecureConnections, SecureContexts

        if self._secure_contexts is None:
            self._secure_contexts = SecureContexts(self._tls)
        if number not in self._secure:
            self._secure[number] = protocol.secured = SecureConnections(self._engine, self._secure_contexts)
        self._secure[number].listening(listener, message["cert"], message["key"])

    def _reload(self, settings: Mapping[str, Any]) -> None:
        """Applies settings that the supervisor has checked. If a file has changed since then and is refused, the
        protocol goes on as before, and no connection is lost."""
        self._settings = settings
        self._speak_those_that_act()
        for protocol in self._protocols.values():
            try:
                protocol.reload(protocol.settings_of(settings))
            except ValueError as error:
                log.error("%s goes on as before: %s", protocol.name, error)
        self._tls = settings["tls"]
        if self._secure_contexts is not None:
            self._secure_contexts.reload(self._tls)

    def _do(self, message: Message, fds: list[int]) -> None:
        try:
            match message["do"]:
                case "peer":
                    self._engine.peer(message["worker"], fds[0], fds[1], fds[2])
                    log.debug("worker %d is attached (epoch %d)", message["worker"], message["epoch"])
                case "gone":
                    self._engine.peer_gone(message["worker"])
                    log.debug("worker %d is gone", message["worker"])
                case "configure":
                    with open(fds[0], "rb", closefd=False) as content:
                        self._protocol(protocol_number(message["protocol"])).configure(content.read())
                case "users":
                    with open(fds[0], "rb", closefd=False) as content:
                        self._access.learn(content.read())
                    self._has_users = True
                    for protocol in self._protocols.values():
                        protocol.users_changed()
                case "listen":
                    self._to_listen.append((socket.socket(fileno=os.dup(fds[0])), message["backlog"]))
                    self._listen(message, fds.pop())
                case "mesh":
                    self._engine.mesh(message["acceptor"], fds[0], fds[1], fds[2])
                    log.debug("acceptor %d is attached", message["acceptor"])
                case "mesh-gone":
                    self._engine.mesh_gone(message["acceptor"])
                    log.debug("acceptor %d is gone", message["acceptor"])
                case "reload":
                    named_files.keep_what_came(fds)
                    self._reload(message["settings"])
                case "lame-duck":
                    self._send_clients_away()
                case "shared":
                    self._protocol(protocol_number(message["protocol"])).shared(message["what"], message["message"])
                    self._control.send({"did": "obeyed", "number": message["number"]})
                case "calls":
                    self._calls.attach(socket.socket(fileno=fds.pop()))
                case "calls-due":
                    self._calls.due(int(message["delay_s"] * SECOND_NS))
                case "handover":
                    handover = Handover(socket.socket(fileno=fds.pop()))
                    self._protocol(protocol_number(message["protocol"])).hand_over_by(handover)
                case "go":
                    for protocol in self._protocols.values():
                        protocol.serving()
                    self._begin_to_listen()
                    self._serving = True
                    self._control.send({"did": "ready"})
                case "stderr":
                    os.dup2(fds[0], STDERR)
                case "ping":
                    self._control.send({"did": "pong"})
                case "stop":
                    self._stopping = True
                case other:
                    raise ValueError(f"the supervisor wants {other!r} of an acceptor")
        finally:
            for fd in fds:
                os.close(fd)


def guarded(protocol: Protocol, turn: Callable[[], None]) -> None:
    """Calls `turn` and logs an exception, so that a defect of one protocol costs the others no connections."""
    try:
        turn()
    except Exception:
        log.exception("%s: an unexpected error", protocol.name)


def connections_that_fit(descriptors: int, others: int) -> int:
    """How many connections leave descriptors for what the supervisor sends: rings of `others`, files, listeners. A
    process that cannot take what it is sent has to end."""
    spare = SPARE_DESCRIPTORS + PEER_DESCRIPTORS * others
    return max(descriptors - min(spare, descriptors // 2), 1)


def sooner(first_ns: int, second_ns: int) -> int:
    """The shorter of two waits, each of which may be FOREVER."""
    if FOREVER in (first_ns, second_ns):
        return max(first_ns, second_ns)
    return min(first_ns, second_ns)


def main(control: Control) -> None:
    start, fds = control.receive()
    if start["do"] == "stop":
        return
    named_files.keep_what_came(fds[2:])
    process = AcceptorProcess(control, start, *fds[:2])
    for fd in (fds[0], *fds[2:]):
        os.close(fd)
    process.run()
