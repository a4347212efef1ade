"""What a server of NSQ's protocol, or of nsqd's HTTP API, is asked at its start."""

from __future__ import annotations

from typing import Final

from perf.brokers import Wire, connect

MAX_RDY: Final = 10_000


def greet(port: int, timeout_s: float = 5.0) -> None:
    """Sends IDENTIFY. Raises OSError if the answer is not OK."""
    with connect(port, timeout_s) as connection:
        connection.sendall(b"  V2IDENTIFY\n\0\0\0\x02{}")
        with connection.makefile("rb") as stream:
            answer = stream.read(10)
    if answer != b"\0\0\0\x06\0\0\0\0OK":
        raise ConnectionError(f"IDENTIFY was answered {answer!r}")


def greet_http(port: int, timeout_s: float = 5.0) -> None:
    """Sends /ping to the HTTP API. Raises OSError if the answer is not OK."""
    with connect(port, timeout_s) as connection:
        connection.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with connection.makefile("rb") as stream:
            answer = stream.readline()
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(f"/ping was answered {answer!r}")


WIRE: Final = Wire("nsq", greet, ("--set", f"nsq.max-rdy-count={MAX_RDY}"))
HTTP: Final = Wire("nsq-http", greet_http)
