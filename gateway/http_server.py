"""The gateway's HTTP server, one for each API, which differ only in their limits. It speaks HTTP/1.1 and 1.0.

Owns: connections, from acceptance to end, and the limits of what a client may send and how long that may take. A client
that shuts down its sending side after a request (nc -N) still gets its answer. Must never: trust a size that a client
sends, wait without a time limit, or log what strangers send.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from ssl import SSLContext, SSLObject
from typing import Any, Final

from mq_shards.acceptor.access.arrival import Arrival
from mq_shards.acceptor.access.certificates import names_of
from mq_shards.acceptor.access.rights import Login
from mq_shards.gateway.http_answers import TEXT, Answer, encode_head
from mq_shards.gateway.http_bodies import SMALL_ANSWER_BYTES, TOO_MANY_ANSWERS, Bodies
from mq_shards.gateway.http_parse import (
    MAX_HEAD_BYTES,
    TLS_HANDSHAKE,
    BadRequestError,
    Head,
    find_end,
    parse_head,
    parse_request_line,
)
from mq_shards.gateway.http_places import Places
from mq_shards.gateway.http_received import BODY_READ_BYTES, READ_BYTES, ReceivedBody
from mq_shards.gateway.shaking import Shaking
from mq_shards.gateway.turns import Turns
from mq_shards.ringbuf import listening

# The limits. A connection has one request at a time, so the limit of connections also bounds the requests in flight.
ACCEPTED: Final = 64  # connections in one turn: fewer than there are places, so that each has time for a request
ACCEPT_AGAIN_S: Final = 1.0  # the pause when there is no descriptor left
ACCEPT_SOON_S: Final = 0.02  # the same when some will be: of LET_GO connections
LET_GO: Final = 16
SHAKE_S: Final = 10.0  # for the TLS handshake
IDLE_S: Final = 75.0  # until the head of the next request, or the first, is complete
SEND_S: Final = 30.0  # for a client to take an answer; in the kernel, to acknowledge any of it
LINGER_S: Final = 1.0  # to read the rest of a body that no handler wants
LINGER_BYTES: Final = 256 << 10  # the connection is closed if more than this is left
UNSENT_BYTES: Final = 64 << 10  # of output, before a handler has to wait
PIECE_BYTES: Final = 256 << 10  # of a large answer, as what the client does not take at once is copied

log = logging.getLogger(__name__)

# Hands a connection back to its acceptor, if it wants this request; False: it does not, or cannot now. Given the head,
# the socket, which the caller closes, and all bytes received from the head on.
Returns = Callable[[Head, int, bytes], bool]
# The TLS context for a new connection. Raises ValueError.
TlsNow = Callable[[], SSLContext]
# Returns the answer; None: the handler has sent it by Request.begin() and Request.write().
Handler = Callable[["Request"], Awaitable[Answer | None]]


class Request(ReceivedBody):
    """One request; its body is read by `part` (gateway/http_bodies.py)."""

    def __init__(self, connection: _Connection, head: Head) -> None:
        super().__init__(connection, head)
        self.method: Final = head.method
        self.target: Final = head.target
        self.headers: Final = head.headers
        self._connection = connection
        self._head = head
        self._answer_left = 0  # unsent bytes of a body that the handler sends
        # Who the client is, set by gateway/access.py where users are configured.
        self.access: object | None = None
        self.scheme = ""
        self.login: Login | None = None
        self.begun = False  # the answer has begun: another one is impossible
        self.keeps_alive = head.keeps_alive  # whether the connection may have another request

    # --- the answer -------------------------------------------------------------------------------------------------

    @property
    def is_encrypted(self) -> bool:
        return self._connection.is_encrypted

    @property
    def is_guarded(self) -> bool:
        """Whether the client must be a user."""
        return self.access is not None

    @property
    def listened(self) -> Arrival:
        return self._connection.listened

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._connection.peer

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """The names in the client's verified certificate."""
        return self._connection.certificate_names

    @contextlib.contextmanager
    def unproven(self) -> Iterator[None]:
        """While a login is checked the connection may lose its place to another."""
        places = self._connection.server.places
        places.waits_for_proof(self._connection)
        try:
            yield
        finally:
            places.heard(self._connection)

    def proven(self, *, right: bool) -> None:
        """A login was checked: after a wrong one the connection is among the first to lose its place."""
        self._connection.is_disproven = not right

    @property
    def transport(self) -> asyncio.Transport:
        """For a handler that sends a file. ConnectionError when the client is gone."""
        return self._connection.open_transport()

    def begin(self, status: int, headers: Mapping[str, str], body_bytes: int) -> None:
        """Sends the head of an answer whose body the handler sends with write(), or over `transport` with sent()."""
        self.begun = True
        self._answer_left = body_bytes
        is_old = self._head.is_old
        self._connection.write(encode_head(status, headers, body_bytes, self.connection_header(), is_old=is_old))

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends a part of the body. It may wait for the client, so the caller must limit the time. ConnectionError."""
        self._connection.write(data)
        self.sent(len(data))
        await self._connection.drain()

    async def send(self, status: int, headers: Mapping[str, str], parts: Sequence[bytes]) -> None:
        """Sends an answer whose body is large, in parts. If the client does not take one in time, or goes, the
        connection ends."""
        size = sum(map(len, parts))
        with self._connection.server.bodies.answering(size) as has_room:
            if has_room:
                await self._send(status, headers, size, parts)
                return
        body = TOO_MANY_ANSWERS.encode()
        await self._send(503, {"Content-Type": TEXT}, len(body), [body])

    async def _send(
        self, status: int, headers: Mapping[str, str], size: int, parts: Iterable[bytes | memoryview]
    ) -> None:
        turns = Turns()
        try:
            self.begin(status, headers, size)
            for part in parts:
                async with asyncio.timeout(SEND_S):
                    await self.write(part)
                await turns.pause()
        except ConnectionError:
            pass
        except TimeoutError:
            self.cut()

    def sent(self, size: int) -> None:
        self._answer_left -= size

    def cut(self) -> None:
        """Resets the connection, so that an unfinished answer does not look finished."""
        self.keeps_alive = False
        self._connection.cut()

    def connection_header(self) -> str:
        """The answer's Connection header. Also decides whether the connection stays open."""
        if not self.body_ended and (self.must_say_continue or self.may_be_longer_than(LINGER_BYTES)):
            self.keeps_alive = False
        if self._connection.server.closing:
            self.keeps_alive = False
        if not self.keeps_alive:
            return "close"
        return "keep-alive" if self._head.is_old else ""

    async def finish(self, answer: Answer | None) -> bool:
        """Sends the answer, and reads the rest of the body. Returns whether the connection may have another request."""
        if answer is not None:
            with_body, is_old = self.method != "HEAD", self._head.is_old
            with self._connection.server.bodies.answering(len(answer.body)) as has_room:
                if not has_room:
                    answer = Answer(503, TOO_MANY_ANSWERS.encode(), {"Content-Type": TEXT})
                if with_body and len(answer.body) > SMALL_ANSWER_BYTES:
                    await self._send(answer.status, answer.headers, len(answer.body), _pieces(answer.body))
                else:
                    self._connection.write(answer.encode(self.connection_header(), with_body=with_body, is_old=is_old))
                await self._taken()
        elif self._answer_left > 0:
            self.cut()
        if self.body_ended:
            return self.keeps_alive
        if not self.keeps_alive:
            self._connection.end_output()
        self.must_say_continue = False
        try:
            async with asyncio.timeout(LINGER_S):
                while await self.part(BODY_READ_BYTES):
                    pass
        except (TimeoutError, ConnectionError):
            return False
        return self.keeps_alive

    async def _taken(self) -> None:
        """Waits until the client has taken its answer; resets the connection if that takes too long."""
        if self._connection.is_full:
            try:
                async with asyncio.timeout(SEND_S):
                    await self._connection.drain()
            except TimeoutError:
                self.cut()


