"""Random scripts of ring messages to one worker.

A script is data: acts with numbers that say which of what is there they mean, so that any part of a script is one too
and a failure can be made smaller. Between acts there may be a single turn, so that work in pieces meets all else.
"""

from __future__ import annotations

import itertools
import os
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mq_shards.csrc._core import lib

from tests.model.worker_bench import (
    CONSUMING,
    DURABLE_CHANNELS,
    EPHEMERAL_CHANNELS,
    KNOW_NO_BATCHES,
    NUMBERS,
    PARTS,
    PIECES,
    POLICY,
    READERS,
    TOPICS,
    TUBE,
    TXNS,
    WORKING,
    Act,
    Holder,
    Subject,
    WrongError,
)
from tests.model.worker_ledger import Ledger, conclude
from tests.shards.bench import (
    BURY,
    CANCEL,
    CLOSE,
    DELETE,
    FOREVER,
    GONE,
    IGNORE,
    KICK,
    KICK_ID,
    LIST,
    OK,
    OPEN,
    PAUSE,
    PEEK_BURIED,
    PEEK_DELAYED,
    PEEK_READY,
    PROBE,
    PUBLISH,
    RELEASE,
    RESERVE,
    RESERVE_ID,
    RETURN,
    SECOND,
    SHARDS,
    STATS_ID,
    STATS_TOPIC,
    TAKE,
    TOUCH,
    USE,
    WATCH,
    Answer,
)
from tests.shards.positions import EARLIEST, LATEST
from tests.shards.subscriptions import SUBSCRIBE
from tests.shards.test_due_times import MS
from tests.shards.test_naming import move_names
from tests.shards.test_open_transactions import MSG_TXN, of_transaction
from tests.shards.test_packed import RUN, packed


