"""Subscriptions by ring messages alone: channels of a topic, their consumers, what survives a restart, and the job
queue beside them. The test is the acceptor, and time is what the test says."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.test_worker import (
    OK,
    OPEN,
    PROBE,
    PUBLISH,
    REQUEST,
    RESERVE,
    SECOND,
    SHARDS,
    TIMED_OUT,
    WATCH,
    Answer,
    Bench,
)

GONE, DELETE = lib.MSG_GONE, lib.MSG_DELETE
SUBSCRIBE = struct.Struct("<QQIIHHI")
TOPIC_FIGURES = struct.Struct("<IIIIQQQQQQQQ")
CHANNEL_FIGURES = struct.Struct("<IIIIQQQQQQQQQ")
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
        self.next_id = SHARDS
        self.early: list[Answer] = []  # what came beside the answer to a SUBSCRIBE
        super().__init__(**options)

    def start(self) -> None:
        super().start()
        for name, number in self.numbers.items():
            self.open(name, number)

    def topic(self, name: str) -> int:
        if name not in self.numbers:
            self.numbers[name] = len(self.numbers) + 1
            self.open(name, self.numbers[name])
        return self.numbers[name]

    def raw(self, kind: int, conn: int = 1, *, flags: int = 0, topic: int = 0, id: int = 0, pri: int = 0,
            delay: int = 0, body: bytes = b"", consumer: int = 0, ttr: int = TIMEOUT) -> int:  # fmt: skip
        """SUBSCRIBE and UNSUBSCRIBE have their consumer's number in `pri`."""
        slot, self.next_slot = self.next_slot, self.next_slot + 1
        number = consumer if kind in OF_A_CONSUMER else slot
        head = REQUEST.pack(kind, 0, flags, conn, number, topic, id, pri, len(body), delay, ttr)
        message = ffi.new("struct message *")
        ffi.memmove(message, head, len(head))
        lib.channel_send(self.channels[0], message, body, len(body))
        return slot

    def pub(self, name: str, body: bytes = b"x", delay: float = 0, lasting: bool = True) -> tuple[int, list[Answer]]:
        """The id, and what came beside the answer."""
        topic, id = self.topic(name), self.next_id
        self.next_id += SHARDS
        slot = self.raw(PUBLISH, 999, flags=lib.MSG_DURABLE if lasting else 0, topic=topic, id=id,
                        pri=1024, delay=int(delay * SECOND), body=body)  # fmt: skip
        answers = self.turn()
        assert [a.status for a in answers if a.slot == slot] == [OK]
        return id, [a for a in answers if a.slot != slot]

    def mpub(self, name: str, bodies: Sequence[bytes]) -> list[int]:
        topic, first = self.topic(name), self.next_id
        self.next_id += SHARDS * len(bodies)
        body = b"".join(struct.pack(">I", len(b)) + b for b in bodies)
        slot = self.raw(lib.MSG_PUBLISH_MANY, 999, topic=topic, id=first, pri=len(bodies), body=body)
        assert [a.status for a in self.turn() if a.slot == slot] == [OK]
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

    def change(self, what: int, name: str, channel: str = "") -> int:
        body = f"{name}\n{channel}" if channel else name
        slot = self.raw(lib.MSG_CHANGE, 998, id=0, pri=what, body=body.encode())
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
        (answer,) = [a for a in self.turn() if a.slot == slot]
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


@pytest.fixture()
def bench() -> Iterator[Channels]:
    b = Channels()
    yield b
    b.dispose()


def test_messages_before_the_first_channel_wait_for_it(bench: Channels) -> None:
    ids = [bench.pub("t", b"%d" % n)[0] for n in range(5)]
    assert bench.catalog()["t"].depth == 5
    assert bench.sub(1, "t", "c", credit=10) == OK
    answers = bench.turn()
    assert delivered(answers) == [(id, 1) for id in ids]
    assert [a.body for a in answers] == [b"%d" % n for n in range(5)]
    assert bench.catalog()["t"].depth == 0
    assert bench.sub(2, "t", "late", credit=10) == OK
    assert bench.turn() == []
    id, pushed = bench.pub("t")
    assert sorted((a.conn, a.id) for a in pushed) == [(1, id), (2, id)]


def test_waiting_messages_outlive_a_restart(bench: Channels) -> None:
    ids = [bench.pub("t")[0] for _ in range(3)] + bench.mpub("t", [b"a", b"bc"])
    bench.restart()
    assert bench.catalog()["t"].depth == 5
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(id, 1) for id in ids]


