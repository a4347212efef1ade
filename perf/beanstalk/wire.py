"""What a server of beanstalkd's protocol is asked at its start."""

from __future__ import annotations

from typing import Final

from perf.brokers import Greet, Wire, connect


def stats(port: int, timeout_s: float = 5.0) -> dict[str, str]:
    """Returns the reply to `stats`. Raises OSError if there is none."""
    with connect(port, timeout_s) as connection:
        connection.sendall(b"stats\r\n")
        with connection.makefile("rb") as stream:
            head = stream.readline()
            if not head.startswith(b"OK "):
                raise ConnectionError(f"stats was answered {head!r}")
            body = stream.read(int(head[3:]))
    lines = (line.partition(": ") for line in body.decode().splitlines())
    return {name: value.strip('"') for name, colon, value in lines if colon}


def with_ready(jobs: int) -> Greet:
    """Returns what asks a server whether it has so many ready jobs."""

    def greet(port: int, timeout_s: float) -> None:
        found = stats(port, timeout_s).get("current-jobs-ready")
        if found != str(jobs):
            raise ConnectionError(f"{found} ready jobs, not {jobs}")

    return greet


WIRE: Final = Wire("beanstalk", with_ready(0))
