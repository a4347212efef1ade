"""A delayed message that is there before its channel is, that is due at a time of its own, or that a transaction's
commit brings: where consumers take turns, or go by key, it comes when it is due; where one gets all in their order it
comes in that order, at once."""

from __future__ import annotations

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, RESERVE, SECOND, TIMED_OUT, WATCH, Answer
from tests.shards.positions import EARLIEST, SEQ, TIME, begin, finish, position, publish, read, seek, seqs
from tests.shards.subscriptions import Channels, drop_oldest, roll
from tests.shards.test_due_times import MS
from tests.shards.test_due_times import publish as due
from tests.shards.test_open_transactions import COMMIT, end, stage
from tests.shards.test_shard_protocol import join

HOW = pytest.mark.parametrize("how", ["before", "due", "committed"])
WAITING, AT_ONCE = [lib.POLICY_TURNS, lib.POLICY_KEY], [lib.POLICY_EXCLUSIVE, lib.POLICY_FAILOVER]
PIECE = 4
MANY = 500
IN_A_TURN = 64  # DISPATCH_MOST, csrc/shards/dispatch.c
FAR = 10_000


def make(bench: Channels, start: int = EARLIEST, at: int = 0) -> None:
    """Channel c."""
    assert begin(bench, 99, start, at, credit=0).status == OK
    bench.raw(GONE, 99)
    bench.turn()


def came(answers: list[Answer]) -> list[tuple[int, int]]:
    """Seqs and attempts."""
    return [(a.seq, a.pri) for a in answers if a.kind == lib.MSG_DELIVER]


def three(bench: Channels, how: str = "before") -> None:
    """The second is due in 10 s."""
    due_ns = bench.wall + 10 * SECOND
    first = publish(bench)
    if how == "due":
        second = [due(bench, due_ns)]
    elif how == "committed":
        second = [stage(bench, due_ns=due_ns)]
        bench.early = bench.turn(0.5)  # and the decision comes later
    else:
        second = publish(bench, delay=10)
    assert first + second + publish(bench) == [0, 1, 2]
    if how == "committed":
        end(bench, COMMIT)


def made(bench: Channels, how: str) -> None:
    """Channel c, and the three."""
    if how == "before":
        three(bench)
    make(bench)
    if how != "before":
        three(bench, how)


@pytest.mark.parametrize(("start", "at"), [(EARLIEST, 0), (SEQ, 0), (TIME, 0)])
@pytest.mark.parametrize("policy", WAITING)
def test_it_waits_for_its_time(bench: Channels, policy: int, start: int, at: int) -> None:
    three(bench)
    make(bench, start, at)
    assert join(bench, 1, policy) == OK
    assert came(bench.turn(9)) == [(0, 1), (2, 1)]
    assert bench.catalog()["t"].channels["c"].deferred == 1
    assert position(bench, "c").unfinished == 0
    assert came(bench.turn(1.1)) == [(1, 1)]
    bench.raw(lib.MSG_REQUEUE, 1, flags=lib.MSG_BY_SEQ, ttr=1)
    assert came(bench.turn()) == [(1, 2)], "it waits once"
    finish(bench, 1, 0, 1, 2)
    bench.restart()
    assert join(bench, 1, policy) == OK
    assert came(bench.turn(30)) == []


@HOW
@pytest.mark.parametrize("policy", AT_ONCE)
def test_it_comes_in_its_order_to_who_gets_all(bench: Channels, how: str, policy: int) -> None:
    made(bench, how)
    assert join(bench, 1, policy) == OK
    assert came(bench.turn()) == [(0, 1), (1, 1), (2, 1)]
    bench.restart()
    assert join(bench, 1, policy) == OK
    assert came(bench.turn()) == [(0, 2), (1, 2), (2, 2)], "the log says that it was delivered"
    finish(bench, 1, 1)
    bench.restart()
    assert join(bench, 1, policy) == OK
    assert came(bench.turn(30)) == [(0, 3), (2, 3)]