def test_credit_bounds_what_is_in_flight(bench: Channels) -> None:
    ids = [bench.pub("t")[0] for _ in range(10)]
    bench.sub(1, "t", "c")
    assert delivered(bench.credit(1, 3)) == [(id, 1) for id in ids[:3]]
    assert bench.turn() == []
    assert delivered(bench.fin(1, ids[0])) == [(ids[3], 1)]
    assert bench.credit(1, 1) == []
    assert bench.fin(1, ids[1], ids[2]) == []
    assert delivered(bench.fin(1, ids[3])) == [(ids[4], 1)]
    assert bench.credit(1, 0) == []
    assert bench.fin(1, ids[4]) == []
    channel = bench.catalog()["t"].channels["c"]
    assert (channel.depth, channel.in_flight, channel.messages) == (5, 0, 10)


def test_consumers_of_a_channel_share_it_in_turns(bench: Channels) -> None:
    for conn in (1, 2, 3):
        bench.sub(conn, "t", "c", credit=100)
    bench.turn()
    got = [bench.pub("t")[1] for _ in range(9)]
    assert sorted(a.conn for answers in got for a in answers) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_what_is_not_finished_in_time_comes_again(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10, timeout=2)
    id, pushed = bench.pub("t")
    assert delivered(pushed) == [(id, 1)]
    assert bench.turn(1.9) == []
    bench.raw(lib.MSG_EXTEND, 1, id=id)
    assert bench.turn(1.9) == []
    assert delivered(bench.turn(0.2)) == [(id, 2)]
    assert bench.catalog()["t"].channels["c"].timeouts == 1
    assert bench.fin(1, id) == []
    assert [(a.kind, a.status) for a in bench.fin(1, id)] == [(lib.MSG_REFUSED, lib.STATUS_NOT_FOUND)]


def test_extending_has_an_end(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10, timeout=600)
    id, _ = bench.pub("t")
    bench.turn(500)
    bench.raw(lib.MSG_EXTEND, 1, id=id)
    assert bench.turn(399) == []
    assert delivered(bench.turn(2)) == [(id, 2)]


def test_another_consumer_may_not_finish_it(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=1)
    bench.sub(2, "t", "c")
    id, _ = bench.pub("t")
    assert [(a.conn, a.kind, a.status) for a in bench.fin(2, id)] == [(2, lib.MSG_REFUSED, lib.STATUS_NONE)]
    assert bench.fin(1, id) == []


def test_requeued_messages_come_at_once_or_after_their_delay(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=1)
    id, _ = bench.pub("t")
    assert delivered(bench.req(1, id)) == [(id, 2)]
    assert bench.req(1, id, delay=5) == []
    assert bench.catalog()["t"].channels["c"].deferred == 1
    assert bench.turn(4.9) == []
    assert delivered(bench.turn(0.2)) == [(id, 3)]
    assert bench.catalog()["t"].channels["c"].requeues == 2


def test_a_message_requeued_for_ever_does_not_hold_up_the_others(bench: Channels) -> None:
    ids = [bench.pub("t")[0] for _ in range(5)]
    bench.sub(1, "t", "c", credit=1)
    seen, answers = [], bench.turn()
    while len(set(seen)) < 5:
        (id, _), *_ = delivered(answers)
        seen.append(id)
        assert len(seen) < 30
        answers = bench.req(1, id)
    assert set(seen) == set(ids)


def test_a_consumer_that_goes_gives_its_messages_back(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10)
    id, _ = bench.pub("t")
    bench.raw(GONE, 1)
    bench.turn()
    bench.sub(2, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(id, 2)]


def test_attempts_are_counted_on_after_a_restart_and_finished_messages_stay_finished(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=100)
    ids = [bench.pub("t")[0] for _ in range(6)]
    bench.fin(1, ids[0], ids[2], ids[3])
    assert delivered(bench.req(1, ids[4])) == [(ids[4], 2)]
    bench.req(1, ids[5], delay=1000)
    waiting = bench.pub("u")[0]
    bench.restart()
    bench.sub(1, "t", "c", credit=100)
    assert sorted(delivered(bench.turn())) == [(ids[1], 2), (ids[4], 3)]
    assert bench.catalog()["t"].channels["c"].deferred == 1
    bench.fin(1, ids[1], ids[4])
    assert delivered(bench.turn(990)) == []
    assert delivered(bench.turn(11)) == [(ids[5], 2)]
    bench.fin(1, ids[5])
    bench.restart()
    bench.sub(1, "t", "c", credit=100)
    assert bench.turn() == []
    bench.sub(2, "u", "c", credit=1)
    assert delivered(bench.turn()) == [(waiting, 1)]


