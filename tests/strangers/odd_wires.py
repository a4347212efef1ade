"""What lies between odd commands and the socket: TLS, compression, websockets, and cuts anywhere.

A wire turns what is said into bytes and back. The pieces in which these leave, the pauses between them, and how the
connection ends are drawn.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import ssl
import struct
import time
from abc import ABC, abstractmethod
from functools import cache
from typing import Final, Protocol

from tests.nats.websocket_wire import BINARY, CLOSE, COMPRESSED, CONTINUES, FINAL, PING, PONG, TEXT, frame, request
from tests.nsq import frames
from tests.nsq.streams import Deflate, Filter, Snappy
from tests.nsq.wire import MAGIC

SECONDS: Final = 20.0
PAUSE_S: Final = 0.0005
RECEIVE_BYTES: Final = 1 << 16


class CutError(Exception):
    """The connection has ended before the wire was there."""


class Wire(ABC):
    """`send` takes bytes for the socket. What is left over of the beginning is the first input."""

    @abstractmethod
    def encode(self, data: bytes) -> bytes: ...

    @abstractmethod
    def decode(self, data: bytes) -> bytes: ...

    def last_words(self, draw: random.Random) -> bytes:
        """What may be sent before the connection ends."""
        return b""


class Plain(Wire):
    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        return data


class Filtered(Wire):
    """Compression, alone or within TLS."""

    def __init__(self, inner: Filter, outer: Wire) -> None:
        self.inner, self.outer = inner, outer

    def encode(self, data: bytes) -> bytes:
        return self.outer.encode(self.inner.encode(data))

    def decode(self, data: bytes) -> bytes:
        plain = self.outer.decode(data)
        return self.inner.decode(plain) if plain else b""

    def last_words(self, draw: random.Random) -> bytes:
        return self.outer.last_words(draw)


@cache
def context() -> ssl.SSLContext:
    """Of a client that trusts everybody."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    return found


class Tls(Wire):
    """The client's side. What it has to send of itself leaves with what is said next."""

    def __init__(self) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context().wrap_bio(self._in, self._out)

    def shake_hands(self, data: bytes) -> tuple[bytes, bool]:
        """What is to be sent, and whether the handshake is over."""
        self._in.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._out.read(), False
        return self._out.read(), True

    def encode(self, data: bytes) -> bytes:
        if data:
            self._tls.write(data)
        return self._out.read()

    def decode(self, data: bytes) -> bytes:
        self._in.write(data)
        found = b""
        try:
            while piece := self._tls.read(RECEIVE_BYTES):
                found += piece
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return found

    def last_words(self, draw: random.Random) -> bytes:
        """A close_notify, or a record that is none."""
        if draw.random() < 0.3:
            return draw.choice(
                [b"\x17\x03\x03\x00\x20" + bytes(32), b"\x15\x03\x03\x00\x02\x02\x28", b"GET / HTTP/1.1"]
            )
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._out.read()


class WebsocketWire(Wire):
    """Messages in frames of any size, with control frames between them and within."""

    def __init__(self, draw: random.Random, outer: Wire) -> None:
        self.draw, self.outer = draw, outer
        self._in = b""
        self._pongs = b""

    def encode(self, data: bytes) -> bytes:
        draw, out, at, opcode = self.draw, self._pongs, 0, self.draw.choice([BINARY, BINARY, TEXT])
        self._pongs = b""
        while at < len(data) or not out:
            size = draw.choice([0, 1, 3, 100, 5000, 70_000])
            piece, at = data[at : at + size], at + size
            is_last = at >= len(data)
            out += frame(opcode, piece, first=FINAL if is_last else 0, mask=draw.randbytes(4))
            opcode = BINARY if is_last else CONTINUES
            if draw.random() < 0.2:
                out += frame(draw.choice([PING, PONG]), draw.randbytes(draw.choice([0, 5, 125])))
        return self.outer.encode(out)

    def decode(self, data: bytes) -> bytes:
        self._in += self.outer.decode(data)
        found = b""
        while len(self._in) >= 2:
            size, at = self._in[1], 2
            if size > 125:
                at = 4 if size == 126 else 10
                if len(self._in) < at:
                    break
                size = int.from_bytes(self._in[2:at], "big")
            if len(self._in) < at + size:
                break
            payload = self._in[at : at + size]
            if self._in[0] & 15 == PING:
                self._pongs += frame(PONG, payload)
            elif self._in[0] & 15 < CLOSE:
                found += payload
            self._in = self._in[at + size :]
        return found

    def last_words(self, draw: random.Random) -> bytes:
        """A close frame, or one that is against the rules."""
        odd = [
            frame(CLOSE, struct.pack(">H", 1000) + b"bye"), frame(CLOSE), frame(CLOSE, b"x"), frame(PING, bytes(126)),
            frame(3, b"x"), frame(BINARY, b"x", mask=None), frame(CONTINUES, b"x"), frame(BINARY, size=1 << 62),
            frame(BINARY, b"x", first=FINAL | COMPRESSED), frame(PING, b"x", first=0),
        ]  # fmt: skip
        return self.outer.encode(draw.choice(odd)) + self.outer.last_words(draw)