@HOW
@pytest.mark.parametrize("delivered", [False, True])
@pytest.mark.parametrize("policy", WAITING)
def test_a_restart_keeps_its_time(bench: Channels, how: str, policy: int, delivered: bool) -> None:
    made(bench, how)
    assert join(bench, 1, policy) == OK
    assert came(bench.turn(4)) == [(0, 1), (2, 1)]
    if delivered:
        assert came(bench.turn(7)) == [(1, 1)]
    finish(bench, 1, 0, 2)
    for _ in range(2):
        bench.restart()
    assert join(bench, 1, policy) == OK
    if delivered:
        assert came(bench.turn()) == [(1, 2)]
    else:
        assert came(bench.turn(5)) == []
        assert came(bench.turn(2)) == [(1, 1)], "it has not been delivered before"


@HOW
@pytest.mark.parametrize("policy", WAITING)
def test_what_was_due_while_the_worker_was_away_comes_as_new(bench: Channels, how: str, policy: int) -> None:
    made(bench, how)
    assert join(bench, 1, policy) == OK
    bench.turn()
    bench.stop()
    bench.now += 20 * SECOND
    bench.wall += 20 * SECOND
    bench.start()
    assert join(bench, 1, policy) == OK
    assert sorted(came(bench.turn())) == [(0, 2), (1, 1), (2, 2)]


@HOW
@pytest.mark.parametrize("policy", [*WAITING, *AT_ONCE])
@pytest.mark.parametrize("is_over", [False, True])
def test_who_goes_back_gets_all_in_order(bench: Channels, how: str, policy: int, is_over: bool) -> None:
    """What has been delivered does not overtake what lies before it, and what waits goes on waiting."""
    made(bench, how)
    assert join(bench, 1, policy) == OK
    bench.turn(20 if is_over else 1)
    seek(bench, EARLIEST)
    at_once = is_over or policy in AT_ONCE
    assert came(bench.turn()) == ([(0, 1), (1, 1), (2, 1)] if at_once else [(0, 1), (2, 1)])
    if not at_once:
        seek(bench, SEQ, 1)
        assert seqs(bench.turn()) == [2]
        bench.restart()
        assert join(bench, 1, policy) == OK
        assert seqs(bench.turn(8)) == [2]
        assert came(bench.turn(2)) == [(1, 1)]


@pytest.mark.parametrize("policy", [*WAITING, *AT_ONCE])
def test_one_that_came_to_a_channel_that_was_there_and_is_gone_back_to(bench: Channels, policy: int) -> None:
    make(bench)
    assert join(bench, 1, policy) == OK
    three(bench)
    assert came(bench.turn()) == [(0, 1), (2, 1)]
    seek(bench, EARLIEST)
    waits = policy in WAITING
    assert came(bench.turn()) == ([(0, 1), (2, 1)] if waits else [(0, 1), (1, 1), (2, 1)])
    assert came(bench.turn(11)) == ([(1, 1)] if waits else [])


@HOW
def test_who_goes_past_it_does_not_get_it(bench: Channels, how: str) -> None:
    made(bench, how)
    assert join(bench, 1, lib.POLICY_TURNS) == OK
    bench.turn()
    seek(bench, SEQ, 2)
    assert came(bench.turn()) == [(2, 1)]
    finish(bench, 1, 2)
    assert came(bench.turn(20)) == []
    bench.restart()
    assert join(bench, 1, lib.POLICY_TURNS) == OK
    assert came(bench.turn()) == []


def test_a_reader_with_turns_waits_too(bench: Channels) -> None:
    three(bench)
    read(bench, 1, EARLIEST)
    assert seqs(bench.turn()) == [0, 2]
    assert seqs(bench.turn(11)) == [1]
    publish(bench, delay=10)
    assert seqs(bench.turn()) == []
    assert seqs(bench.turn(11)) == [3]


@HOW
@pytest.mark.parametrize("moved", [False, True])
def test_its_segment_stays_or_it_moves(bench: Channels, how: str, moved: bool) -> None:
    made(bench, how)
    assert join(bench, 1, lib.POLICY_TURNS) == OK
    assert came(bench.turn()) == [(0, 1), (2, 1)]
    finish(bench, 1, 0, 2)
    roll(bench)
    if moved:
        drop_oldest(bench)
    bench.restart()
    assert join(bench, 1, lib.POLICY_TURNS) == OK
    assert came(bench.turn(9)) == []
    assert came(bench.turn(2)) == [(1, 1)]


