"""A server of a cluster as raw bytes: it says what a test wants, and hears what a real one would."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 30.0
ID = "NTESTTESTTESTTESTTESTTESTTESTTESTTESTTESTTESTTESTTESTTES"

INFO: dict[str, Any] = {
    "server_id": ID, "version": "2.9.0", "go": "go1.20", "host": "127.0.0.1", "port": 4,
    "headers": True, "max_payload": 1048576, "cluster": "xyz",
}  # fmt: skip
CONNECT: dict[str, Any] = {
    "echo": True, "verbose": False, "pedantic": False, "tls_required": False, "headers": True, "name": ID,
    "cluster": "xyz",
}  # fmt: skip

NUMBERS = itertools.count()


def line(verb: str, value: dict[str, Any]) -> bytes:
    return f"{verb} {json.dumps(value)}\r\n".encode()


@dataclass
class RouteWire:
    port: int
    said: bytes = b""  # by the server, and not looked at yet
    closed: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    server_id: str = ID
    told: list[bytes] = field(default_factory=list)  # when it had joined

    def __post_init__(self) -> None:
        self.socket = self.opened()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.info = json.loads(self.line().partition(b" ")[2])

    def opened(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)

    @classmethod
    def joined(cls, port: int, info: dict[str, Any] = INFO, connect: dict[str, Any] = CONNECT) -> RouteWire:
        wire = cls(port)
        # Of one that has just gone it may not be known yet.
        wire.join(f"{next(NUMBERS):05}", info, connect)
        wire.told = wire.barrier()
        return wire

    def join(self, number: str, info: dict[str, Any] = INFO, connect: dict[str, Any] = CONNECT) -> None:
        self.server_id = server_id = ID[:-5] + number
        self.send(line("CONNECT", {**connect, "name": server_id}) + line("INFO", {**info, "server_id": server_id}))

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def receive(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        self.said += data
        self.closed |= not data

    def line(self) -> bytes:
        while b"\r\n" not in self.said and not self.closed:
            self.receive()
        found, _, self.said = self.said.partition(b"\r\n")
        return found

    def lines(self, end: bytes) -> list[bytes]:
        """Up to one that begins so, which is left out; or the last. PINGs are answered."""
        found = []
        while not (one := self.line()).startswith(end) and (one or not self.closed):
            if one == b"PING":
                self.send(b"PONG\r\n")
            elif one:
                found.append(one)
        return found

    def barrier(self) -> list[bytes]:
        """What it says until it has done with all that was sent."""
        self.send(b"PING\r\n")
        return self.lines(b"PONG")

    def rest(self) -> bytes:
        """All that it says until it closes."""
        while not self.closed:
            self.receive()
        rest, self.said = self.said, b""
        return rest

    def close(self) -> None:
        self.socket.close()
