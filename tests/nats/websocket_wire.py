"""A client of a websocket as raw bytes: what it sends, and the frames that come."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.nats.servers import NatsServer, running
from tests.servers import START_SECONDS, free_port

TIMEOUT_S = 30.0
KEY = base64.b64encode(bytes(range(16))).decode()
MASK = b"\x01\x80\x7f\xfe"

CONTINUES, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FINAL, COMPRESSED = 0x80, 0x40


def request(*more: str, path: str = "/", without: str = "", method: str = "GET", version: str = "1.1") -> bytes:
    """A good one, less a header, and with others behind it."""
    lines = ["Host: 127.0.0.1:8080", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {KEY}",
             "Sec-WebSocket-Version: 13"]  # fmt: skip
    kept = [line for line in lines if not without or not line.startswith(without)]
    return "\r\n".join([f"{method} {path} HTTP/{version}", *kept, *more, "", ""]).encode()


def frame(opcode: int, payload: bytes = b"", *, first: int = FINAL, mask: bytes | None = MASK, size: int = -1) -> bytes:
    """`size`: what its head says, if that is not so."""
    count = len(payload) if size < 0 else size
    bit = 0 if mask is None else 0x80
    head = bytes([first | opcode])
    if count <= 125:
        head += bytes([bit | count])
    elif count <= 0xFFFF:
        head += struct.pack(">BH", bit | 126, count)
    else:
        head += struct.pack(">BQ", bit | 127, count)
    if mask is None:
        return head + payload
    over = mask * (len(payload) // 4 + 1)
    return head + mask + (int.from_bytes(payload) ^ int.from_bytes(over[: len(payload)])).to_bytes(len(payload))


@dataclass
class Websocket:
    """`head`: the answer to its request; `stream`: payloads of messages; `controls`: of other frames, by opcode."""

    port: int
    asked: bytes = field(default_factory=request)
    context: ssl.SSLContext | None = None
    head: bytes = b""
    stream: bytes = b""
    first_bytes: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    controls: list[tuple[int, bytes]] = field(default_factory=list)
    closed: bool = False
    rest: bytes = b""

    def __post_init__(self) -> None:
        self.socket: socket.socket = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.context is not None:
            self.socket = self.context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.send(self.asked)
        while b"\r\n\r\n" not in self.rest and not self.closed:
            self.receive()
        self.head, _, self.rest = self.rest.partition(b"\r\n\r\n")

    def __enter__(self) -> Websocket:
        return self

    def __exit__(self, *what: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def say(self, line: bytes) -> None:
        self.send(frame(BINARY, line))

    def receive(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
        except (ConnectionError, ssl.SSLError):
            data = b""
        self.rest += data
        self.closed |= not data

    def hear(self) -> bool:
        """Another frame; False when there is none any more."""
        while (found := _whole(self.rest)) is None:
            if self.closed:
                return False
            self.receive()
        first, payload, used = found
        self.rest = self.rest[used:]
        if first & 15 < CLOSE:
            self.stream += payload
            self.first_bytes.append(first)
            self.sizes.append(len(payload))
        else:
            self.controls.append((first & 15, payload))
        return True

    def until(self, what: bytes) -> bytes:
        while what not in self.stream:
            assert self.hear(), (self.stream, self.controls)
        return self.stream

    def to_the_end(self) -> None:
        while self.hear():
            pass


def _whole(data: bytes) -> tuple[int, bytes, int] | None:
    if len(data) < 2:
        return None
    assert not data[1] & 0x80, "a server does not mask"
    size, at = data[1], 2
    if size > 125:
        at = 4 if size == 126 else 10
        if len(data) < at:
            return None
        size = int.from_bytes(data[2:at], "big")
    return (data[0], data[at : at + size], at + size) if len(data) >= at + size else None


def conf(port: int, *lines: str, tls: bool = False) -> str:
    inside = [f"listen: 127.0.0.1:{port}", *([] if tls else ["no_tls: true"]), *lines]
    return "\n".join(["websocket {", *(f"  {line}" for line in inside), "}", ""])


SERVERS: dict[int, NatsServer] = {}  # by their ports for websockets


@contextlib.contextmanager
def serving(acceptors: int, *lines: str, more: str = "", tls: bool = False) -> Iterator[int]:
    """The port for websockets of a server (0: a nats-server), with these lines in its block and more outside."""
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "nats-server.conf"
        path.write_text(conf(port, *lines, tls=tls) + more)
        with running(acceptors, arguments=["-c" if acceptors == 0 else "--nats-config", str(path)]) as server:
            _wait(port)
            SERVERS[port] = server
            yield port


def _wait(port: int) -> None:
    """A nats-server listens for websockets last."""
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S).close()
            return
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.02)