def test_delayed_messages_are_deferred_in_every_channel(bench: Channels) -> None:
    early, _ = bench.pub("t", delay=30)
    bench.sub(1, "t", "c", credit=10)
    bench.sub(2, "t", "d", credit=10)
    both, pushed = bench.pub("t", delay=10)
    assert pushed == []
    assert {name: c.deferred for name, c in bench.catalog()["t"].channels.items()} == {"c": 2, "d": 1}
    bench.restart()
    bench.sub(1, "t", "c", credit=10)
    bench.sub(2, "t", "d", credit=10)
    assert bench.turn(9.9) == []
    answers = bench.turn(0.2)
    assert sorted((a.conn, a.id, a.pri) for a in answers) == [(1, both, 1), (2, both, 1)]
    bench.fin(1, both)
    bench.fin(2, both)
    assert delivered(bench.turn(20)) == [(early, 1)]


def test_a_delayed_message_before_the_first_channel_is_deferred_in_it_after_a_restart(bench: Channels) -> None:
    id, _ = bench.pub("t", delay=30)
    bench.restart()
    bench.sub(1, "t", "c", credit=10)
    assert bench.turn(29) == []
    assert delivered(bench.turn(2)) == [(id, 1)]


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("hours", [1, 0, -1], ids=["set back", "right", "set forward"])
@pytest.mark.parametrize("how", ["published", "requeued", "before the channel"])
def test_what_is_deferred_waits_no_longer_than_was_left_whatever_the_clock_was_set_to(
    bench: Channels, how: str, hours: int, moved: bool
) -> None:
    if how != "before the channel":
        bench.sub(1, "t", "c", credit=10)
    if how != "requeued":
        id, _ = bench.pub("t", delay=8)
    else:
        id, came = bench.pub("t")
        assert delivered(came or bench.turn()) == [(id, 1)]
        bench.req(1, id, delay=8)
    bench.sub(1, "t", "c", credit=10)
    bench.turn(3)
    bench.pub("other")  # the log sees that time has passed
    if moved:
        roll(bench)
        for _ in range(10):
            if lib.worker_compact(bench.worker, 0, 1 << 20):
                break
        bench.turn()
        drop_oldest(bench)
    for restarts in (1, 2):
        bench.wall -= hours * 3600 * SECOND
        bench.restart()
        bench.pub("other")  # what passes behind this the log knows of
        bench.sub(1, "t", "c", credit=10)
        if hours >= 0:
            assert delivered(bench.turn(2.4)) == []
            assert bench.catalog()["t"].channels["c"].deferred == 1
            bench.pub("other")
        if hours < 0 or restarts == 2:
            again = (how == "requeued") + (restarts if hours < 0 else 1)
            assert delivered(bench.turn(0.3)) == [(id, again)]


def test_a_paused_channel_gets_nothing_and_a_paused_topic_keeps_what_comes(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10)
    assert bench.change(lib.CHANGE_PAUSE, "t", "c") == OK
    id, pushed = bench.pub("t")
    assert pushed == []
    assert bench.change(lib.CHANGE_UNPAUSE, "t", "c") == OK
    assert delivered(bench.pushed) == [(id, 1)]
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    held, pushed = bench.pub("t")
    assert pushed == []
    assert (bench.catalog()["t"].depth, bench.catalog()["t"].channels["c"].depth) == (1, 0)
    bench.restart()
    assert bench.catalog()["t"].paused
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(id, 2)]
    bench.sub(2, "t", "new", credit=10)
    assert bench.turn() == []
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert sorted((a.conn, a.id) for a in bench.pushed) == [(1, held), (2, held)]


def test_emptied_and_deleted_is_gone_for_good(bench: Channels) -> None:
    ids = [bench.pub("t")[0] for _ in range(5)]
    bench.sub(1, "t", "c", credit=2)
    bench.sub(2, "t", "d")
    bench.turn()
    assert bench.change(lib.CHANGE_EMPTY, "t", "c") == OK
    assert {n: (c.depth, c.in_flight) for n, c in bench.catalog()["t"].channels.items()} == {"c": (0, 0), "d": (0, 0)}
    assert [a.status for a in bench.fin(1, ids[0])] == [lib.STATUS_NOT_FOUND]
    id, pushed = bench.pub("t")
    assert delivered(pushed) == [(id, 1)]
    assert bench.change(lib.CHANGE_DELETE, "t", "c") == OK
    assert [(a.conn, a.kind) for a in bench.pushed] == [(1, lib.MSG_DISMISSED)]
    assert bench.change(lib.CHANGE_DELETE, "t", "c") == lib.STATUS_NONE
    bench.restart()
    assert {n: c.depth for n, c in bench.catalog()["t"].channels.items()} == {"d": 1}
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    assert bench.change(lib.CHANGE_DELETE, "t") == lib.STATUS_NOT_FOUND
    bench.restart()
    assert "t" not in bench.catalog()


