"""Topics and their channels by ring messages alone: the test is the acceptor, and time is what the test says."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import OK, PUBLISH, REQUEST, SECOND, SHARDS, Answer, Bench

GONE, DELETE = lib.MSG_GONE, lib.MSG_DELETE
SUBSCRIBE = struct.Struct("<QQIIHHI")
TOPIC_FIGURES = struct.Struct("<IIII15Q")
CHANNEL_FIGURES = struct.Struct("<IIIIQQQQQQQQQQ")
CONSUMER_FIGURES = struct.Struct("<IIIIQQQIIII")
TIMEOUT = 60 * SECOND
EPHEMERAL = 1
OF_A_CONSUMER = (lib.MSG_CREDIT, lib.MSG_FINISH, lib.MSG_REQUEUE, lib.MSG_EXTEND, lib.MSG_SENT)


@dataclass
class Channel:
    depth: int
    in_flight: int
    deferred: int
    messages: int
    requeues: int
    timeouts: int
    consumers: int
    paused: bool


@dataclass
class Topic:
    depth: int
    messages: int
    jobs: int
    paused: bool
    channels: dict[str, Channel] = field(default_factory=dict)


class Channels(Bench):
    """Topics are opened by name on shard 0; ids are given out in order."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        self.numbers: dict[str, int] = {}
        self.said: dict[str, int] = {}  # what a topic of that name is: MSG_TOPIC_* flags
        self.next_id = SHARDS
        self.early: list[Answer] = []  # what came beside the answer to a SUBSCRIBE
        super().__init__(**options)

    def start(self) -> None:
        super().start()
        for name, number in self.numbers.items():
            self.open(name, number, flags=self.said.get(name, 0))

    def topic(self, name: str) -> int:
        if name not in self.numbers:
            self.numbers[name] = len(self.numbers) + 1
            self.open(name, self.numbers[name], flags=self.said.get(name, 0))
        return self.numbers[name]

    def raw(self, kind: int, conn: int = 1, *, flags: int = 0, topic: int = 0, id: int = 0, pri: int = 0,
            delay: int = 0, body: bytes = b"", consumer: int = 0, ttr: int = TIMEOUT,
            acceptor: int = 0) -> int:  # fmt: skip
        """SUBSCRIBE and UNSUBSCRIBE have their consumer's number in `pri`."""
        slot, self.next_slot = self.next_slot, self.next_slot + 1
        number = consumer if kind in OF_A_CONSUMER else slot
        head = REQUEST.pack(kind, 0, flags, conn, number, topic, id, pri, len(body), delay, ttr)
        message = ffi.new("struct message *")
        ffi.memmove(message, head, len(head))
        lib.channel_send(self.channels[acceptor], message, body, len(body))
        return slot

    def pub(self, name: str, body: bytes = b"x", delay: float = 0, durable: bool = True) -> tuple[int, list[Answer]]:
        """The id, and what came beside the answer."""
        topic, id = self.topic(name), self.next_id
        self.next_id += SHARDS
        slot = self.raw(PUBLISH, 999, flags=lib.MSG_DURABLE if durable else 0, topic=topic, id=id,
                        pri=1024, delay=int(delay * SECOND), body=body)  # fmt: skip
        answers = self.turn()
        assert [a.status for a in answers if a.slot == slot] == [OK]
        return id, [a for a in answers if a.slot != slot]

    def mpub(self, name: str, bodies: Sequence[bytes]) -> list[int]:
        topic, first = self.topic(name), self.next_id
        self.next_id += SHARDS * len(bodies)
        body = b"".join(struct.pack(">I", len(b)) + b for b in bodies)
        slot = self.raw(lib.MSG_PUBLISH_MANY, 999, topic=topic, id=first, pri=len(bodies), body=body)
        answered: list[Answer] = []
        while not answered:  # a large one takes many turns
            answered = [a for a in self.turn() if a.slot == slot]
        assert [a.status for a in answered] == [OK]
        return list(range(first, self.next_id, SHARDS))

    def sub(self, conn: int, name: str, channel: str, credit: int = 0, timeout: float = 60, flags: int = 0,
            sample: int = 0, max_consumers: int = 0) -> int:  # fmt: skip
        topic = self.topic(name)
        head = SUBSCRIBE.pack(int(timeout * SECOND), 900 * SECOND, sample, max_consumers, len(channel), flags, 4)
        slot = self.raw(lib.MSG_SUBSCRIBE, conn, topic=topic, body=head + channel.encode() + b"{ab}")
        answers = self.turn()
        (status,) = [a.status for a in answers if a.slot == slot]
        self.early += [a for a in answers if a.slot != slot]
        if credit:
            self.raw(lib.MSG_CREDIT, conn, id=credit)
        return status

    def turn(self, seconds: float = 0, acceptor: int = 0) -> list[Answer]:
        answers = self.early + super().turn(seconds, acceptor)
        self.early = []
        return answers

    def pass_turn(self) -> bool:
        """One, of which nobody hears yet. Whether something was done."""
        for channel in self.channels:
            lib.channel_publish(channel)
        busy = lib.worker_turn(self.worker, self.now, self.wall)
        self.supply()
        return bool(busy)

    def step(self) -> list[Answer]:
        """The same, and what comes of it."""
        self.pass_turn()
        return self.receive()

    def credit(self, conn: int, credit: int) -> list[Answer]:
        self.raw(lib.MSG_CREDIT, conn, id=credit)
        return self.turn()

    def fin(self, conn: int, *ids: int) -> list[Answer]:
        for id in ids:
            self.raw(lib.MSG_FINISH, conn, id=id)
        return self.turn()

    def req(self, conn: int, id: int, delay: float = 0) -> list[Answer]:
        self.raw(lib.MSG_REQUEUE, conn, id=id, delay=int(delay * SECOND))
        return self.turn()

    def change(self, what: int, name: str, channel: str = "", flags: int = 0) -> int:
        body = f"{name}\n{channel}" if channel else name
        flags |= self.said.get(name, 0)
        slot = self.raw(lib.MSG_CHANGE, 998, id=0, pri=what, body=body.encode(), flags=flags)
        answers: list[Answer] = []
        for _ in range(100):  # what it lets go of may go piece by piece
            answers += self.turn()
            if any(a.slot == slot for a in answers):
                break
        self.pushed = [a for a in answers if a.slot != slot]
        (status,) = [a.status for a in answers if a.slot == slot]
        return status

    def catalog(self) -> dict[str, Topic]:
        slot = self.raw(lib.MSG_CATALOG, 997, pri=1)
        (answer,) = next(found for _ in range(1000) if (found := [a for a in self.turn() if a.slot == slot]))
        data, at, topics = answer.body, 0, {}

        def take(shape: struct.Struct) -> tuple[Any, ...]:
            nonlocal at
            at += shape.size
            return shape.unpack_from(data, at - shape.size)

        def text(count: int) -> str:
            nonlocal at
            at += count
            return data[at - count : at].decode()

        while at < len(data):
            name_bytes, flags, channels, _, depth, messages, _, jobs, *_ = take(TOPIC_FIGURES)
            topic = topics[text(name_bytes)] = Topic(depth, messages, jobs, bool(flags & 1))
            for _ in range(channels):
                name_bytes, flags, consumers, listed, *counts = take(CHANNEL_FIGURES)
                topic.channels[text(name_bytes)] = Channel(*counts[:6], consumers, bool(flags & 1))
                for _ in range(listed):
                    figures = take(CONSUMER_FIGURES)
                    assert text(figures[-4]) == "{ab}"
        return topics


def delivered(answers: Sequence[Answer], conn: int | None = None) -> list[tuple[int, int]]:
    """Ids and attempts."""
    return [(a.id, a.pri) for a in answers if a.kind == lib.MSG_DELIVER and conn in (None, a.conn)]


def roll(bench: Channels) -> None:
    """Goes on in a new segment."""
    if not lib.worker_active_segment(bench.worker, 0):
        bench.pub("roll")
    before = lib.worker_active_segment(bench.worker, 0)
    lib.worker_roll(bench.worker, 0)
    bench.supply()
    lib.worker_roll(bench.worker, 0)
    bench.pub("roll")
    assert lib.worker_active_segment(bench.worker, 0) == before + 1


def drop_oldest(bench: Channels) -> None:
    """Compacts the oldest segment and drops it, as retention does."""
    for _ in range(100):
        if lib.worker_compact(bench.worker, 0, 1 << 20):
            break
        bench.supply()
    bench.turn()
    assert lib.worker_dead_segments(bench.worker, 0) >= 1
    assert lib.worker_drop_first(bench.worker, 0)
    _, fd = bench.segments[0].pop(0)
    os.close(fd)
