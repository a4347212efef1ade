"""Ephemeral channels and topics, by ring messages alone: they go with their last consumer, and nothing of them is in
the log but what it must say for others."""

from __future__ import annotations

from mq_shards.csrc._core import lib

from tests.shards.bench import OK, RESERVE, WATCH
from tests.shards.subscriptions import EPHEMERAL, GONE, Channels, delivered


def test_an_ephemeral_channel_goes_with_its_last_consumer(bench: Channels) -> None:
    bench.sub(1, "t", "c#ephemeral", credit=1, flags=EPHEMERAL)
    id, pushed = bench.pub("t")
    assert delivered(pushed) == [(id, 1)]
    bench.raw(GONE, 1)
    assert bench.catalog()["t"].channels == {}


def test_an_ephemeral_topic_goes_with_its_last_channel_and_does_not_outlive_the_process(bench: Channels) -> None:
    name = "t#ephemeral"
    bench.said[name] = lib.MSG_TOPIC_EPHEMERAL
    bench.sub(1, name, "c", credit=1)
    bench.pub(name)
    bench.pub("other")
    bench.restart()
    assert set(bench.catalog()) == {"other"}
    bench.sub(1, name, "c", credit=1)
    bench.pub(name)
    bench.raw(GONE, 1)
    assert set(bench.catalog()) == {"other"}


def test_an_ephemeral_channel_is_never_far_behind(bench: Channels) -> None:
    bench.sub(1, "t", "c#ephemeral", flags=EPHEMERAL)
    bench.sub(2, "t", "c")
    ids: list[int] = []
    for _ in range(12):
        ids += bench.mpub("t", [b"x"] * 1000)
    channels = bench.catalog()["t"].channels
    assert (channels["c#ephemeral"].depth, channels["c"].depth) == (10000, 12000)
    assert delivered(bench.credit(1, 1)) == [(ids[2000], 1)]


def test_what_an_ephemeral_channel_had_is_nobodys_after_a_restart(bench: Channels) -> None:
    waited, _ = bench.pub("t")
    bench.sub(1, "t", "c#ephemeral", credit=10, flags=EPHEMERAL)
    assert delivered(bench.turn()) == [(waited, 1)]
    finished, _ = bench.pub("t")
    unfinished, _ = bench.pub("t")
    bench.fin(1, waited, finished)
    bench.restart()
    assert (bench.catalog()["t"].depth, bench.catalog()["t"].channels) == (0, {})
    bench.sub(1, "t", "c#ephemeral", credit=10, flags=EPHEMERAL)
    bench.sub(2, "t", "d", credit=10)
    assert delivered(bench.turn()) == []
    both, _ = bench.pub("t")
    bench.restart()
    bench.sub(2, "t", "d", credit=10)
    assert delivered(bench.turn()) == [(both, 2)]
    assert unfinished < both


def test_a_tube_of_an_ephemeral_topics_name_keeps_its_jobs(bench: Channels) -> None:
    name = "t#ephemeral"
    bench.said[name] = lib.MSG_TOPIC_EPHEMERAL
    bench.sub(1, name, "c", credit=1)
    bench.restart()
    job, _ = bench.pub(name, durable=False)
    bench.restart()
    bench.raw(WATCH, 5, topic=bench.topic(name))
    bench.turn()
    assert bench.ask(RESERVE, 5).id == job


def test_a_topic_stopped_with_an_ephemeral_channel_keeps_what_comes(bench: Channels) -> None:
    bench.sub(1, "t", "c#ephemeral", credit=10, flags=EPHEMERAL)
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    kept, _ = bench.pub("t")
    bench.restart()
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    bench.sub(2, "t", "d", credit=10)
    assert delivered(bench.turn()) == [(kept, 1)]