def _pieces(body: bytes | memoryview) -> Iterator[memoryview]:
    whole = memoryview(body)
    return (whole[at : at + PIECE_BYTES] for at in range(0, len(whole), PIECE_BYTES))


class _Connection(asyncio.BufferedProtocol):
    def __init__(
        self, server: HttpServer, listened: Arrival, received: bytes = b"", returns: Returns | None = None
    ) -> None:
        """A connection that an acceptor handed over has `received` bytes already, and may go back by `returns`."""
        self.server: Final = server
        self.listened: Final = listened
        self.buffer: Final = bytearray(received)  # received bytes that are not used yet
        self._returns = returns
        self.task: asyncio.Task[None] | None = None
        self.is_busy = False  # a request is being served
        self.is_disproven = False  # its last login was wrong
        self._transport: asyncio.Transport | None = None
        self._has_ended = False  # no more input will come
        self._waiter: asyncio.Future[None] | None = None
        self._want = READ_BYTES
        self._drained: asyncio.Future[None] | None = None
        self._is_paused = False
        self._taken_head = b""
        self._has_served = False  # it has had a request
        self._is_let_go = False  # its place is another's, perhaps before connection_made()
        self._last: asyncio.TimerHandle | None = None  # drops unsent output when it takes too long

    # --- called by the event loop -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._is_let_go:
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(UNSENT_BYTES)
        self.server.connections.add(self)
        self.server.places.take(self)
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.server.scratch[: self._want]

    def buffer_updated(self, nbytes: int) -> None:
        self.buffer.extend(self.server.scratch[:nbytes])
        if len(self.buffer) >= READ_BYTES and self._transport is not None and not self._is_paused:
            self._transport.pause_reading()
            self._is_paused = True
        self._wake()

    def eof_received(self) -> bool:
        self._has_ended = True
        self._wake()
        # True keeps the output open for the answer. With TLS here, the end of input closes the output too.
        return self._tls is None

    @property
    def _tls(self) -> SSLObject | None:
        found: SSLObject | None = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return found

    @property
    def is_encrypted(self) -> bool:
        """Whether it is encrypted, here or by the acceptor that relays it."""
        return self.listened.is_encrypted or self._tls is not None

    @property
    def peer(self) -> str:
        if self.listened.peer:
            return self.listened.peer.removeprefix("::ffff:")
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        host = str(name[0]) if isinstance(name, tuple) else ""
        # The IPv4 form of a client that connected by IPv4 to an IPv6 socket, as acceptors show it too.
        return host.removeprefix("::ffff:") if "." in host else host

    @property
    def certificate_names(self) -> tuple[str, ...]:
        tls = self._tls
        return self.listened.certificate_names if tls is None else names_of(tls.getpeercert() or {})

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._has_ended = True
        if self._last is not None:
            self._last.cancel()  # abort() must not be called on a closed transport
        self._wake()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self.server.connections.discard(self)
        self.server.places.leave(self)

    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- input ------------------------------------------------------------------------------------------------------

    async def more(self, want: int) -> None:
        """Waits for more input. ConnectionError when no more will come."""
        before = len(self.buffer)
        self._want = want
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        # For a head the wait counts from its beginning, even if single bytes keep arriving.
        if self.is_disproven:
            self.server.places.waits_for_proof(self)
        else:
            self.server.places.waits_for(self, has_asked=self.is_busy or self._has_served)
        while len(self.buffer) == before:
            if self._has_ended:
                raise ConnectionResetError
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self.is_busy:
            self.server.places.heard(self)

    def take(self, most: int) -> bytes:
        data = bytes(memoryview(self.buffer)[:most])
        del self.buffer[:most]
        return data

    # --- output -----------------------------------------------------------------------------------------------------

    def open_transport(self) -> asyncio.Transport:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError
        return self._transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.open_transport().write(data)

    @property
    def is_full(self) -> bool:
        return self._drained is not None

    async def drain(self) -> None:
        """Waits until little output is left unsent. ConnectionError when the client is gone."""
        if self._drained is not None:
            await asyncio.shield(self._drained)
        self.open_transport()

    def end_output(self) -> None:
        if self._transport is not None and self._transport.can_write_eof() and not self._transport.is_closing():
            with contextlib.suppress(OSError):  # the client has reset the connection: reading will say so
                self._transport.write_eof()

    def cut(self) -> None:
        """Resets the connection to a client that does not read: the kernel drops its output too."""
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def let_go(self) -> None:
        # Not close(): with TLS the client could delay that.
        self._is_let_go = True
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Closes the connection. Unsent output is still sent, if the client takes it in time."""
        if self._transport is not None and not self._transport.is_closing():
            if self._transport.get_write_buffer_size() > 0:
                self._last = asyncio.get_running_loop().call_later(SEND_S, self._transport.abort)
            self._transport.close()

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            while (head := await self._head()) is not None:
                if self._goes_back(head):
                    return
                self.is_busy = True
                request = Request(self, head)
                if not await request.finish(await self.server.handle(request)) or self.server.closing:
                    break
                self.is_busy = False
        except BadRequestError as error:
            await self._refuse(error.status, error.why)
        except ConnectionError:
            pass  # the client is gone
        except Exception:
            log.exception("a connection ends because of an unexpected error")
        finally:
            self.close()

    async def _head(self) -> Head | None:
        """Receives the head of the next request; None when there is none. Raises BadRequestError."""
        held = 0  # bytes of a large head, which count as those of bodies do
        try:
            async with asyncio.timeout(IDLE_S):
                looked_at, line_end = 0, -1
                while not (end := find_end(self.buffer, looked_at)):
                    if self.buffer.startswith(TLS_HANDSHAKE):
                        raise BadRequestError(why="TLS on a port that speaks none")
                    # A client that speaks another protocol here may wait for an answer to its first line.
                    if line_end < 0 and (line_end := self.buffer.find(b"\n", looked_at)) >= 0:
                        parse_request_line(bytes(self.buffer[:line_end]).removesuffix(b"\r"))
                    looked_at = len(self.buffer)
                    if looked_at > MAX_HEAD_BYTES:
                        raise BadRequestError(431)
                    if looked_at - held > READ_BYTES:
                        if not self.server.bodies.take(looked_at - held):
                            raise BadRequestError(503)
                        held = looked_at
                    await self.more(READ_BYTES)
            if end > MAX_HEAD_BYTES:
                raise BadRequestError(431)
            self.server.places.heard(self)
            self._taken_head = self.take(end)
            return parse_head(self._taken_head)
        except (TimeoutError, ConnectionError):
            return None
        finally:
            self.server.bodies.give(held)

    def _goes_back(self, head: Head) -> bool:
        """Hands the connection back to its acceptor; never with its first request, which the acceptor has left to
        us."""
        served, self._has_served = self._has_served, True
        transport = self._transport
        if self._returns is None or not served or transport is None or transport.is_closing() or self.server.closing:
            return False
        if transport.get_write_buffer_size() > 0:
            return False
        transport.pause_reading()  # further input is for the acceptor
        self._is_paused = True
        sock = transport.get_extra_info("socket")
        return self._returns(head, sock.fileno(), self._taken_head + bytes(self.buffer))

    async def _refuse(self, status: int, why: str) -> None:
        """Sends an error. Then reads input for a moment, as a reset because of unread input could lose the answer."""
        text = f"{status} {HTTPStatus(status).phrase}{': ' if why else ''}{why}".encode()
        try:
            self.write(Answer(status, text, {"Content-Type": TEXT}).encode("close"))
            self.end_output()
            async with asyncio.timeout(LINGER_S):
                while True:
                    self.buffer.clear()
                    await self.more(BODY_READ_BYTES)
        except (TimeoutError, ConnectionError):
            pass


class _Handshake:
    """A connection in its TLS handshake."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task: Final = task

    def let_go(self) -> None:
        self._task.cancel()