def test_a_topic_without_channels_can_be_emptied(bench: Channels) -> None:
    for _ in range(5):
        bench.pub("t")
    assert bench.change(lib.CHANGE_EMPTY, "t") == OK
    assert bench.catalog()["t"].depth == 0
    id, _ = bench.pub("t")
    bench.restart()
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(id, 1)]


def test_an_ephemeral_channel_goes_with_its_last_consumer(bench: Channels) -> None:
    bench.sub(1, "t", "c#ephemeral", credit=1, flags=EPHEMERAL)
    id, pushed = bench.pub("t")
    assert delivered(pushed) == [(id, 1)]
    bench.raw(GONE, 1)
    assert bench.catalog()["t"].channels == {}


def test_an_ephemeral_topic_goes_with_its_last_channel_and_does_not_outlive_the_process(bench: Channels) -> None:
    name = "t#ephemeral"
    bench.sub(1, name, "c", credit=1)
    bench.pub(name)
    bench.pub("other")
    bench.restart()
    assert set(bench.catalog()) == {"other"}
    bench.sub(1, name, "c", credit=1)
    bench.pub(name)
    bench.raw(GONE, 1)
    assert set(bench.catalog()) == {"other"}


def test_an_ephemeral_channel_is_never_far_behind(bench: Channels) -> None:
    bench.sub(1, "t", "c#ephemeral", flags=EPHEMERAL)
    bench.sub(2, "t", "c")
    ids: list[int] = []
    for _ in range(12):
        ids += bench.mpub("t", [b"x"] * 1000)
    channels = bench.catalog()["t"].channels
    assert (channels["c#ephemeral"].depth, channels["c"].depth) == (10000, 12000)
    assert delivered(bench.credit(1, 1)) == [(ids[2000], 1)]


def test_a_channel_takes_only_so_many_consumers(bench: Channels) -> None:
    assert bench.sub(1, "t", "c", max_consumers=1) == OK
    assert bench.sub(2, "t", "c", max_consumers=1) == lib.STATUS_FULL
    assert bench.sub(2, "t", "d", max_consumers=1) == OK


def test_a_sample_is_delivered_and_the_rest_is_finished(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=100000, sample=30)
    ids: list[int] = []
    for _ in range(5):
        ids += bench.mpub("t", [b"x"] * 1000)
    got: list[Any] = []
    while bench.catalog()["t"].channels["c"].depth > 0:
        got += delivered(bench.turn())
    in_flight = bench.catalog()["t"].channels["c"].in_flight
    assert 1250 < in_flight < 1750
    assert len(got) <= in_flight
    bench.restart()
    assert bench.catalog()["t"].channels["c"].depth == in_flight


def test_a_client_that_takes_nothing_gets_no_more_than_the_window(bench: Channels) -> None:
    body = b"x" * 100_000
    bench.sub(1, "t", "c", credit=1000)
    got = 0
    for _ in range(20):
        got += len(delivered(bench.pub("t", body)[1]))
    assert got == 11  # the message that fills it is still sent
    bench.raw(lib.MSG_SENT, 1, id=5 * (48 + len(body)))
    assert len(delivered(bench.turn())) == 5


def test_windows_are_short_while_all_consumers_together_have_been_sent_too_much(bench: Channels) -> None:
    most, short, body = 4 << 20, lib.SHORT_WINDOW_BYTES, b"x" * 9952
    counted, consumers, messages = 48 + len(body), range(1, 31), 150
    lib.worker_push_at_most(bench.worker, most)
    for conn in consumers:
        bench.sub(conn, "t", f"c{conn}", credit=1000)
    came = Counter[int]()
    for _ in range(messages):
        came.update(answer.conn for answer in bench.pub("t", body)[1] if answer.kind == lib.MSG_DELIVER)
    assert most <= came.total() * counted <= most + len(consumers) * (short + counted)
    assert all(came[conn] * counted >= short for conn in consumers), "nobody starves"
    # Who reads goes on, in steps of the short window; what of others does not leave stays where it is.
    for _ in range(messages * counted // short):
        bench.raw(lib.MSG_SENT, 1, id=short)
        sent = Counter(answer.conn for answer in bench.turn() if answer.kind == lib.MSG_DELIVER)
        assert set(sent) <= {1} and sent[1] * counted <= short + counted
        came += sent
    assert came[1] == messages
    # What was on its way to those that go counts no more: there are whole windows again.
    for conn in consumers:
        bench.raw(GONE, conn)
    bench.turn()
    bench.sub(100, "t", "c2", credit=1000)
    whole = delivered(bench.turn()) + delivered(bench.turn())  # the ring is as small as a window
    assert lib.WINDOW_BYTES <= len(whole) * counted < lib.WINDOW_BYTES + counted


# --- beside the job queue ---------------------------------------------------------------------------------------------


def test_a_job_put_before_the_first_channel_is_delivered_to_it_and_stays_a_job(bench: Channels) -> None:
    ids = [bench.pub("t", lasting=False)[0] for _ in range(3)]
    delayed, _ = bench.pub("t", lasting=False, delay=50)
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(id, 1) for id in ids]
    assert bench.catalog()["t"].jobs == 4
    bench.fin(1, *ids[1:])
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    got = bench.ask(RESERVE, 5)
    assert (got.status, got.id) == (OK, ids[0])
    assert bench.ask(DELETE, 5, id=ids[0]).status == OK
    bench.restart()
    assert (bench.catalog()["t"].jobs, bench.catalog()["t"].channels["c"].depth) == (3, 1)
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(ids[0], 2)]
    bench.fin(1, ids[0])
    assert delivered(bench.turn(51)) == [(delayed, 1)]


