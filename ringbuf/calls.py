"""Calls: questions and answers between an acceptor and the gateway, both ways, and what the gateway tells acceptors.

    calls.ask("toy.partitions", body, heard)    `heard` gets a Reply, after ask() has returned
    calls.serve("toy.connections", handler)     `handler` gets an Asked, and answers it now or later
    calls.tell("toy.policies", body)            has no answer; the function given to the other side's hear() gets it

One object is one end; it lives as long as its process, the socket pair below it (from the supervisor) as long as both
processes. Nothing here waits: what cannot be sent now is kept, up to a limit. Every question gets an answer, which is
UNAVAILABLE when the other side is gone, too slow, or has too much to do. The caller passes in the clock.

A message travels in pieces, each a packet of a SOCK_SEQPACKET socket. Messages take turns, so that a large
answer does not hold up small ones. tell() keeps the order of its messages; questions and answers have no order.
"""

from __future__ import annotations

import enum
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from mq_shards.ringbuf.time_units import SECOND_NS

PIECE_BYTES: Final = 32 << 10
# The limits of one end.
MESSAGE_BYTES: Final = 16 << 20  # of one question, answer or told message
UNDER_WAY: Final = 1024  # unanswered questions of each side
WAITING_BYTES: Final = 32 << 20  # of messages that are not sent yet
ARRIVING_BYTES: Final = 32 << 20  # of messages that have arrived in part
NAME_BYTES: Final = 64
PIECES_AT_ONCE: Final = 64  # pieces sent, or received, before the event loop gets its turn
TIMEOUT_NS: Final = 5 * SECOND_NS

# In front of each piece: its kind, whether it is the last one of its message, the number of the question.
_HEAD: Final = struct.Struct("<BBxxI")
_ASK: Final = 1
_ANSWER: Final = 2
_TELL: Final = 3

FOREVER: Final = -1

log = logging.getLogger(__name__)


class Status(enum.IntEnum):
    OK = 0
    UNAVAILABLE = 1  # no other side, no answer in time, or too many questions; it may have been done
    UNKNOWN = 2  # the other side has no handler for this question
    FAILED = 3  # the handler of the other side failed
    TOO_LARGE = 4  # the question, or its answer


class Reply(NamedTuple):
    status: Status
    body: bytes = b""

    @property
    def ok(self) -> bool:
        return self.status is Status.OK


class CallsError(Exception):
    """What has arrived cannot come from another Calls: the socket is closed."""


class Loop(Protocol):
    """The event loop: watches the socket and calls Calls.ready() when it can be read or, with `writing`, written."""

    def watch(self, fd: int, ready: Callable[[], None], writing: bool) -> None:
        """Also called again, to change `writing`."""

    def forget(self, fd: int) -> None: ...


@dataclass(slots=True, eq=False, repr=False)
class Asked:
    """A question of the other side, to be answered once. An answer that comes too late is dropped."""

    what: str
    body: bytes
    _calls: Calls
    _number: int
    _generation: int

    def answer(self, body: bytes, status: Status = Status.OK) -> None:
        self._calls._answer(self, Reply(status, body))


@dataclass(slots=True, eq=False, repr=False)
class _Question:
    """A question to the other side that is not answered."""

    what: str
    heard: Callable[[Reply], None]
    until_ns: int
    again: bool
    message: bytes | None = None  # kept while it may have to be sent (again) over the next socket


@dataclass(slots=True, eq=False, repr=False)
class _Outgoing:
    """A message that is being sent, piece by piece."""

    kind: int
    number: int
    message: bytes
    sent: int = 0


@dataclass(slots=True, eq=False, repr=False)
class _Incoming:
    """A message of which pieces have arrived."""

    pieces: list[bytes] = field(default_factory=list)
    size: int = 0
    is_dropped: bool = False  # its pieces are thrown away, for want of room


