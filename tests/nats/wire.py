"""A scene played before a server: what each client hears."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
from dataclasses import dataclass, field

from tests.nats.scenes import Scene
from tests.ready import readable

PING = re.compile(rb"^PING\r\n", re.MULTILINE)
TIMEOUT_S = 30.0  # what does not come is a failure, what comes late is a busy machine


_numbers = itertools.count()


def elsewhere() -> str:
    """An address that few clients have had: after some wrong logins of one address the next have to wait."""
    number = next(_numbers) % 40_000
    return f"127.2.{number // 200}.{1 + number % 200}"


def far_away(port: int) -> socket.socket:
    """Its kernel takes little at a time, as over a slow line: what is read is heard of at once."""
    found = socket.socket()
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.settimeout(TIMEOUT_S)
    found.connect(("127.0.0.1", port))
    return found


@dataclass
class Heard:
    """All that came after the first INFO but the server's PINGs, of which there are as many as the machine is slow;
    `closed`: the server has ended the connection."""

    data: bytes = b""
    closed: bool = False


@dataclass
class Wire:
    """A client as raw bytes."""

    port: int
    heard: Heard = field(default_factory=Heard)
    asked: int = 0
    address: str = "127.0.0.1"

    def __post_init__(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S, (self.address, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.info = b""
        while not self.info.endswith(b"\r\n"):
            line, end, _ = self.socket.recv(1 << 16, socket.MSG_PEEK).partition(b"\n")
            assert line or end, "closed before INFO"
            self.info += self.socket.recv(len(line + end))

    def send(self, data: bytes) -> None:
        self.asked += data.upper().count(b"PING")
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def barrier(self) -> None:
        """Until all PINGs of ours are answered, or the connection is closed."""
        if self.heard.closed:
            return
        self.send(b"PING\r\n")
        came = bytearray(self.heard.data)  # it may be much, in small pieces
        pongs = came.count(b"PONG\r\n")
        try:
            while pongs < self.asked and not self.heard.closed:
                seen = max(0, len(came) - len(b"PONG\r"))
                came += self._next()
                pongs += came.count(b"PONG\r\n", seen)
        finally:
            self.heard.data = PING.sub(b"", came)

    def receive(self) -> None:
        self.heard.data = PING.sub(b"", self.heard.data + self._next())

    def _next(self) -> bytes:
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        self.heard.closed |= not data
        return data

    def receive_what_is_there(self) -> None:
        while not self.heard.closed and readable([self.socket], 0):
            self.receive()

    def close(self) -> None:
        self.socket.close()


def play(scene: Scene, port: int) -> list[Heard]:
    clients: dict[int, Wire] = {}
    try:
        for number, said in scene.steps:
            if number not in clients:
                clients[number] = Wire(port)
            clients[number].send(said)
            if not _is_cut(said):
                clients[number].barrier()
        for number in sorted(clients):
            clients[number].barrier()
        return [clients[number].heard for number in sorted(clients)]
    finally:
        for client in clients.values():
            client.close()


def _is_cut(said: bytes) -> bool:
    """It ends within a line or a payload, which ends the connection: a PING would be a part of that."""
    return not said.endswith(b"\n")