def test_published_messages_wait_for_whoever_wants_them_first(bench: Channels) -> None:
    ids = [bench.pub("t")[0] for _ in range(3)]
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    assert [bench.ask(RESERVE, 5).id for _ in range(3)] == ids
    assert bench.ask(RESERVE, 5).status == TIMED_OUT
    assert bench.ask(DELETE, 5, id=ids[0]).status == OK
    bench.restart()
    bench.sub(1, "t", "c", credit=10)
    assert sorted(delivered(bench.turn())) == [(id, 1) for id in ids[1:]]
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    assert [bench.ask(RESERVE, 5).id for _ in range(2)] == ids[1:]


def test_with_channels_and_a_tube_both_get_each_message(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10)
    first, _ = bench.pub("t")
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    assert bench.ask(RESERVE, 5).status == TIMED_OUT  # what was published before is the channel's
    published, pushed = bench.pub("t")
    assert delivered(pushed) == [(published, 1)]
    put, pushed = bench.pub("t", lasting=False)
    assert delivered(pushed) == [(put, 1)]
    assert [bench.ask(RESERVE, 5).id for _ in range(2)] == [published, put]
    bench.fin(1, first, published)
    assert bench.ask(DELETE, 5, id=put).status == OK
    bench.restart()
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    assert bench.ask(RESERVE, 5).id == published
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(put, 2)]


def test_a_connection_that_only_begins_with_a_watch_wants_nothing_yet(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10)
    bench.raw(WATCH, 5, topic=bench.topic("t"), flags=lib.MSG_IMPLICIT)
    bench.pub("t")
    assert bench.catalog()["t"].jobs == 0
    assert bench.ask(RESERVE, 5).status == TIMED_OUT
    bench.pub("t")
    assert bench.catalog()["t"].jobs == 1


def test_a_tube_that_is_paused_as_a_topic_stays_paused(bench: Channels) -> None:
    job, _ = bench.pub("t", lasting=False)
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    bench.restart()
    assert bench.catalog()["t"].paused
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(job, 1)]
    kept, pushed = bench.pub("t")
    assert pushed == []
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert delivered(bench.pushed) == [(kept, 1)]


def test_what_was_emptied_stays_away_from_channels_to_come_though_the_tube_has_it(bench: Channels) -> None:
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.sub(1, "t", "c", credit=10)
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    kept, _ = bench.pub("t")
    assert bench.change(lib.CHANGE_EMPTY, "t") == OK
    bench.sub(2, "t", "d", credit=10)
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert delivered(bench.pushed) == []
    assert bench.ask(RESERVE, 5).id == kept


def test_what_a_pause_keeps_is_the_next_lasting_channels_after_a_restart_too(bench: Channels) -> None:
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.sub(1, "t", "c#ephemeral", credit=10, flags=EPHEMERAL)
    before, _ = bench.pub("t")
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    kept = bench.mpub("t", [b"1", b"2"])
    bench.sub(2, "t", "d")
    bench.restart()
    bench.sub(2, "t", "d", credit=10)
    assert delivered(bench.turn()) == []
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert delivered(bench.pushed) == [(id, 1) for id in kept]
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    assert [bench.ask(RESERVE, 5).id for _ in range(3)] == [before, *kept]


def test_what_a_pause_keeps_is_the_next_lasting_channels_though_the_tube_came_later(bench: Channels) -> None:
    """Read back, it is a job before there is the channel."""
    assert bench.change(lib.CHANGE_MAKE, "t") == OK
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    bench.sub(1, "t", "c#ephemeral", credit=10, flags=EPHEMERAL)
    kept = bench.mpub("t", [b"1", b"2"])
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    bench.sub(2, "t", "d")
    assert bench.catalog()["t"].depth == 2
    bench.restart()
    bench.sub(2, "t", "d", credit=10)
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert delivered(bench.pushed) == [(id, 1) for id in kept]


