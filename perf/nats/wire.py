"""What a NATS server is asked at its start."""

from __future__ import annotations

import socket
from typing import Final

from perf.brokers import Wire, connect


def greet(port: int, timeout_s: float = 5.0) -> None:
    """Reads the first line. Raises OSError if it is not INFO."""
    with connect(port, timeout_s) as connection:
        greeting = connection.recv(5, socket.MSG_WAITALL)
    if greeting != b"INFO ":
        raise ConnectionError(f"the first line begins {greeting!r}")


WIRE: Final = Wire("nats", greet)