@pytest.mark.parametrize("policy", WAITING)
def test_many_are_made_to_wait_in_pieces(policy: int) -> None:
    bench = Channels(piece=PIECE)
    try:
        for n in range(MANY):
            publish(bench, delay=0 if n % 10 == 0 else FAR)
        make(bench)
        assert join(bench, 1, policy, credit=0) == OK
        bench.raw(lib.MSG_CREDIT, 1, id=MANY)
        got: list[int] = []
        turns = 0
        while len(got) < MANY // 10 and turns < MANY:
            got += seqs(bench.step())
            turns += 1
        assert got == list(range(0, MANY, 10))
        assert turns >= (got[-1] - len(got)) // IN_A_TURN
        assert len(seqs(bench.turn(FAR))) > 0
    finally:
        bench.dispose()


@pytest.mark.parametrize("how", ["due", "committed"])
@pytest.mark.parametrize("policy", [*WAITING, *AT_ONCE])
def test_one_that_comes_to_a_consumer_that_is_there(bench: Channels, how: str, policy: int) -> None:
    make(bench)
    assert join(bench, 1, policy) == OK
    three(bench, how)
    assert came(bench.turn()) == ([(0, 1), (2, 1)] if policy in WAITING else [(0, 1), (1, 1), (2, 1)])
    assert came(bench.turn(9)) == []
    assert came(bench.turn(2)) == ([(1, 1)] if policy in WAITING else [])
    finish(bench, 1, 0, 1, 2)
    bench.restart()
    assert join(bench, 1, policy) == OK
    assert came(bench.turn(30)) == []


@HOW
@pytest.mark.parametrize("policy", WAITING)
def test_one_that_was_delivered_before_its_time_waits_when_others_share(bench: Channels, how: str, policy: int) -> None:
    made(bench, how)
    assert join(bench, 1, lib.POLICY_EXCLUSIVE) == OK
    assert came(bench.turn(1)) == [(0, 1), (1, 1), (2, 1)]
    bench.raw(GONE, 1)
    bench.turn(1)
    assert join(bench, 2, policy) == OK
    assert came(bench.turn(5)) == [(0, 2), (2, 2)]
    assert came(bench.turn(4)) == [(1, 2)]


def test_one_that_waits_takes_nobodys_turn(bench: Channels) -> None:
    make(bench)
    for conn in (1, 2):
        assert join(bench, conn, lib.POLICY_TURNS) == OK
    for _ in range(10):
        publish(bench)
        due(bench, bench.wall + 10 * SECOND)
    answers = bench.turn()
    assert sorted(a.conn for a in answers if a.kind == lib.MSG_DELIVER) == [1] * 5 + [2] * 5


@pytest.mark.parametrize("far_s", [30, 40 * 86_400, 80 * 86_400])
def test_how_long_a_message_of_a_transaction_waits_counts_from_when_it_was_sent(bench: Channels, far_s: int) -> None:
    """Not from the commit; and a restart between the two changes nothing. (So far that ms do not fit into 32 bits.)"""
    make(bench)
    due_ns = bench.wall // MS * MS + far_s * SECOND
    stage(bench, due_ns=due_ns, ttr_ns=SECOND + 1)
    bench.turn(20)
    bench.restart()
    end(bench, COMMIT)
    assert join(bench, 1, lib.POLICY_TURNS) == OK
    bench.turn()
    bench.restart()
    assert join(bench, 1, lib.POLICY_TURNS) == OK
    assert came(bench.turn((due_ns - bench.wall) // SECOND - 1)) == []
    assert came(bench.turn(2)) == [(0, 1)]


def test_what_is_due_when_its_transaction_commits_comes_at_once(bench: Channels) -> None:
    make(bench)
    assert join(bench, 1, lib.POLICY_TURNS) == OK
    stage(bench, due_ns=bench.wall // MS * MS + SECOND)
    bench.turn(20)
    end(bench, COMMIT)
    assert came(bench.turn(0.002)) == [(0, 1)]


def test_a_delayed_message_of_a_transaction_is_a_delayed_job(bench: Channels) -> None:
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    stage(bench, due_ns=bench.wall // MS * MS + 10 * SECOND)
    bench.turn(4)
    end(bench, COMMIT)
    assert bench.ask(RESERVE, 5).status == TIMED_OUT
    bench.restart()
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn(4)
    assert bench.ask(RESERVE, 5).status == TIMED_OUT
    bench.turn(3)
    assert bench.ask(RESERVE, 5).status == OK