def test_a_probe_wants_the_tubes_that_are_watched(bench: Channels) -> None:
    """A reserve over several workers begins with one."""
    bench.raw(WATCH, 5, flags=lib.MSG_IMPLICIT, topic=bench.topic("t"))
    kept, _ = bench.pub("t")
    assert (answer := bench.ask(PROBE, 5)).status == OK
    assert answer.id == kept


# --- the log ----------------------------------------------------------------------------------------------------------


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


def test_compaction_moves_what_channels_hold_and_no_more(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=3)
    bench.sub(2, "t", "d", credit=2)
    ids = [bench.pub("t", b"%d" % n)[0] for n in range(8)]
    delayed, _ = bench.pub("t", delay=500)
    waiting, _ = bench.pub("w", b"waits")
    bench.fin(1, ids[0], ids[1])
    bench.fin(2, ids[0])
    bench.req(1, ids[2], delay=400)
    roll(bench)
    drop_oldest(bench)
    bench.fin(2, ids[1])
    bench.restart()
    figures = bench.catalog()["t"].channels
    assert (figures["c"].depth, figures["c"].deferred) == (5, 2)
    assert (figures["d"].depth, figures["d"].deferred) == (6, 1)
    bench.sub(1, "t", "c", credit=100)
    bench.sub(2, "t", "d", credit=100)
    answers = bench.turn()
    assert sorted(delivered(answers, 1)) == [(i, 2) for i in ids[3:6]] + [(i, 1) for i in ids[6:]]
    assert sorted(delivered(answers, 2)) == [(i, 2) for i in ids[2:4]] + [(i, 1) for i in ids[4:]]
    assert {a.body for a in answers} == {b"%d" % n for n in range(2, 8)}
    bench.fin(1, *ids[3:])
    bench.fin(2, *ids[2:])
    assert sorted((a.conn, a.id, a.pri) for a in bench.turn(501)) == [(1, ids[2], 2), (1, delayed, 1), (2, delayed, 1)]
    bench.sub(3, "w", "c", credit=1)
    assert delivered(bench.turn()) == [(waiting, 1)]


def test_segments_go_when_every_channel_is_past_them(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=100)
    bench.sub(2, "t", "d", credit=100)
    ids = [bench.pub("t")[0] for _ in range(3)]
    roll(bench)
    bench.fin(1, *ids)
    assert lib.worker_dead_segments(bench.worker, 0) == 0
    bench.fin(2, *ids)
    assert lib.worker_dead_segments(bench.worker, 0) == 1


def test_half_of_a_publish_of_many_does_not_count(bench: Channels) -> None:
    first = bench.pub("t")[0]
    bench.mpub("t", [b"y" * 100] * 10)
    bench.stop()
    _, fd = bench.segments[0][-1]
    data = os.pread(fd, 1 << 20, 0)
    at = data.rindex(b"y" * 100)
    os.pwrite(fd, b"\0" * 200, at - 60)  # its last record was not written
    bench.start()
    bench.sub(1, "t", "c", credit=100)
    assert delivered(bench.turn()) == [(first, 1)]
    again = bench.mpub("t", [b"z"] * 3)
    bench.turn()
    bench.restart()
    bench.sub(1, "t", "c", credit=100)
    assert {id for id, _ in delivered(bench.turn())} == {first, *again}


# --- everything at random, against a model ----------------------------------------------------------------------------


@dataclass
class Message:
    body: bytes
    attempts: int = 0
    due: int = 0  # when it may be delivered


