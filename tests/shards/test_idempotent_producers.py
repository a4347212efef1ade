"""Publishing once: what a worker remembers of idempotent producers, by ring messages alone."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator, Sequence

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, SHARDS
from tests.shards.subscriptions import Channels, delivered, drop_oldest, roll

PRODUCER_PART = struct.Struct("<QQII")
EARLY: int = lib.STATUS_EARLY
REMEMBERED = 64


class Producers(Channels):
    def part(self, producer: int, batch: int, part: int, bodies: Sequence[bytes] = (b"x",), topic: str = "t") -> int:
        """The status. Ids are taken as an acceptor takes them, whatever becomes of the part."""
        number, first = self.topic(topic), self.next_id
        self.next_id += SHARDS * len(bodies)
        body = PRODUCER_PART.pack(producer, batch, part, 0) + b"".join(struct.pack(">I", len(b)) + b for b in bodies)
        slot = self.raw(
            lib.MSG_PUBLISH_MANY, 999, flags=lib.MSG_IDEMPOTENT, topic=number, id=first, pri=len(bodies), body=body
        )
        (status,) = [a.status for a in self.turn() if a.slot == slot]
        return status

    def bodies(self, topic: str = "t") -> list[bytes]:
        """All there are; they are gone afterwards."""
        self.sub(1, topic, "all", credit=10_000)
        answers = self.turn()
        self.fin(1, *(id for id, _ in delivered(answers)))
        self.raw(GONE)
        self.turn()
        return [a.body for a in answers]


@pytest.fixture()
def bench() -> Iterator[Producers]:
    b = Producers()
    yield b
    b.dispose()


@pytest.mark.parametrize("restart", [False, True])
def test_a_part_is_written_once_and_only_behind_the_one_before(bench: Producers, restart: bool) -> None:
    def part(*arguments: int) -> int:
        if restart:
            bench.restart()
        return bench.part(*arguments, bodies=[b"%d.%d" % arguments[1:], b"-"])

    assert part(7, 3, 1) == EARLY
    assert part(7, 3, 0) == OK
    assert part(7, 3, 0) == OK
    assert part(7, 3, 2) == EARLY
    assert part(7, 3, 1) == OK
    assert part(7, 3, 0) == OK
    assert part(7, 4, 1) == EARLY
    assert part(7, 2, 9) == OK  # of a batch that is over
    assert part(7, 9, 0) == OK
    assert part(7, 3, 2) == OK
    assert part(8, 3, 0) == OK  # another producer
    assert bench.bodies() == [b"3.0", b"-", b"3.1", b"-", b"9.0", b"-", b"3.0", b"-"]


def test_producers_are_remembered_without_the_segments_they_wrote(bench: Producers) -> None:
    assert bench.part(7, 1, 0) == OK
    for _ in range(3):
        bench.bodies()
        roll(bench)
        drop_oldest(bench)
        bench.restart()
    assert bench.part(7, 1, 0) == OK
    assert b"x" not in bench.bodies()
    assert bench.part(7, 1, 1) == OK
    assert b"x" in bench.bodies()


def test_those_that_have_been_silent_longest_are_forgotten(bench: Producers) -> None:
    for producer in range(1, REMEMBERED + 1):
        assert bench.part(producer, 5, 0) == OK
    assert bench.part(1, 6, 0) == OK
    assert bench.part(1000, 0, 0) == OK
    for _ in range(2):
        assert bench.part(2, 5, 1) == EARLY
        assert bench.part(1, 6, 2) == EARLY
        assert bench.part(3, 5, 2) == EARLY
        assert bench.part(3, 5, 0) == OK
        roll(bench)
        bench.restart()
    assert len(bench.bodies()) == REMEMBERED + 2


@pytest.mark.parametrize("cut", range(0, 544, 16))
def test_a_part_that_was_half_written_is_not_remembered(bench: Producers, cut: int) -> None:
    assert bench.part(7, 1, 0, [b"first"]) == OK
    bench.stop()
    _, fd = bench.segments[0][-1]
    before = os.pread(fd, 1 << 20, 0)
    bench.start()
    assert bench.part(7, 1, 1, [b"a" * 50, b"b" * 50, b"c" * 50]) == OK
    bench.stop()
    _, fd = bench.segments[0][-1]
    after = os.pread(fd, 1 << 20, 0)
    grown = [at for at in range(min(len(before), len(after))) if before[at] != after[at]]
    start = grown[0] & ~7
    end = max(at for at in range(start, len(after)) if after[at]) + 1
    os.pwrite(fd, bytes(len(after) - min(start + cut, len(after))), start + cut)
    bench.start()
    assert bench.part(7, 1, 1, [b"a" * 50, b"b" * 50, b"c" * 50]) == OK
    assert bench.part(7, 1, 1) == OK
    assert bench.bodies() == [b"first", b"a" * 50, b"b" * 50, b"c" * 50]
    assert end - start < 544


def test_what_is_too_short_for_a_producer_is_refused(bench: Producers) -> None:
    slot = bench.raw(
        lib.MSG_PUBLISH_MANY, 1, flags=lib.MSG_IDEMPOTENT, topic=bench.topic("t"), id=SHARDS, pri=1, body=b"\0" * 23
    )
    assert [(a.slot, a.status) for a in bench.turn()] == [(slot, lib.STATUS_NO_SPACE)]


@pytest.mark.parametrize("seed", range(20))
def test_batches_come_out_once_however_often_they_are_begun_again(seed: int) -> None:
    """Each producer sends its batches part by part, and begins again at random, as one does that died."""
    rng = random.Random(seed)
    bench = Producers()
    want: list[bytes] = []
    got: list[bytes] = []
    for batch in range(6):
        for producer in rng.sample(range(1, 5), 3):
            parts = [
                [b"%d/%d/%d/%d" % (producer, batch, n, i) for i in range(rng.randint(1, 4))]
                for n in range(rng.randint(1, 5))
            ]
            want += [body for part in parts for body in part]
            n = highest = 0
            while n < len(parts):
                if rng.random() < 0.15:
                    n = rng.randint(0, n)
                if rng.random() < 0.1:
                    assert bench.part(producer, batch, highest + rng.randint(1, 3), [b"early"]) == EARLY
                match rng.random():
                    case chance if chance < 0.1:
                        bench.restart()
                    case chance if chance < 0.15:
                        roll(bench)
                    case chance if chance < 0.25:
                        got += bench.bodies()
                assert bench.part(producer, batch, n, parts[n]) == OK
                n += 1
                highest = max(highest, n)
    got += bench.bodies()
    assert sorted(got) == sorted(want)
    bench.dispose()
