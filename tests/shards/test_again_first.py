"""Consumers that take turns, of which the first one said that what is delivered again comes first (Pulsar's Shared)."""

from __future__ import annotations

import itertools
import struct

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, SECOND
from tests.shards.positions import finish, publish, seqs
from tests.shards.subscriptions import Channels
from tests.shards.test_shard_protocol import ask

MESSAGES = 12


def join(bench: Channels, conn: int, credit: int, *, first: bool = True) -> None:
    flags = lib.SUBSCRIBE_AGAIN_FIRST if first else 0
    body = struct.pack("<QQIIHHI", 60 * SECOND, 900 * SECOND, 0, 0, 1, flags, 0) + b"c"
    assert ask(bench, lib.MSG_SUBSCRIBE, conn, topic=bench.topic("t"), body=body).status == OK
    bench.raw(lib.MSG_CREDIT, conn, id=credit)


def requeue(bench: Channels, conn: int, *which: int) -> None:
    for seq in which:
        bench.raw(lib.MSG_REQUEUE, conn, flags=lib.MSG_BY_SEQ, ttr=seq)


@pytest.mark.parametrize("first", [False, True])
def test_what_is_delivered_again_comes_first_the_lowest_seq_before_all(bench: Channels, first: bool) -> None:
    join(bench, 1, 6, first=first)
    publish(bench, count=MESSAGES)
    assert seqs(bench.turn()) == [0, 1, 2, 3, 4, 5]
    bench.credit(1, 0)
    requeue(bench, 1, 4, 1, 3)
    assert seqs(bench.turn()) == []
    assert seqs(bench.credit(1, 8)) == ([1, 3, 4, 6, 7] if first else [4, 6, 1, 7, 3])


def test_what_a_consumer_had_that_leaves_comes_first(bench: Channels) -> None:
    join(bench, 1, 4)
    publish(bench, count=MESSAGES)
    assert seqs(bench.turn()) == [0, 1, 2, 3]
    bench.credit(1, 0)
    finish(bench, 1, 2)
    join(bench, 2, 0)
    bench.raw(GONE, 1)
    bench.turn()
    assert seqs(bench.credit(2, 6)) == [0, 1, 3, 4, 5, 6]


def test_one_that_is_given_back_without_end_keeps_the_others_back(bench: Channels) -> None:
    """As at a Pulsar broker; where consumers only take turns it does not."""
    join(bench, 1, 1)
    publish(bench, count=MESSAGES)
    came: list[int] = []
    for _ in range(5):
        (seq,) = seqs(bench.turn())
        came.append(seq)
        requeue(bench, 1, seq)
    assert came == [0] * 5


def test_what_was_left_before_is_put_into_order(bench: Channels) -> None:
    """By consumers that only take turns, or by the log."""
    join(bench, 1, MESSAGES, first=False)
    publish(bench, count=MESSAGES)
    bench.turn()
    bench.credit(1, 0)
    requeue(bench, 1, *range(MESSAGES - 1, -1, -2))
    bench.turn()
    bench.raw(GONE, 1)
    bench.turn()
    join(bench, 2, MESSAGES)
    assert seqs(bench.turn()) == list(range(MESSAGES))
    bench.restart()
    publish(bench)
    join(bench, 3, MESSAGES)
    assert seqs(bench.turn()) == list(range(MESSAGES))


def test_the_first_one_decides_and_nobody_is_refused(bench: Channels) -> None:
    join(bench, 1, 4)
    join(bench, 2, 0, first=False)
    publish(bench, count=MESSAGES)
    assert seqs(bench.turn()) == [0, 1, 2, 3]
    bench.credit(1, 0)
    requeue(bench, 1, 3, 2)
    bench.turn()
    assert seqs(bench.credit(2, 3)) == [2, 3, 4]


@pytest.mark.parametrize("piece", [3, 50])
def test_many_are_put_into_order_in_pieces(piece: int) -> None:
    bench = Channels(piece=piece)
    try:
        join(bench, 1, 200, first=False)
        publish(bench, count=200)
        bench.turn()
        bench.turn()
        bench.credit(1, 0)
        requeue(bench, 1, *range(199, -1, -1))
        bench.turn()
        bench.raw(GONE, 1)
        for _ in range(20):
            bench.turn()
        join(bench, 2, 200)
        came = list(itertools.chain.from_iterable(seqs(bench.turn()) for _ in range(30)))
        assert came == list(range(200))
    finally:
        bench.dispose()
