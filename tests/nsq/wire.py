"""An NSQ client that hides nothing: commands out, frames in."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import ssl
import time
from collections.abc import Sequence

from tests.nsq import frames
from tests.nsq.frames import ERROR, MESSAGE, OK, RESPONSE, Frame, Message, parse_message, take_frame
from tests.nsq.servers import NsqServer
from tests.nsq.streams import Deflate, Filter, Snappy

REPLY_SECONDS = 20.0  # a busy machine takes its time
MAGIC = b"  V2"
# Messages are not held back for longer than that.
FLUSH_MS = 25
_names = itertools.count(1)


def unique_topic(stem: str = "topic") -> str:
    """A name that no test has used."""
    return f"{stem}-{next(_names)}"


class Wire:
    def __init__(self, server: NsqServer | int, *, magic: bytes = MAGIC, reply_seconds: float = REPLY_SECONDS) -> None:
        port = server if isinstance(server, int) else server.port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=REPLY_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.filter: Filter | None = None
        self.reply_seconds = reply_seconds
        self.socket.sendall(magic)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def start_tls(self, context: ssl.SSLContext) -> None:
        assert not self.buffer, "bytes came that are not of the handshake"
        self.socket.settimeout(REPLY_SECONDS)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def start_snappy(self, *, compress: bool = True) -> None:
        self._start_filter(Snappy(compress=compress))

    def start_deflate(self, level: int = 6) -> None:
        self._start_filter(Deflate(level))

    def _start_filter(self, new: Filter) -> None:
        """The server may have gone over to it with the next byte after its answer."""
        self.filter = new
        self.buffer = bytearray(new.decode(bytes(self.buffer)))

    def send(self, data: bytes) -> None:
        """No send waits for ever: a server that reads no more is a failure."""
        self.socket.settimeout(REPLY_SECONDS)
        self.socket.sendall(data if self.filter is None else self.filter.encode(data))

    def end_sending(self) -> None:
        """Half a close; the server may have closed already."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def receive(self, until: float) -> bool:
        """Waits for more bytes; False when the connection is closed. Raises TimeoutError."""
        self.socket.settimeout(max(until - time.monotonic(), 0.001))
        try:
            data = self.socket.recv(1 << 20)
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return False
        self.buffer += data if self.filter is None else self.filter.decode(data)
        return bool(data)

    def frame(self, seconds: float | None = None) -> Frame:
        """The next frame, whatever it is."""
        until = time.monotonic() + (self.reply_seconds if seconds is None else seconds)
        while (frame := take_frame(self.buffer)) is None:
            if not self.receive(until):
                raise ConnectionError(f"closed; unread: {bytes(self.buffer[:200])!r}")
        return frame

    def frames(self, count: int) -> list[Frame]:
        return [self.frame() for _ in range(count)]

    def frames_until_close(self) -> list[Frame]:
        until = time.monotonic() + self.reply_seconds
        while self.receive(until):
            pass
        found = []
        while (frame := take_frame(self.buffer)) is not None:
            found.append(frame)
        assert not self.buffer, f"half a frame: {bytes(self.buffer[:200])!r}"
        return found

    def is_quiet(self, seconds: float = 0.1) -> bool:
        """Nothing comes for that long."""
        until = time.monotonic() + seconds
        while not self.buffer:
            try:
                assert self.receive(until), "closed"
            except TimeoutError:
                return True
        return False

    def is_closed(self, seconds: float = REPLY_SECONDS) -> bool:
        """The server closes without another frame. A compressed stream may end with bytes that mean nothing."""
        until = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError):
            while not self.buffer:
                if not self.receive(until):
                    return True
        return False

    def ask(self, command: bytes | str) -> Frame:
        self.send(command.encode() if isinstance(command, str) else command)
        return self.frame()

    def fails(self, command: bytes | str, text: str | bytes) -> None:
        """This error, and the connection is closed."""
        assert self.ask(command) == frames.error(text)
        assert self.is_closed()

    def message(self, seconds: float | None = None) -> Message:
        frame = self.frame(seconds)
        assert frame.kind == MESSAGE, frame
        return parse_message(frame)

    def messages(self, count: int) -> list[Message]:
        return [self.message() for _ in range(count)]

    def messages_until_quiet(self, seconds: float = 0.3, *, finish: bool = True) -> list[Message]:
        """All that come until none comes for so long."""
        found = []
        while True:
            try:
                found.append(self.message(seconds))
            except TimeoutError:
                return found
            if finish:
                self.fin(found[-1])

    # Commands with their usual outcome.

    def identify(self, **fields: object) -> dict[str, object]:
        """The negotiated answer."""
        frame = self.ask(frames.identify(feature_negotiation=True, **fields))
        assert frame.kind == RESPONSE, frame
        answer = json.loads(frame.data)
        assert isinstance(answer, dict)
        return answer

    def subscribe(self, topic: str, channel: str, rdy: int | None = None) -> None:
        assert self.ask(frames.sub(topic, channel)) == OK
        if rdy is not None:
            self.rdy(rdy)

    def publish(self, topic: str, *bodies: bytes) -> None:
        for body in bodies:
            assert self.ask(frames.pub(topic, body)) == OK

    def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None:
        assert self.ask(frames.mpub(topic, bodies)) == OK

    def publish_deferred(self, topic: str, delay_ms: int, body: bytes) -> None:
        assert self.ask(frames.dpub(topic, delay_ms, body)) == OK

    def rdy(self, count: int) -> None:
        self.send(frames.rdy(count))

    def fin(self, *messages: Message) -> None:
        self.send(b"".join(frames.fin(message.id) for message in messages))

    def req(self, message: Message, timeout_ms: int = 0) -> None:
        self.send(frames.req(message.id, timeout_ms))

    def touch(self, message: Message) -> None:
        self.send(frames.touch(message.id))

    def is_not_in_flight(self, message: Message) -> bool:
        """What was sent before has been done by the time this is known. The connection goes on."""
        frame = self.ask(frames.touch(message.id))
        return frame.kind == ERROR and frame.data.startswith(b"E_TOUCH_FAILED ")


def consumer(server: NsqServer, topic: str, channel: str = "ch", rdy: int | None = None, **fields: object) -> Wire:
    """A connection that is subscribed, to which messages are flushed soon."""
    wire = Wire(server)
    wire.identify(**{"output_buffer_timeout": FLUSH_MS, **fields})
    wire.subscribe(topic, channel, rdy)
    return wire
