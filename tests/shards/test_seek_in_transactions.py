"""A channel is moved while transactions have acknowledged some of its messages, as a real broker does it: what was
acknowledged by itself does not come while its transaction is open, wherever the channel goes, and not at all if that is
committed; what was acknowledged with all before it comes, and is finished by the commit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK
from tests.shards.positions import EARLIEST, LATEST, SEQ, begin, finish, position, publish, seek, seqs
from tests.shards.subscriptions import Channels, roll
from tests.shards.test_open_transactions import (
    ABORT,
    COMMIT,
    acknowledge,
    acknowledge_upto,
    drop_dead,
    end,
    open_ones,
)
from tests.shards.test_shard_protocol import join

SIX = list(range(6))


def acknowledged(bench: Channels, *of: int) -> None:
    """Six messages, of which a transaction has acknowledged some; nobody consumes any more."""
    begin(bench, 1, EARLIEST)
    assert publish(bench, count=6) == SIX
    assert seqs(bench.turn(), 1) == SIX
    for seq in of:
        assert acknowledge(bench, seq) == OK
    leave(bench)


def leave(bench: Channels) -> None:
    bench.raw(GONE, 1)
    bench.turn()


def come(bench: Channels) -> list[int]:
    """What a consumer gets that comes now."""
    leave(bench)
    begin(bench, 1, EARLIEST)
    return sorted(seqs(bench.turn(), 1))


def move(bench: Channels, ways: Sequence[tuple[int, int]]) -> None:
    for start, at in ways:
        leave(bench)
        seek(bench, start, at)


BACK = [(EARLIEST, 0)]
WAYS = [
    (BACK, [0, 1, 3, 5], SIX),
    ([(SEQ, 2)], [3, 5], [2, 3, 4, 5]),
    ([(SEQ, 3)], [3, 5], [3, 4, 5]),
    ([(LATEST, 0)], [], []),
    ([(LATEST, 0), (EARLIEST, 0)], [0, 1, 3, 5], SIX),
    ([(EARLIEST, 0), (SEQ, 3), (SEQ, 1)], [1, 3, 5], [1, 2, 3, 4, 5]),
]


@pytest.mark.parametrize("comes", ["before it ends", "after"])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", [COMMIT, ABORT])
@pytest.mark.parametrize(("ways", "left", "whole"), WAYS)
def test_what_is_acknowledged_does_not_come_wherever_its_channel_is_moved(
    bench: Channels, ways: list[tuple[int, int]], left: list[int], whole: list[int], how: int, restarts: bool,
    comes: str,
) -> None:  # fmt: skip
    acknowledged(bench, 2, 4)
    move(bench, ways)
    if restarts:
        bench.restart()
    if comes == "before it ends":
        assert come(bench) == left
        end(bench, how)
        assert sorted(seqs(bench.turn(), 1)) == sorted(set(whole if how == ABORT else left) - set(left)), "at once"
    else:
        end(bench, how)
    expected = left if how == COMMIT else whole
    for _ in range(2):
        if restarts:
            bench.restart()
        assert not open_ones(bench)
        assert come(bench) == expected
    finish(bench, 1, *expected)
    bench.restart()
    assert come(bench) == []
    assert position(bench, "c").unfinished == 6
    move(bench, BACK)
    assert come(bench) == SIX, "the transaction is over"


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", [COMMIT, ABORT])
@pytest.mark.parametrize(("at", "left"), [(0, [4, 5]), (2, [4, 5]), (5, [5])])
def test_what_is_acknowledged_with_all_before_it_comes_and_is_finished_by_the_commit(
    bench: Channels, at: int, left: list[int], how: int, restarts: bool
) -> None:
    for comes in (True, False):
        other = Channels() if comes else bench
        acknowledged(other)
        begin(other, 1, EARLIEST)
        other.turn()
        assert acknowledge_upto(other, 3) == OK
        move(other, [(SEQ, at)])
        if comes:
            assert come(other) == SIX[at:]
        if restarts:
            other.restart()
        end(other, how)
        for _ in range(2):
            assert come(other) == (left if how == COMMIT else SIX[at:])
            if restarts:
                other.restart()
        if comes:
            other.dispose()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("comes", ["before it ends", "after"])
@pytest.mark.parametrize("how", [COMMIT, ABORT])
def test_what_is_acknowledged_outlives_segments_that_go_since_its_channel_was_moved_back(
    bench: Channels, how: int, comes: str, restarts: bool
) -> None:
    """Another channel holds the messages, so they move; this one is not back where it was before."""
    begin(bench, 3, EARLIEST, channel="other", credit=0)
    acknowledged(bench, 2, 4)
    move(bench, [(SEQ, 1)])
    if comes == "before it ends":
        assert come(bench) == [1, 3, 5]
        finish(bench, 1, 1, 3, 5)
    for ended in (False, True):
        if ended:
            end(bench, how)
        for _ in range(2):
            roll(bench)
            dropped = drop_dead(bench)
            if restarts:
                bench.restart()
            assert dropped or comes == "after", "what a channel was moved back to is kept for it"
    came = [] if comes == "before it ends" else [1, 3, 5]
    assert come(bench) == sorted(came + ([2, 4] if how == ABORT else []))


def test_a_message_that_moves_and_is_ahead_of_its_channel_stays_finished(bench: Channels) -> None:
    """It never had it behind it: its topic's messages were sought before the channel got to them once more."""
    begin(bench, 3, EARLIEST, channel="other", credit=0)
    acknowledged(bench, 2, 4)
    move(bench, BACK)
    end(bench, COMMIT)
    begin(bench, 1, EARLIEST, credit=1)
    assert seqs(bench.turn(), 1) == [0]
    finish(bench, 1, 0)
    for _ in range(3):
        roll(bench)
        drop_dead(bench)
        bench.restart()
    assert come(bench) == [1, 3, 5]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", [COMMIT, ABORT])
