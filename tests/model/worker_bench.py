"""Who and what there is in a script of ring messages, and the worker that it drives turn by turn: it can be copied."""

from __future__ import annotations

import os
import struct
from typing import Final

from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import (
    SECOND,
    Answer,
)
from tests.shards.subscriptions import Channels

TOPICS: Final = ("t", "u")
DURABLE_CHANNELS: Final = ("c", "d")
EPHEMERAL_CHANNELS: Final = ("e", "f#ephemeral")
READERS: Final = ("r", "s")
CONSUMING: Final = (1, 2, 3, 4)
KNOW_NO_BATCHES: Final = (2, 4)
WORKING: Final = (11, 12, 13)  # connections that reserve jobs
PARTS: Final = (2, 3, 5, 70)
TXNS: Final = (1, 2, 3)
PIECES: Final = (0, 4, 5, 8, 16, 64)  # of a turn; of fewer than four some things have no part
POLICY: Final = struct.Struct("<HHIIII")
TUBE: Final = ""
NUMBERS: Final = 1 << 16
EVERYTHING: Final = 1_000_000

Act = tuple[str, int, int, int]
Holder = tuple[str, str]  # a topic and its channel, or its TUBE


class WrongError(AssertionError):
    """What the worker does is not what it promises."""


class Subject(Channels):
    """A worker with turns one by one, that can be copied."""

    def heard(self) -> list[Answer]:
        answers = []
        while (m := lib.channel_receive(self.channels[0])) != ffi.NULL:
            body = bytes(ffi.buffer(ffi.cast("char *", m) + 48, m.body_bytes))
            head = (m.conn, m.slot, m.kind, m.status, m.id, m.pri, body, bool(m.flags & 1), m.topic, m.seq, m.delay_ns)
            answers.append(Answer(*head))
        lib.channel_release(self.channels[0])
        return answers

    def settle(self) -> list[Answer]:
        """Until nothing happens any more."""
        answers: list[Answer] = []
        idle = 0
        for _ in range(20_000):
            idle = 0 if self.pass_turn() else idle + 1
            answers += self.heard()
            if idle == 3:
                return answers
        raise WrongError("the worker never comes to rest")

    def turn(self, seconds: float = 0, acceptor: int = 0) -> list[Answer]:
        early, self.early = self.early, []
        answers = early + self.settle()
        if seconds:
            self.now += int(seconds * SECOND)
            self.wall += int(seconds * SECOND)
            answers += self.settle()
        return answers

    def copy(self, *, reads_all: bool = False, uses_heads: bool = False) -> Subject:
        """Another worker, from what this one's logs say now. `reads_all`: also what a start would pass over.
        `uses_heads`: of sealed segments only the heads."""
        other = Subject.__new__(Subject)
        other.__dict__.update(self.__dict__)
        other.segments = {shard: [(n, copy_of(fd)) for n, fd in kept] for shard, kept in self.segments.items()}
        other.names = {place: copy_of(fd) for place, fd in self.names.items()}
        other.read_from = {} if reads_all else dict(self.read_from)
        other.uses_heads = uses_heads
        other.heads = []
        other.numbers = dict(self.numbers)
        other.early = []
        other.board = os.memfd_create("board")
        assert lib.board_format(other.board)
        other.start()
        return other


def copy_of(fd: int) -> int:
    other = os.memfd_create("copy")
    size = os.fstat(fd).st_size
    os.ftruncate(other, size)
    at = 0
    while at < size:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            break  # nothing but a hole is left
        at = os.lseek(fd, begin, os.SEEK_HOLE)
        os.pwrite(other, os.pread(fd, at - begin, begin), begin)
    return other
