"""Messages that are delivered later, by ring messages alone: published with a delay, or requeued with one; whatever
the clock is set to meanwhile."""

from __future__ import annotations

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import SECOND
from tests.shards.subscriptions import Channels, delivered, drop_oldest, roll


def test_delayed_messages_are_deferred_in_every_channel(bench: Channels) -> None:
    early, _ = bench.pub("t", delay=30)
    bench.sub(1, "t", "c", credit=10)
    bench.sub(2, "t", "d", credit=10)
    both, pushed = bench.pub("t", delay=10)
    assert pushed == []
    assert {name: c.deferred for name, c in bench.catalog()["t"].channels.items()} == {"c": 2, "d": 1}
    bench.restart()
    bench.sub(1, "t", "c", credit=10)
    bench.sub(2, "t", "d", credit=10)
    assert bench.turn(9.9) == []
    answers = bench.turn(0.2)
    assert sorted((a.conn, a.id, a.pri) for a in answers) == [(1, both, 1), (2, both, 1)]
    bench.fin(1, both)
    bench.fin(2, both)
    assert delivered(bench.turn(20)) == [(early, 1)]


def test_a_delayed_message_before_the_first_channel_is_deferred_in_it_after_a_restart(bench: Channels) -> None:
    id, _ = bench.pub("t", delay=30)
    bench.restart()
    bench.sub(1, "t", "c", credit=10)
    assert bench.turn(29) == []
    assert delivered(bench.turn(2)) == [(id, 1)]


def test_a_message_requeued_for_as_long_as_can_be_said_waits_after_restarts_too(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10)
    id, _ = bench.pub("t")
    bench.raw(lib.MSG_REQUEUE, 1, id=id, delay=2**64 - 1)
    bench.turn()
    for _ in range(2):
        bench.restart()
        bench.sub(1, "t", "c", credit=10)
        assert bench.turn(1000) == []
        assert bench.catalog()["t"].channels["c"].deferred == 1


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("hours", [1, 0, -1], ids=["set back", "right", "set forward"])
@pytest.mark.parametrize("how", ["published", "requeued", "before the channel"])
def test_what_is_deferred_waits_no_longer_than_was_left_whatever_the_clock_was_set_to(
    bench: Channels, how: str, hours: int, moved: bool
) -> None:
    if how != "before the channel":
        bench.sub(1, "t", "c", credit=10)
    if how != "requeued":
        id, _ = bench.pub("t", delay=8)
    else:
        id, came = bench.pub("t")
        assert delivered(came or bench.turn()) == [(id, 1)]
        bench.req(1, id, delay=8)
    bench.sub(1, "t", "c", credit=10)
    bench.turn(3)
    bench.pub("other")  # the log sees that time has passed
    if moved:
        roll(bench)
        for _ in range(10):
            if lib.worker_compact(bench.worker, 0, 1 << 20):
                break
        bench.turn()
        drop_oldest(bench)
    for restarts in (1, 2):
        bench.wall -= hours * 3600 * SECOND
        bench.restart()
        bench.pub("other")  # what passes behind this the log knows of
        bench.sub(1, "t", "c", credit=10)
        if hours >= 0:
            assert delivered(bench.turn(2.4)) == []
            assert bench.catalog()["t"].channels["c"].deferred == 1
            bench.pub("other")
        if hours < 0 or restarts == 2:
            again = (how == "requeued") + (restarts if hours < 0 else 1)
            assert delivered(bench.turn(0.3)) == [(id, again)]
