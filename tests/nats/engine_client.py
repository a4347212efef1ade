"""Clients of an acceptor's core without Python's part of the protocol: nobody has to say who he is."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from mq_shards.acceptor.engine import COMMAND, Engine, protocol_number
from mq_shards.csrc._core import lib

NATS = protocol_number("nats")


@contextlib.contextmanager
def opened() -> Iterator[Engine]:
    board, wake = os.memfd_create("board"), os.eventfd(0, os.EFD_NONBLOCK)
    assert lib.board_format(board)
    engine = Engine(0, 1, 1, board, wake)
    os.close(board)
    engine.turn(1)
    yield engine
    engine.close()
    os.close(wake)


class Client:
    def __init__(self, engine: Engine, protocol: int = NATS, buffer_bytes: int = 1 << 20) -> None:
        self.socket, theirs = socket.socketpair()
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, option, buffer_bytes)
        self.socket.setblocking(False)
        self.engine = engine
        self.conn = engine.adopt(theirs.detach(), protocol)
        self.heard = b""
        self.turn()
        if protocol == NATS:
            engine.call(self.conn, "flags", 0)  # neither verbose nor pedantic, and no echo

    def turn(self) -> None:
        self.engine.turn(1)
        for upcall in self.engine.upcalls():
            if upcall.kind == COMMAND:  # INFO is to be said
                self.engine.resume(upcall.conn)

    def say(self, text: bytes) -> None:
        while text:
            try:
                text = text[self.socket.send(text) :]
            except BlockingIOError:
                self.turn()

    def hear(self) -> bytes:
        try:
            while data := self.socket.recv(1 << 20):
                self.heard += data
        except BlockingIOError:
            pass
        return self.heard

    def turns_until_pong(self) -> int:
        """How many it takes until a PING is answered."""
        before = self.hear().count(b"PONG\r\n")
        self.say(b"PING\r\n")
        for turns in range(1000):
            if self.hear().count(b"PONG\r\n") > before:
                return turns
            self.turn()
        raise AssertionError("no PONG")
