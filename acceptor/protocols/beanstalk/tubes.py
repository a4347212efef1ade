"""The list of all tubes, which may be very many. The workers are asked one after another, for some names at a time, and
their answers are stored once for all clients that get the list. Python does no work for each single name, unless other
protocols have topics that no tube can be called like, and never handles all names at once. One request is under way at
a time, so the list never needs more than one slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from mq_shards.acceptor.engine import FAILED, OK, Answer, Engine, WorkerRequest, is_name, protocol_number
from mq_shards.csrc._core import ffi, lib

BEGIN: Final = b"---\n- default\n"
END: Final = b"\r\n"
_BEANSTALK: Final = protocol_number("beanstalk")
# In most pieces of the list all names are tubes': they have these bytes alone, and none begins with a hyphen.
_TUBES: Final = bytes(byte for byte in range(256) if is_name(_BEANSTALK, b"t%c" % byte)) + b"\n"


class TubeList:
    """Makes one list, with requests on behalf of `conn`. `done` is called with the status when it is complete, or when
    a request has failed."""

    def __init__(self, engine: Engine, conn: int, done: Callable[[int], None]) -> None:
        self._engine = engine
        self.conn: Final = conn
        self._done = done
        self._worker = 0  # the one that is asked now
        self._slot = -1  # of the request to it
        self._bytes = len(BEGIN)
        self._pieces: list[object] = []
        self._reply: Sequence[object] = ()

    def ask(self, id: int = 0) -> None:
        self._slot = self._engine.request(self._worker, self.conn, WorkerRequest(lib.MSG_LIST, id=id))
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
    """The lines of a piece of the list; `names` each end in a newline. Leaves out `default`, which BEGIN has, and names
    of other protocols' topics that are no tube's: a client could not say them, and what reads the list as YAML, not
    read them."""
    text = b"\n" + names
    if text.translate(None, _TUBES) or b"\n-" in text:
        text = b"\n".join((b"", *(one for one in names.split(b"\n") if is_name(_BEANSTALK, one)), b""))
    text = text.replace(b"\ndefault\n", b"\n")
    return text[:-1].replace(b"\n", b"\n- ")[1:] + b"\n" if len(text) > 1 else b""
