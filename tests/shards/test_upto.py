"""All that a channel has passed up to a seq is finished at once, and let go of in pieces, whoever leaves meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK
from tests.shards.positions import SEQ
from tests.shards.subscriptions import Channels, delivered, drop_oldest, roll

PIECE = 5
MESSAGES = 60
UPTO = 50


@pytest.fixture
def bench() -> Iterator[Channels]:
    bench = Channels(piece=PIECE)
    bench.sub(1, "t", "c", credit=MESSAGES)
    bench.mpub("t", [b"x"] * MESSAGES)
    bench.turn()
    yield bench
    bench.dispose()


def ask(bench: Channels, how: str) -> None:
    """And one turn only; who asked leaves."""
    if how == "finish":
        bench.sub(2, "t", "c")
        bench.raw(lib.MSG_FINISH, 2, flags=lib.MSG_BY_SEQ | lib.MSG_UPTO, ttr=UPTO - 1)
    else:
        bench.raw(lib.MSG_SEEK, 2, topic=bench.topic("t"), pri=SEQ, ttr=UPTO, flags=lib.MSG_UPTO, body=b"c")
    assert bench.pass_turn()
    bench.raw(GONE, 2)


def left(bench: Channels, channel: str = "c") -> int:
    figures = bench.catalog()["t"].channels[channel]
    return figures.depth + figures.in_flight


@pytest.mark.parametrize("how", ["finish", "seek"])
@pytest.mark.parametrize("again", [False, True])
def test_it_is_finished_though_who_asked_leaves(bench: Channels, how: str, again: bool) -> None:
    if again:
        bench.raw(GONE, 1)
        bench.turn()
    ask(bench, how)
    for _ in range(4):
        bench.turn()
    assert left(bench) == MESSAGES - UPTO
    bench.restart()
    assert left(bench) == MESSAGES - UPTO


@pytest.mark.parametrize("how", ["finish", "seek"])
def test_it_is_finished_though_the_worker_starts_anew_meanwhile(bench: Channels, how: str) -> None:
    ask(bench, how)
    bench.restart()
    assert left(bench) == MESSAGES - UPTO


def test_nothing_of_it_is_delivered_meanwhile(bench: Channels) -> None:
    bench.raw(GONE, 1)
    bench.turn()
    bench.raw(lib.MSG_SEEK, 2, topic=bench.topic("t"), pri=SEQ, ttr=UPTO, flags=lib.MSG_UPTO, body=b"c")
    assert bench.pass_turn()
    bench.sub(3, "t", "c", credit=MESSAGES)
    came = [id for _ in range(4) for id, _ in delivered(bench.turn(), 3)]
    assert len(came) == len(set(came)) == MESSAGES - UPTO


def test_nothing_of_it_is_delivered_while_another_channel_lets_go_of_as_much(bench: Channels) -> None:
    """A turn's piece is one channel's alone."""
    bench.sub(5, "t", "d")
    bench.mpub("t", [b"y"] * MESSAGES)
    first = bench.catalog()["t"].messages
    for conn in (1, 5):
        bench.raw(lib.MSG_CREDIT, conn, id=2 * MESSAGES)
    bench.turn()
    seen = {channel: left(bench, channel) for channel in "cd"}
    for conn, channel in ((3, "c"), (7, "d")):
        bench.sub(conn, "t", channel)
    for conn in (1, 5):
        bench.raw(GONE, conn)
    bench.turn()
    for conn, body in ((2, b"c"), (6, b"d")):
        bench.raw(lib.MSG_SEEK, conn, topic=bench.topic("t"), pri=SEQ, ttr=first, flags=lib.MSG_UPTO, body=body)
    assert bench.pass_turn()
    for conn in (2, 6):
        bench.raw(GONE, conn)
    for conn in (3, 7):
        bench.raw(lib.MSG_CREDIT, conn, id=2 * MESSAGES)
    assert seen == {"c": 2 * MESSAGES, "d": MESSAGES}
    assert [delivered(bench.turn(), conn) for conn in (3, 7)] == [[], []]
    assert [left(bench, channel) for channel in "cd"] == [0, 0]


def test_a_segment_that_is_emptied_meanwhile_does_not_bring_it_back(bench: Channels) -> None:
    roll(bench)
    ask(bench, "finish")
    drop_oldest(bench)
    bench.restart()
    assert left(bench) == MESSAGES - UPTO


@pytest.mark.parametrize("what", [lib.CHANGE_EMPTY, lib.CHANGE_DELETE])
@pytest.mark.parametrize("channel", ["", "c"])
def test_what_goes_meanwhile_is_gone(bench: Channels, what: int, channel: str) -> None:
    ask(bench, "seek")
    bench.raw(GONE, 1)
    assert bench.change(what, "t", channel) == OK
    for _ in range(4):
        bench.turn()
    ids = bench.mpub("t", [b"new"])
    bench.sub(4, "t", "c", credit=MESSAGES)
    came = {id for _ in range(3) for id, _ in delivered(bench.turn(), 4)}
    assert ids[0] in came


def test_two_who_ask_wait_for_each_other(bench: Channels) -> None:
    for conn, upto in ((2, 20), (3, UPTO)):
        bench.raw(lib.MSG_SEEK, conn, topic=bench.topic("t"), pri=SEQ, ttr=upto, flags=lib.MSG_UPTO, body=b"c")
    answers = [a for _ in range(6) for a in bench.turn() if a.kind == lib.MSG_SEEK]
    assert sorted(a.conn for a in answers) == [2, 3]
    assert {a.status for a in answers} == {OK}
    assert left(bench) == MESSAGES - UPTO
