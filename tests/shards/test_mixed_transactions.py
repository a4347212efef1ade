"""Transactions beside everything else that may happen to a topic, by random scripts of ring messages.

Clients that know batches and clients that do not share channels; there are seeks, moves, deletions, restarts. No worker
dies of it, no transaction is left over, and nothing keeps a segment when the topic is gone.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Final

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import DELETE, GONE, NOT_FOUND, OK, RESERVE, SECOND, SHARDS, WATCH
from tests.shards.positions import EARLIEST, LATEST, SEQ, publish
from tests.shards.subscriptions import SUBSCRIBE, Channels, roll
from tests.shards.test_due_times import MS
from tests.shards.test_open_transactions import COMMIT, MSG_TXN, compact, drop_dead, of_transaction, open_ones
from tests.shards.test_packed import packed
from tests.shards.test_packed import publish as publish_batch

TXNS: Final = range(1, 5)
CONNS: Final = (1, 2, 3)
PLAIN: Final = 2  # of the connections that which knows no batches
CHANNELS: Final = ("c", "c", "c", "d")
ACTS: Final = 150


def subscribe(channel: str, flags: int) -> bytes:
    return SUBSCRIBE.pack(60 * SECOND, 900 * SECOND, 0, 0, len(channel), flags, 4) + channel.encode() + b"{ab}"


class Script:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.bench = Channels(piece=self.dice.choice([0, 8, 64]))
        self.consuming: set[int] = set()
        self.seqs: set[int] = {0}
        self.delivered: set[tuple[int, int]] = {(1, SHARDS)}  # to which connection, and the id

    def run(self) -> None:
        acts: list[Callable[[], object]] = [
            self.publish, self.delayed, self.batch, self.batch, self.stage, *[self.acknowledge] * 6, self.end,
            *[self.consume] * 4, self.leave, self.finish, self.finish_parts, self.finish_upto, self.requeue, self.seek,
            self.roll, self.restart, self.empty, self.delete, self.move, self.move, self.pass_time, self.retain,
            self.view, self.consume_for_now, self.consume_for_now, self.pause, self.want,
        ]  # fmt: skip
        for _ in range(ACTS):
            self.turn()
            self.dice.choice(acts)()
        self.conclude()

    def conclude(self) -> None:
        bench = self.bench
        for _ in range(5):  # an acknowledgement that waits for a segment would begin anew what has ended
            bench.turn()
        for txn in TXNS:
            self.raw(lib.MSG_TXN_END, 996, id=txn, pri=COMMIT)
        for restarts in (False, True):
            if restarts:
                bench.restart()
            for _ in range(5):
                bench.turn()
            assert not open_ones(bench)
        assert bench.change(lib.CHANGE_DELETE, "t") in (OK, NOT_FOUND)
        for _ in range(3):
            bench.turn()
            roll(bench)
            drop_dead(bench)
        assert lib.worker_first_segment(bench.worker, 0) + 1 >= lib.worker_active_segment(bench.worker, 0)

    # --- what may happen --------------------------------------------------------------------------------------------

    def turn(self, seconds: float = 0) -> None:
        for a in self.bench.turn(seconds):
            if a.kind == lib.MSG_DELIVER:
                self.seqs.add(a.seq)
                self.delivered.add((a.conn, a.id))

    def raw(self, kind: int, conn: int, **fields: int | bytes) -> None:
        self.bench.raw(kind, conn, topic=self.bench.topic("t"), **fields)  # type: ignore[arg-type]

    def seq(self) -> int:
        return self.dice.choice(sorted(self.seqs))

    def some_parts(self) -> bytes:
        return self.dice.randrange(8).to_bytes(8, "little")

    def publish(self) -> None:
        publish(self.bench, count=self.dice.randrange(1, 4))

    def batch(self) -> None:
        publish_batch(self.bench, "t", self.dice.choice([2, 3, 70]))

    def stage(self) -> None:
        parts = self.dice.choice([0, 2, 3, 70])
        flags = lib.MSG_DURABLE | lib.MSG_RETAIN | MSG_TXN | (lib.MSG_HEADERS if parts else 0)
        id, self.bench.next_id = self.bench.next_id, self.bench.next_id + SHARDS * (parts + 1)
        body = of_transaction(self.dice.choice(TXNS), packed(parts) if parts else b"x")
        due = self.bench.wall // MS * MS + self.dice.choice([1, 3, 50]) * SECOND if self.dice.random() < 0.3 else 0
        self.raw(lib.MSG_PUBLISH, 999, flags=flags | (lib.MSG_DUE if due else 0), id=id, pri=1024, delay=due, body=body)

    def acknowledge(self) -> None:
        flags = self.dice.choice([0, 0, lib.MSG_UPTO])
        body = b"" if flags else self.dice.choice([b"", self.some_parts()])
        txn = self.dice.choice(TXNS)
        self.raw(lib.MSG_TXN_ACK, self.dice.choice(CONNS), id=txn, ttr=self.seq(), flags=flags, body=body)

    def end(self) -> None:
        self.raw(lib.MSG_TXN_END, 996, id=self.dice.choice(TXNS), pri=self.dice.randrange(2))

    def consume(self) -> None:
        conn = self.dice.choice(CONNS)
        if conn in self.consuming:
            return
        flags = 0 if conn == PLAIN else lib.SUBSCRIBE_HEADERS
        self.bench.sub(conn, "t", self.dice.choice(CHANNELS), credit=self.dice.choice([1, 5, 100]), flags=flags)
        self.consuming.add(conn)

    def consume_for_now(self) -> None:
        conn = self.dice.choice(CONNS)
        if conn in self.consuming:
            return
        flags = lib.SUBSCRIBE_EPHEMERAL | (0 if conn == PLAIN else lib.SUBSCRIBE_HEADERS)
        channel = self.dice.choice(["e", "f"])
        self.bench.raw(lib.MSG_SUBSCRIBE, conn, topic=self.bench.topic("t"), body=subscribe(channel, flags))
        self.bench.raw(lib.MSG_CREDIT, conn, id=self.dice.choice([0, 5, 100]))
        self.consuming.add(conn)

    def pause(self) -> None:
        self.bench.change(self.dice.choice([lib.CHANGE_PAUSE, lib.CHANGE_UNPAUSE]), "t")

    def want(self) -> None:
        """As a tube, now and then, by a connection that deletes what it gets, and goes."""
        if self.dice.random() < 0.7:
            return
        self.raw(WATCH, 7)
        self.bench.raw(RESERVE, 7, delay=0)
        for a in self.bench.turn():
            if a.kind == RESERVE and a.status == OK:
                self.bench.raw(DELETE, 7, id=a.id)
        self.bench.raw(GONE, 7)

    def delayed(self) -> None:
        publish(self.bench, count=self.dice.randrange(1, 30), delay=self.dice.choice([3, 50]))

    def leave(self) -> None:
        conn = self.dice.choice(CONNS)
        self.bench.raw(GONE, conn)
        self.consuming.discard(conn)

    def finish(self) -> None:
        conn, id = self.dice.choice(sorted(self.delivered))
        self.bench.raw(lib.MSG_FINISH, conn, id=id)

    def finish_parts(self) -> None:
        flags = lib.MSG_BY_SEQ | lib.MSG_PARTS
        body = self.some_parts()
        self.bench.raw(lib.MSG_FINISH, self.dice.choice(CONNS), id=self.seq(), flags=flags, body=body)

    def finish_upto(self) -> None:
        self.bench.raw(lib.MSG_FINISH, self.dice.choice(CONNS), id=self.seq(), flags=lib.MSG_BY_SEQ | lib.MSG_UPTO)

    def requeue(self) -> None:
        conn, id = self.dice.choice(sorted(self.delivered))
        self.bench.raw(lib.MSG_REQUEUE, conn, id=id, delay=self.dice.choice([0, 5 * SECOND]))

    def seek(self) -> None:
        flags = self.dice.choice([0, lib.MSG_UPTO, lib.MSG_DISMISS])
        channel = self.dice.choice(CHANNELS).encode()
        start = self.dice.choice([EARLIEST, LATEST, SEQ])
        self.raw(lib.MSG_SEEK, 998, pri=start, ttr=self.seq(), flags=flags, body=channel)

    def roll(self) -> None:
        roll(self.bench)

    def restart(self) -> None:
        if self.dice.random() < 0.5:
            return
        self.bench.restart()
        self.consuming.clear()

    def empty(self) -> None:
        self.bench.change(lib.CHANGE_EMPTY, "t", self.dice.choice(["", *CHANNELS]))

    def delete(self) -> None:
        if self.dice.random() < 0.3:
            self.bench.change(lib.CHANGE_DELETE, "t", self.dice.choice(["", *CHANNELS, *CHANNELS]))

    def move(self) -> None:
        self.dice.choice([compact, drop_dead])(self.bench)

    def pass_time(self) -> None:
        self.turn(self.dice.choice([1, 6, 70]))

    def retain(self) -> None:
        self.bench.change(lib.CHANGE_RETAIN, "t")

    def view(self) -> None:
        seq = self.seq()
        self.raw(lib.MSG_COMPACT, 996, ttr=seq + 1, body=struct.pack("=QII", seq, 0, 0))


@pytest.mark.parametrize("seed", range(60))
def test_a_worker_lives_and_nothing_is_left_over(seed: int) -> None:
    script = Script(seed)
    script.run()
    script.bench.dispose()