class Calls:
    def __init__(self, loop: Loop, now_ns: Callable[[], int], *, expected: bool = True) -> None:
        """Not `expected`: there never is another side."""
        self._loop = loop
        self._now_ns = now_ns
        self._expected = expected
        self._handlers: dict[str, Callable[[Asked], None]] = {}
        self._hearers: dict[str, Callable[[bytes], None]] = {}
        self._lost: list[Callable[[], None]] = []
        self._questions: dict[int, _Question] = {}  # by number
        self._soonest_ns: int | None = None  # no question is due before this; None: there is none
        self._next = 1
        self._socket: socket.socket | None = None
        self._missed_from_ns = now_ns()  # when the last socket was lost, or the other side will be started again
        self._generation = 0  # counts the sockets
        self._writing = False
        self._sending: deque[_Outgoing] = deque()  # questions and answers; one piece of each in turn
        self._told: deque[_Outgoing] = deque()  # told messages; one after the other
        self._has_lost = False  # whether told messages were dropped, since the other side was too slow
        self._waiting_bytes = 0
        self._kept_bytes = 0  # of the messages kept in `_questions`
        self._incoming: dict[tuple[int, int], _Incoming] = {}
        self._incoming_bytes = 0
        self._serving: set[int] = set()  # numbers of the other side's unanswered questions

    # --- asking and telling -----------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self._socket is not None

    @property
    def absent_ns(self) -> int:
        """How long the other side has been gone, or its start has been due; 0: it is connected. Negative: it is to be
        started so much later."""
        return 0 if self._socket is not None else self._now_ns() - self._missed_from_ns

    def serve(self, what: str, handler: Callable[[Asked], None]) -> None:
        assert what not in self._handlers and len(what) <= NAME_BYTES
        self._handlers[what] = handler

    def hear(self, what: str, hearer: Callable[[bytes], None]) -> None:
        assert what not in self._hearers and len(what) <= NAME_BYTES
        self._hearers[what] = hearer

    def on_lost(self, hearer: Callable[[], None]) -> None:
        """`hearer` is called when told messages may have been missed: it is to ask for their content anew."""
        self._lost.append(hearer)

    def ask(
        self,
        what: str,
        body: bytes,
        heard: Callable[[Reply], None],
        *,
        timeout_ns: int = TIMEOUT_NS,
        again: bool = False,
    ) -> int:
        """Asks a question; returns its number, for forget(). `heard` is called once, at the latest by the first
        expire() after `timeout_ns`, and never from within this call.

        `again`: the question changes nothing, so it is asked again if the other side dies before it has answered.
        """
        number = self._next
        self._next = self._next % 0xFFFFFFFF + 1
        message = what.encode() + b"\n" + body
        question = self._questions[number] = _Question(what, heard, self._now_ns() + timeout_ns, again)
        if len(message) > MESSAGE_BYTES:
            self._refuse_soon(question, Status.TOO_LARGE)
        elif not self._expected or len(self._questions) > UNDER_WAY or not self._has_room(len(message)):
            self._refuse_soon(question, Status.UNAVAILABLE)
        else:
            if again or self._socket is None:
                question.message = message
                self._kept_bytes += len(message)
            if self._socket is not None:
                self._send(_Outgoing(_ASK, number, message))
        if self._soonest_ns is None or question.until_ns < self._soonest_ns:
            self._soonest_ns = question.until_ns
        return number

    def forget(self, number: int) -> None:
        """Drops the answer to question `number` when it comes: the caller no longer needs it."""
        question = self._questions.get(number)
        if question is not None:
            question.heard = _nobody
            self._let_go(question)

    def tell(self, what: str, body: bytes) -> None:
        """Sends a message without an answer. It is lost if there is no other side, or a slow one (which is told so)."""
        message = what.encode() + b"\n" + body
        assert len(message) <= MESSAGE_BYTES
        if self._socket is None or self._has_lost:
            return
        if not self._has_room(len(message)):
            self._has_lost = True
            for one in list(self._told)[1:]:  # the first one may have been sent in part
                self._waiting_bytes -= len(one.message)
                self._told.remove(one)
            return
        self._waiting_bytes += len(message)
        self._told.append(_Outgoing(_TELL, 0, message))
        self._flush()

    def tell_lost(self) -> None:
        """Makes the other side ask for everything anew, as if it had missed a message."""
        if self._socket is not None:
            self._has_lost = True
            self._flush()

    # --- the socket -------------------------------------------------------------------------------------------------

    def due(self, delay_ns: int) -> None:
        """The other side is gone, and is to be started again after that time: questions that do not wait so long are
        answered UNAVAILABLE by the next expire()."""
        self.detach()
        self._missed_from_ns = self._now_ns() + delay_ns
        for question in self._questions.values():
            if question.until_ns < self._missed_from_ns:
                question.until_ns = self._soonest_ns = 0

    def attach(self, sock: socket.socket) -> None:
        """Takes the socket over. It replaces the one before, whose other end is gone or about to go."""
        self.detach()
        sock.setblocking(False)
        self._socket = sock
        self._writing = False
        self._loop.watch(sock.fileno(), self.ready, False)
        for number, question in self._questions.items():
            if question.message is not None:
                self._queue(_Outgoing(_ASK, number, question.message))
                if not question.again:
                    self._let_go(question)
        for hearer in self._lost:
            hearer()
        self._flush()

    def detach(self) -> None:
        """The other side is gone: answers open questions UNAVAILABLE, but for those that the next one can be asked."""
        if self._socket is None:
            return
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        self._socket = None
        self._missed_from_ns = self._now_ns()
        self._generation += 1
        self._sending.clear()
        self._told.clear()
        self._incoming.clear()
        self._serving.clear()
        self._waiting_bytes = self._incoming_bytes = 0
        self._has_lost = False
        for number in [n for n, question in self._questions.items() if question.message is None]:
            self._heard(number, Reply(Status.UNAVAILABLE))

    def close(self) -> None:
        """Drops all questions without an answer, and closes the socket."""
        self._questions.clear()
        self._soonest_ns = None
        self.detach()

    def ready(self) -> None:
        """The socket can be read or written: does a limited amount of it, for the event loop to get its turn."""
        try:
            self._receive()
            self._flush()
        except CallsError as error:
            log.error("calls: %s: this end is closed", error)
            self.detach()

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        """How long until expire() may have something to do; FOREVER: there is nothing to wait for."""
        return FOREVER if self._soonest_ns is None else max(0, self._soonest_ns - self._now_ns())

    def expire(self) -> None:
        now_ns = self._now_ns()
        if self._soonest_ns is None or now_ns < self._soonest_ns:
            return
        for number in [n for n, question in self._questions.items() if question.until_ns <= now_ns]:
            self._heard(number, Reply(Status.UNAVAILABLE))
        self._soonest_ns = min((question.until_ns for question in self._questions.values()), default=None)

    # --- out --------------------------------------------------------------------------------------------------------

    def _has_room(self, size: int) -> bool:
        return self._waiting_bytes + self._kept_bytes + size <= WAITING_BYTES

    def _let_go(self, question: _Question) -> None:
        """Frees the message of the question, which is then not sent again."""
        self._kept_bytes -= len(question.message or b"")
        question.message = None

    def _refuse_soon(self, question: _Question, status: Status) -> None:
        """Answers the question in the next expire(), since `heard` must not be called from within ask()."""
        heard = question.heard
        question.heard = lambda _: heard(Reply(status))
        question.until_ns = 0

    def _queue(self, out: _Outgoing) -> None:
        self._waiting_bytes += len(out.message)
        self._sending.append(out)

    def _send(self, out: _Outgoing) -> None:
        self._queue(out)
        self._flush()

    def _flush(self) -> None:
        """Sends pieces of all messages in turn, until nothing is left or the socket takes no more."""
        for _ in range(PIECES_AT_ONCE):
            if self._socket is None or not self._send_piece(self._told, first_only=True):
                return
            if not self._send_piece(self._sending, first_only=False):
                return
            if not self._sending and not self._told:
                break
        if self._has_lost and not self._told:
            self._has_lost = False
            self._told.append(_Outgoing(_TELL, 0, b"lost\n"))
            self._waiting_bytes += len(self._told[0].message)
        self._want_to_write(bool(self._sending or self._told))

    def _send_piece(self, queue: deque[_Outgoing], first_only: bool) -> bool:
        """False: the socket takes no more, or is gone."""
        if not queue:
            return True
        out = queue[0]
        piece = out.message[out.sent : out.sent + PIECE_BYTES]
        is_last = out.sent + len(piece) == len(out.message)
        assert self._socket is not None
        try:
            self._socket.sendmsg([_HEAD.pack(out.kind, is_last, out.number), piece], (), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            self._want_to_write(True)
            return False
        except OSError:  # the other side is gone: reading will notice it too
            self._want_to_write(False)
            return False
        out.sent += len(piece)
        if is_last:
            queue.popleft()
            self._waiting_bytes -= len(out.message)
        elif not first_only:
            queue.rotate(-1)
        return True

    def _want_to_write(self, writing: bool) -> None:
        if self._socket is not None and writing != self._writing:
            self._writing = writing
            self._loop.watch(self._socket.fileno(), self.ready, writing)

    # --- in ---------------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        for _ in range(PIECES_AT_ONCE):
            if self._socket is None:
                return
            try:
                packet = self._socket.recv(_HEAD.size + PIECE_BYTES)
            except BlockingIOError:
                return
            except ConnectionResetError:
                continue  # said once, if the other has gone without reading all: what it has said is still there
            except OSError:
                packet = b""
            if not packet:
                self.detach()
                return
            self._piece(packet)

    def _piece(self, packet: bytes) -> None:
        if len(packet) < _HEAD.size:
            raise CallsError("a packet without a head")
        kind, is_last, number = _HEAD.unpack_from(packet)
        piece = packet[_HEAD.size :]
        came = self._incoming.get((kind, number))
        if came is None and is_last:
            self._message(kind, number, piece)
            return
        if came is None:
            came = self._incoming[kind, number] = _Incoming()
        came.size += len(piece)
        if came.size > MESSAGE_BYTES + NAME_BYTES or len(self._incoming) > 2 * UNDER_WAY + 1:
            raise CallsError("the other side sends more than it may")
        if not came.is_dropped:
            came.pieces.append(piece)
            self._incoming_bytes += len(piece)
        if is_last:
            del self._incoming[kind, number]
            if came.is_dropped:
                self._dropped(kind, number)
            else:
                self._incoming_bytes -= came.size
                self._message(kind, number, b"".join(came.pieces))
        elif self._incoming_bytes > ARRIVING_BYTES:
            self._incoming_bytes -= came.size
            came.pieces.clear()
            came.is_dropped = True

    def _dropped(self, kind: int, number: int) -> None:
        """The last piece has arrived of a message for which there was no room."""
        if kind == _ASK:
            self._serving.add(number)
            self._answer(Asked("", b"", self, number, self._generation), Reply(Status.UNAVAILABLE))
        elif kind == _ANSWER:
            self._heard(number, Reply(Status.UNAVAILABLE))
        else:
            self._message(_TELL, 0, b"lost\n")

    def _message(self, kind: int, number: int, message: bytes) -> None:
        if kind == _ANSWER:
            if not message or message[0] not in Status._value2member_map_:
                raise CallsError("an answer without a status")
            self._heard(number, Reply(Status(message[0]), message[1:]))
            return
        what, newline, body = message.partition(b"\n")
        if not newline or kind not in (_ASK, _TELL):
            raise CallsError(f"a message of kind {kind} without a name")
        if kind == _ASK:
            self._serve(Asked(what.decode(errors="replace"), body, self, number, self._generation))
        else:
            self._tell(what.decode(errors="replace"), body)

    def _tell(self, what: str, body: bytes) -> None:
        hearers: list[Callable[[], None]] = [*self._lost] if what == "lost" else []
        if (hearer_of := self._hearers.get(what)) is not None:
            hearers.append(lambda: hearer_of(body))
        for hearer in hearers:
            try:
                hearer()
            except Exception:
                log.exception("cannot handle what is told: %s", what)

    def _serve(self, asked: Asked) -> None:
        handler = self._handlers.get(asked.what)
        busy = len(self._serving) >= UNDER_WAY
        self._serving.add(asked._number)
        if handler is None:
            self._answer(asked, Reply(Status.UNKNOWN))
        elif busy:
            self._answer(asked, Reply(Status.UNAVAILABLE))
        else:
            try:
                handler(asked)
            except Exception:
                log.exception("cannot answer %s", asked.what)
                self._answer(asked, Reply(Status.FAILED))

    def _answer(self, asked: Asked, reply: Reply) -> None:
        if self._socket is None or asked._generation != self._generation or asked._number not in self._serving:
            return  # the asking process is gone, or has its answer already
        self._serving.discard(asked._number)
        message = bytes((reply.status,)) + reply.body
        if len(message) > MESSAGE_BYTES:
            message = bytes((Status.TOO_LARGE,))
        elif not self._has_room(len(message)):
            message = bytes((Status.UNAVAILABLE,))
        self._send(_Outgoing(_ANSWER, asked._number, message))

    def _heard(self, number: int, reply: Reply) -> None:
        """Passes the answer on; does nothing if it comes too late."""
        question = self._questions.pop(number, None)
        if question is not None:
            self._let_go(question)
            try:
                question.heard(reply)
            except Exception:
                log.exception("cannot handle the answer to %s", question.what)


def _nobody(reply: Reply) -> None:
    """The `heard` of a question after forget()."""
