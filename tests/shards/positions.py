"""What tests of positions ask a worker: to publish and retain, to subscribe at a place, to seek, to finish by seq."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import OK, SECOND, SHARDS, Answer
from tests.shards.subscriptions import Channels
from tests.shards.test_shard_protocol import ask

POSITION = struct.Struct("<QQQQQHHIQQQQ48x")
EARLIEST, LATEST, SEQ, TIME = lib.START_EARLIEST, lib.START_LATEST, lib.START_SEQ, lib.START_TIME


@dataclass(frozen=True)
class Position:
    incarnation: int
    began: int
    first: int
    next: int
    last_time: int
    tag: int
    parts: int
    terminated: int
    cursor: int
    unfinished: int
    depth: int
    in_flight: int


def publish(bench: Channels, name: str = "t", body: bytes = b"x", count: int = 1, flags: int = 0,
            delay: int = 0, due_ns: int = 0) -> list[int]:  # fmt: skip
    """With MSG_RETAIN; the seqs."""
    seqs = []
    flags |= lib.MSG_DURABLE | lib.MSG_RETAIN | (lib.MSG_DUE if due_ns else 0)
    for _ in range(count):
        slot = bench.raw(lib.MSG_PUBLISH, 999, flags=flags, topic=bench.topic(name), id=bench.next_id, pri=1024,
                         delay=due_ns or delay * SECOND, body=body)  # fmt: skip
        bench.next_id += SHARDS
        answers = bench.turn()
        seqs += [a.seq for a in answers if a.slot == slot and a.status == OK]
        bench.early += [a for a in answers if a.slot != slot]
    return seqs


def begin(
    bench: Channels, conn: int, start: int, at: int = 0, *, name: str = "t", channel: str = "c", credit: int = 100,
    flags: int = 0, consumer: int = 0,
) -> Answer:  # fmt: skip
    flags |= lib.SUBSCRIBE_START
    head = struct.pack("<QQIIHHI", 60 * SECOND, 900 * SECOND, 0, 0, len(channel), flags, 4)
    body = head + channel.encode() + b"{ab}" + struct.pack("<IIQ", start, 0, at)
    slot = bench.raw(lib.MSG_SUBSCRIBE, conn, topic=bench.topic(name), pri=consumer, body=body)
    answers = bench.turn()
    (answer,) = [a for a in answers if a.slot == slot and a.kind == lib.MSG_SUBSCRIBE]
    bench.early += [a for a in answers if a is not answer]
    if credit and answer.status == OK:
        bench.raw(lib.MSG_CREDIT, conn, id=credit, consumer=consumer)
    return answer


def read(bench: Channels, conn: int, start: int, at: int = 0, credit: int = 100, channel: str = "r") -> Answer:
    return begin(bench, conn, start, at, credit=credit, channel=channel, flags=lib.SUBSCRIBE_EPHEMERAL)


def seqs(answers: Sequence[Answer], conn: int | None = None) -> list[int]:
    return [a.seq for a in answers if a.kind == lib.MSG_DELIVER and conn in (None, a.conn)]


def seek(bench: Channels, start: int, at: int = 0, *, channel: str = "c", flags: int = 0) -> Answer:
    slot = bench.raw(lib.MSG_SEEK, 998, topic=bench.topic("t"), pri=start, ttr=at, flags=flags, body=channel.encode())
    answers = bench.turn()
    (answer,) = [a for a in answers if a.slot == slot and a.kind == lib.MSG_SEEK]
    bench.early += [a for a in answers if a is not answer]
    return answer


def finish(bench: Channels, conn: int, *of: int, flags: int = 0, body: bytes = b"") -> list[Answer]:
    for seq in of:
        bench.raw(lib.MSG_FINISH, conn, flags=lib.MSG_BY_SEQ | flags, ttr=seq, body=body)
    return bench.turn()


def position(bench: Channels, channel: str = "", name: str = "t") -> Position:
    answer = ask(bench, lib.MSG_POSITION, 997, topic=bench.topic(name), body=channel.encode())
    assert answer.status == OK
    return Position(*POSITION.unpack(answer.body))


def live(bench: Channels) -> int:
    """Messages of the first segment that may not go."""
    return int(lib.worker_live_jobs(bench.worker, 0, 1, ffi.new("uint64_t *")))
