"""The names of all tubes, which may be very many: the workers are asked for some at a time, and what they say is held
once for all clients that are told. Nothing is done for each name in Python, and nothing for all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from mq_shards.acceptor.engine import Answer, Engine
from mq_shards.csrc._core import ffi, lib

BEGIN: Final = b"---\n- default\n"
END: Final = b"\r\n"


class TubeList:
    """One round of questions, asked as if `conn` had: `done` is called with the status when all have been answered."""

    def __init__(self, engine: Engine, conn: int, done: Callable[[int], None]) -> None:
        self._engine = engine
        self.conn: Final = conn
        self._done = done
        self._missing = engine.workers
        self._status = 0
        self._bytes = len(BEGIN)
        self._pieces: list[object] = []
        self._reply: Sequence[object] = ()
        self._worker_of: dict[int, int] = {}  # by the slot of its question
        for worker in range(engine.workers):
            self._ask(worker, 0)

    def _ask(self, worker: int, id: int) -> None:
        self._worker_of[self._engine.request(worker, self.conn, lib.MSG_LIST, id=id)] = worker

    def answer(self, answer: Answer) -> None:
        worker = self._worker_of.pop(answer.slot)
        self._status = max(self._status, answer.status)
        piece = lines(answer.body)
        if piece:
            self._pieces.append(self._engine.share(piece))
            self._bytes += len(piece)
        if answer.id and not answer.status:
            self._ask(worker, answer.id)
            return
        self._missing -= 1
        if self._missing == 0:
            head = b"OK %d\r\n%s" % (self._bytes, BEGIN)
            self._pieces = [self._engine.share(head), *self._pieces, self._engine.share(END)]
            self._reply = ffi.new("struct shared_bytes *[]", self._pieces)
            self._done(self._status)

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