# --- how connections begin --------------------------------------------------------------------------------------------


class Begin(Protocol):
    def __call__(self, sock: socket.socket, draw: random.Random) -> tuple[Wire, bytes]:
        """Returns the wire, and what has been received on it already. Raises CutError."""


def received(sock: socket.socket) -> bytes:
    try:
        data = sock.recv(RECEIVE_BYTES)
    except OSError:
        data = b""
    if not data:
        raise CutError
    return data


def encrypted(sock: socket.socket, draw: random.Random) -> tuple[Tls, bytes]:
    """TLS from the first byte on."""
    tls = Tls()
    said, done = tls.shake_hands(b"")
    while True:
        send(sock, said, draw)
        if done:
            return tls, tls.decode(b"")
        said, done = tls.shake_hands(received(sock))


def nats_encrypted(sock: socket.socket, draw: random.Random) -> tuple[Wire, bytes]:
    while b"\r\n" not in received(sock):
        pass
    return encrypted(sock, draw)


def websocket(sock: socket.socket, draw: random.Random) -> tuple[Wire, bytes]:
    outer, left = encrypted(sock, draw) if draw.random() < 0.5 else (Plain(), b"")
    send(sock, outer.encode(request()), draw)
    while b"\r\n\r\n" not in left:
        left += outer.decode(received(sock))
    wire = WebsocketWire(draw, outer)
    wire._in = left.partition(b"\r\n\r\n")[2]
    return wire, wire.decode(b"")


def nsq(sock: socket.socket, draw: random.Random) -> tuple[Wire, bytes]:
    """With what it asks for in an IDENTIFY; at times the ClientHello is in its packet."""
    wants_tls, compression = draw.random() < 0.6, draw.choice(["", "snappy", "deflate"])
    asked = {"feature_negotiation": True, "tls_v1": wants_tls} | ({compression: True} if compression else {})
    identify = MAGIC + b"IDENTIFY\n" + frames.sized(json.dumps(asked).encode())
    tls, buffer = Tls(), bytearray()
    hello = tls.shake_hands(b"")[0] if wants_tls else b""
    is_early = draw.random() < 0.5
    send(sock, identify + (hello if is_early else b""), draw)
    oks = wants_tls + bool(compression)
    while (answer := frames.take_frame(buffer)) is None:
        buffer += received(sock)
    if answer.kind != frames.RESPONSE:
        raise CutError
    wire: Wire = Plain()
    if wants_tls:
        send(sock, b"" if is_early else hello, draw)
        given, done = bytes(buffer), False
        while not done:
            said, done = tls.shake_hands(given or received(sock))
            send(sock, said, draw)
            given = b""
        wire, buffer = tls, bytearray(tls.decode(b""))
        oks -= take_oks(sock, wire, buffer, 1)
    if compression:
        wire = Filtered(Snappy() if compression == "snappy" else Deflate(), wire)
        buffer = bytearray(wire.inner.decode(bytes(buffer)) if buffer else b"")  # type: ignore[attr-defined]
        take_oks(sock, wire, buffer, 1)
    return wire, bytes(buffer)


def take_oks(sock: socket.socket, wire: Wire, buffer: bytearray, count: int) -> int:
    for _ in range(count):
        while (found := frames.take_frame(buffer)) is None:
            buffer += wire.decode(received(sock))
        if found != frames.OK:
            raise CutError
    return count


def plain(sock: socket.socket, draw: random.Random) -> tuple[Wire, bytes]:
    return Plain(), b""


# --- cuts -------------------------------------------------------------------------------------------------------------


def send(sock: socket.socket, data: bytes, draw: random.Random) -> None:
    """In pieces, at times of one byte; what is left after many goes at once. Raises CutError."""
    at, most = 0, draw.choice([0, 0, 20, 60])
    try:
        for _ in range(most):
            size = draw.choice([1, 1, 2, 7, 60, 1400])
            sock.sendall(data[at : at + size])
            at += size
            if at >= len(data):
                return
            if draw.random() < 0.3:
                time.sleep(PAUSE_S)
        sock.sendall(data[at:])
    except OSError:
        raise CutError from None


def end(sock: socket.socket, wire: Wire, draw: random.Random) -> None:
    """As connections end: by a farewell or none, one side or both, orderly or not."""
    try:
        if draw.random() < 0.5:
            sock.sendall(wire.last_words(draw))
        how = draw.randrange(4)
        if how == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how == 1:
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(draw.choice([0.01, 0.2]))
            while sock.recv(RECEIVE_BYTES):
                pass
    except (OSError, ssl.SSLError):
        pass
    finally:
        sock.close()
