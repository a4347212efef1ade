"""Messages that are due at one time by the wall clock are delivered in the order of their seqs, however long each took
to arrive and however the two clocks were read."""

from __future__ import annotations

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import OK, SECOND, SHARDS
from tests.shards.positions import EARLIEST, begin, seqs
from tests.shards.subscriptions import Channels

MS, US = 1_000_000, 1000
# By how much both clocks, and the wall clock alone, move before each message.
STEPS = [(0, 0), (300 * MS + 17 * US, 0), (1, -3 * US), (77 * MS + 1, 2 * US), (999 * US, -40 * US), (US, 40 * US)]


def move(bench: Channels, both_ns: int, wall_ns: int = 0) -> None:
    bench.now += both_ns
    bench.wall += both_ns + wall_ns


def publish(bench: Channels, due_ns: int, body: bytes = b"x") -> int:
    slot = bench.raw(lib.MSG_PUBLISH, 999, flags=lib.MSG_DURABLE | lib.MSG_RETAIN | lib.MSG_DUE,
                     topic=bench.topic("t"), id=bench.next_id, pri=1024, delay=due_ns, body=body)  # fmt: skip
    bench.next_id += SHARDS
    answers = bench.turn()
    (answer,) = [one for one in answers if one.slot == slot]
    bench.early += [one for one in answers if one.slot != slot]
    assert answer.status == OK
    return answer.seq


@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a restart"])
def test_what_is_due_at_one_time_comes_in_order(bench: Channels, again: bool) -> None:
    begin(bench, 1, EARLIEST, credit=100)
    bench.turn()
    due = (bench.wall // SECOND + 3) * SECOND
    for both, wall in STEPS:
        move(bench, both, wall)
        publish(bench, due)
    if again:
        bench.restart()
        begin(bench, 1, EARLIEST, credit=100)
    heard: list[int] = []
    while not heard and bench.wall < due + SECOND:
        move(bench, 250 * US)
        heard = seqs(bench.turn())
    assert heard == list(range(len(STEPS))), "all in one turn"
    assert 0 <= bench.wall - due <= 2 * MS


def test_what_is_due_already_comes_soon(bench: Channels) -> None:
    begin(bench, 1, EARLIEST, credit=100)
    bench.turn()
    for due in (1, bench.wall - 1, bench.wall, bench.wall + 1):
        publish(bench, due)
    move(bench, 2 * MS + 1)
    assert seqs(bench.turn()) == [0, 1, 2, 3]
