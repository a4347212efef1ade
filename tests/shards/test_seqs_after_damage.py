"""A (topic, seq) never means two messages, whatever is damaged in the log between two starts; and what such a jump of
seqs costs."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib
from mq_shards.shards.dump import Record, decode_segment

from tests.shards.bench import OK, PUBLISH, SHARDS, lose_segments
from tests.shards.positions import finish, position, seek
from tests.shards.subscriptions import Channels, roll
from tests.shards.test_open_transactions import COMMIT, end, stage
from tests.shards.test_shard_protocol import ask
from tests.shards.test_stream_memory import own_memory

TOPICS = [f"t{n}" for n in range(5)]
SECTOR, STAGED = 512, 18


def give(bench: Channels, name: str, body: bytes = b"x", flags: int = 0) -> int:
    """The seq of a new message."""
    bench.raw(
        PUBLISH, 999, flags=lib.MSG_DURABLE | flags, topic=bench.topic(name), id=bench.next_id, pri=1024, body=body
    )
    bench.next_id += SHARDS
    (answer,) = (a for a in bench.turn() if a.kind != lib.MSG_DELIVER)
    assert answer.status == OK
    return answer.seq


def content_of(fd: int) -> bytes:
    return Path(f"/proc/self/fd/{fd}").read_bytes()


def records_of(fd: int) -> list[Record]:
    return [r for r in decode_segment(content_of(fd)) if isinstance(r, Record)]


def size_of(record: Record) -> int:
    return 40 + len(record.attributes) + len(record.body)


def end_of(fd: int) -> int:
    return len(content_of(fd).rstrip(b"\0"))


class Campaign:
    """What was given to a client, and what was not touched since."""

    def __init__(self, bench: Channels, draw: random.Random) -> None:
        self.bench, self.draw, self.names_are_lost = bench, draw, False
        self.given: dict[str, set[int]] = {name: set() for name in TOPICS}
        self.whole: dict[str, set[int]] = {name: set() for name in TOPICS}
        for name in TOPICS:
            assert bench.change(lib.CHANGE_MAKE, name) == OK
            assert bench.change(lib.CHANGE_MAKE, name, "c") == OK

    def publish(self, count: int) -> None:
        for _ in range(count):
            name = self.draw.choice(TOPICS)
            seq = give(self.bench, name, self.draw.randbytes(self.draw.choice([1, 40, 700, 5000])))
            assert seq not in self.given[name], f"{name}: {seq} again"
            self.given[name].add(seq)
            self.whole[name].add(seq)

    def spoil(self) -> str:
        segment, fd = self.draw.choice(self.bench.segments[0])
        records = records_of(fd)
        end, how = end_of(fd), self.draw.choice(["zeros", "a bit", "a sector", "the end", "names too"])
        begin, size = self.draw.choice(records[:-1]).offset, self.draw.choice([40, 400, 4000])
        if how == "a bit":
            begin = size = self.draw.randrange(64, end)
            os.pwrite(fd, bytes([content_of(fd)[begin] ^ 1 << self.draw.randrange(8)]), begin)
            size = 1
        elif how == "the end":
            begin = max(64, end - self.draw.randrange(1, 1500))
            size = end - begin
            os.pwrite(fd, self.draw.randbytes(size - 1) + b"x", begin)
        else:
            if how == "a sector":
                begin, size = begin // SECTOR * SECTOR or 64, self.draw.choice([1, 3]) * SECTOR
            # Zeros up to the end cannot be told from what was never written.
            size = min(size, records[-1].offset - begin)
            os.pwrite(fd, bytes(size), begin)
        if how == "names too":
            os.truncate(self.bench.names[0, segment], 0)
            self.names_are_lost = True
        numbers = {r.topic: bytes(r.body).decode() for n, f in self.bench.segments[0] for r in self.named.get(n, [])}
        for record in records:
            if record.offset < begin + size and record.offset + size_of(record) > begin and record.topic in numbers:
                self.whole.get(numbers[record.topic], set()).discard(record.seq)
        return f"{how}: {begin} to {begin + size} of {end} in segment {segment}"

    def note_names(self) -> None:
        self.named = {n: [r for r in records_of(fd) if r.kind == 1] for n, fd in self.bench.segments[0]}

    def check(self) -> None:
        """What was not touched is there, each once; if a topic and its channel are known."""
        for number, name in enumerate(TOPICS if not self.names_are_lost else ()):
            assert lib.worker_next_seq(self.bench.worker, name.encode(), len(name)) > max(self.given[name], default=-1)
            conn = 100 + number
            self.bench.sub(conn, name, "c", credit=10_000)
            seqs = [a.seq for a in self.bench.turn() if a.kind == lib.MSG_DELIVER and a.conn == conn]
            assert len(seqs) == len(set(seqs)) and self.whole[name] <= set(seqs) <= self.given[name]
            self.bench.raw(lib.MSG_GONE, conn)
            self.bench.turn()


@pytest.mark.parametrize("seed", range(60))
def test_no_seq_is_given_out_twice_wherever_the_log_is_damaged(bench: Channels, seed: int) -> None:
    campaign = Campaign(bench, random.Random(seed))
    did: list[str] = []
    try:
        for _ in range(4):
            campaign.publish(25)
            if campaign.draw.random() < 0.3:
                roll(bench)
                campaign.publish(10)
            campaign.note_names()
            bench.stop()
            did.append(campaign.spoil())
            bench.start()
            if campaign.draw.random() < 0.5:  # before anything is written
                bench.restart()
            campaign.check()
    except AssertionError as error:
        error.add_note(f"seed {seed}: {did}")
        raise


def spoil(bench: Channels, name: str, seq: int, kind: int = 3) -> None:
    """Zeros in the place of a record's head, and a restart."""
    numbers = {bytes(r.body).decode(): r.topic for _, fd in bench.segments[0] for r in records_of(fd) if r.kind == 1}
    for _, fd in bench.segments[0]:
        for record in records_of(fd):
            if (record.kind, record.topic, record.seq) == (kind, numbers[name], seq):
                os.pwrite(fd, bytes(40), record.offset)
    bench.restart()
    assert bench.found.damages


