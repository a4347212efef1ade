"""What becomes of a channel's messages, by ring messages alone, when it or its topic is paused, emptied or deleted."""

from __future__ import annotations

from mq_shards.csrc._core import lib

from tests.shards.bench import OK
from tests.shards.subscriptions import Channels, delivered


def test_a_paused_channel_gets_nothing_and_a_paused_topic_keeps_what_comes(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10)
    assert bench.change(lib.CHANGE_PAUSE, "t", "c") == OK
    id, pushed = bench.pub("t")
    assert pushed == []
    assert bench.change(lib.CHANGE_UNPAUSE, "t", "c") == OK
    assert delivered(bench.pushed) == [(id, 1)]
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    held, pushed = bench.pub("t")
    assert pushed == []
    assert (bench.catalog()["t"].depth, bench.catalog()["t"].channels["c"].depth) == (1, 0)
    bench.restart()
    assert bench.catalog()["t"].paused
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(id, 2)]
    bench.sub(2, "t", "new", credit=10)
    assert bench.turn() == []
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert sorted((a.conn, a.id) for a in bench.pushed) == [(1, held), (2, held)]


def test_emptied_and_deleted_is_gone_for_good(bench: Channels) -> None:
    ids = [bench.pub("t")[0] for _ in range(5)]
    bench.sub(1, "t", "c", credit=2)
    bench.sub(2, "t", "d")
    bench.turn()
    assert bench.change(lib.CHANGE_EMPTY, "t", "c") == OK
    assert {n: (c.depth, c.in_flight) for n, c in bench.catalog()["t"].channels.items()} == {"c": (0, 0), "d": (0, 0)}
    assert [a.status for a in bench.fin(1, ids[0])] == [lib.STATUS_NOT_FOUND]
    id, pushed = bench.pub("t")
    assert delivered(pushed) == [(id, 1)]
    assert bench.change(lib.CHANGE_DELETE, "t", "c") == OK
    assert [(a.conn, a.kind) for a in bench.pushed] == [(1, lib.MSG_DISMISSED)]
    assert bench.change(lib.CHANGE_DELETE, "t", "c") == lib.STATUS_NONE
    bench.restart()
    assert {n: c.depth for n, c in bench.catalog()["t"].channels.items()} == {"d": 1}
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    assert bench.change(lib.CHANGE_DELETE, "t") == lib.STATUS_NOT_FOUND
    bench.restart()
    assert "t" not in bench.catalog()


def test_a_topic_without_channels_can_be_emptied(bench: Channels) -> None:
    for _ in range(5):
        bench.pub("t")
    assert bench.change(lib.CHANGE_EMPTY, "t") == OK
    assert bench.catalog()["t"].depth == 0
    id, _ = bench.pub("t")
    bench.restart()
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(id, 1)]
