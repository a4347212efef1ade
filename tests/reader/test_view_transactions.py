"""A reader beside a worker sees of transactions what was committed, up to the first that is open."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib
from mq_shards.shards.reader.view import DataView

from tests.reader.disk import Disk, read_all
from tests.shards.bench import OK, SHARDS
from tests.shards.test_open_transactions import of_transaction

TXN = 8192  # MSG_TXN, csrc/ringbuf/message.h
TOPICS = ("a", "b", "c")
ABORTED = b""


class Transactions(Disk):
    def stage(self, name: str, txn: int, body: bytes) -> int:
        topic, id = self.topic(name), self.next_id + self.shard_of(name)
        self.next_id += SHARDS
        flags = lib.MSG_DURABLE | lib.MSG_RETAIN | TXN
        slot = self.raw(lib.MSG_PUBLISH, 999, topic=topic, id=id, flags=flags, body=of_transaction(txn, body))
        return self.answered(slot)

    def end(self, name: str, txn: int, *, commit: bool) -> None:
        assert self.answered(self.raw(lib.MSG_TXN_END, 999, topic=self.topic(name), id=txn, pri=int(commit))) == OK

    def answered(self, slot: int) -> int:
        answers = self.turn()
        found: list[int] = [answer.status for answer in answers if answer.slot == slot]
        assert len(found) == 1
        return found[0]


@pytest.fixture()
def disk(tmp_path: Path) -> Iterator[Transactions]:
    disk = Transactions(tmp_path / "data")
    yield disk
    disk.dispose()


def check(view: DataView, name: str, bodies: list[bytes], waiting: dict[int, list[int]], max_bytes: int) -> None:
    topic = view.topic(name)
    latest = min((seqs[0] for seqs in waiting.values() if seqs), default=len(bodies))
    if topic is None:
        assert not bodies
        return
    assert topic.latest == latest
    assert [(s.seq, s.body) for s in read_all(view, name, max_bytes)] == [
        (seq, body) for seq, body in enumerate(bodies[:latest]) if body != ABORTED
    ]
    beyond = view.records(name, latest, None, max_bytes)
    assert beyond is not None
    with beyond.runs:
        assert not beyond.runs.runs and beyond.runs.next == latest


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 3))])
def test_a_view_ends_at_the_first_open_transaction_and_shows_none_that_was_aborted(
    disk: Transactions, seed: int
) -> None:
    chance = random.Random(seed)
    view, txns = DataView(disk.directory, SHARDS), 0
    bodies: dict[str, list[bytes]] = {name: [] for name in TOPICS}
    waiting: dict[str, dict[int, list[int]]] = {name: {} for name in TOPICS}
    for step in range(200):
        name = chance.choice(TOPICS)
        body = b"%d " % step + chance.randbytes(chance.choice((1, 50, 2000)))
        what = chance.random()
        if what < 0.3:
            several = [body] * chance.randrange(1, 4)
            disk.publish(name, several)
            bodies[name] += several
        elif what < 0.7:
            if not waiting[name] or chance.random() < 0.3:
                txns += 1
                waiting[name][txns] = []
            txn = chance.choice(list(waiting[name]))
            assert disk.stage(name, txn, body) == OK
            waiting[name][txn].append(len(bodies[name]))
            bodies[name].append(body)
        elif waiting[name]:
            txn = chance.choice(list(waiting[name]))
            commit = chance.random() < 0.5
            disk.end(name, txn, commit=commit)
            for seq in waiting[name].pop(txn):
                bodies[name][seq] = bodies[name][seq] if commit else ABORTED
        if chance.random() < 0.1:
            disk.roll(disk.shard_of(name))
        if chance.random() < 0.02:
            disk.restart()
        if chance.random() < 0.2:
            assert view.topics() == DataView(disk.directory, SHARDS).topics()
            check(view, name, bodies[name], waiting[name], chance.choice((1, 3000, 1 << 20)))
    assert list(disk.directory.glob("*/*.index"))
    for whole in (view, DataView(disk.directory, SHARDS)):  # the second with the indexes that are there
        for name in TOPICS:
            check(whole, name, bodies[name], waiting[name], 1 << 20)