class Model:
    """What channels must hold: by channel and id."""

    def __init__(self) -> None:
        self.waiting: dict[str, dict[int, Message]] = {}
        self.channels: dict[tuple[str, str], dict[int, Message]] = {}


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_nothing_comes_twice_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    bench = Channels()
    model = Model()
    consumers: dict[int, tuple[str, str]] = {}
    flying: dict[int, dict[int, int]] = {}  # by conn: id to deadline
    credit: dict[int, int] = {}
    next_conn = 10

    def take(answers: list[Answer]) -> None:
        for a in answers:
            if a.kind != lib.MSG_DELIVER:
                assert a.kind != lib.MSG_REFUSED, a
                continue
            channel = model.channels[consumers[a.conn]]
            message = channel[a.id]  # KeyError: it was finished, or is not this channel's
            message.attempts += 1
            assert (a.pri, a.body) == (message.attempts, message.body)
            assert message.due <= bench.now
            for conn, ids in flying.items():
                if consumers[conn] == consumers[a.conn]:
                    assert a.id not in ids or ids[a.id] <= bench.now
                    ids.pop(a.id, None)
            flying[a.conn][a.id] = bench.now + 60 * SECOND
            assert len(flying[a.conn]) <= credit[a.conn]

    def publish(name: str, id: int, body: bytes, delay: int) -> None:
        channels = [held for (topic, _), held in model.channels.items() if topic == name]
        for held in channels or [model.waiting.setdefault(name, {})]:
            held[id] = Message(body, due=bench.now + delay * SECOND)

    for _ in range(120):
        name = rng.choice("ab")
        action = rng.randrange(14)
        conn = rng.choice(list(consumers)) if consumers else 0
        if action <= 2:
            delay = rng.choice([0, 0, 0, 20, 300])
            now_id = bench.next_id
            body = rng.randbytes(rng.choice([1, 30, 3000]))
            publish(name, now_id, body, delay)
            take(bench.pub(name, body, delay)[1])
        elif action == 3:
            bodies = [rng.randbytes(rng.randrange(1, 50)) for _ in range(rng.randrange(1, 20))]
            for n, body in enumerate(bodies):
                publish(name, bench.next_id + n * SHARDS, body, 0)
            first = bench.next_id
            bench.next_id += SHARDS * len(bodies)
            data = b"".join(struct.pack(">I", len(b)) + b for b in bodies)
            bench.raw(lib.MSG_PUBLISH_MANY, 999, topic=bench.topic(name), id=first, pri=len(bodies), body=data)
            take(bench.turn())
        elif action == 4 and len(consumers) < 6:
            channel = name, rng.choice("xyz")
            if channel not in model.channels:
                others = any(topic == name for topic, _ in model.channels)
                model.channels[channel] = {} if others else model.waiting.pop(name, {})
            next_conn += 1
            consumers[next_conn], flying[next_conn], credit[next_conn] = channel, {}, 0
            assert bench.sub(next_conn, *channel) == OK
        elif action == 5 and conn:
            # Lowering it does not take anything back.
            if (wanted := rng.choice([0, 1, 5, 100])) >= len(flying[conn]):
                credit[conn] = wanted
                take(bench.credit(conn, wanted))
        elif action in (6, 7, 8) and conn and flying[conn]:
            for id in rng.sample(list(flying[conn]), rng.randrange(1, len(flying[conn]) + 1)):
                if flying[conn][id] <= bench.now:
                    continue
                del flying[conn][id], model.channels[consumers[conn]][id]
                bench.raw(lib.MSG_FINISH, conn, id=id)
            take(bench.turn())
        elif action == 9 and conn and flying[conn]:
            id = rng.choice(list(flying[conn]))
            delay = rng.choice([0, 0, 50])
            if flying[conn].pop(id) > bench.now:
                model.channels[consumers[conn]][id].due = bench.now + delay * SECOND
                take(bench.req(conn, id, delay))
        elif action == 10:
            answers = bench.turn(rng.choice([0, 1, 25, 70]))
            for ids in flying.values():
                for id in [i for i, deadline in ids.items() if deadline <= bench.now]:
                    del ids[id]
            take(answers)
        elif action == 11 and conn and rng.random() < 0.5:
            bench.raw(GONE, conn)
            del consumers[conn], flying[conn], credit[conn]
            take(bench.turn())
        elif action == 12 and rng.random() < 0.4:
            take(bench.turn())
            bench.restart()
            consumers, flying, credit = {}, {}, {}
        elif action == 13 and rng.random() < 0.5:
            roll(bench)
            if rng.random() < 0.5:
                drop_oldest(bench)
        topics = bench.catalog()
        for (topic, channel), held in model.channels.items():
            figures = topics[topic].channels[channel]
            assert figures.depth + figures.in_flight + figures.deferred == len(held)
    # In the end everything that is held comes, and finishing it leaves nothing.
    bench.restart()
    bench.turn(400)
    for n, ((name, channel), held) in enumerate(model.channels.items()):
        bench.sub(100 + n, name, channel, credit=100_000)
        got: dict[int, Answer] = {}
        for _ in range(50):
            for a in bench.turn():
                assert a.id not in got
                got[a.id] = a
        assert {id: a.body for id, a in got.items()} == {id: m.body for id, m in held.items()}
        assert {id: a.pri for id, a in got.items()} == {id: m.attempts + 1 for id, m in held.items()}
        bench.fin(100 + n, *got)
    bench.restart()
    for topic in bench.catalog().values():
        assert all(c.depth == c.in_flight == c.deferred == 0 for c in topic.channels.values())
    bench.dispose()


