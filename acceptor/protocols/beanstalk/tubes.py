"""The names of all tubes, which may be very many: the workers are asked one after another, for some at a time, and what
they say is held once for all clients that are told. Nothing is done for each name in Python, and nothing for all at
once. No more than one question is under way: its slot is free again when it is answered, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from mq_shards.acceptor.engine import FAILED, OK, Answer, Engine
from mq_shards.csrc._core import ffi, lib

BEGIN: Final = b"---\n- default\n"
END: Final = b"\r\n"


class TubeList:
    """One round of questions, asked as if `conn` had: `done` is called with the status when all have been answered, or
    one could not be."""

    def __init__(self, engine: Engine, conn: int, done: Callable[[int], None]) -> None:
        self._engine = engine
        self.conn: Final = conn
        self._done = done
        self._worker = 0  # that is asked, and
        self._slot = -1  # of the question
        self._bytes = len(BEGIN)
        self._pieces: list[object] = []
        self._reply: Sequence[object] = ()

    def ask(self, id: int = 0) -> None:
        self._slot = self._engine.request(self._worker, self.conn, lib.MSG_LIST, id=id)
        if self._slot < 0:
            self._done(FAILED)

    def answer(self, answer: Answer) -> None:
        if answer.slot != self._slot:
            return
        if answer.status:
            self._done(answer.status)
            return
        piece = lines(answer.body)
        if piece:
            self._pieces.append(self._engine.share(piece))
            self._bytes += len(piece)
        self._worker += not answer.id
        if self._worker < self._engine.workers:
            self.ask(answer.id)
            return
        head = b"OK %d\r\n%s" % (self._bytes, BEGIN)
        self._pieces = [self._engine.share(head), *self._pieces, self._engine.share(END)]
        self._reply = ffi.new("struct shared_bytes *[]", self._pieces)
        self._done(OK)

    def tell(self, conn: int) -> None:
        self._engine.reply_shared(conn, self._reply)

    def close(self) -> None:
        for piece in self._pieces:
            self._engine.unshare(piece)
        self._pieces.clear()


def lines(names: bytes) -> bytes:
    """Of names that each end in a newline; `default` comes before all others."""
    text = (b"\n" + names).replace(b"\ndefault\n", b"\n")
    return text[:-1].replace(b"\n", b"\n- ")[1:] + b"\n" if len(text) > 1 else b""
