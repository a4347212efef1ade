"""What a Pulsar broker is asked at its start."""

from __future__ import annotations

import socket
import struct
from typing import Final

from perf.brokers import Wire, connect


def greet(port: int, timeout_s: float = 5.0) -> None:
    """Looks up a topic. Raises OSError if the broker does not know where it is."""
    topic = b"persistent://public/default/greeting"
    look_up = b"\x0a" + bytes([len(topic)]) + topic + b"\x10\x01\x18\x00"
    with connect(port, timeout_s) as connection:
        connection.settimeout(max(min(timeout_s, 5.0), 0.01))
        for kind, body in ((2, b"\x0a\x04load\x20\x15"), (23, look_up)):
            command = bytes([8, kind]) + bytes([kind << 3 & 0x7F | 2 | (0x80 if kind > 15 else 0)])
            command += (b"\x01" if kind > 15 else b"") + bytes([len(body)]) + body
            connection.sendall(struct.pack(">II", len(command) + 4, len(command)) + command)
            size = struct.unpack(">I", _exactly(connection, 4))[0]
            answer = _exactly(connection, size)
    # In a CommandLookupTopicResponse these bytes say that the response is Connect.
    if b"\x18\x01\x20\x01" not in answer:
        raise ConnectionError(f"a lookup was answered {answer!r}")


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) != size:
        raise ConnectionError("the broker closed the connection")
    return data


WIRE: Final = Wire("pulsar", greet, ("--listen", "pulsar-http://127.0.0.1:0"))  # which a client that looks up needs