class HttpServer:
    def __init__(self, handler: Handler, bodies: Bodies, max_connections: int, unsent_bytes: int | None = None) -> None:
        """`handler` must not raise. `unsent_bytes`: a connection may write on when the kernel has no more than this
        unsent."""
        self._handler: Final = handler
        self.refusal: Callable[[Request], Answer | None] = lambda request: None  # refuses a request, or returns None
        self.gate: Callable[[Request], Awaitable[Answer | None]] | None = None  # finds out the user, or refuses
        self.shaken_off: Callable[[socket.socket, str], None] = lambda sock, why: None  # a TLS handshake has failed
        self.bodies: Final = bodies
        self.connections: Final[set[_Connection]] = set()
        self.scratch: Final = memoryview(bytearray(BODY_READ_BYTES))
        self.closing = False
        self.places: Final = Places(max_connections)
        self._unsent_bytes = unsent_bytes
        self._listening: list[socket.socket] = []
        self._beginning: set[asyncio.Task[Any]] = set()  # accepted, or in a TLS handshake; each has a place

    async def handle(self, request: Request) -> Answer | None:
        refused = self.refusal(request)
        if refused is None and self.gate is not None:
            refused = await self.gate(request)
        return await self._handler(request) if refused is None else refused

    async def listen(
        self, sock: socket.socket, backlog: int, tls: TlsNow | None = None, listened: Arrival | None = None
    ) -> None:
        """Serves a bound socket, and owns it from then on."""
        self._set_options(sock)  # connections inherit the options
        listening.begin(sock, backlog)
        if tls is not None:
            tls()
        sock.setblocking(False)
        self._listening.append(sock)
        asyncio.get_running_loop().add_reader(sock, self._accept, sock, tls, listened or Arrival())

    def _accept(self, sock: socket.socket, tls: TlsNow | None, listened: Arrival) -> None:
        """Accepts by itself: an asyncio server would keep its first certificate, and accept as many in one turn as the
        kernel has."""
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTED):
            try:
                accepted, _ = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptor is left: clients wait in the kernel's queue, until who says nothing has gone for them.
                loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": error})
                loop.remove_reader(sock)
                pause_s = ACCEPT_SOON_S if self.places.let_go(LET_GO) else ACCEPT_AGAIN_S
                loop.call_later(pause_s, self._accept_again, sock, tls, listened)
                return
            if not self.places.make_room():
                accepted.close()
                continue
            accepted.setblocking(False)
            if tls is None:
                self._begin(accepted, listened)
            else:
                made = partial(_Connection, self, listened)
                self._begin_handshake(loop.create_task(self._connect(made, accepted, tls())))

    def _begin(self, accepted: socket.socket, listened: Arrival) -> None:
        connection = self._placed(_Connection(self, listened))
        task = asyncio.get_running_loop().create_task(self._connect(lambda: connection, accepted, None))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    def _begin_handshake(self, task: asyncio.Task[None]) -> None:
        handshake = _Handshake(task)
        self.places.take(handshake)
        self.places.waits_for(handshake, has_asked=False)
        self._beginning.add(task)

        def done(_: asyncio.Task[None]) -> None:
            self.places.leave(handshake)
            self._beginning.discard(task)

        task.add_done_callback(done)

    def _accept_again(self, sock: socket.socket, tls: TlsNow | None, listened: Arrival) -> None:
        if not self.closing:
            asyncio.get_running_loop().add_reader(sock, self._accept, sock, tls, listened)

    async def _connect(
        self, made: Callable[[], _Connection], accepted: socket.socket, context: SSLContext | None
    ) -> None:  # fmt: skip
        loop, timeout_s = asyncio.get_running_loop(), None if context is None else SHAKE_S
        shaking: Any = None if context is None else Shaking(context, accepted, partial(self.shaken_off, accepted))
        # The loop closes the connection when the handshake fails or takes too long.
        with contextlib.suppress(OSError):
            await loop.connect_accepted_socket(made, accepted, ssl=shaking, ssl_handshake_timeout=timeout_s)

    def _set_options(self, sock: socket.socket) -> None:
        if sock.family == socket.AF_UNIX:
            return
        # The kernel ends a connection whose client acknowledges nothing for this long.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SEND_S * 1000))
        if self._unsent_bytes is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, self._unsent_bytes)

    async def adopt(self, sock: socket.socket, received: bytes, listened: Arrival, returns: Returns | None) -> None:
        """Serves a connected socket, and owns it from then on. `received` was already read from it."""
        if self.closing or not self.places.make_room():
            sock.close()
            return
        connection = self._placed(_Connection(self, listened, received, returns))
        loop = asyncio.get_running_loop()
        try:
            sock.setblocking(False)
            self._set_options(sock)
            await loop.connect_accepted_socket(lambda: connection, sock)
        except OSError:
            self.places.leave(connection)
            sock.close()  # the client is gone

    def _placed(self, connection: _Connection) -> _Connection:
        """Gives a connection a place at once: many are accepted before the first connection_made(), and each may have
        to go for the next."""
        self.places.take(connection)
        self.places.waits_for(connection, has_asked=False)
        return connection

    async def close(self, timeout_s: float) -> None:
        """Stops accepting, and waits up to `timeout_s` for the requests that are being served."""
        self.closing = True
        for sock in self._listening:
            asyncio.get_running_loop().remove_reader(sock)
            sock.close()
        for task in self._beginning:
            task.cancel()
        busy = []
        for connection in list(self.connections):
            if connection.is_busy and connection.task is not None:
                busy.append(connection.task)
            else:
                connection.close()
        if busy:
            await asyncio.wait(busy, timeout=timeout_s)
        left = [connection.task for connection in self.connections if connection.task is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