def test_topics_that_were_written_to_since_have_no_jump_and_others_a_small_one(bench: Channels) -> None:
    for name in ("busy", "lost", "idle"):
        assert [give(bench, name) for _ in range(3)] == [0, 1, 2]
    assert give(bench, "lost") == 3
    assert give(bench, "busy") == 3
    spoil(bench, "lost", 3)
    assert give(bench, "busy") == 4
    assert [3 < give(bench, name) < 10 for name in ("lost", "idle")] == [True, True]
    bench.restart()
    assert give(bench, "busy") == 5 and give(bench, "idle") < 12


def test_a_start_after_another_comes_to_the_same_seqs(bench: Channels) -> None:
    for name in ("lost", "busy", "lost", "busy"):
        give(bench, name)
    spoil(bench, "lost", 1)
    seqs = set()
    for _ in range(5):
        seqs.add(lib.worker_next_seq(bench.worker, b"lost", 4))
        bench.restart()
    assert len(seqs) == 1


def test_a_write_that_a_killed_process_has_not_finished_makes_no_jump(bench: Channels) -> None:
    give(bench, "t", bytes([7]) * 3000)
    _, fd = bench.segments[0][-1]
    last = records_of(fd)[-1]
    while last.offset // 4096 == (last.offset + 3039) // 4096:
        give(bench, "t", bytes([7]) * 3000)
        last = records_of(fd)[-1]
    bench.stop()
    cut = (last.offset + 4095) // 4096 * 4096
    os.pwrite(fd, bytes(last.offset + 4096 - cut), cut)
    bench.start()
    assert bench.found.damages == 1
    assert give(bench, "t") == last.seq


def test_a_message_that_was_committed_after_the_damage_does_not_say_where_its_topic_stood(bench: Channels) -> None:
    """Its seq is of before."""
    assert stage(bench) == 0
    for _ in range(5):
        give(bench, "t", flags=lib.MSG_RETAIN)
    end(bench, COMMIT)
    numbers = [r for _, fd in bench.segments[0] for r in records_of(fd) if r.kind == 1]
    (_, fd), *_ = bench.segments[0]
    records = records_of(fd)
    assert records[-1].kind == 3 and records[-1].seq == 0
    (staged,) = (r for r in records if r.kind == STAGED)
    os.pwrite(fd, bytes(records[-1].offset - staged.offset), staged.offset)
    bench.restart()
    assert numbers and bench.found.damages == 1
    assert give(bench, "t") > 5


def test_a_jump_costs_no_memory_for_the_seqs_between(bench: Channels) -> None:
    def make(first: int, count: int) -> None:
        for n in range(first, first + count):
            bench.open(f"t{n}", 1 + n)
            bench.numbers[f"t{n}"] = 1 + n
            give(bench, f"t{n}", flags=lib.MSG_RETAIN)
        lose_segments(bench, 20)
        for n in range(first, first + count):
            assert give(bench, f"t{n}", flags=lib.MSG_RETAIN) > 20_000_000

    make(0, 100)
    before = own_memory()
    make(100, 500)
    assert (own_memory() - before) / 500 < 12_000  # two pages; pointers to those between would take half a megabyte


def test_over_a_jump_messages_are_delivered_finished_and_sought(bench: Channels) -> None:
    for _ in range(3):
        give(bench, "t", flags=lib.MSG_RETAIN)
    assert bench.change(lib.CHANGE_MAKE, "t", "c") == OK
    give(bench, "t")
    lose_segments(bench, 3)
    first = give(bench, "t")
    assert give(bench, "t") == first + 1
    for restarts in range(2):
        where = position(bench, "c")
        assert (where.first, where.next, where.unfinished, where.depth) == (0, first + 2, 3, 3)
        if not restarts:
            bench.restart()
    bench.sub(1, "t", "c", credit=10)
    assert [a.seq for a in bench.turn() if a.kind == lib.MSG_DELIVER] == [3, first, first + 1]
    finish(bench, 1, first - 5, flags=lib.MSG_UPTO)
    assert position(bench, "c").unfinished == first
    finish(bench, 1, first - 7, first)
    assert position(bench, "c").unfinished == first + 1
    assert seek(bench, lib.START_SEQ, 4).seq == 4  # between
    assert delivered_seqs(bench) == [first, first + 1]
    assert seek(bench, lib.START_EARLIEST).seq == 0
    assert delivered_seqs(bench) == [0, 1, 2, 3, first, first + 1]
    assert seek(bench, lib.START_TIME, bench.wall).seq in (0, first)
    for n, (asked, found) in enumerate([(0, 0), (4, first), (first - 1, first), (first + 1, first + 1)]):
        answer = ask(bench, lib.MSG_PEEK_SEQ, 990 + n, topic=bench.topic("t"), ttr=asked, pri=1)
        assert (answer.status, answer.seq) == (OK, found)


def delivered_seqs(bench: Channels) -> list[int]:
    return [a.seq for a in bench.turn() if a.kind == lib.MSG_DELIVER]