@dataclass(frozen=True)
class Script:
    piece: int
    acts: tuple[Act, ...]

    @staticmethod
    def at_random(seed: int, most_acts: int = 160) -> Script:
        dice = random.Random(seed)
        piece = dice.choice(PIECES)
        # Some kinds of acts are left out of each script, so that others meet more often.
        left_out = set(dice.sample(sorted(WEIGHTS), dice.randrange(len(WEIGHTS) * 3 // 4)))
        kinds = [name for name, weight in WEIGHTS.items() for _ in range(weight) if name not in left_out]
        restless = dice.choice([0.1, 0.5, 0.9])
        acts: list[Act] = []
        for _ in range(dice.randrange(10, most_acts)):
            acts.append((dice.choice(kinds or ["publish"]), *(dice.randrange(NUMBERS) for _ in range(3))))  # type: ignore[arg-type]
            if dice.random() < restless:
                acts.append((dice.choice(["one_turn", "one_turn", "settle"]), 0, 0, 0))
        return Script(piece, tuple(acts))


class Play:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.bench = Subject(piece=script.piece)
        self.bench.uses_heads = len(script.acts) % 2 == 1
        self.headed = 0  # segments of which the last start read the heads
        self.ledger = Ledger()
        self.parts: dict[int, int] = {}  # of each message that is several
        self.whole: dict[int, int] = {}  # by id of a part
        self.topic_of: dict[int, str] = {}
        self.ids: list[int] = []
        self.seqs: list[int] = [0]
        self.consumers: dict[tuple[int, int], Holder] = {}
        self.flying: list[tuple[int, int, int]] = []  # connection, consumer, id
        self.reserved: list[tuple[int, int]] = []  # connection, id
        self.finishing: dict[tuple[int, int, int], Holder] = {}
        self.asked: dict[int, Callable[[Answer], None]] = {}  # by slot: what comes of the answer
        self.waiting: dict[int, int] = {}  # slots of reserves, by connection
        self.generations = itertools.count(1)
        self.sure: dict[Holder, int] = {}  # channels that are there for certain
        self.moved: set[str] = set()  # topics of which something was moved: their depths are not exact
        self.trace: Callable[[object], None] = lambda _: None
        for topic in TOPICS:
            self.bench.topic(topic)

    def run(self) -> None:
        for act in self.script.acts:
            self.trace(act)
            getattr(self, act[0])(*act[1:])
        conclude(self)

    # --- what comes -------------------------------------------------------------------------------------------------

    def hear(self, answers: Sequence[Answer]) -> None:
        for a in answers:
            if a.kind == lib.MSG_DELIVER:
                self.delivered(a)
            elif a.kind == lib.MSG_REFUSED:
                self.finishing.pop((a.conn, a.slot, a.id), None)
            elif a.kind == lib.MSG_DISMISSED:
                self.consumers.pop((a.conn, a.slot), None)
            elif a.kind < lib.MSG_DELIVER and a.slot in self.asked:
                self.asked.pop(a.slot)(a)

    def delivered(self, a: Answer) -> None:
        self.seqs.append(a.seq)
        holder = self.consumers.get((a.conn, a.slot))
        for i in range(RUN.unpack_from(a.body)[2] if a.id in self.whole and a.conn in KNOW_NO_BATCHES else 1):
            self.flying.append((a.conn, a.slot, a.id + i * SHARDS))
        if holder and a.id in self.ledger.over.get(holder, ()):
            raise WrongError(f"{a.id} comes to {holder} again, which has finished it")

    def one_turn(self, *_: int) -> None:
        self.bench.pass_turn()
        self.hear(self.bench.heard())

    def settle(self, *_: int) -> None:
        self.hear(self.bench.settle())
        for (_, _, id), holder in self.finishing.items():
            if id in self.whole or id in self.parts:
                self.ledger.unsure(holder, [self.whole.get(id, id)])
            else:
                self.ledger.finish(holder, id)
        self.finishing.clear()

    def ask(self, kind: int, conn: int, answered: Callable[[Answer], None] | None = None,
            **fields: int | bytes) -> int:  # fmt: skip
        slot = self.bench.raw(kind, conn, **fields)  # type: ignore[arg-type]
        if answered:
            self.asked[slot] = answered
        return slot

    def ask_topic(self, kind: int, conn: int, topic: str, answered: Callable[[Answer], None] | None = None,
                  **fields: int | bytes) -> int:  # fmt: skip
        return self.ask(kind, conn, answered, topic=self.bench.topic(topic), **fields)

    def made(self, holder: Holder) -> Callable[[Answer], None]:
        generation = self.sure.get(holder)

        def answered(a: Answer) -> None:
            if a.status == OK and self.sure.get(holder) == generation and holder[1] in DURABLE_CHANNELS:
                self.sure.setdefault(holder, next(self.generations))

        return answered

    def upset(self, holder: Holder, gone: bool = False) -> None:
        """What it had, or is about to have, is not certain any more; nor is what it is finishing."""
        self.ledger.forget(holder)
        self.finishing = {one: of for one, of in self.finishing.items() if of != holder}
        if holder in self.sure and not gone:
            self.sure[holder] = next(self.generations)
        if gone:
            self.sure.pop(holder, None)

    # --- what is meant ----------------------------------------------------------------------------------------------

    @staticmethod
    def topic(n: int) -> str:
        return TOPICS[n % 5 == 0]

    def id(self, n: int) -> int:
        return self.ids[n % len(self.ids)] if self.ids else SHARDS

    def job(self, n: int) -> int:
        id = self.id(n)
        return id + SHARDS * (1 + n // 7 % self.parts[id]) if id in self.parts else id

    def seq(self, n: int) -> int:
        return sorted(self.seqs)[n % len(self.seqs)]

    @staticmethod
    def some_parts(n: int) -> bytes:
        return (n % 8).to_bytes(8, "little")

    # --- publishing -------------------------------------------------------------------------------------------------

    def send(self, topic: str, flags: int, delay: int = 0, parts: int = 0, **fields: int) -> None:
        id, self.bench.next_id = self.bench.next_id, self.bench.next_id + SHARDS * (parts + 1)
        self.topic_of[id] = topic
        if parts:
            self.parts[id] = parts
            self.whole.update((id + (i + 1) * SHARDS, id) for i in range(parts))
        there = [(holder, made) for holder, made in self.sure.items() if holder[0] == topic]
        alive = next(self.generations)
        staged = flags & MSG_TXN

        def answered(a: Answer) -> None:
            if a.status != OK:
                return
            self.ids.append(id)
            self.seqs.append(a.seq)
            for holder, made in there:
                if self.sure.get(holder) == made and not staged:
                    self.ledger.owe(holder, id)
            if not flags & lib.MSG_DURABLE and alive > self.deleted.get(topic, 0):
                self.ledger.owe((topic, TUBE), id)

        if parts:
            flags |= lib.MSG_HEADERS
        body = packed(parts) if parts else b"x"
        if staged:
            body = of_transaction(fields["txn"], body)
        due = self.bench.wall // MS * MS if flags & lib.MSG_DUE else 0
        self.ask_topic(PUBLISH, 999, topic, answered, flags=flags, id=id, pri=fields.get("pri", 1024),
                       delay=due + delay * SECOND, body=body)  # fmt: skip

    @property
    def deleted(self) -> dict[str, int]:
        return self.__dict__.setdefault("_deleted", {})

    def publish(self, a: int, b: int, c: int) -> None:
        flags = lib.MSG_DURABLE | (lib.MSG_RETAIN if c % 3 == 0 else 0)
        for _ in range(1 + b % 4):
            self.send(self.topic(a), flags)

    def publish_many(self, a: int, b: int, c: int) -> None:
        flags = lib.MSG_DURABLE | (lib.MSG_RETAIN if c % 4 == 0 else 0)
        for _ in range(b % 90):
            self.send(self.topic(a), flags)

    def publish_delayed(self, a: int, b: int, c: int) -> None:
        for i in range(1 + b % 20):
            self.send(self.topic(a), lib.MSG_DURABLE | (lib.MSG_RETAIN if c % 5 == 0 else 0), delay=(1, 3, 50)[i % 3])

    def publish_due(self, a: int, b: int, c: int) -> None:
        for i in range(1 + b % 20):
            retain = lib.MSG_RETAIN if c % 5 else 0
            self.send(self.topic(a), lib.MSG_DURABLE | lib.MSG_DUE | retain, delay=(1, 3, 50)[i % 3])

    def publish_batch(self, a: int, b: int, c: int) -> None:
        self.send(self.topic(a), lib.MSG_DURABLE | (lib.MSG_RETAIN if c % 3 == 0 else 0), parts=PARTS[b % len(PARTS)])

    def put(self, a: int, b: int, c: int) -> None:
        for i in range(1 + b % 20):
            self.send(self.topic(a), 0, delay=(0, 0, 3, 50)[c % 4] if i % 2 else 0, pri=(0, 1024, 5000)[i * c % 3])

    def put_batch(self, a: int, b: int, _: int) -> None:
        self.send(self.topic(a), 0, parts=PARTS[b % len(PARTS)])

    def stage(self, a: int, b: int, c: int) -> None:
        flags = lib.MSG_DURABLE | lib.MSG_RETAIN | MSG_TXN
        delay = (0, 0, 3, 50)[b // 4 % 4]
        flags |= lib.MSG_DUE if delay else 0
        self.send(self.topic(a), flags, delay, parts=(0, 0, 2, 70)[b % 4], txn=TXNS[c % len(TXNS)])

    def end(self, a: int, b: int, c: int) -> None:
        self.ask_topic(lib.MSG_TXN_END, 996, self.topic(a), id=TXNS[b % len(TXNS)], pri=c % 2)

    # --- consuming --------------------------------------------------------------------------------------------------

    def subscribe(self, a: int, b: int, c: int, channel: str, flags: int = 0, start: bytes = b"") -> None:
        conn, consumer, topic = CONSUMING[b % len(CONSUMING)], b // 7 % 5 == 0, self.topic(a)
        if (conn, consumer) in self.consumers:
            return
        if conn not in KNOW_NO_BATCHES:
            flags |= lib.SUBSCRIBE_HEADERS
        if b // 11 % 3 == 0:
            flags |= lib.SUBSCRIBE_UNCOUNTED
        policy = b""
        if b // 13 % 4 == 0:
            flags |= lib.SUBSCRIBE_POLICY
            most = (0, 0, 3)[c // 17 % 3]
            policy = POLICY.pack(c // 5 % 4, 1, c % 2, 0, 0, most) + b"n"
        holder = (topic, channel)
        self.consumers[conn, consumer] = holder
        made = self.made(holder)

        def answered(a: Answer) -> None:
            made(a)
            if a.status != OK and self.consumers.get((conn, consumer)) == holder:
                del self.consumers[conn, consumer]

        head = SUBSCRIBE.pack((5, 60)[c % 2] * SECOND, 900 * SECOND, 0, 0, len(channel), flags, 4)
        body = head + channel.encode() + b"{ab}" + start + policy
        self.ask_topic(lib.MSG_SUBSCRIBE, conn, topic, answered, pri=int(consumer), body=body)
        self.ask(lib.MSG_CREDIT, conn, id=(0, 1, 5, 100, 100)[c % 5], consumer=int(consumer))

    def consume(self, a: int, b: int, c: int) -> None:
        self.subscribe(a, b, c, DURABLE_CHANNELS[c // 3 % 3 == 0])

    def consume_for_now(self, a: int, b: int, c: int) -> None:
        self.subscribe(a, b, c, EPHEMERAL_CHANNELS[c // 3 % 2], lib.SUBSCRIBE_EPHEMERAL)

    def consume_from(self, a: int, b: int, c: int) -> None:
        self.moved.add(self.topic(a))
        start = struct.pack("<IIQ", (EARLIEST, LATEST, lib.START_SEQ)[c // 7 % 3], 0, self.seq(c // 21))
        self.subscribe(a, b, c, DURABLE_CHANNELS[c // 3 % 2], lib.SUBSCRIBE_START, start)

    def read(self, a: int, b: int, c: int) -> None:
        self.moved.add(self.topic(a))
        flags = lib.SUBSCRIBE_START | lib.SUBSCRIBE_EPHEMERAL
        start = struct.pack("<IIQ", (EARLIEST, LATEST, lib.START_SEQ)[c // 7 % 3], 0, self.seq(c // 21))
        self.subscribe(a, b, c, READERS[c // 3 % 2], flags, start)

    def credit(self, _: int, b: int, c: int) -> None:
        self.ask(lib.MSG_CREDIT, CONSUMING[b % 4], id=(0, 1, 5, 100)[c % 4], consumer=int(b // 7 % 5 == 0))

    def leave(self, _: int, b: int, __: int) -> None:
        conn = CONSUMING[b % len(CONSUMING)]
        self.ask(GONE, conn)
        self.gone(conn)

    def gone(self, conn: int) -> None:
        # What it has asked for last may not have come to be done.
        self.finishing = {key: holder for key, holder in self.finishing.items() if key[0] != conn}
        for key in [k for k in self.consumers if k[0] == conn]:
            del self.consumers[key]

    def unsubscribe(self, _: int, b: int, __: int) -> None:
        conn, consumer = CONSUMING[b % len(CONSUMING)], b // 7 % 5 == 0
        if self.consumers.pop((conn, consumer), None):
            self.ask(lib.MSG_UNSUBSCRIBE, conn, pri=int(consumer))

    def one_flying(self, n: int) -> tuple[int, int, int] | None:
        return self.flying[-1 - n % min(len(self.flying), 200)] if self.flying else None

    def finish(self, a: int, b: int, c: int) -> None:
        for i in range(1 + b % 6 * (c % 20)):
            one = self.one_flying(a + i)
            if one is None:
                return
            conn, consumer, id = one
            holder = self.consumers.get((conn, consumer))
            if not holder:
                continue
            self.ask(lib.MSG_FINISH, conn, id=id, consumer=consumer)
            self.ledger.unsure(holder, [self.whole.get(id, id)])
            # Twice is refused once: then nobody knows which of the two was.
            if (conn, consumer, id) in self.finishing:
                del self.finishing[conn, consumer, id]
            elif self.sure.get(holder) and c % 3:
                self.finishing[conn, consumer, id] = holder

    def unsure_of(self, conn: int, consumer: int) -> None:
        """What is on its way to it too."""
        holder = self.consumers.get((conn, consumer))
        if holder:
            self.upset(holder)

    def finish_by_seq(self, a: int, b: int, c: int) -> None:
        conn, consumer = CONSUMING[b % 4], int(b // 7 % 5 == 0)
        self.unsure_of(conn, consumer)
        flags = lib.MSG_BY_SEQ | (lib.MSG_PARTS if c % 2 else 0)
        self.ask(lib.MSG_FINISH, conn, ttr=self.seq(a), flags=flags, consumer=consumer,
                 body=self.some_parts(c // 2) if c % 2 else b"")  # fmt: skip

    def finish_upto(self, a: int, b: int, _: int) -> None:
        conn, consumer = CONSUMING[b % 4], int(b // 7 % 5 == 0)
        self.unsure_of(conn, consumer)
        self.ask(lib.MSG_FINISH, conn, ttr=self.seq(a), flags=lib.MSG_BY_SEQ | lib.MSG_UPTO, consumer=consumer)

    def requeue(self, a: int, b: int, c: int) -> None:
        for i in range(1 + b % 4):
            one = self.one_flying(a + i)
            if one:
                self.ask(lib.MSG_REQUEUE, one[0], id=one[2], consumer=one[1], delay=(0, 0, 5, 100)[c % 4] * SECOND)

    def requeue_all(self, _: int, b: int, __: int) -> None:
        self.ask(lib.MSG_REQUEUE, CONSUMING[b % 4], flags=lib.MSG_ALL, consumer=int(b // 7 % 5 == 0))

    def extend(self, a: int, _: int, __: int) -> None:
        one = self.one_flying(a)
        if one:
            self.ask(lib.MSG_EXTEND, one[0], id=one[2], consumer=one[1])

    def acknowledge(self, a: int, b: int, c: int) -> None:
        conn = CONSUMING[b % 4]
        self.unsure_of(conn, 0)
        flags = lib.MSG_UPTO if c % 3 == 0 else 0
        body = self.some_parts(c // 3) if c % 3 == 1 else b""
        topic = self.consumers.get((conn, 0), ("t", ""))[0]
        self.ask_topic(lib.MSG_TXN_ACK, conn, topic, id=TXNS[c // 30 % len(TXNS)], ttr=self.seq(a), flags=flags,
                       body=body)  # fmt: skip

    def seek(self, a: int, b: int, c: int) -> None:
        topic, channel = self.topic(a), (*DURABLE_CHANNELS, *EPHEMERAL_CHANNELS, *READERS)[b % 6]
        self.moved.add(topic)
        self.upset((topic, channel))
        flags = (0, lib.MSG_UPTO, lib.MSG_DISMISS)[c % 3]
        start, at = ((EARLIEST, 0), (LATEST, 0), (lib.START_SEQ, self.seq(c // 9)))[c // 3 % 3]
        self.ask_topic(lib.MSG_SEEK, 998, topic, lambda _: self.upset((topic, channel)), pri=start, ttr=at, flags=flags,
                       body=channel.encode())  # fmt: skip

    # --- topics and channels ----------------------------------------------------------------------------------------

    def change(self, what: int, topic: str, channel: str = "", answered: Callable[[Answer], None] | None = None,
               conn: int = 998) -> None:  # fmt: skip
        body = f"{topic}\n{channel}" if channel else topic
        self.ask(lib.MSG_CHANGE, conn, answered, id=0, pri=what, body=body.encode())

    def make(self, a: int, b: int, c: int) -> None:
        channel = ("", *DURABLE_CHANNELS)[b % 3]
        self.change(lib.CHANGE_MAKE, self.topic(a), channel, self.made((self.topic(a), channel)), (995, 998)[c % 2])

    def retain(self, a: int, _: int, __: int) -> None:
        self.change(lib.CHANGE_RETAIN, self.topic(a))

    def pause(self, a: int, b: int, c: int) -> None:
        what = (lib.CHANGE_PAUSE, lib.CHANGE_PAUSE, lib.CHANGE_UNPAUSE)[c % 3]
        self.change(what, self.topic(a), ("", "", "c", "d", "e", "r")[b % 6], conn=(995, 998)[c // 3 % 2])

    def empty(self, a: int, b: int, c: int) -> None:
        topic, channel = self.topic(a), ("", "c", "d", "e", "f#ephemeral", "r")[b % 6]
        which = [channel] if channel else [*DURABLE_CHANNELS]

        def upset(_: object = None) -> None:
            for one in which:
                self.upset((topic, one))

        upset()
        self.change(lib.CHANGE_EMPTY, topic, channel, upset, (995, 998)[c % 2])

    def delete_channel(self, a: int, b: int, c: int) -> None:
        topic, channel = self.topic(a), (*DURABLE_CHANNELS, *EPHEMERAL_CHANNELS, *READERS)[b % 6]

        def upset(_: object = None) -> None:
            self.upset((topic, channel), gone=True)

        upset()
        self.change(lib.CHANGE_DELETE, topic, channel, upset, (995, 998)[c % 2])

    def delete_topic(self, a: int, _: int, c: int) -> None:
        topic = self.topic(a)

        def upset(_: object = None) -> None:
            self.deleted[topic] = next(self.generations)
            for channel in (TUBE, *DURABLE_CHANNELS):
                self.upset((topic, channel), gone=True)

        upset()
        self.change(lib.CHANGE_DELETE, topic, "", upset, (995, 998)[c % 2])

    # --- jobs -------------------------------------------------------------------------------------------------------

    def use(self, a: int, b: int, c: int) -> None:
        flags = lib.MSG_IMPLICIT if c % 3 == 0 else 0
        self.ask_topic(USE, WORKING[b % 3], self.topic(a), flags=flags)

    def watch(self, a: int, b: int, c: int) -> None:
        flags = lib.MSG_IMPLICIT if c % 3 == 0 else 0
        self.ask_topic(WATCH, WORKING[b % 3], self.topic(a), flags=flags)

    def ignore(self, a: int, b: int, _: int) -> None:
        self.ask_topic(IGNORE, WORKING[b % 3], self.topic(a))

    def got(self, a: Answer) -> None:
        self.waiting.pop(a.conn, None)
        if a.status != OK:
            return
        self.reserved.append((a.conn, a.id))
        whole = self.whole.get(a.id, a.id)
        if a.id in self.ledger.over.get((self.topic_of[whole], TUBE), ()):
            raise WrongError(f"job {a.id} comes again, which was deleted")

    def reserve(self, a: int, b: int, c: int) -> None:
        conn = WORKING[b % 3]
        if conn in self.waiting:
            return
        if c % 4 == 0:
            self.watch(a, b, 1)
        kind = (RESERVE, RESERVE, RESERVE, PROBE, TAKE, RESERVE_ID)[c // 4 % 6]
        if kind == PROBE:
            self.ask(PROBE, conn)
            return
        delay = (0, 0, SECOND, FOREVER)[c // 24 % 4] if kind == RESERVE else 0
        id = self.job(a) if kind == RESERVE_ID else 0
        slot = self.ask(kind, conn, self.got, delay=delay, id=id, pri=a % 5000 if kind == TAKE else 0)
        if delay:
            self.waiting[conn] = slot

    def cancel(self, _: int, b: int, __: int) -> None:
        conn = WORKING[b % 3]
        if conn not in self.waiting:
            return
        head = self.bench.next_slot
        self.bench.next_slot = self.waiting.pop(conn)
        self.bench.raw(CANCEL, conn)
        self.bench.next_slot = head

    def one_reserved(self, n: int) -> tuple[int, int]:
        if not self.reserved or n % 9 == 0:
            return WORKING[n % 3], self.job(n)
        return self.reserved[-1 - n % min(len(self.reserved), 50)]

    def delete(self, a: int, b: int, c: int) -> None:
        for i in range(1 + b % 8):
            conn, id = self.one_reserved(a + i) if c % 2 else (WORKING[c % 3], self.job(a + i))
            self.delete_one(conn, id)

    def delete_one(self, conn: int, id: int) -> None:
        whole = self.whole.get(id, id)
        holder = (self.topic_of.get(whole, "t"), TUBE)
        self.ledger.unsure(holder, [whole])

        def answered(a: Answer) -> None:
            holder = (self.topic_of.get(whole, "t"), TUBE)  # whose it is was not known before it was put
            self.ledger.unsure(holder, [whole])
            if a.status == OK:
                self.ledger.finish(holder, id)

        self.ask(DELETE, conn, answered, id=id)

    def release(self, a: int, b: int, c: int) -> None:
        for i in range(1 + b % 3):
            conn, id = self.one_reserved(a + i)
            kind = (RELEASE, RELEASE, BURY, TOUCH, RETURN)[c % 5]
            delay = (0, 3, 50)[c // 5 % 3] * SECOND if kind == RELEASE else 0
            self.ask(kind, conn, id=id, pri=(0, 1024, 5000)[c // 15 % 3], delay=delay)

    def kick(self, a: int, b: int, c: int) -> None:
        if c % 2:
            self.ask_topic(KICK, 14, self.topic(a), id=1 + b % 30)
        else:
            self.ask(KICK_ID, 14, id=self.job(b))

    def pause_tube(self, a: int, b: int, _: int) -> None:
        self.ask(PAUSE, 14, body=self.topic(a).encode(), delay=(0, 2, 30)[b % 3] * SECOND)

    def stop_working(self, _: int, b: int, __: int) -> None:
        conn = WORKING[b % 3]
        self.ask(GONE, conn)
        self.asked.pop(self.waiting.pop(conn, 0), None)

    # --- looking ----------------------------------------------------------------------------------------------------

    def look(self, a: int, b: int, c: int) -> None:
        topic = self.topic(a)
        name = topic.encode()
        channel = ("c", "d", "e", "r")[b // 16 % 4].encode()
        which = b % 11
        if which == 0:
            self.ask(lib.MSG_OLDEST, 994, body=name if c % 2 else name + b"\n" + channel)
        elif which == 1:
            self.ask_topic(lib.MSG_POSITION, 994, topic, body=b"" if c % 2 else channel)
        elif which == 2:
            self.ask(lib.MSG_CATALOG, 994, pri=c % 2)
        elif which == 3:
            self.ask_topic(lib.MSG_SCAN, 994, topic, ttr=self.seq(c))
        elif which == 4:
            flags = (0, lib.MSG_HEADERS, lib.MSG_HEADERS | lib.MSG_HEAD)[a % 3]
            self.ask_topic(lib.MSG_PEEK_SEQ, 994, topic, ttr=self.seq(c), flags=flags, id=b % 5 * (a % 40))
        elif which == 5:
            self.ask_topic((PEEK_READY, PEEK_DELAYED, PEEK_BURIED)[c % 3], 994, topic)
        elif which == 6:
            self.ask(STATS_ID, 994, id=self.job(c))
        elif which == 7:
            self.ask(STATS_TOPIC, 994, body=name)
        elif which == 8:
            self.ask(LIST, 994)
        elif which == 9:
            self.ask(lib.MSG_TXN_LIST, 994)
        else:
            seq = self.seq(c)
            self.moved.add(topic)
            self.ask_topic(lib.MSG_COMPACT, 996, topic, ttr=seq + 1, body=struct.pack("=QII", seq, 0, 0))

    def rename(self, a: int, _: int, __: int) -> None:
        """The acceptor gives the number back, and takes it again."""
        number = self.bench.topic(self.topic(a))
        self.bench.send(CLOSE, topic=number)
        self.bench.send(OPEN, topic=number, id=0, body=self.topic(a).encode())

    # --- the log, and time ------------------------------------------------------------------------------------------

    def roll(self, *_: int) -> None:
        if lib.worker_active_segment(self.bench.worker, 0):
            lib.worker_roll(self.bench.worker, 0)
            self.bench.supply()
            lib.worker_roll(self.bench.worker, 0)

    def compact(self, a: int, b: int, _: int) -> None:
        compact = (lib.worker_compact, lib.worker_compact_needed)[b // 2 % 2]
        compact(self.bench.worker, 0, (100, 300, 1 << 20)[a % 3])
        self.bench.supply()
        if b % 2:
            self.drop()

    def drop(self, *_: int) -> None:
        bench = self.bench
        if lib.worker_dead_segments(bench.worker, 0):
            self.settle()  # what is asked for is answered before those turns whose answers nobody hears
        while lib.worker_dead_segments(bench.worker, 0):
            first = lib.worker_first_segment(bench.worker, 0)
            early, bench.early = bench.early, []
            move_names(bench, first)  # which turns, and hears nothing of what comes
            bench.early = early + bench.early
            if not lib.worker_drop_first(bench.worker, 0):
                return
            os.close(bench.segments[0].pop(0)[1])
            os.close(bench.names.pop((0, first)))

    def pass_over(self, *_: int) -> None:
        """As shards/worker.py: the next start reads only what is needed."""
        bench = self.bench
        needed = lib.worker_needed_from(bench.worker, 0, bench.read_from.get(0, 0))
        if not needed:
            return
        self.settle()
        early, bench.early = bench.early, []
        move_names(bench, needed - 1)
        bench.early = early + bench.early
        bench.read_from[0] = needed

    def compact_all(self, *_: int) -> None:
        for _ in range(20):
            if lib.worker_compact(self.bench.worker, 0, 1 << 20):
                break
            self.one_turn()
        self.drop()

    def pass_time(self, a: int, _: int, __: int) -> None:
        seconds = (1, 4, 6, 70, 1000)[a % 5]
        self.bench.now += seconds * SECOND
        self.bench.wall += seconds * SECOND

    def restart(self, a: int, _: int, __: int) -> None:
        """At once; what was sent and not answered may have been done or not."""
        if a % 2:
            self.settle()
        for holder in list(self.sure):
            if a % 2 == 0 and (self.asked or self.finishing):
                self.ledger.unsure(holder, {self.whole.get(id, id) for _, _, id in self.finishing})
        self.asked.clear()
        self.finishing.clear()
        self.consumers.clear()
        self.waiting.clear()
        self.flying.clear()
        self.reserved.clear()
        self.bench.early.clear()
        self.bench.restart()


WEIGHTS: Final = {
    "publish": 5, "publish_many": 2, "publish_delayed": 2, "publish_due": 2, "publish_batch": 3, "put": 4,
    "put_batch": 2, "stage": 2, "end": 2, "consume": 6, "consume_for_now": 5, "consume_from": 2, "read": 2,
    "credit": 1, "leave": 4,
    "unsubscribe": 2, "finish": 8, "finish_by_seq": 2, "finish_upto": 2, "requeue": 4, "requeue_all": 1,
    "extend": 1, "acknowledge": 3, "seek": 2, "make": 2, "retain": 1, "pause": 5, "empty": 2,
    "delete_channel": 4, "delete_topic": 1, "use": 1, "watch": 2, "ignore": 1, "reserve": 6, "cancel": 1,
    "delete": 6, "release": 3, "kick": 2, "pause_tube": 1, "stop_working": 3, "look": 3, "rename": 1, "roll": 3,
    "compact": 3, "compact_all": 2, "drop": 1, "pass_over": 3, "pass_time": 3, "restart": 2,
}  # fmt: skip
