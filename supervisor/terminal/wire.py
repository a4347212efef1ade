"""A TCP or unix connection whose errors are LostErrors of one line each."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from mq_shards.supervisor.terminal.client import (
    ANSWER_S,
    CONNECT_S,
    GREETING_S,
    At,
    LostError,
    begin_tls,
    doubt,
    reason,
)

LAST_WORDS: Final = 200  # characters of what a broker says that are shown
# A machine that has gone without a word is noticed after IDLE_S + PROBES * PROBE_S.
IDLE_S, PROBE_S, PROBES = 30, 10, 3


class Wire:
    def __init__(self, at: At, *, plain_first: bool = False, first_s: float = GREETING_S) -> None:
        """Connects. `plain_first`: TLS, if any, begins later, with the caller's start_tls(). `first_s`: how long to
        wait for the first answer. Raises LostError."""
        self.at: Final = at
        self._limit_s: float | None = first_s
        self._heard = False
        try:
            if at.path:
                self._socket = socket.socket(socket.AF_UNIX)
                self._socket.settimeout(CONNECT_S)
                self._socket.connect(at.path)
            else:
                self._socket = socket.create_connection((at.host, at.port), CONNECT_S)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in (("KEEPIDLE", IDLE_S), ("KEEPINTVL", PROBE_S), ("KEEPCNT", PROBES)):
                    self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{option}"), value)
        except OSError as error:
            raise LostError(f"no broker at {at}: {reason(error)}") from None
        self._buffer = bytearray()
        if not plain_first:
            self.start_tls()
        self._socket.settimeout(first_s)

    def start_tls(self) -> None:
        """Begins TLS, if the address is encrypted."""
        try:
            self._socket = begin_tls(self.at, self._socket)
        except OSError as error:
            raise LostError(f"no broker at {self.at}: {reason(error)}") from None
        self._socket.settimeout(self._limit_s)

    def close(self) -> None:
        self._socket.close()

    def wait_for_ever(self) -> None:
        """Turns off the time limit of answers, for messages that may come much later."""
        self.limit(None)

    def limit(self, seconds: float | None) -> None:
        """How long to wait for answers from now on; None: for ever."""
        self._limit_s = seconds
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise LostError(f"{self.at}: {reason(error)}{self._last_words()}") from None

    def _last_words(self) -> str:
        """What a broker that has ended the connection says about why, if it does."""
        if self.at.tls is None:
            with contextlib.suppress(OSError):
                self._buffer += self._socket.recv(64 << 10, socket.MSG_DONTWAIT)
        last = self._buffer.rstrip().rpartition(b"\r\n")[2].decode("latin-1")[:LAST_WORDS]
        said = "".join(one for one in last if one.isascii() and one.isprintable())
        return f", and it says {said}" if said else ""

    def line(self) -> bytes:
        """The next line, without its end."""
        while (at := self._buffer.find(b"\r\n")) < 0:
            self._more()
        return self.take(at + 2)[:-2]

    def take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more()
        data = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return data

    def _more(self) -> None:
        try:
            data = self._socket.recv(256 << 10)
        except TimeoutError:
            raise LostError(f"{self.at} has not answered for {self._limit_s:g} s{self._doubt()}") from None
        except OSError as error:
            raise LostError(f"{self.at}: {reason(error)}") from None
        if not data:
            raise LostError(f"{self.at} has closed the connection{self._doubt()}")
        if not self._heard:
            self._heard = True
            if self._limit_s is not None:
                self.limit(ANSWER_S)
        self._buffer += data

    def _doubt(self) -> str:
        return "" if self._heard else f": {doubt(self.at)}"