def test_it_is_the_same_for_consumers_by_key(bench: Channels, how: int, restarts: bool) -> None:
    acknowledged(bench, 2, 4)
    move(bench, BACK)
    for ended in (False, True):
        if restarts:
            bench.restart()
        leave(bench)
        assert join(bench, 1, lib.POLICY_KEY, credit=100) == OK
        hidden = [] if ended and how == ABORT else [2, 4]
        assert sorted(seqs(bench.turn(), 1)) == [seq for seq in SIX if seq not in hidden]
        end(bench, how)
        if not ended:
            assert sorted(seqs(bench.turn(), 1)) == ([2, 4] if how == ABORT else [])


def test_another_transaction_cannot_acknowledge_it_and_who_is_in_none_can(bench: Channels) -> None:
    acknowledged(bench, 2, 4)
    move(bench, BACK)
    for _ in range(2):
        assert acknowledge(bench, 2, txn=8) != OK, "it is not there"
        assert come(bench) == [0, 1, 3, 5]
        assert acknowledge(bench, 2, txn=8) == lib.STATUS_FULL
        bench.restart()
        begin(bench, 1, EARLIEST, credit=0)
        assert acknowledge(bench, 2, txn=8) == lib.STATUS_FULL, "nor when nothing has been delivered yet"
        leave(bench)
    come(bench)
    finish(bench, 1, 4)
    end(bench, ABORT)
    assert seqs(bench.turn(), 1) == [2]


@pytest.mark.parametrize("how", [COMMIT, ABORT])
@pytest.mark.parametrize("comes", ["before it ends", "after"])
def test_a_delayed_message_is_passed_too(bench: Channels, how: int, comes: str) -> None:
    begin(bench, 1, EARLIEST)
    (delayed,) = publish(bench, delay=3)
    (other,) = publish(bench)
    assert seqs(bench.turn(5), 1) == [other, delayed]
    assert acknowledge(bench, delayed) == OK
    move(bench, BACK)
    if comes == "before it ends":
        assert come(bench) == [other]
    end(bench, how)
    assert come(bench) == ([other] if how == COMMIT else [delayed, other])
    bench.restart()
    assert come(bench) == ([other] if how == COMMIT else [delayed, other])


def test_what_was_finished_ahead_is_given_back_a_piece_a_turn() -> None:
    bench = Channels(piece=8)
    begin(bench, 1, EARLIEST, credit=1000)
    of = publish(bench, count=200)
    assert seqs(bench.turn(), 1) == of
    for seq in of:
        assert acknowledge(bench, seq) == OK
    move(bench, BACK)
    end(bench, COMMIT)
    assert come(bench) == []
    bench.dispose()
