"""A beanstalk client that hides nothing: bytes out, replies in."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time

from tests.beanstalk.replies import Reply, parse_dict, parse_list, take_reply
from tests.servers import Server, wait_until

REPLY_SECONDS = 60.0
_names = itertools.count(1)


def unique_tube(stem: str = "tube") -> str:
    """A name that no test has used."""
    return f"{stem}-{next(_names)}"


class Wire:
    def __init__(self, server: Server | int, reply_seconds: float = REPLY_SECONDS) -> None:
        port = server if isinstance(server, int) else server.port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=REPLY_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.reply_seconds = reply_seconds

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self, seconds: float | None = None) -> Reply:
        """The next reply, with its body if it has one."""
        until = time.monotonic() + (seconds or self.reply_seconds)
        while (reply := take_reply(self.buffer)) is None:
            self.socket.settimeout(max(until - time.monotonic(), 0.001))
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError(f"closed; unread: {bytes(self.buffer[:200])!r}")
            self.buffer += data
        return reply

    def replies(self, count: int, seconds: float | None = None) -> list[Reply]:
        return [self.reply(seconds) for _ in range(count)]

    def ask(self, command: bytes | str) -> bytes:
        """Sends a command and gives back the first line of the reply."""
        return self.exchange(command).line

    def exchange(self, command: bytes | str) -> Reply:
        data = command.encode() if isinstance(command, str) else command
        self.send(data + b"\r\n")
        return self.reply()

    def is_quiet(self, seconds: float) -> bool:
        """Nothing comes for that long."""
        if self.buffer:
            return False
        self.socket.settimeout(seconds)
        try:
            self.buffer += self.socket.recv(1 << 20)
        except TimeoutError:
            return True
        return False

    def is_closed(self, seconds: float = REPLY_SECONDS) -> bool:
        """The server closes without another byte."""
        self.socket.settimeout(seconds)
        with contextlib.suppress(ConnectionResetError):
            return not self.buffer and self.socket.recv(1) == b""
        return True

    # Commands with their usual outcome.

    def put(self, body: bytes = b"", *, pri: int = 0, delay: int = 0, ttr: int = 60) -> int:
        self.send(b"put %d %d %d %d\r\n%s\r\n" % (pri, delay, ttr, len(body), body))
        reply = self.reply()
        assert reply.word == b"INSERTED", reply
        return reply.number

    def reserve(self, timeout: int | None = 0) -> tuple[int, bytes]:
        reply = self.exchange("reserve" if timeout is None else f"reserve-with-timeout {timeout}")
        assert reply.word == b"RESERVED", reply
        assert reply.body is not None
        return reply.number, reply.body

    def use(self, tube: str) -> None:
        assert self.ask(f"use {tube}") == f"USING {tube}".encode()

    def watch_only(self, *tubes: str) -> None:
        before = self.watched()
        for tube in tubes:
            assert self.ask(f"watch {tube}").startswith(b"WATCHING ")
        for tube in set(before) - set(tubes):
            assert self.ask(f"ignore {tube}").startswith(b"WATCHING ")

    def watched(self) -> list[str]:
        return self.list("list-tubes-watched")

    def list(self, command: str = "list-tubes") -> list[str]:
        reply = self.exchange(command)
        assert reply.body is not None, reply
        return parse_list(reply.body)

    def stats(self) -> dict[str, str]:
        return self._stats("stats")

    def stats_job(self, job: int) -> dict[str, str]:
        return self._stats(f"stats-job {job}")

    def stats_tube(self, tube: str) -> dict[str, str]:
        return self._stats(f"stats-tube {tube}")

    def _stats(self, command: str) -> dict[str, str]:
        reply = self.exchange(command)
        assert reply.word == b"OK" and reply.body is not None, reply
        return parse_dict(reply.body)

    def wait_for_stats_tube(self, tube: str, **wanted: int) -> None:
        """Until the tube's stats say so: what other connections did, or closed connections left, has arrived."""

        def holds() -> bool:
            reply = self.exchange(f"stats-tube {tube}")
            if reply.body is None:
                return False
            fields = parse_dict(reply.body)
            return all(fields[name.replace("_", "-")] == str(value) for name, value in wanted.items())

        wait_until(holds, f"stats-tube {tube} has {wanted}")
