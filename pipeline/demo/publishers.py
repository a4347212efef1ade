"""Minimal publishers in two protocols: beanstalkd's put, NSQ's MPUB."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Final

TIMEOUT_S: Final = 10.0
MPUB_MESSAGES: Final = 200
RESPONSE: Final = 0


def put_jobs(port: int, tube: str, bodies: Sequence[bytes]) -> None:
    """Sends all commands at once; the replies come in the same order."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        stream = connection.makefile("rb")
        commands = b"".join(b"put 1024 0 60 %d\r\n%b\r\n" % (len(body), body) for body in bodies)
        connection.sendall(b"use %b\r\n%b" % (tube.encode(), commands))
        replies = [stream.readline() for _ in range(1 + len(bodies))]
    refused = [reply for reply in replies[1:] if not reply.startswith(b"INSERTED ")]
    if not replies[0].startswith(b"USING ") or refused:
        raise RuntimeError(f"put: {refused[:1] or replies[:1]}")


def publish_messages(port: int, topic: str, bodies: Sequence[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        stream = connection.makefile("rb")
        connection.sendall(b"  V2")
        for start in range(0, len(bodies), MPUB_MESSAGES):
            some = bodies[start : start + MPUB_MESSAGES]
            content = struct.pack(">I", len(some)) + b"".join(struct.pack(">I", len(b)) + b for b in some)
            connection.sendall(b"MPUB %b\n" % topic.encode() + struct.pack(">I", len(content)) + content)
            size, kind = struct.unpack(">II", stream.read(8))
            said = stream.read(size - 4)
            if kind != RESPONSE or said != b"OK":
                raise RuntimeError(f"MPUB: {said!r}")