def test_the_wrong_topic_number_is_refused(bench: Channels) -> None:
    slot = bench.raw(lib.MSG_PUBLISH_MANY, 1, topic=77, id=SHARDS, pri=1, body=b"\0\0\0\1x")
    assert [(a.slot, a.status) for a in bench.turn()] == [(slot, lib.STATUS_TOO_MANY)]
    bench.send(OPEN, topic=1, id=0, body=b"t")
    slot = bench.raw(lib.MSG_PUBLISH_MANY, 1, topic=1, id=SHARDS, pri=2, body=b"\0\0\0\1x")
    assert [(a.slot, a.status) for a in bench.turn()] == [(slot, lib.STATUS_NO_SPACE)]
    assert "t" not in bench.catalog()


# --- what the log must say even of those that write nothing -----------------------------------------------------------


def test_what_an_ephemeral_channel_had_is_nobodys_after_a_restart(bench: Channels) -> None:
    waited, _ = bench.pub("t")
    bench.sub(1, "t", "c#ephemeral", credit=10, flags=EPHEMERAL)
    assert delivered(bench.turn()) == [(waited, 1)]
    finished, _ = bench.pub("t")
    unfinished, _ = bench.pub("t")
    bench.fin(1, waited, finished)
    bench.restart()
    assert (bench.catalog()["t"].depth, bench.catalog()["t"].channels) == (0, {})
    bench.sub(1, "t", "c#ephemeral", credit=10, flags=EPHEMERAL)
    bench.sub(2, "t", "d", credit=10)
    assert delivered(bench.turn()) == []
    both, _ = bench.pub("t")
    bench.restart()
    bench.sub(2, "t", "d", credit=10)
    assert delivered(bench.turn()) == [(both, 2)]
    assert unfinished < both


def test_a_tube_of_an_ephemeral_topics_name_keeps_its_jobs(bench: Channels) -> None:
    name = "t#ephemeral"
    bench.sub(1, name, "c", credit=1)
    bench.restart()
    job, _ = bench.pub(name, lasting=False)
    bench.restart()
    bench.raw(WATCH, 5, topic=bench.topic(name))
    bench.turn()
    assert bench.ask(RESERVE, 5).id == job


def test_a_topic_stopped_with_an_ephemeral_channel_keeps_what_comes(bench: Channels) -> None:
    bench.sub(1, "t", "c#ephemeral", credit=10, flags=EPHEMERAL)
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    kept, _ = bench.pub("t")
    bench.restart()
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    bench.sub(2, "t", "d", credit=10)
    assert delivered(bench.turn()) == [(kept, 1)]


def own_memory() -> int:
    """What is in use: pages that whatever ran before has left free are given back first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10


def test_a_topic_with_a_channel_and_one_message_costs_about_a_kilobyte(bench: Channels) -> None:
    def make(first: int, count: int) -> None:
        for n in range(first, first + count):
            bench.open(f"t{n}", 500)
            bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_MAKE, body=b"t%d" % n)
            bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_MAKE, body=b"t%d\nc" % n)
            bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=500, id=bench.next_id, pri=1024, body=b"x")
            bench.next_id += SHARDS
            if n % 500 == 499:
                bench.turn()

    make(0, 1000)  # tables have their size
    before = own_memory()
    make(1000, 8000)
    assert (own_memory() - before) / 8000 < 1100
    assert lib.worker_topics(bench.worker) == 9000


def test_a_stream_grows_from_its_first_message_to_both_sides(bench: Channels) -> None:
    """Its first page begins small: with a message from its middle, the ones before it, and then those behind."""
    jobs = [bench.pub("t", b"%d" % n, lasting=False)[0] for n in range(40)]
    lib.worker_limit_turn(bench.worker, 1)
    head = SUBSCRIBE.pack(TIMEOUT, 900 * SECOND, 0, 0, 1, 0, 4)
    slot = bench.raw(lib.MSG_SUBSCRIBE, 1, topic=bench.topic("t"), body=head + b"c{ab}")
    later, _ = bench.pub("t", b"40")
    answers = [a for _ in range(60) for a in bench.turn()]
    assert slot in [a.slot for a in answers]
    jobs += [later, *(bench.pub("t", b"%d" % n)[0] for n in range(41, 700))]
    lib.worker_limit_turn(bench.worker, 4096)
    bench.raw(lib.MSG_CREDIT, 1, id=1000)
    came = [a for _ in range(8) for a in bench.turn() if a.kind == lib.MSG_DELIVER]
    assert [(a.id, a.body) for a in came] == [(job, b"%d" % n) for n, job in enumerate(jobs)]
